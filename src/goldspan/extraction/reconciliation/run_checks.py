"""Checks whether calls would be visible in a run, and whether a run contradicts itself or others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from goldspan.content.parts import Message
from goldspan.content.tools import undecorate
from goldspan.conventions import installed_conventions
from goldspan.conventions.span_facts import REQUEST_ROLES, WORK_ROLES, Messages, has_content
from goldspan.extraction.model_turns import ModelTurn
from goldspan.extraction.observed_calls import ObservedCall
from goldspan.extraction.segmentation.boundaries import RunSpans
from goldspan.extraction.span_node import UNKNOWN_TIME, SpanNode
from goldspan.model import ABSENT, COUNTED_TOOL_KINDS, Run, ToolCall
from goldspan.model.name_folding import fold_name

_TOOL_FINISH_REASON = re.compile(r"(?:tool|function)[ _-]?(?:call|use)", re.IGNORECASE)
"""The finish reasons of a model that requests tools: `tool_calls`, `tool_use`, `TOOL_CALLS`, `function_call`."""


def would_show_calls(nodes: list[SpanNode], root: SpanNode | None) -> bool:
    """Returns whether a run without calls would have shown a call.

    Calls would be visible if the run has a tool span or recorded model output, or if only instrumentations that write a
    span for every call are at work. The input and output of the user, the application and the agent show nothing about
    calls. If a model stopped in order to call tools, calls are not visible.
    """
    if any(_stopped_for_tools(node) for node in nodes):
        return False
    # It is unknown whether an unknown family of spans records models and tools.
    nodes = [node for node in nodes if node.facts.guessed_from is None]
    shown = any(node.role == "tool" or (node.role == "model" and _records_model_output(node)) for node in nodes)
    return shown or _has_span_per_call(nodes, root)


def instrumentations_without_content(nodes: list[SpanNode]) -> tuple[str, ...]:
    """Returns the instrumentations none of whose spans contains an argument, a result or a message.

    An instrumentation is named by the convention that has its capture setting: its own one takes precedence over a
    shared one. Otherwise it is named by its scope.
    """
    nodes_by_scope: dict[str, list[SpanNode]] = {}
    for node in nodes:
        if node.role in REQUEST_ROLES or node.role in WORK_ROLES:
            nodes_by_scope.setdefault(node.span.scope, []).append(node)
    empty = [(scope, group) for scope, group in nodes_by_scope.items() if not any(map(_records_content, group))]
    return tuple(sorted({name for scope, group in empty for name in _capture_setting_owners(scope, group)}))


def _records_content(node: SpanNode) -> bool:
    facts = node.facts
    content = (facts.arguments, facts.result, facts.input, facts.output)
    return any(value is not None for value in content) or any(
        map(_has_content, (*node.input_messages, *node.output_messages))
    )


def _has_content(message: Message) -> bool:
    """Whether a message has content: with content off, some instrumentations record only the role."""
    arguments = (call.arguments for call in message.tool_calls)
    results = (result.result for result in message.tool_results)
    return bool(message.text) or any(value is not None and value is not ABSENT for value in (*arguments, *results))


def _capture_setting_owners(scope: str, nodes: list[SpanNode]) -> list[str]:
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
    """Returns the number of spans inside a run that no convention recognises."""
    return sum([node.unknown_spans + (_is_unknown(node) and node is not root) for node in nodes])


def _is_unknown(node: SpanNode) -> bool:
    return node.role is None and not node.facts.conventions


def _stopped_for_tools(node: SpanNode) -> bool:
    finish = node.facts.finish_reason
    return finish is not None and _TOOL_FINISH_REASON.search(str(finish)) is not None


def _records_model_output(node: SpanNode) -> bool:
    """Whether model output is recorded: in the output messages, or in the history of the current request."""
    return any(map(_has_assistant_output, node.output_messages)) or any(
        map(_has_assistant_output, _messages_since_user(node.input_messages))
    )


def _messages_since_user(messages: Messages) -> Messages:
    """The messages after the last user message; none if there is no user message."""
    user_positions = [position for position, message in enumerate(messages) if message.is_from_user]
    return messages[user_positions[-1] + 1 :] if user_positions else ()


def _has_assistant_output(message: Message) -> bool:
    return message.role == "assistant" and bool(message.tool_calls or (message.text or "").strip())


def _has_span_per_call(nodes: list[SpanNode], root: SpanNode | None) -> bool:
    """Whether the root and all agents and entries are from instrumentations that write a span for every call.

    An unrecognised span may be a tool.
    """
    scopes = _scopes_with_span_per_call()
    marked = [node for node in nodes if node.role in REQUEST_ROLES or node is root]
    complete = bool(marked) and all(node.span.scope in scopes for node in marked)
    return complete and not count_unknown_spans(nodes, root)


@cache
def _scopes_with_span_per_call() -> frozenset[str]:
    return frozenset().union(*(convention.scopes_with_span_per_call for convention in installed_conventions().members))


_SERVER_KIND = 2
"""OTLP's kind of a span that answers a request from outside."""

_MAX_NEIGHBOURS = 4
"""How many calls with one id, before and after a call, are compared with it."""


class Contradictions(NamedTuple):
    """The numbers of contradictions among the calls of a run."""

    merged_beside: int = 0
    """Executions merged into one call although one instrumentation wrote both spans, each with a result."""
    nested: int = 0
    """Tools whose spans contain other executed tools."""
    unpaired: int = 0
    """Requested calls without an execution, if the same tool has an execution without a request."""
    unanswered: int = 0
    """Requested calls without an execution and without a result."""
    results_unknown: int = 0
    """Results in a model's input whose calls are not known."""


def find_contradictions(
    calls: Sequence[ObservedCall], last_turns: Iterable[ModelTurn], other_call_ids: Container[str]
) -> Contradictions:
    """Counts the contradictions among the calls of a run and the results in the last turns of the models.

    `other_call_ids` are the ids of calls that other runs other_call.
    """
    requested_only = [call for call in calls if call.node is None]
    result_ids = {
        result.call_id
        for turn in last_turns
        if turn.node.input_may_have_calls
        for result in turn.tool_results
        if result.call_id
    }
    unknown_ids = result_ids.difference([call.call_id for call in calls])
    unknown = [call_id for call_id in unknown_ids if call_id not in other_call_ids]
    return Contradictions(
        merged_beside=sum([call.doubtful_merges for call in calls]),
        nested=_count_nested(calls),
        unpaired=_count_unpaired(calls, requested_only) if requested_only else 0,
        # Some instrumentations record other ids for calls than for results: then the numbers of both are equal.
        unanswered=max(0, sum(map(_has_no_outcome, requested_only)) - len(unknown)) if requested_only else 0,
        results_unknown=max(0, len(unknown) - sum(call.call_id not in result_ids for call in calls)) if unknown else 0,
    )


def _count_nested(calls: Iterable[ObservedCall]) -> int:
    inside = [call.node for call in calls if call.node is not None and call.node.enclosing_tool is not None]
    if not inside:
        return 0
    tools = {call.node: call for call in calls if call.node is not None and call.kind in COUNTED_TOOL_KINDS}
    return len({outer for node in inside if node in tools and (outer := enclosing_call(node, tools)) is not None})


def enclosing_call(node: SpanNode, calls: Mapping[SpanNode, ObservedCall]) -> ObservedCall | None:
    """Returns the innermost of some calls, by their spans, that encloses a span, up to the next agent."""
    outer = node.enclosing_tool
    while outer is not None and outer not in calls:  # a further span of that call
        outer = outer.enclosing_tool
    return None if outer is None else calls[outer]


def _count_unpaired(calls: Sequence[ObservedCall], requested_only: Sequence[ObservedCall]) -> int:
    executed = [
        call
        for call in calls
        if call.node is not None and call.request_order is None and call.history_position == UNKNOWN_TIME
    ]
    if not executed:
        return 0
    unasked = Counter(fold_name(undecorate(call.name)[0]) for call in executed)
    return (unasked & Counter(fold_name(undecorate(call.name)[0]) for call in requested_only)).total()


def _has_no_outcome(call: ObservedCall) -> bool:
    """Whether a requested call has no result, error or outcome."""
    return call.kind in COUNTED_TOOL_KINDS and call.result is None and call.error is None and call.outcome is None


def idle_agents(nodes: Iterable[SpanNode], agents: Iterable[SpanNode]) -> tuple[str, ...]:
    """Returns the names of the agents of a run without model, tool and agent spans and without content."""
    idle = [node for node in agents if node.facts.name and not _has_activity(node)]
    if not idle or any(
        node.role in WORK_ROLES and node.owner is None for node in nodes
    ):  # this work may belong to the idle agents
        return ()
    busy = {node.facts.name for node in set(agents).difference(idle)}
    return tuple(sorted({node.facts.name for node in idle if node.facts.name} - busy))


def _has_activity(agent: SpanNode) -> bool:
    if has_content(agent.facts):
        return True
    return any(node.role in WORK_ROLES or node.role == "agent" for node in agent.walk() if node is not agent)


def mark_shared_work(segments: Sequence[RunSpans], runs: Sequence[Run]) -> list[Run]:
    """Returns the runs with the ancestors and calls that they share with other runs counted in their health."""
    if len(runs) < 2:
        return list(runs)
    shared = _shared_ancestors(segments)
    beside = [_count_siblings(segment, shared) if shared else 0 for segment in segments]
    split_calls = _count_split_calls(runs)
    return [
        replace(run, health=replace(run.health, root_shared=others, calls_elsewhere=split_calls[at]))
        if others or split_calls[at]
        else run
        for at, (run, others) in enumerate(zip(runs, beside, strict=True))
    ]


def _shared_ancestors(segments: Iterable[RunSpans]) -> Counter[SpanNode]:
    """The number of requests that each span encloses, for the spans that are likely to stand for a request."""
    return Counter(node for segment in segments for node in _top_span(segment).ancestors() if _is_likely_request(node))


def _count_siblings(segment: RunSpans, shared: Counter[SpanNode]) -> int:
    """The number of further requests inside the span that encloses a request."""
    return max((shared[node] - 1 for node in _top_span(segment).ancestors() if node in shared), default=0)


def _top_span(segment: RunSpans) -> SpanNode:
    return segment.root or segment.nodes[0]


def _is_likely_request(node: SpanNode) -> bool:
    """Whether a span without a role is a server span, or has a role attribute with an unknown value."""
    return node.role is None and (
        node.span.kind == _SERVER_KIND or installed_conventions().has_role_attribute(node.span)
    )


def _count_split_calls(runs: Sequence[Run]) -> Counter[int]:
    """For each run, by position, how many of its calls another run at the same time requested or executed."""
    under: dict[str, list[tuple[int, ToolCall]]] = {}
    in_order = sorted(range(len(runs)), key=lambda at: (runs[at].start_ns or 0, runs[at].run_id))
    for at in in_order:
        for call in runs[at].tool_calls:
            if call.call_id:
                under.setdefault(call.call_id, []).append((at, call))
    found: Counter[int] = Counter()
    again = [calls for calls in under.values() if len(calls) > 1 and len({call.evidence for _, call in calls}) > 1]
    for calls in (alike for same_id in again for alike in _by_tool(same_id, runs)):
        for place, (at, call) in enumerate(calls):
            near = calls[max(0, place - _MAX_NEIGHBOURS) : place + _MAX_NEIGHBOURS]
            others = (other for other, other_call in near if other != at and other_call.evidence != call.evidence)
            found[at] += any(_overlap_in_time(runs[at], runs[other]) for other in others)
    return found + _count_delegated_runs(runs)


def _by_tool(calls: Iterable[tuple[int, ToolCall]], runs: Sequence[Run]) -> Iterable[list[tuple[int, ToolCall]]]:
    """Groups calls with one id by service and tool."""
    found: dict[tuple[str | None, str], list[tuple[int, ToolCall]]] = {}
    for at, call in calls:
        found.setdefault((runs[at].service, fold_name(call.name)), []).append((at, call))
    return found.values()


def _count_delegated_runs(runs: Sequence[Run]) -> Counter[int]:
    """The same for calls during which an agent with the name of the tool started a separate run in the same trace."""
    of_trace = Counter(run.trace_ids[0] for run in runs)
    beside = [(at, run) for at, run in enumerate(runs) if of_trace[run.trace_ids[0]] > 1]
    runs_by_agent: dict[tuple[str, str], list[int]] = {}
    for at, run in beside:
        if run.agent:
            runs_by_agent.setdefault((run.trace_ids[0], fold_name(run.agent)), []).append(at)
    found: Counter[int] = Counter()
    for at, run in beside if runs_by_agent else ():
        for call in run.tool_calls:
            for other in runs_by_agent.get((run.trace_ids[0], fold_name(call.name)), ()):
                if other != at and _starts_during(call, runs[other]):
                    found[at] += 1
                    found[other] += 1
    return found


def _starts_during(call: ToolCall, run: Run) -> bool:
    if call.start_ns is None or call.end_ns is None or run.start_ns is None:
        return False
    return call.start_ns <= run.start_ns <= call.end_ns


def _overlap_in_time(run: Run, other: Run) -> bool:
    """Whether two runs are of one trace, or were active at the same time."""
    if not set(run.trace_ids).isdisjoint(other.trace_ids):
        return True
    if run.start_ns is None or run.end_ns is None or other.start_ns is None or other.end_ns is None:
        return False
    return run.start_ns <= other.end_ns and other.start_ns <= run.end_ns
