"""Exports evaluations as OpenTelemetry events, metrics and spans, to files and to functions.

Modules in reading order:

- ``sink_protocol``: the `Sink` protocol, and functions that flush and shut down all sinks.
- ``otel_sinks``: `EventSink`, `SpanSink` and the attributes of results.
- ``metric_sink``: `MetricSink` and its bounded label sets.
- ``serialization``: evaluations and runs as JSON documents, and `JsonLinesSink`.
- ``background_sink``: `BackgroundSink`, `FunctionSink` and the validation of sinks.
- ``redaction``: removes values from evaluations before they leave the process.
- ``drop_counters``: the counters of dropped spans, runs and evaluations.
- ``fork_safety``: resets objects in forked children.
"""

from __future__ import annotations

from goldspan.sinks.background_sink import BackgroundSink, FunctionSink, as_sink
from goldspan.sinks.drop_counters import DropCounters
from goldspan.sinks.metric_sink import MetricSink
from goldspan.sinks.otel_sinks import EventSink, SpanSink, result_attributes
from goldspan.sinks.redaction import ArgumentFilter, Redact, apply_redaction
from goldspan.sinks.serialization import JsonLinesSink
from goldspan.sinks.sink_protocol import Sink, SinkLike, adopt, flush_all, shutdown_all, split_by_export

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
    "split_by_export",
]
