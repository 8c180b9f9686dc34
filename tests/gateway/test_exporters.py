"""Tests with the exporters of OpenTelemetry's Python SDK, for all signals and both protocols."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogs
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogs
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from goldspan.gateway.receivers.authorization import LOOPBACK_HOSTS, Authorizer
from goldspan.gateway.receivers.http_server import TlsConfig
from support.gateway_receivers import OpenDoors, RunningReceivers

NUMBER = 1_000

ExporterFactory = Callable[[str], Any]
"""Creates the exporter of a signal."""


def emit_spans(exporter: Any) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter, max_export_batch_size=100))
    tracer = provider.get_tracer("test")
    for number in range(NUMBER):
        tracer.start_span(f"span {number}").end()
    provider.shutdown()


def emit_logs(exporter: Any) -> None:
    provider = LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter, max_export_batch_size=100))
    logger = provider.get_logger("test")
    for number in range(NUMBER):
        logger.emit(body=f"record {number}")
    provider.shutdown()


def emit_metrics(exporter: Any) -> None:
    provider = MeterProvider([PeriodicExportingMetricReader(exporter)], shutdown_on_exit=False)
    counter = provider.get_meter("test").create_counter("things")
    for number in range(NUMBER):
        counter.add(1, {"number": number})
    provider.shutdown()


def names(receivers: RunningReceivers) -> dict[str, list[str]]:
    """The received items, by signal."""
    found: dict[str, list[str]] = {"traces": [], "logs": [], "metrics": []}
    for entry in receivers.entries():
        if entry.signal == "traces":
            for spans in ExportTraceServiceRequest.FromString(entry.body).resource_spans:
                found["traces"] += [span.name for scope in spans.scope_spans for span in scope.spans]
        elif entry.signal == "logs":
            for logs in ExportLogsServiceRequest.FromString(entry.body).resource_logs:
                found["logs"] += [record.body.string_value for scope in logs.scope_logs for record in scope.log_records]
        else:
            for metrics in ExportMetricsServiceRequest.FromString(entry.body).resource_metrics:
                found["metrics"] += [metric.name for scope in metrics.scope_metrics for metric in scope.metrics]
    return found


def emit_all(make: Callable[[str], Any]) -> None:
    emit_spans(make("traces"))
    emit_logs(make("logs"))
    emit_metrics(make("metrics"))


def assert_all_arrived(receivers: RunningReceivers) -> None:
    arrived = names(receivers)
    assert sorted(arrived["traces"]) == sorted(f"span {number}" for number in range(NUMBER))
    assert sorted(arrived["logs"]) == sorted(f"record {number}" for number in range(NUMBER))
    assert set(arrived["metrics"]) >= {"things"}


def over_http(receivers: RunningReceivers, **options: Any) -> ExporterFactory:
    kinds = {"traces": HttpSpans, "logs": HttpLogs, "metrics": HttpMetrics}
    return lambda signal: kinds[signal](endpoint=f"{receivers.url}/v1/{signal}", **options)


def over_grpc(receivers: RunningReceivers, **options: Any) -> ExporterFactory:
    kinds = {"traces": GrpcSpans, "logs": GrpcLogs, "metrics": GrpcMetrics}
    secure = "https" if receivers.tls else "http"
    return lambda signal: kinds[signal](endpoint=f"{secure}://localhost:{receivers.grpc_port}", **options)


@pytest.fixture
def guarded(open_doors: OpenDoors) -> RunningReceivers:
    return open_doors(authority=Authorizer(ingest_tokens=("old", "secret"), allowed_hosts=LOOPBACK_HOSTS))


@pytest.mark.parametrize("compression", list(Compression))
def test_all_signals_arrive_over_http_with_each_compression(
    receivers: RunningReceivers, compression: Compression
) -> None:
    emit_all(over_http(receivers, compression=compression))
    assert_all_arrived(receivers)


@pytest.mark.parametrize(
    "compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip, grpc.Compression.Deflate]
)
def test_all_signals_arrive_over_grpc_with_each_compression(
    receivers: RunningReceivers, compression: grpc.Compression
) -> None:
    emit_all(over_grpc(receivers, compression=compression))
    assert_all_arrived(receivers)


def test_spans_and_logs_arrive_with_a_valid_token(guarded: RunningReceivers) -> None:
    emit_spans(over_http(guarded, headers={"Authorization": "Bearer secret"})("traces"))
    emit_logs(over_grpc(guarded, headers={"authorization": "Bearer old"})("logs"))
    arrived = names(guarded)
    assert (len(arrived["traces"]), len(arrived["logs"])) == (NUMBER, NUMBER)


def test_nothing_arrives_without_a_token_and_the_exporters_log_the_error(
    guarded: RunningReceivers, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        emit_spans(over_http(guarded)("traces"))
        emit_spans(over_grpc(guarded)("traces"))
    assert guarded.entries() == []
    assert "401" in caplog.text
    assert "UNAUTHENTICATED" in caplog.text


@pytest.mark.needs("openssl")
def test_spans_and_logs_arrive_over_tls(
    open_doors: OpenDoors, certificate: TlsConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(variable, raising=False)  # requests prefers them to the settings of a session
    receivers = open_doors(tls=certificate)
    emit_spans(over_http(receivers, certificate_file=str(certificate.cert_file))("traces"))
    credentials = grpc.ssl_channel_credentials(certificate.cert_file.read_bytes())
    emit_logs(over_grpc(receivers, credentials=credentials)("logs"))
    arrived = names(receivers)
    assert (len(arrived["traces"]), len(arrived["logs"])) == (NUMBER, NUMBER)
