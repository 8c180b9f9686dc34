"""Evaluations as OTLP requests, for the back ends that the runs themselves are forwarded to."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from typing import Any, Literal, get_args

from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from goldspan import semconv
from goldspan._version import __version__
from goldspan.errors import ConfigurationError
from goldspan.gateway.journal.writing import Item
from goldspan.gateway.signals import Signal
from goldspan.goldens import Goldens
from goldspan.goldens.words import listed, shown
from goldspan.model import Evaluation
from goldspan.sinks import EventSink, MetricSink, Sink, SpanSink, protocol

ResultKind = Literal["events", "metrics", "spans"]
METRICS_SECONDS = 60.0
MOST_ITEMS = 512
"""So many events or spans are one request: what the SDK's own batches are by default."""


class Results:
    """Sinks of these kinds whose telemetry is kept until somebody takes it, as requests for the journal.

    `sinks` are what evaluations are submitted to; this is a sink itself, too, and submits to all of them. Events and
    spans carry the trace and span ids of the runs. Metrics are cumulative, from a process of its own: workers differ in
    `service.instance.id`. All of it is in the scope `goldspan.gateway`, by which a gateway knows it when it comes back.

    `metrics_seconds` is how often at most metrics are collected; `clock` tells seconds. Any thread may submit, and any
    take. Raises `ConfigurationError` for kinds that there are not.
    """

    def __init__(
        self,
        kinds: Collection[ResultKind],
        *,
        metrics_seconds: float = METRICS_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for kind in kinds:
            if kind not in get_args(ResultKind):
                raise ConfigurationError(f"results are {listed(get_args(ResultKind), last='or')}, not {shown(kind)}")
        self._metrics_seconds = metrics_seconds
        self._clock = clock
        self._collect_at = clock() + metrics_seconds
        self._lock = threading.Lock()
        self._events, self._spans = _Kept(), _Kept()
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
        protocol.adopt(self.sinks, goldens)

    def take(self, *, final: bool = False) -> list[Item]:
        """What came since the last time, and metrics where it is time for them or this is the `final` time."""
        items = [_item("logs", encode_logs(batch)) for batch in self._events.batches()]
        items += [_item("traces", encode_spans(batch)) for batch in self._spans.batches()]
        if self._metrics is not None and self._is_time(final):
            data = self._metrics.get_metrics_data()
            if data is not None and data.resource_metrics:
                items.append(_item("metrics", encode_metrics(data)))
        return items

    def _is_time(self, final: bool) -> bool:
        with self._lock:
            now = self._clock()
            if now < self._collect_at and not final:
                return False
            self._collect_at = now + self._metrics_seconds
            return True

    def _event_sink(self, resource: Resource) -> Sink:
        provider = LoggerProvider(resource, shutdown_on_exit=False)
        provider.add_log_record_processor(SimpleLogRecordProcessor(_KeptEvents(self._events)))
        return EventSink(provider, scope=semconv.GATEWAY_SCOPE)

    def _metric_sink(self, resource: Resource) -> Sink:
        self._metrics = InMemoryMetricReader()
        provider = MeterProvider([self._metrics], resource, shutdown_on_exit=False)
        return MetricSink(provider, scope=semconv.GATEWAY_SCOPE)

    def _span_sink(self, resource: Resource) -> Sink:
        # Not every span of an application need be recorded; here each is one result.
        provider = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(_KeptSpans(self._spans)))
        return SpanSink(provider, scope=semconv.GATEWAY_SCOPE)


def _item(signal: Signal, request: Any) -> Item:
    return Item(signal, "protobuf", request.SerializeToString(), origin="result")


class _Kept:
    """What an exporter was given, until it is taken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: list[Any] = []

    def add(self, items: Sequence[Any]) -> None:
        with self._lock:
            self._items.extend(items)

    def batches(self) -> Iterator[list[Any]]:
        """All of it, by so many that make one request."""
        with self._lock:
            items, self._items = iter(self._items), []
        while batch := list(islice(items, MOST_ITEMS)):
            yield batch


class _KeptEvents(LogRecordExporter):
    def __init__(self, kept: _Kept) -> None:
        self._kept = kept

    def export(self, batch: Sequence[Any]) -> LogRecordExportResult:
        self._kept.add(batch)
        return LogRecordExportResult.SUCCESS

    def shutdown(self) -> None:
        """Nothing is open."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True


class _KeptSpans(SpanExporter):
    def __init__(self, kept: _Kept) -> None:
        self._kept = kept

    def export(self, spans: Sequence[Any]) -> SpanExportResult:
        self._kept.add(spans)
        return SpanExportResult.SUCCESS
