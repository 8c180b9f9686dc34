"""What leaves because of scoring: results, and spans that were held for them. All of it goes through the journal."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, get_args

from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from goldspan import semconv
from goldspan._guard import suppress_errors
from goldspan._version import __version__
from goldspan.errors import ConfigurationError
from goldspan.gateway.journal.journal import Journal
from goldspan.gateway.journal.journal_entries import JournalEntry, NewEntry
from goldspan.gateway.resource_limits import Signal
from goldspan.gateway.scoring.trace_buffer import TraceChunk
from goldspan.goldens import Goldens
from goldspan.goldens.spelling import join_words, short_repr
from goldspan.model import Evaluation
from goldspan.sinks import EventSink, MetricSink, Sink, SpanSink, sink_protocol
from goldspan.sinks.otel_sinks import result_attributes


def enrich_spans(request: bytes, evaluations: Iterable[Evaluation], *, omit_span_ids: Collection[str] = ()) -> bytes:
    """An OTLP trace request in protobuf, with the results of runs on their spans; nothing else in it changes.

    What is written is listed in `goldspan.sinks.otel_sinks`. A span that has such an attribute already, from a
    goldspan in its own process, gets the new value. Where a span is a request and a component at once, it has the
    results of the request. It is `without` spans of these ids; no bytes where none is left.
    """
    results = _attributes_by_span(evaluations)
    left_out = {bytes.fromhex(span_id) for span_id in omit_span_ids}
    if not results and not left_out:
        return request
    traces = TracesData.FromString(request)
    spans_left = 0
    for resource_spans in traces.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for at in reversed(range(len(scope_spans.spans))):
                span = scope_spans.spans[at]
                if span.span_id in left_out:
                    del scope_spans.spans[at]
                    continue
                spans_left += 1
                if (attributes := results.get((span.trace_id, span.span_id))) is not None:
                    _set_attributes(span, attributes)
    return traces.SerializeToString() if spans_left else b""


def _attributes_by_span(evaluations: Iterable[Evaluation]) -> dict[tuple[bytes, bytes], Mapping[str, Any]]:
    """What is written on which spans, by the ids of their trace and of themselves."""
    results: dict[tuple[bytes, bytes], Mapping[str, Any]] = {}
    for evaluation in evaluations:
        run = evaluation.run
        if run.span_id is None or run.unit == "conversation":
            continue
        place = (bytes.fromhex(run.run_id.partition(":")[0]), bytes.fromhex(run.span_id))
        if run.unit == "request" or place not in results:
            results[place] = result_attributes(evaluation)
    return results


def _set_attributes(span: Span, attributes: Mapping[str, Any]) -> None:
    kept = [pair for pair in span.attributes if pair.key not in attributes]
    del span.attributes[:]
    span.attributes.extend(kept)
    span.attributes.extend(KeyValue(key=key, value=_to_any_value(value)) for key, value in attributes.items())


def _to_any_value(value: Any) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, str):
        return AnyValue(string_value=value.encode("utf-8", "replace").decode())  # half a surrogate pair is none
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    written = AnyValue()
    written.array_value.values.extend(map(_to_any_value, value))
    return written


ResultSinkKind = Literal["events", "metrics", "spans"]
METRICS_INTERVAL_SECONDS = 60.0
MAX_ITEMS_PER_REQUEST = 512
"""So many events or spans are one request: what the SDK's own batches are by default."""


class ResultEncoder:
    """Sinks of these kinds whose telemetry is kept until somebody takes it, as requests for the journal.

    `sinks` are what evaluations are submitted to; this is a sink itself, too, and submits to all of them. Events and
    spans carry the trace and span ids of the runs. Metrics are cumulative, from a process of its own: workers differ in
    `service.instance.id`. All of it is in the scope `goldspan.gateway`, by which a gateway knows it when it comes back.

    `metrics_seconds` is how often at most metrics are collected; `clock` tells seconds. Any thread may submit, and any
    take. Raises `ConfigurationError` for kinds that there are not.
    """

    def __init__(
        self,
        kinds: Collection[ResultSinkKind],
        *,
        metrics_seconds: float = METRICS_INTERVAL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for kind in kinds:
            if kind not in get_args(ResultSinkKind):
                raise ConfigurationError(
                    f"results are {join_words(get_args(ResultSinkKind), last='or')}, not {short_repr(kind)}"
                )
        self._metrics_seconds = metrics_seconds
        self._clock = clock
        self._next_collection = clock() + metrics_seconds
        self._lock = threading.Lock()
        self._events, self._spans = _ExportBuffer(), _ExportBuffer()
        self._metrics: InMemoryMetricReader | None = None
        resource = Resource.create(
            {
                "service.name": "goldspan-gateway",
                "service.version": __version__,
                "service.instance.id": str(uuid.uuid4()),
            }
        )
        made = {"events": self._event_sink, "metrics": self._metric_sink, "spans": self._span_sink}
        self.sinks: tuple[Sink, ...] = tuple(make(resource) for kind, make in made.items() if kind in kinds)
        """A sink of each kind."""

    def submit(self, evaluation: Evaluation) -> None:
        """Give an evaluation to all of the sinks."""
        for sink in self.sinks:
            sink.submit(evaluation)

    def adopt(self, goldens: Goldens) -> None:
        """Tell the sinks by which goldens runs are judged from now on."""
        sink_protocol.adopt(self.sinks, goldens)

    def drain(self, *, is_final: bool = False) -> list[NewEntry]:
        """What came since the last time, and metrics where it is time for them or this is the `final` time."""
        items = [_to_journal_entry("logs", encode_logs(batch)) for batch in self._events.drain_batches()]
        items += [_to_journal_entry("traces", encode_spans(batch)) for batch in self._spans.drain_batches()]
        if self._metrics is not None and self._is_collection_due(is_final):
            data = self._metrics.get_metrics_data()
            if data is not None and data.resource_metrics:
                items.append(_to_journal_entry("metrics", encode_metrics(data)))
        return items

    def _is_collection_due(self, is_final: bool) -> bool:
        with self._lock:
            now = self._clock()
            if now < self._next_collection and not is_final:
                return False
            self._next_collection = now + self._metrics_seconds
            return True

    def _event_sink(self, resource: Resource) -> Sink:
        provider = LoggerProvider(resource, shutdown_on_exit=False)
        provider.add_log_record_processor(SimpleLogRecordProcessor(_BufferLogExporter(self._events)))
        return EventSink(provider, scope=semconv.GATEWAY_SCOPE)

    def _metric_sink(self, resource: Resource) -> Sink:
        self._metrics = InMemoryMetricReader()
        provider = MeterProvider([self._metrics], resource, shutdown_on_exit=False)
        return MetricSink(provider, scope=semconv.GATEWAY_SCOPE)

    def _span_sink(self, resource: Resource) -> Sink:
        # Not every span of an application need be recorded; here each is one result.
        provider = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(_BufferSpanExporter(self._spans)))
        return SpanSink(provider, scope=semconv.GATEWAY_SCOPE)


def _to_journal_entry(signal: Signal, request: Any) -> NewEntry:
    return NewEntry(signal, "protobuf", request.SerializeToString(), origin="result")


class _ExportBuffer:
    """What an exporter was given, until it is taken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: list[Any] = []

    def add(self, items: Sequence[Any]) -> None:
        with self._lock:
            self._items.extend(items)

    def drain_batches(self) -> Iterator[list[Any]]:
        """All of it, by so many that make one request."""
        with self._lock:
            items, self._items = iter(self._items), []
        while batch := list(islice(items, MAX_ITEMS_PER_REQUEST)):
            yield batch


class _BufferLogExporter(LogRecordExporter):
    def __init__(self, buffer: _ExportBuffer) -> None:
        self._buffer = buffer

    def export(self, batch: Sequence[Any]) -> LogRecordExportResult:
        self._buffer.add(batch)
        return LogRecordExportResult.SUCCESS

    def shutdown(self) -> None:
        """Nothing is open."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True


class _BufferSpanExporter(SpanExporter):
    def __init__(self, buffer: _ExportBuffer) -> None:
        self._buffer = buffer

    def export(self, spans: Sequence[Any]) -> SpanExportResult:
        self._buffer.add(spans)
        return SpanExportResult.SUCCESS


class ResultsQueue:
    """Collects what scoring has for back ends, until it is written to the journal of the worker. For one thread."""

    def __init__(self, journal: Journal, results: ResultEncoder | None) -> None:
        self._journal = journal
        self._encoder = results
        self._entries: list[NewEntry] = []
        self.queued_bytes = 0
        """Bytes of spans that are not written yet."""

    def add_spans(
        self, chunks: Iterable[TraceChunk], evaluations: Iterable[Evaluation], *, omit_span_ids: Collection[str] = ()
    ) -> None:
        """Take spans to be handed on, each a request in protobuf, what was scored by them, and the ids of spans in them
        that stay here.
        """
        written = request = b"".join(part for part in chunks if isinstance(part, bytes))
        if request:
            with suppress_errors("write results into spans"):
                written = enrich_spans(request, evaluations, omit_span_ids=omit_span_ids)
        if written:
            self._add(NewEntry("traces", "protobuf", written, origin="enriched"))

    def add_unchanged(self, entry: JournalEntry) -> None:
        """Take an entry that is handed on unchanged, because something in it could not be written otherwise."""
        self._add(NewEntry(entry.signal, entry.media, entry.body, origin="enriched"))

    def flush(self, *, is_final: bool = False) -> None:
        """Have everything on disk, at the `final` time with figures that are not due yet.

        Raises `GoldspanError` where that fails; nothing is lost then, and it may be called again.
        """
        if self._encoder is not None:
            self._entries += self._encoder.drain(is_final=is_final)
        if self._entries:
            self._journal.append_all(self._entries).result()
            self._entries, self.queued_bytes = [], 0

    def _add(self, item: NewEntry) -> None:
        self._entries.append(item)
        self.queued_bytes += len(item.body)
