"""`ScoringProcessor`: a span processor that scores every run when its span ends."""

from __future__ import annotations

import atexit
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from opentelemetry._logs import LoggerProvider
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.sdk.trace import Event, ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.trace import Span as ApiSpan
from opentelemetry.trace import StatusCode
from opentelemetry.util.types import AttributeValue

from goldspan import semconv
from goldspan._guard import suppress_errors
from goldspan.capture import annotations as saying
from goldspan.capture import call_spans, processor_options
from goldspan.capture.annotations import expected_attributes
from goldspan.capture.processor_options import (
    GoldensLike,
    check_option_types,
    default_sinks,
    require_judge,
    require_list,
    require_seconds,
    resolve_goldens,
)
from goldspan.capture.threads import carry_context_for, stop_carrying_context_for
from goldspan.goldens import Goldens
from goldspan.model import RunUnit, SpanEvent, SpanRecord, SpanStatus, UnknownPolicy
from goldspan.online import BackgroundWorker, Limits, Pipeline, Scorer, check_units
from goldspan.online.sampling import ExportSampling, Sampling
from goldspan.scoring.metrics import MetricLike
from goldspan.sinks import DropCounters, SinkLike, as_sink, flush_all, result_attributes, shutdown_all
from goldspan.sinks.fork_safety import renew_after_fork

if TYPE_CHECKING:
    from goldspan.judge.judge import Judge
    from goldspan.sinks import Redact, Sink

_STATUS_BY_CODE: dict[StatusCode, SpanStatus] = {
    StatusCode.UNSET: "unset",
    StatusCode.OK: "ok",
    StatusCode.ERROR: "error",
}


def to_span_record(span: ReadableSpan, end_ns: int | None = None) -> SpanRecord:
    """The record of a span: of one that ended, or of a live one as it is now, ending (if at all) at `end_ns`.

    How much a record can hold is bounded by the span limits of the SDK; the attributes are copied once, and not at all
    deeply, because the SDK has made them immutable.
    """
    context, parent, status = span.context, span.parent, span.status
    scope = span.instrumentation_scope
    return SpanRecord(
        trace_id=format(context.trace_id, "032x"),
        span_id=format(context.span_id, "016x"),
        parent_id=format(parent.span_id, "016x") if parent is not None else None,
        name=span.name,
        attributes=_copy_attributes(span.attributes),
        start_ns=span.start_time,
        end_ns=span.end_time if end_ns is None else end_ns,
        status=_STATUS_BY_CODE[status.status_code],
        status_message=status.description or "",
        events=tuple(map(_to_span_event, span.events)),
        kind=span.kind.value + 1,
        scope=scope.name if scope is not None else "",
        resource=span.resource.attributes,
        dropped_attributes=span.dropped_attributes,
    )


def _to_span_event(event: Event) -> SpanEvent:
    return SpanEvent(event.name, _copy_attributes(event.attributes), event.timestamp)


def _copy_attributes(attributes: Mapping[str, Any] | None) -> Mapping[str, Any]:
    # The SDK's mapping has a `copy` that is seven times as fast as going through it key by key.
    if not attributes:
        return {}
    copy = getattr(attributes, "copy", None)
    return copy() if copy is not None else dict(attributes)


_STARTING = suppress_errors("take note of a span")
_SCORING = suppress_errors("score a run")

_SHUTDOWN_TIMEOUT_S = 30.0
"""How long `shutdown` waits for what is under way."""
_DEFAULT_LIMITS = Limits()

ResultAttributes = dict[str, AttributeValue]
_QueueItem: TypeAlias = "ReadableSpan | tuple[ReadableSpan]"
"""A span that started; or one that ended, in a tuple: an ended span may be the same object, and one is made sooner."""

_active_processors: weakref.WeakSet[ScoringProcessor] = globals().get("_active_processors", weakref.WeakSet())
"""They go on where somebody loads this module again, as is done in notebooks."""


def has_active_processor() -> bool:
    """Whether some scoring processor of this process has been made and not been shut down."""
    return len(_active_processors) > 0


class ScoringProcessor(SpanProcessor):
    """Scores each run as its span ends: the outermost agent of a request, a component, or the local root.

    With `then` (an exporter, which gets a `BatchSpanProcessor` of its own, or another processor) every span is handed
    on in order and unchanged, except that a run's span is handed on as a copy with the results among its attributes.
    Without `then`, beside other processors of a provider, the results are put on the spans of `@goldspan.trace`
    functions just before these end. `attributes=False` leaves all spans as they are. Either way results go to the
    `sinks`: by default events, metrics and figures, through the given or the global logger and meter providers.

    Where spans are exported in batches anyway, they are scored, and handed on, by a thread of their own, and the
    application only leaves them there; `force_flush` waits for it. Otherwise, or with `background=False`, a run is
    scored on the thread that ends its span.

    `goldens` may be a path or several, `Goldens`, or a list of `Golden`; without any, the tools used and the metrics
    that need no golden still come out. Files are looked at every `reload` seconds, and read again when they change.
    `redact` makes of each evaluation what may leave the process. `sampling` says which runs are scored, `budget` how
    many seconds the metrics of one may take, `units` what is scored. `unknown` says, in place of the goldens, what
    becomes of a run of which something stated cannot be judged: `not_evaluated`, `ignore` or `fail`. Spans that are
    recorded but not sampled are scored too. A `judge` is asked about runs on a thread of its own, and what it says is a
    later revision, which no span has.
    `export` says which traces are handed on: all are scored. Memory is bounded by `limits`.

    Unless `threads` is false, threads and thread pools keep the context they were started in, so that tools run there
    stay part of their request. What is in flight when the program ends is scored before the providers that were made
    earlier than the first span are shut down.

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
        unknown: UnknownPolicy | None = None,
        sinks: Iterable[SinkLike] | None = None,
        attributes: bool = True,
        logger_provider: LoggerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        golden_id_attributes: Sequence[str] | None = None,
        units: Sequence[RunUnit] = ("request", "component"),
        redact: Redact | None = None,
        sampling: Sampling | None = None,
        export: ExportSampling | None = None,
        budget: float | None = None,
        judge: Judge | None = None,
        background: bool | None = None,
        threads: bool = True,
        reload: float | None = 1.0,
        limits: Limits = _DEFAULT_LIMITS,
    ) -> None:
        behind = processor_options.downstream_processor(then)
        self._downstream = behind if export is None else processor_options.sample_exports(behind, export)
        self._forwards_starts = processor_options.handles_span_start(behind)
        check_option_types(
            limits=limits, thresholds=thresholds, redact=redact, sampling=sampling, logger_provider=logger_provider
        )
        check_option_types(unknown=unknown)
        check_option_types(meter_provider=meter_provider, background=background, threads=threads, attributes=attributes)
        found = resolve_goldens(goldens, reload=require_seconds("reload", reload))
        if sinks is None:
            sinks = default_sinks(logger_provider, meter_provider)
        pipeline = Pipeline(
            found,
            sinks=[as_sink(sink) for sink in require_list("sinks", sinks)],
            metrics=None if metrics is None else require_list("metrics", metrics),
            thresholds=thresholds,
            unknown=unknown,
            golden_id_attributes=(
                None if golden_id_attributes is None else require_list("golden_id_attributes", golden_id_attributes)
            ),
            units=check_units(require_list("units", units)),
            redact=redact,
            sampling=sampling,
            budget=require_seconds("budget", budget),
            judge=require_judge(judge),
        )
        self._scorer: Scorer[ReadableSpan] = Scorer(pipeline, to_span_record, limits, DropCounters(meter_provider))
        self._worker: BackgroundWorker[_QueueItem] = BackgroundWorker(
            self._process_item, self._scorer.check_deadlines, max_queue=limits.max_queue
        )
        self._enqueue = self._worker.put
        self._in_background = processor_options.exports_in_batches(behind) if background is None else background
        self._attributes = attributes
        self._has_seen_span = False
        self._stopped = False
        self._scored_before_end: set[int] = set()
        renew_after_fork(self)
        if attributes and self._downstream is None and not self._in_background:
            call_spans.add_span_end_listener(self)
        _active_processors.add(self)
        if threads:
            carry_context_for(self)

    @property
    def goldens(self) -> Goldens:
        """What runs are judged by."""
        return self._scorer.pipeline.goldens

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """Where evaluations go."""
        return self._scorer.pipeline.sinks

    @property
    def annotated_spans(self) -> Literal["runs", "traced", "none"]:
        """On which spans results are put: those of all runs, of `@goldspan.trace` functions alone, or none."""
        if not self._attributes:
            return "none"
        return "runs" if self._downstream is not None else "none" if self._in_background else "traced"

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Take note of where a span hangs, and write down what is expected of it."""
        # This is on the application's time, and a guard costs some of it even where there is nothing to guard against.
        try:
            parent = span.parent
            if parent is None or parent.is_remote or saying.has_expectations:
                self._set_expected_attributes(span, parent_context)
            if not self._in_background:
                self._record_start(span)
                self._wake_worker()
            elif not self._enqueue(span):
                self._record_shed(span, spans=1)
        except Exception:  # the guard says what becomes of it
            with _STARTING:
                raise
        finally:
            if self._forwards_starts:
                self._downstream.on_start(span, parent_context)  # type: ignore[union-attr]

    def _set_expected_attributes(self, span: Span, parent_context: Context | None) -> None:
        if not self._has_seen_span:
            self._register_exit_handler()
        expected = expected_attributes(parent_context, span.parent)
        if expected is not None:
            span.set_attributes(expected)

    def _on_ending(self, span: Span) -> None:
        # Private in the SDK and of no use to us; the processor behind may think otherwise.
        if self._downstream is not None:
            self._downstream._on_ending(span)

    def on_end(self, span: ReadableSpan) -> None:
        """Hand the span on, with its results if it is a run's; at once, or as soon as the background comes to it."""
        if not self._in_background:
            self._record_end(span)
        elif not self._enqueue(span if type(span) is ReadableSpan else (span,)):
            self._record_shed(span, spans=0)  # it counts where its start is met
            if self._downstream is not None:
                self._downstream.on_end(span)

    def before_span_end(self, span: ApiSpan, end_ns: int) -> None:
        """Put the results of a run on its span just before it ends; see `closing.end`."""
        if isinstance(span, ReadableSpan) and self._scorer.is_in_flight(span.context.trace_id, span.context.span_id):
            self._scored_before_end.add(span.context.span_id)
            span.set_attributes(self._score(span, to_span_record(span, end_ns)))

    def shutdown(self) -> None:
        """Score what is there, and stop; then shut down the sinks and the processor behind this one."""
        if self not in _active_processors:
            return
        atexit.unregister(self._finish_at_exit)
        stop_carrying_context_for(self)
        call_spans.remove_span_end_listener(self)
        _active_processors.discard(self)
        self._worker.stop(_SHUTDOWN_TIMEOUT_S)
        self._stopped = True  # a provider goes on telling of spans, and another processor may have taken over
        with _SCORING:
            self._scorer.release_all()
        self._scorer.pipeline.close()
        shutdown_all(self._scorer.pipeline.sinks)
        if self._downstream is not None:
            self._downstream.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Wait until everything that has ended is scored and handed on, and has left; whether that was in time."""
        until = time.monotonic() + timeout_millis / 1000
        done = self._worker.flush(timeout_millis / 1000)
        with _SCORING:
            self._scorer.check_deadlines(everything=True)
        done = self._scorer.pipeline.flush_verdicts(_remaining_millis(until)) and done
        done = flush_all(self._scorer.pipeline.sinks, _remaining_millis(until)) and done
        return (self._downstream is None or self._downstream.force_flush(_remaining_millis(until))) and done

    def renew(self) -> None:
        """Begin anew in a forked child: what is in flight will end in the parent, and so perhaps will a lock."""
        self._worker.reset()
        self._scorer.reset()
        self._scored_before_end = set()

    def _register_exit_handler(self) -> None:
        """See to it that nothing is lost when the program ends.

        What runs at exit runs in the reverse order of its registration. So this is done when the first span comes:
        logger and meter providers, which must not be shut down before the last runs are scored, have been made by then.
        """
        self._has_seen_span = True
        atexit.register(self._finish_at_exit)

    def _finish_at_exit(self) -> None:
        with _SCORING:
            self._worker.flush(_SHUTDOWN_TIMEOUT_S)
            self._scorer.release_all()
            self.force_flush()

    def _process_item(self, seen: _QueueItem) -> None:
        """What the worker does with a span that was left to it."""
        if isinstance(seen, tuple):
            self._record_end(*seen)
        elif type(seen) is ReadableSpan:
            self._record_end(seen)
        else:
            with _STARTING:
                self._record_start(seen)

    def _record_start(self, span: ReadableSpan) -> None:
        context, parent = span.context, span.parent
        if self._stopped or _is_evaluation_span(span):
            return
        if parent is None:
            self._scorer.start_span(context.trace_id, context.span_id, None, span)
        else:
            self._scorer.start_span(context.trace_id, context.span_id, parent.span_id, span, remote=parent.is_remote)

    def _record_end(self, span: ReadableSpan) -> None:
        results: ResultAttributes = {}
        try:
            with _SCORING:
                results = self._score_unless_scored(span)
        finally:
            if self._downstream is not None:
                self._downstream.on_end(processor_options.copy_with_attributes(span, results) if results else span)

    def _score_unless_scored(self, span: ReadableSpan) -> ResultAttributes:
        if self._stopped or _is_evaluation_span(span):
            return {}
        if self._scored_before_end and span.context.span_id in self._scored_before_end:
            self._scored_before_end.discard(span.context.span_id)
            return {}
        return self._score(span, to_span_record(span))

    def _score(self, span: ReadableSpan, record: SpanRecord) -> ResultAttributes:
        """Score what ended with a span; the results of the runs that stand on the span itself."""
        results: ResultAttributes = {}
        for evaluation in self._scorer.end_span(span.context.trace_id, span.context.span_id, record):
            if self._attributes and evaluation.run.span_id == record.span_id:
                results.update(result_attributes(evaluation))
        return results

    def _record_shed(self, span: ReadableSpan, *, spans: int) -> None:
        """Take note of what found no place in the queue."""
        if not self._stopped:
            self._scorer.record_shed(span.context.trace_id, spans=spans)

    def _wake_worker(self) -> None:
        """See to it that deadlines are looked at."""
        if self._worker.is_asleep:
            self._worker.wake()


def _is_evaluation_span(span: ReadableSpan) -> bool:
    """Whether it is an evaluation put down as a span, which is nobody's work."""
    scope = span.instrumentation_scope
    return scope is not None and scope.name == "goldspan" and semconv.IS_EVALUATION in (span.attributes or {})


def _remaining_millis(deadline: float) -> int:
    """Milliseconds from now."""
    return max(0, int((deadline - time.monotonic()) * 1000))
