"""The gateway's own figures: `/metrics` for Prometheus, of all workers in one answer, and over OTLP where asked.

Each of several workers writes its figures to `DIR/metrics/<worker>.prom` every few seconds. Whichever is asked answers
with its own as they are, and with those files.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, ExemplarFilter, MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from goldspan._guard import guard
from goldspan._version import __version__
from goldspan.gateway.extra import needed
from goldspan.gateway.settings.fields import Settings
from goldspan.gateway.settings.fields import Telemetry as Sending

with needed():
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.metrics_core import Metric
    from prometheus_client.parser import text_string_to_metric_families
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route
    from starlette.types import Receive, Scope, Send

FOLDER = "metrics"
AT_ONCE = 2
"""So many answers are made and sent at once; further requests wait for their turn."""
_WRITTEN_EVERY = 2.0
_STALE_AFTER = 15.0
"""Seconds after which the file of a worker is that of one that is gone."""
_SCOPE = "otel_scope_"
"""How labels begin that tell which library counts: they say the same everywhere."""
_AGE = "# goldspan "


class Telemetry:
    """The figures of one worker: hand its `meter_provider` to whatever counts, and its `routes` to the application."""

    def __init__(self, settings: Settings, worker: int = 0) -> None:
        self._worker = worker
        self._others = [other for other in range(settings.workers) if other != worker]
        self._folder = settings.data / FOLDER
        self._registry = CollectorRegistry()
        self._collecting = threading.Lock()
        self._stopping = threading.Event()
        self._writer: threading.Thread | None = None
        ProcessCollector(registry=self._registry)
        readers: list[MetricReader] = [PrometheusMetricReader(disable_target_info=True, registry=self._registry)]
        exemplars: ExemplarFilter | None = AlwaysOffExemplarFilter()  # Prometheus is shown none, and they take time
        if settings.telemetry.endpoint is not None:
            readers.append(_sender(settings.telemetry.endpoint, settings.telemetry))
            exemplars = None  # as the environment has it
        self.meter_provider = MeterProvider(
            readers, _resource(worker), exemplar_filter=exemplars, shutdown_on_exit=False
        )
        self.routes: list[Route] = [_Figures("/metrics", self._answer, methods=["GET"])]

    def start(self) -> None:
        """Begin to write the figures for the other workers, if there are any."""
        if self._others:
            self._writer = threading.Thread(target=self._keep_writing, name="goldspan-figures", daemon=True)
            self._writer.start()

    def stop(self, timeout: float = 2.0) -> None:
        """Send what there is over OTLP, and end. It takes no longer than `timeout` seconds, or little more."""
        self._stopping.set()
        if self._writer is not None:
            self._writer.join(timeout)
        with guard("send the last of its own figures"):
            self.meter_provider.shutdown(timeout * 1000)

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """The figures of all workers, and their media type, in whichever of Prometheus's formats is accepted."""
        encode, media = choose_encoder(accept)
        return encode(_Merged(self._sources())), media

    def collect(self) -> list[Metric]:
        """The figures of this worker. Two at once would take each other's from OpenTelemetry's collector."""
        with self._collecting:
            return list(self._registry.collect())

    def _answer(self, request: Request) -> Response:
        body, media = self.text(request.headers.get("accept", ""))
        return Response(body, media_type=media)

    def _sources(self) -> Iterator[tuple[int, Iterable[Metric]]]:
        yield self._worker, self.collect()
        for other in self._others:
            yield other, _families_in(self._folder / f"{other}.prom")

    def _keep_writing(self) -> None:
        while True:
            with guard("write its own figures for the other workers"):
                self._write()
            if self._stopping.wait(_WRITTEN_EVERY):
                return

    def _write(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{self._worker}.prom"
        beside = path.with_suffix(".new")
        # The clock of the machine since its start: all processes read the same, and nobody sets it.
        beside.write_bytes(f"{_AGE}{time.monotonic()}\n".encode() + generate_latest(self))
        os.replace(beside, path)


class _Figures(Route):
    """The route of the figures. An answer is in memory until it is sent, and there are only so many at once."""

    def __init__(self, path: str, endpoint: Callable[[Request], Response], *, methods: list[str]) -> None:
        super().__init__(path, endpoint, methods=methods)
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._turns:
            await super().handle(scope, receive, send)


class _Merged:
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
                    labels = {name: value for name, value in sample.labels.items() if not name.startswith(_SCOPE)}
                    merged.add_sample(sample.name, labels | {"worker": str(worker)}, sample.value)
        return families.values()


def clear(data: Path) -> None:
    """Remove the figures of workers that were there before."""
    for path in (data / FOLDER).glob("*.prom"):
        path.unlink(missing_ok=True)


def _families_in(path: Path) -> list[Metric]:
    """The figures that another worker wrote lately; none where it is gone."""
    try:
        age, _, text = path.read_text("utf-8").partition("\n")
        if abs(time.monotonic() - float(age.removeprefix(_AGE))) > _STALE_AFTER:
            return []
        return list(text_string_to_metric_families(text))
    except (OSError, ValueError):
        return []


def _resource(worker: int) -> Resource:
    """Who counts, in the words of OpenTelemetry's conventions for services; the environment may say otherwise."""
    own: dict[str, Any] = {"service.name": "goldspan", "service.version": __version__}
    said = {
        key: value
        for key, value in Resource.create().attributes.items()
        if not str(value).startswith("unknown_service")  # where nobody gave it a name
    }
    return Resource({**own, "service.instance.id": str(uuid4()), "goldspan.worker": worker, **said})


def _sender(endpoint: str, sending: Sending) -> MetricReader:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # only who asks for it

    exporter = OTLPMetricExporter(
        endpoint=f"{endpoint.rstrip('/')}/v1/metrics",
        headers={name: value.get_secret_value() for name, value in sending.headers.items()},
    )
    return PeriodicExportingMetricReader(exporter, export_interval_millis=sending.interval * 1000)
