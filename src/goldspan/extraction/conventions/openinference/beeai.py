"""BeeAI, as its OpenInference instrumentation shows it: events within a piece of work are spans of the same kind."""

from __future__ import annotations

from goldspan.extraction.conventions.openinference.attributes import TOOL_NAME
from goldspan.extraction.reading import Reading
from goldspan.model import SpanRecord

NOTES = (
    "BeeAI: a span with `metadata.path` marks an event inside its parent (a start, a retry), and is no call.",
    "BeeAI: the `CHAIN` span of a workflow (`metadata.class_name`) is where an application is entered.",
)
_CLASS = "metadata.class_name"
_EVENT = "metadata.path"
"""Where in the framework an event came from: pieces of work have `metadata.class_name` instead."""


def refine(span: SpanRecord, reading: Reading) -> None:
    """Take the role from a span that only marks an event."""
    if _EVENT in span.attributes and TOOL_NAME not in span.attributes:
        reading.role = None


def refine_chain(span: SpanRecord, reading: Reading) -> None:
    """A workflow is one request, however many agents work in it."""
    if str(span.attributes.get(_CLASS, "")).endswith("Workflow"):
        reading.role = "entry"
