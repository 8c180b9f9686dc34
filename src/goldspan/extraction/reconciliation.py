"""Executions and the model's messages laid together, so that every call is counted once.

A call that a model asked for is found among the executed ones by its id, else by name and arguments. What only a
message shows is kept as requested; its result stands in the next question to the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from goldspan.extraction import values
from goldspan.extraction.calls import NEVER, Call, executed, finish, same_name
from goldspan.extraction.names import fold, handoff_target
from goldspan.extraction.reading import Answer, Messages, RequestedCall
from goldspan.extraction.tree import Node
from goldspan.model import ToolCall


@dataclass(frozen=True, slots=True, eq=False)
class Dialogue:
    """What a model was asked and what it answered, in one span."""

    node: Node
    asked: Messages
    answered: Messages

    @property
    def opening(self) -> str | None:
        """The first words of the user: what tells the dialogue of a sub-agent from that of its caller."""
        return next((message.text.strip() for message in self.asked if message.from_user and message.text), None)

    @property
    def ended(self) -> float:
        """When the model had answered."""
        end = self.node.span.end_ns
        return NEVER if end is None else end


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The calls of a run in order, the dialogues they came from, and how many witnesses were one too many."""

    calls: tuple[ToolCall, ...] = ()
    dialogues: tuple[Dialogue, ...] = field(default=(), repr=False)
    merged: int = 0


def reconcile(nodes: list[Node]) -> Reconciled:
    """Join all witnesses among the spans of one run into its tool calls, in the order in which they started."""
    dialogues = _dialogues(nodes)
    ledger = _Ledger(executed(nodes), {fold(node.reading.name) for node in nodes if _named_agent(node)})
    for dialogue in dialogues:
        requests = (call for message in dialogue.answered for call in message.calls)
        for position, request in enumerate(requests):
            ledger.enter(request, dialogue, position)
    _take_answers(ledger.calls, dialogues)
    _recognise_agents(ledger.calls, dialogues)
    return Reconciled(finish(ledger.calls), tuple(dialogues), sum(call.merged for call in ledger.calls))


class _Ledger:
    """The calls of a run: first those with a span, then those that only a message shows."""

    def __init__(self, calls: list[Call], agents: set[str]) -> None:
        self.calls = calls
        self._agents = agents
        self._of_id: dict[str, list[Call]] = {}
        for call in calls:
            self._index(call)

    def enter(self, request: RequestedCall, dialogue: Dialogue, position: int) -> None:
        """Find the call that a model asked for, or add it as one that was only requested."""
        known = self._of_id.get(request.call_id or "", [])
        call = next((call for call in known if call.asked_at is None), None)
        if call is None and any(_repeats(request, earlier) for earlier in known):
            known[0].merged += 1
            return
        call = call or self._execution(request, dialogue)
        if call is None:
            call = self._requested(request, dialogue)
        else:
            call.absorb(Call(request.name, call_id=request.call_id, arguments=request.arguments))
        call.asked_at = (dialogue.ended, position)
        self._index(call)

    def _execution(self, request: RequestedCall, dialogue: Dialogue) -> Call | None:
        """The execution of a request where ids do not tell: same name, not before the request, best by arguments.

        Arguments that differ do not forbid: frameworks add defaults, drop keys and write a single argument bare.
        """
        free = [call for call in self.calls if _may_execute(call, request, dialogue)]
        return next((call for call in free if call.same_values(request.arguments)), next(iter(free), None))

    def _requested(self, request: RequestedCall, dialogue: Dialogue) -> Call:
        target = handoff_target(request.name)
        call = Call(
            name=request.name,
            kind="handoff" if target is not None and fold(target) in self._agents else "tool",
            call_id=request.call_id,
            arguments=request.arguments,
            agent=dialogue.node.agent,
            start_ns=dialogue.node.span.end_ns,
        )
        self.calls.append(call)
        return call

    def _index(self, call: Call) -> None:
        if call.call_id:
            under = self._of_id.setdefault(call.call_id, [])
            if call not in under:
                under.append(call)


def _named_agent(node: Node) -> bool:
    return node.role == "agent" and bool(node.reading.name)


def _dialogues(nodes: list[Node]) -> list[Dialogue]:
    """The model's spans with content, by time; of the nested spans of one model call, the outer."""
    models = sorted((node for node in nodes if node.role == "model" and not node.in_model), key=lambda node: node.place)
    found = (Dialogue(node, node.reading.asked(), node.reading.answered()) for node in models)
    return [dialogue for dialogue in found if dialogue.asked or dialogue.answered]


def _may_execute(call: Call, request: RequestedCall, dialogue: Dialogue) -> bool:
    if call.node is None or call.asked_at is not None or (call.call_id and request.call_id):
        return False
    asked = dialogue.node.span.start_ns
    if call.start_ns is not None and asked is not None and call.start_ns < asked:
        return False
    if same_name(call.name, request.name):
        return True
    target = handoff_target(request.name)
    return (
        call.kind == "handoff" and target is not None and fold(target) == fold(handoff_target(call.name) or call.name)
    )


def _repeats(request: RequestedCall, known: Call) -> bool:
    """Whether a request under a known id is that same call again, not another one under a recycled id."""
    return same_name(known.name, request.name) and (known.same_values(request.arguments) or not known.named)


def _take_answers(calls: list[Call], dialogues: list[Dialogue]) -> None:
    """Give every call the result that was handed back to the model under its id."""
    answers: dict[str, tuple[Answer, Dialogue]] = {}
    for dialogue in dialogues:
        for message in dialogue.asked:
            for answer in message.answers:
                answers.setdefault(answer.call_id or "", (answer, dialogue))
    for call in calls:
        if not call.call_id or call.call_id not in answers:
            continue
        answer, dialogue = answers[call.call_id]
        seen = Call(call.name, result=answer.result)
        if call.node is None:
            call.end_ns = dialogue.node.span.start_ns
            seen.error = (values.text(answer.result) or "error") if answer.is_error else None
        call.absorb(seen)
        call.merged -= 1  # an answer is the other half of a request, not one witness too many


def _recognise_agents(calls: list[Call], dialogues: list[Dialogue]) -> None:
    """A requested call one of whose arguments opens a dialogue of its own was an agent, used as a tool."""
    openings: dict[str, list[Dialogue]] = {}
    for dialogue in dialogues:
        if dialogue.opening:
            openings.setdefault(dialogue.opening, []).append(dialogue)
    if len(openings) < 2:
        return
    requested = [call for call in calls if call.node is None and call.asked_at is not None]
    for call in requested:
        for words in _texts(call.arguments):
            begun = openings.get(words.strip(), ())
            if begun and call.asked_at is not None and begun[0].node.place > (call.asked_at[0], ""):
                call.kind = "agent"
                own = {dialogue.ended for dialogue in begun}
                for inner in requested:
                    if inner.asked_at is not None and inner.asked_at[0] in own:
                        inner.agent = inner.agent or call.name


def _texts(arguments: Any) -> Iterator[str]:
    read, _ = values.arguments(arguments)
    if isinstance(read, dict):
        yield from (value for value in read.values() if isinstance(value, str))
