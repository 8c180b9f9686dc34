"""Where evaluations go: attributes of spans, events, metrics, spans, files, functions; and what may leave at all."""

from __future__ import annotations

from goldspan.sinks.attributes import result_attributes
from goldspan.sinks.background import BackgroundSink
from goldspan.sinks.callables import CallableSink, as_sink
from goldspan.sinks.events import EventSink
from goldspan.sinks.instruments import MetricSink
from goldspan.sinks.lines import JsonLinesSink
from goldspan.sinks.losses import Losses
from goldspan.sinks.protocol import Sink, SinkLike, adopt, flush, shutdown
from goldspan.sinks.redaction import ArgumentFilter, Redact, redacted
from goldspan.sinks.spans import SpanSink

__all__ = [
    "ArgumentFilter",
    "BackgroundSink",
    "CallableSink",
    "EventSink",
    "JsonLinesSink",
    "Losses",
    "MetricSink",
    "Redact",
    "Sink",
    "SinkLike",
    "SpanSink",
    "adopt",
    "as_sink",
    "flush",
    "redacted",
    "result_attributes",
    "shutdown",
]
