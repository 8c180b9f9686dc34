"""Evaluations as they come from a gateway: which are wanted, what a line says of each, and what they add up to."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from goldspan.cli.console import clean
from goldspan.cli.tables import sign
from goldspan.extraction.names import fold
from goldspan.goldens.statements import ANONYMOUS
from goldspan.model.rendering import MARKS, VERDICTS, Mark, asked
from goldspan.store import RunFilter
from goldspan.store.protocol import ToolRole

_SAME = ("verdict", "agent", "service", "environment", "unit")
"""What a filter and a document call by the same name."""
_BETWEEN_TOOLS = re.compile(r" or | \+ | & ")
"""What stands between the names of tools where several together are expected, or one of several."""
_REMEMBERED = 100_000
"""Runs of which it is known how they came out, so that a revision does not count as a run."""
_SHOWN: Mapping[str, Mark] = {mark.meaning: mark for mark in MARKS}
_AMISS: Mapping[str, Mark] = {
    "missing": _SHOWN["missing"],
    "unexpected": _SHOWN["not expected"],
    "forbidden": _SHOWN["forbidden"],
}
_PASSED: Mapping[str, bool | None] = {"pass": True, "fail": False, "not_evaluated": None}


def parameters(wanted: RunFilter) -> dict[str, str]:
    """A filter as the API is told it."""
    said = {field.name: getattr(wanted, field.name) for field in fields(RunFilter)}
    if wanted.tool is None:
        del said["tool_role"]
    return {name: f"{value}" for name, value in said.items() if value is not None}


def meets(document: Mapping[str, Any], wanted: RunFilter) -> bool:
    """Whether an evaluation is one that the filter means, as the API would have it."""
    if any(getattr(wanted, name) not in (None, document.get(name)) for name in _SAME):
        return False
    if wanted.golden not in (None, document.get("golden_id")):
        return False
    if wanted.tool is not None and fold(wanted.tool) not in {fold(name) for name in _tools(document, wanted.tool_role)}:
        return False
    scores = [score.get("value") for score in document.get("scores", ()) if score.get("metric") == wanted.metric]
    if wanted.below is not None:
        return any(value is not None and value < wanted.below for value in scores)
    return wanted.metric is None or bool(scores)


def line_of(document: Mapping[str, Any], console: Console, *, now: datetime) -> Text:
    """An evaluation but for its reason: when, how it came out, golden and agent, what is amiss, what was asked."""
    line = Text(no_wrap=True, overflow="ellipsis").append(f"{_time(document, now)} ", style="dim")
    mark = VERDICTS[_PASSED.get(str(document.get("verdict")))]
    line.append_text(sign(mark, console)).append(f" {_one_line(_name(document))}", style="bold")
    if said := "; ".join(_beside(document)):
        line.append(f" ({_one_line(said)})", style="dim")
    for verdict, tools in _amiss(document).items():
        for tool in tools:
            line.append("  ").append_text(sign(_AMISS[verdict], console)).append(f" {_one_line(tool)}")
    if question := asked(document.get("input")):
        line.append(f"  {_one_line(question)}", style="dim")
    return line


def reason_of(document: Mapping[str, Any]) -> str:
    """Why it came out so; nothing where all went well."""
    return "" if document.get("verdict") == "pass" else _one_line(str(document.get("reason") or ""))


class Totals:
    """How the runs came out that were seen, each by its latest evaluation."""

    def __init__(self) -> None:
        self._verdicts: OrderedDict[str, str] = OrderedDict()
        self.counts: Counter[str] = Counter()
        """Runs by verdict."""

    def add(self, document: Mapping[str, Any], *, wanted: bool = True) -> None:
        """Count an evaluation; one that is not wanted any more takes its run out of the count."""
        run, verdict = str(document.get("run_id")), str(document.get("verdict"))
        if (before := self._verdicts.pop(run, None)) is not None:
            self.counts[before] -= 1
        if wanted:
            self._verdicts[run] = verdict
            self.counts[verdict] += 1
        if len(self._verdicts) > _REMEMBERED:
            self._verdicts.popitem(last=False)

    def told(self) -> Text:
        """What all of them add up to. With nothing judged there is no pass rate."""
        passed, failed, unjudged = (self.counts[verdict] for verdict in _PASSED)
        total = passed + failed + unjudged
        said = Text(f"{total} run{'s' * (total != 1)}: ").append(f"{passed} passed", style="green").append(", ")
        said.append(f"{failed} failed", style="red" if failed else "")
        if unjudged:
            said.append(f", {unjudged} not evaluated", style="yellow")
        return said.append(f"; pass rate {passed / (passed + failed):.1%}") if passed + failed else said


def _time(document: Mapping[str, Any], now: datetime) -> str:
    """When it was stored, in the zone of whoever looks; with the day where it is not today."""
    try:
        stored = datetime.fromisoformat(str(document["stored"])[:19] + "+00:00").astimezone(now.tzinfo)
    except (LookupError, ValueError):
        return "--:--:--"
    return f"{stored:%H:%M:%S}" if stored.date() == now.date() else f"{stored:%m-%d %H:%M:%S}"


def _name(document: Mapping[str, Any]) -> str:
    """The golden or, where there is none with a name, what the run is."""
    golden = document.get("golden_id")
    if golden and golden != ANONYMOUS:
        return str(golden)
    return str(document.get("component") or document.get("agent") or document.get("service") or "run")


def _beside(document: Mapping[str, Any]) -> Iterator[str]:
    """What the name does not tell."""
    name = _name(document)
    if (component := document.get("component")) and component != name:
        yield f"component {component}"
    if (agent := document.get("agent")) and agent != name:
        yield f"agent {agent}"
    if (revision := document.get("revision")) and revision != 1:
        yield f"revision {revision}"


def _amiss(document: Mapping[str, Any]) -> dict[str, list[str]]:
    """The tools that are missing and so on, each once, in the order of the run."""
    found = {verdict: list(dict.fromkeys(_in_rows(document, verdict))) for verdict in _AMISS}
    return {verdict: tools for verdict, tools in found.items() if tools}


def _in_rows(document: Mapping[str, Any], *verdicts: str) -> Iterator[str]:
    """What stands in the rows with these verdicts: what was expected, else what was called."""
    for row, call in _rows(document):
        if row.get("verdict") in verdicts:
            yield str(row.get("expected") or call.get("name"))


def _tools(document: Mapping[str, Any], role: ToolRole) -> Iterator[str]:
    """The tools that were that in the run."""
    if role == "called":
        yield from map(str, document.get("tools_used", ()))
    elif role == "failed":
        yield from (str(call.get("name")) for _, call in _rows(document) if "error" in call)
    elif role in ("expected", "missing"):
        for name in _in_rows(document, "missing", *(("paired",) if role == "expected" else ())):
            yield from _BETWEEN_TOOLS.split(name)
    else:
        yield from _in_rows(document, role)


def _rows(document: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """The rows of the comparison, each with the call that is in it."""
    calls = document.get("tool_calls", ())
    for row in document.get("rows", ()):
        at = row.get("called_at")
        yield row, {} if at is None else calls[at]


def _one_line(text: str) -> str:
    return clean(" ".join(text.split()))
