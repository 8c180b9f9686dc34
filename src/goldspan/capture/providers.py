"""Tracer, logger and meter providers made from the `OTEL_*` variables, for programs that have none of their own.

The SDK reads sampling, limits, resources, batching and end points by itself; what is done here is to choose the
exporters by name from the entry points under which packages offer them, `otlp` where nothing is said.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import entry_points
from typing import Any, Literal

from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import SpanProcessor, SynchronousMultiSpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from goldspan.capture.settings import then_exporter
from goldspan.errors import ConfigurationError

Signal = Literal["traces", "logs", "metrics"]

OWN = "goldspan"
"""The name under which `capture.exporter` is offered."""
THEN_EXPORTER = "GOLDSPAN_THEN_EXPORTER"
_END_POINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_OTLP_BY_PROTOCOL = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}


def span_exporters() -> list[SpanExporter]:
    """The exporters that `OTEL_TRACES_EXPORTER` names; in the place of our own, those that stand behind it."""
    variable, names = _names("traces")
    own = OWN in names
    made = [_exporter("traces", variable, name)() for name in names if name != OWN]
    return made + span_exporters_behind() if own else made


def span_exporters_behind(names: Iterable[str] | None = None) -> list[SpanExporter]:
    """The exporters to which `OTEL_TRACES_EXPORTER=goldspan` hands the spans on.

    Those of these names, else those that `GOLDSPAN_THEN_EXPORTER` names, else OTLP's where the environment says which
    end point that is, else none: most programs have nothing at OTLP's default end point, and would log that forever.
    """
    if names is None:
        names = then_exporter()
    if names is None:
        names = ("otlp",) if any(map(os.environ.get, _END_POINTS)) else ()
    if OWN in names:
        raise ConfigurationError(f"{THEN_EXPORTER}: {OWN!r} cannot stand behind itself")
    return [_exporter("traces", THEN_EXPORTER, name)() for name in names if name != "none"]


def in_batches(exporters: Iterable[SpanExporter]) -> SpanProcessor | None:
    """What hands spans to some exporters in batches; `None` for no exporters."""
    batches = [BatchSpanProcessor(exporter) for exporter in exporters]
    if len(batches) < 2:
        return batches[0] if batches else None
    together = SynchronousMultiSpanProcessor()  # type: ignore[no-untyped-call]
    for batch in batches:
        together.add_span_processor(batch)
    return together


def logger_provider() -> LoggerProvider | None:
    """A logger provider with the exporters that `OTEL_LOGS_EXPORTER` names; `None` where it says `none`."""
    made = [make() for make in _exporters("logs")]
    if not made:
        return None
    provider = LoggerProvider()
    for exporter in made:
        provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    return provider


def meter_provider() -> MeterProvider | None:
    """A meter provider with the exporters that `OTEL_METRICS_EXPORTER` names; `None` where it says `none`."""
    readers = [_reader(make()) for make in _exporters("metrics")]
    return MeterProvider(metric_readers=readers) if readers else None


def _reader(made: Any) -> MetricReader:
    """Exporters that are pulled from, such as Prometheus, are readers themselves."""
    return made if isinstance(made, MetricReader) else PeriodicExportingMetricReader(made)


def _exporters(signal: Signal) -> Iterator[Callable[[], Any]]:
    variable, names = _names(signal)
    return (_exporter(signal, variable, name) for name in names)


def _names(signal: Signal) -> tuple[str, list[str]]:
    """The variable that names exporters, and the names."""
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    names = (name.strip() for name in os.environ.get(variable, "otlp").split(","))
    return variable, [name for name in names if name and name.lower() != "none"]


def _exporter(signal: Signal, variable: str, name: str) -> Callable[[], Any]:
    wanted = _otlp(signal) if name == "otlp" else name
    for found in entry_points(group=f"opentelemetry_{signal}_exporter", name=wanted):
        make: Callable[[], Any] = found.load()
        return make
    offered = ", ".join(sorted({point.name for point in entry_points(group=f"opentelemetry_{signal}_exporter")}))
    raise ConfigurationError(f"{variable}: no exporter {wanted!r} is installed; there are {offered} and none")


def _otlp(signal: Signal) -> str:
    """The OTLP exporter for the protocol asked for. As in the SDK, the default is gRPC."""
    for variable in (f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if protocol := os.environ.get(variable, "").strip():
            if protocol not in _OTLP_BY_PROTOCOL:
                known = ", ".join(_OTLP_BY_PROTOCOL)
                raise ConfigurationError(f"{variable}: unknown protocol {protocol!r}; there are {known}")
            return _OTLP_BY_PROTOCOL[protocol]
    return _OTLP_BY_PROTOCOL["grpc"]
