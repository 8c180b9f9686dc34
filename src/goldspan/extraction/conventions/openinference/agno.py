"""Agno, as its OpenInference instrumentation shows it."""

from __future__ import annotations

from goldspan.extraction.reading import Reading
from goldspan.model import SpanRecord

NOTES = ("Agno: the `CHAIN` span of a workflow (`agno.workflow.*`) is where an application is entered.",)
_WORKFLOW = ("agno.workflow.steps_count", "agno.workflow.steps", "agno.workflow.description")


def refine_chain(span: SpanRecord, reading: Reading) -> None:
    """A workflow is one request, however many agents work in its steps."""
    if any(key in span.attributes for key in _WORKFLOW):
        reading.role = "entry"
