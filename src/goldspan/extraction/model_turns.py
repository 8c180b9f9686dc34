"""What models were asked and what they answered, and which of their turns belong to one piece of work.

A model is asked anew at each step of a request, and each time the whole history is repeated. That history is what
joins the steps where no span does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from goldspan.content import literals, messages
from goldspan.content.parts import Message, Messages, RequestedCall, ToolResult
from goldspan.conventions.span_facts import REQUEST_ROLES
from goldspan.extraction.span_tree import SpanNode

_MAX_CANDIDATES = 50
"""Threads that are looked at for a turn whose calls have no ids; the latest of them."""


@dataclass(frozen=True, eq=False)
class ModelTurn:
    """What a model was asked and what it answered, in one span."""

    node: SpanNode
    number: int = 0
    """Its place among the dialogues of a run."""

    @property
    def input_messages(self) -> Messages:
        """The model's input."""
        return self.node.input_messages

    @property
    def output_messages(self) -> Messages:
        """The model's output."""
        return self.node.output_messages

    @property
    def end_time(self) -> int:
        """When the model had answered."""
        return self.node.sort_key[1]

    @cached_property
    def user_texts(self) -> tuple[str, ...]:
        """What the user has said so far, in order."""
        return tuple(message.text.strip() for message in self.input_messages if message.is_from_user and message.text)

    @property
    def first_user_text(self) -> str | None:
        """The first words of the user: what tells the dialogue of a sub-agent from that of its caller."""
        return self.user_texts[0] if self.user_texts else None

    @cached_property
    def system_texts(self) -> tuple[str | None, ...]:
        """What the system, not the user, tells the model."""
        return tuple(message.text for message in self.input_messages if message.role in ("system", "developer"))

    @property
    def calls(self) -> Iterator[RequestedCall]:
        """The tool calls the model asked for."""
        if not self.node.output_may_have_calls:
            return iter(())
        return (call for message in self.output_messages for call in message.tool_calls)

    @property
    def tool_results(self) -> list[ToolResult]:
        """The results of calls that the model was told after the user's last words."""
        found: list[ToolResult] = []
        for message in reversed(self.input_messages) if self.node.input_may_have_calls else ():
            if message.is_from_user:
                break
            found.extend(message.tool_results)
        return found

    @cached_property
    def known_call_ids(self) -> frozenset[str]:
        """The ids of the calls in the history."""
        return frozenset(call_ids_in(self.input_messages))


def call_ids_in(messages: Iterable[Message]) -> Iterator[str]:
    """The ids of all calls that some messages ask for or answer."""
    for message in messages:
        yield from (call.call_id for call in message.tool_calls if call.call_id)
        yield from (answer.call_id for answer in message.tool_results if answer.call_id)


def input_history(node: SpanNode) -> list[Message]:
    """All messages that a span began with; those of an agent or application may stand in its input."""
    return [*node.input_messages, *(messages.from_json(node.facts.input) if node.role in REQUEST_ROLES else ())]


def full_history(node: SpanNode) -> list[Message]:
    """All messages that a span knows in the end."""
    added = messages.from_json(node.facts.output) if node.role in REQUEST_ROLES else ()
    return [*input_history(node), *node.output_messages, *added]


def history_may_contain_calls(node: SpanNode) -> bool:
    """Whether the history that an agent or application keeps may hold calls."""
    written = (node.facts.input, node.facts.output)
    return (
        node.input_may_have_calls
        or node.output_may_have_calls
        or any(
            not isinstance(value, str) or messages.may_contain_calls(value) for value in written if value is not None
        )
    )


def calls_since_user(said: Iterable[Message]) -> list[RequestedCall]:
    """The calls in a history after the user's last words: what came before belongs to an earlier request."""
    found: list[RequestedCall] = []
    for message in said:
        if message.is_from_user:
            found.clear()
        found.extend(message.tool_calls)
    return found


def argument_texts(arguments: Any) -> Iterator[str]:
    """The texts among the arguments of a call: what an agent that is used as a tool is asked."""
    read = literals.plain_value(arguments)
    for value in read.values() if isinstance(read, dict) else (read,):
        if isinstance(value, str) and value.strip():
            yield value.strip()


def find_model_turns(nodes: Iterable[SpanNode]) -> list[ModelTurn]:
    """The model's spans with content, by time; of the nested spans of one model call, the outermost that has some.

    A model inside another one that was asked something else is no second witness, but a sub-agent at work in a tool
    that left no span. In `nodes` each span stands before those inside it.
    """
    speaking: list[SpanNode] = []
    hidden: set[SpanNode] = set()
    for node in nodes:
        if node.role == "model":
            outer = node.enclosing_model
            if outer is not None and _is_same_model_call(outer, node, known=outer in hidden):
                hidden.add(node)
            elif node.has_messages:
                speaking.append(node)
    return [ModelTurn(node, number) for number, node in enumerate(_chronological(speaking))]


def last_turns(turns: Iterable[ModelTurn]) -> Iterable[ModelTurn]:
    """The last turn of each agent's model; where no span tells agents apart, the words that opened it do."""
    last: dict[object, ModelTurn] = {}
    for turn in turns:
        last[turn.first_user_text if turn.node.owner is None else turn.node.owner] = turn
    return last.values()


def _chronological(speaking: list[SpanNode]) -> list[SpanNode]:
    """The spans of models by time. Of those that a clock shows at one moment, a later one repeats more history."""
    in_order = sorted(speaking, key=lambda node: node.sort_key)
    if len(in_order) < 2:
        return in_order
    moments = [node.sort_key[:2] for node in in_order]
    if len(set(moments)) == len(moments):
        return in_order
    shown = Counter(moments)
    told = [
        len(node.input_messages) if shown[moment] > 1 else 0 for node, moment in zip(in_order, moments, strict=True)
    ]
    places = zip(moments, told, range(len(in_order)), in_order, strict=True)
    return [node for *_, node in sorted(places, key=lambda place: place[:3])]


def _is_same_model_call(outer: SpanNode, inner: SpanNode, *, known: bool) -> bool:
    """Whether the span inside another one shows the same call of the model, as far as their words tell."""
    if not (known or outer.input_messages or outer.output_messages) or _adds_only_calls(inner, outer):
        return False
    around, own = ModelTurn(outer).first_user_text, ModelTurn(inner).first_user_text
    return around is None or own is None or around == own


def _adds_only_calls(inner: SpanNode, outer: SpanNode) -> bool:
    """Whether a span tells of nothing but calls, and the one around it of none: these are what that one answered."""
    if not inner.output_may_have_calls or inner.input_messages:
        return False
    return any(message.tool_calls for message in inner.output_messages) and not any(
        message.tool_calls for message in outer.output_messages
    )


@dataclass(eq=False)
class TurnSequence:
    """The turns of one model that continue each other: one request, or the part of one that a sub-agent did."""

    turns: list[ModelTurn]
    parent: TurnSequence | None = None
    """The thread one of whose calls started this one: then it is a sub-agent's."""
    in_conversation: bool = field(default=False)
    """Whether it is a turn of a conversation of which there are others."""

    @property
    def user_texts(self) -> tuple[str, ...]:
        """What the user has said, in order."""
        return self.turns[0].user_texts

    @property
    def requests_tools(self) -> bool:
        """Whether the model asked for a tool in it; where a client calls tools by itself, only the history shows it."""
        asked = any(True for turn in self.turns for _ in turn.calls)
        return asked or any(
            calls_since_user(turn.input_messages) for turn in self.turns if turn.node.input_may_have_calls
        )

    def is_continued_by(self, turn: ModelTurn) -> bool:
        """Whether a later turn of a model goes on where this thread stopped."""
        last = self.turns[-1]
        if turn.user_texts and self.user_texts and turn.user_texts != self.user_texts:
            return False
        if _repeats_call_id(turn, last):
            return True
        if not last.output_messages:  # it failed, and was tried again
            return turn.input_messages == last.input_messages
        before = len(last.input_messages)
        # Some clients show other ids in the history than in the answer.
        return (
            len(turn.input_messages) > before
            and turn.input_messages[:before] == last.input_messages
            and _repeats_answer(turn.input_messages[before:], last)
        )


def group_turns(turns: Iterable[ModelTurn]) -> list[TurnSequence]:
    """The threads that some dialogues, by time, form."""
    found: list[TurnSequence] = []
    begun = _SequenceIndex()
    for turn in turns:
        thread = _find_continued(begun.candidates(turn), turn)
        if thread is None:
            thread = TurnSequence([turn])
            found.append(thread)
        else:
            thread.turns.append(turn)
        begun.add(thread)
    _mark_conversations(found)
    _mark_sub_agents(found)
    return found


def _find_continued(possible: Iterable[TurnSequence], turn: ModelTurn) -> TurnSequence | None:
    """The first thread that a turn goes on with, but rather one whose last calls it repeats with their arguments."""
    perhaps = None
    for thread in possible:
        if thread.is_continued_by(turn):
            last = thread.turns[-1]
            if _repeats_call_id(turn, last) or _calls_with_arguments(last.output_messages) == _calls_with_arguments(
                turn.input_messages[len(last.input_messages) :]
            ):
                return thread
            perhaps = perhaps or thread
    return perhaps


_ANY_TEXT, _NO_TEXT = -1, 0
"""Instead of the number of what a user said: anything, and nothing."""


class _SequenceIndex:
    """Threads by what a turn that continues one of them repeats: what the user said, and the ids of calls."""

    def __init__(self) -> None:
        # Long conversations repeat all that was said in every turn: they are compared by number, not word by word.
        self._number: dict[tuple[str, ...], int] = {(): _NO_TEXT}
        self._awaiting: dict[tuple[int, str], TurnSequence] = {}
        self._saying: dict[int, list[TurnSequence]] = {}

    def candidates(self, turn: ModelTurn) -> Iterator[TurnSequence]:
        """The threads that a turn may continue: those whose calls it knows, then the latest of the same words."""
        said = self._said(turn)
        # Words that were not recorded contradict none.
        words = (said, _NO_TEXT) if turn.user_texts else (_ANY_TEXT,)
        known = ((number, call_id) for call_id in sorted(turn.known_call_ids) for number in words)
        yield from dict.fromkeys(self._awaiting[key] for key in known if key in self._awaiting)
        yield from reversed(self._saying.get(said, [])[-_MAX_CANDIDATES:])

    def add(self, thread: TurnSequence) -> None:
        """Take note of a thread, and again of each turn it goes on with."""
        turn, said = thread.turns[-1], self._said(thread.turns[0])
        if len(thread.turns) == 1:
            self._saying.setdefault(said, []).append(thread)
        for call in turn.calls:
            if call.call_id:
                self._awaiting[said, call.call_id] = self._awaiting[_ANY_TEXT, call.call_id] = thread

    def _said(self, turn: ModelTurn) -> int:
        return self._number.setdefault(turn.user_texts, len(self._number))


def _mark_conversations(found: list[TurnSequence]) -> None:
    """A thread whose user said all that the user of another one did, and more, is the next turn of a conversation."""
    said: dict[str | None, Any] = {}
    for thread in found:
        level = said
        for words in thread.user_texts:
            level = level.setdefault(words, {})
        level[None] = thread
    for thread in found:
        level, before = said, None
        for words in thread.user_texts[:-1]:
            level = level[words]
            before = level.get(None) or before
        if before is not None:
            before.followed = thread.in_conversation = True


def _mark_sub_agents(found: list[TurnSequence]) -> None:
    """A thread that opens with the words that another one gave a tool is the work of that tool.

    Where the turn that gave them is lost, a later one that is left knows them from its history.
    """
    given: dict[str, list[_Delegation]] = {}
    known: dict[str, list[TurnSequence]] = {}
    for number, thread in enumerate(found):
        for turn in thread.turns:
            for call in turn.calls:
                for words in dict.fromkeys(argument_texts(call.arguments)):
                    given.setdefault(words, []).append(_Delegation(number, thread, turn))
        if len(found) > 1 and thread.turns[0].node.input_may_have_calls:
            for call in calls_since_user(thread.turns[0].input_messages):
                for words in dict.fromkeys(argument_texts(call.arguments)):
                    known.setdefault(words, []).append(thread)
    for delegations in given.values():
        delegations.sort(key=lambda each: each.turn.end_time)
    for number, thread in enumerate(found):
        opened = thread.turns[0]
        possible = given.get(opened.first_user_text or "", [])
        until = bisect_right(possible, opened.node.span.start_ns or 0, key=lambda each: each.turn.end_time)
        before = [each for each in possible[max(0, until - _MAX_CANDIDATES) : until] if each.number < number]
        if before:
            # One call starts one sub-agent, as long as there are others to choose from.
            best = max(reversed(before), key=lambda each: not each.is_matched)
            best.is_matched = True
            thread.parent = best.caller
        else:
            later = (each for each in known.get(opened.first_user_text or "", ()) if _resumes_after(each, thread))
            thread.parent = next(later, None)


def _resumes_after(caller: TurnSequence, thread: TurnSequence) -> bool:
    """Whether what is left of a thread began when another one, which is not its like, had ended."""
    return caller.user_texts != thread.user_texts and thread.turns[-1].end_time <= caller.turns[0].node.start


@dataclass(slots=True, eq=False)
class _Delegation:
    """Words that a turn of a thread gave a tool."""

    number: int
    caller: TurnSequence
    turn: ModelTurn
    is_matched: bool = False


def _calls_with_arguments(said: Messages) -> list[tuple[str, object]]:
    """The calls in some messages, whatever their ids."""
    return [(call.name, literals.plain_value(call.arguments)) for message in said for call in message.tool_calls]


def _repeats_call_id(turn: ModelTurn, last: ModelTurn) -> bool:
    return any(call.call_id in turn.known_call_ids for call in last.calls)


def _repeats_answer(added: Messages, last: ModelTurn) -> bool:
    """Whether what was added to the history repeats the calls of the last answer or, where it has none, its words."""
    named = {call.name for call in last.calls}
    if named:
        repeated = {call.name for message in added for call in message.tool_calls}
        # Some instrumentations lose the calls of a history, and keep the answers.
        return named <= repeated if repeated else any(message.role == "tool" for message in added)
    said = {message.text.strip() for message in last.output_messages if message.text}
    return said.issubset(message.text.strip() for message in added if message.text)
