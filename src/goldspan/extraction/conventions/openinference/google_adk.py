"""Google's Agent Development Kit, as its OpenInference instrumentation shows it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from goldspan.extraction import messages, values
from goldspan.extraction.conventions.openinference.attributes import INPUT
from goldspan.extraction.envelopes import Result
from goldspan.extraction.reading import Messages, Reading
from goldspan.model import SpanRecord

NOTES = (
    "Google ADK: the `CHAIN` span `invocation [app]` is where an application is entered.",
    "Google ADK: an agent's name stands only in the name of its span, `agent_run [name]`.",
)
_INVOCATION = re.compile(r"invocation \[.*\]", re.DOTALL)
_AGENT = re.compile(r"agent_run \[(?P<name>.+)\]", re.DOTALL)
_RESPONSE = frozenset({"id", "name", "response", "will_continue", "scheduling", "parts"})


def refine_chain(span: SpanRecord, reading: Reading) -> None:
    """An invocation is one request, however many agents work in it."""
    if _INVOCATION.fullmatch(span.name):
        reading.role, reading.input = "entry", None
        reading.asked = (partial(_question, span.attributes.get(INPUT)),)


def refine_agent(span: SpanRecord, reading: Reading) -> None:
    """Find the name of an agent."""
    if reading.name is None and (hit := _AGENT.fullmatch(span.name)):
        reading.name = reading.agent = hit["name"]


def function_response(value: Any) -> Result | None:
    """The result of a tool as Gemini is told of it: `{"id", "name", "response": {...}}`."""
    if not isinstance(value, Mapping) or not {"name", "response"} <= set(value) <= _RESPONSE:
        return None
    inner, call_id = value["response"], value.get("id")
    if isinstance(inner, Mapping) and set(inner) == {"result"}:
        inner = inner["result"]  # what ADK does to anything that is no dictionary
    return Result(values.plain(inner), None if call_id is None else str(call_id))


def _question(given: Any) -> Messages:
    read = values.plain(given)
    return messages.from_json(read.get("new_message")) if isinstance(read, Mapping) else ()
