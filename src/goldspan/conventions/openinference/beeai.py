"""BeeAI in OpenInference: spans that only mark an event have the kind of their parent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goldspan.content import envelopes
from goldspan.conventions.openinference.specification import INPUT, TOOL_NAME
from goldspan.conventions.span_facts import RawValue, SpanFacts
from goldspan.model import SpanRecord

NOTES = (
    "BeeAI: a span with `metadata.path` marks an event inside its parent (a start, a retry). It is not a call.",
    "BeeAI: a tool's arguments are the key `input` next to the key `options`. `FinalAnswerTool` is a pseudo-tool.",
    "BeeAI: the `CHAIN` span of a workflow (`metadata.class_name`) starts a request.",
)
_CLASS_NAME = "metadata.class_name"
_FINAL_ANSWER_TOOL = "FinalAnswerTool"
_EVENT_PATH = "metadata.path"
"""Source of an event in the framework. Spans of tools, agents and models have `metadata.class_name` instead."""


def postprocess_event(span: SpanRecord, facts: SpanFacts) -> None:
    """Remove the role of a span that only marks an event."""
    if _EVENT_PATH in span.attributes and TOOL_NAME not in span.attributes:
        facts.role = None


def postprocess_tool(span: SpanRecord, facts: SpanFacts) -> None:
    """Unwrap a tool's arguments from the call of BeeAI's own method, and mark the tool that returns the answer."""
    kind = span.attributes.get(_CLASS_NAME)
    if kind is not None and INPUT in span.attributes:
        facts.arguments = RawValue(span.attributes[INPUT], _unwrap_arguments)
    if kind == _FINAL_ANSWER_TOOL:
        facts.kind = "answer"


def postprocess_chain(span: SpanRecord, facts: SpanFacts) -> None:
    """Mark a workflow as a request. A request may contain several agents."""
    if str(span.attributes.get(_CLASS_NAME, "")).endswith("Workflow"):
        facts.role = "entry"


def _unwrap_arguments(value: Any) -> envelopes.CallArguments:
    is_run = isinstance(value, Mapping) and set(value) == {"input", "options"}
    return envelopes.unwrap_arguments(value["input"] if is_run else value)
