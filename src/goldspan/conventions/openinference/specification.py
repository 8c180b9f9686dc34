"""What OpenInference spans hold of messages beyond the flattened ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from goldspan.content import envelopes, literals, messages
from goldspan.content.parts import ToolResult
from goldspan.conventions.convention import FromFlattened, FromJson
from goldspan.conventions.span_facts import Message, Messages, RequestedCall
from goldspan.model import SpanRecord

KIND = "openinference.span.kind"
INPUT = "input.value"
OUTPUT = "output.value"
TOOL_NAME = "tool.name"
TOOL_PARAMETERS = "tool.parameters"
TOOL_SCHEMA = "tool.json_schema"
METADATA = "metadata"
"""JSON text with whatever the framework and its user want to say of a span."""
REDACTED = "__REDACTED__"
"""Written in place of a value that the instrumentation was told to hide."""


_PREFIX = "llm.input_messages"
_GOOGLE_HISTORY = "automatic_function_calling_history"


@dataclass(frozen=True, slots=True)
class InputMessages:
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
        kept = _count_results(flat)
        if isinstance(said, str) and said.count('"tool_result"') > kept:
            whole = messages.from_json(said)
            if _count_results(whole) > kept:
                return whole
        return flat

    def __str__(self) -> str:
        """How the documentation names the place."""
        return f"`{_PREFIX}.N.message.*`"


@dataclass(frozen=True, slots=True)
class PromptTexts:
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
        ordered = sorted(int(number) for number in numbers if number.isdecimal() and len(number) < _MAX_DIGITS)
        return [attributes.get(f"{begin}{number}{end}") for number in ordered]

    def __str__(self) -> str:
        """How the documentation names the place."""
        return f"`{self.prefix}.N.{self.field}`"


@dataclass(frozen=True, slots=True)
class PlainText:
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


def _google_history(output: Any) -> Messages:
    """What was said and done within one call of Google's SDK; nothing where it called no tool."""
    if not isinstance(output, str) or _GOOGLE_HISTORY not in output:
        return ()
    read = literals.plain_value(output)
    history = messages.from_json(read.get(_GOOGLE_HISTORY)) if isinstance(read, Mapping) else ()
    return tuple(_with_results(message, then) for message, then in zip_longest(history, history[1:]))


def _with_results(message: Message, following: Message | None) -> Message:
    """A message of that history: of the user where it has no role, with each call beside what the next one answers."""
    answers = following.tool_results if following else ()
    if len(answers) != len(message.tool_calls) or any(call.call_id for call in message.tool_calls):
        return message._replace(role=message.role or "user")
    calls = tuple(_call_with_result(call, answer) for call, answer in zip(message.tool_calls, answers, strict=True))
    return message._replace(role=message.role or "user", tool_calls=calls)


def _call_with_result(call: RequestedCall, answer: ToolResult) -> RequestedCall:
    """A call with its result, which the SDK puts under `result`, or the error that it caught, put under `error`."""
    match answer.result:
        case {"result": result, **rest} if not rest:
            return call._replace(result=envelopes.unwrap_result(result).value)
        case {"error": error, **rest} if not rest:
            return call._replace(error=str(error))
    return call


def _count_results(found: Messages) -> int:
    return sum(len(message.tool_results) for message in found)


_MAX_DIGITS = 10
INPUT_MESSAGES = (
    InputMessages(),
    PromptTexts("llm.prompts", "prompt.text", "user"),
    FromJson(INPUT),
    PlainText(INPUT, "user"),
)
"""Where a model's input may stand, best place first."""
OUTPUT_MESSAGES = (
    FromFlattened("llm.output_messages", "message"),
    PromptTexts("llm.choices", "completion.text", "assistant"),
    FromJson(OUTPUT),
    PlainText(OUTPUT, "assistant"),
)
"""The same for its output."""
