"""Tests `kill -9` at random times under load, with a faulty back end: no acknowledged request is lost or doubled.

A request is acknowledged if the response is 200. Each must be forwarded at least once, byte for byte, and each
run whose spans were all acknowledged must be in the store with all its calls. It must be evaluated once if its spans
were in one request, however often the client sent that request again because it got no response.
"""

from __future__ import annotations

import http.client
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import pytest

from capture.receivers import plain
from goldspan.store import SqliteStore, open_store
from support.gateway_agent_runs import GOLDENS, Request, request
from support.gateway_process import PATIENCE_S, Gateway, eventually
from support.recording_backend import BackEnd, Mood, back_end

ROUNDS = max(4, int(50 * float(os.environ.get("STRESS", "1"))))
"""Number of kills of the gateway; `STRESS=0.1` reduces it to a tenth, and to four at least."""
CLIENTS = 4
PAUSE_S = 0.02
"""Seconds between two requests of a client, so that the gateway completes its work before the next kill."""
MOODS: tuple[Mood | None, ...] = ("takes", "refuses", "hangs", "hangs up", "forgets to answer", None)
"""The behaviour of the back end in each round; `None`: it does not listen."""


@dataclass
class Tally:
    """What one client knows for certain."""

    acknowledged: list[bytes] = field(default_factory=list)
    """Checksums of the acknowledged bodies."""
    whole: list[Request] = field(default_factory=list)
    """Runs whose spans were all acknowledged."""
    answers: Counter[str] = field(default_factory=Counter)
    again: int = 0
    """Bodies that were sent again because the first attempt got no response."""


class Client(threading.Thread):
    """Sends requests one after the other; one without a response is sent again, or sometimes abandoned."""

    def __init__(self, port: int, seed: int, until: threading.Event) -> None:
        super().__init__(daemon=True)
        self.tally = Tally()
        self._port = port
        self._draw = random.Random(seed)
        self._until = until
        self._connection: http.client.HTTPConnection | None = None

    def run(self) -> None:
        number = 0
        while not self._until.is_set():
            number += 1
            parts = 1 if self._draw.random() < 0.7 else 2
            made = request(number, self._draw, parts=parts, filler=number % 2000)
            # The gateway would wait for the rest of a partial run, and after each restart for all later entries.
            lasting = len(made.bodies) > 1
            if all(self._send(body, lasting=lasting) for body in made.bodies):
                self.tally.whole.append(made)
            self._until.wait(PAUSE_S)
        if self._connection:
            self._connection.close()

    def _send(self, body: bytes, *, lasting: bool) -> bool:
        """Whether the request was acknowledged at last."""
        while not self._until.is_set():
            status = self._status(body)
            self.tally.answers[str(status)] += 1
            if status == 200:
                self.tally.acknowledged.append(sha256(body).digest())
                return True
            if status is None and not lasting and self._draw.random() < 0.1:
                return False
            self.tally.again += status is None
            self._until.wait(0.02)
        return False

    def _status(self, body: bytes) -> int | None:
        """Returns the status of the response; `None` without one: the request may or may not have been accepted."""
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            self._connection.request("POST", "/v1/traces", body, {"Content-Type": "application/x-protobuf"})
            answer = self._connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            self._connection = None
            return None
        return answer.status


@contextmanager
def clients(port: int, draw: random.Random) -> Iterator[list[Client]]:
    """Runs clients until the end of the block."""
    until = threading.Event()
    sending = [Client(port, draw.getrandbits(64), until) for _ in range(CLIENTS)]
    for client in sending:
        client.start()
    try:
        yield sending
    finally:
        until.set()
        for client in sending:
            client.join(PATIENCE_S)


STEPPING_CLOCK = """
import random, time

def stepping(clock, unit):
    return lambda: clock() + random.Random(int(time.monotonic() * 2)).choice((-86_400, -1, 0, 0, 3_600)) * unit

time.time, time.time_ns = stepping(time.time, 1), stepping(time.time_ns, 10**9)
"""
"""A `sitecustomize` for Python: the clock of the process jumps twice a second, by up to a day."""


@pytest.mark.stress
@pytest.mark.parametrize(
    ("workers", "clock"),
    [
        pytest.param(1, "", id="one worker"),
        pytest.param(2, "", id="two workers"),
        pytest.param(1, STEPPING_CLOCK, id="a clock that steps"),
    ],
)
def test_acknowledged_requests_are_forwarded_and_scored_once_despite_repeated_kills(
    workers: int, clock: str, tmp_path: Path
) -> None:
    draw = random.Random(workers)
    seconds: list[float] = []
    with back_end() as behind:
        gateway = _gateway(tmp_path, behind, workers, clock)
        gateway.start()
        try:
            with clients(gateway.http_port, draw) as sending:
                for number in range(ROUNDS):
                    _set_back_end_mood(behind, MOODS[number % len(MOODS)])
                    time.sleep(draw.uniform(0.1, 2.0))
                    gateway.kill()
                    began = time.monotonic()
                    # In every other round the gateway is killed again while it still processes the rest of the journal.
                    gateway.start("/healthz" if number % 2 else "/readyz")
                    seconds.append(time.monotonic() - began)
            _set_back_end_mood(behind, "takes")
            tallies = [client.tally for client in sending]
            _wait_until_forwarded(behind, tallies, gateway)
            assert gateway.stop() == 0, gateway.log
        finally:
            gateway.kill()
        assert "Traceback" not in gateway.log, gateway.log
        _print_figures(
            f"{workers} worker{'s'[: workers - 1]}{', a clock that steps' * bool(clock)}", behind, tallies, seconds
        )
        _check_forwarded(behind, tallies)
        with open_store(gateway.data / "goldspan.db", read_only=True) as store:
            _check_scored(store, tallies)
            store.check()
        told = {plain(event.attributes).get("goldspan.run.id") for event in behind.events}
        assert {made.run_id for tally in tallies for made in tally.whole} <= told


def _gateway(folder: Path, behind: BackEnd, workers: int, clock: str) -> Gateway:
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(clock)
    (folder / "goldens.yaml").write_text(GOLDENS)
    (folder / "goldspan.yaml").write_text(
        f"forward: [{{name: behind, endpoint: '{behind.address}', timeout_seconds: 1}}]\n"
        f"goldens: [goldens.yaml]\nworkers: {workers}\ngrace: 0.2\nidle: 120\ndrain_seconds: 60\n"
    )
    return Gateway(folder, (), {"PYTHONPATH": str(folder / "site")})


def _set_back_end_mood(behind: BackEnd, mood: Mood | None) -> None:
    if mood is None:
        behind.go_down()
        return
    behind.come_up()
    behind.behave(mood)


def _hashes(bodies: list[bytes]) -> set[bytes]:
    return {sha256(body).digest() for body in bodies}


def _wait_until_forwarded(behind: BackEnd, tallies: list[Tally], gateway: Gateway) -> None:
    acknowledged = set().union(*(tally.acknowledged for tally in tallies))

    def missing() -> int:
        return len(acknowledged - _hashes(list(behind.bodies["/v1/traces"])))

    eventually(
        lambda: not missing(), lambda: f"{missing()} acknowledged requests were not forwarded\n{gateway.log}", 300
    )


def _check_forwarded(behind: BackEnd, tallies: list[Tally]) -> None:
    arrived = _hashes(behind.bodies["/v1/traces"])
    for tally in tallies:
        assert arrived.issuperset(tally.acknowledged)


def _check_scored(store: SqliteStore, tallies: list[Tally]) -> None:
    """Asserts that each complete run is stored correctly, and once if it was sent in one request."""
    for tally in tallies:
        for made in tally.whole:
            evaluations = store.evaluations(made.run_id)
            assert evaluations, f"{made.run_id} was acknowledged and is not scored"
            assert len({evaluation.revision for evaluation in evaluations}) == len(evaluations)
            stored = store.run(made.run_id)
            assert stored is not None
            assert sorted(call["name"] for call in stored.current.document["tool_calls"]) == ["book", "search"]
            assert stored.current.document["passed"] is True
            if len(made.bodies) == 1:
                assert [evaluation.revision for evaluation in evaluations] == [1]


def _print_figures(what: str, behind: BackEnd, tallies: list[Tally], seconds: list[float]) -> None:
    acknowledged = sum(len(tally.acknowledged) for tally in tallies)
    answers = sum((tally.answers for tally in tallies), Counter[str]())
    arrived = behind.bodies["/v1/traces"]
    print(
        f"\n{what}: killed {len(seconds)} times; {acknowledged} requests acknowledged, "
        f"{sum(tally.again for tally in tallies)} sent again because no answer came (answers: {dict(answers)}); "
        f"{sum(len(tally.whole) for tally in tallies)} whole runs; {len(arrived)} requests forwarded, "
        f"{len(arrived) - len(_hashes(arrived))} of them again; the back end did not take {behind.refused}; "
        f"ready again after {max(seconds):.1f} s at most",
        flush=True,
    )
