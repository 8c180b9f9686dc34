"""`goldspan watch`: prints the runs of a running gateway as they are scored."""

from __future__ import annotations

import os
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.padding import Padding
from rich.text import Text

from goldspan.cli import input_options
from goldspan.cli.api_client import MAX_DOCUMENTS_PER_PAGE, ApiClient, ApiDocument, GatewayUnavailableError
from goldspan.cli.console import (
    ResultsConsole,
    escape_control_characters,
    print_warning,
    stderr_console,
    stdout_console,
)
from goldspan.cli.input_options import JsonFlag
from goldspan.cli.tables import mark_symbol
from goldspan.content.tools import fold_name
from goldspan.errors import ConfigurationError
from goldspan.gateway.receivers.authorization import parse_tokens, read_token_file
from goldspan.goldens.lookup.golden_lookup import ANONYMOUS_GOLDEN_ID
from goldspan.model.rendering import OUTCOME_SYMBOLS, SYMBOLS, Symbol, shorten_request
from goldspan.sinks.serialization import to_json
from goldspan.store import RunFilter
from goldspan.store.store_protocol import ToolRole

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


EXAMPLES = """
Examples:\n
  goldspan watch\n
  goldspan watch https://gateway.example --token-file read-token --verdict fail\n
  goldspan watch --golden refund --metric tool_recall --below 0.8 --since 1h\n
  goldspan watch --once --since 24h --json > day.jsonl\n
"""
_TOKEN, _TOKEN_FILE = "GOLDSPAN_READ_TOKEN", "GOLDSPAN_READ_TOKEN_FILE"
_POLL_INTERVAL_S = 1.0
"""Seconds between two requests to the gateway."""
_MAX_BACKOFF_S = 30.0
"""Longest time between two attempts to reach an unavailable gateway."""
_INITIAL_RUNS, _INITIAL_RUNS_SINCE = 20, 1000
"""Maximum of runs that are shown at the start: without `--since`, and with it."""


def watch(
    address: Annotated[
        str, typer.Argument(metavar="URL", help="Address of the gateway: that of OTLP/HTTP and the API.")
    ] = "http://127.0.0.1:4318",
    verdict: input_options.VerdictFilter = None,
    golden: input_options.GoldenFilter = None,
    agent: input_options.AgentFilter = None,
    service: input_options.ServiceFilter = None,
    unit: input_options.UnitFilter = None,
    tool: input_options.ToolFilter = None,
    tool_role: input_options.ToolRoleFilter = "called",
    metric: input_options.MetricFilter = None,
    below: input_options.BelowFilter = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="First show the runs since TIME: 1h, 7d, 2026-01-31T08:00."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", metavar="N", min=0, help="Maximum of runs shown at the start. Default: 20, with --since 1000"
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show the stored runs, and exit.")] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help=f"File with a read token. Default: the variables {_TOKEN} or {_TOKEN_FILE}",
            show_default=False,
        ),
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option("--ca-file", metavar="FILE", help="Certificate authorities to trust for https://, PEM."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the runs of a running gateway as they are scored, newest last, until Ctrl-C.

    The options select runs. Output that does not go to a terminal has one line for each evaluation.

    Exit status: 0 all runs were shown, 2 the gateway cannot be reached or rejects the token, 130 ended by Ctrl-C.
    """
    if below is not None and metric is None:
        raise ConfigurationError("--below needs --metric: it compares the scores of that metric")
    if tool_role != "called" and tool is None:
        raise ConfigurationError("--tool-role needs --tool: it states the role of that tool")
    wanted = RunFilter(
        verdict=verdict, golden=golden, agent=agent, service=service, unit=unit, tool=tool, tool_role=tool_role,
        metric=metric, below=below,
    )  # fmt: skip
    remote = ApiClient(address, _read_token(token_file), ca_file)
    remote.require_goldspan()
    # Read before the stored runs, so that no evaluation is missed between the two requests.
    after = 0 if once else remote.last_sequence_number()
    said = query_parameters(wanted) | ({"since": since} if since else {})
    there = remote.list_runs(said, limit if limit is not None else _INITIAL_RUNS_SINCE if since else _INITIAL_RUNS)
    view = _FeedView(remote.address, stdout_console(), wanted, as_json=as_json)
    with view.live_status(status=not once):
        for run in reversed(there):
            view.show({name: value for name, value in run.items() if name not in _RUN_ONLY_FIELDS})
        if not once:
            seen = {(run.get("run_id"), run.get("revision"), run.get("digest")) for run in there}
            _poll(remote, view, after, seen)


_RUN_ONLY_FIELDS = ("time", "evaluation_count")
"""Fields of a run in the API that its evaluation does not have."""


class _FeedView:
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


def _poll(remote: ApiClient, view: _FeedView, after: int, seen: set[tuple[object, object, object]]) -> None:
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


def _read_token(file: Path | None) -> str | None:
    """Return the read token: the first one if several are stated."""
    if file is not None:
        return read_token_file(file, "--token-file")[0]
    if said := os.environ.get(_TOKEN):
        return parse_tokens(said, _TOKEN)[0]
    if named := os.environ.get(_TOKEN_FILE):
        return read_token_file(Path(named), _TOKEN_FILE)[0]
    return None
