"""`OTEL_TRACES_EXPORTER=goldspan`: a span exporter that stands before others and scores what goes through it."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from goldspan._guard import guard, report
from goldspan.capture import providers
from goldspan.capture.gathering import Gathering, Spans
from goldspan.capture.processor import ScoringProcessor
from goldspan.capture.settings import Settings, from_environment
from goldspan.capture.setup import Instrumentation, instrument, processor_from, reason_to_stay_off, starting
from goldspan.capture.sources import GoldensLike
from goldspan.errors import GoldspanError
from goldspan.online import Limits
from goldspan.online.sampling import ExportSampling
from goldspan.sinks import Losses
from goldspan.sinks.forking import renew_in_forked_children

_STARTING = "start from the environment, and scores nothing"
_HANDING_ON = "hand spans on: no span of this process is exported, and nothing is scored"

_log = logging.getLogger("goldspan")
_SCORING = guard("score exported spans")

T = TypeVar("T")

_exporters: weakref.WeakSet[ScoringExporter] = weakref.WeakSet()


def start() -> None:
    """Score this process, whose providers the environment has made: at the exporter's tracer provider, if one was made.

    Nothing raises: what is set up wrongly is counted, logged as one error, and nothing is scored.
    """
    try:
        if made := next(iter(_exporters), None):
            made.attend(trace.get_tracer_provider())
            return
        settings = from_environment()
        if settings.enabled or (settings.enabled is None and settings.goldens):
            instrument()
    except Exception as error:  # noqa: BLE001 - the program would be left without its other instrumentation
        _tell(error, _STARTING)


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
        self._off = False
        self._attended = False
        self._processor: ScoringProcessor | None = None
        self._gathering = Gathering(Limits())
        self._copies = _Copies()
        self._sampling = ExportSampling()
        self._behind = [then] if isinstance(then, SpanExporter) else self._named(then)
        if not self._behind and not self._off:
            _log.warning(
                "goldspan: nothing stands behind OTEL_TRACES_EXPORTER=goldspan to receive the spans and what is put on "
                "them; set OTEL_EXPORTER_OTLP_ENDPOINT, or %s to an exporter's name",
                providers.THEN_EXPORTER,
            )
        self.renew()
        renew_in_forked_children(self)
        _exporters.add(self)

    def renew(self) -> None:
        """Begin anew in a forked child: what waits is the parent's, and so is perhaps the lock."""
        self._lock = threading.Lock()
        self._gathering = self._gathering.renewed()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Score what is complete, and hand the spans on."""
        with self._lock:
            if self._attended:  # the processor has them already
                return SpanExportResult.SUCCESS
            with _SCORING:
                for tree in self._trees(spans):
                    self._score(tree)
            copies = self._copies.take()
        kept = [copies.get(id(span), span) for span in spans if self._sampling.exports(span.context.trace_id)]
        if spans and not kept:
            return SpanExportResult.SUCCESS
        results = [exporter.export(kept) for exporter in self._behind]
        return SpanExportResult.FAILURE if SpanExportResult.FAILURE in results else SpanExportResult.SUCCESS

    def attend(self, provider: Any) -> None:
        """Score at the tracer provider from now on, where spans are seen as they start and end."""
        provider.force_flush()
        with self._lock:
            if self._off:
                return
            self._finish()
            made = self._attempt(lambda: self._instrument(from_environment()))
            self._attended = made is not None and made.added

    def shutdown(self) -> None:
        """Score what waits, and shut down the exporters behind, unless they are the processor's now."""
        with self._lock:
            if self._attended:
                return
            self._finish()
        for exporter in self._behind:
            exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush the exporters behind. What waits for its local root waits on."""
        flushed = [] if self._attended else [exporter.force_flush(timeout_millis) for exporter in self._behind]
        return all(flushed)

    def _trees(self, spans: Sequence[ReadableSpan]) -> Iterable[Spans]:
        if self._processor is None and not self._off:
            self._processor = self._attempt(lambda: self._make(from_environment()))
        return () if self._processor is None else self._gathering.add(spans, time.monotonic())

    def _instrument(self, settings: Settings) -> Instrumentation | None:
        if settings.enabled is False:
            return None
        return instrument(self._goldens, then=providers.in_batches(self._behind))

    def _make(self, settings: Settings) -> ScoringProcessor | None:
        with starting:
            if settings.enabled is False or reason_to_stay_off(settings) is not None:
                return None
            self._gathering = Gathering(Limits(**settings.said("limits")))
            processor = processor_from(settings, self._goldens, then=self._copies, background=False)
        self._sampling = ExportSampling(1.0 if settings.export_sample is None else settings.export_sample)
        return processor

    def _score(self, tree: Spans) -> None:
        """Let the processor see a tree of spans, parents first, as if it happened now."""
        assert self._processor is not None
        for span in tree:
            self._processor.on_start(span)  # type: ignore[arg-type] # an ended span says of its start what a live one does
        places = {id(span): place for place, span in enumerate(tree)}
        for span in sorted(tree, key=lambda span: (span.end_time or 0, -places[id(span)])):
            self._copies.original = span
            self._processor.on_end(span)

    def _finish(self) -> None:
        if self._processor is not None:
            with _SCORING:
                for tree in self._gathering.release():
                    self._score(tree)
                self._processor.shutdown()
            self._processor = None

    def _named(self, then: str | None) -> list[SpanExporter]:
        names = None if then is None else [name.strip() for name in then.split(",")]
        return self._attempt(lambda: providers.span_exporters_behind(names), _HANDING_ON) or []

    def _attempt(self, make: Callable[[], T], doing: str = _STARTING) -> T | None:
        try:
            return make()
        except Exception as error:  # noqa: BLE001 - an exporter of another package may raise anything when it is made
            self._off = True
            _tell(error, doing)
            return None


class _Copies(SpanProcessor):
    """Receives what the scoring processor hands on, and keeps what is not the span that went in."""

    def __init__(self) -> None:
        self.original: ReadableSpan | None = None
        self._kept: dict[int, ReadableSpan] = {}

    def on_end(self, span: ReadableSpan) -> None:
        """Keep a copy by its original."""
        if span is not self.original:
            self._kept[id(self.original)] = span

    def take(self) -> dict[int, ReadableSpan]:
        """What was kept since the last time."""
        kept, self._kept, self.original = self._kept, {}, None
        return kept


def _tell(error: Exception, doing: str) -> None:
    Losses()  # publishes the count: there is no processor that would
    report(doing, error, traceback=not isinstance(error, GoldspanError))
