"""`ScoringProcessor`: a span processor that scores every run when its span ends."""

from __future__ import annotations

import atexit
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from opentelemetry._logs import LoggerProvider
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.trace import Span as ApiSpan
from opentelemetry.util.types import AttributeValue

from goldspan import semconv
from goldspan._guard import guard
from goldspan.capture import annotations as saying
from goldspan.capture import closing, handover
from goldspan.capture.annotations import expected_attributes
from goldspan.capture.options import check, checked_judge, listed, seconds
from goldspan.capture.records import record_of
from goldspan.capture.sources import GoldensLike, goldens_from
from goldspan.capture.threads import carry_for, stop_carrying_for
from goldspan.goldens import Goldens
from goldspan.model import SpanRecord, Unit, Unknown
from goldspan.online import Limits, Pipeline, Scorer, Worker, check_units
from goldspan.online.defaults import usual_sinks
from goldspan.online.sampling import ExportSampling, Sampling
from goldspan.scoring.metrics import MetricLike
from goldspan.sinks import Losses, SinkLike, as_sink, flush, result_attributes, shutdown
from goldspan.sinks.forking import renew_in_forked_children

if TYPE_CHECKING:
    from goldspan.judge.judges import Judge
    from goldspan.sinks import Redact, Sink

_STARTING = guard("take note of a span")
_SCORING = guard("score a run")

_PATIENCE_S = 30.0
"""How long `shutdown` waits for what is under way."""
_USUAL_LIMITS = Limits()

Results = dict[str, AttributeValue]
_Seen: TypeAlias = "ReadableSpan | tuple[ReadableSpan]"
"""A span that started; or one that ended, in a tuple: an ended span may be the same object, and one is made sooner."""

_at_work: weakref.WeakSet[ScoringProcessor] = globals().get("_at_work", weakref.WeakSet())
"""They go on where somebody loads this module again, as is done in notebooks."""


def at_work() -> bool:
    """Whether some scoring processor of this process has been made and not been shut down."""
    return len(_at_work) > 0


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
        unknown: Unknown | None = None,
        sinks: Iterable[SinkLike] | None = None,
        attributes: bool = True,
        logger_provider: LoggerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        golden_id_attributes: Sequence[str] | None = None,
        units: Sequence[Unit] = ("request", "component"),
        redact: Redact | None = None,
        sampling: Sampling | None = None,
        export: ExportSampling | None = None,
        budget: float | None = None,
        judge: Judge | None = None,
        background: bool | None = None,
        threads: bool = True,
        reload: float | None = 1.0,
        limits: Limits = _USUAL_LIMITS,
    ) -> None:
        behind = handover.processor_for(then)
        self._then = behind if export is None else handover.sampled(behind, export)
        self._tells_starts = handover.hears_starts(behind)
        check(limits=limits, thresholds=thresholds, redact=redact, sampling=sampling, logger_provider=logger_provider)
        check(unknown=unknown)
        check(meter_provider=meter_provider, background=background, threads=threads, attributes=attributes)
        found = goldens_from(goldens, reload=seconds("reload", reload))
        if sinks is None:
            sinks = usual_sinks(logger_provider, meter_provider)
        pipeline = Pipeline(
            found,
            sinks=[as_sink(sink) for sink in listed("sinks", sinks)],
            metrics=None if metrics is None else listed("metrics", metrics),
            thresholds=thresholds,
            unknown=unknown,
            golden_id_attributes=(
                None if golden_id_attributes is None else listed("golden_id_attributes", golden_id_attributes)
            ),
            units=check_units(listed("units", units)),
            redact=redact,
            sampling=sampling,
            budget=seconds("budget", budget),
            judge=checked_judge(judge),
        )
        self._scorer: Scorer[ReadableSpan] = Scorer(pipeline, record_of, limits, Losses(meter_provider))
        self._worker: Worker[_Seen] = Worker(self._work, self._scorer.look, max_queue=limits.max_queue)
        self._put = self._worker.put
        self._in_background = handover.exports_in_batches(behind) if background is None else background
        self._attributes = attributes
        self._seen_any = False
        self._stopped = False
        self._closed: set[int] = set()
        renew_in_forked_children(self)
        if attributes and self._then is None and not self._in_background:
            closing.register(self)
        _at_work.add(self)
        if threads:
            carry_for(self)

    @property
    def goldens(self) -> Goldens:
        """What runs are judged by."""
        return self._scorer.pipeline.goldens

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """Where evaluations go."""
        return self._scorer.pipeline.sinks

    @property
    def annotates(self) -> Literal["runs", "traced", "none"]:
        """On which spans results are put: those of all runs, of `@goldspan.trace` functions alone, or none."""
        if not self._attributes:
            return "none"
        return "runs" if self._then is not None else "none" if self._in_background else "traced"

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Take note of where a span hangs, and write down what is expected of it."""
        # This is on the application's time, and a guard costs some of it even where there is nothing to guard against.
        try:
            parent = span.parent
            if parent is None or parent.is_remote or saying.in_use:
                self._expect(span, parent_context)
            if not self._in_background:
                self._started(span)
                self._watch()
            elif not self._put(span):
                self._shed(span, spans=1)
        except Exception:  # the guard says what becomes of it
            with _STARTING:
                raise
        finally:
            if self._tells_starts:
                self._then.on_start(span, parent_context)  # type: ignore[union-attr]

    def _expect(self, span: Span, parent_context: Context | None) -> None:
        if not self._seen_any:
            self._finish_before_others_do()
        expected = expected_attributes(parent_context, span.parent)
        if expected is not None:
            span.set_attributes(expected)

    def _on_ending(self, span: Span) -> None:
        # Private in the SDK and of no use to us; the processor behind may think otherwise.
        if self._then is not None:
            self._then._on_ending(span)

    def on_end(self, span: ReadableSpan) -> None:
        """Hand the span on, with its results if it is a run's; at once, or as soon as the background comes to it."""
        if not self._in_background:
            self._end(span)
        elif not self._put(span if type(span) is ReadableSpan else (span,)):
            self._shed(span, spans=0)  # it counts where its start is met
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
        atexit.unregister(self._finish)
        stop_carrying_for(self)
        closing.unregister(self)
        _at_work.discard(self)
        self._worker.stop(_PATIENCE_S)
        self._stopped = True  # a provider goes on telling of spans, and another processor may have taken over
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
        done = self._scorer.pipeline.flush_verdicts(_left(until)) and done
        done = flush(self._scorer.pipeline.sinks, _left(until)) and done
        return (self._then is None or self._then.force_flush(_left(until))) and done

    def renew(self) -> None:
        """Begin anew in a forked child: what is in flight will end in the parent, and so perhaps will a lock."""
        self._worker.forget()
        self._scorer.forget()
        self._closed = set()

    def _finish_before_others_do(self) -> None:
        """See to it that nothing is lost when the program ends.

        What runs at exit runs in the reverse order of its registration. So this is done when the first span comes:
        logger and meter providers, which must not be shut down before the last runs are scored, have been made by then.
        """
        self._seen_any = True
        atexit.register(self._finish)

    def _finish(self) -> None:
        with _SCORING:
            self._worker.flush(_PATIENCE_S)
            self._scorer.release()
            self.force_flush()

    def _work(self, seen: _Seen) -> None:
        """What the worker does with a span that was left to it."""
        if isinstance(seen, tuple):
            self._end(*seen)
        elif type(seen) is ReadableSpan:
            self._end(seen)
        else:
            with _STARTING:
                self._started(seen)

    def _started(self, span: ReadableSpan) -> None:
        context, parent = span.context, span.parent
        if self._stopped or _is_ours(span):
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
                self._then.on_end(handover.enriched(span, results) if results else span)

    def _take_in(self, span: ReadableSpan) -> Results:
        if self._stopped or _is_ours(span):
            return {}
        if self._closed and span.context.span_id in self._closed:
            self._closed.discard(span.context.span_id)
            return {}
        return self._score(span, record_of(span))

    def _score(self, span: ReadableSpan, record: SpanRecord) -> Results:
        """Score what ended with a span; the results of the runs that stand on the span itself."""
        results: Results = {}
        for evaluation in self._scorer.ended(span.context.trace_id, span.context.span_id, record):
            if self._attributes and evaluation.run.span_id == record.span_id:
                results.update(result_attributes(evaluation))
        return results

    def _shed(self, span: ReadableSpan, *, spans: int) -> None:
        """Take note of what found no place in the queue."""
        if not self._stopped:
            self._scorer.shed(span.context.trace_id, spans=spans)

    def _watch(self) -> None:
        """See to it that deadlines are looked at."""
        if self._worker.asleep:
            self._worker.wake()


def _is_ours(span: ReadableSpan) -> bool:
    """Whether it is an evaluation put down as a span, which is nobody's work."""
    scope = span.instrumentation_scope
    return scope is not None and scope.name == "goldspan" and semconv.EVALUATION_MARK in (span.attributes or {})


def _left(until: float) -> int:
    """Milliseconds from now."""
    return max(0, int((until - time.monotonic()) * 1000))
