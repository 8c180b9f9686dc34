"""Logs, gauges and metrics of the gateway itself: `/metrics` for Prometheus, and OTLP if configured.

If there are several workers, each writes its metrics to `DIR/metrics/<worker>.prom` every few seconds. A worker that is
scraped responds with its own current metrics and the metrics in those files.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from opentelemetry.metrics import CallbackOptions, Observation, get_meter
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, ExemplarFilter, MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from goldspan import semconv
from goldspan._extras import require_extra
from goldspan._guard import suppress_errors
from goldspan._version import __version__
from goldspan.errors import GoldspanWarning, StoreError
from goldspan.gateway.exporting.backend_exporter import BackendExporter
from goldspan.gateway.journal.journal import Journal
from goldspan.gateway.scoring.scoring_consumer import ScoringConsumer
from goldspan.gateway.settings.gateway_settings import GatewaySettings, TelemetryConfig

_THIRD_PARTY_LEVELS = {
    "uvicorn.access": logging.CRITICAL,
    "uvicorn.error": logging.WARNING,
    "urllib3": logging.ERROR,
    "mcp": logging.WARNING,  # it logs each request
    **dict.fromkeys(("httpx2", "httpcore2"), logging.WARNING),  # they log each request to the judge's model
}
"""Minimum levels of third-party loggers. Requests are counted, not logged."""


def configure_logging(log_format: str, level: str, *, worker: int | None = None, stream: IO[str] | None = None) -> None:
    """Write the log of this process to standard error, as `text` or `json`, from `level` on.

    Python warnings are logged too. Every line contains `worker` if it is not `None`.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_JsonFormatter(worker) if log_format == "json" else _TextFormatter(worker))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name, third_party_level in _THIRD_PARTY_LEVELS.items():
        logging.getLogger(name).setLevel(third_party_level)
    warnings.showwarning = _log_warning


def _log_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    if issubclass(category, GoldspanWarning):
        logging.getLogger("goldspan").warning("%s", message)
    else:
        logging.getLogger("py.warnings").warning("%s:%s: %s: %s", filename, lineno, category.__name__, message)


class _LogFormatter(logging.Formatter):
    def __init__(self, worker: int | None) -> None:
        super().__init__()
        self._worker = worker

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - overrides logging.Formatter
        """Returns the time in UTC with milliseconds, in the format of RFC 3339."""
        moment = datetime.fromtimestamp(record.created, timezone.utc)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def _exception_text(self, record: logging.LogRecord) -> str:
        parts = [self.formatException(record.exc_info)] if record.exc_info else [record.exc_text or ""]
        parts.append(self.formatStack(record.stack_info) if record.stack_info else "")
        return "\n".join(filter(None, parts))


class _JsonFormatter(_LogFormatter):
    def format(self, record: logging.LogRecord) -> str:
        """Returns the record as one JSON object."""
        document: dict[str, Any] = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._worker is not None:
            document["worker"] = self._worker
        if exception := self._exception_text(record):
            document["exception"] = exception
        return json.dumps(document)


class _TextFormatter(_LogFormatter):
    def format(self, record: logging.LogRecord) -> str:
        """Returns one line, followed by the traceback. Control characters are escaped: no text can forge a line."""
        worker = "" if self._worker is None else f" [{self._worker}]"
        line = f"{self.formatTime(record)} {record.levelname.lower()}{worker} {record.name}: {record.getMessage()}"
        exception = self._exception_text(record)
        return _escape_control_characters(line) + (
            "\n" + "\n".join(map(_escape_control_characters, exception.splitlines())) if exception else ""
        )


def _escape_control_characters(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in line)


def register_gauges(
    meter_provider: MeterProvider,
    scoring: ScoringConsumer,
    journals: Mapping[int, Journal],
    exporters: Sequence[BackendExporter],
    count_held_traces: Callable[[], int],
) -> None:
    """Register the gauges of a worker, which are read at every collection.

    `count_held_traces` returns the number of traces in memory, also of those from Kafka.
    """
    meter = get_meter("goldspan", __version__, meter_provider=meter_provider)

    def gauge(name: str, unit: str, description: str, read: Callable[[], Iterable[Observation]]) -> None:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            with suppress(StoreError):  # closed, or the disk failed; reported elsewhere
                return read()
            return []

        meter.create_observable_gauge(name, [observe], unit=unit, description=description)

    def forward_backlogs() -> Iterable[Observation]:
        for exporter in exporters:
            labels = {semconv.BACKEND_LABEL: exporter.backend.name}
            yield Observation(exporter.status()["behind_bytes"], labels)

    gauge(
        semconv.GATEWAY_JOURNAL_SIZE,
        "By",
        "Bytes of acknowledged requests that the journal keeps until they are forwarded and scored. Near "
        "max_journal_bytes, requests are refused: check which back end is unavailable.",
        lambda: [Observation(sum(journal.size for journal in journals.values()))],
    )
    gauge(
        semconv.GATEWAY_SCORING_BACKLOG,
        "By",
        "Bytes that wait for scoring. If it grows, add workers; requests beyond max_backlog_bytes are not scored.",
        lambda: [Observation(scoring.backlog_bytes())],
    )
    gauge(
        semconv.GATEWAY_FORWARD_BACKLOG,
        "By",
        "Bytes that wait for a back end, by back end. If it grows, the back end is unavailable or too slow.",
        forward_backlogs,
    )
    gauge(
        semconv.GATEWAY_HELD_TRACES,
        "{trace}",
        "Traces in memory: incomplete traces, and traces that were scored recently.",
        lambda: [Observation(count_held_traces())],
    )


with require_extra("server"):
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.metrics_core import Metric
    from prometheus_client.parser import text_string_to_metric_families
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route
    from starlette.types import Receive, Scope, Send

METRICS_FOLDER = "metrics"
MAX_CONCURRENT_SCRAPES = 2
"""Number of responses that are built and sent at the same time; further requests wait."""
_WRITE_INTERVAL_SECONDS = 2.0
_STALE_AFTER_SECONDS = 15.0
"""Seconds after which the metrics file of a worker is ignored, because the worker has ended."""
_SCOPE_LABEL_PREFIX = "otel_scope_"
"""Prefix of the labels of the instrumentation scope, which are omitted because they are the same everywhere."""
_WRITTEN_AT_PREFIX = "# goldspan "


class InternalTelemetry:
    """The metrics of one worker. Components use its `meter_provider`; the application serves its `routes`."""

    def __init__(self, settings: GatewaySettings, worker: int = 0) -> None:
        self._worker = worker
        self._other_workers = [other for other in range(settings.workers) if other != worker]
        self._folder = settings.data / METRICS_FOLDER
        self._registry = CollectorRegistry()
        self._collect_lock = threading.Lock()
        self._stopping = threading.Event()
        self._writer_thread: threading.Thread | None = None
        ProcessCollector(registry=self._registry)
        readers: list[MetricReader] = [PrometheusMetricReader(disable_target_info=True, registry=self._registry)]
        exemplars: ExemplarFilter | None = AlwaysOffExemplarFilter()  # Prometheus does not get them, and they cost time
        if settings.telemetry.endpoint is not None:
            readers.append(_create_otlp_reader(settings.telemetry.endpoint, settings.telemetry))
            exemplars = None  # the environment decides
        self.meter_provider = MeterProvider(
            readers, _create_resource(worker), exemplar_filter=exemplars, shutdown_on_exit=False
        )
        self.routes: list[Route] = [_MetricsRoute("/metrics", self._metrics_endpoint, methods=["GET"])]

    def start(self) -> None:
        """Start writing the metrics for the other workers, if there are several."""
        if self._other_workers:
            self._writer_thread = threading.Thread(
                target=self._write_periodically, name="goldspan-metrics", daemon=True
            )
            self._writer_thread.start()

    def stop(self, timeout: float = 2.0) -> None:
        """Export the last metrics over OTLP and stop. Takes about `timeout` seconds at most."""
        self._stopping.set()
        if self._writer_thread is not None:
            self._writer_thread.join(timeout)
        with suppress_errors("export its last metrics"):
            self.meter_provider.shutdown(timeout * 1000)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Returns the metrics of all workers in a Prometheus format that is accepted, and its media type."""
        encode, media = choose_encoder(accept)
        return encode(_MergedRegistry(self._metrics_by_worker())), media

    def collect(self) -> list[Metric]:
        """Returns the metrics of this worker. Concurrent calls would consume each other's metrics, hence the lock."""
        with self._collect_lock:
            return list(self._registry.collect())

    def _metrics_endpoint(self, request: Request) -> Response:
        body, media = self.render(request.headers.get("accept", ""))
        return Response(body, media_type=media)

    def _metrics_by_worker(self) -> Iterator[tuple[int, Iterable[Metric]]]:
        yield self._worker, self.collect()
        for other in self._other_workers:
            yield other, _read_worker_metrics(self._folder / f"{other}.prom")

    def _write_periodically(self) -> None:
        while True:
            with suppress_errors("write its metrics for the other workers"):
                self._write_metrics_file()
            if self._stopping.wait(_WRITE_INTERVAL_SECONDS):
                return

    def _write_metrics_file(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{self._worker}.prom"
        temporary = path.with_suffix(".new")
        # The monotonic clock is the same in all processes, and cannot be set.
        temporary.write_bytes(f"{_WRITTEN_AT_PREFIX}{time.monotonic()}\n".encode() + generate_latest(self))
        os.replace(temporary, path)


class _MetricsRoute(Route):
    """The route of `/metrics`. Limits concurrent responses, because each is in memory until it is sent."""

    def __init__(self, path: str, endpoint: Callable[[Request], Response], *, methods: list[str]) -> None:
        super().__init__(path, endpoint, methods=methods)
        self._semaphore = asyncio.Semaphore(MAX_CONCURRENT_SCRAPES)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._semaphore:
            await super().handle(scope, receive, send)


class _MergedRegistry:
    """Merges the metric families of all workers. The label `worker` distinguishes their samples."""

    def __init__(self, sources: Iterable[tuple[int, Iterable[Metric]]]) -> None:
        self._sources = sources

    def collect(self) -> Iterable[Metric]:
        families: dict[tuple[str, str], Metric] = {}
        for worker, source in self._sources:
            for family in source:
                # The name already contains the unit.
                merged = families.setdefault(
                    (family.name, family.type), Metric(family.name, family.documentation, family.type)
                )
                for sample in family.samples:
                    labels = {
                        name: value for name, value in sample.labels.items() if not name.startswith(_SCOPE_LABEL_PREFIX)
                    }
                    merged.add_sample(sample.name, labels | {"worker": str(worker)}, sample.value)
        return families.values()


def remove_worker_metrics(data_folder: Path) -> None:
    """Remove the metrics files of workers of an earlier start."""
    for path in (data_folder / METRICS_FOLDER).glob("*.prom"):
        path.unlink(missing_ok=True)


def _read_worker_metrics(path: Path) -> list[Metric]:
    """Returns the metrics that another worker wrote recently; none if the worker has ended."""
    try:
        age, _, text = path.read_text("utf-8").partition("\n")
        if abs(time.monotonic() - float(age.removeprefix(_WRITTEN_AT_PREFIX))) > _STALE_AFTER_SECONDS:
            return []
        return list(text_string_to_metric_families(text))
    except (OSError, ValueError):
        return []


def _create_resource(worker: int) -> Resource:
    """Returns the resource attributes of a worker, which OTEL_* variables override."""
    defaults: dict[str, Any] = {"service.name": "goldspan", "service.version": __version__}
    from_environment = {
        key: value
        for key, value in Resource.create().attributes.items()
        if not str(value).startswith("unknown_service")  # the default of the SDK
    }
    return Resource({**defaults, "service.instance.id": str(uuid4()), "goldspan.worker": worker, **from_environment})


def _create_otlp_reader(endpoint: str, config: TelemetryConfig) -> MetricReader:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # imported only if needed

    exporter = OTLPMetricExporter(
        endpoint=f"{endpoint.rstrip('/')}/v1/metrics",
        headers={name: value.get_secret_value() for name, value in config.headers.items()},
    )
    return PeriodicExportingMetricReader(exporter, export_interval_millis=config.interval * 1000)
