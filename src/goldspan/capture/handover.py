"""How spans go on to whatever stands behind a `ScoringProcessor`."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.util.types import AttributeValue

from goldspan.capture.options import one_of
from goldspan.errors import ConfigurationError
from goldspan.online.sampling import ExportSampling

_IDLE_STARTS = (SpanProcessor.on_start, BatchSpanProcessor.on_start)
"""Those of processors that do nothing when a span starts."""


def processor_for(then: object) -> SpanProcessor | None:
    """What spans are handed to: the processor given, or a batch processor of the exporter given.

    Raises `ConfigurationError` for anything else.
    """
    if then is None or isinstance(then, SpanProcessor):
        return then
    if isinstance(then, SpanExporter):
        return BatchSpanProcessor(then)
    raise ConfigurationError(
        f"ScoringProcessor(then=...) takes a span exporter or a span processor, not {type(then).__name__}"
    )


def exports_in_batches(then: SpanProcessor | None) -> bool:
    """Whether spans leave later anyway, so that nobody waits for results when a span ends."""
    inner = getattr(then, "_span_processors", None)  # how the SDK's own composites keep theirs
    if inner:
        return all(map(exports_in_batches, inner))
    return isinstance(then, BatchSpanProcessor)


def hears_starts(then: SpanProcessor | None) -> bool:
    """Whether it makes a difference to a processor that a span starts."""
    return then is not None and type(then).on_start not in _IDLE_STARTS


def enriched(span: ReadableSpan, results: Mapping[str, AttributeValue]) -> ReadableSpan:
    """A copy of an ended span with more attributes; the limit on their number has done its work before."""
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes={**(span.attributes or {}), **results},
        events=span.events,
        links=span.links,
        kind=span.kind,
        status=span.status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def sampled(then: SpanProcessor | None, sampling: ExportSampling) -> SpanProcessor:
    """What is handed only the traces to be exported. Raises `ConfigurationError` where nothing is handed on at all."""
    if then is None:
        raise ConfigurationError(
            "export= (GOLDSPAN_EXPORT_SAMPLE) needs then=, or OTEL_TRACES_EXPORTER=goldspan with "
            "GOLDSPAN_THEN_EXPORTER: what others at the same provider export is not its to choose"
        )
    return _Sampled(then, one_of("export", sampling, ExportSampling, "an ExportSampling"))


class _Sampled(SpanProcessor):
    """Hands on the spans of the traces that are to be exported, and of no other."""

    def __init__(self, then: SpanProcessor, sampling: ExportSampling) -> None:
        self._then = then
        self._exports = sampling.exports

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Hand a start on."""
        if self._exports(span.context.trace_id):
            self._then.on_start(span, parent_context)

    def _on_ending(self, span: Span) -> None:
        if self._exports(span.context.trace_id):
            self._then._on_ending(span)

    def on_end(self, span: ReadableSpan) -> None:
        """Hand a span on."""
        if self._exports(span.context.trace_id):
            self._then.on_end(span)

    def shutdown(self) -> None:
        """Shut down the processor behind."""
        self._then.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush the processor behind."""
        return self._then.force_flush(timeout_millis)
