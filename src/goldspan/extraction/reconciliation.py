"""Executions and the model's messages laid together, so that every call is counted once.

A call that a model asked for is found among the executed ones by its id, else by name and arguments. What only a
message shows is kept as requested; its result stands in the next question to the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from goldspan.extraction import values
from goldspan.extraction.calls import Call, call_of, executed, finish
from goldspan.extraction.consistency import Doubts, call_around, doubts
from goldspan.extraction.dialogues import (
    Dialogue,
    calls_since_asked,
    dialogues,
    history,
    last_turns,
    may_know_calls,
    texts_in,
)
from goldspan.extraction.ledger import Ledger
from goldspan.extraction.names import fold, handoff_target
from goldspan.extraction.reading import MARKS, Written
from goldspan.extraction.spoken import Answer, Message
from goldspan.extraction.tree import Node
from goldspan.model import ToolCall, ToolDefinition

_NO_DOUBTS = Doubts()
_History: TypeAlias = tuple[Node, Sequence[Message]]
"""What was said so far, and the span that tells it."""


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The calls of a run in order, the dialogues they came from, and how many witnesses were one too many."""

    calls: tuple[ToolCall, ...] = ()
    dialogues: tuple[Dialogue, ...] = field(default=(), repr=False)
    merged: int = 0
    doubts: Doubts = _NO_DOUBTS


def reconcile(
    nodes: list[Node], offered: Iterable[ToolDefinition] = (), *, elsewhere: Container[str] = ()
) -> Reconciled:
    """Join all witnesses among the spans of one run into its tool calls, in the order in which they started.

    `offered` are the tools that the model could choose from, `elsewhere` the ids of calls that other runs made.
    """
    turns = dialogues(nodes)
    last = last_turns(turns)
    ledger = Ledger(executed(nodes), nodes, elsewhere=elsewhere)
    ledger.enter_all(turns)
    histories = list(_histories(nodes, last))
    for node, said in histories:
        ledger.confirm(calls_since_asked(said), node)
    _take_answers(ledger.calls, turns, last)
    _take_answers_kept(ledger.calls, histories)
    _recognise_agents(ledger.calls, turns)
    _recognise_agents_at_work(ledger.calls)
    _recognise_handoffs(ledger.calls, nodes)
    _tell_kinds(ledger.calls, offered)
    return Reconciled(
        finish(ledger.calls, offered),
        tuple(turns),
        merged=sum([call.merged for call in ledger.calls]),
        doubts=doubts(ledger.calls, last, elsewhere),
    )


class IdsMade:
    """The ids of the calls that some spans made or asked for themselves, and do not only repeat.

    They are gathered when they are first asked for: mostly nobody does.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        """Remember where to look."""
        self._nodes = nodes
        self._ids: frozenset[str] | None = None

    def __contains__(self, call_id: object) -> bool:
        if self._ids is None:
            self._ids = frozenset(_ids_made(self._nodes))
        return call_id in self._ids


def _ids_made(nodes: Iterable[Node]) -> Iterator[str]:
    for node in nodes:
        if node.role == "tool":
            call_id = call_of(node).call_id
            if call_id:
                yield call_id
        elif node.role == "model":
            yield from (call.call_id for call in Dialogue(node).calls if call.call_id)


def _histories(nodes: list[Node], last: Iterable[Dialogue]) -> Iterator[_History]:
    """What was said so far: to each agent's model the last time, and what agents and applications keep of it."""
    for turn in last:
        if turn.node.hears_calls:
            yield turn.node, turn.asked
    for node in nodes:
        if node.role in MARKS and may_know_calls(node):
            yield node, history(node)


def _take_answers(calls: list[Call], turns: list[Dialogue], last: Iterable[Dialogue]) -> None:
    """Give every call the result, or the error, that was handed back to the model under its id."""
    known = [call for call in calls if call.call_id]
    if not known or not turns:
        return
    # A request ends when its answer is handed back for the first time; otherwise the last turn repeats all answers.
    answers = _answers(turns if any(call.node is None for call in known) else last)
    if any(call.result is None and call.call_id not in answers for call in known):
        answers = _answers(turns) | answers
    if not answers:
        return
    given: Counter[str] = Counter()
    for call in sorted(known, key=lambda call: call.place):
        told = answers.get(call.call_id or "")
        if not told:
            continue
        # Under an id that is used again, the second answer is the second call's.
        answer, dialogue = told[min(given[call.call_id or ""], len(told) - 1)]
        given[call.call_id or ""] += 1
        if call.node is None:
            call.end_ns = dialogue.node.span.start_ns
        if call.result is None and answer.result is not None:
            call.result = Written(answer.result)
        if not call.error and answer.is_error:
            call.error = values.text(answer.result) or "error"


def _take_answers_kept(calls: list[Call], histories: Iterable[_History]) -> None:
    """Give calls that no model was told an answer to the one that an agent or an application keeps under their id."""
    open_calls = [call for call in calls if call.call_id and call.result is None and call.error is None]
    kept: dict[str, list[Answer]] = {}
    for _, said in histories if open_calls else ():
        told: dict[str, list[Answer]] = {}
        for message in said:
            for answer in message.answers:
                if answer.call_id and answer.result is not None:
                    told.setdefault(answer.call_id, []).append(answer)
        for call_id, answers in told.items():
            kept.setdefault(call_id, answers)
    for call in open_calls if kept else ():
        # Under an id that is used again, nothing tells which answer is whose.
        answers = kept.get(call.call_id or "", [])
        if len({repr(answer) for answer in answers}) == 1:
            call.result = Written(answers[0].result)
            call.error = (values.text(answers[0].result) or "error") if answers[0].is_error else None


def _answers(turns: Iterable[Dialogue]) -> dict[str, list[tuple[Answer, Dialogue]]]:
    """The answers under each id, in order, each with the turn that was told it first."""
    answers: dict[str, list[tuple[Answer, Dialogue]]] = {}
    for dialogue in turns:
        count: Counter[str] = Counter()
        for message in dialogue.asked if dialogue.node.hears_calls else ():
            for answer in message.answers:
                if answer.call_id:
                    known = answers.setdefault(answer.call_id, [])
                    if count[answer.call_id] == len(known):
                        known.append((answer, dialogue))
                    count[answer.call_id] += 1
    return answers


def _tell_kinds(calls: list[Call], offered: Iterable[ToolDefinition]) -> None:
    """Tell what a call that only a message shows is by what was said of its tool when it was offered."""
    known = {fold(tool.name): tool for tool in offered if tool.kind != "tool" or tool.deferred}
    for call in calls if known else ():
        tool = known.get(fold(call.name))
        if tool is None or call.node is not None:
            continue
        if call.kind == "tool":
            call.kind = tool.kind
        if tool.deferred and call.result is None:
            call.outcome = call.outcome or "deferred"


def _recognise_agents_at_work(calls: list[Call]) -> None:
    """A tool inside whose span a model asked for another tool, which was executed there, is an agent."""
    made: dict[Node, Call] = {}
    for call in calls:
        tool = call.asker.node.enclosing_tool if call.asker is not None else None
        if tool is None or call.node is None or not tool.contains(call.node):
            continue
        made = made or {each.node: each for each in calls if each.node is not None}
        outer = made.get(tool) or call_around(tool, made)
        if outer is not None and outer is not call and outer.kind == "tool":
            outer.kind = "agent"


def _recognise_handoffs(calls: list[Call], nodes: Iterable[Node]) -> None:
    """A call named like a hand-off that goes to an agent of the run, by its name or by what it was given, is one."""
    agents: set[str] | None = None
    for call in calls:
        target = handoff_target(call.name) if call.kind == "tool" else None
        if target is None:
            continue
        if agents is None:
            agents = {fold(node.reading.name) for node in nodes if node.role == "agent" and node.reading.name}
        named = texts_in(call.arguments.value) if call.arguments is not None else ()
        if not agents.isdisjoint(fold(name) for name in (target, *named)):
            call.kind = "handoff"


def _recognise_agents(calls: list[Call], turns: list[Dialogue]) -> None:
    """A call one of whose arguments opens a dialogue of its own was an agent, used as a tool.

    A tool with a span of its own may well ask a model for words; only a model that asks for tools makes it an agent.
    """
    requested = [call for call in calls if call.asked_at is not None]
    if not requested or len(turns) < 2:
        return
    unmarked = any(call.node is None for call in requested)
    working = {turn.node.owner for turn in turns if unmarked or turn.node.says_calls}
    if len(working) < 2 and not unmarked:
        return
    openings: dict[str, list[Dialogue]] = {}
    for dialogue in turns:
        if dialogue.opening:
            openings.setdefault(dialogue.opening, []).append(dialogue)
    working_on = {words for words, begun in openings.items() if any(True for turn in begun for _ in turn.calls)}
    made_in: dict[Dialogue | None, list[Call]] = {}
    for call in requested:
        made_in.setdefault(call.asker, []).append(call)
    named: set[str] = set()
    for call in requested:
        for words in texts_in(call.arguments.value) if call.arguments is not None else ():
            begun = openings.get(words, ())
            works = call.node is None or words in working_on
            if begun and works and call.asked_at is not None and begun[0].node.start >= call.asked_at.at:
                call.kind = "agent"
                if words not in named:
                    named.add(words)
                    for inner in (inner for turn in begun for inner in made_in.get(turn, ())):
                        inner.agent = inner.agent or call.name
