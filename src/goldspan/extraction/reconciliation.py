"""Executions and the model's messages laid together, so that every call is counted once.

A call that a model asked for is found among the executed ones by its id, else by name and arguments. What only a
message shows is kept as requested; its result stands in the next question to the model.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field

from goldspan.extraction import values
from goldspan.extraction.calls import Call, call_of, executed, finish
from goldspan.extraction.dialogues import Dialogue, calls_since_asked, dialogues, history, may_know_calls
from goldspan.extraction.ledger import Ledger
from goldspan.extraction.names import fold
from goldspan.extraction.reading import MARKS, Written
from goldspan.extraction.spoken import Answer, Message
from goldspan.extraction.tree import Node
from goldspan.model import ToolCall, ToolDefinition


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The calls of a run in order, the dialogues they came from, and how many witnesses were one too many."""

    calls: tuple[ToolCall, ...] = ()
    dialogues: tuple[Dialogue, ...] = field(default=(), repr=False)
    merged: int = 0


def reconcile(
    nodes: list[Node], offered: Iterable[ToolDefinition] = (), *, elsewhere: Container[str] = ()
) -> Reconciled:
    """Join all witnesses among the spans of one run into its tool calls, in the order in which they started.

    `offered` are the tools that the model could choose from, `elsewhere` the ids of calls that other runs made.
    """
    turns = dialogues(nodes)
    ledger = Ledger(executed(nodes), nodes, elsewhere=elsewhere)
    ledger.enter_all(turns)
    for node, said in _histories(nodes, turns):
        ledger.confirm(calls_since_asked(said), node)
    _take_answers(ledger.calls, turns)
    _recognise_agents(ledger.calls, turns)
    _tell_kinds(ledger.calls, offered)
    return Reconciled(finish(ledger.calls, offered), tuple(turns), sum(call.merged for call in ledger.calls))


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


def _histories(nodes: list[Node], turns: list[Dialogue]) -> Iterator[tuple[Node, Iterable[Message]]]:
    """What was said so far: to each agent's model the last time, and what agents and applications keep of it."""
    for turn in _last(turns):
        if turn.node.tells_calls:
            yield turn.node, turn.asked
    for node in nodes:
        if node.role in MARKS and may_know_calls(node):
            yield node, history(node)


def _take_answers(calls: list[Call], turns: list[Dialogue]) -> None:
    """Give every call the result that was handed back to the model under its id, and the error that this said it was."""
    known = {call.call_id: call for call in calls if call.call_id}
    # A request ends when its answer is handed back for the first time; otherwise the last turn repeats all answers.
    read = turns if any(call.node is None for call in known.values()) else list(_last(turns))
    answers = _answers(read)
    if any(call.result is None and call_id not in answers for call_id, call in known.items()):
        answers |= {call_id: told for call_id, told in _answers(turns).items() if call_id not in answers}
    for call_id in known.keys() & answers.keys():
        call, (answer, dialogue) = known[call_id], answers[call_id]
        seen = Call(call.name, result=None if answer.result is None else Written(answer.result))
        seen.error = (values.text(answer.result) or "error") if answer.is_error else None
        if call.node is None:
            call.end_ns = dialogue.node.span.start_ns
        call.absorb(seen)
        call.merged -= 1  # an answer is the other half of a request, not one witness too many


def _answers(turns: Iterable[Dialogue]) -> dict[str, tuple[Answer, Dialogue]]:
    answers: dict[str, tuple[Answer, Dialogue]] = {}
    for dialogue in turns:
        for message in dialogue.asked if dialogue.node.tells_calls else ():
            for answer in message.answers:
                if answer.call_id:
                    answers.setdefault(answer.call_id, (answer, dialogue))
    return answers


def _last(turns: Iterable[Dialogue]) -> Iterable[Dialogue]:
    """The last turn of each agent's model."""
    return {turn.node.owner: turn for turn in turns}.values()


def _tell_kinds(calls: list[Call], offered: Iterable[ToolDefinition]) -> None:
    """Tell what a call that only a message shows is by what was said of its tool when it was offered."""
    known = {fold(tool.name): tool for tool in offered if tool.kind != "tool" or tool.deferred}
    for call in calls:
        tool = known.get(fold(call.name))
        if tool is None or call.node is not None:
            continue
        if call.kind == "tool":
            call.kind = tool.kind
        if tool.deferred and call.result is None:
            call.outcome = call.outcome or "deferred"


def _recognise_agents(calls: list[Call], turns: list[Dialogue]) -> None:
    """A call one of whose arguments opens a dialogue of its own was an agent, used as a tool.

    A tool with a span of its own may well ask a model for words; only a model that asks for tools makes it an agent.
    """
    requested = [call for call in calls if call.asked_at is not None]
    unmarked = any(call.node is None for call in requested)
    working = {turn.node.owner for turn in turns if unmarked or turn.node.asks_for_calls}
    if len(turns) < 2 or (len(working) < 2 and not unmarked):
        return
    openings: dict[str, list[Dialogue]] = {}
    for dialogue in turns:
        if dialogue.opening:
            openings.setdefault(dialogue.opening, []).append(dialogue)
    for call in requested:
        for words in _texts(call):
            begun = openings.get(words.strip(), ())
            works = call.node is None or any(True for turn in begun for _ in turn.calls)
            if begun and works and call.asked_at is not None and begun[0].node.place > (call.asked_at[0], ""):
                call.kind = "agent"
                own = {dialogue.ended for dialogue in begun}
                for inner in requested:
                    if inner.asked_at is not None and inner.asked_at[0] in own:
                        inner.agent = inner.agent or call.name


def _texts(call: Call) -> Iterator[str]:
    read = call.arguments.value if call.arguments is not None else None
    if isinstance(read, dict):
        yield from (value for value in read.values() if isinstance(value, str))
