"""`OTEL_TRACES_EXPORTER=goldspan`: an exporter that scores spans and forwards them."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from goldspan._guard import report_error, suppress_errors
from goldspan.capture import providers
from goldspan.capture.environment import EnvironmentSettings, read_environment
from goldspan.capture.processor import ScoringProcessor
from goldspan.capture.processor_options import GoldensLike
from goldspan.capture.setup import Instrumentation, build_processor, disabled_reason, instrument, startup_lock
from goldspan.errors import GoldspanError
from goldspan.online import Limits
from goldspan.online.sampling import ExportSampling
from goldspan.sinks import DropCounters
from goldspan.sinks.fork_safety import renew_after_fork

SpanTree = list[ReadableSpan]


class TraceReassembler:
    """Buffers spans of one process until their local root arrives: a span without a parent or with a remote parent.

    It buffers at most `max_spans` spans, and those of one trace for at most `idle` seconds after the last arrival; then
    it releases them without their root. It does not buffer spans that arrive after their tree was released.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pending: OrderedDict[int, SpanTree] = OrderedDict()
        self._last_arrival: dict[int, float] = {}
        self._size = 0
        self._released_ids: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        """Returns the number of buffered spans."""
        return self._size

    def empty_copy(self) -> TraceReassembler:
        """Returns an empty reassembler with the same limits."""
        return TraceReassembler(self._limits)

    def add(self, spans: Iterable[ReadableSpan], now: float) -> Iterator[SpanTree]:
        """Adds a batch. Yields each trace that is complete or overdue, parents first."""
        touched: dict[int, None] = {}
        for span in spans:
            trace_id = span.context.trace_id
            self._pending.setdefault(trace_id, []).append(span)
            self._pending.move_to_end(trace_id)
            self._last_arrival[trace_id] = now
            self._size += 1
            touched[trace_id] = None
        for trace_id in touched:
            if complete := self._complete_spans(self._pending[trace_id]):
                yield self._release_spans(trace_id, complete)
        while self._pending and self._is_overdue(next(iter(self._pending)), now):
            yield self._release_trace(next(iter(self._pending)))

    def release_all(self) -> Iterator[SpanTree]:
        """Yields everything that is buffered."""
        while self._pending:
            yield self._release_trace(next(iter(self._pending)))

    def _is_overdue(self, trace_id: int, now: float) -> bool:
        return self._size > self._limits.max_spans or now - self._last_arrival[trace_id] >= self._limits.idle

    def _complete_spans(self, pending: SpanTree) -> SpanTree:
        """Returns the spans that descend from a local root or from a released span."""
        children: dict[int, SpanTree] = {}
        complete: SpanTree = []
        for span in pending:
            if span.parent is None or span.parent.is_remote or span.parent.span_id in self._released_ids:
                complete.append(span)
            else:
                children.setdefault(span.parent.span_id, []).append(span)
        for span in complete:  # grows during the iteration
            complete.extend(children.pop(span.context.span_id, ()))
        return complete

    def _release_trace(self, trace_id: int) -> SpanTree:
        pending = self._pending[trace_id]
        ids = {span.context.span_id for span in pending}
        roots = [span for span in pending if span.parent is None or span.parent.span_id not in ids]
        self._released_ids.update(dict.fromkeys(span.parent.span_id for span in roots if span.parent is not None))
        return self._release_spans(trace_id, self._complete_spans(pending) or pending)

    def _release_spans(self, trace_id: int, spans: SpanTree) -> SpanTree:
        ids = dict.fromkeys(span.context.span_id for span in spans)
        remaining = [span for span in self._pending[trace_id] if span.context.span_id not in ids]
        self._size -= len(self._pending[trace_id]) - len(remaining)
        if remaining:
            self._pending[trace_id] = remaining
        else:
            del self._pending[trace_id], self._last_arrival[trace_id]
        self._released_ids.update(ids)
        while len(self._released_ids) > self._limits.max_spans:
            self._released_ids.popitem(last=False)
        return spans


_STARTING = "start from the environment, and scores nothing"
_FORWARDING = "forward spans: no span of this process is exported, and nothing is scored"

_log = logging.getLogger("goldspan")
_SCORING = suppress_errors("score exported spans")

T = TypeVar("T")

_exporters: weakref.WeakSet[ScoringExporter] = weakref.WeakSet()


def start_from_environment() -> None:
    """Scores this process, whose providers the environment configured, at the tracer provider of the exporter if there
    is one.

    It never raises: a configuration error is counted and logged once, and nothing is scored.
    """
    try:
        if exporter := next(iter(_exporters), None):
            exporter.attach_to_provider(trace.get_tracer_provider())
            return
        settings = read_environment()
        if settings.enabled or (settings.enabled is None and settings.goldens):
            instrument()
    except Exception as error:  # noqa: BLE001 - raising would disable the program's other instrumentation
        _report_failure(error, _STARTING)


class ScoringExporter(SpanExporter):
    """Forwards every span to the downstream exporters, and scores requests when their local root is exported.

    An exporter receives spans after they ended, in batches: the results are on a run's span if the span is in one batch
    with its local root, and always in events and metrics. A processor sees more. If one can be added to the tracer
    provider, as under `opentelemetry-instrument`, `attach_to_provider` adds it, and the processor does all scoring.

    The exporter never raises: a configuration error is counted and logged once, and nothing is scored. It only forwards
    spans if a `ScoringProcessor` is active in this process, so that nothing is scored twice, and if `GOLDSPAN_ENABLED`
    is off.

    Args:
        goldens: As for `ScoringProcessor`. Default: `GOLDSPAN_GOLDENS`.
        then: An exporter, or names of exporters. Default: `GOLDSPAN_THEN_EXPORTER`.
    """

    def __init__(self, goldens: GoldensLike = None, *, then: SpanExporter | str | None = None) -> None:
        self._goldens = goldens
        self._is_off = False
        self._is_attached = False
        self._processor: ScoringProcessor | None = None
        self._reassembler = TraceReassembler(Limits())
        self._copies = _EnrichedCopies()
        self._sampling = ExportSampling()
        self._downstream = [then] if isinstance(then, SpanExporter) else self._load_downstream(then)
        if not self._downstream and not self._is_off:
            _log.warning(
                "goldspan: OTEL_TRACES_EXPORTER=goldspan has no downstream exporter that receives the spans and their "
                "results; set OTEL_EXPORTER_OTLP_ENDPOINT, or set %s to an exporter's name",
                providers.THEN_EXPORTER,
            )
        self.renew()
        renew_after_fork(self)
        _exporters.add(self)

    def renew(self) -> None:
        """Resets the state in a forked child: the buffered spans are the parent's, and another thread may hold the
        lock.
        """
        self._lock = threading.Lock()
        self._reassembler = self._reassembler.empty_copy()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Scores what is complete, and forwards the spans."""
        with self._lock:
            if self._is_attached:  # the processor forwards them
                return SpanExportResult.SUCCESS
            with _SCORING:
                for tree in self._complete_trees(spans):
                    self._replay_tree(tree)
            copies = self._copies.drain()
        kept = [copies.get(id(span), span) for span in spans if self._sampling.should_export(span.context.trace_id)]
        if spans and not kept:
            return SpanExportResult.SUCCESS
        results = [exporter.export(kept) for exporter in self._downstream]
        return SpanExportResult.FAILURE if SpanExportResult.FAILURE in results else SpanExportResult.SUCCESS

    def attach_to_provider(self, provider: Any) -> None:
        """Adds a processor to the tracer provider, which sees spans start and end, and lets it do the scoring."""
        provider.force_flush()
        with self._lock:
            if self._is_off:
                return
            self._score_pending()
            instrumentation = self._attempt(lambda: self._instrument_provider(read_environment()))
            self._is_attached = instrumentation is not None and instrumentation.added_processor

    def shutdown(self) -> None:
        """Scores the buffered spans, and shuts down the downstream exporters unless the processor owns them."""
        with self._lock:
            if self._is_attached:
                return
            self._score_pending()
        for exporter in self._downstream:
            exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flushes the downstream exporters. Spans that wait for their local root stay buffered."""
        flushed = [] if self._is_attached else [exporter.force_flush(timeout_millis) for exporter in self._downstream]
        return all(flushed)

    def _complete_trees(self, spans: Sequence[ReadableSpan]) -> Iterable[SpanTree]:
        if self._processor is None and not self._is_off:
            self._processor = self._attempt(lambda: self._build_processor(read_environment()))
        return () if self._processor is None else self._reassembler.add(spans, time.monotonic())

    def _instrument_provider(self, settings: EnvironmentSettings) -> Instrumentation | None:
        if settings.enabled is False:
            return None
        return instrument(self._goldens, then=providers.batch_processor(self._downstream))

    def _build_processor(self, settings: EnvironmentSettings) -> ScoringProcessor | None:
        with startup_lock:
            if settings.enabled is False or disabled_reason(settings) is not None:
                return None
            self._reassembler = TraceReassembler(Limits(**settings.arguments_for("limits")))
            processor = build_processor(settings, self._goldens, then=self._copies, background=False)
        self._sampling = ExportSampling(1.0 if settings.export_sample is None else settings.export_sample)
        return processor

    def _replay_tree(self, tree: SpanTree) -> None:
        """Passes a tree of spans to the processor, parents first, as if it happened now."""
        assert self._processor is not None
        for span in tree:
            self._processor.on_start(span)  # type: ignore[arg-type] # it reads only what an ended span has as well
        positions = {id(span): position for position, span in enumerate(tree)}
        for span in sorted(tree, key=lambda span: (span.end_time or 0, -positions[id(span)])):
            self._copies.original = span
            self._processor.on_end(span)

    def _score_pending(self) -> None:
        if self._processor is not None:
            with _SCORING:
                for tree in self._reassembler.release_all():
                    self._replay_tree(tree)
                self._processor.shutdown()
            self._processor = None

    def _load_downstream(self, then: str | None) -> list[SpanExporter]:
        names = None if then is None else [name.strip() for name in then.split(",")]
        return self._attempt(lambda: providers.downstream_span_exporters(names), _FORWARDING) or []

    def _attempt(self, make: Callable[[], T], action: str = _STARTING) -> T | None:
        try:
            return make()
        except Exception as error:  # noqa: BLE001 - the constructor of another package's exporter may raise anything
            self._is_off = True
            _report_failure(error, action)
            return None


class _EnrichedCopies(SpanProcessor):
    """Receives the processor's output, and keeps the spans that are not the original."""

    def __init__(self) -> None:
        self.original: ReadableSpan | None = None
        self._kept: dict[int, ReadableSpan] = {}

    def on_end(self, span: ReadableSpan) -> None:
        """Stores a copy under its original."""
        if span is not self.original:
            self._kept[id(self.original)] = span

    def drain(self) -> dict[int, ReadableSpan]:
        """Returns and removes the stored copies."""
        kept, self._kept, self.original = self._kept, {}, None
        return kept


def _report_failure(error: Exception, action: str) -> None:
    DropCounters()  # publishes the failure count: no processor does it
    report_error(action, error, with_traceback=not isinstance(error, GoldspanError))
