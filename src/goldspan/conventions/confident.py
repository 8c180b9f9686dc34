"""Confident AI and DeepEval: `confident.span.type` with `confident.span.input` and `.output`.

Applications set these attributes on their own spans; DeepEval's integrations set them on the spans of frameworks.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from goldspan import semconv
from goldspan.content import literals
from goldspan.conventions.convention import AttributeMap, Convention, FromJson
from goldspan.conventions.span_facts import Message, Messages, RequestedCall, SpanFacts
from goldspan.model import ABSENT, SpanRecord, ToolDefinition

_TYPE = "confident.span.type"
_NAME = "confident.span.name"
_INPUT = "confident.span.input"
_OUTPUT = "confident.span.output"
_TOOLS_CALLED = "confident.span.tools_called"
_AVAILABLE_TOOLS = "confident.agent.available_tools"


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts:
    attributes = span.attributes
    if facts.role == "tool" and str(attributes.get(_TYPE)).lower() == "retriever":
        facts.kind = "retrieval"
    elif facts.role == "model":
        facts.output_messages = (*facts.output_messages, partial(_requested_calls, attributes))
    elif facts.role == "agent":
        facts.agent = facts.name
        facts.tool_definitions = (*facts.tool_definitions, partial(_offered_tools, attributes))
    return facts


def _requested_calls(attributes: Mapping[str, Any]) -> Messages:
    """Return the calls that a model's span lists for a metric, each as JSON."""
    decoded = literals.plain_value(attributes.get(_TOOLS_CALLED))
    items = [literals.plain_value(item) for item in decoded] if isinstance(decoded, (list, tuple)) else []
    calls = (item for item in items if isinstance(item, Mapping) and isinstance(item.get("name"), str))
    requested = tuple(RequestedCall(call["name"], call.get("input_parameters", ABSENT)) for call in calls)
    return (Message("assistant", tool_calls=requested),) if requested else ()


def _offered_tools(attributes: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    decoded = literals.plain_value(attributes.get(_AVAILABLE_TOOLS))
    names = decoded if isinstance(decoded, (list, tuple)) else ()
    return tuple(ToolDefinition(name) for name in names if isinstance(name, str) and name)


CONVENTION = Convention(
    name="confident",
    title="Confident AI (DeepEval)",
    source="https://github.com/confident-ai/deepeval (deepeval/tracing/otel/attributes.py)",
    versions="3 and 4",
    roles={_TYPE: {"tool": "tool", "retriever": "tool", "agent": "agent", "llm": "model"}},
    marker_attributes=("confident.trace.thread_id", "confident.trace.input", "confident.trace.output"),
    attributes_by_role={
        "tool": AttributeMap(
            name=("confident.tool.name", semconv.TOOL_NAME, _NAME),
            arguments=(_INPUT,),
            result=(_OUTPUT,),
            error=("confident.span.error",),
        ),
        "agent": AttributeMap(
            name=("confident.agent.name", _NAME), tool_definitions=("confident.agent.tool_definitions",)
        ),
        "model": AttributeMap(input_messages=(FromJson(_INPUT),), output_messages=(FromJson(_OUTPUT),)),
    },
    common_attributes=AttributeMap(
        input=("confident.trace.input", _INPUT),
        output=("confident.trace.output", _OUTPUT),
        session_id=("confident.trace.thread_id",),
    ),
    span_name_templates={"tool": ("{name}",), "agent": ("{name}",)},
    postprocess=_postprocess,
    notes=("`confident.span.tools_called` on a model's span lists the calls that the model requested.",),
)
