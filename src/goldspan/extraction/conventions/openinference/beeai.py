"""BeeAI, as its OpenInference instrumentation shows it: events within a piece of work are spans of the same kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goldspan.extraction import values
from goldspan.extraction.conventions.openinference.attributes import INPUT, TOOL_NAME
from goldspan.extraction.reading import Reading, Written
from goldspan.model import SpanRecord

NOTES = (
    "BeeAI: a span with `metadata.path` marks an event inside its parent (a start, a retry), and is no call.",
    "BeeAI: a tool's arguments are the `input` that stands beside its `options`; `FinalAnswerTool` is a pseudo-tool.",
    "BeeAI: the `CHAIN` span of a workflow (`metadata.class_name`) is where an application is entered.",
)
_CLASS = "metadata.class_name"
_ANSWER = "FinalAnswerTool"
_EVENT = "metadata.path"
"""Where in the framework an event came from: pieces of work have `metadata.class_name` instead."""


def refine(span: SpanRecord, reading: Reading) -> None:
    """Take the role from a span that only marks an event."""
    if _EVENT in span.attributes and TOOL_NAME not in span.attributes:
        reading.role = None


def refine_tool(span: SpanRecord, reading: Reading) -> None:
    """Take a tool's arguments out of the call of BeeAI's own method, and tell the one that hands in the answer."""
    kind = span.attributes.get(_CLASS)
    if kind is not None and INPUT in span.attributes:
        reading.arguments = Written(span.attributes[INPUT], _given)
    if kind == _ANSWER:
        reading.kind = "answer"


def refine_chain(span: SpanRecord, reading: Reading) -> None:
    """A workflow is one request, however many agents work in it."""
    if str(span.attributes.get(_CLASS, "")).endswith("Workflow"):
        reading.role = "entry"


def _given(value: Any) -> values.Request:
    is_run = isinstance(value, Mapping) and set(value) == {"input", "options"}
    return values.request(value["input"] if is_run else value)
