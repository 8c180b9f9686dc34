"""Agno, AutoGen and Instructor in OpenInference: frameworks with only a few rules each."""

from __future__ import annotations

from functools import partial

from goldspan.conventions.span_facts import SpanFacts
from goldspan.model import SpanRecord, ToolDefinition

AGNO_NOTES = ("Agno: the `CHAIN` span of a workflow (`agno.workflow.*`) starts a request.",)
_AGNO_WORKFLOW = ("agno.workflow.steps_count", "agno.workflow.steps", "agno.workflow.description")


def postprocess_agno_chain(span: SpanRecord, facts: SpanFacts) -> None:
    """Mark a workflow as a request. Its steps may contain several agents."""
    if any(key in span.attributes for key in _AGNO_WORKFLOW):
        facts.role = "entry"


AUTOGEN_NOTES = ("AutoGen: `llm.input_messages.N.function.N` holds the results of tools as JSON with `is_error`.",)


INSTRUCTOR_NOTES = (
    "Instructor: `instructor.response_model` names the schema of the model's answer. It is not a tool.",
    "Instructor: the `TOOL` spans `instructor.patch` and `handle_response_model` are internal steps, not tools.",
)
_INSTRUCTOR_SCOPE = "openinference.instrumentation.instructor"
_RESPONSE_MODEL = "instructor.response_model"


def postprocess_instructor_chain(span: SpanRecord, facts: SpanFacts) -> None:
    """Mark the response model as the answer, because the model's own span offers it as an ordinary tool."""
    response_model = span.attributes.get(_RESPONSE_MODEL)
    if isinstance(response_model, str):
        facts.tool_definitions = (partial(_answer_tool, response_model),)


def postprocess_instructor_tool(span: SpanRecord, facts: SpanFacts) -> None:
    """Remove the role of `TOOL` spans that are internal steps of Instructor before version 2."""
    if span.scope == _INSTRUCTOR_SCOPE:
        facts.role = facts.name = facts.span_name = facts.arguments = facts.result = None


def _answer_tool(response_model: str) -> tuple[ToolDefinition, ...]:
    # With a schema, even an empty one, this definition takes precedence over the one on the model's span inside.
    return (ToolDefinition(response_model, parameters={}, kind="answer"),)
