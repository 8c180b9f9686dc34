"""Google's Agent Development Kit in OpenInference: span names identify requests and agents."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from goldspan.content import literals, messages
from goldspan.content.envelopes import CallResult
from goldspan.conventions.openinference.specification import INPUT
from goldspan.conventions.span_facts import Messages, SpanFacts
from goldspan.model import SpanRecord

NOTES = (
    "Google ADK: the `CHAIN` span `invocation [app]` starts a request.",
    "Google ADK: only the span's name, `agent_run [name]`, contains the agent's name.",
)
_INVOCATION_SPAN_NAME = re.compile(r"invocation \[.*\]", re.DOTALL)
_AGENT_SPAN_NAME = re.compile(r"agent_run \[(?P<name>.+)\]", re.DOTALL)
_RESPONSE_KEYS = frozenset({"id", "name", "response", "will_continue", "scheduling", "parts"})


def postprocess_chain(span: SpanRecord, facts: SpanFacts) -> None:
    """Mark an invocation as a request. A request may contain several agents."""
    if _INVOCATION_SPAN_NAME.fullmatch(span.name):
        facts.role, facts.input = "entry", None
        facts.input_messages = (partial(_new_message, span.attributes.get(INPUT)),)


def postprocess_agent(span: SpanRecord, facts: SpanFacts) -> None:
    """Read the agent's name from the span's name."""
    if facts.name is None and (match := _AGENT_SPAN_NAME.fullmatch(span.name)):
        facts.name = facts.agent = match["name"]


def unwrap_function_response(value: Any) -> CallResult | None:
    """Unwrap a tool's result from the message to Gemini: `{"id", "name", "response": {...}}`."""
    if not isinstance(value, Mapping) or not {"name", "response"} <= set(value) <= _RESPONSE_KEYS:
        return None
    inner, call_id = value["response"], value.get("id")
    if isinstance(inner, Mapping) and set(inner) == {"result"}:
        inner = inner["result"]  # ADK wraps every value that is not a dictionary
    return CallResult(literals.plain_value(inner), None if call_id is None else str(call_id))


def _new_message(input_value: Any) -> Messages:
    decoded = literals.plain_value(input_value)
    return messages.from_json(decoded.get("new_message")) if isinstance(decoded, Mapping) else ()
