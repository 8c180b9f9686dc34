"""Conversations: the requests that share a session, as one run."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from goldspan.content.tools import fold_name
from goldspan.extraction.model_turns import argument_texts
from goldspan.extraction.observed_calls import argument_fingerprint, raw_value
from goldspan.model import Health, Run, ToolCall, ToolDefinition

_MIN_OVERLAP = 0.9
"""So much of the shorter run's time lies within the longer one's."""
_MAX_CANDIDATES = 50
"""Runs that were asked the same words or did the same, the latest first, among which the twin is looked for."""


def merge_duplicate_runs(runs: Iterable[tuple[Run, str]]) -> list[Run]:
    """The runs, each given with the scope of its root, without those that repeat another one; order stays.

    Twins are of one service and of different instrumentations, were asked the same words at the same time, and used
    the same tools, as far as both of them saw. Where spans are lost, and the words with them, what was done tells. The
    one that knows more stays, and is told what only the other knew.
    """
    given = list(runs)
    every = [_RunCandidate(at, run, {scope}) for at, (run, scope) in enumerate(given)]
    in_order = sorted(every, key=lambda seen: (seen.start, seen.run.run_id))
    kept = in_order if len({scope for _, scope in given}) < 2 else _merge_same_calls(_merge_same_input(in_order))
    return [seen.run for seen in sorted(kept, key=lambda seen: seen.position)]


@dataclass(slots=True, eq=False)
class _RunCandidate:
    """A run, its place among those given, and the instrumentations that saw it."""

    position: int
    run: Run
    scopes: set[str]

    @property
    def start(self) -> int:
        return self.run.start_ns or 0

    def merge(self, twin: _RunCandidate) -> None:
        """Become one with a twin."""
        self.scopes |= twin.scopes
        self.run = _merge_pair(*sorted((self.run, twin.run), key=_completeness, reverse=True))


def _merge_same_input(in_order: Iterable[_RunCandidate]) -> list[_RunCandidate]:
    """Without those that were asked the same words as another one."""
    kept: list[_RunCandidate] = []
    alike: dict[Hashable, list[_RunCandidate]] = {}
    for seen in in_order:
        run = seen.run
        others = alike.setdefault((run.service, run.input), []) if run.input else []
        possible = [
            it for it in others[-_MAX_CANDIDATES:] if it.scopes.isdisjoint(seen.scopes) and _are_duplicates(it.run, run)
        ]
        if possible:
            max(possible, key=lambda it: _overlap_ns(it.run, run)).merge(seen)
        else:
            kept.append(seen)
            others.append(seen)
    return kept


def _merge_same_calls(in_order: list[_RunCandidate]) -> list[_RunCandidate]:
    """Without those all of whose calls another one made at the same time, where words do not speak against it."""
    making: dict[Hashable, list[_RunCandidate]] = {}
    for seen in in_order:
        for deed in {_call_key(seen.run, call) for call in _calls_without_handoffs(seen.run)}:
            making.setdefault(deed, []).append(seen)
    gone: set[_RunCandidate] = set()
    for seen in sorted(in_order, key=lambda seen: len(seen.run.tool_calls)):
        calls = _calls_without_handoffs(seen.run)
        others = making[_call_key(seen.run, calls[0])] if calls else []
        begun = bisect_right(others, seen.run.end_ns or 0, key=lambda it: it.start)
        possible = [
            it
            for it in others[max(0, begun - _MAX_CANDIDATES) : begun]
            if it not in gone and it.scopes.isdisjoint(seen.scopes) and _is_contained_in(seen.run, it.run)
        ]
        if possible:
            whole = max(possible, key=lambda it: _overlap_ns(it.run, seen.run))
            words = whole.run.input or seen.run.input
            whole.merge(seen)
            whole.run = replace(whole.run, input=words)
            gone.add(seen)
    return [seen for seen in in_order if seen not in gone]


def _calls_without_handoffs(run: Run) -> list[ToolCall]:
    return [call for call in run.tool_calls if call.kind != "handoff"]


def _call_key(run: Run, call: ToolCall) -> Hashable:
    return run.service, fold_name(call.name), argument_fingerprint(raw_value(call.arguments))


def _is_contained_in(part: Run, whole: Run) -> bool:
    """Whether all calls of a run are another one's, too; where other words were asked, their ids must say so.

    Of a request that lost its first words, those that it gave a sub-agent may be left.
    """
    if not set(part.trace_ids).isdisjoint(whole.trace_ids) or not _overlap_mostly(part, whole):
        return False
    words = part.input.strip() if part.input and whole.input else None
    differ = words is not None and not any(words in argument_texts(call.arguments) for call in whole.tool_calls)
    made: dict[Hashable, list[ToolCall]] = {}
    for call in _calls_without_handoffs(whole):
        made.setdefault(_call_key(whole, call), []).append(call)
    for call in _calls_without_handoffs(part):
        known = made.get(_call_key(part, call), []) if call.arguments is not None else []
        same = next((it for it in known if _same_call(it, call, surely=differ)), None)
        if same is None:
            return False
        known.remove(same)
    return True


def _same_call(one: ToolCall, other: ToolCall, *, surely: bool) -> bool:
    if None in (one.start_ns, one.end_ns, other.start_ns, other.end_ns):
        return False
    if min(one.end_ns or 0, other.end_ns or 0) < max(one.start_ns or 0, other.start_ns or 0):
        return False
    if one.call_id is None or other.call_id is None:
        return not surely
    return one.call_id == other.call_id


def _are_duplicates(one: Run, other: Run) -> bool:
    if not set(one.trace_ids).isdisjoint(other.trace_ids):
        return False
    tools, others = _tool_counts(one), _tool_counts(other)
    return _overlap_mostly(one, other) and (tools <= others or others <= tools)


def _tool_counts(run: Run) -> Counter[str]:
    return Counter(fold_name(call.name) for call in run.tool_calls if call.kind != "handoff")


def _overlap_ns(one: Run, other: Run) -> int:
    """How long two runs were at work at the same time."""
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


def _merge_pair(run: Run, twin: Run) -> Run:
    health = replace(
        run.health,
        merged=run.health.merged + twin.health.merged + len(twin.tool_calls),
        # Either of them would have shown a call of the request that both saw.
        calls_invisible=run.health.calls_invisible and twin.health.calls_invisible,
        unknown_spans=run.health.unknown_spans + twin.health.unknown_spans,
    )
    return replace(
        run,
        trace_ids=run.trace_ids + twin.trace_ids,
        tool_calls=_with_kinds(run, twin),
        output=run.output or twin.output,
        session_id=run.session_id or twin.session_id,
        golden_id=run.golden_id or twin.golden_id,
        available_tools=run.available_tools or twin.available_tools,
        conventions=tuple(dict.fromkeys(run.conventions + twin.conventions)),
        expected_tools=twin.expected_tools if run.expected_tools is None else run.expected_tools,
        metrics=run.metrics or twin.metrics,
        metadata={**twin.metadata, **run.metadata},
        health=health,
    )


def _with_kinds(run: Run, twin: Run) -> tuple[ToolCall, ...]:
    """The calls of a run, each of which is no plain tool where the twin knows what it is."""
    known = {(_call_key(twin, call), call.call_id): call.kind for call in twin.tool_calls if call.kind != "tool"}
    if not known:
        return run.tool_calls
    return tuple(
        replace(call, kind=known.get((_call_key(run, call), call.call_id), "tool")) if call.kind == "tool" else call
        for call in run.tool_calls
    )


def merge_conversations(requests: Iterable[Run]) -> list[Run]:
    """One run for all requests of a session, by time of start; a request without a session is one by itself.

    Its input is what opened the conversation, its output the last answer, its calls those of all requests in order.
    Which golden and metrics it is for says the first request that says so; what is expected, all of them together.
    """
    of_session: dict[tuple[str | None, str], list[Run]] = {}
    for run in sorted(requests, key=lambda run: (run.start_ns or 0, run.run_id)):
        key = (run.service, run.session_id) if run.session_id is not None else (None, run.run_id)
        of_session.setdefault(key, []).append(run)
    return [_merge_session(runs) for runs in of_session.values()]


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
    """What is expected of a conversation: as long as one request does not say what is expected of it, nobody knows."""
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
    """Counts add up, lists are joined, and what holds of one request holds of the conversation.

    So one request whose calls are invisible is enough: of the conversation, nobody knows what was not called.
    """
    joined: dict[str, Any] = {}
    for each in fields(Health):
        found = [getattr(part, each.name) for part in parts]
        if isinstance(found[0], bool):
            joined[each.name] = any(found)
        elif isinstance(found[0], int):
            joined[each.name] = sum(found)
        else:
            joined[each.name] = tuple(sorted({name for names in found for name in names}))
    return Health(**joined)
