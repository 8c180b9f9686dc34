"""Tests of OTLP over gRPC: responses, and the limits of messages before they are decoded."""

from __future__ import annotations

import gzip
import random
import re
import socket
import threading
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from goldspan import semconv
from goldspan.errors import ConfigurationError
from goldspan.gateway.receivers import grpc as turns
from goldspan.gateway.receivers.http_server import TlsConfig
from goldspan.gateway.resource_limits import ResourceLimits
from support.gateway_receivers import LONG_TO_READ, OpenDoors, RunningReceivers, export_request, readers_busy, until

TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
SPANS = export_request(3)
MIB = 2**20


def channel(receivers: RunningReceivers) -> grpc.Channel:
    return grpc.insecure_channel(f"localhost:{receivers.grpc_port}", options=[("grpc.max_send_message_length", -1)])


def export(receivers: RunningReceivers, message: bytes, method: str = TRACES, **options: object) -> bytes:
    with channel(receivers) as opened:
        answer: bytes = opened.unary_unary(method)(message, timeout=30, wait_for_ready=True, **options)
        return answer


def refused(receivers: RunningReceivers, message: bytes, method: str = TRACES, **options: object) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as raised:
        export(receivers, message, method, **options)
    return raised.value


def retry_after(error: grpc.RpcError) -> float | None:
    """Returns the seconds after which a client should retry."""
    for key, value in error.trailing_metadata():
        if key == "grpc-status-details-bin":
            [detail] = Status.FromString(value).details
            information = RetryInfo()
            assert detail.Unpack(information)
            return information.retry_delay.ToTimedelta().total_seconds()
    return None


def peak_memory_mib() -> int:
    """Returns the peak memory of this process since the last call, in MiB."""
    status = Path("/proc/self/status").read_text()
    Path("/proc/self/clear_refs").write_text("5")
    found = re.search(r"VmHWM:\s+(\d+)", status)
    assert found
    return int(found[1]) // 1024


def test_an_acknowledged_request_is_in_the_journal_unchanged(receivers: RunningReceivers) -> None:
    assert export(receivers, SPANS) == b""
    [entry] = receivers.entries()
    assert (entry.signal, entry.media, entry.origin, entry.body) == ("traces", "protobuf", "received", SPANS)
    receivers.stop()
    assert receivers.count(semconv.GATEWAY_REQUESTS, "signal", "transport", "status") == {("traces", "grpc", 200): 1}


@pytest.mark.parametrize("compression", list(grpc.Compression))
def test_compressed_messages_are_accepted(receivers: RunningReceivers, compression: grpc.Compression) -> None:
    spans = export_request(200)
    assert export(receivers, spans, compression=compression) == b""
    assert [entry.body for entry in receivers.entries()] == [spans]


def test_a_long_compressed_message_is_decompressed_in_chunks(receivers: RunningReceivers) -> None:
    spans = export_request(1, random.Random(1).randbytes(500_000).hex())
    assert export(receivers, spans, compression=grpc.Compression.Gzip) == b""
    assert [entry.body for entry in receivers.entries()] == [spans]


@pytest.mark.parametrize("level", range(10))
def test_zlib_is_detected_at_every_compression_level(receivers: RunningReceivers, level: int) -> None:
    """gRPC decompresses nothing here and does not report how a message was compressed."""
    compressor = zlib.compressobj(level, zlib.DEFLATED, 15 if level % 2 else 9)
    assert export(receivers, compressor.compress(SPANS) + compressor.flush()) == b""
    assert [entry.body for entry in receivers.entries()] == [SPANS]


def test_invalid_spans_are_reported_and_the_others_kept(receivers: RunningReceivers) -> None:
    answer = export(receivers, export_request(1, trace=0) + SPANS)
    assert ExportTraceServiceResponse.FromString(answer).partial_success.rejected_spans == 1
    assert len(receivers.entries()) == 1


@pytest.mark.parametrize(
    "message", [b"\xff\xff", b"\n\x05x", gzip.compress(SPANS, mtime=0)[:-9], gzip.compress(b"\xff", mtime=0)]
)
def test_an_unreadable_message_is_an_invalid_argument_without_retry_info(
    receivers: RunningReceivers, message: bytes
) -> None:
    error = refused(receivers, message)
    assert (error.code(), retry_after(error)) == (grpc.StatusCode.INVALID_ARGUMENT, None)
    assert receivers.entries() == []


def test_an_empty_message_is_accepted_and_not_written(receivers: RunningReceivers) -> None:
    assert export(receivers, b"") == b""
    assert receivers.entries() == []


def test_a_call_without_a_message_is_refused(receivers: RunningReceivers) -> None:
    with channel(receivers) as opened, pytest.raises(grpc.RpcError) as raised:
        opened.stream_unary(TRACES)(iter(()), timeout=30)
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_other_methods_are_unimplemented(receivers: RunningReceivers) -> None:
    for method in (
        "/a.B/C",
        TRACES[:-1],
        "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export",
    ):
        assert refused(receivers, b"", method).code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_message_that_is_too_long_is_refused_without_retry_info(open_doors: OpenDoors) -> None:
    receivers = open_doors(limits=ResourceLimits(max_body_bytes=1_000))
    for message in (export_request(100), export_request(20_000)):
        error = refused(receivers, message)
        assert (error.code(), retry_after(error)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, None)
    assert export(receivers, SPANS) == b""
    receivers.stop()
    assert receivers.count(semconv.GATEWAY_REFUSED, "limit") == {
        ("max_body_bytes",): 1
    }  # gRPC itself refused the other


def test_a_decompression_bomb_is_refused_with_little_memory(receivers: RunningReceivers) -> None:
    packed = gzip.compress(bytes(300 * MIB), compresslevel=1)
    refused(receivers, packed)
    peak_memory_mib()
    before = peak_memory_mib()
    error = refused(receivers, packed)
    assert (error.code(), retry_after(error)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, None)
    assert peak_memory_mib() - before < 40
    assert export(receivers, SPANS) == b""


@pytest.mark.e2e
def test_a_decompression_bomb_with_grpc_compression_is_refused(receivers: RunningReceivers) -> None:
    error = refused(receivers, b"\0" * (300 * MIB), compression=grpc.Compression.Gzip)
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert receivers.receiver.bytes_in_flight == 0
    assert export(receivers, SPANS) == b""


def test_a_call_without_a_message_ends_at_the_body_deadline(open_doors: OpenDoors) -> None:
    receivers = open_doors(limits=ResourceLimits(body_seconds=0.2))
    stopped = threading.Event()

    def never() -> Iterator[bytes]:
        stopped.wait(30)
        yield b""

    with channel(receivers) as opened, pytest.raises(grpc.RpcError) as raised:
        opened.stream_unary(TRACES)(never(), timeout=30)
    stopped.set()
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    until(lambda: not receivers.receiver.requests_in_flight)
    assert export(receivers, SPANS) == b""
    receivers.stop()
    assert receivers.count(semconv.GATEWAY_REFUSED, "limit") == {("body_seconds",): 1}


def slow_message(stopped: threading.Event) -> Iterator[bytes]:
    """The message of a slow client."""
    stopped.wait(30)
    yield SPANS


def test_a_message_waits_for_a_slot_until_others_have_arrived(open_doors: OpenDoors) -> None:
    """The size of a message is unknown before it arrives; their total is limited."""
    receivers = open_doors(limits=ResourceLimits(max_received_bytes=2 * MIB, max_body_bytes=MIB))
    stopped = threading.Event()
    with channel(receivers) as opened:
        slow = [opened.stream_unary(TRACES).future(slow_message(stopped), timeout=30) for _ in range(2)]
        until(lambda: receivers.receiver.requests_in_flight == 2)
        third = opened.unary_unary(TRACES).future(SPANS, timeout=30)
        stopped.set()
        assert [call.result() for call in (*slow, third)] == [b"", b"", b""]
    assert len(receivers.entries()) == 3


def test_a_call_that_gets_no_slot_is_refused_with_retry_info(
    open_doors: OpenDoors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "SLOT_WAIT_SECONDS", 0.1)
    monkeypatch.setattr(turns, "SLOW_MESSAGE_SECONDS", 100)
    receivers = open_doors(limits=ResourceLimits(max_received_bytes=2 * MIB, max_body_bytes=MIB))
    stopped = threading.Event()
    with channel(receivers) as opened:
        slow = [opened.stream_unary(TRACES).future(slow_message(stopped), timeout=30) for _ in range(2)]
        until(lambda: receivers.receiver.requests_in_flight == 2)
        error = refused(receivers, SPANS)
        assert (error.code(), retry_after(error)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, 1.0)
        assert receivers.post(SPANS).status == 200
        stopped.set()
        assert [call.result() for call in slow] == [b"", b""]
    receivers.stop()
    assert receivers.count(semconv.GATEWAY_REFUSED, "limit") == {("max_received_bytes",): 1}


def test_slow_calls_lose_their_slot_to_a_waiting_call(open_doors: OpenDoors, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "SLOT_WAIT_SECONDS", 30)
    monkeypatch.setattr(turns, "SLOW_MESSAGE_SECONDS", 0.1)
    receivers = open_doors(limits=ResourceLimits(max_received_bytes=2 * MIB, max_body_bytes=MIB))
    stopped = threading.Event()
    with channel(receivers) as opened:
        idle = [opened.stream_unary(TRACES).future(slow_message(stopped), timeout=30) for _ in range(2)]
        until(lambda: receivers.receiver.requests_in_flight == 2)
        assert export(receivers, SPANS) == b""
        stopped.set()
        ended = [call.exception() for call in idle]
    [error] = [error for error in ended if error is not None]
    assert (error.code(), retry_after(error)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, 1.0)
    receivers.stop()
    assert receivers.count(semconv.GATEWAY_REFUSED, "limit") == {("max_received_bytes",): 1}


def test_a_call_beyond_max_requests_is_refused_with_retry_info(open_doors: OpenDoors) -> None:
    receivers = open_doors(limits=ResourceLimits(max_requests=1))
    with ThreadPoolExecutor(1) as pool, readers_busy(receivers):
        first = pool.submit(export, receivers, LONG_TO_READ)
        until(lambda: receivers.receiver.bytes_in_flight)
        error = refused(receivers, SPANS)
        assert (error.code(), retry_after(error)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, 1.0)
        assert receivers.post(SPANS).status == 429
    assert first.result() == b""
    receivers.stop()
    assert receivers.count(semconv.GATEWAY_REFUSED, "limit") == {("max_requests",): 2}


def test_calls_without_a_message_do_not_count_towards_max_requests(open_doors: OpenDoors) -> None:
    receivers = open_doors(limits=ResourceLimits(max_requests=1))
    stopped = threading.Event()
    with channel(receivers) as opened:
        slow = [opened.stream_unary(TRACES).future(slow_message(stopped), timeout=30) for _ in range(3)]
        until(lambda: receivers.receiver.requests_in_flight == 3)
        assert export(receivers, SPANS) == b""
        for call in slow:
            call.cancel()
        stopped.set()
    until(lambda: receivers.receiver.requests_in_flight == 0)


def test_a_cancelled_call_releases_its_slot(receivers: RunningReceivers) -> None:
    stopped = threading.Event()

    def never() -> Iterator[bytes]:
        stopped.wait(30)
        yield b""

    with channel(receivers) as opened:
        call = opened.stream_unary(TRACES).future(never(), timeout=30)
        until(lambda: receivers.receiver.requests_in_flight == 1)
        call.cancel()
        until(lambda: receivers.receiver.requests_in_flight == 0)
        stopped.set()
    assert export(receivers, SPANS) == b""


def test_a_connection_without_http_2_is_closed(open_doors: OpenDoors) -> None:
    receivers = open_doors(limits=ResourceLimits(header_seconds=0.3))
    for sent in (b"", b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP"):
        with socket.create_connection(("localhost", receivers.grpc_port), timeout=30) as connection:
            connection.sendall(sent)
            while connection.recv(1_000):
                pass
    assert export(receivers, SPANS) == b""


def test_stopping_ends_pending_calls_after_its_timeout(receivers: RunningReceivers) -> None:
    stopped = threading.Event()

    def never() -> Iterator[bytes]:
        stopped.wait(30)
        yield b""

    with channel(receivers) as opened:
        call = opened.stream_unary(TRACES).future(never(), timeout=30)
        until(lambda: receivers.receiver.requests_in_flight == 1)
        receivers.stop(0.1)
        assert call.exception().code() is not grpc.StatusCode.DEADLINE_EXCEEDED
        stopped.set()


@pytest.mark.needs("openssl")
def test_requests_are_accepted_over_tls(open_doors: OpenDoors, certificate: TlsConfig) -> None:
    receivers = open_doors(tls=certificate)
    trusting = grpc.ssl_channel_credentials(certificate.cert_file.read_bytes())
    with grpc.secure_channel(f"localhost:{receivers.grpc_port}", trusting) as opened:
        assert opened.unary_unary(TRACES)(SPANS, timeout=30) == b""
    assert len(receivers.entries()) == 1


def test_an_occupied_port_is_a_configuration_error(open_doors: OpenDoors) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=rf"cannot listen on 127.0.0.1, port {port}, for gRPC"):
            open_doors(grpc_port=port)
