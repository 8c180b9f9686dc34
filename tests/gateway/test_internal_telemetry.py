"""Tests of the gateway's own metrics and log, as Prometheus, a Collector and a log reader receive them."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import logging
import re
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette

from goldspan import semconv
from goldspan.errors import GoldspanWarning
from goldspan.gateway import internal_telemetry
from goldspan.gateway.gateway_counters import COUNTERS, GatewayCounters
from goldspan.gateway.internal_telemetry import InternalTelemetry, configure_logging
from goldspan.gateway.settings.gateway_settings import GatewaySettings

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def of_worker(data: Path, worker: int = 0, workers: int = 1, **more: object) -> InternalTelemetry:
    return InternalTelemetry(GatewaySettings(data=data, workers=workers, **more), worker)


def samples(text: bytes) -> dict[tuple[str, str], float]:
    """Returns the values by name and worker."""
    return {
        (sample.name, sample.labels["worker"]): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def scrape(gateway: InternalTelemetry, accept: str = "") -> tuple[str, bytes]:
    """Returns the response of the route, over ASGI."""
    sent: list[dict[str, object]] = []

    async def ask() -> None:
        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: dict[str, object]) -> None:
            sent.append(message)

        headers = [(b"accept", accept.encode())] if accept else []
        scope = {"type": "http", "method": "GET", "path": "/metrics", "query_string": b"", "headers": headers}
        await Starlette(routes=gateway.routes)({**scope, "root_path": "", "http_version": "1.1"}, receive, send)

    asyncio.run(ask())
    start, *rest = sent
    assert start["status"] == 200
    media = dict(start["headers"])[b"content-type"].decode()  # type: ignore[call-overload]
    return media, b"".join(part.get("body", b"") for part in rest)  # type: ignore[misc]


# --- /metrics ---------------------------------------------------------------------------------------------------------


def test_every_counter_is_exported_under_its_prometheus_name(tmp_path: Path) -> None:
    gateway = of_worker(tmp_path)
    counting = GatewayCounters(gateway.meter_provider)
    for counted in COUNTERS:
        counting.add(counted.name, 2, signal="traces")
    media, body = scrape(gateway)
    assert media.startswith("text/plain; version=0.0.4")
    found = samples(body)
    for counted in COUNTERS:
        name = counted.name.replace(".", "_")
        assert found[f"{name}_total", "0"] == 2, name
    assert f"# HELP {semconv.GATEWAY_REFUSED.replace('.', '_')}_total Requests" in body.decode()
    gateway.stop()


def test_the_metrics_include_cpu_time_memory_and_open_files(tmp_path: Path) -> None:
    if not Path("/proc/self/stat").exists():
        pytest.skip("this system has no /proc")
    gateway = of_worker(tmp_path)
    found = samples(gateway.render()[0])
    assert found["process_resident_memory_bytes", "0"] > 1_000_000
    assert found["process_open_fds", "0"] > 2
    assert ("process_cpu_seconds_total", "0") in found
    gateway.stop()


def test_openmetrics_is_returned_if_the_accept_header_requests_it(tmp_path: Path) -> None:
    gateway = of_worker(tmp_path)
    GatewayCounters(gateway.meter_provider).add(semconv.GATEWAY_BYTES, 3, signal="traces")
    media, body = scrape(gateway, OPENMETRICS)
    assert media.startswith("application/openmetrics-text")
    families = {family.name: family for family in openmetrics_families(body.decode())}
    assert families["goldspan_gateway_bytes"].samples[0].value == 3
    gateway.stop()


def test_a_metric_has_only_the_labels_of_its_counter_and_the_worker(tmp_path: Path) -> None:
    gateway = of_worker(tmp_path)
    GatewayCounters(gateway.meter_provider).add(semconv.GATEWAY_REFUSED, 1, limit="max_spans")
    lines = [line for line in gateway.render()[0].decode().splitlines() if line.startswith("goldspan_gateway_refused")]
    assert lines == ['goldspan_gateway_refused_total{goldspan_limit="max_spans",worker="0"} 1.0']
    gateway.stop()


def test_each_instance_in_a_process_has_its_own_metrics(tmp_path: Path) -> None:
    one, other = of_worker(tmp_path), of_worker(tmp_path)
    GatewayCounters(one.meter_provider).add(semconv.GATEWAY_SHED, 5)
    assert ("goldspan_gateway_scoring_shed_total", "0") in samples(one.render()[0])
    assert ("goldspan_gateway_scoring_shed_total", "0") not in samples(other.render()[0])
    one.stop()
    other.stop()


def test_concurrent_scrapes_each_get_every_metric_once(tmp_path: Path) -> None:
    gateway = of_worker(tmp_path)
    GatewayCounters(gateway.meter_provider).add(semconv.GATEWAY_SHED, 5)
    with ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(lambda _: gateway.render()[0].decode(), range(64)))
    assert [text.count("goldspan_gateway_scoring_shed_total{") for text in texts] == [1] * 64
    gateway.stop()


def until(what: str, path: Path) -> None:
    deadline = time.monotonic() + 60
    while not (path.exists() and what in path.read_text()):
        assert time.monotonic() < deadline, path
        time.sleep(0.01)


def test_each_worker_returns_the_metrics_of_all_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internal_telemetry, "_WRITE_INTERVAL_SECONDS", 0.01)
    workers = [of_worker(tmp_path, worker, 3) for worker in range(3)]
    for number, each in enumerate(workers, start=1):
        counting = GatewayCounters(each.meter_provider)
        counting.add(semconv.GATEWAY_REQUESTS, number, status=200, signal="traces")
        each.meter_provider.get_meter("goldspan").create_histogram("waited", unit="s").record(number)
        each.start()
    for worker in range(3):
        until("goldspan_gateway_requests_total", tmp_path / "metrics" / f"{worker}.prom")
        until("waited_seconds_sum", tmp_path / "metrics" / f"{worker}.prom")
    for each in workers:
        _, body = scrape(each)
        found = samples(body)
        for worker in range(3):
            assert found["goldspan_gateway_requests_total", str(worker)] == worker + 1
            assert found["waited_seconds_sum", str(worker)] == worker + 1
        types = re.findall(r"^# TYPE (\S+)", body.decode(), re.MULTILINE)
        assert len(types) == len(set(types))
        assert list(openmetrics_families(each.render(OPENMETRICS)[0].decode()))
    for each in workers:
        each.stop()


def test_metrics_of_ended_workers_and_damaged_files_are_ignored(tmp_path: Path) -> None:
    gateway = of_worker(tmp_path, 0, 5)
    folder = tmp_path / "metrics"
    folder.mkdir()
    figures = '# TYPE x counter\nx_total{a="b"} 1\n'
    now = time.monotonic()
    (folder / "1.prom").write_text(f"# goldspan {now}\n{figures}")
    (folder / "2.prom").write_text(f"# goldspan {now - 3600}\n{figures}")
    (folder / "3.prom").write_text(f"# goldspan {now}\n# TYPE x counter\nx_total{{a=")
    (folder / "4.prom").write_bytes(b"\xff\xff")
    (folder / "7.prom").write_text(f"# goldspan {now}\n{figures}")
    found = {worker: value for (name, worker), value in samples(gateway.render()[0]).items() if name == "x_total"}
    assert found == {"1": 1}
    internal_telemetry.remove_worker_metrics(tmp_path)
    assert list(folder.glob("*.prom")) == []
    internal_telemetry.remove_worker_metrics(tmp_path / "nowhere")
    gateway.stop()


# --- over OTLP --------------------------------------------------------------------------------------------------------


class _Collector(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.got.append((self.path, dict(self.headers), body))  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
        """Log nothing."""


@pytest.fixture
def collector() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Collector) as server:
        server.got = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_metrics_are_exported_over_otlp_if_configured(tmp_path: Path, collector: ThreadingHTTPServer) -> None:
    sending = {"endpoint": f"http://127.0.0.1:{collector.server_port}/otlp/", "headers": {"x-key": "k"}}
    gateway = of_worker(tmp_path, 1, 2, telemetry=sending)
    GatewayCounters(gateway.meter_provider).add(semconv.GATEWAY_SHED, 5)
    gateway.stop(30)
    path, headers, body = collector.got[-1]  # type: ignore[attr-defined]
    assert path == "/otlp/v1/metrics"
    assert {name.lower(): value for name, value in headers.items()}["x-key"] == "k"
    (resource,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
    said = {attribute.key: attribute.value for attribute in resource.resource.attributes}
    assert said["service.name"].string_value == "goldspan"
    assert said["goldspan.worker"].int_value == 1
    assert [metric.name for scope in resource.scope_metrics for metric in scope.metrics] == [semconv.GATEWAY_SHED]


def test_otel_service_name_sets_the_service_name_of_the_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "our-gateway")
    assert internal_telemetry._create_resource(0).attributes["service.name"] == "our-gateway"


# --- the log ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """Restores the root logger."""
    root = logging.getLogger()
    handlers, level, shown = root.handlers[:], root.level, warnings.showwarning
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)
    warnings.showwarning = shown


def test_a_line_of_the_log_is_one_json_object(root: logging.Logger) -> None:
    stream = io.StringIO()
    configure_logging("json", "info", worker=3, stream=stream)
    log = logging.getLogger("goldspan.gateway")
    log.debug("not heard")
    try:
        raise ValueError("two\nlines")
    except ValueError:
        log.exception("it %s\nso", "was")
    log.info("with its stack", stack_info=True)
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("time"))
    assert first.pop("exception").endswith("ValueError: two\nlines")
    assert first == {"level": "error", "logger": "goldspan.gateway", "message": "it was\nso", "worker": 3}
    assert "Stack" in second["exception"]


def test_control_characters_in_a_text_log_are_escaped(root: logging.Logger) -> None:
    stream = io.StringIO()
    configure_logging("text", "warning", worker=1, stream=stream)
    logging.getLogger("goldspan").warning("said: %s", "a\n2026-01-01 error forged\x1b[2J")
    try:
        raise ValueError("\x1b[2J")
    except ValueError:
        logging.getLogger("goldspan").exception("failed")
    line, *others = stream.getvalue().splitlines()
    assert line.endswith(r"warning [1] goldspan: said: a\n2026-01-01 error forged\x1b[2J")
    assert others[-1] == r"ValueError: \x1b[2J"


def test_warnings_are_logged_and_access_logs_are_not(root: logging.Logger) -> None:
    stream = io.StringIO()
    configure_logging("json", "info", stream=stream)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("some were left out", GoldspanWarning, stacklevel=1)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    logging.getLogger("uvicorn.access").info("GET /")
    logging.getLogger("uvicorn.error").info("started")
    ours, other = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (ours["logger"], ours["level"], ours["message"]) == ("goldspan", "warning", "some were left out")
    assert "worker" not in ours
    assert other["message"].endswith("DeprecationWarning: old")


def test_the_log_goes_to_standard_error(root: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("text", "info")
    logging.getLogger("goldspan.gateway").info("here")
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.endswith("info goldspan.gateway: here\n")
