"""What shows that a run cannot be quite what happened: it contradicts itself, or another run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from goldspan.extraction.conventions import installed
from goldspan.extraction.cutting import Portion
from goldspan.extraction.names import fold
from goldspan.extraction.reading import WORK, says_something
from goldspan.extraction.tree import Node
from goldspan.model import Run, ToolCall

_SERVER = 2
"""OTLP's kind of a span that answers a request from outside."""


def idle_agents(nodes: Sequence[Node]) -> tuple[str, ...]:
    """The names of agents at whose work nobody was seen, and of which no word is recorded."""
    if any(node.role in WORK and node.owner is None for node in nodes):  # it may be theirs
        return ()
    agents = [node for node in nodes if node.role == "agent" and node.reading.name]
    busy = {node.reading.name for node in agents if _does_something(node)}
    return tuple(sorted({node.reading.name for node in agents if node.reading.name} - busy))


def _does_something(agent: Node) -> bool:
    works = any(node.role in WORK or node.role == "agent" for node in agent.walk() if node is not agent)
    return works or says_something(agent.reading)


def compared(portions: Sequence[Portion], runs: Sequence[Run]) -> list[Run]:
    """The runs of some requests, each told what it shares with another one that two requests would not share."""
    if len(runs) < 2:
        return list(runs)
    beside = [_around_several(portion, shared) for shared in (_shared(portions),) for portion in portions]
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
    under: dict[tuple[str | None, str, str], list[tuple[int, ToolCall]]] = {}
    for at, run in enumerate(runs):
        for call in run.tool_calls:
            if call.call_id:
                under.setdefault((run.service, call.call_id, fold(call.name)), []).append((at, call))
    found: Counter[int] = Counter()
    for calls in under.values():
        if len(calls) < 2 or len({call.evidence for _, call in calls}) < 2:
            continue
        for at, call in calls:
            others = (other for other, made in calls if other != at and made.evidence != call.evidence)
            found[at] += any(_of_one_time(runs[at], runs[other]) for other in others)
    return found + _called(runs)


def _called(runs: Sequence[Run]) -> Counter[int]:
    """The same for calls during which an agent of that name began a run of its own in the same trace."""
    begun: dict[tuple[str, str], list[int]] = {}
    for at, run in enumerate(runs):
        if run.agent:
            begun.setdefault((run.trace_ids[0], fold(run.agent)), []).append(at)
    found: Counter[int] = Counter()
    for at, run in enumerate(runs):
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
    if None in (run.start_ns, run.end_ns, other.start_ns, other.end_ns):
        return False
    return max(run.start_ns or 0, other.start_ns or 0) <= min(run.end_ns or 0, other.end_ns or 0)
