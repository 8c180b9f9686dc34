"""Reads the input and output of each model span, and groups the turns that continue each other.

A model is called once for each step of a request, and each call repeats the whole history. The history joins the steps
where no span does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from goldspan.content import literals, messages
from goldspan.content.parts import Message, Messages, RequestedCall, ToolResult
from goldspan.conventions.span_facts import REQUEST_ROLES
from goldspan.extraction.span_node import SpanNode

_MAX_CANDIDATES = 50
"""How many of the latest sequences are checked for a turn whose calls have no ids."""


class ModelTurn:
    """The input and output of a model in one span. It must not be changed."""

    __slots__ = ("_known_call_ids", "node", "number")

    def __init__(self, node: SpanNode, number: int = 0) -> None:
        """Describe a span; `number` is its position among the turns of a run."""
        self.node = node
        self.number = number
        self._known_call_ids: frozenset[str] | None = None

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
        """The end time of the model span."""
        return self.node.sort_key[1]

    @property
    def user_texts(self) -> tuple[str, ...]:
        """The user messages so far, in order."""
        return self.node.user_texts

    @property
    def first_user_text(self) -> str | None:
        """The first user message, which distinguishes the turns of a sub-agent from those of its caller."""
        texts = self.node.user_texts
        return texts[0] if texts else None

    @property
    def system_texts(self) -> tuple[str | None, ...]:
        """The system and developer messages."""
        return tuple(message.text for message in self.input_messages if message.role in ("system", "developer"))

    @property
    def calls(self) -> tuple[RequestedCall, ...]:
        """The tool calls that the model requested."""
        return self.node.requested_calls

    @property
    def tool_results(self) -> list[ToolResult]:
        """The tool results in the input after the last user message."""
        found: list[ToolResult] = []
        for message in reversed(self.input_messages) if self.node.input_may_have_calls else ():
            if message.is_from_user:
                break
            found.extend(message.tool_results)
        return found

    @property
    def known_call_ids(self) -> frozenset[str]:
        """The ids of the calls in the history."""
        if self._known_call_ids is None:
            self._known_call_ids = frozenset(call_ids_in(self.input_messages))
        return self._known_call_ids


def call_ids_in(messages: Iterable[Message]) -> Iterator[str]:
    """Yields the ids of all calls and tool results in some messages."""
    for message in messages:
        yield from (call.call_id for call in message.tool_calls if call.call_id)
        yield from (answer.call_id for answer in message.tool_results if answer.call_id)


def input_history(node: SpanNode) -> list[Message]:
    """Returns all input messages of a span; those of an agent or entry may be in its input value."""
    return [*node.input_messages, *(messages.from_json(node.facts.input) if node.role in REQUEST_ROLES else ())]


def full_history(node: SpanNode) -> list[Message]:
    """Returns all input and output messages of a span."""
    added = messages.from_json(node.facts.output) if node.role in REQUEST_ROLES else ()
    return [*input_history(node), *node.output_messages, *added]


def history_may_contain_calls(node: SpanNode) -> bool:
    """Returns whether the history of an agent or entry span may contain calls."""
    raw_values = (node.facts.input, node.facts.output)
    return (
        node.input_may_have_calls
        or node.output_may_have_calls
        or any(
            not isinstance(value, str) or messages.may_contain_calls(value) for value in raw_values if value is not None
        )
    )


def calls_since_user(history: Sequence[Message]) -> list[RequestedCall]:
    """Returns the calls in a history since the last user message: earlier calls belong to an earlier request."""
    return [call for message in history[_last_user_message(history) :] for call in message.tool_calls]


def _last_user_message(history: Sequence[Message]) -> int:
    """The position of the last user message; 0 if there is none."""
    for position in range(len(history) - 1, 0, -1):
        if history[position].is_from_user:
            return position
    return 0


def argument_texts(arguments: Any) -> Iterator[str]:
    """Yields the texts among the arguments of a call: the request text of an agent that is used as a tool."""
    decoded = literals.plain_value(arguments)
    for value in decoded.values() if isinstance(decoded, dict) else (decoded,):
        if isinstance(value, str) and value.strip():
            yield value.strip()


def find_model_turns(nodes: Iterable[SpanNode]) -> list[ModelTurn]:
    """Returns the turns of the model spans with messages, by time.

    Of the nested spans of one model call, only the outermost with messages counts. A model span inside another one with
    a different request is not a second span of that call, but a sub-agent inside a tool without a span.

    Args:
        nodes: Spans in pre-order.
    """
    with_messages: list[SpanNode] = []
    repeated: set[SpanNode] = set()
    for node in nodes:
        if node.role == "model":
            outer = node.enclosing_model
            if outer is not None and _is_same_model_call(outer, node, outer_repeated=outer in repeated):
                repeated.add(node)
            elif node.has_messages:
                with_messages.append(node)
    return [ModelTurn(node, number) for number, node in enumerate(_chronological(with_messages))]


def last_turns(turns: Iterable[ModelTurn]) -> Iterable[ModelTurn]:
    """Returns the last turn of each agent's model; without agent spans, the first user message distinguishes agents."""
    last: dict[object, ModelTurn] = {}
    for turn in turns:
        last[turn.first_user_text if turn.node.owner is None else turn.node.owner] = turn
    return last.values()


def _chronological(nodes: list[SpanNode]) -> list[SpanNode]:
    """Model spans by time. Of spans with the same time, a later one repeats more history."""
    if len(nodes) < 2:
        return nodes
    in_order = sorted(nodes, key=attrgetter("sort_key"))
    moments = [node.sort_key[:2] for node in in_order]
    if len(set(moments)) == len(moments):
        return in_order
    count = Counter(moments)
    history_lengths = [
        len(node.input_messages) if count[moment] > 1 else 0 for node, moment in zip(in_order, moments, strict=True)
    ]
    rows = zip(moments, history_lengths, range(len(in_order)), in_order, strict=True)
    return [node for *_, node in sorted(rows, key=lambda row: row[:3])]


def _is_same_model_call(outer: SpanNode, inner: SpanNode, *, outer_repeated: bool) -> bool:
    """Whether nested model spans are of the same model call, judging by their messages."""
    if not (outer_repeated or outer.input_messages or outer.output_messages) or _adds_only_calls(inner, outer):
        return False
    return not outer.user_texts or not inner.user_texts or outer.user_texts[0] == inner.user_texts[0]


def _adds_only_calls(inner: SpanNode, outer: SpanNode) -> bool:
    """Whether the inner span contains only calls and the outer one contains none: the calls are the outer's output."""
    if not inner.output_may_have_calls or inner.input_messages:
        return False
    return any(message.tool_calls for message in inner.output_messages) and not any(
        message.tool_calls for message in outer.output_messages
    )


@dataclass(eq=False)
class TurnSequence:
    """The turns of one model that continue each other: one request, or a sub-agent's part of one."""

    turns: list[ModelTurn]
    parent: TurnSequence | None = None
    """The sequence that started this one with a call; set if this is a sub-agent's sequence."""
    in_conversation: bool = field(default=False)
    """Whether it is part of a conversation with further sequences."""

    @property
    def user_texts(self) -> tuple[str, ...]:
        """The user messages, in order."""
        return self.turns[0].user_texts

    @property
    def requests_tools(self) -> bool:
        """Whether the model requested a tool. If a client executes tools itself, only the history shows the calls."""
        requested = any(turn.calls for turn in self.turns)
        return requested or any(
            calls_since_user(turn.input_messages) for turn in self.turns if turn.node.input_may_have_calls
        )

    def is_continued_by(self, turn: ModelTurn) -> bool:
        """Returns whether a later turn continues this sequence."""
        last = self.turns[-1]
        if turn.user_texts and self.user_texts and turn.user_texts != self.user_texts:
            return False
        if _repeats_call_id(turn, last):
            return True
        if not last.output_messages:  # the turn failed and was retried
            return turn.input_messages == last.input_messages
        before = len(last.input_messages)
        # Some clients record other call ids in the history than in the output.
        return (
            len(turn.input_messages) > before
            and turn.input_messages[:before] == last.input_messages
            and _repeats_output(turn.input_messages[before:], last)
        )


def group_turns(turns: Sequence[ModelTurn]) -> list[TurnSequence]:
    """Groups turns, ordered by time, into sequences."""
    single = _join_continuous(turns)
    return _group_with_index(turns) if single is None else [single]


def _join_continuous(turns: Sequence[ModelTurn]) -> TurnSequence | None:
    """The only sequence of some turns; `None` if they may form several.

    Most requests without an agent span have one. No index is built for it.
    """
    if not turns:
        return None
    sequence = TurnSequence([turns[0]])
    for turn in turns[1:]:
        if turn.user_texts != sequence.user_texts or not sequence.is_continued_by(turn):
            return None
        sequence.turns.append(turn)
    return sequence


def _group_with_index(turns: Iterable[ModelTurn]) -> list[TurnSequence]:
    sequences: list[TurnSequence] = []
    index = _SequenceIndex()
    for turn in turns:
        sequence = _find_continued(index.candidates(turn), turn)
        if sequence is None:
            sequence = TurnSequence([turn])
            sequences.append(sequence)
        else:
            sequence.turns.append(turn)
        index.add(sequence)
    _mark_conversations(sequences)
    _mark_sub_agents(sequences)
    return sequences


def _find_continued(candidates: Iterable[TurnSequence], turn: ModelTurn) -> TurnSequence | None:
    """The first sequence that a turn continues; one whose last calls it repeats with their arguments is preferred."""
    fallback = None
    for sequence in candidates:
        if sequence.is_continued_by(turn):
            last = sequence.turns[-1]
            if _repeats_call_id(turn, last) or _calls_with_arguments(last.output_messages) == _calls_with_arguments(
                turn.input_messages[len(last.input_messages) :]
            ):
                return sequence
            fallback = fallback or sequence
    return fallback


_ANY_TEXT, _NO_TEXT = -1, 0
"""Special numbers of user texts: any texts, and no texts."""


class _SequenceIndex:
    """Sequences by what a continuing turn repeats: the user messages and the call ids."""

    def __init__(self) -> None:
        # Every turn of a long conversation repeats all user messages: numbers are compared instead of texts.
        self._text_numbers: dict[tuple[str, ...], int] = {(): _NO_TEXT}
        self._by_call_id: dict[tuple[int, str], TurnSequence] = {}
        self._by_texts: dict[int, list[TurnSequence]] = {}

    def candidates(self, turn: ModelTurn) -> Iterator[TurnSequence]:
        """Yields the sequences that a turn may continue: those with a common call, then the latest with equal texts."""
        text_number = self._text_number(turn)
        # Messages that were not recorded do not contradict others.
        numbers = (text_number, _NO_TEXT) if turn.user_texts else (_ANY_TEXT,)
        keys = ((number, call_id) for call_id in sorted(turn.known_call_ids) for number in numbers)
        yield from dict.fromkeys(self._by_call_id[key] for key in keys if key in self._by_call_id)
        yield from reversed(self._by_texts.get(text_number, [])[-_MAX_CANDIDATES:])

    def add(self, sequence: TurnSequence) -> None:
        """Index a sequence by its last turn; called again after each further turn."""
        turn, text_number = sequence.turns[-1], self._text_number(sequence.turns[0])
        if len(sequence.turns) == 1:
            self._by_texts.setdefault(text_number, []).append(sequence)
        for call in turn.calls:
            if call.call_id:
                self._by_call_id[text_number, call.call_id] = self._by_call_id[_ANY_TEXT, call.call_id] = sequence

    def _text_number(self, turn: ModelTurn) -> int:
        return self._text_numbers.setdefault(turn.user_texts, len(self._text_numbers))


def _mark_conversations(sequences: list[TurnSequence]) -> None:
    """Marks sequences whose user messages extend those of another one: they are turns of one conversation."""
    text_tree: dict[str | None, Any] = {}
    for sequence in sequences:
        level = text_tree
        for text in sequence.user_texts:
            level = level.setdefault(text, {})
        level[None] = sequence
    for sequence in sequences:
        level, earlier = text_tree, None
        for text in sequence.user_texts[:-1]:
            level = level[text]
            earlier = level.get(None) or earlier
        if earlier is not None:
            earlier.in_conversation = sequence.in_conversation = True


def _mark_sub_agents(sequences: list[TurnSequence]) -> None:
    """Sets the parent of each sequence whose first user message is an argument of a tool call in another one.

    If the turn with the call is missing, a later turn has the call in its history.
    """
    delegations: dict[str, list[_Delegation]] = {}
    callers_by_history: dict[str, list[TurnSequence]] = {}
    for number, sequence in enumerate(sequences):
        for turn in sequence.turns:
            for call in turn.calls:
                for text in dict.fromkeys(argument_texts(call.arguments)):
                    delegations.setdefault(text, []).append(_Delegation(number, sequence, turn))
        if len(sequences) > 1 and sequence.turns[0].node.input_may_have_calls:
            for call in calls_since_user(sequence.turns[0].input_messages):
                for text in dict.fromkeys(argument_texts(call.arguments)):
                    callers_by_history.setdefault(text, []).append(sequence)
    for candidates in delegations.values():
        candidates.sort(key=lambda delegation: delegation.turn.end_time)
    for number, sequence in enumerate(sequences):
        first = sequence.turns[0]
        text = first.first_user_text or ""
        candidates = delegations.get(text, [])
        until = bisect_right(candidates, first.node.span.start_ns or 0, key=lambda delegation: delegation.turn.end_time)
        earlier = [d for d in candidates[max(0, until - _MAX_CANDIDATES) : until] if d.number < number]
        if earlier:
            # One call starts one sub-agent, as long as there are other calls to choose from.
            best = max(reversed(earlier), key=lambda delegation: not delegation.is_matched)
            best.is_matched = True
            sequence.parent = best.caller
        else:
            later = (caller for caller in callers_by_history.get(text, ()) if _resumes_after(caller, sequence))
            sequence.parent = next(later, None)


def _resumes_after(caller: TurnSequence, sequence: TurnSequence) -> bool:
    """Whether the remaining turns of a caller, with other user messages, start after a sequence has ended."""
    return caller.user_texts != sequence.user_texts and sequence.turns[-1].end_time <= caller.turns[0].node.start


@dataclass(slots=True, eq=False)
class _Delegation:
    """A call of a turn with a given argument text."""

    number: int
    caller: TurnSequence
    turn: ModelTurn
    is_matched: bool = False


def _calls_with_arguments(messages: Messages) -> list[tuple[str, object]]:
    """The calls in some messages, without their ids."""
    return [(call.name, literals.plain_value(call.arguments)) for message in messages for call in message.tool_calls]


def _repeats_call_id(turn: ModelTurn, last: ModelTurn) -> bool:
    return any(call.call_id in turn.known_call_ids for call in last.calls) if last.calls else False


def _repeats_output(added: Messages, last: ModelTurn) -> bool:
    """Whether new messages in the history repeat the calls of the last output or, if it has none, its text."""
    names = {call.name for call in last.calls}
    if names:
        repeated = {call.name for message in added for call in message.tool_calls}
        # Some instrumentations drop the calls of a history and keep the results.
        return names <= repeated if repeated else any(message.role == "tool" for message in added)
    texts = {message.text.strip() for message in last.output_messages if message.text}
    return texts.issubset(message.text.strip() for message in added if message.text)
