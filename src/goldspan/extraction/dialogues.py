"""What models were asked and what they answered, and which of their turns belong to one piece of work.

A model is asked anew at each step of a request, and each time the whole history is repeated. That history is what
joins the steps where no span does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from goldspan.extraction import messages, values
from goldspan.extraction.reading import MARKS
from goldspan.extraction.spoken import Message, Messages, RequestedCall
from goldspan.extraction.tree import Node

NEVER = float("inf")
"""A time that is not known sorts last."""
_CANDIDATES = 50
"""Threads that are looked at for a turn whose calls have no ids; the latest of them."""


@dataclass(frozen=True, eq=False)
class Dialogue:
    """What a model was asked and what it answered, in one span."""

    node: Node

    @property
    def asked(self) -> Messages:
        """The model's input."""
        return self.node.asked

    @property
    def answered(self) -> Messages:
        """The model's output."""
        return self.node.answered

    @property
    def ended(self) -> float:
        """When the model had answered."""
        end = self.node.span.end_ns
        return NEVER if end is None else end

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
        if not self.node.asks_for_calls:
            return iter(())
        return (call for message in self.answered for call in message.calls)

    @cached_property
    def known_ids(self) -> frozenset[str]:
        """The ids of the calls in the history."""
        return frozenset(ids_in(self.asked))


def ids_in(messages: Iterable[Message]) -> Iterator[str]:
    """The ids of all calls that some messages ask for or answer."""
    for message in messages:
        yield from (call.call_id for call in message.calls if call.call_id)
        yield from (answer.call_id for answer in message.answers if answer.call_id)


def history(node: Node) -> list[Message]:
    """All messages that a span knows; those of an agent or application may stand in its input and output."""
    written = (node.reading.input, node.reading.output) if node.role in MARKS else ()
    return [*node.asked, *node.answered, *(message for value in written for message in messages.from_json(value))]


def may_know_calls(node: Node) -> bool:
    """Whether the history that an agent or application keeps may hold calls."""
    written = (node.reading.input, node.reading.output)
    return (
        node.tells_calls
        or node.asks_for_calls
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


def dialogues(nodes: Iterable[Node]) -> list[Dialogue]:
    """The model's spans with content, by time; of the nested spans of one model call, the outermost that has some.

    In `nodes` each span stands before those inside it.
    """
    speaking: list[Node] = []
    hidden: set[Node] = set()
    for node in nodes:
        if node.role == "model":
            outer = node.enclosing_model
            if outer is not None and (outer in hidden or outer.asked or outer.answered):
                hidden.add(node)
            elif node.speaks:
                speaking.append(node)
    return [Dialogue(node) for node in sorted(speaking, key=lambda node: node.place)]


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
    def top(self) -> Thread:
        """The thread of the request itself."""
        thread = self
        while thread.above is not None:
            thread = thread.above
        return thread

    @property
    def calls_tools(self) -> bool:
        """Whether the model asked for a tool in it."""
        return any(True for turn in self.turns for _ in turn.calls)

    def continued_by(self, turn: Dialogue) -> bool:
        """Whether a later turn of a model goes on where this thread stopped."""
        last = self.turns[-1]
        if turn.users and self.users and turn.users != self.users:
            return False
        if any(call.call_id in turn.known_ids for call in last.calls):
            return True
        if not last.answered:  # it failed, and was tried again
            return turn.asked == last.asked
        before = len(last.asked)
        # Some clients show other ids in the history than in the answer.
        return len(turn.asked) > before and turn.asked[:before] == last.asked and _named_in(turn.asked[before:], last)


def threads(turns: Iterable[Dialogue]) -> list[Thread]:
    """The threads that some dialogues, by time, form."""
    found: list[Thread] = []
    awaiting: dict[str, Thread] = {}
    saying: dict[tuple[str, ...], list[Thread]] = {}
    for turn in turns:
        by_id = (awaiting[call_id] for call_id in sorted(turn.known_ids) if call_id in awaiting)
        by_words = reversed(saying.get(turn.users, [])[-_CANDIDATES:])
        thread = next((known for known in (*by_id, *by_words) if known.continued_by(turn)), None)
        if thread is None:
            thread = Thread([turn])
            found.append(thread)
            saying.setdefault(thread.users, []).append(thread)
        else:
            thread.turns.append(turn)
        awaiting |= {call.call_id: thread for call in turn.calls if call.call_id}
    _mark_conversations(found)
    _mark_sub_agents(found)
    return found


def _mark_conversations(found: list[Thread]) -> None:
    said = {thread.users: thread for thread in found}
    for thread in found:
        earlier = (said.get(thread.users[:count]) for count in range(len(thread.users) - 1, 0, -1))
        before = next((other for other in earlier if other is not None), None)
        if before is not None:
            before.followed = thread.followed = True


def _mark_sub_agents(found: list[Thread]) -> None:
    """A thread that opens with the words that another one gave a tool is the work of that tool."""
    given: dict[str, list[tuple[Thread, Dialogue]]] = {}
    for thread in found:
        for turn in thread.turns:
            for call in turn.calls:
                for words in _texts(call):
                    given.setdefault(words, []).append((thread, turn))
    for thread in found:
        for caller, turn in given.get(thread.turns[0].opening or "", ()):
            if caller.top is not thread and turn.ended <= (thread.turns[0].node.span.start_ns or 0):
                thread.above = caller
                break


def _named_in(added: Messages, last: Dialogue) -> bool:
    """Whether what was added to the history repeats the calls of the last answer."""
    repeated = {call.name for message in added for call in message.calls}
    return repeated.issuperset(call.name for call in last.calls)


def _texts(call: RequestedCall) -> Iterator[str]:
    read = values.plain(call.arguments)
    for value in read.values() if isinstance(read, dict) else (read,):
        if isinstance(value, str) and value.strip():
            yield value.strip()
