"""Haystack, as its OpenInference instrumentation shows it: messages as `repr` shows them, and no span for a tool."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from goldspan.content.literals import plain_value
from goldspan.content.tools import tool_definitions
from goldspan.conventions.haystack import FromChatMessages, parse_json_or_repr
from goldspan.conventions.openinference.specification import INPUT, OUTPUT
from goldspan.conventions.span_facts import SpanFacts
from goldspan.model import SpanRecord, ToolDefinition

NOTES = (
    "Haystack: a component that is given chat messages and returns them with more is an agent.",
    "Haystack: tools have no spans. Their calls, ids and results are read from the `repr` of chat messages.",
)
_SCOPE = "openinference.instrumentation.haystack"
_MESSAGE_REPR = "ChatMessage("
_LAST_MESSAGE_KEY = '"last_message"'
_AGENT_INPUT = (FromChatMessages(INPUT, ("messages",)),)
_AGENT_OUTPUT = (FromChatMessages(OUTPUT, ("messages",)),)
_MODEL_OUTPUT = (FromChatMessages(OUTPUT, ("replies",)),)


def postprocess_chain(span: SpanRecord, facts: SpanFacts) -> None:
    """An agent returns the whole conversation, and its last message beside it."""
    if span.scope != _SCOPE or not _has_messages(span, OUTPUT) or _LAST_MESSAGE_KEY not in span.attributes[OUTPUT]:
        return
    facts.role = "agent"
    facts.input_messages = tuple(partial(place, span) for place in _AGENT_INPUT)
    facts.output_messages = tuple(partial(place, span) for place in _AGENT_OUTPUT)
    facts.input = facts.output = None


def postprocess_model(span: SpanRecord, facts: SpanFacts) -> None:
    """The flattened messages leave the ids of calls out, and calls and results where they are repeated."""
    if span.scope != _SCOPE:
        return
    if _has_messages(span, INPUT):
        facts.input_messages = (*(partial(place, span) for place in _AGENT_INPUT), *facts.input_messages)
        facts.tool_definitions = (*facts.tool_definitions, partial(_offered_tools, span.attributes[INPUT]))
    if _has_messages(span, OUTPUT):
        facts.output_messages = (*(partial(place, span) for place in _MODEL_OUTPUT), *facts.output_messages)


def _has_messages(span: SpanRecord, attribute: str) -> bool:
    written = span.attributes.get(attribute)
    return isinstance(written, str) and _MESSAGE_REPR in written


def _offered_tools(input_value: str) -> tuple[ToolDefinition, ...]:
    """The tools that a model was given."""
    read = plain_value(input_value)
    tools = read.get("tools") if isinstance(read, Mapping) else None
    return tool_definitions([dict(tool) for tool in map(_tool_spec, tools) if tool]) if isinstance(tools, list) else ()


def _tool_spec(raw: Any) -> Mapping[str, Any] | None:
    tool = parse_json_or_repr(raw)
    return tool if isinstance(tool, Mapping) and "name" in tool else None
