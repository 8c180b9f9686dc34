"""`OTEL_TRACES_EXPORTER=goldspan`: a span exporter that stands before others and scores what goes through it."""

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
    """Spans of one process that wait for their local root: one without a parent, or with a parent in another process.

    At most `max_spans` wait, and those of one trace for at most `idle` seconds after the last of them came: then they
    come out as they are. A span that comes after its tree has come out does not wait.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pending: OrderedDict[int, SpanTree] = OrderedDict()
        self._last_arrival: dict[int, float] = {}
        self._size = 0
        self._released_ids: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        """The number of spans that wait."""
        return self._size

    def empty_copy(self) -> TraceReassembler:
        """One with the same limits and nothing in it."""
        return TraceReassembler(self._limits)

    def add(self, spans: Iterable[ReadableSpan], now: float) -> Iterator[SpanTree]:
        """Take in a batch; what is complete by it, or will wait no longer, a trace at a time and parents first."""
        touched: dict[int, None] = {}
        for span in spans:
            trace_id = span.context.trace_id
            self._pending.setdefault(trace_id, []).append(span)
            self._pending.move_to_end(trace_id)
            self._last_arrival[trace_id] = now
            self._size += 1
            touched[trace_id] = None
        for trace_id in touched:
            if rooted := self._complete_spans(self._pending[trace_id]):
                yield self._release_spans(trace_id, rooted)
        while self._pending and self._is_overdue(next(iter(self._pending)), now):
            yield self._release_trace(next(iter(self._pending)))

    def release_all(self) -> Iterator[SpanTree]:
        """Everything that still waits."""
        while self._pending:
            yield self._release_trace(next(iter(self._pending)))

    def _is_overdue(self, trace_id: int, now: float) -> bool:
        return self._size > self._limits.max_spans or now - self._last_arrival[trace_id] >= self._limits.idle

    def _complete_spans(self, waiting: SpanTree) -> SpanTree:
        """The spans that hang, over however many others, from a local root or from one that has come out already."""
        children: dict[int, SpanTree] = {}
        found: SpanTree = []
        for span in waiting:
            if span.parent is None or span.parent.is_remote or span.parent.span_id in self._released_ids:
                found.append(span)
            else:
                children.setdefault(span.parent.span_id, []).append(span)
        for span in found:  # grows while it is gone through
            found.extend(children.pop(span.context.span_id, ()))
        return found

    def _release_trace(self, trace_id: int) -> SpanTree:
        waiting = self._pending[trace_id]
        ids = {span.context.span_id for span in waiting}
        tops = [span for span in waiting if span.parent is None or span.parent.span_id not in ids]
        self._released_ids.update(dict.fromkeys(span.parent.span_id for span in tops if span.parent is not None))
        return self._release_spans(trace_id, self._complete_spans(waiting) or waiting)

    def _release_spans(self, trace_id: int, given: SpanTree) -> SpanTree:
        ids = dict.fromkeys(span.context.span_id for span in given)
        left = [span for span in self._pending[trace_id] if span.context.span_id not in ids]
        self._size -= len(self._pending[trace_id]) - len(left)
        if left:
            self._pending[trace_id] = left
        else:
            del self._pending[trace_id], self._last_arrival[trace_id]
        self._released_ids.update(ids)
        while len(self._released_ids) > self._limits.max_spans:
            self._released_ids.popitem(last=False)
        return given


_STARTING = "start from the environment, and scores nothing"
_FORWARDING = "hand spans on: no span of this process is exported, and nothing is scored"

_log = logging.getLogger("goldspan")
_SCORING = suppress_errors("score exported spans")

T = TypeVar("T")

_exporters: weakref.WeakSet[ScoringExporter] = weakref.WeakSet()


def start_from_environment() -> None:
    """Score this process, whose providers the environment has made: at the exporter's tracer provider, if one was made.

    Nothing raises: what is set up wrongly is counted, logged as one error, and nothing is scored.
    """
    try:
        if made := next(iter(_exporters), None):
            made.attach_to_provider(trace.get_tracer_provider())
            return
        settings = read_environment()
        if settings.enabled or (settings.enabled is None and settings.goldens):
            instrument()
    except Exception as error:  # noqa: BLE001 - the program would be left without its other instrumentation
        _report_failure(error, _STARTING)


class ScoringExporter(SpanExporter):
    """Hands every span on to the exporters behind it, and scores requests when their local root comes through.

    An exporter sees spans after they ended, in batches: a run's results are on its span where that comes in one batch
    with its local root, and always in events and metrics. A processor sees more. So where one can be added to the
    tracer provider, as under `opentelemetry-instrument`, `attend` does that, and leaves everything to it.

    `then` is an exporter or names of exporters, by default those of `GOLDSPAN_THEN_EXPORTER`. Nothing raises here: what
    is set up wrongly is counted, logged as one error, and nothing is scored. Nothing is scored twice either: where a
    `ScoringProcessor` is at work in this process, the spans are only handed on. So they are with `GOLDSPAN_ENABLED=0`.
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
                "goldspan: nothing stands behind OTEL_TRACES_EXPORTER=goldspan to receive the spans and what is put on "
                "them; set OTEL_EXPORTER_OTLP_ENDPOINT, or %s to an exporter's name",
                providers.THEN_EXPORTER,
            )
        self.renew()
        renew_after_fork(self)
        _exporters.add(self)

    def renew(self) -> None:
        """Begin anew in a forked child: what waits is the parent's, and so is perhaps the lock."""
        self._lock = threading.Lock()
        self._reassembler = self._reassembler.empty_copy()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Score what is complete, and hand the spans on."""
        with self._lock:
            if self._is_attached:  # the processor has them already
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
        """Score at the tracer provider from now on, where spans are seen as they start and end."""
        provider.force_flush()
        with self._lock:
            if self._is_off:
                return
            self._score_pending()
            made = self._attempt(lambda: self._instrument_provider(read_environment()))
            self._is_attached = made is not None and made.added_processor

    def shutdown(self) -> None:
        """Score what waits, and shut down the exporters behind, unless they are the processor's now."""
        with self._lock:
            if self._is_attached:
                return
            self._score_pending()
        for exporter in self._downstream:
            exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush the exporters behind. What waits for its local root waits on."""
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
        """Let the processor see a tree of spans, parents first, as if it happened now."""
        assert self._processor is not None
        for span in tree:
            self._processor.on_start(span)  # type: ignore[arg-type] # an ended span says of its start what a live one does
        places = {id(span): place for place, span in enumerate(tree)}
        for span in sorted(tree, key=lambda span: (span.end_time or 0, -places[id(span)])):
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
        except Exception as error:  # noqa: BLE001 - an exporter of another package may raise anything when it is made
            self._is_off = True
            _report_failure(error, action)
            return None


class _EnrichedCopies(SpanProcessor):
    """Receives what the scoring processor hands on, and keeps what is not the span that went in."""

    def __init__(self) -> None:
        self.original: ReadableSpan | None = None
        self._kept: dict[int, ReadableSpan] = {}

    def on_end(self, span: ReadableSpan) -> None:
        """Keep a copy by its original."""
        if span is not self.original:
            self._kept[id(self.original)] = span

    def drain(self) -> dict[int, ReadableSpan]:
        """What was kept since the last time."""
        kept, self._kept, self.original = self._kept, {}, None
        return kept


def _report_failure(error: Exception, action: str) -> None:
    DropCounters()  # publishes the count: there is no processor that would
    report_error(action, error, with_traceback=not isinstance(error, GoldspanError))
