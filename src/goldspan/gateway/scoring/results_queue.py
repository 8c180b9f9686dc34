"""Encodes results and enriched spans as OTLP and writes them to the journal for export to back ends."""

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
from goldspan.gateway.journal.journal_file import JournalEntry, NewEntry
from goldspan.gateway.resource_limits import Signal
from goldspan.gateway.scoring.trace_buffer import TraceChunk
from goldspan.goldens import Goldens
from goldspan.goldens.spelling import join_words, short_repr
from goldspan.model import Evaluation
from goldspan.sinks import EventSink, MetricSink, Sink, SpanSink, sink_protocol
from goldspan.sinks.otel_sinks import result_attributes


def enrich_spans(request: bytes, evaluations: Iterable[Evaluation], *, omit_span_ids: Collection[str] = ()) -> bytes:
    """Returns a protobuf trace request with the results of runs added to their spans; nothing else changes.

    `goldspan.sinks.otel_sinks` lists the attributes. A span that already has such an attribute, from goldspan in its
    own process, gets the new value. A span that is both a request and a component gets the results of the request.
    Spans in `omit_span_ids` are removed; the result is empty if no span remains.
    """
    results = _attributes_by_span(evaluations)
    omitted = {bytes.fromhex(span_id) for span_id in omit_span_ids}
    if not results and not omitted:
        return request
    traces = TracesData.FromString(request)
    remaining = 0
    for resource_spans in traces.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for index in reversed(range(len(scope_spans.spans))):
                span = scope_spans.spans[index]
                if span.span_id in omitted:
                    del scope_spans.spans[index]
                    continue
                remaining += 1
                if (attributes := results.get((span.trace_id, span.span_id))) is not None:
                    _set_attributes(span, attributes)
    return traces.SerializeToString() if remaining else b""


def _attributes_by_span(evaluations: Iterable[Evaluation]) -> dict[tuple[bytes, bytes], Mapping[str, Any]]:
    """Returns the result attributes by trace id and span id."""
    results: dict[tuple[bytes, bytes], Mapping[str, Any]] = {}
    for evaluation in evaluations:
        run = evaluation.run
        if run.span_id is None or run.unit == "conversation":
            continue
        span_key = (bytes.fromhex(run.run_id.partition(":")[0]), bytes.fromhex(run.span_id))
        if run.unit == "request" or span_key not in results:
            results[span_key] = result_attributes(evaluation)
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
        return AnyValue(string_value=value.encode("utf-8", "replace").decode())  # replaces unpaired surrogates
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    array = AnyValue()
    array.array_value.values.extend(map(_to_any_value, value))
    return array


ResultSinkKind = Literal["events", "metrics", "spans"]
METRICS_INTERVAL_SECONDS = 60.0
MAX_ITEMS_PER_REQUEST = 512
"""Events or spans per request: the default batch size of the SDK."""


class ResultEncoder:
    """Encodes evaluations as OTLP requests for the journal, with one sink per kind.

    It is itself a sink, which submits to all `sinks`. Events and spans have the trace and span ids of the runs. Metrics
    are cumulative; each worker has its own `service.instance.id`. The scope is `goldspan.gateway`, by which a gateway
    recognises its own results if it receives them.

    `metrics_seconds` is the minimum interval between two collections of metrics; `clock` returns seconds. Thread-safe.
    Raises `ConfigurationError` for an unknown kind.
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
                    f"results must be {join_words(get_args(ResultSinkKind), last='or')}, not {short_repr(kind)}"
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
        factories = {"events": self._event_sink, "metrics": self._metric_sink, "spans": self._span_sink}
        self.sinks: tuple[Sink, ...] = tuple(create(resource) for kind, create in factories.items() if kind in kinds)
        """One sink per kind."""

    def submit(self, evaluation: Evaluation) -> None:
        """Submit an evaluation to all sinks."""
        for sink in self.sinks:
            sink.submit(evaluation)

    def adopt(self, goldens: Goldens) -> None:
        """Pass the goldens that are used from now on to the sinks."""
        sink_protocol.adopt(self.sinks, goldens)

    def drain(self, *, is_final: bool = False) -> list[NewEntry]:
        """Returns the new requests since the last call; metrics only if they are due or `is_final`."""
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
        # Always sampled, because each span is one result.
        provider = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(_BufferSpanExporter(self._spans)))
        return SpanSink(provider, scope=semconv.GATEWAY_SCOPE)


def _to_journal_entry(signal: Signal, request: Any) -> NewEntry:
    return NewEntry(signal, "protobuf", request.SerializeToString(), origin="result")


class _ExportBuffer:
    """Buffers exported items until they are drained."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: list[Any] = []

    def add(self, items: Sequence[Any]) -> None:
        with self._lock:
            self._items.extend(items)

    def drain_batches(self) -> Iterator[list[Any]]:
        """Yields all items in batches of one request each."""
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
        """Does nothing: no resource is open."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True


class _BufferSpanExporter(SpanExporter):
    def __init__(self, buffer: _ExportBuffer) -> None:
        self._buffer = buffer

    def export(self, spans: Sequence[Any]) -> SpanExportResult:
        self._buffer.add(spans)
        return SpanExportResult.SUCCESS


class ResultsQueue:
    """Queues results and enriched spans until they are written to the worker's journal. Not thread-safe."""

    def __init__(self, journal: Journal, results: ResultEncoder | None) -> None:
        self._journal = journal
        self._encoder = results
        self._entries: list[NewEntry] = []
        self.queued_bytes = 0
        """Bytes of queued spans."""

    def add_spans(
        self, chunks: Iterable[TraceChunk], evaluations: Iterable[Evaluation], *, omit_span_ids: Collection[str] = ()
    ) -> None:
        """Queue held spans for export, with the results of `evaluations`, without the spans in `omit_span_ids`."""
        enriched = request = b"".join(chunk for chunk in chunks if isinstance(chunk, bytes))
        if request:
            with suppress_errors("add results to spans"):
                enriched = enrich_spans(request, evaluations, omit_span_ids=omit_span_ids)
        if enriched:
            self._add(NewEntry("traces", "protobuf", enriched, origin="enriched"))

    def add_unchanged(self, entry: JournalEntry) -> None:
        """Queue an entry for export unchanged, because it cannot be converted without loss."""
        self._add(NewEntry(entry.signal, entry.media, entry.body, origin="enriched"))

    def flush(self, *, is_final: bool = False) -> None:
        """Write the queue to the journal; if `is_final`, with metrics that are not due yet.

        Raises `GoldspanError` on failure; nothing is lost then, and it may be called again.
        """
        if self._encoder is not None:
            self._entries += self._encoder.drain(is_final=is_final)
        if self._entries:
            self._journal.append_all(self._entries).result()
            self._entries, self.queued_bytes = [], 0

    def _add(self, item: NewEntry) -> None:
        self._entries.append(item)
        self.queued_bytes += len(item.body)
