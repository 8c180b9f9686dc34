"""Haystack in OpenInference: messages are in `repr` notation, and tools have no spans."""

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
    "Haystack: a component that returns its input chat messages with additional messages is an agent.",
    "Haystack: tools have no spans. goldspan reads calls, ids and results from the `repr` of chat messages.",
)
_SCOPE = "openinference.instrumentation.haystack"
_MESSAGE_REPR = "ChatMessage("
_LAST_MESSAGE_KEY = '"last_message"'
_AGENT_INPUT = (FromChatMessages(INPUT, ("messages",)),)
_AGENT_OUTPUT = (FromChatMessages(OUTPUT, ("messages",)),)
_MODEL_OUTPUT = (FromChatMessages(OUTPUT, ("replies",)),)


def postprocess_chain(span: SpanRecord, facts: SpanFacts) -> None:
    """Mark a component that returns the whole conversation and its last message as an agent."""
    if span.scope != _SCOPE or not _has_messages(span, OUTPUT) or _LAST_MESSAGE_KEY not in span.attributes[OUTPUT]:
        return
    facts.role = "agent"
    facts.input_messages = tuple(partial(source, span) for source in _AGENT_INPUT)
    facts.output_messages = tuple(partial(source, span) for source in _AGENT_OUTPUT)
    facts.input = facts.output = None


def postprocess_model(span: SpanRecord, facts: SpanFacts) -> None:
    """Prefer the `repr` of messages: the flattened messages omit call ids, and repeated calls and results."""
    if span.scope != _SCOPE:
        return
    if _has_messages(span, INPUT):
        facts.input_messages = (*(partial(source, span) for source in _AGENT_INPUT), *facts.input_messages)
        facts.tool_definitions = (*facts.tool_definitions, partial(_offered_tools, span.attributes[INPUT]))
    if _has_messages(span, OUTPUT):
        facts.output_messages = (*(partial(source, span) for source in _MODEL_OUTPUT), *facts.output_messages)


def _has_messages(span: SpanRecord, attribute: str) -> bool:
    value = span.attributes.get(attribute)
    return isinstance(value, str) and _MESSAGE_REPR in value


def _offered_tools(input_value: str) -> tuple[ToolDefinition, ...]:
    """Return the tools offered to a model."""
    inputs = plain_value(input_value)
    tools = inputs.get("tools") if isinstance(inputs, Mapping) else None
    return tool_definitions([dict(tool) for tool in map(_tool_spec, tools) if tool]) if isinstance(tools, list) else ()


def _tool_spec(raw: Any) -> Mapping[str, Any] | None:
    tool = parse_json_or_repr(raw)
    return tool if isinstance(tool, Mapping) and "name" in tool else None
