"""Where evaluations go: attributes of spans, events, metrics, spans, files, functions; and what may leave at all."""

from __future__ import annotations

from goldspan.sinks.background_sink import BackgroundSink, FunctionSink, as_sink
from goldspan.sinks.drop_counters import DropCounters
from goldspan.sinks.metric_sink import MetricSink
from goldspan.sinks.otel_sinks import EventSink, SpanSink, result_attributes
from goldspan.sinks.redaction import ArgumentFilter, Redact, apply_redaction
from goldspan.sinks.serialization import JsonLinesSink
from goldspan.sinks.sink_protocol import Sink, SinkLike, adopt, flush_all, shutdown_all

__all__ = [
    "ArgumentFilter",
    "BackgroundSink",
    "DropCounters",
    "EventSink",
    "FunctionSink",
    "JsonLinesSink",
    "MetricSink",
    "Redact",
    "Sink",
    "SinkLike",
    "SpanSink",
    "adopt",
    "apply_redaction",
    "as_sink",
    "flush_all",
    "result_attributes",
    "shutdown_all",
]
