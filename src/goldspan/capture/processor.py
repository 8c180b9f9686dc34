"""`ScoringProcessor`: a span processor that scores every run when its span ends."""

from __future__ import annotations

import functools
import os
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from opentelemetry._logs import LoggerProvider
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span as ApiSpan
from opentelemetry.util.types import AttributeValue

from goldspan import semconv
from goldspan._guard import guard
from goldspan.capture import closing
from goldspan.capture.annotations import expected_attributes
from goldspan.capture.records import record_of
from goldspan.capture.sources import GoldensLike, goldens_from, now, tool_names
from goldspan.errors import ConfigurationError
from goldspan.goldens import Goldens
from goldspan.model import SpanRecord, Unit
from goldspan.online import Limits, Pipeline, Scorer, Worker, check_units
from goldspan.scoring.metrics import MetricLike
from goldspan.sinks import EventSink, Losses, MetricSink, SinkLike, as_sink, flush, result_attributes, shutdown

if TYPE_CHECKING:
    from goldspan.online.sampling import Sampling
    from goldspan.sinks import Redact

_STARTING = guard("take note of a span")
_SCORING = guard("score a run")

_PATIENCE_S = 30.0
"""How long `shutdown` waits for what is under way."""
_USUAL_LIMITS = Limits()
_IDLE_STARTS = (SpanProcessor.on_start, BatchSpanProcessor.on_start)
"""Those of processors that do nothing when a span starts."""

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

    Where spans are exported in batches anyway, they are scored, and handed on, by a thread of their own, and the
    application only leaves them there; `force_flush` waits for it. Otherwise, or with `background=False`, a run is
    scored on the thread that ends its span.

    `goldens` may be a path or several, `Goldens`, or a list of `Golden`; without any, the tools used and the metrics
    that need no golden still come out. Files are looked at every `reload` seconds, and read again when they change.
    `redact` makes of each evaluation what may leave the process. `sampling` says which runs are scored, `budget` how
    many seconds the metrics of one may take, `units` what is scored. Spans that are recorded but not sampled are scored
    too. Memory is bounded by `limits`.

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
        sinks: Iterable[SinkLike] | None = None,
        logger_provider: LoggerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        golden_id_attributes: Sequence[str] | None = None,
        units: Sequence[Unit] = ("request", "component"),
        redact: Redact | None = None,
        sampling: Sampling | None = None,
        budget: float | None = None,
        background: bool | None = None,
        reload: float | None = 1.0,
        limits: Limits = _USUAL_LIMITS,
    ) -> None:
        self._then = _processor(then)
        self._tells_starts = self._then is not None and type(self._then).on_start not in _IDLE_STARTS
        found = goldens_from(goldens, reload=_seconds("reload", reload))
        if sinks is None:
            sinks = (EventSink(logger_provider), MetricSink(meter_provider, vocabulary=tool_names(now(found))))
        pipeline = Pipeline(
            found,
            sinks=[as_sink(sink) for sink in sinks],
            metrics=metrics,
            thresholds=thresholds,
            golden_id_attributes=golden_id_attributes,
            units=check_units(units),
            redact=redact,
            sampling=sampling,
            budget=_seconds("budget", budget),
        )
        self._scorer: Scorer[ReadableSpan] = Scorer(pipeline, record_of, limits, Losses(meter_provider))
        self._worker: Worker[tuple[ReadableSpan, bool]] = Worker(
            self._work, self._scorer.look, max_queue=limits.max_queue
        )
        self._in_background = _exports_in_batches(self._then) if background is None else background
        self._closed: set[int] = set()
        _forget_in_forked_children()
        if self._then is None and not self._in_background:
            closing.register(self)
        _at_work.add(self)

    @property
    def goldens(self) -> Goldens:
        """What runs are judged by."""
        return self._scorer.pipeline.goldens

    @property
    def exports(self) -> bool:
        """Whether spans are handed on, so that the results of any run can be put on its span."""
        return self._then is not None

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Take note of where a span hangs, and write down what is expected of it."""
        # This is on the application's time, and a guard costs some of it even where there is nothing to guard against.
        try:
            expected = expected_attributes(parent_context, span.parent)
            if expected is not None:
                span.set_attributes(expected)
            if not self._in_background:
                self._started(span)
                self._watch()
            elif not self._worker.put((span, False)):
                self._scorer.shed(span.context.trace_id)
        except Exception:  # the guard says what becomes of it
            with _STARTING:
                raise
        finally:
            if self._tells_starts:
                self._then.on_start(span, parent_context)  # type: ignore[union-attr]

    def _on_ending(self, span: Span) -> None:
        # Private in the SDK and of no use to us; the processor behind may think otherwise.
        if self._then is not None:
            self._then._on_ending(span)

    def on_end(self, span: ReadableSpan) -> None:
        """Hand the span on, with its results if it is a run's; at once, or as soon as the background comes to it."""
        if not self._in_background:
            self._end(span)
        elif not self._worker.put((span, True)):
            self._scorer.shed(span.context.trace_id)
            if self._then is not None:
                self._then.on_end(span)

    def closing(self, span: ApiSpan, end_ns: int) -> None:
        """Put the results of a run on its span just before it ends; see `closing.end`."""
        if isinstance(span, ReadableSpan) and self._scorer.knows(span.context.trace_id, span.context.span_id):
            self._closed.add(span.context.span_id)
            span.set_attributes(self._score(span, record_of(span, end_ns)))

    def shutdown(self) -> None:
        """Score what is there, and stop; then shut down the sinks and the processor behind this one."""
        if self not in _at_work:
            return
        closing.unregister(self)
        _at_work.discard(self)
        self._worker.stop(_PATIENCE_S)
        with _SCORING:
            self._scorer.release()
        self._scorer.pipeline.close()
        shutdown(self._scorer.pipeline.sinks)
        if self._then is not None:
            self._then.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Wait until everything that has ended is scored and handed on, and has left; whether that was in time."""
        until = time.monotonic() + timeout_millis / 1000
        done = self._worker.flush(timeout_millis / 1000)
        with _SCORING:
            self._scorer.look(everything=True)
        done = flush(self._scorer.pipeline.sinks, _left(until)) and done
        return (self._then is None or self._then.force_flush(_left(until))) and done

    def _work(self, seen: tuple[ReadableSpan, bool]) -> None:
        """What the worker does with a span that was left to it."""
        span, ended = seen
        if ended:
            self._end(span)
        else:
            with _STARTING:
                self._started(span)

    def _started(self, span: ReadableSpan) -> None:
        context, parent = span.context, span.parent
        if _is_ours(span):
            return
        if parent is None:
            self._scorer.started(context.trace_id, context.span_id, None, span)
        else:
            self._scorer.started(context.trace_id, context.span_id, parent.span_id, span, remote=parent.is_remote)

    def _end(self, span: ReadableSpan) -> None:
        results: Results = {}
        try:
            with _SCORING:
                results = self._take_in(span)
        finally:
            if self._then is not None:
                self._then.on_end(_enriched(span, results) if results else span)

    def _take_in(self, span: ReadableSpan) -> Results:
        if _is_ours(span):
            return {}
        if self._closed and span.context.span_id in self._closed:
            self._closed.discard(span.context.span_id)
            return {}
        return self._score(span, record_of(span))

    def _score(self, span: ReadableSpan, record: SpanRecord) -> Results:
        """Score what ended with a span; the results of the runs that stand on the span itself."""
        results: Results = {}
        for evaluation in self._scorer.ended(span.context.trace_id, span.context.span_id, record):
            if evaluation.run.span_id == record.span_id:
                results.update(result_attributes(evaluation))
        return results

    def _watch(self) -> None:
        """See to it that deadlines are looked at."""
        if self._worker.asleep:
            self._worker.wake()

    def _forget(self) -> None:
        self._worker.forget()
        self._scorer.forget()
        self._closed = set()


def _processor(then: object) -> SpanProcessor | None:
    if then is None or isinstance(then, SpanProcessor):
        return then
    if isinstance(then, SpanExporter):
        return BatchSpanProcessor(then)
    raise ConfigurationError(
        f"ScoringProcessor(then=...) takes a span exporter or a span processor, not {type(then).__name__}"
    )


def _exports_in_batches(then: SpanProcessor | None) -> bool:
    """Whether spans leave later anyway, so that nobody waits for results when a span ends."""
    inner = getattr(then, "_span_processors", None)  # how the SDK's own composites keep theirs
    if inner:
        return all(map(_exports_in_batches, inner))
    return isinstance(then, BatchSpanProcessor)


def _is_ours(span: ReadableSpan) -> bool:
    """Whether it is an evaluation put down as a span, which is nobody's work."""
    scope = span.instrumentation_scope
    return scope is not None and scope.name == "goldspan" and semconv.EVALUATION_MARK in (span.attributes or {})


def _seconds(name: str, value: float | None) -> float | None:
    if value is not None and not value > 0:
        raise ConfigurationError(f"{name} is a number of seconds above 0, not {value!r}")
    return value


def _left(until: float) -> int:
    """Milliseconds from now."""
    return max(0, int((until - time.monotonic()) * 1000))


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
