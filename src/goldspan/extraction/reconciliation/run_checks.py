"""What shows that a run cannot be quite what happened: it contradicts itself, or another run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from goldspan.content.parts import Message
from goldspan.content.tools import fold_name, undecorate
from goldspan.conventions import installed_conventions
from goldspan.conventions.span_facts import REQUEST_ROLES, WORK_ROLES, Messages, has_content
from goldspan.extraction.model_turns import ModelTurn
from goldspan.extraction.observed_calls import ObservedCall
from goldspan.extraction.segmentation.boundaries import RunSpans
from goldspan.extraction.span_tree import UNKNOWN_TIME, SpanNode
from goldspan.model import ABSENT, COUNTED_TOOL_KINDS, Run, ToolCall

_TOOL_FINISH_REASON = re.compile(r"(?:tool|function)[ _-]?(?:call|use)", re.IGNORECASE)
"""A finish reason with which a model asks for tools: `tool_calls`, `tool_use`, `TOOL_CALLS`, `function_call`."""


def would_show_calls(nodes: list[SpanNode], root: SpanNode | None) -> bool:
    """Whether a tool call would have been seen in a run in which none was.

    A tool's span shows it, and so does what a model said, and a run in which only functions were at work each of which
    has a span. The texts of the user, the application and the agent do not: they are there whatever was done between
    them. A model that stopped in order to call tools shows the contrary.
    """
    if any(_stopped_for_tools(node) for node in nodes):
        return False
    # Of a family that nobody knows, nobody knows either whether it writes what its models and tools do.
    nodes = [node for node in nodes if node.facts.guessed_from is None]
    shown = any(node.role == "tool" or (node.role == "model" and _records_model_output(node)) for node in nodes)
    return shown or _has_span_per_call(nodes, root)


def instrumentations_without_content(nodes: list[SpanNode]) -> tuple[str, ...]:
    """The instrumentations of which no span shows an argument, a result or a message.

    Each by the conventions whose switch records it: a family's own, before one in whose words many write. By its scope
    where the convention names switches by scopes, or knows none.
    """
    of_scope: dict[str, list[SpanNode]] = {}
    for node in nodes:
        if node.role in REQUEST_ROLES or node.role in WORK_ROLES:
            of_scope.setdefault(node.span.scope, []).append(node)
    silent = ((scope, of_it) for scope, of_it in of_scope.items() if not any(map(_records_content, of_it)))
    return tuple(sorted({name for scope, of_it in silent for name in _content_switch_owners(scope, of_it)}))


def _records_content(node: SpanNode) -> bool:
    reading = node.facts
    told = (reading.arguments, reading.result, reading.input, reading.output)
    return any(value is not None for value in told) or any(
        map(_has_content, (*node.input_messages, *node.output_messages))
    )


def _has_content(message: Message) -> bool:
    """Whether a message says something: with content off, some instrumentations record who spoke, and no more."""
    given = (call.arguments for call in message.tool_calls)
    returned = (answer.result for answer in message.tool_results)
    return bool(message.text) or any(value is not None and value is not ABSENT for value in (*given, *returned))


def _content_switch_owners(scope: str, nodes: list[SpanNode]) -> list[str]:
    names = {name for node in nodes for name in node.facts.conventions}
    known = [
        convention
        for convention in installed_conventions().members
        if convention.name in names and convention.capture_setting
    ]
    own = [convention.name for convention in known if not convention.is_shared]
    if own or not scope:
        return own or [convention.name for convention in known]
    return [scope]


def count_unknown_spans(nodes: list[SpanNode], root: SpanNode | None) -> int:
    """How many spans inside a run no convention knows."""
    return sum([node.unknown_spans + (_is_unknown(node) and node is not root) for node in nodes])


def _is_unknown(node: SpanNode) -> bool:
    return node.role is None and not node.facts.conventions


def _stopped_for_tools(node: SpanNode) -> bool:
    finish = node.facts.finish_reason
    return finish is not None and _TOOL_FINISH_REASON.search(str(finish)) is not None


def _records_model_output(node: SpanNode) -> bool:
    """Whether what a model said is recorded: in its answer, or in the history that it was given, for this request."""
    return any(map(_has_assistant_output, node.output_messages)) or any(
        map(_has_assistant_output, _messages_since_user(node.input_messages))
    )


def _messages_since_user(said: Messages) -> Messages:
    """What was said after the user's last words; nothing where these are not among it."""
    asked = [place for place, message in enumerate(said) if message.is_from_user]
    return said[asked[-1] + 1 :] if asked else ()


def _has_assistant_output(message: Message) -> bool:
    return message.role == "assistant" and bool(message.tool_calls or (message.text or "").strip())


def _has_span_per_call(nodes: list[SpanNode], root: SpanNode | None) -> bool:
    """Whether every span for which a run stands is of an instrumentation that writes a span for every call.

    A span that no convention knows may be a tool's.
    """
    scopes = _scopes_with_span_per_call()
    marks = [node for node in nodes if node.role in REQUEST_ROLES or node is root]
    own = bool(marks) and all(node.span.scope in scopes for node in marks)
    return own and not count_unknown_spans(nodes, root)


@cache
def _scopes_with_span_per_call() -> frozenset[str]:
    return frozenset().union(*(convention.scopes_with_span_per_call for convention in installed_conventions().members))


_SERVER_KIND = 2
"""OTLP's kind of a span that answers a request from outside."""

_MAX_NEIGHBOURS = 4
"""Calls under one id, before and after a call, that are compared with it."""


class Contradictions(NamedTuple):
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


def find_contradictions(
    calls: Sequence[ObservedCall], last_turns: Iterable[ModelTurn], other_call_ids: Container[str]
) -> Contradictions:
    """What contradicts the rest among the calls of a run, and what models were told in their `last` turns.

    `elsewhere` are the ids of calls that other runs made.
    """
    alone = [call for call in calls if call.node is None]
    told = {
        answer.call_id
        for turn in last_turns
        if turn.node.input_may_have_calls
        for answer in turn.tool_results
        if answer.call_id
    }
    strange = [
        call_id for call_id in told.difference([call.call_id for call in calls]) if call_id not in other_call_ids
    ]
    return Contradictions(
        merged_beside=sum([call.doubtful_merges for call in calls]),
        nested=_count_nested(calls),
        unpaired=_count_unpaired(calls, alone) if alone else 0,
        # Some instrumentations know other ids of the calls than the results have: then there are as many of both.
        unanswered=max(0, sum(map(_has_no_outcome, alone)) - len(strange)) if alone else 0,
        results_unknown=max(0, len(strange) - sum(call.call_id not in told for call in calls)) if strange else 0,
    )


def _count_nested(calls: Iterable[ObservedCall]) -> int:
    inside = [call.node for call in calls if call.node is not None and call.node.enclosing_tool is not None]
    if not inside:
        return 0
    tools = {call.node: call for call in calls if call.node is not None and call.kind in COUNTED_TOOL_KINDS}
    return len({outer for node in inside if node in tools and (outer := enclosing_call(node, tools)) is not None})


def enclosing_call(node: SpanNode, calls: Mapping[SpanNode, ObservedCall]) -> ObservedCall | None:
    """The innermost of some calls, by their spans, inside which another span stands, up to the next agent."""
    outer = node.enclosing_tool
    while outer is not None and outer not in calls:  # a further witness of that call
        outer = outer.enclosing_tool
    return None if outer is None else calls[outer]


def _count_unpaired(calls: Sequence[ObservedCall], alone: Sequence[ObservedCall]) -> int:
    executed = [
        call
        for call in calls
        if call.node is not None and call.request_order is None and call.history_position == UNKNOWN_TIME
    ]
    if not executed:
        return 0
    unasked = Counter(fold_name(undecorate(call.name)[0]) for call in executed)
    return (unasked & Counter(fold_name(undecorate(call.name)[0]) for call in alone)).total()


def _has_no_outcome(call: ObservedCall) -> bool:
    """Whether a call that was only asked for left no trace of what came of it."""
    return call.kind in COUNTED_TOOL_KINDS and call.result is None and call.error is None and call.outcome is None


def idle_agents(nodes: Iterable[SpanNode]) -> tuple[str, ...]:
    """The names of agents at whose work nobody was seen, and of which no word is recorded."""
    agents = [node for node in nodes if node.role == "agent" and node.facts.name]
    if not agents:
        return ()
    idle = {node.facts.name for node in agents if not _has_activity(node)}
    if not idle or any(node.role in WORK_ROLES and node.owner is None for node in nodes):  # that may be theirs
        return ()
    busy = {node.facts.name for node in agents if _has_activity(node)}
    return tuple(sorted(name for name in idle - busy if name))


def _has_activity(agent: SpanNode) -> bool:
    if has_content(agent.facts):
        return True
    return any(node.role in WORK_ROLES or node.role == "agent" for node in agent.walk() if node is not agent)


def mark_shared_work(portions: Sequence[RunSpans], runs: Sequence[Run]) -> list[Run]:
    """The runs of some requests, each told what it shares with another one that two requests would not share."""
    if len(runs) < 2:
        return list(runs)
    shared = _shared_ancestors(portions)
    beside = [_count_siblings(portion, shared) if shared else 0 for portion in portions]
    elsewhere = _count_split_calls(runs)
    return [
        replace(run, health=replace(run.health, root_shared=others, calls_elsewhere=elsewhere[at]))
        if others or elsewhere[at]
        else run
        for at, (run, others) in enumerate(zip(runs, beside, strict=True))
    ]


def _shared_ancestors(portions: Iterable[RunSpans]) -> Counter[SpanNode]:
    """How many requests each span is around, of those spans that are likely to stand for one."""
    return Counter(node for portion in portions for node in _top_span(portion).ancestors() if _is_likely_request(node))


def _count_siblings(portion: RunSpans, shared: Counter[SpanNode]) -> int:
    """How many further requests are inside the span around one."""
    return max((shared[node] - 1 for node in _top_span(portion).ancestors() if node in shared), default=0)


def _top_span(portion: RunSpans) -> SpanNode:
    return portion.root or portion.nodes[0]


def _is_likely_request(node: SpanNode) -> bool:
    """Whether a span without a role is a server's, or tells of what kind it is in a word that nobody knows."""
    return node.role is None and (
        node.span.kind == _SERVER_KIND or installed_conventions().has_role_attribute(node.span)
    )


def _count_split_calls(runs: Sequence[Run]) -> Counter[int]:
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
            near = calls[
                max(0, place - _MAX_NEIGHBOURS) : place + _MAX_NEIGHBOURS
            ]  # runs stand in the order of their times
            others = (other for other, made in near if other != at and made.evidence != call.evidence)
            found[at] += any(_overlap_in_time(runs[at], runs[other]) for other in others)
    return found + _count_delegated_runs(runs)


def _by_tool(calls: Iterable[tuple[int, ToolCall]], runs: Sequence[Run]) -> Iterable[list[tuple[int, ToolCall]]]:
    """Calls under one id, those of each service's tool together."""
    found: dict[tuple[str | None, str], list[tuple[int, ToolCall]]] = {}
    for at, call in calls:
        found.setdefault((runs[at].service, fold_name(call.name)), []).append((at, call))
    return found.values()


def _count_delegated_runs(runs: Sequence[Run]) -> Counter[int]:
    """The same for calls during which an agent of that name began a run of its own in the same trace."""
    of_trace = Counter(run.trace_ids[0] for run in runs)
    beside = [(at, run) for at, run in enumerate(runs) if of_trace[run.trace_ids[0]] > 1]
    begun: dict[tuple[str, str], list[int]] = {}
    for at, run in beside:
        if run.agent:
            begun.setdefault((run.trace_ids[0], fold_name(run.agent)), []).append(at)
    found: Counter[int] = Counter()
    for at, run in beside if begun else ():
        for call in run.tool_calls:
            for other in begun.get((run.trace_ids[0], fold_name(call.name)), ()):
                if other != at and _starts_during(call, runs[other]):
                    found[at] += 1
                    found[other] += 1
    return found


def _starts_during(call: ToolCall, run: Run) -> bool:
    if call.start_ns is None or call.end_ns is None or run.start_ns is None:
        return False
    return call.start_ns <= run.start_ns <= call.end_ns


def _overlap_in_time(run: Run, other: Run) -> bool:
    """Whether two runs are of one trace, or were at work at the same time."""
    if not set(run.trace_ids).isdisjoint(other.trace_ids):
        return True
    if run.start_ns is None or run.end_ns is None or other.start_ns is None or other.end_ns is None:
        return False
    return run.start_ns <= other.end_ns and other.start_ns <= run.end_ns
