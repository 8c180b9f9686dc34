"""Merges duplicate runs from two instrumentations, and the runs of one conversation."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from goldspan.extraction.model_turns import argument_texts
from goldspan.extraction.observed_calls import argument_fingerprint, raw_value
from goldspan.model import Health, Run, ToolCall, ToolDefinition
from goldspan.model.name_folding import fold_name

_MIN_OVERLAP = 0.9
"""The minimum fraction of the shorter run's time that lies within the longer one's."""
_MAX_CANDIDATES = 50
"""How many of the latest runs with the same input or the same call are checked for a duplicate."""


def merge_duplicate_runs(runs: Iterable[tuple[Run, str]]) -> list[Run]:
    """Merges duplicate runs; each run is given with the instrumentation scope of its first span. Keeps the order.

    Duplicates have the same service, different instrumentations, the same input, overlapping times and the same tools
    as far as both instrumentations recorded them. If the input is missing because spans are lost, equal calls identify
    duplicates. The more complete run remains and receives the facts that only the other one has.
    """
    pairs = list(runs)
    if not _may_contain_duplicates(pairs):
        return [run for run, _ in pairs]
    return _merge_candidates(pairs)


def _may_contain_duplicates(pairs: list[tuple[Run, str]]) -> bool:
    """Whether two runs of different instrumentations overlap in time.

    This costs a twentieth of comparing inputs and calls, for which all arguments are hashed.
    """
    if len({scope for _, scope in pairs}) < 2:
        return False
    intervals = sorted(
        (run.start_ns, run.end_ns, scope) for run, scope in pairs if run.start_ns is not None and run.end_ns is not None
    )
    latest_ends: dict[str, int] = {}
    for start, end, scope in intervals:
        if any(start < latest for other, latest in latest_ends.items() if other != scope):
            return True
        latest_ends[scope] = max(end, latest_ends.get(scope, end))
    return False


def _merge_candidates(pairs: list[tuple[Run, str]]) -> list[Run]:
    candidates = [_RunCandidate(position, run, {scope}) for position, (run, scope) in enumerate(pairs)]
    in_order = sorted(candidates, key=lambda candidate: (candidate.start, candidate.run.run_id))
    remaining = _merge_same_calls(_merge_same_input(in_order))
    return [candidate.run for candidate in sorted(remaining, key=lambda candidate: candidate.position)]


@dataclass(slots=True, eq=False)
class _RunCandidate:
    """A run, its position in the input, and the instrumentations that recorded it."""

    position: int
    run: Run
    scopes: set[str]

    @property
    def start(self) -> int:
        return self.run.start_ns or 0

    def merge(self, duplicate: _RunCandidate) -> None:
        """Merge a duplicate."""
        self.scopes |= duplicate.scopes
        self.run = _merge_pair(*sorted((self.run, duplicate.run), key=_completeness, reverse=True))


def _merge_same_input(in_order: Iterable[_RunCandidate]) -> list[_RunCandidate]:
    """Merges runs with the same input."""
    kept: list[_RunCandidate] = []
    by_input: dict[Hashable, list[_RunCandidate]] = {}
    for candidate in in_order:
        run = candidate.run
        others = by_input.setdefault((run.service, run.input), []) if run.input else []
        duplicates = [
            other
            for other in others[-_MAX_CANDIDATES:]
            if other.scopes.isdisjoint(candidate.scopes) and _are_duplicates(other.run, run)
        ]
        if duplicates:
            max(duplicates, key=lambda other: _overlap_ns(other.run, run)).merge(candidate)
        else:
            kept.append(candidate)
            others.append(candidate)
    return kept


def _merge_same_calls(in_order: list[_RunCandidate]) -> list[_RunCandidate]:
    """Merges runs whose calls are all in another run at the same time, unless their inputs contradict it."""
    by_call: dict[Hashable, list[_RunCandidate]] = {}
    for candidate in in_order:
        for key in {_call_key(candidate.run, call) for call in _calls_without_handoffs(candidate.run)}:
            by_call.setdefault(key, []).append(candidate)
    merged: set[_RunCandidate] = set()
    for candidate in sorted(in_order, key=lambda candidate: len(candidate.run.tool_calls)):
        calls = _calls_without_handoffs(candidate.run)
        others = by_call[_call_key(candidate.run, calls[0])] if calls else []
        until = bisect_right(others, candidate.run.end_ns or 0, key=lambda other: other.start)
        containing = [
            other
            for other in others[max(0, until - _MAX_CANDIDATES) : until]
            if other not in merged
            and other.scopes.isdisjoint(candidate.scopes)
            and _is_contained_in(candidate.run, other.run)
        ]
        if containing:
            target = max(containing, key=lambda other: _overlap_ns(other.run, candidate.run))
            text = target.run.input or candidate.run.input
            target.merge(candidate)
            target.run = replace(target.run, input=text)
            merged.add(candidate)
    return [candidate for candidate in in_order if candidate not in merged]


def _calls_without_handoffs(run: Run) -> list[ToolCall]:
    return [call for call in run.tool_calls if call.kind != "handoff"]


def _call_key(run: Run, call: ToolCall) -> Hashable:
    return run.service, fold_name(call.name), argument_fingerprint(raw_value(call.arguments))


def _is_contained_in(part: Run, whole: Run) -> bool:
    """Whether another run has all calls of a run; if the inputs differ, the call ids must be equal.

    If the first input of a request is missing, its input may be a text that it passed to a sub-agent.
    """
    if not set(part.trace_ids).isdisjoint(whole.trace_ids) or not _overlap_mostly(part, whole):
        return False
    text = part.input.strip() if part.input and whole.input else None
    differ = text is not None and not any(text in argument_texts(call.arguments) for call in whole.tool_calls)
    calls_by_key: dict[Hashable, list[ToolCall]] = {}
    for call in _calls_without_handoffs(whole):
        calls_by_key.setdefault(_call_key(whole, call), []).append(call)
    for call in _calls_without_handoffs(part):
        known = calls_by_key.get(_call_key(part, call), []) if call.arguments is not None else []
        same = next((other for other in known if _same_call(other, call, require_ids=differ)), None)
        if same is None:
            return False
        known.remove(same)
    return True


def _same_call(one: ToolCall, other: ToolCall, *, require_ids: bool) -> bool:
    if None in (one.start_ns, one.end_ns, other.start_ns, other.end_ns):
        return False
    if min(one.end_ns or 0, other.end_ns or 0) < max(one.start_ns or 0, other.start_ns or 0):
        return False
    if one.call_id is None or other.call_id is None:
        return not require_ids
    return one.call_id == other.call_id


def _are_duplicates(one: Run, other: Run) -> bool:
    if not set(one.trace_ids).isdisjoint(other.trace_ids):
        return False
    tools, others = _tool_counts(one), _tool_counts(other)
    return _overlap_mostly(one, other) and (tools <= others or others <= tools)


def _tool_counts(run: Run) -> Counter[str]:
    return Counter(fold_name(call.name) for call in run.tool_calls if call.kind != "handoff")


def _overlap_ns(one: Run, other: Run) -> int:
    """How long two runs were active at the same time."""
    ends, starts = [run.end_ns or 0 for run in (one, other)], [run.start_ns or 0 for run in (one, other)]
    return min(ends) - max(starts)


def _overlap_mostly(one: Run, other: Run) -> bool:
    if None in (one.start_ns, one.end_ns, other.start_ns, other.end_ns):
        return False
    shared = _overlap_ns(one, other)
    shorter = min((run.end_ns or 0) - (run.start_ns or 0) for run in (one, other))
    return shared > 0 and shared >= _MIN_OVERLAP * shorter


def _completeness(run: Run) -> tuple[int, ...]:
    calls = run.tool_calls
    return (
        sum(call.evidence == "executed" for call in calls),
        sum(call.arguments is not None for call in calls),
        sum(call.call_id is not None for call in calls),
        sum(fact is not None for fact in (run.session_id, run.output, run.golden_id)),
    )


def _merge_pair(run: Run, duplicate: Run) -> Run:
    health = replace(
        run.health,
        merged=run.health.merged + duplicate.health.merged + len(duplicate.tool_calls),
        # Both runs describe the same request, so either of them would show its calls.
        calls_invisible=run.health.calls_invisible and duplicate.health.calls_invisible,
        unknown_spans=run.health.unknown_spans + duplicate.health.unknown_spans,
    )
    return replace(
        run,
        trace_ids=run.trace_ids + duplicate.trace_ids,
        tool_calls=_with_kinds(run, duplicate),
        output=run.output or duplicate.output,
        session_id=run.session_id or duplicate.session_id,
        golden_id=run.golden_id or duplicate.golden_id,
        available_tools=run.available_tools or duplicate.available_tools,
        conventions=tuple(dict.fromkeys(run.conventions + duplicate.conventions)),
        expected_tools=duplicate.expected_tools if run.expected_tools is None else run.expected_tools,
        metrics=run.metrics or duplicate.metrics,
        metadata={**duplicate.metadata, **run.metadata},
        health=health,
    )


def _with_kinds(run: Run, duplicate: Run) -> tuple[ToolCall, ...]:
    """The calls of a run, with the kinds that only the duplicate has."""
    known = {
        (_call_key(duplicate, call), call.call_id): call.kind for call in duplicate.tool_calls if call.kind != "tool"
    }
    if not known:
        return run.tool_calls
    return tuple(
        replace(call, kind=known.get((_call_key(run, call), call.call_id), "tool")) if call.kind == "tool" else call
        for call in run.tool_calls
    )


def merge_conversations(requests: Iterable[Run]) -> list[Run]:
    """Merges the requests of each session into one run, by start time; a request without a session remains a run.

    The input is that of the first request, the output that of the last one with an output, and the calls are those of
    all requests in order. The golden and the metrics are those of the first request that names them. The expected tools
    are those of all requests.
    """
    by_session: dict[tuple[str | None, str], list[Run]] = {}
    for run in sorted(requests, key=lambda run: (run.start_ns or 0, run.run_id)):
        key = (run.service, run.session_id) if run.session_id is not None else (None, run.run_id)
        by_session.setdefault(key, []).append(run)
    return [_merge_session(runs) for runs in by_session.values()]


def _merge_session(runs: list[Run]) -> Run:
    first = runs[0]
    ends = [run.end_ns for run in runs if run.end_ns is not None]
    offered = {tool.name: tool for run in runs for tool in run.available_tools}
    return replace(
        first,
        run_id=f"{first.run_id}:conversation"
        if first.session_id is None
        else ":".join(filter(None, ("session", first.service, first.session_id))),
        unit="conversation",
        trace_ids=tuple(dict.fromkeys(trace_id for run in runs for trace_id in run.trace_ids)),
        span_id=None if first.session_id is not None else first.span_id,
        output=next((run.output for run in reversed(runs) if run.output), None),
        tool_calls=_merge_tool_calls(runs),
        available_tools=_sorted_tools(offered),
        golden_id=next((run.golden_id for run in runs if run.golden_id), None),
        conventions=tuple(sorted({name for run in runs for name in run.conventions})),
        health=_merge_health([run.health for run in runs]),
        end_ns=max(ends, default=None),
        expected_tools=_merge_expected_tools(runs),
        metrics=next((run.metrics for run in runs if run.metrics), None),
        metadata={key: value for run in reversed(runs) for key, value in run.metadata.items()},
    )


def _merge_expected_tools(runs: list[Run]) -> tuple[Any, ...] | None:
    """The expected tools of a conversation; unknown if one request does not declare its expected tools."""
    expected: list[Any] = []
    for run in runs:
        if run.expected_tools is None:
            return None
        expected += run.expected_tools
    return tuple(expected)


def _merge_tool_calls(runs: list[Run]) -> tuple[ToolCall, ...]:
    calls: list[ToolCall] = []
    for run in runs:
        before = len(calls)
        calls += [
            replace(call, concurrent_with=tuple(before + other for other in call.concurrent_with))
            for call in run.tool_calls
        ]
    return tuple(calls)


def _sorted_tools(offered: dict[str, ToolDefinition]) -> tuple[ToolDefinition, ...]:
    return tuple(offered[name] for name in sorted(offered))


def _merge_health(parts: list[Health]) -> Health:
    """Adds up counts, joins lists, and sets a flag if one request has it.

    For example, if the calls of one request are invisible, the calls of the conversation are incomplete.
    """
    merged: dict[str, Any] = {}
    for field in fields(Health):
        values = [getattr(part, field.name) for part in parts]
        if isinstance(values[0], bool):
            merged[field.name] = any(values)
        elif isinstance(values[0], int):
            merged[field.name] = sum(values)
        else:
            merged[field.name] = tuple(sorted({name for names in values for name in names}))
    return Health(**merged)
