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

from goldspan.extraction import messages, values
from goldspan.extraction.reading import MARKS
from goldspan.extraction.spoken import Answer, Message, Messages, RequestedCall
from goldspan.extraction.tree import Node

_CANDIDATES = 50
"""Threads that are looked at for a turn whose calls have no ids; the latest of them."""


@dataclass(frozen=True, eq=False)
class Dialogue:
    """What a model was asked and what it answered, in one span."""

    node: Node
    number: int = 0
    """Its place among the dialogues of a run."""

    @property
    def asked(self) -> Messages:
        """The model's input."""
        return self.node.asked

    @property
    def answered(self) -> Messages:
        """The model's output."""
        return self.node.answered

    @property
    def ended(self) -> int:
        """When the model had answered."""
        return self.node.place[1]

    @cached_property
    def users(self) -> tuple[str, ...]:
        """What the user has said so far, in order."""
        return tuple(message.text.strip() for message in self.asked if message.from_user and message.text)

    @property
    def opening(self) -> str | None:
        """The first words of the user: what tells the dialogue of a sub-agent from that of its caller."""
        return self.users[0] if self.users else None

    @cached_property
    def instructions(self) -> tuple[str | None, ...]:
        """What the system, not the user, tells the model."""
        return tuple(message.text for message in self.asked if message.role in ("system", "developer"))

    @property
    def calls(self) -> Iterator[RequestedCall]:
        """The tool calls the model asked for."""
        if not self.node.says_calls:
            return iter(())
        return (call for message in self.answered for call in message.calls)

    @property
    def told(self) -> list[Answer]:
        """The results of calls that the model was told after the user's last words."""
        found: list[Answer] = []
        for message in reversed(self.asked) if self.node.hears_calls else ():
            if message.from_user:
                break
            found.extend(message.answers)
        return found

    @cached_property
    def known_ids(self) -> frozenset[str]:
        """The ids of the calls in the history."""
        return frozenset(ids_in(self.asked))


def ids_in(messages: Iterable[Message]) -> Iterator[str]:
    """The ids of all calls that some messages ask for or answer."""
    for message in messages:
        yield from (call.call_id for call in message.calls if call.call_id)
        yield from (answer.call_id for answer in message.answers if answer.call_id)


def told(node: Node) -> list[Message]:
    """All messages that a span began with; those of an agent or application may stand in its input."""
    return [*node.asked, *(messages.from_json(node.reading.input) if node.role in MARKS else ())]


def history(node: Node) -> list[Message]:
    """All messages that a span knows in the end."""
    added = messages.from_json(node.reading.output) if node.role in MARKS else ()
    return [*told(node), *node.answered, *added]


def may_know_calls(node: Node) -> bool:
    """Whether the history that an agent or application keeps may hold calls."""
    written = (node.reading.input, node.reading.output)
    return (
        node.hears_calls
        or node.says_calls
        or any(not isinstance(value, str) or messages.may_call(value) for value in written if value is not None)
    )


def calls_since_asked(said: Iterable[Message]) -> list[RequestedCall]:
    """The calls in a history after the user's last words: what came before belongs to an earlier request."""
    found: list[RequestedCall] = []
    for message in said:
        if message.from_user:
            found.clear()
        found.extend(message.calls)
    return found


def texts_in(arguments: Any) -> Iterator[str]:
    """The texts among the arguments of a call: what an agent that is used as a tool is asked."""
    read = values.plain(arguments)
    for value in read.values() if isinstance(read, dict) else (read,):
        if isinstance(value, str) and value.strip():
            yield value.strip()


def dialogues(nodes: Iterable[Node]) -> list[Dialogue]:
    """The model's spans with content, by time; of the nested spans of one model call, the outermost that has some.

    A model inside another one that was asked something else is no second witness, but a sub-agent at work in a tool
    that left no span. In `nodes` each span stands before those inside it.
    """
    speaking: list[Node] = []
    hidden: set[Node] = set()
    for node in nodes:
        if node.role == "model":
            outer = node.enclosing_model
            if outer is not None and _says_the_same(outer, node, known=outer in hidden):
                hidden.add(node)
            elif node.speaks:
                speaking.append(node)
    return [Dialogue(node, number) for number, node in enumerate(_in_order(speaking))]


def last_turns(turns: Iterable[Dialogue]) -> Iterable[Dialogue]:
    """The last turn of each agent's model; where no span tells agents apart, the words that opened it do."""
    last: dict[object, Dialogue] = {}
    for turn in turns:
        last[turn.opening if turn.node.owner is None else turn.node.owner] = turn
    return last.values()


def _in_order(speaking: list[Node]) -> list[Node]:
    """The spans of models by time. Of those that a clock shows at one moment, a later one repeats more history."""
    in_order = sorted(speaking, key=lambda node: node.place)
    if len(in_order) < 2:
        return in_order
    moments = [node.place[:2] for node in in_order]
    if len(set(moments)) == len(moments):
        return in_order
    shown = Counter(moments)
    told = [len(node.asked) if shown[moment] > 1 else 0 for node, moment in zip(in_order, moments, strict=True)]
    places = zip(moments, told, range(len(in_order)), in_order, strict=True)
    return [node for *_, node in sorted(places, key=lambda place: place[:3])]


def _says_the_same(outer: Node, inner: Node, *, known: bool) -> bool:
    """Whether the span inside another one shows the same call of the model, as far as their words tell."""
    if not (known or outer.asked or outer.answered) or _completes(inner, outer):
        return False
    around, own = Dialogue(outer).opening, Dialogue(inner).opening
    return around is None or own is None or around == own


def _completes(inner: Node, outer: Node) -> bool:
    """Whether a span tells of nothing but calls, and the one around it of none: these are what that one answered."""
    if not inner.says_calls or inner.asked:
        return False
    return any(message.calls for message in inner.answered) and not any(message.calls for message in outer.answered)


@dataclass(eq=False)
class Thread:
    """The turns of one model that continue each other: one request, or the part of one that a sub-agent did."""

    turns: list[Dialogue]
    above: Thread | None = None
    """The thread one of whose calls started this one: then it is a sub-agent's."""
    followed: bool = field(default=False)
    """Whether it is a turn of a conversation of which there are others."""

    @property
    def users(self) -> tuple[str, ...]:
        """What the user has said, in order."""
        return self.turns[0].users

    @property
    def calls_tools(self) -> bool:
        """Whether the model asked for a tool in it; where a client calls tools by itself, only the history shows it."""
        asked = any(True for turn in self.turns for _ in turn.calls)
        return asked or any(calls_since_asked(turn.asked) for turn in self.turns if turn.node.hears_calls)

    def continued_by(self, turn: Dialogue) -> bool:
        """Whether a later turn of a model goes on where this thread stopped."""
        last = self.turns[-1]
        if turn.users and self.users and turn.users != self.users:
            return False
        if _knows_id(turn, last):
            return True
        if not last.answered:  # it failed, and was tried again
            return turn.asked == last.asked
        before = len(last.asked)
        # Some clients show other ids in the history than in the answer.
        return (
            len(turn.asked) > before and turn.asked[:before] == last.asked and _repeated_in(turn.asked[before:], last)
        )


def threads(turns: Iterable[Dialogue]) -> list[Thread]:
    """The threads that some dialogues, by time, form."""
    found: list[Thread] = []
    begun = _Begun()
    for turn in turns:
        thread = _continued(begun.before(turn), turn)
        if thread is None:
            thread = Thread([turn])
            found.append(thread)
        else:
            thread.turns.append(turn)
        begun.add(thread)
    _mark_conversations(found)
    _mark_sub_agents(found)
    return found


def _continued(possible: Iterable[Thread], turn: Dialogue) -> Thread | None:
    """The first thread that a turn goes on with, but rather one whose last calls it repeats with their arguments."""
    perhaps = None
    for thread in possible:
        if thread.continued_by(turn):
            last = thread.turns[-1]
            if _knows_id(turn, last) or _made(last.answered) == _made(turn.asked[len(last.asked) :]):
                return thread
            perhaps = perhaps or thread
    return perhaps


_WHATEVER, _SILENT = -1, 0
"""Instead of the number of what a user said: anything, and nothing."""


class _Begun:
    """Threads by what a turn that continues one of them repeats: what the user said, and the ids of calls."""

    def __init__(self) -> None:
        # Long conversations repeat all that was said in every turn: they are compared by number, not word by word.
        self._number: dict[tuple[str, ...], int] = {(): _SILENT}
        self._awaiting: dict[tuple[int, str], Thread] = {}
        self._saying: dict[int, list[Thread]] = {}

    def before(self, turn: Dialogue) -> Iterator[Thread]:
        """The threads that a turn may continue: those whose calls it knows, then the latest of the same words."""
        said = self._said(turn)
        # Words that were not recorded contradict none.
        words = (said, _SILENT) if turn.users else (_WHATEVER,)
        known = ((number, call_id) for call_id in sorted(turn.known_ids) for number in words)
        yield from dict.fromkeys(self._awaiting[key] for key in known if key in self._awaiting)
        yield from reversed(self._saying.get(said, [])[-_CANDIDATES:])

    def add(self, thread: Thread) -> None:
        """Take note of a thread, and again of each turn it goes on with."""
        turn, said = thread.turns[-1], self._said(thread.turns[0])
        if len(thread.turns) == 1:
            self._saying.setdefault(said, []).append(thread)
        for call in turn.calls:
            if call.call_id:
                self._awaiting[said, call.call_id] = self._awaiting[_WHATEVER, call.call_id] = thread

    def _said(self, turn: Dialogue) -> int:
        return self._number.setdefault(turn.users, len(self._number))


def _mark_conversations(found: list[Thread]) -> None:
    """A thread whose user said all that the user of another one did, and more, is the next turn of a conversation."""
    said: dict[str | None, Any] = {}
    for thread in found:
        level = said
        for words in thread.users:
            level = level.setdefault(words, {})
        level[None] = thread
    for thread in found:
        level, before = said, None
        for words in thread.users[:-1]:
            level = level[words]
            before = level.get(None) or before
        if before is not None:
            before.followed = thread.followed = True


def _mark_sub_agents(found: list[Thread]) -> None:
    """A thread that opens with the words that another one gave a tool is the work of that tool.

    Where the turn that gave them is lost, a later one that is left knows them from its history.
    """
    given: dict[str, list[_Delegation]] = {}
    known: dict[str, list[Thread]] = {}
    for number, thread in enumerate(found):
        for turn in thread.turns:
            for call in turn.calls:
                for words in dict.fromkeys(texts_in(call.arguments)):
                    given.setdefault(words, []).append(_Delegation(number, thread, turn))
        if len(found) > 1 and thread.turns[0].node.hears_calls:
            for call in calls_since_asked(thread.turns[0].asked):
                for words in dict.fromkeys(texts_in(call.arguments)):
                    known.setdefault(words, []).append(thread)
    for delegations in given.values():
        delegations.sort(key=lambda each: each.turn.ended)
    for number, thread in enumerate(found):
        opened = thread.turns[0]
        possible = given.get(opened.opening or "", [])
        until = bisect_right(possible, opened.node.span.start_ns or 0, key=lambda each: each.turn.ended)
        before = [each for each in possible[max(0, until - _CANDIDATES) : until] if each.number < number]
        if before:
            # One call starts one sub-agent, as long as there are others to choose from.
            best = max(reversed(before), key=lambda each: not each.taken)
            best.taken = True
            thread.above = best.caller
        else:
            later = (each for each in known.get(opened.opening or "", ()) if _goes_on_after(each, thread))
            thread.above = next(later, None)


def _goes_on_after(caller: Thread, thread: Thread) -> bool:
    """Whether what is left of a thread began when another one, which is not its like, had ended."""
    return caller.users != thread.users and thread.turns[-1].ended <= caller.turns[0].node.start


@dataclass(slots=True, eq=False)
class _Delegation:
    """Words that a turn of a thread gave a tool."""

    number: int
    caller: Thread
    turn: Dialogue
    taken: bool = False


def _made(said: Messages) -> list[tuple[str, object]]:
    """The calls in some messages, whatever their ids."""
    return [(call.name, values.plain(call.arguments)) for message in said for call in message.calls]


def _knows_id(turn: Dialogue, last: Dialogue) -> bool:
    return any(call.call_id in turn.known_ids for call in last.calls)


def _repeated_in(added: Messages, last: Dialogue) -> bool:
    """Whether what was added to the history repeats the calls of the last answer or, where it has none, its words."""
    named = {call.name for call in last.calls}
    if named:
        repeated = {call.name for message in added for call in message.calls}
        # Some instrumentations lose the calls of a history, and keep the answers.
        return named <= repeated if repeated else any(message.role == "tool" for message in added)
    said = {message.text.strip() for message in last.answered if message.text}
    return said.issubset(message.text.strip() for message in added if message.text)
