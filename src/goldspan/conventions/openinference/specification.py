"""OpenInference's attribute names, and the sources of messages that are not flattened."""

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
"""JSON text with metadata of the framework and the application."""
REDACTED = "__REDACTED__"
"""Value that replaces a redacted value."""


_PREFIX = "llm.input_messages"
_GOOGLE_HISTORY = "automatic_function_calling_history"


@dataclass(frozen=True, slots=True)
class InputMessages:
    """Reads `llm.input_messages`, and the complete messages if flattening lost some of them.

    If one message has several tool results, Anthropic's instrumentation for JavaScript keeps only the last one.
    Google's SDK calls tools automatically, several turns within one span, and returns these turns with its answer.
    """

    def __call__(self, span: SpanRecord) -> Messages:
        """Return the messages of a span."""
        if history := _google_history(span.attributes.get(OUTPUT)):
            return history
        flat = messages.from_flat(span.attributes, _PREFIX, "message")
        input_value = span.attributes.get(INPUT)
        flat_results = _count_results(flat)
        if isinstance(input_value, str) and input_value.count('"tool_result"') > flat_results:
            complete = messages.from_json(input_value)
            if _count_results(complete) > flat_results:
                return complete
        return flat

    def __str__(self) -> str:
        """Return the description of the source for the documentation."""
        return f"`{_PREFIX}.N.message.*`"


@dataclass(frozen=True, slots=True)
class PromptTexts:
    """Reads the prompts or the completions of a text completion model."""

    prefix: str
    field: str
    role: str

    def __call__(self, span: SpanRecord) -> Messages:
        """Return the texts of a span as messages, in numerical order."""
        return tuple(Message(self.role, text) for text in self._texts(span.attributes) if isinstance(text, str))

    def _texts(self, attributes: Mapping[str, Any]) -> list[Any]:
        if isinstance(texts := attributes.get(self.prefix), list | tuple):
            return list(texts)
        start, end = f"{self.prefix}.", f".{self.field}"
        numbers = (key[len(start) : -len(end)] for key in attributes if key.startswith(start) and key.endswith(end))
        ordered = sorted(int(number) for number in numbers if number.isdecimal() and len(number) < _MAX_DIGITS)
        return [attributes.get(f"{start}{number}{end}") for number in ordered]

    def __str__(self) -> str:
        """Return the description of the source for the documentation."""
        return f"`{self.prefix}.N.{self.field}`"


@dataclass(frozen=True, slots=True)
class PlainText:
    """Reads plain text from one attribute. Structured values are not messages."""

    attribute: str
    role: str

    def __call__(self, span: SpanRecord) -> Messages:
        """Return the text of a span as a message."""
        text = span.attributes.get(self.attribute)
        if not isinstance(text, str) or text == REDACTED or text.lstrip()[:1] in ("", "{", "["):
            return ()
        return (Message(self.role, text),)

    def __str__(self) -> str:
        """Return the description of the source for the documentation."""
        return f"`{self.attribute}`"


def _google_history(output: Any) -> Messages:
    """Return the messages within one call of Google's SDK; return no messages if it called no tool."""
    if not isinstance(output, str) or _GOOGLE_HISTORY not in output:
        return ()
    decoded = literals.plain_value(output)
    history = messages.from_json(decoded.get(_GOOGLE_HISTORY)) if isinstance(decoded, Mapping) else ()
    return tuple(_with_results(message, following) for message, following in zip_longest(history, history[1:]))


def _with_results(message: Message, following: Message | None) -> Message:
    """Return the message with the results from the next message added to its calls; the default role is `user`."""
    tool_results = following.tool_results if following else ()
    if len(tool_results) != len(message.tool_calls) or any(call.call_id for call in message.tool_calls):
        return message._replace(role=message.role or "user")
    pairs = zip(message.tool_calls, tool_results, strict=True)
    calls = tuple(_call_with_result(call, tool_result) for call, tool_result in pairs)
    return message._replace(role=message.role or "user", tool_calls=calls)


def _call_with_result(call: RequestedCall, tool_result: ToolResult) -> RequestedCall:
    """Return the call with the result that the SDK wrote under `result`, or the error that it wrote under `error`."""
    match tool_result.result:
        case {"result": result, **rest} if not rest:
            return call._replace(result=envelopes.unwrap_result(result).value)
        case {"error": error, **rest} if not rest:
            return call._replace(error=str(error))
    return call


def _count_results(decoded: Messages) -> int:
    return sum(len(message.tool_results) for message in decoded)


_MAX_DIGITS = 10
INPUT_MESSAGES = (
    InputMessages(),
    PromptTexts("llm.prompts", "prompt.text", "user"),
    FromJson(INPUT),
    PlainText(INPUT, "user"),
)
"""Sources of a model's input, in order of precedence."""
OUTPUT_MESSAGES = (
    FromFlattened("llm.output_messages", "message"),
    PromptTexts("llm.choices", "completion.text", "assistant"),
    FromJson(OUTPUT),
    PlainText(OUTPUT, "assistant"),
)
"""Sources of a model's output, in order of precedence."""
