"""LlamaIndex's OpenTelemetry integration: spans named after methods, content in events and tags.

All spans inside a workflow step inherit the attributes `llamaindex.step.*`. They hold the `repr` of the event that
started the step, truncated after 200 characters. The events of a model's span hold its complete input and output.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from goldspan.content import envelopes, literals, messages
from goldspan.content.literals import parse_object
from goldspan.content.tools import tool_definitions
from goldspan.conventions.convention import Convention, FromEvents
from goldspan.conventions.span_facts import Messages, RawValue, SpanFacts
from goldspan.model import SpanRecord, ToolDefinition

HANDOFF_TOOL = "handoff"
"""Tool with which an agent of an `AgentWorkflow` hands a request off to another agent."""
_RUN_ID = "llamaindex.run_id"
_INPUT_EVENT = "llamaindex.step.input_event"
_INPUT_SUMMARY = "llamaindex.step.input_summary"
_TRUNCATION_MARK = "..."
_TOOL_SPAN_NAME = re.compile(r"\w+\.call_tool|\w*Tool\.a?call")
_CHAT_START_EVENT, _CHAT_END_EVENT, _OUTPUT_EVENT = "LLMChatStartEvent", "LLMChatEndEvent", "step.output"
_MESSAGE_PREFIX = "response.message."


def is_handoff(name: str | None, arguments: Any) -> bool:
    """Whether a call hands the request off to another agent of the workflow."""
    return name == HANDOFF_TOOL and isinstance(arguments, Mapping) and "to_agent" in arguments


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts | None:
    attributes = span.attributes
    if attributes.get(_INPUT_EVENT) == "ToolCall" and _TOOL_SPAN_NAME.fullmatch(span.name):
        return _postprocess_tool(span, facts)
    if _last_event(span, _CHAT_START_EVENT) or _last_event(span, _CHAT_END_EVENT):
        facts.role = "model"
        facts.input_messages = (partial(FromEvents((_CHAT_START_EVENT,), "messages"), span),)
        facts.output_messages = (partial(_output_messages, span),)
        facts.tool_definitions = (partial(_offered_tools, span),)
        return facts
    return None


def _postprocess_tool(span: SpanRecord, facts: SpanFacts) -> SpanFacts:
    summary = str(span.attributes.get(_INPUT_SUMMARY))
    event: Mapping[str, Any] = parse_object(summary, is_truncated=True) or {}
    name, call_id = event.get("tool_name"), event.get("tool_id")
    facts.role = "tool"
    facts.name = name if isinstance(name, str) else None
    facts.call_id = call_id if isinstance(call_id, str) else None
    arguments = event.get("tool_kwargs")
    if is_handoff(facts.name, arguments):
        facts.kind = "handoff"
    # A truncated summary may lack arguments or their end; the model's message has complete arguments.
    if isinstance(arguments, Mapping) and not summary.endswith(_TRUNCATION_MARK):
        facts.arguments = RawValue(arguments)
    output_event = _last_event(span, _OUTPUT_EVENT)
    output = None if output_event is None else output_event.get("output")
    if isinstance(output, str) and not output.endswith(_TRUNCATION_MARK):
        facts.result = RawValue(output, _unwrap_result)
    return facts


def _unwrap_result(value: Any) -> envelopes.CallResult:
    event = parse_object(value) if isinstance(value, str) else value
    return envelopes.unwrap_result(event.get("tool_output") if isinstance(event, Mapping) else value)


def _last_event(span: SpanRecord, name: str) -> Mapping[str, Any] | None:
    """Return the attributes of the last event with the name."""
    return next((event.attributes for event in reversed(span.events) if event.name == name), None)


def _output_messages(span: SpanRecord) -> Messages:
    """Return the model's last message. A streaming model also writes it into one event."""
    end_event = _last_event(span, _CHAT_END_EVENT) or {}
    message = {
        key.removeprefix(_MESSAGE_PREFIX): literals.plain_value(value)
        for key, value in end_event.items()
        if key.startswith(_MESSAGE_PREFIX)
    }
    message["tool_calls"] = message.get("additional_kwargs.tool_calls")
    return messages.from_json([message]) if "role" in message else ()


def _offered_tools(span: SpanRecord) -> tuple[ToolDefinition, ...]:
    return tool_definitions((_last_event(span, _CHAT_START_EVENT) or {}).get("additional_kwargs.tools"))


CONVENTION = Convention(
    name="llama_index",
    title="LlamaIndex OpenTelemetry",
    source="https://pypi.org/project/llama-index-observability-otel",
    versions="0.7",
    marker_attributes=(_RUN_ID, _INPUT_EVENT),
    postprocess=_postprocess,
    notes=(
        "`X.call_tool` and the tool's own `acall` inside it are one call. `llamaindex.step.input_summary` names it.",
        "A model's span has the events `LLMChatStartEvent` and `LLMChatEndEvent`, which hold messages and tools.",
        "LlamaIndex truncates values after about 200 characters; goldspan then uses the model's messages.",
        "The tool `handoff` with `to_agent` is a hand-off.",
    ),
)
