"""BeeAI, as its OpenInference instrumentation shows it: events within a piece of work are spans of the same kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goldspan.content import envelopes
from goldspan.conventions.openinference.specification import INPUT, TOOL_NAME
from goldspan.conventions.span_facts import RawValue, SpanFacts
from goldspan.model import SpanRecord

NOTES = (
    "BeeAI: a span with `metadata.path` marks an event inside its parent (a start, a retry), and is no call.",
    "BeeAI: a tool's arguments are the `input` that stands beside its `options`; `FinalAnswerTool` is a pseudo-tool.",
    "BeeAI: the `CHAIN` span of a workflow (`metadata.class_name`) is where an application is entered.",
)
_CLASS_NAME = "metadata.class_name"
_FINAL_ANSWER_TOOL = "FinalAnswerTool"
_EVENT_PATH = "metadata.path"
"""Where in the framework an event came from: pieces of work have `metadata.class_name` instead."""


def postprocess_event(span: SpanRecord, facts: SpanFacts) -> None:
    """Take the role from a span that only marks an event."""
    if _EVENT_PATH in span.attributes and TOOL_NAME not in span.attributes:
        facts.role = None


def postprocess_tool(span: SpanRecord, facts: SpanFacts) -> None:
    """Take a tool's arguments out of the call of BeeAI's own method, and tell the one that hands in the answer."""
    kind = span.attributes.get(_CLASS_NAME)
    if kind is not None and INPUT in span.attributes:
        facts.arguments = RawValue(span.attributes[INPUT], _unwrap_arguments)
    if kind == _FINAL_ANSWER_TOOL:
        facts.kind = "answer"


def postprocess_chain(span: SpanRecord, facts: SpanFacts) -> None:
    """A workflow is one request, however many agents work in it."""
    if str(span.attributes.get(_CLASS_NAME, "")).endswith("Workflow"):
        facts.role = "entry"


def _unwrap_arguments(value: Any) -> envelopes.CallArguments:
    is_run = isinstance(value, Mapping) and set(value) == {"input", "options"}
    return envelopes.unwrap_arguments(value["input"] if is_run else value)
