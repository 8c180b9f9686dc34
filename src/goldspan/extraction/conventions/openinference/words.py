"""What OpenInference spans hold of messages beyond the flattened ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from goldspan.extraction import messages, values
from goldspan.extraction.convention import FromFlat, FromJson
from goldspan.extraction.conventions.openinference.attributes import INPUT, OUTPUT, REDACTED
from goldspan.extraction.reading import Answer, Message, Messages, RequestedCall
from goldspan.model import SpanRecord

_PREFIX = "llm.input_messages"
_GOOGLE_HISTORY = "automatic_function_calling_history"


@dataclass(frozen=True, slots=True)
class Asked:
    """`llm.input_messages`, completed by what flattening has lost.

    Of several results in one message, Anthropic's instrumentation for JavaScript keeps the last. Google's SDK calls
    tools by itself, several turns within one span, and tells in its answer what was said in between.
    """

    def __call__(self, span: SpanRecord) -> Messages:
        """The messages of a span."""
        if history := _google_history(span.attributes.get(OUTPUT)):
            return history
        flat = messages.from_flat(span.attributes, _PREFIX, "message")
        said = span.attributes.get(INPUT)
        kept = _results_in(flat)
        if isinstance(said, str) and said.count('"tool_result"') > kept:
            whole = messages.from_json(said)
            if _results_in(whole) > kept:
                return whole
        return flat

    def __str__(self) -> str:
        """How the documentation names the place."""
        return f"`{_PREFIX}.N.message.*`"


@dataclass(frozen=True, slots=True)
class Texts:
    """The prompts or the completions of a model that takes plain text."""

    prefix: str
    field: str
    role: str

    def __call__(self, span: SpanRecord) -> Messages:
        """The texts of a span in the order of their numbers, as messages."""
        return tuple(Message(self.role, text) for text in self._texts(span.attributes) if isinstance(text, str))

    def _texts(self, attributes: Mapping[str, Any]) -> list[Any]:
        if isinstance(listed := attributes.get(self.prefix), list | tuple):
            return list(listed)
        begin, end = f"{self.prefix}.", f".{self.field}"
        numbers = (key[len(begin) : -len(end)] for key in attributes if key.startswith(begin) and key.endswith(end))
        ordered = sorted(int(number) for number in numbers if number.isdecimal() and len(number) < _DIGITS)
        return [attributes.get(f"{begin}{number}{end}") for number in ordered]

    def __str__(self) -> str:
        """How the documentation names the place."""
        return f"`{self.prefix}.N.{self.field}`"


@dataclass(frozen=True, slots=True)
class Words:
    """The words in an attribute of their own; structured values in it are not the words of anybody."""

    attribute: str
    role: str

    def __call__(self, span: SpanRecord) -> Messages:
        """The words of a span, as a message."""
        said = span.attributes.get(self.attribute)
        if not isinstance(said, str) or said == REDACTED or said.lstrip()[:1] in ("", "{", "["):
            return ()
        return (Message(self.role, said),)

    def __str__(self) -> str:
        """How the documentation names the place."""
        return f"`{self.attribute}`"


def _google_history(returned: Any) -> Messages:
    """What was said and done within one call of Google's SDK; nothing where it called no tool."""
    if not isinstance(returned, str) or _GOOGLE_HISTORY not in returned:
        return ()
    read = values.plain(returned)
    history = messages.from_json(read.get(_GOOGLE_HISTORY)) if isinstance(read, Mapping) else ()
    return tuple(_from_google(message, then) for message, then in zip_longest(history, history[1:]))


def _from_google(message: Message, then: Message | None) -> Message:
    """A message of that history: of the user where it has no role, with each call beside what the next one answers."""
    answers = then.answers if then else ()
    if len(answers) != len(message.calls) or any(call.call_id for call in message.calls):
        return message._replace(role=message.role or "user")
    calls = tuple(_google_call(call, answer) for call, answer in zip(message.calls, answers, strict=True))
    return message._replace(role=message.role or "user", calls=calls)


def _google_call(call: RequestedCall, answer: Answer) -> RequestedCall:
    """A call with its result, which the SDK puts under `result`, or the error that it caught, put under `error`."""
    match answer.result:
        case {"result": result, **rest} if not rest:
            return call._replace(result=values.result(result).value)
        case {"error": error, **rest} if not rest:
            return call._replace(error=str(error))
    return call


def _results_in(found: Messages) -> int:
    return sum(len(message.answers) for message in found)


_DIGITS = 10
ASKED = (
    Asked(),
    Texts("llm.prompts", "prompt.text", "user"),
    FromJson(INPUT),
    Words(INPUT, "user"),
)
"""Where a model's input may stand, best place first."""
ANSWERED = (
    FromFlat("llm.output_messages", "message"),
    Texts("llm.choices", "completion.text", "assistant"),
    FromJson(OUTPUT),
    Words(OUTPUT, "assistant"),
)
"""The same for its output."""
