"""Confident AI and DeepEval: `confident.span.type` with `confident.span.input` and `.output`.

People set these on spans of their own, and DeepEval's integrations on those of frameworks.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from goldspan import semconv
from goldspan.extraction import values
from goldspan.extraction.convention import Convention, FromJson, Places
from goldspan.extraction.reading import Message, Messages, Reading, RequestedCall
from goldspan.model import ABSENT, SpanRecord, ToolDefinition

_TYPE = "confident.span.type"
_NAME = "confident.span.name"
_INPUT = "confident.span.input"
_OUTPUT = "confident.span.output"
_CALLED = "confident.span.tools_called"
_OFFERED = "confident.agent.available_tools"


def _refine(span: SpanRecord, reading: Reading) -> Reading:
    attributes = span.attributes
    if reading.role == "tool" and str(attributes.get(_TYPE)).lower() == "retriever":
        reading.kind = "retrieval"
    elif reading.role == "model":
        reading.answered = (*reading.answered, partial(_tools_called, attributes))
    elif reading.role == "agent":
        reading.agent = reading.name
        reading.tools = (*reading.tools, partial(_offered, attributes))
    return reading


def _tools_called(attributes: Mapping[str, Any]) -> Messages:
    """The calls that a model's span lists for a metric, each as JSON."""
    listed = values.plain(attributes.get(_CALLED))
    read = [values.plain(item) for item in listed] if isinstance(listed, (list, tuple)) else []
    calls = (item for item in read if isinstance(item, Mapping) and isinstance(item.get("name"), str))
    asked_for = tuple(RequestedCall(call["name"], call.get("input_parameters", ABSENT)) for call in calls)
    return (Message("assistant", calls=asked_for),) if asked_for else ()


def _offered(attributes: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    listed = values.plain(attributes.get(_OFFERED))
    names = listed if isinstance(listed, (list, tuple)) else ()
    return tuple(ToolDefinition(name) for name in names if isinstance(name, str) and name)


CONVENTION = Convention(
    name="confident",
    title="Confident AI (DeepEval)",
    source="https://github.com/confident-ai/deepeval (deepeval/tracing/otel/attributes.py)",
    versions="3 and 4",
    roles={_TYPE: {"tool": "tool", "retriever": "tool", "agent": "agent", "llm": "model"}},
    signs=("confident.trace.thread_id", "confident.trace.input", "confident.trace.output"),
    of={
        "tool": Places(
            name=("confident.tool.name", semconv.TOOL_NAME, _NAME),
            arguments=(_INPUT,),
            result=(_OUTPUT,),
            error=("confident.span.error",),
        ),
        "agent": Places(name=("confident.agent.name", _NAME), tools=("confident.agent.tool_definitions",)),
        "model": Places(asked=(FromJson(_INPUT),), answered=(FromJson(_OUTPUT),)),
    },
    everywhere=Places(
        input=("confident.trace.input", _INPUT),
        output=("confident.trace.output", _OUTPUT),
        session_id=("confident.trace.thread_id",),
    ),
    span_names={"tool": ("{name}",), "agent": ("{name}",)},
    refine=_refine,
    notes=("`confident.span.tools_called` on a model's span lists calls it asked for.",),
)
