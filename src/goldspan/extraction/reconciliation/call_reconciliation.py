"""Executions and the model's messages laid together, so that every call is counted once.

A call that a model asked for is found among the executed ones by its id, else by name and arguments. What only a
message shows is kept as requested; its result stands in the next question to the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from goldspan.content import values
from goldspan.content.parts import Message, ToolResult
from goldspan.content.tools import fold_name, handoff_target
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
from goldspan.extraction.observed_calls import ObservedCall, build_tool_calls, call_from_span, executed_calls
from goldspan.extraction.reconciliation.call_registry import CallRegistry
from goldspan.extraction.reconciliation.run_checks import Contradictions, enclosing_call, find_contradictions
from goldspan.extraction.span_tree import SpanNode
from goldspan.model import ToolCall, ToolDefinition

_NO_CONTRADICTIONS = Contradictions()
_History: TypeAlias = tuple[SpanNode, Sequence[Message]]
"""What was said so far, and the span that tells it."""


@dataclass(frozen=True, slots=True)
class ReconciledCalls:
    """The calls of a run in order, the dialogues they came from, and how many witnesses were one too many."""

    calls: tuple[ToolCall, ...] = ()
    turns: tuple[ModelTurn, ...] = field(default=(), repr=False)
    merged_count: int = 0
    contradictions: Contradictions = _NO_CONTRADICTIONS


def reconcile(
    nodes: list[SpanNode], offered: Iterable[ToolDefinition] = (), *, other_call_ids: Container[str] = ()
) -> ReconciledCalls:
    """Join all witnesses among the spans of one run into its tool calls, in the order in which they started.

    `offered` are the tools that the model could choose from, `elsewhere` the ids of calls that other runs made.
    """
    turns = find_model_turns(nodes)
    last = last_turns(turns)
    ledger = CallRegistry(executed_calls(nodes), nodes, other_call_ids=other_call_ids)
    ledger.add_turns(turns)
    histories = list(_histories(nodes, last))
    for node, said in histories:
        ledger.add_history(calls_since_user(said), node)
    _assign_results(ledger.calls, turns, last)
    _assign_kept_results(ledger.calls, histories)
    _mark_agents_by_text(ledger.calls, turns)
    _mark_agents_by_calls(ledger.calls)
    _mark_handoffs(ledger.calls, nodes)
    _apply_offered_kinds(ledger.calls, offered)
    return ReconciledCalls(
        build_tool_calls(ledger.calls, offered),
        tuple(turns),
        merged_count=sum([call.merged_count for call in ledger.calls]),
        contradictions=find_contradictions(ledger.calls, last, other_call_ids),
    )


class OwnCallIds:
    """The ids of the calls that some spans made or asked for themselves, and do not only repeat.

    They are gathered when they are first asked for: mostly nobody does.
    """

    def __init__(self, nodes: Iterable[SpanNode]) -> None:
        """Remember where to look."""
        self._nodes = nodes
        self._ids: frozenset[str] | None = None

    def __contains__(self, call_id: object) -> bool:
        if self._ids is None:
            self._ids = frozenset(_own_call_ids(self._nodes))
        return call_id in self._ids


def _own_call_ids(nodes: Iterable[SpanNode]) -> Iterator[str]:
    for node in nodes:
        if node.role == "tool":
            call_id = call_from_span(node).call_id
            if call_id:
                yield call_id
        elif node.role == "model":
            yield from (call.call_id for call in ModelTurn(node).calls if call.call_id)


def _histories(nodes: list[SpanNode], last: Iterable[ModelTurn]) -> Iterator[_History]:
    """What was said so far: to each agent's model the last time, and what agents and applications keep of it."""
    for turn in last:
        if turn.node.input_may_have_calls:
            yield turn.node, turn.input_messages
    for node in nodes:
        if node.role in REQUEST_ROLES and history_may_contain_calls(node):
            yield node, full_history(node)


def _assign_results(calls: list[ObservedCall], turns: list[ModelTurn], last: Iterable[ModelTurn]) -> None:
    """Give every call the result, or the error, that was handed back to the model under its id."""
    known = [call for call in calls if call.call_id]
    if not known or not turns:
        return
    # A request ends when its answer is handed back for the first time; otherwise the last turn repeats all answers.
    answers = _results_by_id(turns if any(call.node is None for call in known) else last)
    if any(call.result is None and call.call_id not in answers for call in known):
        answers = _results_by_id(turns) | answers
    if not answers:
        return
    given: Counter[str] = Counter()
    for call in sorted(known, key=lambda call: call.sort_key):
        told = answers.get(call.call_id or "")
        if not told:
            continue
        # Under an id that is used again, the second answer is the second call's.
        answer, dialogue = told[min(given[call.call_id or ""], len(told) - 1)]
        given[call.call_id or ""] += 1
        if call.node is None:
            call.end_ns = dialogue.node.span.start_ns
        if call.result is None and answer.result is not None:
            call.result = RawValue(answer.result)
        if not call.error and answer.is_error:
            call.error = values.message_text(answer.result) or "error"


def _assign_kept_results(calls: list[ObservedCall], histories: Iterable[_History]) -> None:
    """Give calls that no model was told an answer to the one that an agent or an application keeps under their id."""
    open_calls = [call for call in calls if call.call_id and call.result is None and call.error is None]
    kept: dict[str, list[ToolResult]] = {}
    for _, said in histories if open_calls else ():
        told: dict[str, list[ToolResult]] = {}
        for message in said:
            for answer in message.tool_results:
                if answer.call_id and answer.result is not None:
                    told.setdefault(answer.call_id, []).append(answer)
        for call_id, answers in told.items():
            kept.setdefault(call_id, answers)
    for call in open_calls if kept else ():
        # Under an id that is used again, nothing tells which answer is whose.
        answers = kept.get(call.call_id or "", [])
        if len({repr(answer) for answer in answers}) == 1:
            call.result = RawValue(answers[0].result)
            call.error = (values.message_text(answers[0].result) or "error") if answers[0].is_error else None


def _results_by_id(turns: Iterable[ModelTurn]) -> dict[str, list[tuple[ToolResult, ModelTurn]]]:
    """The answers under each id, in order, each with the turn that was told it first."""
    answers: dict[str, list[tuple[ToolResult, ModelTurn]]] = {}
    for dialogue in turns:
        count: Counter[str] = Counter()
        for message in dialogue.input_messages if dialogue.node.input_may_have_calls else ():
            for answer in message.tool_results:
                if answer.call_id:
                    known = answers.setdefault(answer.call_id, [])
                    if count[answer.call_id] == len(known):
                        known.append((answer, dialogue))
                    count[answer.call_id] += 1
    return answers


def _apply_offered_kinds(calls: list[ObservedCall], offered: Iterable[ToolDefinition]) -> None:
    """Tell what a call that only a message shows is by what was said of its tool when it was offered."""
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
    """A tool inside whose span a model asked for another tool, which was executed there, is an agent."""
    made: dict[SpanNode, ObservedCall] = {}
    for call in calls:
        tool = call.requesting_turn.node.enclosing_tool if call.requesting_turn is not None else None
        if tool is None or call.node is None or not tool.contains(call.node):
            continue
        made = made or {each.node: each for each in calls if each.node is not None}
        outer = made.get(tool) or enclosing_call(tool, made)
        if outer is not None and outer is not call and outer.kind == "tool":
            outer.kind = "agent"


def _mark_handoffs(calls: list[ObservedCall], nodes: Iterable[SpanNode]) -> None:
    """A call named like a hand-off that goes to an agent of the run, by its name or by what it was given, is one."""
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
    """A call one of whose arguments opens a dialogue of its own was an agent, used as a tool.

    A tool with a span of its own may well ask a model for words; only a model that asks for tools makes it an agent.
    """
    requested = [call for call in calls if call.request_order is not None]
    if not requested or len(turns) < 2:
        return
    unmarked = any(call.node is None for call in requested)
    working = {turn.node.owner for turn in turns if unmarked or turn.node.output_may_have_calls}
    if len(working) < 2 and not unmarked:
        return
    openings: dict[str, list[ModelTurn]] = {}
    for dialogue in turns:
        if dialogue.first_user_text:
            openings.setdefault(dialogue.first_user_text, []).append(dialogue)
    working_on = {words for words, begun in openings.items() if any(True for turn in begun for _ in turn.calls)}
    made_in: dict[ModelTurn | None, list[ObservedCall]] = {}
    for call in requested:
        made_in.setdefault(call.requesting_turn, []).append(call)
    named: set[str] = set()
    for call in requested:
        for words in argument_texts(call.arguments.value) if call.arguments is not None else ():
            begun = openings.get(words, ())
            works = call.node is None or words in working_on
            if begun and works and call.request_order is not None and begun[0].node.start >= call.request_order.time_ns:
                call.kind = "agent"
                if words not in named:
                    named.add(words)
                    for inner in (inner for turn in begun for inner in made_in.get(turn, ())):
                        inner.agent = inner.agent or call.name
