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
    if not run.trace_ids or run.span_id is None:
        return set_span_in_context(NonRecordingSpan(INVALID_SPAN_CONTEXT), Context())
    span = SpanContext(
        int(run.trace_ids[0], 16), int(run.span_id, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED)
    )
    return set_span_in_context(NonRecordingSpan(span), Context())
