"""The sinks of whoever names none."""

from __future__ import annotations

from opentelemetry._logs import LoggerProvider
from opentelemetry.metrics import MeterProvider

from goldspan.online.figure_sink import FigureSink
from goldspan.sinks import EventSink, MetricSink, Sink


def usual_sinks(
    logger_provider: LoggerProvider | None = None, meter_provider: MeterProvider | None = None
) -> tuple[Sink, ...]:
    """Events, metrics and figures, through these providers or the global ones.

    Which tools become labels the pipeline tells them, as soon as it has goldens and whenever it has others.
    """
    return EventSink(logger_provider), MetricSink(meter_provider), FigureSink(meter_provider, logger_provider)
