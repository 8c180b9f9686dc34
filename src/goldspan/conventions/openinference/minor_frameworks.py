"""What only Instructor does: it has the model fill in a form, which it offers as a tool of the form's name."""

from __future__ import annotations

from functools import partial

from goldspan.conventions.span_facts import SpanFacts
from goldspan.model import SpanRecord, ToolDefinition

AGNO_NOTES = ("Agno: the `CHAIN` span of a workflow (`agno.workflow.*`) is where an application is entered.",)
_AGNO_WORKFLOW = ("agno.workflow.steps_count", "agno.workflow.steps", "agno.workflow.description")


def postprocess_agno_chain(span: SpanRecord, facts: SpanFacts) -> None:
    """A workflow is one request, however many agents work in its steps."""
    if any(key in span.attributes for key in _AGNO_WORKFLOW):
        facts.role = "entry"


AUTOGEN_NOTES = (
    "AutoGen: the results of tools stand as JSON in `llm.input_messages.N.function.N`, with an `is_error`.",
)


INSTRUCTOR_NOTES = (
    "`instructor.response_model` names the form that Instructor has the model fill in: an answer, and no tool.",
    "Its `TOOL` spans `instructor.patch` and `handle_response_model` are steps of Instructor, and no tools.",
)
_INSTRUCTOR_SCOPE = "openinference.instrumentation.instructor"
_RESPONSE_MODEL = "instructor.response_model"


def postprocess_instructor_chain(span: SpanRecord, facts: SpanFacts) -> None:
    """Say of the form that it is the model's answer: the model's own span offers it as one tool among others."""
    form = span.attributes.get(_RESPONSE_MODEL)
    if isinstance(form, str):
        facts.tool_definitions = (partial(_answer_tool, form),)


def postprocess_instructor_tool(span: SpanRecord, facts: SpanFacts) -> None:
    """Before version 2 of Instructor, the `TOOL` spans of its instrumentation are steps around the model's own span."""
    if span.scope == _INSTRUCTOR_SCOPE:
        facts.role = facts.name = facts.span_name = facts.arguments = facts.result = None


def _answer_tool(response_model: str) -> tuple[ToolDefinition, ...]:
    # With a schema, though one that says nothing, it counts before what the model's span says, which is inside.
    return (ToolDefinition(response_model, parameters={}, kind="answer"),)
