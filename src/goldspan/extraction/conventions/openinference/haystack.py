"""Haystack, as its OpenInference instrumentation shows it: messages as `repr` shows them, and no span for a tool."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from goldspan.extraction import messages
from goldspan.extraction.conventions.chat_messages import FromChat, shown
from goldspan.extraction.conventions.openinference.attributes import INPUT, OUTPUT
from goldspan.extraction.notation import plain
from goldspan.extraction.reading import Reading
from goldspan.model import SpanRecord, ToolDefinition

NOTES = (
    "Haystack: a component that is given chat messages and returns them with more is an agent.",
    "Haystack: tools have no spans. Their calls, ids and results are read from the `repr` of chat messages.",
)
_SCOPE = "openinference.instrumentation.haystack"
_MESSAGE = "ChatMessage("
_RETURNED = '"last_message"'
_GIVEN = (FromChat(INPUT, ("messages",)),)
_SAID = (FromChat(OUTPUT, ("messages",)),)
_REPLIED = (FromChat(OUTPUT, ("replies",)),)


def refine_chain(span: SpanRecord, reading: Reading) -> None:
    """An agent returns the whole conversation, and its last message beside it."""
    if span.scope != _SCOPE or not _has_messages(span, OUTPUT) or _RETURNED not in span.attributes[OUTPUT]:
        return
    reading.role = "agent"
    reading.asked = tuple(partial(place, span) for place in _GIVEN)
    reading.answered = tuple(partial(place, span) for place in _SAID)
    reading.input = reading.output = None


def refine_model(span: SpanRecord, reading: Reading) -> None:
    """The flattened messages leave the ids of calls out, and calls and results where they are repeated."""
    if span.scope != _SCOPE:
        return
    if _has_messages(span, INPUT):
        reading.asked = (*(partial(place, span) for place in _GIVEN), *reading.asked)
        reading.tools = (*reading.tools, partial(_offered, span.attributes[INPUT]))
    if _has_messages(span, OUTPUT):
        reading.answered = (*(partial(place, span) for place in _REPLIED), *reading.answered)


def _has_messages(span: SpanRecord, attribute: str) -> bool:
    written = span.attributes.get(attribute)
    return isinstance(written, str) and _MESSAGE in written


def _offered(given: str) -> tuple[ToolDefinition, ...]:
    """The tools that a model was given."""
    read = plain(given)
    tools = read.get("tools") if isinstance(read, Mapping) else None
    return messages.definitions([dict(tool) for tool in map(_tool, tools) if tool]) if isinstance(tools, list) else ()


def _tool(written: Any) -> Mapping[str, Any] | None:
    tool = shown(written)
    return tool if isinstance(tool, Mapping) and "name" in tool else None
