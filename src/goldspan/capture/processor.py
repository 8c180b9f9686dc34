"""`ScoringProcessor`: the span processor that scores each run when its span ends."""

from __future__ import annotations

import atexit
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from opentelemetry import baggage
from opentelemetry._logs import LoggerProvider
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.trace import Span as ApiSpan
from opentelemetry.util.types import AttributeValue

from goldspan._guard import suppress_errors
from goldspan.capture import annotations as span_annotations
from goldspan.capture import call_spans, processor_options
from goldspan.capture.processor_options import GoldensLike, check_option_types
from goldspan.capture.sdk_spans import copy_with_attributes, is_evaluation_span, to_span_record
from goldspan.capture.threads import carry_context_for, stop_carrying_context_for
from goldspan.goldens import Goldens
from goldspan.model import RunUnit, SpanRecord, UnknownPolicy
from goldspan.online import BackgroundWorker, Limits, Scorer
from goldspan.online.sampling import ExportSampling, Sampling
from goldspan.scoring.metrics import MetricLike
from goldspan.sinks import DropCounters, SinkLike, flush_all, result_attributes, shutdown_all, split_by_export
from goldspan.sinks.fork_safety import renew_after_fork

if TYPE_CHECKING:
    from goldspan.judge.judge import Judge
    from goldspan.sinks import Redact, Sink

_STARTING = suppress_errors("register a span")
_SCORING = suppress_errors("score a run")
_EXPORTING = suppress_errors("export spans before their scores")

_SHUTDOWN_TIMEOUT_S = 30.0
"""Seconds for which `shutdown` waits for queued spans."""
_FLUSH_MILLIS = 30_000
_EXIT_FLUSH_MILLIS = 1_000
"""How long the exit handler waits for a sink whose spans are not exported yet."""
_DEFAULT_LIMITS = Limits()

ResultAttributes = dict[str, AttributeValue]
_QueueItem: TypeAlias = "ReadableSpan | tuple[ReadableSpan]"
"""A span that started, or a tuple with a span that ended. The SDK may pass the same object for both, and a tuple is
faster to create than any other marker."""

_active_processors: weakref.WeakSet[ScoringProcessor] = globals().get("_active_processors", weakref.WeakSet())
"""Kept when the module is reloaded, as notebooks do."""


def has_active_processor() -> bool:
    """Returns whether this process has a scoring processor that has not been shut down."""
    return len(_active_processors) > 0


class ScoringProcessor(SpanProcessor):
    """Scores each run when its span ends: the outermost agent of a request, a component, or the local root.

    The processor forwards every span to `then` in order and unchanged, except that it forwards a run's span as a copy
    with the results added as attributes. Without `then`, next to other processors of a provider, it sets the results on
    the spans of `@goldspan.trace` functions just before these end. In both cases it submits each evaluation to the
    `sinks`.

    If `then` exports in batches, a background thread scores the spans and forwards them, and the application's thread
    only adds them to a queue; `force_flush` waits for the queue. Otherwise, or with `background=False`, the thread that
    ends a run's span scores the run.

    Spans that are recorded but not sampled are scored too. When the program exits, the spans in flight are scored
    before the providers that existed before the first span are shut down. After construction, no error inside the
    processor reaches the application or prevents a span from being forwarded.

    Args:
        goldens: A path, several paths, `Goldens`, or a list of `Golden`. Without goldens, the processor reports the
            tools that were used and the metrics that need no golden.
        then: The exporter (which is wrapped in a `BatchSpanProcessor`) or span processor to which spans are forwarded.
        metrics: The metrics to compute, by name or as registered functions, instead of those that the goldens list.
        thresholds: The minimum value for each metric, by metric name, instead of the thresholds of the goldens.
        unknown: The policy for a run of which a statement of the golden cannot be evaluated: `"not_evaluated"`,
            `"ignore"` or `"fail"`. It overrides the policy of the goldens.
        sinks: The sinks or functions that receive evaluations. Default: events, metrics and pass rates, through
            `logger_provider` and `meter_provider`.
        attributes: Whether results are written on spans. With `False`, no span is changed.
        logger_provider: The logger provider of the default sinks. Default: the global one.
        meter_provider: The meter provider of the default sinks and of the drop counters. Default: the global one.
        golden_id_attributes: Names of the span attributes that hold a golden's id, in order of precedence. Default:
            `goldspan.golden.id`, `test.case.name`.
        units: The units to score: some of `"request"`, `"component"` and `"conversation"`.
        redact: A function that receives each evaluation and returns the evaluation that may leave the process, or
            `None` to drop it.
        sampling: Selects the runs that are scored. Default: all.
        export: Selects the traces that are forwarded to `then`. All traces are scored.
        budget: Seconds that the metrics of one run may take. Metrics that would start later are not evaluated.
        judge: A model that judges runs on a separate thread. Its verdict is submitted as a later revision and is never
            written on a span.
        background: Whether a background thread scores the spans. Default: `True` if `then` exports in batches.
        threads: Whether new threads and thread pool tasks keep the OpenTelemetry context in which they were started, so
            that tools that run there stay part of their request.
        reload: Seconds between two checks whether golden files have changed; changed files are reloaded. `None`
            disables the checks.
        limits: Bounds for the memory and the time that spans in flight may take.

    Raises:
        GoldspanError: If an argument is invalid or a golden file cannot be read.
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
        downstream = processor_options.downstream_processor(then)
        self._downstream = downstream if export is None else processor_options.sample_exports(downstream, export)
        self._forwards_starts = processor_options.handles_span_start(downstream)
        check_option_types(background=background, threads=threads, attributes=attributes)
        pipeline = processor_options.build_pipeline(
            goldens,
            metrics=metrics,
            thresholds=thresholds,
            unknown=unknown,
            sinks=sinks,
            logger_provider=logger_provider,
            meter_provider=meter_provider,
            golden_id_attributes=golden_id_attributes,
            units=units,
            redact=redact,
            sampling=sampling,
            budget=budget,
            judge=judge,
            reload=reload,
            limits=limits,
        )
        self._scorer: Scorer[ReadableSpan] = Scorer(pipeline, to_span_record, limits, DropCounters(meter_provider))
        self._worker: BackgroundWorker[_QueueItem] = BackgroundWorker(
            self._process_item, self._scorer.check_deadlines, max_queue=limits.max_queue
        )
        self._enqueue = self._worker.put
        self._in_background = processor_options.exports_in_batches(downstream) if background is None else background
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
        """The goldens that runs are currently evaluated against."""
        return self._scorer.pipeline.goldens

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """The sinks that receive evaluations."""
        return self._scorer.pipeline.sinks

    @property
    def annotated_spans(self) -> Literal["runs", "traced", "none"]:
        """The spans on which results are written: all run spans, `@goldspan.trace` spans only, or none."""
        if not self._attributes:
            return "none"
        return "runs" if self._downstream is not None else "none" if self._in_background else "traced"

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Registers a span that started, and sets the attributes of `goldspan.expect` on it."""
        # Runs on the application's thread: entering `suppress_errors` costs time, a plain `try` costs none.
        try:
            parent = span.parent
            if parent is None or parent.is_remote or span_annotations.has_expectations:
                self._set_expected_attributes(span, parent_context)
            if not self._in_background:
                self._record_start(span)
                self._wake_worker()
            elif not self._enqueue(span):
                self._record_shed(span, spans=1)
        except Exception:  # `suppress_errors` counts and logs it
            with _STARTING:
                raise
        finally:
            if self._forwards_starts:
                self._downstream.on_start(span, parent_context)  # type: ignore[union-attr]

    def _set_expected_attributes(self, span: Span, parent_context: Context | None) -> None:
        if not self._has_seen_span:
            self._register_exit_handler()
        # Most spans have neither an `expect` block nor baggage around them.
        if span_annotations.has_expectations or baggage.get_all(parent_context):
            expected = span_annotations.expected_attributes(parent_context, span.parent)
            if expected is not None:
                span.set_attributes(expected)

    def _on_ending(self, span: Span) -> None:
        # A private method of the SDK that the downstream processor may implement.
        if self._downstream is not None:
            self._downstream._on_ending(span)

    def on_end(self, span: ReadableSpan) -> None:
        """Scores and forwards a span that ended, or queues it for the background thread."""
        if not self._in_background:
            self._record_end(span)
        elif not self._enqueue(span if type(span) is ReadableSpan else (span,)):
            self._record_shed(span, spans=0)  # its start is counted as unscored
            if self._downstream is not None:
                self._downstream.on_end(span)

    def before_span_end(self, span: ApiSpan, end_ns: int) -> None:
        """Sets the results of a run on its span just before the span ends; see `call_spans.end_span`."""
        if isinstance(span, ReadableSpan) and self._scorer.is_in_flight(span.context.trace_id, span.context.span_id):
            self._scored_before_end.add(span.context.span_id)
            span.set_attributes(self._score(span, to_span_record(span, end_ns)))

    def shutdown(self) -> None:
        """Scores the spans in flight and stops; then shuts down the sinks and the downstream processor."""
        if self not in _active_processors:
            return
        atexit.unregister(self._finish_at_exit)
        stop_carrying_context_for(self)
        call_spans.remove_span_end_listener(self)
        _active_processors.discard(self)
        self._worker.stop(_SHUTDOWN_TIMEOUT_S)
        self._stopped = True  # the provider keeps calling this processor, and another one may score its spans
        with _SCORING:
            self._scorer.release_all()
        self._scorer.pipeline.close()
        sinks, after_export = split_by_export(self._scorer.pipeline.sinks)
        shutdown_all(sinks)
        if self._downstream is not None and after_export:
            with _EXPORTING:
                self._downstream.force_flush(int(_SHUTDOWN_TIMEOUT_S * 1000))
        shutdown_all(after_export)
        if self._downstream is not None:
            self._downstream.shutdown()

    def force_flush(self, timeout_millis: int = _FLUSH_MILLIS) -> bool:
        """Waits until every ended span is scored, forwarded and flushed. Returns `False` on timeout."""
        return self._flush(timeout_millis, timeout_millis)

    def _flush(self, timeout_millis: int, after_export_millis: int) -> bool:
        """Flushes as `force_flush` does; the sinks that need exported spans get at most `after_export_millis`."""
        until = time.monotonic() + timeout_millis / 1000
        done = self._worker.flush(timeout_millis / 1000)
        with _SCORING:
            self._scorer.check_deadlines(everything=True)
        done = self._scorer.pipeline.flush_verdicts(_remaining_millis(until)) and done
        sinks, after_export = split_by_export(self._scorer.pipeline.sinks)
        if any(hasattr(sink, "force_flush") for sink in sinks):
            done = flush_all(sinks, _remaining_millis(until)) and done
        done = (self._downstream is None or self._downstream.force_flush(_remaining_millis(until))) and done
        return flush_all(after_export, min(after_export_millis, _remaining_millis(until))) and done

    def renew(self) -> None:
        """Resets the state in a forked child. The spans in flight end in the parent, and another thread of the parent
        may hold a lock.
        """
        self._worker.reset()
        self._scorer.reset()
        self._scored_before_end = set()

    def _register_exit_handler(self) -> None:
        """Registers the exit handler that scores the spans in flight.

        Exit handlers run in the reverse order of their registration. This one is registered at the first span, when the
        logger and meter providers exist, so that it runs before these are shut down.
        """
        self._has_seen_span = True
        atexit.register(self._finish_at_exit)

    def _finish_at_exit(self) -> None:
        with _SCORING:
            self._worker.flush(_SHUTDOWN_TIMEOUT_S)
            self._scorer.release_all()
            # If another processor exports the spans, it may do so only when the provider is shut down, after this.
            self._flush(_FLUSH_MILLIS, _FLUSH_MILLIS if self._downstream is not None else _EXIT_FLUSH_MILLIS)

    def _process_item(self, item: _QueueItem) -> None:
        """Processes one queue item on the background thread."""
        if isinstance(item, tuple):
            self._record_end(*item)
        elif type(item) is ReadableSpan:
            self._record_end(item)
        else:
            with _STARTING:
                self._record_start(item)

    def _record_start(self, span: ReadableSpan) -> None:
        context, parent = span.context, span.parent
        if self._stopped or is_evaluation_span(span):
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
                self._downstream.on_end(copy_with_attributes(span, results) if results else span)

    def _score_unless_scored(self, span: ReadableSpan) -> ResultAttributes:
        if self._stopped:
            return {}
        if self._scored_before_end and span.context.span_id in self._scored_before_end:
            self._scored_before_end.discard(span.context.span_id)
            return {}
        record = to_span_record(span)
        return {} if is_evaluation_span(span, record.attributes) else self._score(span, record)

    def _score(self, span: ReadableSpan, record: SpanRecord) -> ResultAttributes:
        """Scores the runs that a span completed. Returns the results of the runs whose span it is."""
        results: ResultAttributes = {}
        for evaluation in self._scorer.end_span(span.context.trace_id, span.context.span_id, record):
            if self._attributes and evaluation.run.span_id == record.span_id:
                results.update(result_attributes(evaluation))
        return results

    def _record_shed(self, span: ReadableSpan, *, spans: int) -> None:
        """Records a span that was dropped because the queue was full."""
        if not self._stopped:
            self._scorer.record_shed(span.context.trace_id, spans=spans)

    def _wake_worker(self) -> None:
        """Makes sure that the worker thread checks deadlines."""
        if self._worker.is_asleep:
            self._worker.wake()


def _remaining_millis(deadline: float) -> int:
    """Returns the milliseconds until a deadline, at least 0."""
    return max(0, int((deadline - time.monotonic()) * 1000))
