"""LlamaIndex's own OpenTelemetry integration: spans named after methods, what happened in events and step tags.

A span says little itself: `llamaindex.step.*` are inherited by everything inside a step, and tell which event of the
workflow started it, as the `repr` of that event, cut off after 200 characters. What a model was asked and what it
answered stands in full in the events of its span.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from goldspan.extraction import messages, values
from goldspan.extraction.convention import Convention, FromEvents
from goldspan.extraction.notation import constructed
from goldspan.extraction.reading import Messages, Reading, Written
from goldspan.model import SpanRecord, ToolDefinition

HANDOFF = "handoff"
"""The tool by which an agent of an `AgentWorkflow` passes a request on to another one."""
_RUN = "llamaindex.run_id"
_EVENT = "llamaindex.step.input_event"
_SUMMARY = "llamaindex.step.input_summary"
_CUT_OFF = "..."
_TOOL = re.compile(r"\w+\.call_tool|\w*Tool\.a?call")
_ASKED, _ANSWERED, _RETURNED = "LLMChatStartEvent", "LLMChatEndEvent", "step.output"
_SAID = "response.message."


def is_handoff(name: str | None, arguments: Any) -> bool:
    """Whether a call passes the request on to another agent of the workflow."""
    return name == HANDOFF and isinstance(arguments, Mapping) and "to_agent" in arguments


def _refine(span: SpanRecord, reading: Reading) -> Reading | None:
    attributes = span.attributes
    if attributes.get(_EVENT) == "ToolCall" and _TOOL.fullmatch(span.name):
        return _tool(span, reading)
    if _happened(span, _ASKED) or _happened(span, _ANSWERED):
        reading.role = "model"
        reading.asked = (partial(FromEvents((_ASKED,), "messages"), span),)
        reading.answered = (partial(_answered, span),)
        reading.tools = (partial(_offered, span),)
        return reading
    return None


def _tool(span: SpanRecord, reading: Reading) -> Reading:
    summary = str(span.attributes.get(_SUMMARY))
    shown: Mapping[str, Any] = constructed(summary, cut_off=True) or {}
    name, call_id = shown.get("tool_name"), shown.get("tool_id")
    reading.role = "tool"
    reading.name = name if isinstance(name, str) else None
    reading.call_id = call_id if isinstance(call_id, str) else None
    arguments = shown.get("tool_kwargs")
    if is_handoff(reading.name, arguments):
        reading.kind = "handoff"
    # What was cut off may lack arguments, or their end: the model's message has them whole.
    if isinstance(arguments, Mapping) and not summary.endswith(_CUT_OFF):
        reading.arguments = Written(arguments)
    returned = _happened(span, _RETURNED)
    written = None if returned is None else returned.get("output")
    if isinstance(written, str) and not written.endswith(_CUT_OFF):
        reading.result = Written(written, _result)
    return reading


def _result(value: Any) -> values.Result:
    shown = constructed(value) if isinstance(value, str) else value
    return values.result(shown.get("tool_output") if isinstance(shown, Mapping) else value)


def _happened(span: SpanRecord, name: str) -> Mapping[str, Any] | None:
    """The attributes of the last event of a name."""
    return next((event.attributes for event in reversed(span.events) if event.name == name), None)


def _answered(span: SpanRecord) -> Messages:
    """The last message of the model: a streaming one tells it in one event as well."""
    told = _happened(span, _ANSWERED) or {}
    message = {key.removeprefix(_SAID): values.plain(value) for key, value in told.items() if key.startswith(_SAID)}
    message["tool_calls"] = message.get("additional_kwargs.tool_calls")
    return messages.from_json([message]) if "role" in message else ()


def _offered(span: SpanRecord) -> tuple[ToolDefinition, ...]:
    return messages.definitions((_happened(span, _ASKED) or {}).get("additional_kwargs.tools"))


CONVENTION = Convention(
    name="llama_index",
    title="LlamaIndex OpenTelemetry",
    source="https://pypi.org/project/llama-index-observability-otel",
    versions="0.7",
    signs=(_RUN, _EVENT),
    refine=_refine,
    notes=(
        "`X.call_tool`, and the tool's own `acall` inside it, are one call; `llamaindex.step.input_summary` names it.",
        "A model's span has the events `LLMChatStartEvent` and `LLMChatEndEvent`, with messages and tools.",
        "Arguments and results of more than some 200 characters are cut off: they come from the model's messages.",
        "The tool `handoff` with `to_agent` is a hand-off.",
    ),
)
