"""What shows that a run cannot be quite what happened: it contradicts itself, or another run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from goldspan.extraction.calls import Call
from goldspan.extraction.conventions import installed
from goldspan.extraction.cutting import Portion
from goldspan.extraction.dialogues import Dialogue
from goldspan.extraction.names import fold, undecorate
from goldspan.extraction.reading import WORK, says_something
from goldspan.extraction.times import NEVER
from goldspan.extraction.tree import Node
from goldspan.model import COUNTED_KINDS, Run, ToolCall

_SERVER = 2
"""OTLP's kind of a span that answers a request from outside."""

_NEAR = 4
"""Calls under one id, before and after a call, that are compared with it."""


class Doubts(NamedTuple):
    """What in the calls of a run contradicts the rest."""

    merged_beside: int = 0
    """Executions taken for one call though one instrumentation wrote both spans, each with a result."""
    nested: int = 0
    """Tools inside whose spans others were executed."""
    unpaired: int = 0
    """Calls that were asked for alone, beside one of the same tool that was executed alone."""
    unanswered: int = 0
    """Calls that were asked for, and of which neither an execution nor a result is known."""
    results_unknown: int = 0
    """Results that a model was told, of calls that are not known."""


def doubts(calls: Sequence[Call], last: Iterable[Dialogue], elsewhere: Container[str]) -> Doubts:
    """What contradicts the rest among the calls of a run, and what models were told in their `last` turns.

    `elsewhere` are the ids of calls that other runs made.
    """
    alone = [call for call in calls if call.node is None]
    told = {answer.call_id for turn in last if turn.node.hears_calls for answer in turn.told if answer.call_id}
    strange = [call_id for call_id in told.difference([call.call_id for call in calls]) if call_id not in elsewhere]
    return Doubts(
        merged_beside=sum([call.doubted for call in calls]),
        nested=_nested(calls),
        unpaired=_unpaired(calls, alone) if alone else 0,
        # Some instrumentations know other ids of the calls than the results have: then there are as many of both.
        unanswered=max(0, sum(map(_is_unanswered, alone)) - len(strange)) if alone else 0,
        results_unknown=max(0, len(strange) - sum(call.call_id not in told for call in calls)) if strange else 0,
    )


def _nested(calls: Iterable[Call]) -> int:
    inside = [call.node for call in calls if call.node is not None and call.node.enclosing_tool is not None]
    if not inside:
        return 0
    tools = {call.node: call for call in calls if call.node is not None and call.kind in COUNTED_KINDS}
    return len({outer for node in inside if node in tools and (outer := call_around(node, tools)) is not None})


def call_around(node: Node, calls: Mapping[Node, Call]) -> Call | None:
    """The innermost of some calls, by their spans, inside which another span stands, up to the next agent."""
    outer = node.enclosing_tool
    while outer is not None and outer not in calls:  # a further witness of that call
        outer = outer.enclosing_tool
    return None if outer is None else calls[outer]


def _unpaired(calls: Sequence[Call], alone: Sequence[Call]) -> int:
    executed = [call for call in calls if call.node is not None and call.asked_at is None and call.recalled == NEVER]
    if not executed:
        return 0
    unasked = Counter(fold(undecorate(call.name)[0]) for call in executed)
    return (unasked & Counter(fold(undecorate(call.name)[0]) for call in alone)).total()


def _is_unanswered(call: Call) -> bool:
    """Whether a call that was only asked for left no trace of what came of it."""
    return call.kind in COUNTED_KINDS and call.result is None and call.error is None and call.outcome is None


def idle_agents(nodes: Iterable[Node]) -> tuple[str, ...]:
    """The names of agents at whose work nobody was seen, and of which no word is recorded."""
    agents = [node for node in nodes if node.role == "agent" and node.reading.name]
    if not agents:
        return ()
    idle = {node.reading.name for node in agents if not _does_something(node)}
    if not idle or any(node.role in WORK and node.owner is None for node in nodes):  # that may be theirs
        return ()
    busy = {node.reading.name for node in agents if _does_something(node)}
    return tuple(sorted(name for name in idle - busy if name))


def _does_something(agent: Node) -> bool:
    if says_something(agent.reading):
        return True
    return any(node.role in WORK or node.role == "agent" for node in agent.walk() if node is not agent)


def compared(portions: Sequence[Portion], runs: Sequence[Run]) -> list[Run]:
    """The runs of some requests, each told what it shares with another one that two requests would not share."""
    if len(runs) < 2:
        return list(runs)
    shared = _shared(portions)
    beside = [_around_several(portion, shared) if shared else 0 for portion in portions]
    elsewhere = _calls_elsewhere(runs)
    return [
        replace(run, health=replace(run.health, root_shared=others, calls_elsewhere=elsewhere[at]))
        if others or elsewhere[at]
        else run
        for at, (run, others) in enumerate(zip(runs, beside, strict=True))
    ]


def _shared(portions: Iterable[Portion]) -> Counter[Node]:
    """How many requests each span is around, of those spans that are likely to stand for one."""
    return Counter(node for portion in portions for node in _top(portion).ancestors() if _seems_a_request(node))


def _around_several(portion: Portion, shared: Counter[Node]) -> int:
    """How many further requests are inside the span around one."""
    return max((shared[node] - 1 for node in _top(portion).ancestors() if node in shared), default=0)


def _top(portion: Portion) -> Node:
    return portion.root or portion.nodes[0]


def _seems_a_request(node: Node) -> bool:
    """Whether a span without a role is a server's, or tells of what kind it is in a word that nobody knows."""
    return node.role is None and (node.span.kind == _SERVER or installed().tells_kind(node.span))


def _calls_elsewhere(runs: Sequence[Run]) -> Counter[int]:
    """For each run, by its place, how many of its calls another one of that time asked for, or executed, instead."""
    under: dict[str, list[tuple[int, ToolCall]]] = {}
    for at, run in enumerate(runs):
        for call in run.tool_calls:
            if call.call_id:
                under.setdefault(call.call_id, []).append((at, call))
    found: Counter[int] = Counter()
    again = [calls for calls in under.values() if len(calls) > 1 and len({call.evidence for _, call in calls}) > 1]
    for calls in (alike for same_id in again for alike in _by_tool(same_id, runs)):
        for place, (at, call) in enumerate(calls):
            near = calls[max(0, place - _NEAR) : place + _NEAR]  # runs stand in the order of their times
            others = (other for other, made in near if other != at and made.evidence != call.evidence)
            found[at] += any(_of_one_time(runs[at], runs[other]) for other in others)
    return found + _called(runs)


def _by_tool(calls: Iterable[tuple[int, ToolCall]], runs: Sequence[Run]) -> Iterable[list[tuple[int, ToolCall]]]:
    """Calls under one id, those of each service's tool together."""
    found: dict[tuple[str | None, str], list[tuple[int, ToolCall]]] = {}
    for at, call in calls:
        found.setdefault((runs[at].service, fold(call.name)), []).append((at, call))
    return found.values()


def _called(runs: Sequence[Run]) -> Counter[int]:
    """The same for calls during which an agent of that name began a run of its own in the same trace."""
    of_trace = Counter(run.trace_ids[0] for run in runs)
    beside = [(at, run) for at, run in enumerate(runs) if of_trace[run.trace_ids[0]] > 1]
    begun: dict[tuple[str, str], list[int]] = {}
    for at, run in beside:
        if run.agent:
            begun.setdefault((run.trace_ids[0], fold(run.agent)), []).append(at)
    found: Counter[int] = Counter()
    for at, run in beside if begun else ():
        for call in run.tool_calls:
            for other in begun.get((run.trace_ids[0], fold(call.name)), ()):
                if other != at and _during(call, runs[other]):
                    found[at] += 1
                    found[other] += 1
    return found


def _during(call: ToolCall, run: Run) -> bool:
    if call.start_ns is None or call.end_ns is None or run.start_ns is None:
        return False
    return call.start_ns <= run.start_ns <= call.end_ns


def _of_one_time(run: Run, other: Run) -> bool:
    """Whether two runs are of one trace, or were at work at the same time."""
    if not set(run.trace_ids).isdisjoint(other.trace_ids):
        return True
    if run.start_ns is None or run.end_ns is None or other.start_ns is None or other.end_ns is None:
        return False
    return run.start_ns <= other.end_ns and other.start_ns <= run.end_ns
