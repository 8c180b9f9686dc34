"""The context of a span that has ended, so that events and exemplars point at it."""

from __future__ import annotations

from opentelemetry.context import Context
from opentelemetry.trace import (
    INVALID_SPAN_CONTEXT,
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    set_span_in_context,
)

from goldspan.model import Run


def context_of(run: Run) -> Context:
    """A context in which the run's span is the current one.

    Never empty, even where the run has no span: an empty context would be taken for the application's current one.
    """
    return set_span_in_context(NonRecordingSpan(_span_of(run)), Context())


def _span_of(run: Run) -> SpanContext:
    """The run's span, or none; runs that were made by hand may have ids that no span has."""
    try:
        trace_id, span_id = int(run.trace_ids[0], 16), int(run.span_id or "", 16)
    except (IndexError, ValueError):
        return INVALID_SPAN_CONTEXT
    span = SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    return span if span.is_valid else INVALID_SPAN_CONTEXT
