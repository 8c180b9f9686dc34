"""The data of one run's view: comparison, timeline, scores, capture health and revisions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from goldspan.extraction.capture_diagnostics import Hint
from goldspan.model.rendering import OUTCOME_SYMBOLS, SYMBOLS, RenderedRow, Symbol, truncate
from goldspan.store import StoredEvaluation, StoredRun
from goldspan.web.display_text import truncate_value
from goldspan.web.run_list import (
    comparison_lines,
    golden_id_of,
    match_description,
    run_name,
    short_name,
    stored_capture_hints,
)

TIMELINE_WIDTH = 1000
"""The whole line, in units of the drawing."""
_MIN_BAR_WIDTH = 4
"""So wide a bar is at least, or nobody would see it."""
MAX_DEPTH = 6
"""So many levels are told apart."""
MAX_BARS = 150
"""So many calls are drawn."""
_MAX_AGENTS = 50


@dataclass(frozen=True, slots=True)
class TimelineBar:
    """One call."""

    number: int
    """Its place among the calls of the run, from 1."""
    name: str
    kind: str
    agent: str | None
    failed: bool
    requested: bool
    """Only a model's message shows the call."""
    begins: int | None
    """Where it begins on the line, 0 to `WIDTH`; `None`: not known."""
    width: int
    after_ns: int | None
    """How long after the run it began."""
    duration_ns: int | None
    depth: int
    """Inside of how many other calls it happens."""
    beside: tuple[int, ...]
    """The numbers of the calls that it overlaps with, other than those it is inside of or that are inside of it."""


@dataclass(frozen=True, slots=True)
class CallTimeline:
    """All calls of a run."""

    bars: tuple[TimelineBar, ...]
    left: int
    """So many more calls are not drawn."""
    duration_ns: int | None
    agents: tuple[str, ...]
    """Those that made the calls, in the order of their first."""

    @property
    def timed(self) -> bool:
        """Whether the times of any call are known."""
        return any(bar.begins is not None for bar in self.bars)


def call_timeline(document: Mapping[str, Any]) -> CallTimeline:
    """The calls of a stored evaluation, in their order."""
    calls: Sequence[Mapping[str, Any]] = document["tool_calls"]
    shown = calls[:MAX_BARS]
    begin, end = _time_range(document, calls)
    inside = list(map(list, _enclosing_calls(shown)))
    bars = (_timeline_bar(at, call, begin, end, shown, inside) for at, call in enumerate(shown))
    return CallTimeline(
        bars=tuple(bars),
        left=len(calls) - len(shown),
        duration_ns=None if begin is None or end is None else end - begin,
        agents=tuple(dict.fromkeys(truncate(call["agent"]) for call in calls if call.get("agent")))[:_MAX_AGENTS],
    )


def _time_range(document: Mapping[str, Any], calls: Sequence[Mapping[str, Any]]) -> tuple[int | None, int | None]:
    """From the first to the last moment that is known."""
    begins = [each.get("start_ns") for each in (document, *calls)]
    ends = [each.get("end_ns") for each in (document, *calls)]
    known = [moment for moment in (*begins, *ends) if moment is not None]
    return (min(known), max(known)) if known else (None, None)


def _enclosing_calls(calls: Sequence[Mapping[str, Any]]) -> Iterator[Iterator[int]]:
    """For each call the others that it happens inside of: longer ones of other agents around it, or of agents as tools.

    Spans of calls tell no parents here; what is wholly inside the time of an agent's call, and was made by another
    agent than the one that called it, is taken for a part of it.
    """
    for at, call in enumerate(calls):
        yield (
            other
            for other in call.get("concurrent_with", ())
            if other < len(calls) and other != at and _encloses(calls[other], call)
        )


def _encloses(outer: Mapping[str, Any], inner: Mapping[str, Any]) -> bool:
    begin, end, first, last = (each.get(name) for each in (outer, inner) for name in ("start_ns", "end_ns"))
    if begin is None or end is None or first is None or last is None:
        return False
    within = begin <= first and last <= end and (end - begin) > (last - first)
    return within and (outer.get("kind") in ("agent", "handoff") or inner.get("agent") != outer.get("agent"))


def _timeline_bar(
    at: int,
    call: Mapping[str, Any],
    begin: int | None,
    end: int | None,
    calls: Sequence[Mapping[str, Any]],
    inside: Sequence[Sequence[int]],
) -> TimelineBar:
    first, last = call.get("start_ns"), call.get("end_ns")
    place, width = None, 0
    if first is not None and begin is not None and end is not None:
        whole = max(1, end - begin)
        width = max(_MIN_BAR_WIDTH, ((last if last is not None else first) - first) * TIMELINE_WIDTH // whole)
        place = min((first - begin) * TIMELINE_WIDTH // whole, TIMELINE_WIDTH - width)
    beside = (
        other
        for other in call.get("concurrent_with", ())
        if other < len(calls) and other not in inside[at] and at not in inside[other]
    )
    return TimelineBar(
        number=at + 1,
        name=truncate(call["name"]),
        kind=call.get("kind", "tool"),
        agent=short_name(call.get("agent")),
        failed=call.get("error") is not None,
        requested=call.get("evidence") == "requested",
        begins=place,
        width=width,
        after_ns=None if first is None or begin is None else first - begin,
        duration_ns=None if first is None or last is None else last - first,
        depth=min(len(inside[at]), MAX_DEPTH),
        beside=tuple(other + 1 for other in beside),
    )


_MAX_ROWS = 150
_MAX_REVISIONS = 50
_MAX_VALUE_LENGTH = 4_000
_MAX_VALUES_LENGTH = 60_000
"""Characters of one value, and of all values of a run, that are shown: the API has them whole."""


@dataclass(frozen=True, slots=True)
class CallDetails:
    """What was passed to a tool and came back, as far as that is kept."""

    number: int
    name: str
    raw_name: str | None
    """The name as it was written, where that differs."""
    server: str | None
    arguments: str | None
    result: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class RevisionSummary:
    """An evaluation among those of its run."""

    number: int
    stored_ns: int
    mark: Symbol
    reason: str
    changed: tuple[str, ...]
    """What is other than in the one before; empty for the first."""
    shown: bool


@dataclass(frozen=True, slots=True)
class RunDetails:
    """Everything there is to see of a run, by one of its evaluations."""

    run: StoredRun
    evaluation: StoredEvaluation
    document: Mapping[str, Any]
    mark: Symbol
    name: str
    golden_id: str | None
    how: str | None
    lines: tuple[RenderedRow, ...]
    left: int
    """So many more rows are not shown."""
    legend: tuple[Symbol, ...]
    timeline: CallTimeline
    calls: tuple[CallDetails, ...]
    """Those of which values are kept."""
    hints: tuple[Hint, ...]
    revisions: tuple[RevisionSummary, ...]

    @property
    def measured(self) -> list[Mapping[str, Any]]:
        """The scores that are known, or whose metric failed."""
        return [score for score in self.document["scores"] if score["value"] is not None or score["error"]]

    @property
    def unmeasured(self) -> list[tuple[str | None, list[str]]]:
        """The metrics that are not known, by why."""
        found: dict[str | None, list[str]] = {}
        for score in self.document["scores"]:
            if score["value"] is None and not score["error"]:
                found.setdefault(score["reason"], []).append(score["metric"])
        return list(found.items())

    @property
    def judged(self) -> list[Mapping[str, Any]]:
        """The scores that a model gave."""
        return [score for score in self.document["scores"] if score.get("judgement")]

    @property
    def values_kept(self) -> bool:
        """Whether arguments and results are stored, and not only names."""
        return bool(self.calls) or "metadata" in self.document

    @property
    def health(self) -> list[tuple[Hint, int]]:
        """What is amiss with its capture, each with the number of runs that it tells of: this one."""
        return [(hint, 1) for hint in self.hints]

    @property
    def is_current(self) -> bool:
        """Whether it is shown as it stands now."""
        return self.evaluation == self.run.current


def run_details(run: StoredRun, history: Sequence[StoredEvaluation], revision: int | None = None) -> RunDetails | None:
    """What there is to see of a run; `None` where it has no such revision."""
    of_it = [each for each in history if revision in (None, each.revision)]
    if not of_it:
        return None
    shown = run.current if revision is None else of_it[-1]
    document = shown.document
    lines = tuple(comparison_lines(document))
    used = {line.mark for line in lines}
    return RunDetails(
        run=run,
        evaluation=shown,
        document=document,
        mark=OUTCOME_SYMBOLS[document["passed"]],
        name=run_name(document),
        golden_id=golden_id_of(document),
        how=match_description(document),
        lines=lines[:_MAX_ROWS],
        left=len(lines[_MAX_ROWS:]),
        legend=tuple(mark for mark in SYMBOLS if mark in used),
        timeline=call_timeline(document),
        calls=tuple(_call_details(document)),
        hints=tuple(stored_capture_hints(document)),
        revisions=tuple(_revision_summaries(history, shown)),
    )


def _call_details(document: Mapping[str, Any]) -> Iterator[CallDetails]:
    room = _MAX_VALUES_LENGTH
    for number, call in enumerate(document["tool_calls"][:_MAX_ROWS], start=1):
        if not any(name in call for name in ("arguments", "raw_arguments", "result")):
            continue
        values = [
            None if value is None else truncate_value(_value_text(value), min(_MAX_VALUE_LENGTH, room))
            for value in (call.get("arguments", call.get("raw_arguments")), call.get("result"), call.get("error"))
        ]
        room = max(0, room - sum(len(value) for value in values if value is not None))
        yield CallDetails(
            number, truncate(call["name"]), short_name(call.get("raw_name")), short_name(call.get("server")), *values
        )


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def _revision_summaries(history: Sequence[StoredEvaluation], shown: StoredEvaluation) -> Iterator[RevisionSummary]:
    """All of them, the newest first."""
    known: list[RevisionSummary] = []
    before: Mapping[str, Any] | None = None
    for each in history:
        document = each.document
        known.append(
            RevisionSummary(
                number=each.revision,
                stored_ns=each.stored_ns,
                mark=OUTCOME_SYMBOLS[document["passed"]],
                reason=document["reason"],
                changed=tuple(_changed_parts(before, document)) if before is not None else (),
                shown=each == shown,
            )
        )
        before = document
    return islice(reversed(known), _MAX_REVISIONS)


_DOCUMENT_PARTS: Mapping[str, tuple[str, ...]] = {
    "verdict": ("passed",),
    "calls": ("tool_calls",),
    "golden": ("golden_id", "expected_tools", "golden_match"),
    "scores": ("scores",),
    "scoring version": ("scoring_version",),
    "capture health": ("health",),
}


def _changed_parts(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for part, names in _DOCUMENT_PARTS.items():
        if any(before.get(name) != now.get(name) for name in names):
            yield part
