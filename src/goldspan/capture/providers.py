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

from goldspan.capture.environment import downstream_exporter_names
from goldspan.errors import ConfigurationError

Signal = Literal["traces", "logs", "metrics"]

OWN_EXPORTER = "goldspan"
"""The name under which `capture.exporter` is offered."""
THEN_EXPORTER = "GOLDSPAN_THEN_EXPORTER"
_ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_OTLP_BY_PROTOCOL = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}


def span_exporters() -> list[SpanExporter]:
    """The exporters that `OTEL_TRACES_EXPORTER` names; in the place of our own, those that stand behind it."""
    variable, names = _exporter_names("traces")
    own = OWN_EXPORTER in names
    made = [_load_exporter("traces", variable, name)() for name in names if name != OWN_EXPORTER]
    return made + downstream_span_exporters() if own else made


def downstream_span_exporters(names: Iterable[str] | None = None) -> list[SpanExporter]:
    """The exporters to which `OTEL_TRACES_EXPORTER=goldspan` hands the spans on.

    Those of these names, else those that `GOLDSPAN_THEN_EXPORTER` names, else OTLP's where the environment says which
    end point that is, else none: most programs have nothing at OTLP's default end point, and would log that forever.
    """
    if names is None:
        names = downstream_exporter_names()
    if names is None:
        names = ("otlp",) if any(map(os.environ.get, _ENDPOINT_VARIABLES)) else ()
    if OWN_EXPORTER in names:
        raise ConfigurationError(f"{THEN_EXPORTER}: {OWN_EXPORTER!r} cannot stand behind itself")
    return [_load_exporter("traces", THEN_EXPORTER, name)() for name in names if name != "none"]


def batch_processor(exporters: Iterable[SpanExporter]) -> SpanProcessor | None:
    """What hands spans to some exporters in batches; `None` for no exporters."""
    batches = [BatchSpanProcessor(exporter) for exporter in exporters]
    if len(batches) < 2:
        return batches[0] if batches else None
    together = SynchronousMultiSpanProcessor()  # type: ignore[no-untyped-call]
    for batch in batches:
        together.add_span_processor(batch)
    return together


def build_logger_provider() -> LoggerProvider | None:
    """A logger provider with the exporters that `OTEL_LOGS_EXPORTER` names; `None` where it says `none`."""
    made = [make() for make in _load_exporters("logs")]
    if not made:
        return None
    provider = LoggerProvider()
    for exporter in made:
        provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    return provider


def build_meter_provider() -> MeterProvider | None:
    """A meter provider with the exporters that `OTEL_METRICS_EXPORTER` names; `None` where it says `none`."""
    readers = [_as_metric_reader(make()) for make in _load_exporters("metrics")]
    return MeterProvider(metric_readers=readers) if readers else None


def _as_metric_reader(made: Any) -> MetricReader:
    """Exporters that are pulled from, such as Prometheus, are readers themselves."""
    return made if isinstance(made, MetricReader) else PeriodicExportingMetricReader(made)


def _load_exporters(signal: Signal) -> Iterator[Callable[[], Any]]:
    variable, names = _exporter_names(signal)
    return (_load_exporter(signal, variable, name) for name in names)


def _exporter_names(signal: Signal) -> tuple[str, list[str]]:
    """The variable that names exporters, and the names."""
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    names = (name.strip() for name in os.environ.get(variable, "otlp").split(","))
    return variable, [name for name in names if name and name.lower() != "none"]


def _load_exporter(signal: Signal, variable: str, name: str) -> Callable[[], Any]:
    wanted = _otlp_exporter_name(signal) if name == "otlp" else name
    for found in entry_points(group=f"opentelemetry_{signal}_exporter", name=wanted):
        make: Callable[[], Any] = found.load()
        return make
    offered = ", ".join(sorted({point.name for point in entry_points(group=f"opentelemetry_{signal}_exporter")}))
    raise ConfigurationError(f"{variable}: no exporter {wanted!r} is installed; there are {offered} and none")


def _otlp_exporter_name(signal: Signal) -> str:
    """The OTLP exporter for the protocol asked for. As in the SDK, the default is gRPC."""
    for variable in (f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if protocol := os.environ.get(variable, "").strip():
            if protocol not in _OTLP_BY_PROTOCOL:
                known = ", ".join(_OTLP_BY_PROTOCOL)
                raise ConfigurationError(f"{variable}: unknown protocol {protocol!r}; there are {known}")
            return _OTLP_BY_PROTOCOL[protocol]
    return _OTLP_BY_PROTOCOL["grpc"]
