"""Google's Agent Development Kit, as its OpenInference instrumentation shows it."""

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
    "Google ADK: the `CHAIN` span `invocation [app]` is where an application is entered.",
    "Google ADK: an agent's name stands only in the name of its span, `agent_run [name]`.",
)
_INVOCATION_SPAN_NAME = re.compile(r"invocation \[.*\]", re.DOTALL)
_AGENT_SPAN_NAME = re.compile(r"agent_run \[(?P<name>.+)\]", re.DOTALL)
_RESPONSE_KEYS = frozenset({"id", "name", "response", "will_continue", "scheduling", "parts"})


def postprocess_chain(span: SpanRecord, facts: SpanFacts) -> None:
    """An invocation is one request, however many agents work in it."""
    if _INVOCATION_SPAN_NAME.fullmatch(span.name):
        facts.role, facts.input = "entry", None
        facts.input_messages = (partial(_new_message, span.attributes.get(INPUT)),)


def postprocess_agent(span: SpanRecord, facts: SpanFacts) -> None:
    """Find the name of an agent."""
    if facts.name is None and (hit := _AGENT_SPAN_NAME.fullmatch(span.name)):
        facts.name = facts.agent = hit["name"]


def unwrap_function_response(value: Any) -> CallResult | None:
    """The result of a tool as Gemini is told of it: `{"id", "name", "response": {...}}`."""
    if not isinstance(value, Mapping) or not {"name", "response"} <= set(value) <= _RESPONSE_KEYS:
        return None
    inner, call_id = value["response"], value.get("id")
    if isinstance(inner, Mapping) and set(inner) == {"result"}:
        inner = inner["result"]  # what ADK does to anything that is no dictionary
    return CallResult(literals.plain_value(inner), None if call_id is None else str(call_id))


def _new_message(input_value: Any) -> Messages:
    read = literals.plain_value(input_value)
    return messages.from_json(read.get("new_message")) if isinstance(read, Mapping) else ()
