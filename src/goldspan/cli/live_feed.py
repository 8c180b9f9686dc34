"""Prints the evaluations of a running gateway for `goldspan watch`, and selects them as the API does."""

from __future__ import annotations

import re
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.padding import Padding
from rich.text import Text

from goldspan.cli.api_client import MAX_DOCUMENTS_PER_PAGE, ApiClient, ApiDocument, GatewayUnavailableError
from goldspan.cli.console import (
    ResultsConsole,
    print_warning,
    stderr_console,
)
from goldspan.goldens.lookup.golden_lookup import ANONYMOUS_GOLDEN_ID
from goldspan.model.markup import shorten_request
from goldspan.model.name_folding import fold_name
from goldspan.model.rendering import OUTCOME_SYMBOLS, SYMBOLS, Symbol
from goldspan.sinks.serialization import to_json
from goldspan.store import RunFilter
from goldspan.store.store_protocol import ToolRole
from goldspan.terminal.escapes import escape_control_characters
from goldspan.terminal.evaluation_text import mark_symbol

_SHARED_FIELDS = ("verdict", "agent", "service", "environment", "unit")
"""Fields that have the same name in a filter and in a document of the API."""
_TOOL_SEPARATORS = re.compile(r" or | \+ | & ")
"""Separators between the names of tools where several, or one of several, are expected."""
_MAX_REMEMBERED_RUNS = 100_000
"""Runs whose verdict is remembered, so that a revision does not count as a further run."""
_MARK_BY_MEANING: Mapping[str, Symbol] = {mark.meaning: mark for mark in SYMBOLS}
_PROBLEM_MARKS: Mapping[str, Symbol] = {
    "missing": _MARK_BY_MEANING["missing"],
    "unexpected": _MARK_BY_MEANING["not expected"],
    "forbidden": _MARK_BY_MEANING["forbidden"],
}
_PASSED_BY_VERDICT: Mapping[str, bool | None] = {"pass": True, "fail": False, "not_evaluated": None}
_POLL_INTERVAL_S = 1.0
"""Seconds between two requests to the gateway."""
_MAX_BACKOFF_S = 30.0
"""Longest time between two attempts to reach an unavailable gateway."""


def query_parameters(wanted: RunFilter) -> dict[str, str]:
    """Return the query parameters of the API for a filter."""
    said = {field.name: getattr(wanted, field.name) for field in fields(RunFilter)}
    if wanted.tool is None:
        del said["tool_role"]
    return {name: f"{value}" for name, value in said.items() if value is not None}


def matches_filter(document: Mapping[str, Any], wanted: RunFilter) -> bool:
    """Return whether a filter selects an evaluation, with the semantics of the API."""
    if any(getattr(wanted, name) not in (None, document.get(name)) for name in _SHARED_FIELDS):
        return False
    if wanted.golden not in (None, document.get("golden_id")):
        return False
    if wanted.tool is not None and fold_name(wanted.tool) not in {
        fold_name(name) for name in _tools_with_role(document, wanted.tool_role)
    }:
        return False
    scores = [score.get("value") for score in document.get("scores", ()) if score.get("metric") == wanted.metric]
    if wanted.below is not None:
        return any(value is not None and value < wanted.below for value in scores)
    return wanted.metric is None or bool(scores)


def feed_line(document: Mapping[str, Any], console: Console, *, now: datetime) -> Text:
    """Format an evaluation without its reason: time, verdict, golden, agent, wrong tools, request."""
    line = Text(no_wrap=True, overflow="ellipsis").append(f"{_time_text(document, now)} ", style="dim")
    mark = OUTCOME_SYMBOLS[_PASSED_BY_VERDICT.get(str(document.get("verdict")))]
    line.append_text(mark_symbol(mark, console)).append(f" {_one_line(_run_name(document))}", style="bold")
    if said := "; ".join(_details(document)):
        line.append(f" ({_one_line(said)})", style="dim")
    for verdict, tools in _problems(document).items():
        for tool in tools:
            line.append("  ").append_text(mark_symbol(_PROBLEM_MARKS[verdict], console)).append(f" {_one_line(tool)}")
    if question := shorten_request(document.get("input")):
        line.append(f"  {_one_line(question)}", style="dim")
    return line


def feed_reason(document: Mapping[str, Any]) -> str:
    """Return the reason of the verdict; empty for a pass."""
    return "" if document.get("verdict") == "pass" else _one_line(str(document.get("reason") or ""))


class FeedTotals:
    """Counts the runs that were shown by verdict, each with its latest evaluation."""

    def __init__(self) -> None:
        self._verdicts: OrderedDict[str, str] = OrderedDict()
        self.counts: Counter[str] = Counter()
        """Runs by verdict."""

    def add(self, document: Mapping[str, Any], *, wanted: bool = True) -> None:
        """Count an evaluation; a run whose new evaluation is not `wanted` is removed from the count."""
        run, verdict = str(document.get("run_id")), str(document.get("verdict"))
        if (before := self._verdicts.pop(run, None)) is not None:
            self.counts[before] -= 1
        if wanted:
            self._verdicts[run] = verdict
            self.counts[verdict] += 1
        if len(self._verdicts) > _MAX_REMEMBERED_RUNS:
            self._verdicts.popitem(last=False)

    def as_text(self) -> Text:
        """Format the counts, with the pass rate if a run passed or failed."""
        passed, failed, unjudged = (self.counts[verdict] for verdict in _PASSED_BY_VERDICT)
        total = passed + failed + unjudged
        said = Text(f"{total} run{'s' * (total != 1)}: ").append(f"{passed} passed", style="green").append(", ")
        said.append(f"{failed} failed", style="red" if failed else "")
        if unjudged:
            said.append(f", {unjudged} not evaluated", style="yellow")
        return said.append(f"; pass rate {passed / (passed + failed):.1%}") if passed + failed else said


def _time_text(document: Mapping[str, Any], now: datetime) -> str:
    """Format the time of storing in local time; with the date if it is not today."""
    try:
        stored = datetime.fromisoformat(str(document["stored"])[:19] + "+00:00").astimezone(now.tzinfo)
    except (LookupError, ValueError):
        return "--:--:--"
    return f"{stored:%H:%M:%S}" if stored.date() == now.date() else f"{stored:%m-%d %H:%M:%S}"


def _run_name(document: Mapping[str, Any]) -> str:
    """Return the golden of a run, else its component, agent or service."""
    golden = document.get("golden_id")
    if golden and golden != ANONYMOUS_GOLDEN_ID:
        return str(golden)
    return str(document.get("component") or document.get("agent") or document.get("service") or "run")


def _details(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the component, agent and revision, where the name does not state them."""
    name = _run_name(document)
    if (component := document.get("component")) and component != name:
        yield f"component {component}"
    if (agent := document.get("agent")) and agent != name:
        yield f"agent {agent}"
    if (revision := document.get("revision")) and revision != 1:
        yield f"revision {revision}"


def _problems(document: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the missing, unexpected and forbidden tools, each once, in the order of the run."""
    found = {verdict: list(dict.fromkeys(_tools_with_verdict(document, verdict))) for verdict in _PROBLEM_MARKS}
    return {verdict: tools for verdict, tools in found.items() if tools}


def _tools_with_verdict(document: Mapping[str, Any], *verdicts: str) -> Iterator[str]:
    """Yield the expected, else the called, tool of the rows with these verdicts."""
    for row, call in _rows(document):
        if row.get("verdict") in verdicts:
            yield str(row.get("expected") or call.get("name"))


def _tools_with_role(document: Mapping[str, Any], role: ToolRole) -> Iterator[str]:
    """Yield the tools with a role in the run."""
    if role == "called":
        yield from map(str, document.get("tools_used", ()))
    elif role == "failed":
        yield from (str(call.get("name")) for _, call in _rows(document) if "error" in call)
    elif role in ("expected", "missing"):
        for name in _tools_with_verdict(document, "missing", *(("paired",) if role == "expected" else ())):
            yield from _TOOL_SEPARATORS.split(name)
    else:
        yield from _tools_with_verdict(document, role)


def _rows(document: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield the rows of the comparison, each with its call."""
    calls = document.get("tool_calls", ())
    for row in document.get("rows", ()):
        at = row.get("called_at")
        yield row, {} if at is None else calls[at]


def _one_line(text: str) -> str:
    return escape_control_characters(" ".join(text.split()))


RUN_ONLY_FIELDS = ("time", "evaluation_count")
"""Fields of a run in the API that its evaluation does not have."""


class FeedView:
    """Prints one entry for each evaluation and, on a terminal, a status line below them."""

    def __init__(self, address: str, console: ResultsConsole, wanted: RunFilter, *, as_json: bool) -> None:
        self._address = address
        self._console = console
        self._wanted = wanted
        self._as_json = as_json
        self._totals = FeedTotals()
        self._unavailable_reason = ""

    def flush(self) -> None:
        """Flush the output."""
        self._console.flush()

    @property
    def is_closed(self) -> bool:
        """Whether the reader of the output closed it."""
        return self._console.quiet

    @contextmanager
    def live_status(self, *, status: bool) -> Iterator[None]:
        """Show the status line on a terminal while the block runs."""
        if self._as_json or not self._console.is_terminal:
            yield
        elif not status:
            yield
            self._console.print(self._totals.as_text())
        else:
            with Live(get_renderable=self._status, console=self._console, refresh_per_second=2):
                yield

    def show(self, document: ApiDocument) -> None:
        """Show an evaluation, if the filter selects it."""
        wanted = matches_filter(document, self._wanted)
        self._totals.add(document, wanted=wanted)
        if not wanted:
            return
        if self._as_json:
            self._console.write_line(to_json(document))
            return
        line, reason = feed_line(document, self._console, now=datetime.now().astimezone()), feed_reason(document)
        if self._console.is_terminal:
            self._console.print(line)
            if reason:
                self._console.print(Padding(Text(reason, style="italic dim"), (0, 0, 0, 11)))
        else:
            self._console.write_line(line.plain + (f"  {reason}" if reason else ""))

    def show_unavailable(self, error: GatewayUnavailableError, pause: float) -> None:
        """Report that the gateway does not answer."""
        if not self._console.is_terminal and not self._unavailable_reason:
            print_warning(f"{error}; retrying")
        self._unavailable_reason = f"{error}; retrying in {pause:g} s"

    def show_available(self) -> None:
        """Report that the gateway answers again."""
        if not self._console.is_terminal and self._unavailable_reason:
            stderr_console().print(f"{self._address} answers again", markup=False)
        self._unavailable_reason = ""

    def _status(self) -> Text:
        how = (
            Text(f"○ {self._unavailable_reason}", "yellow")
            if self._unavailable_reason
            else Text(f"● {self._address}", "green")
        )
        return Text.assemble(self._totals.as_text(), "   ", how, no_wrap=True, overflow="ellipsis")


def poll(remote: ApiClient, view: FeedView, after: int, seen: set[tuple[object, object, object]]) -> None:
    """Show new evaluations until the output is closed. Retries an unavailable gateway with exponential backoff."""
    pause = _POLL_INTERVAL_S
    away = False
    while not view.is_closed:
        view.flush()
        try:
            if away:  # the gateway may have restarted with an empty store
                after = min(after, remote.last_sequence_number())
            found, after = remote.evaluations_after(after)
        except GatewayUnavailableError as error:
            view.show_unavailable(error, pause)
            time.sleep(pause)
            away, pause = True, min(pause * 2, _MAX_BACKOFF_S)
            continue
        view.show_available()
        away, pause = False, _POLL_INTERVAL_S
        for document in found:
            if (document.get("run_id"), document.get("revision"), document.get("digest")) not in seen:
                view.show(document)
        if len(found) < MAX_DOCUMENTS_PER_PAGE:
            seen.clear()
            view.flush()
            time.sleep(_POLL_INTERVAL_S)
