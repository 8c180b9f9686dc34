"""Langfuse: `langfuse.observation.type` with `langfuse.observation.input` and `.output`.

The name of a tool is the name of its span. Langfuse's span processor also adds some of its attributes to the spans of
other instrumentations; the conventions of those instrumentations take precedence.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from goldspan.content import envelopes, literals
from goldspan.content.tools import tool_definitions
from goldspan.conventions.convention import AttributeMap, Convention, FromJson
from goldspan.conventions.span_facts import SpanFacts
from goldspan.model import SpanRecord, ToolDefinition

_TYPE = "langfuse.observation.type"
_INPUT = "langfuse.observation.input"
_OUTPUT = "langfuse.observation.output"
_TRACE_INPUT = "langfuse.trace.input"
_TRACE_OUTPUT = "langfuse.trace.output"
_LEVEL = "langfuse.observation.level"
_ROOT_ATTRIBUTES = ("langfuse.internal.is_app_root", "langfuse.internal.as_root")


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts:
    attributes = span.attributes
    if facts.role == "tool":
        if attributes.get(_TYPE) == "retriever":
            facts.kind = "retrieval"
        if str(attributes.get(_LEVEL)).upper() == "ERROR":
            facts.error = str(attributes.get("langfuse.observation.status_message") or "error")
    elif facts.role == "model":
        facts.tool_definitions = (partial(_offered_tools, attributes.get(_INPUT)),)
    elif facts.role == "agent":
        facts.name = facts.agent = span.name
    elif facts.role is None and _is_root_span(span) and envelopes.unwrap_arguments(facts.input).arguments:
        facts.role = "entry"
    return facts


def _offered_tools(value: Any) -> tuple[ToolDefinition, ...]:
    """Return the tools offered to a model. LangChain's handler writes each of them as a message."""
    decoded = literals.plain_value(value)
    raw_tools = decoded.get("tools") if isinstance(decoded, Mapping) else None
    if not raw_tools and isinstance(decoded, list):
        contents = (item.get("content") for item in decoded if isinstance(item, Mapping) and item.get("role") == "tool")
        raw_tools = [content for content in contents if isinstance(content, Mapping) and "function" in content]
    return tool_definitions(raw_tools or ())


def _is_root_span(span: SpanRecord) -> bool:
    return any(str(span.attributes.get(mark)).lower() == "true" for mark in _ROOT_ATTRIBUTES)


CONVENTION = Convention(
    name="langfuse",
    title="Langfuse",
    source="https://github.com/langfuse/langfuse-python, https://github.com/langfuse/langfuse-js",
    versions="SDKs 3 to 5 (Python), 4 and 5 (JavaScript)",
    roles={_TYPE: {"tool": "tool", "retriever": "tool", "agent": "agent", "generation": "model"}},
    marker_attributes=(*_ROOT_ATTRIBUTES, _INPUT, _TRACE_INPUT, _TRACE_OUTPUT, "session.id", "langfuse.session.id"),
    attributes_by_role={
        "tool": AttributeMap(arguments=(_INPUT,), result=(_OUTPUT,)),
        "model": AttributeMap(input_messages=(FromJson(_INPUT),), output_messages=(FromJson(_OUTPUT),)),
    },
    common_attributes=AttributeMap(
        input=(_TRACE_INPUT, _INPUT), output=(_TRACE_OUTPUT, _OUTPUT), session_id=("session.id", "langfuse.session.id")
    ),
    span_name_templates={"tool": ("{name}",)},
    postprocess=_postprocess,
    notes=(
        "A tool observation of level `ERROR` failed, regardless of the span's status.",
        "The tools offered to a model are in `tools` next to its messages, or are messages with the role `tool`.",
        "An observation marked as the application's root is a request if it has an input.",
    ),
    capture_setting="capture_input=True, capture_output=True (LANGFUSE_OBSERVE_DECORATOR_IO_CAPTURE_ENABLED)",
)
