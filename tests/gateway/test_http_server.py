"""Tests of connections: deadlines, limits, addresses, TLS and shutdown."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from goldspan import _guard, semconv
from goldspan.errors import ConfigurationError
from goldspan.gateway.receivers import http_protocol
from goldspan.gateway.receivers.authorization import Authorizer
from goldspan.gateway.receivers.http_protocol import MAX_PIPELINED_REQUESTS
from goldspan.gateway.receivers.http_server import (
    RESERVED_FILES,
    TlsConfig,
    open_listening_sockets,
    raise_open_file_limit,
)
from goldspan.gateway.resource_limits import ResourceLimits
from support.gateway_receivers import (
    LONG_TO_READ,
    OpenDoors,
    RunningReceivers,
    Wire,
    export_request,
    head,
    readers_busy,
    until,
    whole,
)

SPANS = export_request(3)
GET = head("/healthz", method="GET", media="")
LONG_LENGTH = 50_000_000
LARGE = Route("/long", lambda request: PlainTextResponse(bytes(LONG_LENGTH)))
SHORT_DEADLINES = ResourceLimits(header_seconds=0.2, keep_alive_seconds=0.3, body_seconds=5)


@pytest.fixture(params=["asyncio", "uvloop"])
def short_deadlines(request: pytest.FixtureRequest, open_doors: OpenDoors) -> RunningReceivers:
    """Receivers with deadlines of some tenths of a second, on each of the two event loops."""
    if request.param == "asyncio":
        return open_doors(limits=SHORT_DEADLINES, routes=[LARGE], loop=asyncio.new_event_loop)
    return open_doors(limits=SHORT_DEADLINES, routes=[LARGE])


def refused(receivers: RunningReceivers) -> dict[str, int]:
    """Returns the refusals by limit."""
    return {limit: number for (limit,), number in receivers.count(semconv.GATEWAY_REFUSED, "limit").items()}


# Deadlines


@pytest.mark.parametrize("sent", [b"", b"P", GET[:-2], b"\r\n", GET[:-4] + b"\r\nx-slow: "])
def test_a_connection_that_does_not_complete_its_headers_is_closed(
    short_deadlines: RunningReceivers, sent: bytes
) -> None:
    wire = short_deadlines.wire()
    wire.send(sent)
    assert wire.is_closed()
    until(lambda: refused(short_deadlines) == {"header_seconds": 1})


def test_slowly_sent_headers_do_not_keep_a_connection_open(short_deadlines: RunningReceivers) -> None:
    wire = short_deadlines.wire()
    stopped = threading.Event()

    def drip() -> None:
        while not stopped.wait(0.05):
            try:
                wire.send(b"x")
            except OSError:
                return

    wire.send(GET[:-4] + b"\r\nx-slow: ")
    dripping = threading.Thread(target=drip)
    dripping.start()
    assert wire.is_closed()
    stopped.set()
    dripping.join()


@pytest.mark.parametrize("sent", [b"P", b"\r\n", GET[:-2]])
def test_incomplete_headers_after_a_request_do_not_keep_a_connection_open(
    short_deadlines: RunningReceivers, sent: bytes
) -> None:
    wire = short_deadlines.wire()
    wire.send(GET)
    assert wire.reply().status == 200
    wire.send(sent)
    assert wire.is_closed()


def test_an_idle_connection_is_closed_and_not_counted_as_refused(short_deadlines: RunningReceivers) -> None:
    wire = short_deadlines.wire()
    wire.send(whole(SPANS))
    assert wire.reply().status == 200
    assert wire.is_closed()
    assert refused(short_deadlines) == {}


def test_the_rest_of_a_refused_body_is_discarded_only_until_a_deadline(short_deadlines: RunningReceivers) -> None:
    wire = short_deadlines.wire()
    wire.send(head("/v1/traces", "content-length: 1000000000"))
    assert wire.reply().status == 413
    wire.send(b"x" * 1_000)
    assert wire.is_closed()
    until(lambda: refused(short_deadlines) == {"max_body_bytes": 1})


def test_a_connection_serves_requests_after_a_refused_body_is_discarded(short_deadlines: RunningReceivers) -> None:
    wire = short_deadlines.wire()
    wire.send(head("/v1/traces", "content-length: 10", media="text/plain"))
    assert wire.reply().status == 415
    wire.send(b"x" * 10, GET)
    assert wire.reply().status == 200
    assert wire.is_closed()
    assert refused(short_deadlines) == {}


def test_a_connection_may_be_idle_after_a_refused_body_is_discarded(short_deadlines: RunningReceivers) -> None:
    wire = short_deadlines.wire()
    wire.send(head("/v1/traces", "content-length: 10", media="text/plain"))
    assert wire.reply().status == 415
    wire.send(b"x" * 10)
    assert wire.is_closed()
    assert refused(short_deadlines) == {}


def test_a_pipelined_body_has_the_deadline_of_a_body(open_doors: OpenDoors) -> None:
    receivers = open_doors(limits=ResourceLimits(header_seconds=0.2))
    wire = receivers.wire()
    wire.send(GET + head("/v1/traces", f"content-length: {len(SPANS)}"))
    assert wire.reply().status == 200
    late = receivers.wire()
    assert late.is_closed()  # by then the deadline of the headers has passed
    wire.send(SPANS)
    assert wire.reply().status == 200


def test_large_bodies_leave_their_connection_open(open_doors: OpenDoors) -> None:
    receivers = open_doors(limits=ResourceLimits(max_header_bytes=10_000))
    large = export_request(1, "x" * 3_000_000)
    wire = receivers.wire()
    for _ in range(5):
        wire.send(whole(large))
        reply = wire.reply()
        assert (reply.status, reply.headers.get("connection")) == (200, None)
    wire.send(whole(large) + GET + GET)
    assert [wire.reply().status for _ in range(3)] == [200] * 3


def test_a_client_that_reads_nothing_is_disconnected(short_deadlines: RunningReceivers) -> None:
    wire = short_deadlines.wire()
    wire.send(head("/long", method="GET"))
    until(lambda: short_deadlines.http.open_connections == 1)
    until(lambda: short_deadlines.http.open_connections == 0)


@pytest.mark.e2e
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_client_that_reads_slowly_stays_connected(open_doors: OpenDoors, loop: Any) -> None:
    """Each chunk takes longer than the time after which a client that reads nothing is disconnected."""
    receivers = open_doors(limits=ResourceLimits(keep_alive_seconds=1.5), routes=[LARGE], loop=loop)
    wire = receivers.wire()
    wire.close()
    wire.socket = socket.socket()
    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)  # both detect soon that the other one closed
    wire.socket.connect(("127.0.0.1", receivers.http.port))
    until(lambda: receivers.http.open_connections == 1)
    wire.send(GET)
    assert wire.reply().status == 200
    [connection] = receivers.http.state.connections
    connection.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    wire.send(head("/long", method="GET"))
    pause = threading.Event()
    received = 0
    for _ in range(30):
        pause.wait(0.1)
        received += len(wire.socket.recv(1_000))
    assert 0 < received <= 30_000  # less than one chunk
    assert receivers.http.open_connections == 1


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_long_response_is_aborted_after_the_maximum_sending_time(
    open_doors: OpenDoors, loop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "MAX_SENDING_SECONDS", 0.3)
    receivers = open_doors(routes=[LARGE], loop=loop)
    wire = receivers.wire()
    wire.send(head("/long", method="GET"))
    until(lambda: receivers.http.open_connections == 1)
    until(lambda: receivers.http.open_connections == 0)


def test_a_long_response_is_not_copied_to_the_write_buffer(open_doors: OpenDoors) -> None:
    """The server passes it to the system in chunks."""
    receivers = open_doors(routes=[LARGE])
    wires = [receivers.wire() for _ in range(5)]
    for wire in wires:
        wire.send(head("/long", method="GET"))
    until(lambda: len(receivers.http.state.tasks) == 5)
    until(lambda: all(each.flow.write_paused for each in receivers.http.state.connections))
    assert all(each.transport.get_write_buffer_size() < 300_000 for each in receivers.http.state.connections)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_long_response_is_sent_completely(open_doors: OpenDoors, loop: Any) -> None:
    receivers = open_doors(routes=[LARGE], loop=loop)
    wire = receivers.wire()
    wire.send(head("/long", method="GET"))
    assert len(wire.reply().body) == LONG_LENGTH


def test_requests_are_answered_beside_many_slow_clients(open_doors: OpenDoors) -> None:
    receivers = open_doors()
    slow = [receivers.wire() for _ in range(300)]
    for number, wire in enumerate(slow):
        wire.send([b"", b"POST /v1/traces HT", head("/v1/traces", "content-length: 1000"), GET[:-2]][number % 4])
    assert [receivers.post(SPANS).status for _ in range(20)] == [200] * 20


# Sizes


def test_headers_that_are_too_long_are_answered_431(open_doors: OpenDoors) -> None:
    receivers = open_doors(limits=ResourceLimits(max_header_bytes=2_000))
    for long in ([f"x-{'y' * 2_000}: 1"], [f"x: {'y' * 2_000}"], [f"x{number}: 1" for number in range(100)]):
        wire = receivers.wire()
        wire.send(head("/healthz", *long, method="GET"))
        assert wire.reply().status == 431
        assert wire.is_closed()
    wire = receivers.wire()
    wire.send(head("/" + "x" * 2_000, method="GET"))
    assert wire.reply().status == 431
    assert refused(receivers) == {"max_header_bytes": 4}


def test_endless_headers_are_cut_off(open_doors: OpenDoors) -> None:
    receivers = open_doors(limits=ResourceLimits(max_header_bytes=10_000))
    for start in (b"GET /", b"GET /healthz HTTP/1.1\r\nx: ", b"GET /healthz HTTP/1.1\r\nx"):
        wire = receivers.wire()
        with pytest.raises(ConnectionError):
            wire.send(start, *[b"y" * 1_000] * 100_000)
    assert receivers.ask("GET", "/healthz").status == 200


def test_the_size_of_trailers_is_limited(open_doors: OpenDoors) -> None:
    receivers = open_doors(limits=ResourceLimits(max_header_bytes=2_000))
    wire = receivers.wire()
    wire.send(head("/v1/traces", "transfer-encoding: chunked"), b"0\r\n")
    wire.send(b"".join(b"x%d: 1\r\n" % number for number in range(100)))
    assert wire.reply().status == 431
    assert receivers.entries() == []


@pytest.mark.parametrize("at_once", [True, False])
def test_trailers_are_not_read_as_headers(open_doors: OpenDoors, at_once: bool) -> None:
    receivers = open_doors(authority=Authorizer(ingest_tokens=("t",)))
    chunks = b"%x\r\n%s\r\n0\r\n" % (len(SPANS), SPANS)
    wire = receivers.wire()
    for given, late, status in (("x: y", b"authorization: Bearer t", 401), ("authorization: Bearer t", b"x: y", 200)):
        asked = head("/v1/traces", "transfer-encoding: chunked", given)
        wire.send(*([asked + chunks + late + b"\r\n\r\n"] if at_once else [asked, chunks, late + b"\r\n\r\n"]))
        assert wire.reply().status == status
    assert len(receivers.entries()) == 1


def test_chunked_is_the_only_accepted_transfer_encoding(receivers: RunningReceivers) -> None:
    for coding in ("gzip, chunked", "gzip", "identity"):
        wire = receivers.wire()
        wire.send(head("/v1/traces", f"transfer-encoding: {coding}"), b"0\r\n\r\n")
        assert wire.reply().status in (400, 501)
        assert wire.is_closed()
    wire = receivers.wire()
    wire.send(head("/v1/traces", "Transfer-Encoding: Chunked"), b"0\r\n\r\n")
    assert wire.reply().status == 200


def test_invalid_http_is_answered_400_and_closed(receivers: RunningReceivers) -> None:
    for sent in (
        b"\x16\x03\x01\x02\x00",
        b"hello\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        head("/v1/traces", "content-length: -1"),
    ):
        wire = receivers.wire()
        wire.send(sent)
        assert wire.reply().status == 400
        assert wire.is_closed()


def test_a_request_with_a_content_length_and_chunks_is_refused(receivers: RunningReceivers) -> None:
    wire = receivers.wire()
    wire.send(head("/v1/traces", "content-length: 3", "transfer-encoding: chunked"), b"0\r\n\r\n")
    assert wire.reply().status == 400
    assert wire.is_closed()


def test_an_invalid_chunk_is_answered_400(receivers: RunningReceivers) -> None:
    wire = receivers.wire()
    wire.send(head("/v1/traces", "transfer-encoding: chunked"), b"1\r\nx\r\n")
    until(lambda: receivers.receiver.requests_in_flight)
    wire.send(b"nonsense\r\n")
    assert wire.reply().status == 400
    until(lambda: not receivers.receiver.requests_in_flight)


def test_a_request_before_invalid_http_is_answered(receivers: RunningReceivers) -> None:
    wire = receivers.wire()
    wire.send(whole(SPANS) + b"nonsense\r\n\r\n")
    assert wire.reply().status == 200
    assert wire.is_closed()


def test_the_number_of_pipelined_requests_is_limited(receivers: RunningReceivers) -> None:
    wire = receivers.wire()
    wire.send(GET * (MAX_PIPELINED_REQUESTS + 50))
    received = b""
    while piece := wire.socket.recv(100_000):
        received += piece
    assert 0 < received.count(b"HTTP/1.1 200") <= MAX_PIPELINED_REQUESTS + 1
    assert receivers.ask("GET", "/healthz").status == 200


@pytest.mark.parametrize("upgrade", ["websocket", "h2c"])
def test_an_upgrade_is_ignored_and_the_request_answered(receivers: RunningReceivers, upgrade: str) -> None:
    """The first request of clients that prefer HTTP/2; they accept a response in HTTP/1.1."""
    wire = receivers.wire()
    wire.send(whole(SPANS, "/v1/traces", "connection: Upgrade, HTTP2-Settings", f"upgrade: {upgrade}"))
    assert wire.reply().status == 200
    assert [entry.body for entry in receivers.entries()] == [SPANS]
    wire.send(GET)
    assert wire.reply().status == 200


def test_an_upgrade_is_ignored_if_the_body_arrives_later_or_in_chunks(receivers: RunningReceivers) -> None:
    asked = ("connection: upgrade", "upgrade: h2c")
    wire = receivers.wire()
    wire.send(head("/v1/traces", f"content-length: {len(SPANS)}", *asked))
    until(lambda: receivers.receiver.requests_in_flight)
    wire.send(SPANS)
    assert wire.reply().status == 200
    wire.send(head("/v1/traces", "transfer-encoding: chunked", *asked), b"%x\r\n%s\r\n0\r\n\r\n" % (len(SPANS), SPANS))
    assert wire.reply().status == 200
    assert [entry.body for entry in receivers.entries()] == [SPANS, SPANS]


def test_a_connect_request_is_answered_400(receivers: RunningReceivers) -> None:
    wire = receivers.wire()
    wire.send(b"CONNECT other.example:443 HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert wire.reply().status == 400
    assert wire.is_closed()


# Half-closed connections


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_half_closed_connection_receives_its_responses(open_doors: OpenDoors, loop: Any) -> None:
    receivers = open_doors(loop=loop)
    wire = receivers.wire()
    wire.send(whole(SPANS) + whole(SPANS))
    wire.socket.shutdown(socket.SHUT_WR)
    assert [wire.reply().status, wire.reply().status] == [200, 200]
    assert wire.is_closed()
    assert len(receivers.entries()) == 2


def test_an_incomplete_body_on_a_half_closed_connection_is_not_written(receivers: RunningReceivers) -> None:
    wire = receivers.wire()
    wire.send(head("/v1/traces", f"content-length: {len(SPANS)}"), SPANS[:-1])
    wire.socket.shutdown(socket.SHUT_WR)
    assert wire.is_closed()
    assert receivers.entries() == []


# Number of connections


def test_connections_beyond_max_connections_are_answered_503_if_all_others_are_busy(open_doors: OpenDoors) -> None:
    receivers = open_doors(limits=ResourceLimits(max_connections=3))
    busy = [receivers.wire() for _ in range(3)]
    with readers_busy(receivers):
        for wire in busy:
            wire.send(whole(LONG_TO_READ))
        until(lambda: receivers.receiver.bytes_in_flight == 3 * len(LONG_TO_READ))
        for _ in range(150):
            late = receivers.wire()
            reply = late.reply()
            assert (reply.status, reply.headers["retry-after"], reply.headers["connection"]) == (503, "2", "close")
            assert late.is_closed()
    assert refused(receivers) == {"max_connections": 150}
    assert [wire.reply().status for wire in busy] == [200] * 3
    assert _answers(receivers)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", None),
        (b"P", None),
        (GET[:-2], None),
        (GET, 200),
        (GET + b"P", 200),
        (head("/v1/traces", "content-length: 1000") + b"x", None),
        (head("/v1/traces", "content-length: 9", media="text/plain"), 415),
        (GET + head("/v1/traces", "content-length: 1000"), 200),
    ],
)
def test_at_max_connections_the_connection_waiting_longest_for_its_client_is_closed(
    open_doors: OpenDoors, loop: Any, sent: bytes, status: int | None
) -> None:
    receivers = open_doors(limits=ResourceLimits(max_connections=3), loop=loop)
    waiting = []
    for number in range(1, 4):
        waiting.append(receivers.wire())
        waiting[-1].send(sent)
        if status is not None:
            assert waiting[-1].reply().status == status
        until(lambda number=number: len(receivers.http.state.connections) == number)
    for _ in range(3):
        assert receivers.post(SPANS).status == 200
        until(lambda: receivers.http.open_connections < 3)
    assert waiting[0].is_closed()
    assert refused(receivers) == {"max_connections": 1}  # so each of the others was accepted
    assert len(receivers.entries()) == 3


def test_a_busy_connection_is_not_closed_for_a_new_one(open_doors: OpenDoors) -> None:
    receivers = open_doors(limits=ResourceLimits(max_connections=2))
    busy, idle = receivers.wire(), receivers.wire()
    with readers_busy(receivers):
        busy.send(whole(LONG_TO_READ) + GET + head("/v1/traces", "content-length: 1000"))
        until(lambda: receivers.receiver.bytes_in_flight)
        assert receivers.post(SPANS).status == 200
        assert idle.is_closed()
    assert [busy.reply().status, busy.reply().status] == [200, 200]


def test_new_connections_at_max_connections_replace_idle_ones(open_doors: OpenDoors) -> None:
    receivers = open_doors(limits=ResourceLimits(max_connections=5))
    for _ in range(300):
        receivers.wire()
    assert [receivers.post(SPANS).status for _ in range(5)] == [200] * 5
    until(lambda: receivers.http.open_connections <= 5)
    assert len(receivers.http._idle_connections) <= 5


def _answers(receivers: RunningReceivers) -> bool:
    wire = receivers.wire()
    wire.send(GET)
    try:
        return wire.reply().status == 200
    except (ConnectionError, AssertionError):
        return False


@pytest.mark.e2e
def test_requests_are_answered_beside_thousands_of_idle_connections(open_doors: OpenDoors) -> None:
    files = raise_open_file_limit(6_000)
    number = min(2_000, (files - 1_000) // 2)
    receivers = open_doors(limits=ResourceLimits(header_seconds=300))
    idle = [receivers.wire() for _ in range(number - 10)]
    for wire in idle[::2]:
        wire.send(GET)
        assert wire.reply().status == 200
    assert [receivers.post(SPANS).status for _ in range(20)] == [200] * 20
    assert refused(receivers) == {}


def test_the_limit_of_open_files_is_raised_up_to_the_hard_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import resource; from goldspan.gateway.receivers.http_server import raise_open_file_limit\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300))\n"
        "print(raise_open_file_limit(200), raise_open_file_limit(50), raise_open_file_limit(10_000))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["200", "200", "300"]
    monkeypatch.setitem(sys.modules, "resource", None)
    assert raise_open_file_limit(123) == 123


def test_max_connections_is_limited_by_the_limit_of_open_files(
    open_doors: OpenDoors, caplog: pytest.LogCaptureFixture
) -> None:
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    receivers = open_doors(limits=ResourceLimits(max_connections=files))
    assert receivers.http._max_connections == files - RESERVED_FILES
    assert "ulimit -n" in caplog.text


def test_accepting_resumes_after_the_limit_of_open_files_was_reached(receivers: RunningReceivers) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    client = socket.socket()
    taken = [os.dup(client.fileno())]
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 1, hard))
    try:
        with suppress(OSError):  # until none is left
            while True:
                taken.append(os.dup(client.fileno()))
        client.connect(("127.0.0.1", receivers.http.port))
        until(lambda: _guard.failure_counts["accept a connection"])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        client.close()
        for one in taken:
            os.close(one)
    assert receivers.post(SPANS).status == 200


# Addresses


def test_port_0_selects_one_free_port_for_all_addresses_of_a_name() -> None:
    listening = open_listening_sockets("localhost", 0)
    try:
        assert len({one.getsockname()[1] for one in listening}) == 1
        assert listening[0].getsockname()[1] != 0
    finally:
        for one in listening:
            one.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost", "::1", "::"])
def test_the_server_listens_on_ipv4_and_ipv6_addresses_and_on_names(open_doors: OpenDoors, host: str) -> None:
    if ":" in host and not _has_ipv6():
        pytest.skip("this machine has no IPv6")
    receivers = open_doors(host=host)
    asked = "::1" if ":" in host else "127.0.0.1"
    wire = Wire(receivers.http.port, asked)
    wire.send(whole(SPANS))
    assert wire.reply().status == 200
    wire.close()
    assert receivers.http.addresses[0][1] == receivers.http.port


def _has_ipv6() -> bool:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return False
    return True


def test_a_port_is_shared_only_with_reuse_port() -> None:
    first = open_listening_sockets("127.0.0.1", 0, reuse_port=True)
    port = first[0].getsockname()[1]
    second = open_listening_sockets("127.0.0.1", port, reuse_port=True)
    with pytest.raises(ConfigurationError, match=f"cannot listen on 127.0.0.1, port {port}"):
        open_listening_sockets("127.0.0.1", port)
    for one in (*first, *second):
        one.close()


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1"])
def test_an_address_of_another_machine_is_a_configuration_error(host: str) -> None:
    with pytest.raises(ConfigurationError, match=f"cannot listen on .?{host}"):
        open_listening_sockets(host, 0)


# Shutdown


def test_stopping_answers_pending_requests_and_accepts_no_connections(receivers: RunningReceivers) -> None:
    idle, busy, port = receivers.wire(), receivers.wire(), receivers.http.port
    idle.send(GET)
    assert idle.reply().status == 200
    busy.send(head("/v1/traces", f"content-length: {len(SPANS)}"), SPANS[:10])
    until(lambda: receivers.receiver.requests_in_flight)
    stopping = threading.Thread(target=receivers.stop, args=(20.0,))
    stopping.start()
    assert idle.is_closed()
    with pytest.raises(ConnectionError):
        until(lambda: Wire(port).close())
    busy.send(SPANS[10:])
    reply = busy.reply()
    assert (reply.status, reply.headers["connection"]) == (200, "close")
    stopping.join()


def test_stopping_waits_at_most_for_its_timeout(receivers: RunningReceivers) -> None:
    stuck = receivers.wire()
    stuck.send(head("/v1/traces", "content-length: 1000"))
    until(lambda: receivers.receiver.requests_in_flight)
    receivers.stop(0.1)
    assert receivers.receiver.requests_in_flight == 0


# TLS


@pytest.mark.needs("openssl")
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_requests_are_accepted_over_tls_only(open_doors: OpenDoors, certificate: TlsConfig, loop: Any) -> None:
    receivers = open_doors(tls=certificate, loop=loop)
    trusting = ssl.create_default_context(cafile=str(certificate.cert_file))
    wire = Wire(receivers.http.port, context=trusting)
    wire.send(whole(SPANS) + GET)
    assert [wire.reply().status, wire.reply().status] == [200, 200]
    wire.close()
    with pytest.raises(ssl.SSLError):
        Wire(receivers.http.port, context=ssl.create_default_context())
    plain = receivers.wire()
    plain.send(GET)
    while plain.socket.recv(100):
        pass
    assert len(receivers.entries()) == 1
    until(lambda: receivers.http.open_connections == 0)


@pytest.mark.needs("openssl")
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_connections_without_a_tls_handshake_are_counted_and_closed(
    open_doors: OpenDoors, certificate: TlsConfig, loop: Any
) -> None:
    limits = ResourceLimits(header_seconds=0.3, max_connections=2)
    receivers = open_doors(tls=certificate, limits=limits, loop=loop)
    silent = [receivers.wire(), receivers.wire()]
    until(lambda: receivers.http.open_connections == 2)
    late = receivers.wire()
    assert late.is_closed()
    assert refused(receivers) == {"max_connections": 1}
    assert all(wire.is_closed() for wire in silent)
    until(lambda: receivers.http.open_connections == 0)


@pytest.mark.needs("openssl")
def test_a_half_closed_tls_connection_is_closed(open_doors: OpenDoors, certificate: TlsConfig) -> None:
    receivers = open_doors(tls=certificate)
    wire = Wire(receivers.http.port, context=ssl.create_default_context(cafile=str(certificate.cert_file)))
    wire.send(head("/v1/traces", "content-length: 1000"))
    until(lambda: receivers.receiver.requests_in_flight)
    wire.close()
    until(lambda: receivers.receiver.requests_in_flight == 0)


@pytest.mark.needs("openssl")
def test_an_unusable_certificate_is_a_configuration_error(certificate: TlsConfig, tmp_path: Path) -> None:
    for tls in (
        TlsConfig(tmp_path / "none.pem", certificate.key_file),
        TlsConfig(certificate.key_file, certificate.key_file),
    ):
        with pytest.raises(ConfigurationError, match="cannot use the certificate"):
            tls.create_context()
