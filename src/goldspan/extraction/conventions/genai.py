"""OpenTelemetry GenAI semantic conventions, all published versions: `gen_ai.*` on spans.

Agents: `invoke_agent`; tools: `execute_tool`; model calls: `chat`, `generate_content`, `text_completion`. Messages
stand in `gen_ai.input.messages` and `gen_ai.output.messages`, as JSON text or as structured attributes.
Source: the span and event pages of the OpenTelemetry semantic conventions for generative AI.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from goldspan import semconv
from goldspan.extraction import messages
from goldspan.extraction.reading import Reading, Role
from goldspan.model import ABSENT, SpanRecord, ToolKind

_ROLES: dict[str, Role] = {
    "execute_tool": "tool",
    "handoff": "tool",
    "invoke_agent": "agent",
    "invoke_workflow": "entry",
    "chat": "model",
    "generate_content": "model",
    "text_completion": "model",
    "create_agent": "aside",
}
_KINDS: dict[str, ToolKind] = {"datastore": "retrieval"}
_HISTORY = "pydantic_ai.all_messages"
_FINAL = "final_result"


def read(span: SpanRecord) -> Reading | None:
    """Read a span that names its GenAI operation or carries the conversation it belongs to."""
    attributes = span.attributes
    operation = attributes.get(semconv.OPERATION)
    session = attributes.get(semconv.CONVERSATION_ID)
    if operation is None and session is None:
        return None
    reading = Reading(
        role=_ROLES.get(str(operation)),
        agent=attributes.get(semconv.AGENT_NAME),
        session_id=session,
        tools=partial(messages.definitions, attributes.get(semconv.TOOL_DEFINITIONS)),
    )
    if reading.role == "tool":
        _read_tool(span, reading, handoff=operation == "handoff")
    elif reading.role in ("agent", "entry", "model"):
        reading.name = reading.agent
        _read_conversation(attributes, reading)
    return reading


def _read_tool(span: SpanRecord, reading: Reading, *, handoff: bool) -> None:
    attributes = span.attributes
    reading.name = attributes.get(semconv.TOOL_NAME) or span.name.removeprefix("execute_tool ")
    reading.kind = "handoff" if handoff else _KINDS.get(str(attributes.get(semconv.TOOL_TYPE)), "tool")
    reading.call_id = attributes.get(semconv.TOOL_CALL_ID)
    reading.arguments = attributes.get(semconv.TOOL_CALL_ARGUMENTS, ABSENT)
    reading.result = attributes.get(semconv.TOOL_CALL_RESULT, ABSENT)


def _read_conversation(attributes: Any, reading: Reading) -> None:
    asked = attributes.get(semconv.INPUT_MESSAGES)
    if asked is None:
        asked = attributes.get(_HISTORY)
    reading.asked = partial(messages.from_json, asked)
    reading.answered = partial(messages.from_json, attributes.get(semconv.OUTPUT_MESSAGES))
    final = attributes.get(_FINAL)
    reading.output = final if isinstance(final, str) else None
