"""One request seen by two instrumentations that make a trace each: two runs that are one."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace

from goldspan.extraction.names import fold
from goldspan.model import Run

_SHARE = 0.9
"""So much of the shorter run's time lies within the longer one's."""


def without_twins(runs: Iterable[tuple[Run, str]]) -> list[Run]:
    """The runs, each given with the scope of its root, without those that repeat another one; order stays.

    Twins are of one service and of different instrumentations, were asked the same words at the same time, and used
    the same tools. The one that knows more stays, and is told what only the other knew.
    """
    given = list(runs)
    kept: dict[int, Run] = {}
    alike: dict[Hashable, int] = {}
    for at in sorted(range(len(given)), key=lambda at: (given[at][0].start_ns or 0, given[at][0].run_id)):
        run, scope = given[at]
        known = alike.get(_traits(run)) if run.input else None
        if known is not None and given[known][1] != scope and _together(kept[known], run):
            kept[known] = _joined(*sorted((kept[known], run), key=_knowledge, reverse=True))
        else:
            kept[at] = run
            alike[_traits(run)] = at
    return [kept[at] for at in sorted(kept)]


def _traits(run: Run) -> Hashable:
    return run.service, run.input, tuple(sorted(fold(call.name) for call in run.tool_calls if call.kind != "handoff"))


def _together(one: Run, other: Run) -> bool:
    times = (one.start_ns, one.end_ns, other.start_ns, other.end_ns)
    if None in times or not set(one.trace_ids).isdisjoint(other.trace_ids):
        return False
    start, end, other_start, other_end = (time for time in times if time is not None)
    shared = min(end, other_end) - max(start, other_start)
    return shared > 0 and shared >= _SHARE * min(end - start, other_end - other_start)


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
