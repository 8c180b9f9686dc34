"""Merges executed calls, requested calls and results into the tool calls of a run, each counted once.

A requested call is matched to an execution by its id, else by name and arguments. A call without an execution is kept
as requested; its result is in the next input of the model.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from goldspan.content import values
from goldspan.content.parts import Message, ToolResult
from goldspan.content.tools import handoff_target, undecorate
from goldspan.conventions.span_facts import REQUEST_ROLES, RawValue
from goldspan.extraction.model_turns import (
    ModelTurn,
    argument_texts,
    calls_since_user,
    find_model_turns,
    full_history,
    history_may_contain_calls,
    last_turns,
)
from goldspan.extraction.observed_calls import ObservedCall, call_from_span, executed_calls, in_order
from goldspan.extraction.reconciliation.call_registry import CallRegistry
from goldspan.extraction.reconciliation.run_checks import Contradictions, enclosing_call, find_contradictions
from goldspan.extraction.span_node import SpanNode
from goldspan.model import ToolCall, ToolDefinition, fast_constructor
from goldspan.model.name_folding import fold_name

_MAX_OVERLAP_DISTANCE = 256
"""The maximum distance, in the order of a run's calls, of two calls that are compared for overlap."""
_NO_CONTRADICTIONS = Contradictions()
_History: TypeAlias = tuple[SpanNode, Sequence[Message]]
"""A message history, and the span that contains it."""


@dataclass(frozen=True, slots=True)
class ReconciledCalls:
    """The calls of a run in order, the model turns, and the number of merged duplicate observations."""

    calls: tuple[ToolCall, ...] = ()
    turns: tuple[ModelTurn, ...] = field(default=(), repr=False)
    merged_count: int = 0
    contradictions: Contradictions = _NO_CONTRADICTIONS


def reconcile(
    nodes: list[SpanNode],
    offered: Iterable[ToolDefinition] = (),
    *,
    turns: list[ModelTurn] | None = None,
    other_call_ids: Container[str] = (),
) -> ReconciledCalls:
    """Merges all evidence in the spans of one run into its tool calls, by start time.

    `offered` are the tools offered to the model, `turns` the turns of the models in the spans if they are known, and
    `other_call_ids` the ids of calls that other runs made.
    """
    if turns is None:
        turns = find_model_turns(nodes)
    last = last_turns(turns)
    registry = CallRegistry(executed_calls(nodes), nodes, other_call_ids=other_call_ids)
    registry.add_turns(turns)
    histories = list(_histories(nodes, last))
    for node, history in histories:
        registry.add_history(calls_since_user(history), node)
    _assign_results(registry.calls, turns, last)
    _assign_kept_results(registry.calls, histories)
    _mark_agents_by_text(registry.calls, turns)
    _mark_agents_by_calls(registry.calls)
    _mark_handoffs(registry.calls, nodes)
    _apply_offered_kinds(registry.calls, offered)
    return ReconciledCalls(
        build_tool_calls(registry.calls, offered),
        tuple(turns),
        merged_count=sum([call.merged_count for call in registry.calls]),
        contradictions=find_contradictions(registry.calls, last, other_call_ids),
    )


class OwnCallIds:
    """The ids of the calls that some spans executed or requested themselves, and do not only repeat.

    The ids are collected on first use, because they are rarely needed.
    """

    def __init__(self, nodes: Iterable[SpanNode], others: Container[str] = ()) -> None:
        """Store the nodes for the first use. The ids in `others` are those of further spans."""
        self._nodes = nodes
        self._others = others

    def __contains__(self, call_id: object) -> bool:
        return call_id in self.ids or call_id in self._others

    @cached_property
    def ids(self) -> frozenset[str]:
        """The ids of the nodes."""
        return frozenset(_own_call_ids(self._nodes))


def _own_call_ids(nodes: Iterable[SpanNode]) -> Iterator[str]:
    for node in nodes:
        if node.role == "tool":
            call_id = call_from_span(node).call_id
            if call_id:
                yield call_id
        elif node.role == "model":
            yield from (call.call_id for call in node.requested_calls if call.call_id)


def _histories(nodes: list[SpanNode], last: Iterable[ModelTurn]) -> Iterator[_History]:
    """The message histories: the last input of each agent's model, and those of agent and entry spans."""
    for turn in last:
        if turn.node.input_may_have_calls:
            yield turn.node, turn.input_messages
    for node in nodes:
        if node.role in REQUEST_ROLES and history_may_contain_calls(node):
            yield node, full_history(node)


def _assign_results(calls: list[ObservedCall], turns: list[ModelTurn], last: Iterable[ModelTurn]) -> None:
    """Sets the result or the error of every call from the tool result with its id in the model's input."""
    known = [call for call in calls if call.call_id]
    if not known or not turns:
        return
    # The end of a requested call is the first turn with its result; otherwise the last turn repeats all results.
    results = _results_by_id(turns if any(call.node is None for call in known) else last)
    if any(call.result is None and call.call_id not in results for call in known):
        results = _results_by_id(turns) | results
    if not results:
        return
    used: dict[str | None, int] = {}
    # Only the order of calls with the same id matters.
    are_distinct = len({call.call_id for call in known}) == len(known)
    for call in known if are_distinct else sorted(known, key=lambda call: call.sort_key):
        candidates = results.get(call.call_id or "")
        if not candidates:
            continue
        # If an id is used again, the second result belongs to the second call.
        position = used.get(call.call_id, 0)
        result, turn = candidates[min(position, len(candidates) - 1)]
        used[call.call_id] = position + 1
        if call.node is None:
            call.end_ns = turn.node.span.start_ns
        if call.result is None and result.result is not None:
            call.result = RawValue(result.result)
        if not call.error and result.is_error:
            call.error = values.message_text(result.result) or "error"


def _assign_kept_results(calls: list[ObservedCall], histories: Iterable[_History]) -> None:
    """Sets the result of calls without a result in any model input from the history of an agent or entry."""
    open_calls = [call for call in calls if call.call_id and call.result is None and call.error is None]
    results_by_id: dict[str, list[ToolResult]] = {}
    for _, history in histories if open_calls else ():
        in_history: dict[str, list[ToolResult]] = {}
        for message in history:
            for result in message.tool_results:
                if result.call_id and result.result is not None:
                    in_history.setdefault(result.call_id, []).append(result)
        for call_id, results in in_history.items():
            results_by_id.setdefault(call_id, results)
    for call in open_calls if results_by_id else ():
        # If an id is used again, the results cannot be attributed.
        results = results_by_id.get(call.call_id or "", [])
        if len({repr(result) for result in results}) == 1:
            call.result = RawValue(results[0].result)
            call.error = (values.message_text(results[0].result) or "error") if results[0].is_error else None


def _results_by_id(turns: Iterable[ModelTurn]) -> dict[str, list[tuple[ToolResult, ModelTurn]]]:
    """The results for each call id, in order, each with the first turn that received it."""
    results: dict[str, list[tuple[ToolResult, ModelTurn]]] = {}
    for turn in turns:
        counts: dict[str, int] = {}
        for message in turn.input_messages if turn.node.input_may_have_calls else ():
            for result in message.tool_results:
                call_id = result.call_id
                if call_id:
                    known = results.setdefault(call_id, [])
                    count = counts.get(call_id, 0)
                    if count == len(known):
                        known.append((result, turn))
                    counts[call_id] = count + 1
    return results


def _apply_offered_kinds(calls: list[ObservedCall], offered: Iterable[ToolDefinition]) -> None:
    """Sets the kind of requested calls from the definitions of the offered tools."""
    known = {fold_name(tool.name): tool for tool in offered if tool.kind != "tool" or tool.deferred}
    for call in calls if known else ():
        tool = known.get(fold_name(call.name))
        if tool is None or call.node is not None:
            continue
        if call.kind == "tool":
            call.kind = tool.kind
        if tool.deferred and call.result is None:
            call.outcome = call.outcome or "deferred"


def _mark_agents_by_calls(calls: list[ObservedCall]) -> None:
    """Marks a tool as an agent if a model inside its span requested another tool that was executed there."""
    call_by_node: dict[SpanNode, ObservedCall] = {}
    for call in calls:
        tool = call.requesting_turn.node.enclosing_tool if call.requesting_turn is not None else None
        if tool is None or call.node is None or not tool.contains(call.node):
            continue
        call_by_node = call_by_node or {other.node: other for other in calls if other.node is not None}
        outer = call_by_node.get(tool) or enclosing_call(tool, call_by_node)
        if outer is not None and outer is not call and outer.kind == "tool":
            outer.kind = "agent"


def _mark_handoffs(calls: list[ObservedCall], nodes: Iterable[SpanNode]) -> None:
    """Marks a call with the name of a hand-off as one if its name or an argument names an agent of the run."""
    agents: set[str] | None = None
    for call in calls:
        target = handoff_target(call.name) if call.kind == "tool" else None
        if target is None:
            continue
        if agents is None:
            agents = {fold_name(node.facts.name) for node in nodes if node.role == "agent" and node.facts.name}
        named = argument_texts(call.arguments.value) if call.arguments is not None else ()
        if not agents.isdisjoint(fold_name(name) for name in (target, *named)):
            call.kind = "handoff"


def _mark_agents_by_text(calls: list[ObservedCall], turns: list[ModelTurn]) -> None:
    """Marks a call as an agent if one of its arguments is the first user message of later model turns.

    An executed tool may call a model just for text. It is an agent only if that model requests tools.
    """
    requested = [call for call in calls if call.request_order is not None]
    if not requested or len(turns) < 2:
        return
    unmarked = any(call.node is None for call in requested)
    working = {turn.node.owner for turn in turns if unmarked or turn.node.output_may_have_calls}
    if len(working) < 2 and not unmarked:
        return
    texts_by_call = [
        (call, [*argument_texts(call.arguments.value)]) for call in requested if call.arguments is not None
    ]
    if not any(texts for _, texts in texts_by_call):
        return
    turns_by_text: dict[str, list[ModelTurn]] = {}
    for turn in turns:
        if turn.first_user_text:
            turns_by_text.setdefault(turn.first_user_text, []).append(turn)
    texts_with_calls = {text for text, group in turns_by_text.items() if any(turn.calls for turn in group)}
    calls_by_turn: dict[ModelTurn | None, list[ObservedCall]] = {}
    for call in requested:
        calls_by_turn.setdefault(call.requesting_turn, []).append(call)
    named: set[str] = set()
    for call, texts in texts_by_call:
        for text in texts:
            started = turns_by_text.get(text, ())
            is_agent = call.node is None or text in texts_with_calls
            order = call.request_order
            if started and is_agent and order is not None and started[0].node.start >= order.time_ns:
                call.kind = "agent"
                if text not in named:
                    named.add(text)
                    for inner in (inner for turn in started for inner in calls_by_turn.get(turn, ())):
                        inner.agent = inner.agent or call.name


# --- the tool calls of the run ----------------------------------------------------------------------------------------


def build_tool_calls(calls: list[ObservedCall], offered: Iterable[ToolDefinition]) -> tuple[ToolCall, ...]:
    """Builds the tool calls of a run in order, and finds the calls that ran at the same time.

    The schemas of the offered tools provide names for unnamed arguments. A server that one call names also applies to
    other calls whose name has its prefix. Each call is compared only with the nearest calls in order.
    """
    servers = frozenset([call.server for call in calls if call.server])
    ordered = in_order(calls)
    schemas = _schemas_by_name(ordered, offered)
    concurrent: list[list[int]] = [[] for _ in ordered]
    for first, call in enumerate(ordered):
        horizon = call.start_ns if call.end_ns is None else call.end_ns
        for second in range(first + 1, min(first + _MAX_OVERLAP_DISTANCE, len(ordered))):
            start = ordered[second].start_ns
            if call.start_ns is not None and (horizon is None or start is None or start > horizon):
                break
            if call.overlaps(ordered[second]):
                concurrent[first].append(second)
                concurrent[second].append(first)
    return tuple(
        [
            _build_tool_call(call, schemas, servers, tuple(sorted(others)) if others else ())
            for call, others in zip(ordered, concurrent, strict=True)
        ]
    )


def _schemas_by_name(calls: list[ObservedCall], offered: Iterable[ToolDefinition]) -> dict[str, ToolDefinition]:
    """The offered tools by name; none if the arguments of all calls have names, as is usual."""
    are_named = all(call.arguments is None or isinstance(call.arguments.value, dict) for call in calls)
    return {} if are_named else {fold_name(tool.name): tool for tool in offered}


_ToolCall = fast_constructor(ToolCall)


def _build_tool_call(
    call: ObservedCall,
    offered: Mapping[str, ToolDefinition],
    servers: frozenset[str],
    concurrent_with: tuple[int, ...],
) -> ToolCall:
    name, server = undecorate(call.name)
    if servers and server is None and call.server is None:
        server = undecorate(call.name, servers)[1]
    definition = offered.get(fold_name(call.name)) if offered else None
    parameters = definition.parameters if definition is not None else None
    arguments, raw_arguments = (None, None) if call.arguments is None else call.arguments.named_arguments(parameters)
    result = None if call.result is None else call.result.value
    error = call.error or ("error" if call.outcome == "error" else None)
    has_ended = call.node is not None or call.result is not None
    return _ToolCall(
        name=name,
        raw_name=call.name,
        server=call.server or server,
        arguments=arguments,
        raw_arguments=raw_arguments,
        result=result,
        error=error,
        error_guess=values.guess_error(result) if error is None else None,
        outcome=call.outcome or ("error" if error is not None else "ok" if has_ended else None),
        call_id=call.call_id or None,
        kind=call.kind,
        evidence="executed" if call.node is not None else "requested",
        agent=call.agent,
        span_id=call.node.span.span_id if call.node is not None else None,
        start_ns=call.start_ns,
        end_ns=call.end_ns,
        concurrent_with=concurrent_with,
    )
