"""Creates tracer, logger and meter providers from the `OTEL_*` variables, for programs that have none.

The SDK itself reads sampling, limits, resources, batching and endpoints. This module selects the exporters by the names
of their entry points; the default is `otlp`.
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
"""The entry point name of `capture.exporter`."""
THEN_EXPORTER = "GOLDSPAN_THEN_EXPORTER"
_ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_OTLP_BY_PROTOCOL = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}


def span_exporters() -> list[SpanExporter]:
    """Returns the exporters that `OTEL_TRACES_EXPORTER` names, with the downstream exporters in place of `goldspan`."""
    variable, names = _exporter_names("traces")
    exporters = [_load_exporter("traces", variable, name)() for name in names if name != OWN_EXPORTER]
    return exporters + downstream_span_exporters() if OWN_EXPORTER in names else exporters


def downstream_span_exporters(names: Iterable[str] | None = None) -> list[SpanExporter]:
    """Returns the exporters to which `OTEL_TRACES_EXPORTER=goldspan` forwards the spans.

    These are the exporters with the names passed; else those that `GOLDSPAN_THEN_EXPORTER` names; else OTLP if the
    environment sets an endpoint; else none. OTLP's default endpoint is not assumed, since most programs have no
    receiver there and would log errors forever.
    """
    if names is None:
        names = downstream_exporter_names()
    if names is None:
        names = ("otlp",) if any(map(os.environ.get, _ENDPOINT_VARIABLES)) else ()
    if OWN_EXPORTER in names:
        raise ConfigurationError(f"{THEN_EXPORTER}: {OWN_EXPORTER!r} cannot forward to itself")
    return [_load_exporter("traces", THEN_EXPORTER, name)() for name in names if name != "none"]


def batch_processor(exporters: Iterable[SpanExporter]) -> SpanProcessor | None:
    """Returns a processor that exports in batches to the exporters; `None` without exporters."""
    batches = [BatchSpanProcessor(exporter) for exporter in exporters]
    if len(batches) < 2:
        return batches[0] if batches else None
    combined = SynchronousMultiSpanProcessor()  # type: ignore[no-untyped-call]
    for batch in batches:
        combined.add_span_processor(batch)
    return combined


def build_logger_provider() -> LoggerProvider | None:
    """Returns a logger provider with the exporters of `OTEL_LOGS_EXPORTER`; `None` if it is `none`."""
    exporters = [create() for create in _load_exporters("logs")]
    if not exporters:
        return None
    provider = LoggerProvider()
    for exporter in exporters:
        provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    return provider


def build_meter_provider() -> MeterProvider | None:
    """Returns a meter provider with the exporters of `OTEL_METRICS_EXPORTER`; `None` if it is `none`."""
    readers = [_as_metric_reader(create()) for create in _load_exporters("metrics")]
    return MeterProvider(metric_readers=readers) if readers else None


def _as_metric_reader(exporter: Any) -> MetricReader:
    """Wraps a push exporter; pull exporters, such as Prometheus, are readers themselves."""
    return exporter if isinstance(exporter, MetricReader) else PeriodicExportingMetricReader(exporter)


def _load_exporters(signal: Signal) -> Iterator[Callable[[], Any]]:
    variable, names = _exporter_names(signal)
    return (_load_exporter(signal, variable, name) for name in names)


def _exporter_names(signal: Signal) -> tuple[str, list[str]]:
    """Returns the variable that names exporters, and the names."""
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    names = (name.strip() for name in os.environ.get(variable, "otlp").split(","))
    return variable, [name for name in names if name and name.lower() != "none"]


def _load_exporter(signal: Signal, variable: str, name: str) -> Callable[[], Any]:
    group = f"opentelemetry_{signal}_exporter"
    entry_name = _otlp_exporter_name(signal) if name == "otlp" else name
    for entry_point in entry_points(group=group, name=entry_name):
        try:
            create: Callable[[], Any] = entry_point.load()
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                f"{variable}: the exporter {entry_name!r} needs the package {error.name}, which is not installed"
                + _http_advice(signal, entry_name)
            ) from error
        return create
    installed = ", ".join(sorted({entry_point.name for entry_point in entry_points(group=group)}))
    raise ConfigurationError(
        f"{variable}: no exporter {entry_name!r} is installed; valid names: {installed}, none"
        + _http_advice(signal, entry_name)
    )


def _http_advice(signal: Signal, exporter: str) -> str:
    """Returns what to change if the exporter over gRPC, which is the default, cannot be used."""
    if exporter != _OTLP_BY_PROTOCOL["grpc"]:
        return ""
    return f"; to export over HTTP, set OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL=http/protobuf"


def _otlp_exporter_name(signal: Signal) -> str:
    """Returns the OTLP exporter for the configured protocol. As in the SDK, the default is gRPC."""
    for variable in (f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if protocol := os.environ.get(variable, "").strip():
            if protocol not in _OTLP_BY_PROTOCOL:
                known = ", ".join(_OTLP_BY_PROTOCOL)
                raise ConfigurationError(f"{variable}: unknown protocol {protocol!r}; valid protocols: {known}")
            return _OTLP_BY_PROTOCOL[protocol]
    return _OTLP_BY_PROTOCOL["grpc"]
