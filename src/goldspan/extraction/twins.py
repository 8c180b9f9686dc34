"""One request seen by two instrumentations that make a trace each: two runs that are one."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace

from goldspan.extraction.calls import fingerprint, written
from goldspan.extraction.dialogues import texts_in
from goldspan.extraction.names import fold
from goldspan.model import Run, ToolCall

_SHARE = 0.9
"""So much of the shorter run's time lies within the longer one's."""
_CANDIDATES = 50
"""Runs that were asked the same words or did the same, the latest first, among which the twin is looked for."""


def without_twins(runs: Iterable[tuple[Run, str]]) -> list[Run]:
    """The runs, each given with the scope of its root, without those that repeat another one; order stays.

    Twins are of one service and of different instrumentations, were asked the same words at the same time, and used
    the same tools, as far as both of them saw. Where spans are lost, and the words with them, what was done tells. The
    one that knows more stays, and is told what only the other knew.
    """
    given = list(runs)
    every = [_Seen(at, run, {scope}) for at, (run, scope) in enumerate(given)]
    in_order = sorted(every, key=lambda seen: (seen.start, seen.run.run_id))
    kept = in_order if len({scope for _, scope in given}) < 2 else _without_alike(_without_echoes(in_order))
    return [seen.run for seen in sorted(kept, key=lambda seen: seen.at)]


@dataclass(slots=True, eq=False)
class _Seen:
    """A run, its place among those given, and the instrumentations that saw it."""

    at: int
    run: Run
    scopes: set[str]

    @property
    def start(self) -> int:
        return self.run.start_ns or 0

    def take(self, twin: _Seen) -> None:
        """Become one with a twin."""
        self.scopes |= twin.scopes
        self.run = _joined(*sorted((self.run, twin.run), key=_knowledge, reverse=True))


def _without_echoes(in_order: Iterable[_Seen]) -> list[_Seen]:
    """Without those that were asked the same words as another one."""
    kept: list[_Seen] = []
    alike: dict[Hashable, list[_Seen]] = {}
    for seen in in_order:
        run = seen.run
        others = alike.setdefault((run.service, run.input), []) if run.input else []
        possible = [it for it in others[-_CANDIDATES:] if it.scopes.isdisjoint(seen.scopes) and _twins(it.run, run)]
        if possible:
            max(possible, key=lambda it: _shared(it.run, run)).take(seen)
        else:
            kept.append(seen)
            others.append(seen)
    return kept


def _without_alike(in_order: list[_Seen]) -> list[_Seen]:
    """Without those all of whose calls another one made at the same time, where words do not speak against it."""
    making: dict[Hashable, list[_Seen]] = {}
    for seen in in_order:
        for deed in {_deed(seen.run, call) for call in _own(seen.run)}:
            making.setdefault(deed, []).append(seen)
    gone: set[_Seen] = set()
    for seen in sorted(in_order, key=lambda seen: len(seen.run.tool_calls)):
        calls = _own(seen.run)
        others = making[_deed(seen.run, calls[0])] if calls else []
        begun = bisect_right(others, seen.run.end_ns or 0, key=lambda it: it.start)
        possible = [
            it
            for it in others[max(0, begun - _CANDIDATES) : begun]
            if it not in gone and it.scopes.isdisjoint(seen.scopes) and _repeats(seen.run, it.run)
        ]
        if possible:
            whole = max(possible, key=lambda it: _shared(it.run, seen.run))
            words = whole.run.input or seen.run.input
            whole.take(seen)
            whole.run = replace(whole.run, input=words)
            gone.add(seen)
    return [seen for seen in in_order if seen not in gone]


def _own(run: Run) -> list[ToolCall]:
    return [call for call in run.tool_calls if call.kind != "handoff"]


def _deed(run: Run, call: ToolCall) -> Hashable:
    return run.service, fold(call.name), fingerprint(written(call.arguments))


def _repeats(part: Run, whole: Run) -> bool:
    """Whether all calls of a run are another one's, too; where other words were asked, their ids must say so.

    Of a request that lost its first words, those that it gave a sub-agent may be left.
    """
    if not set(part.trace_ids).isdisjoint(whole.trace_ids) or not _together(part, whole):
        return False
    words = part.input.strip() if part.input and whole.input else None
    differ = words is not None and not any(words in texts_in(call.arguments) for call in whole.tool_calls)
    made: dict[Hashable, list[ToolCall]] = {}
    for call in _own(whole):
        made.setdefault(_deed(whole, call), []).append(call)
    for call in _own(part):
        known = made.get(_deed(part, call), []) if call.arguments is not None else []
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


def _twins(one: Run, other: Run) -> bool:
    if not set(one.trace_ids).isdisjoint(other.trace_ids):
        return False
    tools, others = _tools(one), _tools(other)
    return _together(one, other) and (tools <= others or others <= tools)


def _tools(run: Run) -> Counter[str]:
    return Counter(fold(call.name) for call in run.tool_calls if call.kind != "handoff")


def _shared(one: Run, other: Run) -> int:
    """How long two runs were at work at the same time."""
    ends, starts = [run.end_ns or 0 for run in (one, other)], [run.start_ns or 0 for run in (one, other)]
    return min(ends) - max(starts)


def _together(one: Run, other: Run) -> bool:
    if None in (one.start_ns, one.end_ns, other.start_ns, other.end_ns):
        return False
    shared = _shared(one, other)
    shorter = min((run.end_ns or 0) - (run.start_ns or 0) for run in (one, other))
    return shared > 0 and shared >= _SHARE * shorter


def _knowledge(run: Run) -> tuple[int, ...]:
    calls = run.tool_calls
    return (
        sum(call.evidence == "executed" for call in calls),
        sum(call.arguments is not None for call in calls),
        sum(call.call_id is not None for call in calls),
        sum(fact is not None for fact in (run.session_id, run.output, run.golden_id)),
    )


def _joined(run: Run, twin: Run) -> Run:
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
    known = {(_deed(twin, call), call.call_id): call.kind for call in twin.tool_calls if call.kind != "tool"}
    if not known:
        return run.tool_calls
    return tuple(
        replace(call, kind=known.get((_deed(run, call), call.call_id), "tool")) if call.kind == "tool" else call
        for call in run.tool_calls
    )
