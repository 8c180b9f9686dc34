"""`ScoringProcessor`: a span processor that scores every run when its span ends."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence

from opentelemetry._logs import LoggerProvider
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span as ApiSpan
from opentelemetry.util.types import AttributeValue

from goldspan._guard import guard
from goldspan.capture import closing
from goldspan.capture.records import record_of
from goldspan.capture.sources import GoldensLike, goldens_from
from goldspan.errors import ConfigurationError
from goldspan.goldens import Goldens
from goldspan.model import SpanRecord
from goldspan.online import Assembly, Pipeline
from goldspan.online.assembly import DEFAULT_MAX_SPANS, DEFAULT_MAX_TRACES
from goldspan.scoring.metrics import MetricLike
from goldspan.sinks import EventSink, Losses, MetricSink, Sink, result_attributes

_STARTING = guard("take note of a span")
_SCORING = guard("score a run")

Results = dict[str, AttributeValue]

_at_work: weakref.WeakSet[ScoringProcessor] = weakref.WeakSet()


def at_work() -> bool:
    """Whether some scoring processor of this process has been made and not been shut down."""
    return len(_at_work) > 0


class ScoringProcessor(SpanProcessor):
    """Scores each run as its span ends: the outermost agent of a request, a component, or the local root.

    With `then` (an exporter, which gets a `BatchSpanProcessor` of its own, or another processor) every span is handed
    on in order and unchanged, except that a run's span is handed on as a copy with the results among its attributes.
    Without `then`, beside other processors of a provider, the results are put on the spans of `@goldspan.trace`
    functions just before these end. Either way they go to the `sinks`: by default events and metrics, through the given
    or the global logger and meter providers.

    `goldens` may be a path or several, `Goldens`, or a list of `Golden`; without any, the tools used and the metrics
    that need no golden still come out. Spans that are recorded but not sampled are scored too. Memory is bounded by
    `max_traces` and `max_spans` in flight.

    Raises `GoldspanError` when made wrongly. After that nothing that goes wrong in here reaches the application or
    keeps a span from being handed on.
    """

    def __init__(
        self,
        goldens: GoldensLike = None,
        *,
        then: SpanExporter | SpanProcessor | None = None,
        metrics: Iterable[MetricLike] | None = None,
        thresholds: Mapping[str, float] | None = None,
        sinks: Iterable[Sink] | None = None,
        logger_provider: LoggerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        golden_id_attributes: Sequence[str] | None = None,
        max_traces: int = DEFAULT_MAX_TRACES,
        max_spans: int = DEFAULT_MAX_SPANS,
    ) -> None:
        self._then = _processor(then)
        found = goldens_from(goldens)
        if sinks is None:
            sinks = (EventSink(logger_provider), MetricSink(meter_provider, vocabulary=_vocabulary(found)))
        self._pipeline = Pipeline(
            found,
            sinks=_checked(sinks),
            metrics=metrics,
            thresholds=thresholds,
            golden_id_attributes=golden_id_attributes,
        )
        self._reported = (0, 0)
        self._limits = (_positive("max_traces", max_traces), _positive("max_spans", max_spans))
        self._losses = Losses(meter_provider)
        self._forget()
        _forget_in_forked_children()
        if self._then is None:
            closing.register(self)
        _at_work.add(self)

    @property
    def goldens(self) -> Goldens:
        """What runs are judged by."""
        return self._pipeline.goldens

    @property
    def exports(self) -> bool:
        """Whether spans are handed on, so that the results of any run can be put on its span."""
        return self._then is not None

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Take note of where a span hangs."""
        try:
            with _STARTING:
                context, parent = span.context, span.parent
                with self._lock:
                    if parent is None:
                        self._assembly.started(context.trace_id, context.span_id, None, span)
                    else:
                        self._assembly.started(
                            context.trace_id, context.span_id, parent.span_id, span, remote=parent.is_remote
                        )
        finally:
            if self._then is not None:
                self._then.on_start(span, parent_context)

    def _on_ending(self, span: Span) -> None:
        # Private in the SDK and of no use to us; the processor behind may think otherwise.
        if self._then is not None:
            self._then._on_ending(span)

    def on_end(self, span: ReadableSpan) -> None:
        """Hand the span on, with its results if it is a run's."""
        results: Results = {}
        try:
            with _SCORING:
                results = self._take_in(span)
        finally:
            if self._then is not None:
                self._then.on_end(_enriched(span, results) if results else span)

    def closing(self, span: ApiSpan, end_ns: int) -> None:
        """Put the results of a run on its span just before it ends; see `closing.end`."""
        if isinstance(span, ReadableSpan) and self._knows(span):
            self._closed.add(span.context.span_id)
            span.set_attributes(self._score(span, record_of(span, end_ns)))

    def shutdown(self) -> None:
        """Stop scoring, and shut down the processor behind this one."""
        closing.unregister(self)
        _at_work.discard(self)
        if self._then is not None:
            self._then.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush the processor behind this one; nothing waits in here."""
        return self._then is None or self._then.force_flush(timeout_millis)

    def _take_in(self, span: ReadableSpan) -> Results:
        if self._closed and span.context.span_id in self._closed:
            self._closed.discard(span.context.span_id)
            return {}
        return self._score(span, record_of(span))

    def _score(self, span: ReadableSpan, record: SpanRecord) -> Results:
        """Score what ended with a span; the results of the runs that stand on the span itself."""
        with self._lock:
            ended = self._assembly.ended(span.context.trace_id, span.context.span_id, record)
            late, evicted = self._new_losses()
        if late or evicted:
            self._losses.add(late=late, evicted=evicted)
        results: Results = {}
        for portion in ended:  # outside the lock: scoring takes as long as it takes
            for evaluation in self._pipeline.conclude(portion):
                if evaluation.run.span_id == record.span_id:
                    results.update(result_attributes(evaluation))
        return results

    def _new_losses(self) -> tuple[int, int]:
        """What was lost since the last time; the lock is held."""
        late, evicted = self._reported
        self._reported = (self._assembly.late, self._assembly.evicted)
        return self._assembly.late - late, self._assembly.evicted - evicted

    def _knows(self, span: ReadableSpan) -> bool:
        with self._lock:
            return self._assembly.knows(span.context.trace_id, span.context.span_id)

    def _forget(self) -> None:
        max_traces, max_spans = self._limits
        self._lock = threading.Lock()
        self._assembly: Assembly[ReadableSpan] = Assembly(record_of, max_traces=max_traces, max_spans=max_spans)
        self._reported = (0, 0)
        self._closed: set[int] = set()


def _processor(then: object) -> SpanProcessor | None:
    if then is None or isinstance(then, SpanProcessor):
        return then
    if isinstance(then, SpanExporter):
        return BatchSpanProcessor(then)
    raise ConfigurationError(
        f"ScoringProcessor(then=...) takes a span exporter or a span processor, not {type(then).__name__}"
    )


def _checked(sinks: Iterable[Sink]) -> Iterator[Sink]:
    for sink in sinks:
        if not callable(getattr(sink, "submit", None)):
            raise ConfigurationError(f"a sink has a method submit(evaluation), and {type(sink).__name__} has none")
        yield sink


def _positive(name: str, value: int) -> int:
    if value < 1:
        raise ConfigurationError(f"{name} is a number of at least 1, not {value}")
    return value


def _vocabulary(goldens: Goldens) -> Iterator[str]:
    """The names of tools that goldens expect, then those they declare: of two spellings the later one is the label."""
    yield from (tool.name for golden in goldens for tool in golden.calls)
    yield from (tool.name for tool in goldens.vocabulary.tools)


def _enriched(span: ReadableSpan, results: Results) -> ReadableSpan:
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


@functools.cache
def _forget_in_forked_children() -> None:
    """A forked child inherits spans that will end in the parent, and perhaps a lock that nobody will release."""

    def forget() -> None:
        for processor in _at_work:
            processor._forget()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forget)
