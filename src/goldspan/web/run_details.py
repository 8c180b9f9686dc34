"""The data of one run's view: comparison, timeline, scores, capture health and revisions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from goldspan.extraction.capture_diagnostics import Hint
from goldspan.model.markup import truncate
from goldspan.model.rendering import OUTCOME_SYMBOLS, SYMBOLS, RenderedRow, Symbol
from goldspan.store import StoredEvaluation, StoredRun
from goldspan.web.display_text import truncate_value
from goldspan.web.run_list import (
    comparison_rows,
    golden_id_of,
    match_description,
    run_name,
    short_name,
    stored_capture_hints,
)

TIMELINE_WIDTH = 1000
"""The width of the timeline in the SVG."""
_MIN_BAR_WIDTH = 4
"""The minimum width of a bar, so that it is visible."""
MAX_DEPTH = 6
"""Levels of nested calls that are indented differently."""
MAX_BARS = 150
"""Calls in the timeline."""
_MAX_AGENTS = 50


@dataclass(frozen=True, slots=True)
class TimelineBar:
    """One call in the timeline."""

    number: int
    """The position among the calls of the run, from 1."""
    name: str
    kind: str
    agent: str | None
    failed: bool
    requested_only: bool
    """Whether a model requested the call and no record shows that it was executed."""
    left: int | None
    """The left end of the bar, 0 to `TIMELINE_WIDTH`; `None`: not known."""
    width: int
    start_offset_ns: int | None
    """The time from the start of the run to the start of the call."""
    duration_ns: int | None
    depth: int
    """The number of calls that enclose it, at most `MAX_DEPTH`."""
    overlaps: tuple[int, ...]
    """The numbers of the concurrent calls that neither enclose it nor are enclosed by it."""


@dataclass(frozen=True, slots=True)
class CallTimeline:
    """The timeline of a run."""

    bars: tuple[TimelineBar, ...]
    omitted: int
    """The number of further calls."""
    duration_ns: int | None
    agents: tuple[str, ...]
    """The agents that made the calls, in the order of their first call."""

    @property
    def has_times(self) -> bool:
        """Whether the times of at least one call are known."""
        return any(bar.left is not None for bar in self.bars)


def call_timeline(document: Mapping[str, Any]) -> CallTimeline:
    """Return the timeline of the calls of a stored evaluation, in their order."""
    calls: Sequence[Mapping[str, Any]] = document["tool_calls"]
    shown = calls[:MAX_BARS]
    start, end = _time_range(document, calls)
    enclosing = list(map(list, _enclosing_calls(shown)))
    bars = (_timeline_bar(index, call, start, end, shown, enclosing) for index, call in enumerate(shown))
    return CallTimeline(
        bars=tuple(bars),
        omitted=len(calls) - len(shown),
        duration_ns=None if start is None or end is None else end - start,
        agents=tuple(dict.fromkeys(truncate(call["agent"]) for call in calls if call.get("agent")))[:_MAX_AGENTS],
    )


def _time_range(document: Mapping[str, Any], calls: Sequence[Mapping[str, Any]]) -> tuple[int | None, int | None]:
    """Return the first and the last known time of the run and its calls."""
    times = [record.get(name) for record in (document, *calls) for name in ("start_ns", "end_ns")]
    known = [time_ns for time_ns in times if time_ns is not None]
    return (min(known), max(known)) if known else (None, None)


def _enclosing_calls(calls: Sequence[Mapping[str, Any]]) -> Iterator[Iterator[int]]:
    """Yield for each call the indexes of the calls that enclose it.

    Stored calls have no parents. A call encloses another one if its time contains the time of the other, and if it
    calls an agent or another agent made the other call.
    """
    for index, call in enumerate(calls):
        yield (
            other
            for other in call.get("concurrent_with", ())
            if other < len(calls) and other != index and _encloses(calls[other], call)
        )


def _encloses(outer: Mapping[str, Any], inner: Mapping[str, Any]) -> bool:
    outer_start, outer_end, inner_start, inner_end = (
        call.get(name) for call in (outer, inner) for name in ("start_ns", "end_ns")
    )
    if outer_start is None or outer_end is None or inner_start is None or inner_end is None:
        return False
    is_longer = (outer_end - outer_start) > (inner_end - inner_start)
    is_within = outer_start <= inner_start and inner_end <= outer_end and is_longer
    return is_within and (outer.get("kind") in ("agent", "handoff") or inner.get("agent") != outer.get("agent"))


def _timeline_bar(
    index: int,
    call: Mapping[str, Any],
    run_start: int | None,
    run_end: int | None,
    calls: Sequence[Mapping[str, Any]],
    enclosing: Sequence[Sequence[int]],
) -> TimelineBar:
    start, end = call.get("start_ns"), call.get("end_ns")
    left, width = None, 0
    if start is not None and run_start is not None and run_end is not None:
        run_duration = max(1, run_end - run_start)
        call_duration = 0 if end is None else end - start
        width = max(_MIN_BAR_WIDTH, call_duration * TIMELINE_WIDTH // run_duration)
        left = min((start - run_start) * TIMELINE_WIDTH // run_duration, TIMELINE_WIDTH - width)
    overlaps = (
        other
        for other in call.get("concurrent_with", ())
        if other < len(calls) and other not in enclosing[index] and index not in enclosing[other]
    )
    return TimelineBar(
        number=index + 1,
        name=truncate(call["name"]),
        kind=call.get("kind", "tool"),
        agent=short_name(call.get("agent")),
        failed=call.get("error") is not None,
        requested_only=call.get("evidence") == "requested",
        left=left,
        width=width,
        start_offset_ns=None if start is None or run_start is None else start - run_start,
        duration_ns=None if start is None or end is None else end - start,
        depth=min(len(enclosing[index]), MAX_DEPTH),
        overlaps=tuple(other + 1 for other in overlaps),
    )


_MAX_ROWS = 150
_MAX_REVISIONS = 50
_MAX_VALUE_LENGTH = 4_000
_MAX_VALUES_LENGTH = 60_000
"""Characters of all values of a run. The API returns complete values."""


@dataclass(frozen=True, slots=True)
class CallDetails:
    """The stored arguments, result and error of a call."""

    number: int
    name: str
    raw_name: str | None
    """The recorded name, before normalization."""
    server: str | None
    arguments: str | None
    result: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class RevisionSummary:
    """One revision of the evaluation of a run."""

    number: int
    stored_ns: int
    mark: Symbol
    reason: str
    changed: tuple[str, ...]
    """What differs from the previous revision; empty for the first one."""
    shown: bool


@dataclass(frozen=True, slots=True)
class RunDetails:
    """The data of the view of a run, for one of its revisions."""

    run: StoredRun
    evaluation: StoredEvaluation
    document: Mapping[str, Any]
    mark: Symbol
    name: str
    golden_id: str | None
    matched_by: str | None
    rows: tuple[RenderedRow, ...]
    omitted: int
    """The number of further rows."""
    legend: tuple[Symbol, ...]
    timeline: CallTimeline
    calls: tuple[CallDetails, ...]
    """The calls with stored values."""
    hints: tuple[Hint, ...]
    revisions: tuple[RevisionSummary, ...]

    @property
    def valued_scores(self) -> list[Mapping[str, Any]]:
        """The scores that have a value or an error."""
        return [score for score in self.document["scores"] if score["value"] is not None or score["error"]]

    @property
    def unavailable_metrics(self) -> list[tuple[str | None, list[str]]]:
        """The metrics without a value, by reason."""
        by_reason: dict[str | None, list[str]] = {}
        for score in self.document["scores"]:
            if score["value"] is None and not score["error"]:
                by_reason.setdefault(score["reason"], []).append(score["metric"])
        return list(by_reason.items())

    @property
    def judged_scores(self) -> list[Mapping[str, Any]]:
        """The scores that the LLM judge gave."""
        return [score for score in self.document["scores"] if score.get("judgement")]

    @property
    def values_kept(self) -> bool:
        """Whether the store keeps arguments and results, and not only names."""
        return bool(self.calls) or "metadata" in self.document

    @property
    def health(self) -> list[tuple[Hint, int]]:
        """The capture problems, each with the number of runs, which is 1."""
        return [(hint, 1) for hint in self.hints]

    @property
    def is_current(self) -> bool:
        """Whether the current revision is shown."""
        return self.evaluation == self.run.current


def run_details(run: StoredRun, history: Sequence[StoredEvaluation], revision: int | None = None) -> RunDetails | None:
    """Return the data of a run, or `None` if it does not have the revision."""
    candidates = [evaluation for evaluation in history if revision in (None, evaluation.revision)]
    if not candidates:
        return None
    shown = run.current if revision is None else candidates[-1]
    document = shown.document
    rows = tuple(comparison_rows(document))
    marks = {row.mark for row in rows}
    return RunDetails(
        run=run,
        evaluation=shown,
        document=document,
        mark=OUTCOME_SYMBOLS[document["passed"]],
        name=run_name(document),
        golden_id=golden_id_of(document),
        matched_by=match_description(document),
        rows=rows[:_MAX_ROWS],
        omitted=len(rows[_MAX_ROWS:]),
        legend=tuple(mark for mark in SYMBOLS if mark in marks),
        timeline=call_timeline(document),
        calls=tuple(_call_details(document)),
        hints=tuple(stored_capture_hints(document)),
        revisions=tuple(_revision_summaries(history, shown)),
    )


def _call_details(document: Mapping[str, Any]) -> Iterator[CallDetails]:
    remaining_length = _MAX_VALUES_LENGTH
    for number, call in enumerate(document["tool_calls"][:_MAX_ROWS], start=1):
        if not any(name in call for name in ("arguments", "raw_arguments", "result")):
            continue
        values = [
            None if value is None else truncate_value(_value_text(value), min(_MAX_VALUE_LENGTH, remaining_length))
            for value in (call.get("arguments", call.get("raw_arguments")), call.get("result"), call.get("error"))
        ]
        remaining_length = max(0, remaining_length - sum(len(value) for value in values if value is not None))
        yield CallDetails(
            number, truncate(call["name"]), short_name(call.get("raw_name")), short_name(call.get("server")), *values
        )


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def _revision_summaries(history: Sequence[StoredEvaluation], shown: StoredEvaluation) -> Iterator[RevisionSummary]:
    """Return the newest revisions, newest first."""
    summaries: list[RevisionSummary] = []
    previous: Mapping[str, Any] | None = None
    for evaluation in history:
        document = evaluation.document
        summaries.append(
            RevisionSummary(
                number=evaluation.revision,
                stored_ns=evaluation.stored_ns,
                mark=OUTCOME_SYMBOLS[document["passed"]],
                reason=document["reason"],
                changed=tuple(_changed_parts(previous, document)) if previous is not None else (),
                shown=evaluation == shown,
            )
        )
        previous = document
    return islice(reversed(summaries), _MAX_REVISIONS)


_DOCUMENT_PARTS: Mapping[str, tuple[str, ...]] = {
    "verdict": ("passed",),
    "calls": ("tool_calls",),
    "golden": ("golden_id", "expected_tools", "golden_match"),
    "scores": ("scores",),
    "scoring version": ("scoring_version",),
    "capture health": ("health",),
}


def _changed_parts(previous: Mapping[str, Any], current: Mapping[str, Any]) -> Iterator[str]:
    for part, names in _DOCUMENT_PARTS.items():
        if any(previous.get(name) != current.get(name) for name in names):
            yield part
