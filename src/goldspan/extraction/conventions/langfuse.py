"""Langfuse: `langfuse.observation.type` with `langfuse.observation.input` and `.output`.

The name of a tool is the name of its span. Spans of other instrumentations that pass through Langfuse's processor get
some of its attributes as well, and are known by their own conventions first.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from goldspan.extraction import messages, values
from goldspan.extraction.convention import Convention, FromJson, Places
from goldspan.extraction.reading import Reading
from goldspan.model import SpanRecord, ToolDefinition

_TYPE = "langfuse.observation.type"
_INPUT = "langfuse.observation.input"
_OUTPUT = "langfuse.observation.output"
_TRACE_INPUT = "langfuse.trace.input"
_TRACE_OUTPUT = "langfuse.trace.output"
_LEVEL = "langfuse.observation.level"
_ROOT_MARKS = ("langfuse.internal.is_app_root", "langfuse.internal.as_root")


def _refine(span: SpanRecord, reading: Reading) -> Reading:
    attributes = span.attributes
    if reading.role == "tool":
        if attributes.get(_TYPE) == "retriever":
            reading.kind = "retrieval"
        if str(attributes.get(_LEVEL)).upper() == "ERROR":
            reading.error = str(attributes.get("langfuse.observation.status_message") or "error")
    elif reading.role == "model":
        reading.tools = (partial(_offered, attributes.get(_INPUT)),)
    elif reading.role == "agent":
        reading.name = reading.agent = span.name
    elif reading.role is None and _is_root(span) and values.request(reading.input).arguments:
        reading.role = "entry"
    return reading


def _offered(given: Any) -> tuple[ToolDefinition, ...]:
    """The tools a model was offered, beside its messages; LangChain's handler puts each among them as one."""
    read = values.plain(given)
    listed = read.get("tools") if isinstance(read, Mapping) else None
    if not listed and isinstance(read, list):
        said = (item.get("content") for item in read if isinstance(item, Mapping) and item.get("role") == "tool")
        listed = [content for content in said if isinstance(content, Mapping) and "function" in content]
    return messages.definitions(listed or ())


def _is_root(span: SpanRecord) -> bool:
    return any(str(span.attributes.get(mark)).lower() == "true" for mark in _ROOT_MARKS)


CONVENTION = Convention(
    name="langfuse",
    title="Langfuse",
    source="https://github.com/langfuse/langfuse-python, https://github.com/langfuse/langfuse-js",
    versions="SDKs 3 to 5 (Python), 4 and 5 (JavaScript)",
    roles={_TYPE: {"tool": "tool", "retriever": "tool", "agent": "agent", "generation": "model"}},
    signs=(*_ROOT_MARKS, _INPUT, _TRACE_INPUT, _TRACE_OUTPUT, "session.id", "langfuse.session.id"),
    of={
        "tool": Places(arguments=(_INPUT,), result=(_OUTPUT,)),
        "model": Places(asked=(FromJson(_INPUT),), answered=(FromJson(_OUTPUT),)),
    },
    everywhere=Places(
        input=(_TRACE_INPUT, _INPUT), output=(_TRACE_OUTPUT, _OUTPUT), session_id=("session.id", "langfuse.session.id")
    ),
    span_names={"tool": ("{name}",)},
    refine=_refine,
    notes=(
        "A tool observation of level `ERROR` failed, whatever the span's status is.",
        "The tools offered to a model stand in `tools` beside its messages, or among them with the role `tool`.",
        "An observation marked as the application's root is a request if it has an input.",
    ),
    content="capture_input=True, capture_output=True (LANGFUSE_OBSERVE_DECORATOR_IO_CAPTURE_ENABLED)",
)
