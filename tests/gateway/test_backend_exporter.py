"""Tests of the exporter: back ends receive the entries of the journal, whatever failures they have."""

from __future__ import annotations

import json
import logging
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from goldspan import semconv
from goldspan.errors import ConfigurationError
from goldspan.gateway.exporting import backend_exporter, backends, outgoing_requests
from goldspan.gateway.exporting.backend_exporter import BackendExporter
from goldspan.gateway.gateway_counters import GatewayCounters
from goldspan.gateway.journal.journal import Journal
from goldspan.gateway.resource_limits import EntryOrigin, Media, Signal
from support.faulty_backends import (
    ABSENT,
    BUSY,
    HALF,
    TAKE,
    TOO_LARGE,
    UNKNOWN_TOKEN,
    WRONG,
    Answer,
    BackEnd,
    Gate,
    GrpcBackEnd,
    HttpBackEnd,
    Request,
    TlsGrpcBackEnd,
    TlsHttpBackEnd,
    running,
    span_names,
    traces,
    until,
)
from support.metric_readers import Meter

JSON_TRACES = json.dumps(
    {
        "resourceSpans": [
            {"scopeSpans": [{"spans": [{"traceId": "5b" * 16, "spanId": "ab" * 8, "name": "json", "kind": 3}]}]}
        ]
    }
).encode()


class Bench:
    """A journal, the counters, and exporters that are stopped after the test."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "journal.db"
        self.meter = Meter()
        self.counting = GatewayCounters(self.meter.provider)
        self.journal = Journal(self.path, max_bytes=2**30)
        self._forwarders: list[BackendExporter] = []

    def put(
        self, *bodies: bytes, signal: Signal = "traces", media: Media = "protobuf", origin: EntryOrigin = "received"
    ) -> int:
        keys = [self.journal.append(signal, media, body, origin=origin).result(60) for body in bodies]
        return keys[-1]

    def forward(
        self,
        to: str | dict[str, Any],
        *,
        chance: Callable[[], float] = lambda: 0.0002,
    ) -> BackendExporter:
        backend = backends.Backend.parse(to)
        self.journal.register_consumers(list(backend.consumers.values()), starts_at_end=lambda _: False)
        forwarder = BackendExporter(backend, self.journal, self.counting, random_fraction=chance)
        self._forwarders.append(forwarder)
        forwarder.start()
        return forwarder

    def cursor(self, forwarder: BackendExporter, signal: Signal = "traces") -> int | None:
        return self.journal.cursor(forwarder.backend.consumers[signal])

    def counted(self, name: str, *labels: str) -> dict[tuple[Any, ...], Any]:
        return self.meter.counts(name, *(f"goldspan.{label}" for label in labels))

    def close(self) -> None:
        for forwarder in self._forwarders:
            forwarder.stop(0)
        self.journal.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


@pytest.fixture(params=[HttpBackEnd, GrpcBackEnd], ids=["http", "grpc"])
def back(request: pytest.FixtureRequest) -> Iterator[BackEnd]:
    with running(request.param()) as back:
        yield back


@pytest.fixture
def http() -> Iterator[HttpBackEnd]:
    with running(HttpBackEnd()) as back:
        assert isinstance(back, HttpBackEnd)
        yield back


def trace_bodies(count: int, first: int = 0) -> list[bytes]:
    return [traces(f"span {number}") for number in range(first, first + count)]


# --- requests are unchanged -------------------------------------------------------------------------------------------


def test_each_signal_is_exported_byte_for_byte(bench: Bench, back: BackEnd) -> None:
    bodies = trace_bodies(100)
    bench.put(*bodies)
    bench.put(b"\x0a\x02\x12\x00", signal="logs", origin="result")
    last = bench.put(b"\x0a\x02\x12\x00\x0a\x00", signal="metrics")
    forwarder = bench.forward(back.url)
    until(lambda: len(back.taken) == 102)
    assert sorted(back.bodies("traces")) == sorted(bodies)
    assert back.bodies("logs") == [b"\x0a\x02\x12\x00"]
    assert back.bodies("metrics") == [b"\x0a\x02\x12\x00\x0a\x00"]
    until(lambda: {bench.cursor(forwarder, signal) for signal in backends.SIGNALS} == {last})
    name = back.url.rpartition("/")[2]
    forwarded = bench.counted(semconv.GATEWAY_FORWARDED, "backend", "signal")
    assert forwarded == {(name, "traces"): 100, (name, "logs"): 1, (name, "metrics"): 1}
    assert forwarder.status() == {
        "name": name,
        "endpoint": forwarder.backend.endpoint,
        "protocol": forwarder.backend.protocol,
        "reachable": True,
        "error": None,
        "behind_bytes": 0,
        "behind_seconds": 0.0,
        "signals": {
            signal: {"reachable": True, "error": None, "behind_bytes": 0, "behind_seconds": 0.0}
            for signal in backends.SIGNALS
        },
    }


def test_entries_that_arrive_later_are_exported(bench: Bench, back: BackEnd) -> None:
    forwarder = bench.forward(back.url)
    assert forwarder.status()["reachable"] is None
    for number in range(3):
        bench.put(*trace_bodies(1, number))
        until(lambda number=number: len(back.taken) == number + 1)  # type: ignore[misc]


def test_connections_are_reused(bench: Bench, http: HttpBackEnd) -> None:
    bench.put(*trace_bodies(200))
    bench.forward({"endpoint": http.url, "signals": "traces"})
    until(lambda: len(http.taken) == 200)
    assert http.connections <= backend_exporter.MAX_CONCURRENT_REQUESTS


def test_the_signal_path_is_appended_to_the_path_of_the_endpoint(bench: Bench, http: HttpBackEnd) -> None:
    bench.put(*trace_bodies(1))
    bench.forward(f"{http.url}/otlp/")
    until(lambda: http.taken)
    assert http.taken[0].path == "/otlp/v1/traces"
    assert http.taken[0].headers["content-type"] == "application/x-protobuf"


def test_configured_headers_are_sent(bench: Bench, back: BackEnd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "open-sesame\n")
    bench.put(*trace_bodies(1))
    bench.forward({"endpoint": back.url, "headers": {"Authorization": "Bearer ${TOKEN}", "X-Team": "a b"}})
    until(lambda: back.taken)
    assert back.taken[0].headers["authorization"] == "Bearer open-sesame"
    assert back.taken[0].headers["x-team"] == "a b"


def test_bodies_are_compressed_if_configured(bench: Bench, back: BackEnd) -> None:
    bodies = [traces("span " + "x" * 1_000)]
    bench.put(*bodies)
    bench.forward({"endpoint": back.url, "compression": "gzip"})
    until(lambda: back.taken)
    assert back.bodies() == bodies
    if isinstance(back, HttpBackEnd):
        assert back.taken[0].headers["content-encoding"] == "gzip"


def test_held_entries_and_unselected_signals_are_skipped(bench: Bench, back: BackEnd) -> None:
    bench.put(*trace_bodies(40), origin="held")
    bench.put(b"\x0a\x00", signal="logs")
    bench.put(*trace_bodies(1, 100))
    last = bench.put(*trace_bodies(40, 200), origin="held")
    forwarder = bench.forward({"endpoint": back.url, "signals": ["traces"]})
    until(lambda: bench.cursor(forwarder) == last)
    assert back.bodies() == trace_bodies(1, 100)
    assert [request.signal for request in back.requests] == ["traces"]


def test_json_is_exported_over_http_unchanged(bench: Bench, http: HttpBackEnd) -> None:
    bench.put(JSON_TRACES, media="json")
    bench.forward(http.url)
    until(lambda: http.taken)
    assert http.bodies() == [JSON_TRACES]
    assert http.taken[0].headers["content-type"] == "application/json"


def test_json_is_converted_to_protobuf_for_grpc(bench: Bench) -> None:
    with running(GrpcBackEnd()) as back:
        bench.put(JSON_TRACES, b"no JSON", media="json")
        last = bench.put(*trace_bodies(1))
        forwarder = bench.forward(back.url)
        until(lambda: bench.cursor(forwarder) == last)
        assert sorted(map(span_names, back.bodies())) == [["json"], ["span 0"]]
        assert sum(bench.counted(semconv.GATEWAY_FORWARD_REJECTED).values()) == 1


def test_json_that_a_back_end_does_not_support_is_converted_to_protobuf(bench: Bench, http: HttpBackEnd) -> None:
    def behave(request: Request) -> Answer:
        return Answer(415) if request.headers["content-type"] == "application/json" else TAKE

    http.behave = behave
    bench.put(JSON_TRACES, b"{", media="json")
    last = bench.put(*trace_bodies(1))
    forwarder = bench.forward(http.url)
    until(lambda: bench.cursor(forwarder) == last)
    assert sorted(map(span_names, http.bodies())) == [["json"], ["span 0"]]
    assert sum(bench.counted(semconv.GATEWAY_FORWARD_REJECTED).values()) == 1


# --- concurrency, order, at least once --------------------------------------------------------------------------------


def test_concurrent_requests_are_limited(bench: Bench, back: BackEnd) -> None:
    gate = Gate()
    back.behave = gate
    last = bench.put(*trace_bodies(50))
    forwarder = bench.forward(back.url)
    until(lambda: len(back.requests) == backend_exporter.MAX_CONCURRENT_REQUESTS)
    time.sleep(0.2)  # further requests would arrive now
    assert len(back.requests) == backend_exporter.MAX_CONCURRENT_REQUESTS
    assert bench.cursor(forwarder) == 0
    gate.open()
    until(lambda: bench.cursor(forwarder) == last)
    assert Counter(back.bodies()) == Counter(trace_bodies(50))


def test_the_cursor_stays_before_the_first_unsettled_entry(bench: Bench, back: BackEnd) -> None:
    bodies = trace_bodies(50)
    gate = Gate()
    back.behave = lambda request: gate(request) if request.body == bodies[10] else TAKE
    last = bench.put(*bodies)
    first = bench.forward(back.url)
    until(lambda: len(back.taken) == 49)
    assert bench.cursor(first) == last - 40
    first.stop(0)  # does not wait for requests in flight
    gate.open()
    back.behave = lambda _: TAKE
    second = bench.forward(back.url)
    until(lambda: bench.cursor(second) == last)
    assert set(back.bodies()) == set(bodies)
    assert all(count == 1 for body, count in Counter(back.bodies()).items() if body in bodies[:10])


@pytest.mark.e2e
def test_a_restarted_exporter_continues_at_its_cursor(bench: Bench, back: BackEnd) -> None:
    bodies = trace_bodies(300)
    bench.put(*bodies[:200])
    for _ in range(5):
        forwarder = bench.forward(back.url)
        before = len(back.taken)
        until(lambda before=before: len(back.taken) > before or len(back.taken) >= 200)  # type: ignore[misc]
        forwarder.stop(60)
    bench.put(*bodies[200:])
    forwarder = bench.forward(back.url)
    until(lambda: bench.cursor(forwarder) == 300)
    assert Counter(back.bodies()) == Counter(bodies)


def test_stopping_exports_every_pending_entry(bench: Bench, back: BackEnd) -> None:
    forwarder = bench.forward(back.url)
    last = bench.put(*trace_bodies(100))
    forwarder.stop(60)
    assert Counter(back.bodies()) == Counter(trace_bodies(100))
    assert bench.cursor(forwarder) == last


def test_stopping_does_not_wait_for_an_unavailable_back_end(bench: Bench, back: BackEnd) -> None:
    back.behave = lambda _: BUSY
    bench.put(*trace_bodies(10))
    forwarder = bench.forward(back.url, chance=lambda: 1_000.0)
    until(lambda: back.requests)
    forwarder.stop(300)  # longer than a test takes
    assert bench.cursor(forwarder) == 0


def test_stopping_abandons_requests_that_hang(bench: Bench, back: BackEnd) -> None:
    gate = Gate()
    back.behave = gate
    bench.put(*trace_bodies(10))
    forwarder = bench.forward(back.url)
    until(lambda: len(back.requests) == backend_exporter.MAX_CONCURRENT_REQUESTS)
    forwarder.stop(0.1)
    gate.open()
    assert bench.cursor(forwarder) == 0


def test_an_exporter_that_was_never_started_can_be_stopped(bench: Bench) -> None:
    BackendExporter(backends.Backend.parse("http://localhost:1"), bench.journal, bench.counting).stop(1)


# --- back ends that fail ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [BUSY, HALF, Answer(502, "ABORTED"), Answer(504, "DATA_LOSS")])
def test_failed_requests_are_retried_and_nothing_is_lost(bench: Bench, back: BackEnd, answer: Answer) -> None:
    back.script.extend([answer] * 12)
    last = bench.put(*trace_bodies(30))
    forwarder = bench.forward(back.url)
    until(lambda: bench.cursor(forwarder) == last)
    assert set(back.bodies()) == set(trace_bodies(30))
    assert len(back.requests) == 42
    assert sum(bench.counted(semconv.GATEWAY_FORWARD_RETRIES, "backend").values()) == 12
    assert bench.counted(semconv.GATEWAY_FORWARD_REJECTED) == {}


def test_requests_that_time_out_are_retried(bench: Bench, back: BackEnd) -> None:
    gate = Gate()
    back.behave = gate
    last = bench.put(*trace_bodies(10))
    forwarder = bench.forward({"endpoint": back.url, "timeout_seconds": 0.2})
    until(lambda: len(back.requests) > backend_exporter.MAX_CONCURRENT_REQUESTS)
    assert forwarder.status()["reachable"] is False
    back.behave = lambda _: TAKE
    gate.open()
    until(lambda: bench.cursor(forwarder) == last)
    assert set(back.bodies()) == set(trace_bodies(10))


def test_a_back_end_receives_every_entry_after_an_outage(
    bench: Bench, back: BackEnd, caplog: pytest.LogCaptureFixture
) -> None:
    bodies = trace_bodies(60)
    bench.put(*bodies[:20])
    forwarder = bench.forward(back.url)
    until(lambda: len(back.taken) == 20)
    for at in (20, 40):
        back.stop()
        last = bench.put(*bodies[at : at + 20])
        until(lambda: sum(bench.counted(semconv.GATEWAY_FORWARD_RETRIES).values()) >= at // 2)  # noqa: B023
        status = forwarder.status()
        assert status["reachable"] is False
        assert status["error"]
        assert status["behind_bytes"] > 0
        back.start()
        until(lambda: bench.cursor(forwarder) == last)  # noqa: B023
    assert set(back.bodies()) == set(bodies)
    assert forwarder.status()["error"] is None
    told = [record.message for record in caplog.records if record.name == "goldspan"]
    assert sum("accepts traces again" in message for message in told) == 2
    assert len(told) <= 10  # each kind of failure once per outage


def test_an_unavailable_back_end_gets_one_request_at_a_time(bench: Bench) -> None:
    with running(HttpBackEnd()) as back:
        at_once: list[int] = []
        flying = [0]

        def refuse(_: Request) -> Answer:
            flying[0] += 1
            at_once.append(flying[0])
            time.sleep(0.02)
            flying[0] -= 1
            return BUSY

        back.behave = refuse
        bench.put(*trace_bodies(100))
        bench.forward(back.url)
        until(lambda: len(at_once) >= 12)
        assert set(at_once[backend_exporter.MAX_CONCURRENT_REQUESTS :]) == {1}


def test_the_queue_for_an_unavailable_back_end_is_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing_requests, "MAX_QUEUE_BYTES", 50_000)
    monkeypatch.setattr(backend_exporter, "READ_BYTES", 10_000)
    with running(HttpBackEnd()) as back:
        back.behave = lambda _: BUSY
        body = traces("span " + "x" * 5_000)
        last = bench.put(*[body] * 100)
        forwarder = bench.forward(back.url, chance=lambda: 0.0)
        (deliveries,) = [each for each in forwarder._signal_exporters if each.signal == "traces"]
        until(lambda: len(back.requests) > 200)
        assert 0 < deliveries._queue.queued_bytes < 50_000 + 20_000
        back.behave = lambda _: TAKE
        until(lambda: bench.cursor(forwarder) == last)
        assert deliveries._queue.queued_bytes == 0


def test_the_number_of_entries_exported_ahead_of_an_unsettled_one_is_limited(
    bench: Bench, back: BackEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outgoing_requests, "MAX_ENTRIES_AHEAD", 40)
    bodies = trace_bodies(200)
    gate = Gate()
    back.behave = lambda request: gate(request) if request.body == bodies[3] else TAKE
    last = bench.put(*bodies)
    forwarder = bench.forward(back.url)
    until(lambda: len(back.taken) >= 40)
    time.sleep(0.2)  # further requests would arrive now
    assert len(back.taken) <= 40 + backend_exporter.READ_ENTRIES
    gate.open()
    until(lambda: bench.cursor(forwarder) == last)


def test_a_request_that_always_fails_is_rejected_and_does_not_block_others(
    bench: Bench, back: BackEnd, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(outgoing_requests, "POISON_STRIKES", 6)
    monkeypatch.setattr(outgoing_requests, "POISON_ACCEPTED_REQUESTS", 100)
    monkeypatch.setattr(outgoing_requests, "MAX_ENTRIES_AHEAD", 150)
    bodies = trace_bodies(300)
    back.behave = lambda request: UNKNOWN_TOKEN if request.body == bodies[5] else TAKE  # as a firewall may do
    last = bench.put(*bodies)
    forwarder = bench.forward(back.url, chance=lambda: 0.001)
    until(lambda: bench.cursor(forwarder) == last)
    assert Counter(back.bodies()) == Counter(bodies) - Counter([bodies[5]])
    assert sum(bench.counted(semconv.GATEWAY_FORWARD_REJECTED).values()) == 1
    assert sum(request.body == bodies[5] for request in back.requests) > outgoing_requests.POISON_STRIKES


# --- backoff ----------------------------------------------------------------------------------------------------------


@pytest.mark.e2e
@pytest.mark.parametrize("when", ["seconds", "date", "grpc"])
def test_retry_after_delays_the_next_request(bench: Bench, when: str) -> None:
    with running(GrpcBackEnd() if when == "grpc" else HttpBackEnd()) as back:
        moments: list[float] = []

        def busy_at_first(_: Request) -> Answer:
            moments.append(time.monotonic())
            if len(moments) > 1:
                return TAKE
            after = "2" if when == "seconds" else formatdate(time.time() + 3, usegmt=True)
            return Answer(429, "RESOURCE_EXHAUSTED", headers={"Retry-After": after}, retry_seconds=2)

        back.behave = busy_at_first
        bench.put(*trace_bodies(1))
        forwarder = bench.forward(back.url)
        until(lambda: len(moments) == 1 and forwarder.status()["error"])
        assert forwarder.status()["reachable"] is True
        bench.put(*trace_bodies(3, 1))
        until(lambda: len(back.taken) == 4)
        assert moments[1] - moments[0] > 1.9


def test_resource_exhausted_without_retry_info_is_permanent(bench: Bench) -> None:
    with running(GrpcBackEnd()) as back:
        back.script.append(Answer(429, "RESOURCE_EXHAUSTED", details="over quota"))
        last = bench.put(*trace_bodies(3))
        forwarder = bench.forward(back.url)
        until(lambda: bench.cursor(forwarder) == last)
        assert len(back.taken) == 2
        assert sum(bench.counted(semconv.GATEWAY_FORWARD_REJECTED).values()) == 1


# --- permanent and seemingly permanent responses ----------------------------------------------------------------------


@pytest.mark.parametrize("answer", [WRONG, Answer(500, "INTERNAL", details="this is wrong")])
def test_permanently_rejected_requests_are_counted_and_logged_once(
    bench: Bench, back: BackEnd, answer: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    bodies = trace_bodies(40)
    back.behave = lambda request: answer if request.body in bodies[::2] else TAKE
    last = bench.put(*bodies)
    forwarder = bench.forward(back.url)
    until(lambda: bench.cursor(forwarder) == last)
    assert Counter(back.bodies()) == Counter(bodies[1::2])
    assert len(back.requests) == 40
    assert sum(bench.counted(semconv.GATEWAY_FORWARD_REJECTED, "backend", "signal").values()) == 20
    assert caplog.text.count("this is wrong") == 1


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/x-protobuf", Status(code=3, message="this is\nwrong").SerializeToString()),
        ("application/json; charset=utf-8", b'{"code": 3, "message": "this is\\nwrong"}'),
        ("text/plain", b"this is\r\nwrong"),
        ("application/json", b"this is wrong"),
    ],
)
def test_the_error_message_is_read_from_any_response_format(
    bench: Bench, http: HttpBackEnd, caplog: pytest.LogCaptureFixture, content_type: str, body: bytes
) -> None:
    http.script.append(Answer(400, headers={"Content-Type": content_type}, body=body))
    last = bench.put(*trace_bodies(1))
    forwarder = bench.forward(http.url)
    until(lambda: bench.cursor(forwarder) == last)
    assert "HTTP 400: this is wrong" in caplog.text


def test_only_the_beginning_of_a_long_error_response_is_read_and_logged(
    bench: Bench, http: HttpBackEnd, caplog: pytest.LogCaptureFixture
) -> None:
    http.script.append(Answer(400, body=b"\xff" + b"x" * 1_000_000))
    http.script.append(Answer(422, body=b"y" * 1_000_000))
    last = bench.put(*trace_bodies(5))
    forwarder = bench.forward(http.url)
    until(lambda: bench.cursor(forwarder) == last)
    assert len(http.taken) == 3
    assert "y" * 200 + "…" in caplog.text
    assert "y" * 201 not in caplog.text


@pytest.mark.parametrize("answer", [UNKNOWN_TOKEN, Answer(403, "PERMISSION_DENIED"), ABSENT], ids=lambda it: it.code)
def test_responses_to_wrong_settings_are_retried_and_nothing_is_lost(
    bench: Bench, back: BackEnd, answer: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    back.behave = lambda _: answer
    last = bench.put(*trace_bodies(10))
    forwarder = bench.forward(back.url)
    until(lambda: len(back.requests) > 10)
    assert forwarder.status()["reachable"] is False
    assert bench.cursor(forwarder) == 0
    assert "check its address and headers" in caplog.text
    back.behave = lambda _: TAKE
    until(lambda: bench.cursor(forwarder) == last)
    assert set(back.bodies()) == set(trace_bodies(10))


def test_redirections_are_not_followed(bench: Bench, http: HttpBackEnd) -> None:
    with running(HttpBackEnd()) as elsewhere:
        http.script.extend([Answer(308, headers={"Location": f"{elsewhere.url}/v1/traces"})] * 3)
        last = bench.put(*trace_bodies(5))
        forwarder = bench.forward({"endpoint": http.url, "headers": {"authorization": "Bearer secret-of-ours"}})
        until(lambda: bench.cursor(forwarder) == last)
        assert elsewhere.requests == []
        assert set(http.bodies()) == set(trace_bodies(5))


def test_a_signal_that_is_not_found_is_dropped_once_another_signal_is_accepted(
    bench: Bench, back: BackEnd, caplog: pytest.LogCaptureFixture
) -> None:
    """Jaeger and Tempo accept traces only, and results are logs."""
    back.behave = lambda request: TAKE if request.signal == "traces" else ABSENT
    bench.put(b"\x0a\x00", b"\x0a\x00", signal="logs")
    bench.put(*trace_bodies(5))
    last = bench.put(b"\x0a\x00", signal="logs")
    forwarder = bench.forward(back.url, chance=lambda: 0.001)
    until(lambda: bench.cursor(forwarder, "logs") == last)
    assert set(back.bodies()) == set(trace_bodies(5))
    rejected = bench.counted(semconv.GATEWAY_FORWARD_REJECTED, "signal")
    assert rejected == {("logs",): 3}
    back.behave = lambda _: TAKE  # it supports the signal now
    bench.put(b"\x0a\x02\x12\x00", signal="logs")
    until(lambda: back.bodies("logs") == [b"\x0a\x02\x12\x00"])


@pytest.mark.e2e
def test_a_failing_signal_does_not_delay_another(bench: Bench, back: BackEnd) -> None:
    back.behave = lambda request: TAKE if request.signal == "traces" else UNKNOWN_TOKEN
    bench.put(*[b"\x0a\x00"] * 50, signal="logs")
    last = bench.put(*trace_bodies(1_200))
    forwarder = bench.forward(back.url, chance=lambda: 1.0)
    until(lambda: bench.cursor(forwarder, "traces") == last)
    assert bench.cursor(forwarder, "logs") == 0


def test_a_request_that_is_too_large_is_split_in_halves(bench: Bench, back: BackEnd) -> None:
    names = [f"span {number}" for number in range(25)]
    back.behave = lambda request: TOO_LARGE if len(span_names(request.body)) > 2 else TAKE
    last = bench.put(traces(*names))
    forwarder = bench.forward(back.url)
    until(lambda: bench.cursor(forwarder) == last)
    assert [name for body in back.bodies() for name in span_names(body)] == names
    for body in back.bodies():
        for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans:
            assert resource_spans.schema_url == "https://schema"
            assert all(scope_spans.scope.name for scope_spans in resource_spans.scope_spans)
    assert bench.counted(semconv.GATEWAY_FORWARD_REJECTED) == {}


def test_a_single_span_that_is_too_large_is_rejected_alone(bench: Bench, back: BackEnd) -> None:
    back.behave = lambda request: TOO_LARGE if "span 4" in span_names(request.body) else TAKE
    last = bench.put(traces(*(f"span {number}" for number in range(7))))
    forwarder = bench.forward(back.url)
    until(lambda: bench.cursor(forwarder) == last)
    assert sorted(name for body in back.bodies() for name in span_names(body)) == [
        f"span {number}" for number in range(7) if number != 4
    ]
    assert sum(bench.counted(semconv.GATEWAY_FORWARD_REJECTED).values()) == 1


def test_only_the_failed_half_of_a_split_request_is_retried(bench: Bench, back: BackEnd) -> None:
    back.script.extend([TOO_LARGE, TAKE, BUSY, BUSY])
    last = bench.put(traces("one", "two"))
    forwarder = bench.forward(back.url)
    until(lambda: bench.cursor(forwarder) == last)
    assert [span_names(body) for body in back.bodies()] == [["one"], ["two"]]


@pytest.mark.parametrize("rejected", [3, 0])
@pytest.mark.parametrize(("kind", "media"), [(HttpBackEnd, "protobuf"), (HttpBackEnd, "json"), (GrpcBackEnd, "")])
def test_partially_rejected_spans_are_counted_and_logged_once(
    bench: Bench, caplog: pytest.LogCaptureFixture, kind: type[BackEnd], media: str, rejected: int
) -> None:
    partial = ExportTracePartialSuccess(rejected_spans=rejected, error_message="too old")
    answer = Answer(body=ExportTraceServiceResponse(partial_success=partial).SerializeToString())
    if media == "json":
        told = {"partialSuccess": {"rejectedSpans": str(rejected), "errorMessage": "too old"}}
        answer = Answer(headers={"Content-Type": "application/json"}, body=json.dumps(told).encode())
    with running(kind()) as back:
        back.behave = lambda _: answer
        _check_partial_success(bench, back, caplog, rejected)


def _check_partial_success(bench: Bench, back: BackEnd, caplog: pytest.LogCaptureFixture, rejected: int) -> None:
    last = bench.put(*trace_bodies(5))
    forwarder = bench.forward(back.url)
    until(lambda: bench.cursor(forwarder) == last)
    assert caplog.text.count("too old") == 1
    assert sum(bench.counted(semconv.GATEWAY_FORWARD_LEFT_OUT, "backend", "signal").values()) == 5 * rejected
    assert sum(bench.counted(semconv.GATEWAY_FORWARDED).values()) == 5


def test_a_successful_response_with_an_unreadable_body_is_a_success(bench: Bench, http: HttpBackEnd) -> None:
    http.script.append(Answer(200, body=b"OK!"))
    http.script.append(Answer(200, headers={"Content-Type": "application/json"}, body=b"[]"))
    last = bench.put(*trace_bodies(2))
    forwarder = bench.forward(http.url)
    until(lambda: bench.cursor(forwarder) == last)
    assert sum(bench.counted(semconv.GATEWAY_FORWARDED).values()) == 2


def test_secrets_are_redacted_in_logs_and_status(bench: Bench, back: BackEnd, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    def repeat(request: Request) -> Answer:
        return Answer(401, "UNAUTHENTICATED", details=f"no such token: {request.headers['authorization'][7:]}")

    back.behave = repeat
    bench.put(*trace_bodies(1))
    forwarder = bench.forward({"endpoint": back.url, "headers": {"authorization": "Bearer open-sesame-17"}})
    until(lambda: forwarder.status()["error"])
    told = caplog.text + repr(forwarder.status()) + repr(forwarder.backend) + str(forwarder.backend)
    assert "no such token: ***" in told
    assert "sesame" not in told


# --- the journal, internal errors, settings---------------------------------------------------------------------------


def test_a_failing_journal_does_not_end_the_exporter_threads(
    bench: Bench, http: HttpBackEnd, caplog: pytest.LogCaptureFixture
) -> None:
    backend = backends.Backend.parse(http.url)
    bench.journal.register_consumers(list(backend.consumers.values()), starts_at_end=lambda _: False)
    attached = Journal(bench.path, max_bytes=2**30, attach=True)
    forwarder = BackendExporter(backend, attached, bench.counting)
    forwarder.start()
    bench.put(*trace_bodies(1))
    until(lambda: http.taken)
    attached.close()
    until(lambda: "the journal cannot be read" in caplog.text)
    assert forwarder.status()["behind_bytes"] == 0
    assert all(thread.is_alive() for each in forwarder._signal_exporters for thread in each._threads)
    forwarder.stop(60)
    assert not any(thread.is_alive() for each in forwarder._signal_exporters for thread in each._threads)


def test_an_internal_error_is_retried_and_loses_nothing(
    bench: Bench, http: HttpBackEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = [KeyError("ours"), KeyError("ours")]
    last = bench.put(*trace_bodies(3))
    backend = backends.Backend.parse(http.url)
    bench.journal.register_consumers(list(backend.consumers.values()), starts_at_end=lambda _: False)
    forwarder = BackendExporter(backend, bench.journal, bench.counting, random_fraction=lambda: 0.01)
    send = forwarder._sender.send

    def faulty(*arguments: Any) -> Any:
        if faults:
            raise faults.pop()
        return send(*arguments)

    monkeypatch.setattr(forwarder._sender, "send", faulty)
    forwarder.start()
    until(lambda: bench.cursor(forwarder) == last)
    forwarder.stop(60)
    assert set(http.bodies()) == set(trace_bodies(3))


def test_the_proxy_of_the_environment_is_used(
    bench: Bench, http: HttpBackEnd, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("http_proxy", f"someone:proxy-secret@127.0.0.1:{http.port}")
    monkeypatch.setenv("no_proxy", "localhost")
    bench.put(*trace_bodies(1))
    bench.forward("http://back-end.invalid:4318")
    until(lambda: http.taken)
    assert http.taken[0].path == "http://back-end.invalid:4318/v1/traces"
    assert http.taken[0].headers["proxy-authorization"].startswith("Basic ")
    assert "proxy-secret" not in caplog.text
    monkeypatch.setenv("http_proxy", "gopher://[nowhere")
    with pytest.raises(ConfigurationError, match="the environment's proxy for http:// is not a usable URL"):
        bench.forward("http://back-end.invalid:4318")


def test_no_proxy_is_used_for_hosts_in_no_proxy(
    bench: Bench, http: HttpBackEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    bench.put(*trace_bodies(1))
    bench.forward(http.url)
    until(lambda: http.taken)


# --- TLS --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate authority, and a certificate that client and server use."""
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "7")
    openssl("req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority")
    openssl("req", *new_key, "-keyout", "it.key", "-out", "it.csr", "-subj", "/CN=it")
    (folder / "it.ext").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "7", "-extfile", "it.ext")
    openssl("x509", "-req", "-in", "it.csr", *signed, "-out", "it.pem")
    return folder


@pytest.fixture(params=["https", "grpcs"])
def tls_back(request: pytest.FixtureRequest, certificates: Path) -> Iterator[BackEnd]:
    """A back end with TLS. Request it before `bench`, so that it stops after the exporters and their requests: Python's
    TLS never closes the socket of a connection that is reset between `connect` and the handshake."""
    back = TlsHttpBackEnd(certificates) if request.param == "https" else TlsGrpcBackEnd(certificates)
    before = {*threading.enumerate()}
    with running(back):
        yield back
        until(lambda: not {*_exporter_threads()} - before, "the end of what was under way")


def _exporter_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("goldspan-forward")]


@pytest.mark.needs("openssl")
def test_spans_are_exported_over_tls_with_a_client_certificate(
    tls_back: BackEnd, bench: Bench, certificates: Path
) -> None:
    bench.put(*trace_bodies(3))
    bench.forward(
        {
            "endpoint": tls_back.url,
            "ca_file": str(certificates / "ca.pem"),
            "certificate_file": str(certificates / "it.pem"),
            "key_file": str(certificates / "it.key"),
        }
    )
    until(lambda: set(tls_back.bodies()) == set(trace_bodies(3)))


@pytest.mark.needs("openssl")
def test_a_back_end_with_an_untrusted_certificate_receives_nothing(
    tls_back: BackEnd, bench: Bench, certificates: Path
) -> None:
    bench.put(*trace_bodies(3))
    files = {"certificate_file": str(certificates / "it.pem"), "key_file": str(certificates / "it.key")}
    forwarder = bench.forward({"endpoint": tls_back.url, **files})
    until(lambda: forwarder.status()["error"])
    assert forwarder.status()["reachable"] is False
    assert tls_back.requests == []
    assert bench.cursor(forwarder) == 0


@pytest.mark.needs("openssl")
@pytest.mark.parametrize("scheme", ["https", "grpcs"])
def test_a_certificate_that_does_not_match_its_key_is_a_configuration_error(certificates: Path, scheme: str) -> None:
    files = {"certificate_file": str(certificates / "it.pem"), "key_file": str(certificates / "ca.key")}
    with pytest.raises(ConfigurationError, match="'certificate_file' and 'key_file': the PEM files cannot be used"):
        backends.Backend.parse({"endpoint": f"{scheme}://localhost:1", **files})
