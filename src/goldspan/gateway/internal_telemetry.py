"""The gateway's own figures: `/metrics` for Prometheus, of all workers in one answer, and over OTLP where asked.

Each of several workers writes its figures to `DIR/metrics/<worker>.prom` every few seconds. Whichever is asked answers
with its own as they are, and with those files.
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
from goldspan._extras import require_server_extra
from goldspan._guard import suppress_errors
from goldspan._version import __version__
from goldspan.errors import GoldspanWarning, StoreError
from goldspan.gateway.exporting.backend_exporter import BackendExporter
from goldspan.gateway.journal.journal import Journal
from goldspan.gateway.scoring.scoring_consumer import ScoringConsumer
from goldspan.gateway.settings.gateway_settings import GatewaySettings
from goldspan.gateway.settings.gateway_settings import TelemetryConfig as Sending

_THIRD_PARTY_LEVELS = {
    "uvicorn.access": logging.CRITICAL,
    "uvicorn.error": logging.WARNING,
    "urllib3": logging.ERROR,
    **dict.fromkeys(("httpx2", "httpcore2"), logging.WARNING),  # each request to a judge's model
}
"""From which level on others are heard: who asked for which path is counted, and not logged."""


def configure_logging(log_format: str, level: str, *, worker: int | None = None, stream: IO[str] | None = None) -> None:
    """Have everything that this process logs written to standard error, as `text` or as `json`, from that level on.

    Warnings are logged too. `worker` stands on every line where there are several.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_JsonFormatter(worker) if log_format == "json" else _TextFormatter(worker))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name, least in _THIRD_PARTY_LEVELS.items():
        logging.getLogger(name).setLevel(least)
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

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - its name there
        """The time in UTC, to the millisecond, as RFC 3339 writes it."""
        moment = datetime.fromtimestamp(record.created, timezone.utc)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def _exception_text(self, record: logging.LogRecord) -> str:
        parts = [self.formatException(record.exc_info)] if record.exc_info else [record.exc_text or ""]
        parts.append(self.formatStack(record.stack_info) if record.stack_info else "")
        return "\n".join(filter(None, parts))


class _JsonFormatter(_LogFormatter):
    def format(self, record: logging.LogRecord) -> str:
        """One JSON object."""
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
        """One line, and the traceback below it. What others wrote can neither begin a line nor steer a terminal."""
        worker = "" if self._worker is None else f" [{self._worker}]"
        line = f"{self.formatTime(record)} {record.levelname.lower()}{worker} {record.name}: {record.getMessage()}"
        exception = self._exception_text(record)
        return _escape_control_characters(line) + (
            "\n" + "\n".join(map(_escape_control_characters, exception.splitlines())) if exception else ""
        )


def _escape_control_characters(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)


def register_gauges(
    meter_provider: MeterProvider,
    scoring: ScoringConsumer,
    journals: Mapping[int, Journal],
    forwarders: Sequence[BackendExporter],
) -> None:
    """Have these read whenever the figures of a worker are."""
    meter = get_meter("goldspan", __version__, meter_provider=meter_provider)

    def gauge(name: str, unit: str, description: str, read: Callable[[], Iterable[Observation]]) -> None:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            with suppress(StoreError):  # it is closed, or the disk is gone: others say so
                return read()
            return []

        meter.create_observable_gauge(name, [observe], unit=unit, description=description)

    def forwarding() -> Iterable[Observation]:
        for forwarder in forwarders:
            labels = {semconv.BACKEND_LABEL: forwarder.backend.name}
            yield Observation(forwarder.status()["behind_bytes"], labels)

    gauge(
        semconv.GATEWAY_JOURNAL_SIZE,
        "By",
        "What is kept of acknowledged requests until it is forwarded and scored. Near max_journal_bytes, requests are "
        "refused: see which back end is away.",
        lambda: [Observation(sum(journal.size for journal in journals.values()))],
    )
    gauge(
        semconv.GATEWAY_SCORING_BACKLOG,
        "By",
        "What waits to be looked at by scoring. If it grows, add workers; beyond max_backlog_bytes it is not scored.",
        lambda: [Observation(scoring.backlog_bytes())],
    )
    gauge(
        semconv.GATEWAY_FORWARD_BACKLOG,
        "By",
        "What waits for a back end, by back end. If it grows, the back end is away or slower than what comes in.",
        forwarding,
    )
    gauge(
        semconv.GATEWAY_HELD_TRACES,
        "{trace}",
        "Traces held: those that are not whole, and those that were scored lately.",
        lambda: [Observation(len(scoring))],
    )


with require_server_extra():
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
"""So many answers are made and sent at once; further requests wait for their turn."""
_WRITE_INTERVAL_SECONDS = 2.0
_STALE_AFTER_SECONDS = 15.0
"""Seconds after which the file of a worker is that of one that is gone."""
_SCOPE_LABEL_PREFIX = "otel_scope_"
"""How labels begin that tell which library counts: they say the same everywhere."""
_WRITTEN_AT_PREFIX = "# goldspan "


class InternalTelemetry:
    """The figures of one worker: hand its `meter_provider` to whatever counts, and its `routes` to the application."""

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
        exemplars: ExemplarFilter | None = AlwaysOffExemplarFilter()  # Prometheus is shown none, and they take time
        if settings.telemetry.endpoint is not None:
            readers.append(_create_otlp_reader(settings.telemetry.endpoint, settings.telemetry))
            exemplars = None  # as the environment has it
        self.meter_provider = MeterProvider(
            readers, _create_resource(worker), exemplar_filter=exemplars, shutdown_on_exit=False
        )
        self.routes: list[Route] = [_MetricsRoute("/metrics", self._metrics_endpoint, methods=["GET"])]

    def start(self) -> None:
        """Begin to write the figures for the other workers, if there are any."""
        if self._other_workers:
            self._writer_thread = threading.Thread(
                target=self._write_periodically, name="goldspan-figures", daemon=True
            )
            self._writer_thread.start()

    def stop(self, timeout: float = 2.0) -> None:
        """Send what there is over OTLP, and end. It takes no longer than `timeout` seconds, or little more."""
        self._stopping.set()
        if self._writer_thread is not None:
            self._writer_thread.join(timeout)
        with suppress_errors("send the last of its own figures"):
            self.meter_provider.shutdown(timeout * 1000)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The figures of all workers, and their media type, in whichever of Prometheus's formats is accepted."""
        encode, media = choose_encoder(accept)
        return encode(_MergedRegistry(self._metrics_by_worker())), media

    def collect(self) -> list[Metric]:
        """The figures of this worker. Two at once would take each other's from OpenTelemetry's collector."""
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
            with suppress_errors("write its own figures for the other workers"):
                self._write_metrics_file()
            if self._stopping.wait(_WRITE_INTERVAL_SECONDS):
                return

    def _write_metrics_file(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{self._worker}.prom"
        beside = path.with_suffix(".new")
        # The clock of the machine since its start: all processes read the same, and nobody sets it.
        beside.write_bytes(f"{_WRITTEN_AT_PREFIX}{time.monotonic()}\n".encode() + generate_latest(self))
        os.replace(beside, path)


class _MetricsRoute(Route):
    """The route of the figures. An answer is in memory until it is sent, and there are only so many at once."""

    def __init__(self, path: str, endpoint: Callable[[Request], Response], *, methods: list[str]) -> None:
        super().__init__(path, endpoint, methods=methods)
        self._semaphore = asyncio.Semaphore(MAX_CONCURRENT_SCRAPES)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._semaphore:
            await super().handle(scope, receive, send)


class _MergedRegistry:
    """The families of all workers, each once, their samples told apart by the label `worker`."""

    def __init__(self, sources: Iterable[tuple[int, Iterable[Metric]]]) -> None:
        self._sources = sources

    def collect(self) -> Iterable[Metric]:
        families: dict[tuple[str, str], Metric] = {}
        for worker, source in self._sources:
            for family in source:
                # The unit is part of the name already.
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
    """Remove the figures of workers that were there before."""
    for path in (data_folder / METRICS_FOLDER).glob("*.prom"):
        path.unlink(missing_ok=True)


def _read_worker_metrics(path: Path) -> list[Metric]:
    """The figures that another worker wrote lately; none where it is gone."""
    try:
        age, _, text = path.read_text("utf-8").partition("\n")
        if abs(time.monotonic() - float(age.removeprefix(_WRITTEN_AT_PREFIX))) > _STALE_AFTER_SECONDS:
            return []
        return list(text_string_to_metric_families(text))
    except (OSError, ValueError):
        return []


def _create_resource(worker: int) -> Resource:
    """Who counts, in the words of OpenTelemetry's conventions for services; the environment may say otherwise."""
    own: dict[str, Any] = {"service.name": "goldspan", "service.version": __version__}
    said = {
        key: value
        for key, value in Resource.create().attributes.items()
        if not str(value).startswith("unknown_service")  # where nobody gave it a name
    }
    return Resource({**own, "service.instance.id": str(uuid4()), "goldspan.worker": worker, **said})


def _create_otlp_reader(endpoint: str, config: Sending) -> MetricReader:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # only who asks for it

    exporter = OTLPMetricExporter(
        endpoint=f"{endpoint.rstrip('/')}/v1/metrics",
        headers={name: value.get_secret_value() for name, value in config.headers.items()},
    )
    return PeriodicExportingMetricReader(exporter, export_interval_millis=config.interval * 1000)
