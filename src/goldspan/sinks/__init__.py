"""Where evaluations go: attributes of spans, events, metrics."""

from __future__ import annotations

from goldspan.sinks.attributes import result_attributes
from goldspan.sinks.events import EventSink
from goldspan.sinks.instruments import MetricSink
from goldspan.sinks.losses import Losses
from goldspan.sinks.protocol import Sink

__all__ = ["EventSink", "Losses", "MetricSink", "Sink", "result_attributes"]
