"""One request seen by two instrumentations that make a trace each: two runs that are one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace

from goldspan.extraction.names import fold
from goldspan.model import Run

_SHARE = 0.9
"""So much of the shorter run's time lies within the longer one's."""
_CANDIDATES = 50
"""Runs that were asked the same words, the latest first, among which the twin is looked for."""


def without_twins(runs: Iterable[tuple[Run, str]]) -> list[Run]:
    """The runs, each given with the scope of its root, without those that repeat another one; order stays.

    Twins are of one service and of different instrumentations, were asked the same words at the same time, and used
    the same tools, as far as both of them saw. The one that knows more stays, and is told what only the other knew.
    """
    given = list(runs)
    kept: dict[int, Run] = {}
    alike: dict[Hashable, list[_Seen]] = {}
    for at in sorted(range(len(given)), key=lambda at: (given[at][0].start_ns or 0, given[at][0].run_id)):
        run, scope = given[at]
        others = alike.setdefault((run.service, run.input), []) if run.input else []
        possible = [seen for seen in others[-_CANDIDATES:] if scope not in seen.scopes and _twins(kept[seen.at], run)]
        if possible:
            seen = max(possible, key=lambda seen: _shared(kept[seen.at], run))
            seen.scopes.add(scope)
            kept[seen.at] = _joined(*sorted((kept[seen.at], run), key=_knowledge, reverse=True))
        else:
            kept[at] = run
            others.append(_Seen(at, {scope}))
    return [kept[at] for at in sorted(kept)]


@dataclass(slots=True)
class _Seen:
    """A run that is kept, and the instrumentations that saw it."""

    at: int
    scopes: set[str]


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
    health = replace(run.health, merged=run.health.merged + twin.health.merged + len(twin.tool_calls))
    return replace(
        run,
        trace_ids=run.trace_ids + twin.trace_ids,
        output=run.output or twin.output,
        session_id=run.session_id or twin.session_id,
        golden_id=run.golden_id or twin.golden_id,
        available_tools=run.available_tools or twin.available_tools,
        conventions=tuple(dict.fromkeys(run.conventions + twin.conventions)),
        health=health,
    )
