"""OpenInference: `openinference.span.kind` and flattened `llm.*` messages.

Tools carry `tool.name`, `input.value` and `output.value`. `tool.parameters` is the tool's schema by the specification,
but some instrumentations put the actual arguments there; it is read as arguments only where `input.value` is missing
and it does not look like a schema. A `TOOL` span called `handoff to X` is a hand-off, not a tool.
Source: the OpenInference semantic conventions.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from goldspan.extraction import messages, values
from goldspan.extraction.reading import Reading, Role
from goldspan.model import ABSENT, SpanRecord, ToolDefinition

_KIND = "openinference.span.kind"
_TOOL_NAME = "tool.name"
_HANDOFFS = ("handoff to ", "handoff_to_")
"""How the OpenAI Agents instrumentations, Python and JavaScript, name the span of a hand-off."""
_ROLES: dict[str, Role] = {"TOOL": "tool", "AGENT": "agent", "LLM": "model", "RETRIEVER": "tool"}


def read(span: SpanRecord) -> Reading | None:
    """Read a span that says its OpenInference kind, or carries a session id."""
    attributes = span.attributes
    kind = attributes.get(_KIND)
    session = attributes.get("session.id")
    if kind is None and session is None:
        return None
    reading = Reading(role=_ROLES.get(str(kind).upper()), session_id=session)
    # An agent that is called as a tool may be marked AGENT, and then only `tool.name` tells.
    if reading.role == "tool" or (reading.role == "agent" and _TOOL_NAME in attributes):
        _read_tool(span, reading, retrieval=str(kind).upper() == "RETRIEVER")
    elif reading.role == "agent":
        reading.name = attributes.get("agent.name") or attributes.get("graph.node.id")
        reading.agent = reading.name
        reading.input = values.text(attributes.get("input.value"))
        reading.output = values.text(attributes.get("output.value"))
    elif reading.role == "model":
        reading.asked = partial(messages.from_flat, attributes, "llm.input_messages", "message")
        reading.answered = partial(messages.from_flat, attributes, "llm.output_messages", "message")
        reading.tools = partial(_definitions, attributes)
    return reading


def _read_tool(span: SpanRecord, reading: Reading, *, retrieval: bool) -> None:
    attributes = span.attributes
    reading.role = "tool"
    reading.name = attributes.get(_TOOL_NAME) or span.name
    if retrieval:
        reading.kind = "retrieval"
    elif str(reading.name).startswith(_HANDOFFS):
        reading.kind = "handoff"
    reading.call_id = attributes.get("tool_call.id") or attributes.get("tool.id")
    reading.arguments = attributes.get("input.value", ABSENT)
    if reading.arguments is ABSENT and not _is_schema(attributes.get("tool.parameters")):
        reading.arguments = attributes.get("tool.parameters", ABSENT)
    reading.result = attributes.get("output.value", ABSENT)


def _is_schema(raw: Any) -> bool:
    read = values.plain(raw)
    return isinstance(read, Mapping) and ("properties" in read or read.get("type") == "object")


def _definitions(attributes: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    flat = {int(key.split(".")[2]): value for key, value in attributes.items() if _is_definition(key)}
    return messages.definitions([flat[number] for number in sorted(flat)])


def _is_definition(key: str) -> bool:
    return key.startswith("llm.tools.") and key.endswith(".tool.json_schema") and key.split(".")[2].isdigit()
