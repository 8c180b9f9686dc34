"""What only Instructor does: it has the model fill in a form, which it offers as a tool of the form's name."""

from __future__ import annotations

from functools import partial

from goldspan.extraction.reading import Reading
from goldspan.model import SpanRecord, ToolDefinition

NOTES = (
    "`instructor.response_model` names the form that Instructor has the model fill in: an answer, and no tool.",
    "Its `TOOL` spans `instructor.patch` and `handle_response_model` are steps of Instructor, and no tools.",
)
_SCOPE = "openinference.instrumentation.instructor"
_FORM = "instructor.response_model"


def refine_chain(span: SpanRecord, reading: Reading) -> None:
    """Say of the form that it is the model's answer: the model's own span offers it as one tool among others."""
    form = span.attributes.get(_FORM)
    if isinstance(form, str):
        reading.tools = (partial(_offered, form),)


def refine_tool(span: SpanRecord, reading: Reading) -> None:
    """Before version 2 of Instructor, the `TOOL` spans of its instrumentation are steps around the model's own span."""
    if span.scope == _SCOPE:
        reading.role = reading.name = reading.span_name = reading.arguments = reading.result = None


def _offered(form: str) -> tuple[ToolDefinition, ...]:
    # With a schema, though one that says nothing, it counts before what the model's span says, which is inside.
    return (ToolDefinition(form, parameters={}, kind="answer"),)
