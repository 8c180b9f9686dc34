"""Fills stores for the tests of the page, and serves it in a thread or with `goldspan view` as a process."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from goldspan import Evaluation, Goldens, Run, ToolCall, evaluate, load_goldens
from goldspan.model import Health
from goldspan.store import SqliteStore, open_store
from goldspan.web.http_routes import LocalServer
from goldspan.web.pages import Pages
from support.gateway_process import PATIENCE_S, eventually

GOLDENS = """
version: 1
goldens:
  - id: refund
    input: Refund my last order
    thresholds: {argument_correctness: 1}
    tools:
      - find_order
      - {name: refund, arguments: {order: 17, currency: EUR}}
  - id: trip/lisbon
    input: Plan a trip to Lisbon
    tools: [search_flights, search_hotels, book_trip]
    forbid: ["delete_*"]
  - id: weather
    input: What is the weather in Oslo?
    tools: [get_weather]
  - id: nobody-asks
    input: Translate the contract
    tools: [translate]
"""
"""One golden passes and fails, one has a run with many details, one always passes, one has no run."""

BEGAN_NS = 1_767_225_600_000_000_000
"""2026-01-01T00:00:00Z."""
_MS = 10**6


def goldens_in(folder: Path) -> tuple[Goldens, Path]:
    """Write the file of the goldens, and return the goldens and its path."""
    path = folder / "goldens.yaml"
    path.write_text(GOLDENS)
    return load_goldens(path), path


def fill(store: SqliteStore, goldens: Goldens, times: int = 1) -> None:
    """Store every kind of run `times` times, a minute apart."""
    for turn in range(times):
        store.submit_many(evaluate(run, goldens) for run in _runs(turn))
    trip = trip_run(0)
    late = ToolCall("book_trip", arguments={"hotel": "Alfama House"}, start_ns=BEGAN_NS + 400 * _MS)
    store.submit(replace(evaluate(replace(trip, tool_calls=(*trip.tool_calls, late)), goldens), revision=2))


def run_id(kind: int, turn: int = 0) -> str:
    """Return the id of a run of `fill`: 1 passed, 2 failed, 3 has many details, 4 and 5 no golden, 6 no times."""
    return f"{kind * 1000 + turn:032x}:{1:016x}"


def trip_run(turn: int) -> Run:
    """Build a run with parallel and nested calls of two agents; one call failed, and one is forbidden."""
    calls = (
        _call("search_hotels", 0, 120, beside=(1,), result=["Alfama House"]),
        _call("search_flights", 10, 90, beside=(0,), error="TimeoutError: nobody answered"),
        _call("ask_planner", 150, 390, beside=(3,), kind="agent"),
        _call("delete_booking", 200, 250, beside=(2,), agent="planner"),
    )
    return _run(3, turn, "Plan a trip to Lisbon", calls, agent="travel", session_id="session-1")


def _runs(turn: int) -> Iterator[Run]:
    refund = (_call("find_order", 0, 40), _call("refund", 50, 90, arguments={"order": 17, "currency": "EUR"}))
    wrong = (_call("find_order", 0, 40), _call("refund", 50, 90, arguments={"order": 71, "currency": "EUR"}))
    yield _run(1, turn, "Refund my last order", refund)
    yield _run(2, turn, "Refund my last order", wrong)
    yield trip_run(turn)
    for kind, asked in ((4, f"Cancel subscription {turn}"), (5, "Sing me a song")):
        yield _run(kind, turn, asked, (_call("find_account", 0, 10),), service="billing")
    weather = (ToolCall("get_weather"),)
    health = Health(arguments_absent=1, content_off=True, missing_root=True)
    yield _run(6, turn, "What is the weather in Oslo?", weather, agent=None, health=health)


def _run(kind: int, turn: int, asked: str, calls: Sequence[ToolCall], **more: Any) -> Run:
    began = BEGAN_NS + (turn * 60 + kind) * 1000 * _MS
    fields: dict[str, Any] = {"agent": "support", "service": "shop", "environment": "test", **more}
    return Run(
        run_id(kind, turn),
        trace_ids=(f"{kind * 1000 + turn:032x}",),
        input=asked,
        tool_calls=tuple(replace(call, start_ns=_after(began, call.start_ns), end_ns=_after(began, call.end_ns))
                         for call in calls),
        conventions=("genai",),
        start_ns=began,
        end_ns=began + 500 * _MS,
        **fields,
    )  # fmt: skip


def _call(name: str, begin: int, end: int, *, beside: tuple[int, ...] = (), **more: Any) -> ToolCall:
    """Build a call. `begin` and `end` are milliseconds after the start of its run."""
    fields: dict[str, Any] = {"arguments": {}, **more}
    return ToolCall(name, start_ns=begin * _MS, end_ns=end * _MS, concurrent_with=beside, **fields)


def _after(began: int, moment: int | None) -> int | None:
    return None if moment is None else began + moment


def evaluation(run: Run, goldens: Goldens | None = None) -> Evaluation:
    """Evaluate a run with these goldens, or without any."""
    return evaluate(run, goldens if goldens is not None else Goldens([]))


@contextmanager
def served(site: Pages) -> Iterator[str]:
    """Serve the page in a thread of this process; yield its address without the trailing slash."""
    viewer = LocalServer(site, 0)
    thread = threading.Thread(target=viewer.serve, name="page")
    thread.start()
    try:
        yield viewer.address.removesuffix("/")
    finally:
        viewer._server.should_exit = True
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


@dataclass
class View:
    """`goldspan view` as a process."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    @property
    def address(self) -> str:
        """The address that it prints, without the trailing slash; waits until it is printed."""
        eventually(lambda: self._printed_address() is not None or self.process.poll() is not None, lambda: self.said)
        found = self._printed_address()
        assert found is not None, self.said
        return found[1]

    def interrupt(self, number: int = signal.SIGINT) -> int:
        """Send the signal of Ctrl+C, wait, and return the exit status."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def _printed_address(self) -> re.Match[str] | None:
        return re.search(r"(http://127\.0\.0\.1:\d+)/", self.said)


@contextmanager
def viewing(folder: Path, *arguments: object) -> Iterator[View]:
    """Run `goldspan view` with these arguments in that folder, on a free port unless they name one."""
    log = folder / f"view-{len(list(folder.glob('view-*.log')))}.log"
    port = () if "--port" in arguments else ("--port", "0")
    command = [sys.executable, "-m", "goldspan", "view", *map(str, arguments), *port, "--no-open"]
    with log.open("wb") as written:
        process = subprocess.Popen(command, cwd=folder, stdout=written, stderr=written, stdin=subprocess.DEVNULL)
    try:
        yield View(process, log)
        if process.poll() is None:
            process.terminate()
            process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def store_in(folder: Path, times: int = 1, *, keep_arguments: bool = True) -> tuple[Path, Path]:
    """Create a store with every kind of run, and the file of its goldens; return both paths."""
    goldens, path = goldens_in(folder)
    with open_store(folder / "goldspan.db", keep_arguments=keep_arguments) as store:
        fill(store, goldens, times)
    return folder / "goldspan.db", path
