"""Tests of OTLP over HTTP: responses to valid and invalid requests."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import pytest
import zstandard
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from goldspan import _guard, semconv
from goldspan.gateway.receivers.authorization import LOOPBACK_HOSTS, Authorizer
from goldspan.gateway.resource_limits import ResourceLimits
from support.gateway_receivers import OpenDoors, RunningReceivers, export_request, head, until, whole

SPANS = export_request(3)
DOCUMENT = json.dumps(
    {
        "resourceSpans": [
            {"scopeSpans": [{"spans": [{"traceId": "1" * 32, "spanId": "2" * 16, "name": "a span"}]}]},
        ]
    }
).encode()


def test_an_acknowledged_request_is_in_the_journal_unchanged(receivers: RunningReceivers) -> None:
    reply = receivers.post(SPANS)
    assert (reply.status, reply.body) == (200, b"")
    assert reply.headers["content-type"] == "application/x-protobuf"
    [entry] = receivers.entries()
    assert (entry.signal, entry.media, entry.origin, entry.body) == ("traces", "protobuf", "received", SPANS)


def test_json_is_answered_in_json_and_stored_unchanged(receivers: RunningReceivers) -> None:
    reply = receivers.post(DOCUMENT, media="application/json")
    assert (reply.status, reply.headers["content-type"], reply.body) == (200, "application/json", b"{}")
    [entry] = receivers.entries()
    assert (entry.media, entry.body) == ("json", DOCUMENT)


@pytest.mark.parametrize(
    ("media", "body"),
    [
        ("application/x-protobuf; charset=binary", SPANS),
        ("Application/X-Protobuf", SPANS),
        ("application/protobuf", SPANS),
        ("application/json;charset=utf-8", DOCUMENT),
        ("APPLICATION/JSON ; q=1", DOCUMENT),
    ],
)
def test_a_media_type_is_case_insensitive_and_may_have_parameters(
    receivers: RunningReceivers, media: str, body: bytes
) -> None:
    assert receivers.post(body, media=media).status == 200
    assert len(receivers.entries()) == 1


@pytest.mark.parametrize("media", ["text/plain", "application/octet-stream", "application/jsonx", "", "*/*"])
def test_other_media_types_are_answered_415_with_a_status_in_json(receivers: RunningReceivers, media: str) -> None:
    reply = receivers.post(SPANS, media=media)
    assert (reply.status, reply.headers["content-type"]) == (415, "application/json")
    assert "application/x-protobuf" in json.loads(reply.body)["message"]
    assert receivers.entries() == []


def test_a_request_without_a_media_type_is_answered_415(receivers: RunningReceivers) -> None:
    wire = receivers.wire()
    wire.send(whole(SPANS, media=""))
    assert wire.reply().status == 415


@pytest.mark.parametrize(
    ("encoding", "encoded"),
    [
        ("gzip", gzip.compress(SPANS, mtime=0)),
        ("GZip", gzip.compress(SPANS, mtime=0)),
        ("deflate", zlib.compress(SPANS)),
        ("zstd", zstandard.compress(SPANS)),
        ("identity", SPANS),
    ],
)
def test_compressed_bodies_are_accepted(receivers: RunningReceivers, encoding: str, encoded: bytes) -> None:
    assert receivers.post(encoded, content_encoding=encoding).status == 200
    assert [entry.body for entry in receivers.entries()] == [SPANS]


def test_two_layers_of_compression_are_answered_415(receivers: RunningReceivers) -> None:
    twice = gzip.compress(gzip.compress(SPANS))
    assert receivers.post(twice, content_encoding="gzip, gzip").status == 415
    wire = receivers.wire()
    wire.send(whole(twice, "/v1/traces", "content-encoding: gzip", "content-encoding: gzip"))
    assert wire.reply().status == 415


def test_an_unreadable_body_is_answered_400_in_the_media_type_of_the_request(receivers: RunningReceivers) -> None:
    reply = receivers.post(b"\xff\xff\xff")
    assert (reply.status, reply.headers["content-type"]) == (400, "application/x-protobuf")
    assert Status.FromString(reply.body).code == 3
    reply = receivers.post(b"{", media="application/json")
    assert (reply.status, reply.headers["content-type"], json.loads(reply.body)["code"]) == (400, "application/json", 3)


def test_invalid_spans_are_reported_and_the_others_kept(receivers: RunningReceivers) -> None:
    reply = receivers.post(export_request(1, trace=0) + SPANS)
    assert reply.status == 200
    partial = ExportTraceServiceResponse.FromString(reply.body).partial_success
    assert partial.rejected_spans == 1
    assert partial.error_message
    receivers.stop()
    assert receivers.count(semconv.GATEWAY_ITEMS, "signal") == {("traces",): 3}
    assert receivers.count(semconv.GATEWAY_REJECTED, "signal") == {("traces",): 1}


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/logs", "/v1/metrics"])
def test_a_request_without_items_is_accepted_and_not_written(receivers: RunningReceivers, path: str) -> None:
    assert receivers.post(b"", path).status == 200
    assert receivers.post(b"{}", path, "application/json").status == 200
    assert receivers.entries() == []


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_are_answered_405_with_the_allowed_method(receivers: RunningReceivers, method: str) -> None:
    for path, allowed in (("/v1/traces", "POST"), ("/v1/logs", "POST")):
        reply = receivers.ask(method, path)
        assert (reply.status, reply.headers["allow"]) == (405, allowed)
        assert reply.body == b"" if method == "HEAD" else json.loads(reply.body)["code"] == 12


def test_other_paths_are_answered_404_with_a_hint(receivers: RunningReceivers) -> None:
    for path in ("/", "/v1/traces/", "/v1", "//v1/traces", "/V1/traces", "/opentelemetry.proto.collector.x/Export"):
        reply = receivers.post(SPANS, path)
        assert (reply.status, reply.headers["content-type"]) == (404, "application/json")
        assert "/v1/traces" in json.loads(reply.body)["message"]


def test_no_response_allows_cross_origin_requests(receivers: RunningReceivers) -> None:
    """A browser sends a preflight request; no response permits the request."""
    asked = {"origin": "http://localhost:" + str(receivers.http.port), "access_control_request_method": "POST"}
    for reply in (
        receivers.ask("OPTIONS", "/v1/traces", **asked),
        receivers.post(SPANS, **asked),
        receivers.ask("GET", "/healthz", **asked),
    ):
        assert not [name for name in reply.headers if name.startswith("access-control")]
    assert receivers.post(SPANS, origin="https://evil.example").status == 403


def test_every_response_has_the_security_headers(receivers: RunningReceivers) -> None:
    for reply in (
        receivers.post(SPANS),
        receivers.post(b"\xff"),
        receivers.ask("GET", "/nowhere"),
        receivers.ask("GET", "/healthz"),
    ):
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cache-control"] == "no-store"
        assert "date" in reply.headers
        assert "server" not in reply.headers
    assert "frame-ancestors 'none'" in receivers.ask("GET", "/healthz").headers["content-security-policy"]


def test_added_routes_keep_their_headers_and_their_errors_are_not_disclosed(
    open_doors: OpenDoors, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def page(request: Request) -> Response:
        return PlainTextResponse("page", headers={"cache-control": "max-age=60"})

    async def broken(request: Request) -> Response:
        raise ValueError("a secret")

    monkeypatch.delenv("GOLDSPAN_STRICT")
    receivers = open_doors(routes=[Route("/page", page), Route("/broken", broken)])
    assert receivers.ask("GET", "/page").headers["cache-control"] == "max-age=60"
    reply = receivers.ask("GET", "/broken")
    assert (reply.status, reply.headers["retry-after"]) == (503, "5")
    assert b"secret" not in reply.body
    assert _guard.failure_counts["answer a request"] == 1


def test_a_started_response_is_aborted_if_its_route_fails(
    open_doors: OpenDoors, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
            raise ValueError("a secret")

    monkeypatch.delenv("GOLDSPAN_STRICT")
    receivers = open_doors(routes=[Route("/broken", Broken())])
    wire = receivers.wire()
    wire.send(head("/broken", method="GET"))
    until(lambda: _guard.failure_counts["answer a request"])
    while wire.socket.recv(100):
        pass


def test_probes_report_liveness_and_readiness(receivers: RunningReceivers) -> None:
    assert (receivers.ask("GET", "/healthz").status, receivers.ask("HEAD", "/readyz").status) == (200, 200)
    receivers.why_not_ready = "the store is locked"
    reply = receivers.ask("GET", "/readyz")
    assert (reply.status, reply.body, reply.headers["retry-after"]) == (503, b"the store is locked", "5")
    assert receivers.ask("GET", "/healthz").status == 200


def test_a_request_with_an_unknown_host_is_refused(receivers: RunningReceivers) -> None:
    assert receivers.post(SPANS, host="evil.example").status == 403
    assert receivers.post(SPANS, host="127.0.0.1:99999").status == 200
    assert receivers.ask("GET", "/healthz", host="10.0.0.1").status == 200


def test_a_missing_token_is_answered_401_in_the_media_type_of_the_request(open_doors: OpenDoors) -> None:
    receivers = open_doors(authority=Authorizer(ingest_tokens=("t",), allowed_hosts=LOOPBACK_HOSTS))
    reply = receivers.post(SPANS)
    assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
    assert Status.FromString(reply.body).code == 16
    assert receivers.post(SPANS, authorization="bearer t").status == 200
    receivers.stop()
    counted = receivers.count(semconv.GATEWAY_REQUESTS, "signal", "transport", "status")
    assert counted == {("traces", "http", 401): 1, ("traces", "http", 200): 1}


# Requests in chunks


def test_a_chunked_body_is_read_completely(receivers: RunningReceivers) -> None:
    wire = receivers.wire()
    wire.send(head("/v1/traces", "transfer-encoding: chunked"))
    for at in range(0, len(SPANS), 50):
        piece = SPANS[at : at + 50]
        wire.send(b"%x\r\n%s\r\n" % (len(piece), piece))
    wire.send(b"0\r\n\r\n")
    assert wire.reply().status == 200
    assert [entry.body for entry in receivers.entries()] == [SPANS]


def test_a_compressed_body_is_decompressed_from_single_bytes(receivers: RunningReceivers) -> None:
    encoded = gzip.compress(SPANS)
    wire = receivers.wire()
    wire.send(head("/v1/traces", f"content-length: {len(encoded)}", "content-encoding: gzip"))
    wire.send(*(encoded[at : at + 1] for at in range(len(encoded))))
    assert wire.reply().status == 200
    assert [entry.body for entry in receivers.entries()] == [SPANS]


def test_pipelined_requests_are_answered_in_order(receivers: RunningReceivers) -> None:
    wire = receivers.wire()
    bodies = [export_request(1, f"span {number}") for number in range(20)]
    wire.send(b"".join([*(whole(body) for body in bodies), whole(b"\xff"), head("/healthz", method="GET", media="")]))
    assert [wire.reply().status for _ in range(22)] == [200] * 20 + [400, 200]
    assert [entry.body for entry in receivers.entries()] == bodies


def test_expect_100_continue_is_answered_100_or_413(open_doors: OpenDoors) -> None:
    receivers = open_doors(limits=ResourceLimits(max_body_bytes=1_000))
    wire = receivers.wire()
    wire.send(head("/v1/traces", f"content-length: {len(SPANS)}", "expect: 100-continue"))
    assert wire.reply().status == 100
    wire.send(SPANS)
    assert wire.reply().status == 200
    wire.send(head("/v1/traces", "content-length: 1001", "expect: 100-continue"))
    reply = wire.reply()
    assert (reply.status, reply.headers["connection"]) == (413, "close")
    assert wire.is_closed()


def test_a_body_whose_content_length_is_too_long_is_refused_before_it_arrives(open_doors: OpenDoors) -> None:
    receivers = open_doors(limits=ResourceLimits(max_body_bytes=1_000))
    wire = receivers.wire()
    wire.send(head("/v1/traces", "content-length: 1001"))
    assert wire.reply().status == 413
    wire.send(b"x" * 1_001, whole(SPANS))
    assert wire.reply().status == 200
    receivers.stop()
    assert receivers.count(semconv.GATEWAY_REFUSED, "limit") == {("max_body_bytes",): 1}


def test_a_chunked_body_is_refused_once_it_is_too_long(open_doors: OpenDoors) -> None:
    receivers = open_doors(limits=ResourceLimits(max_body_bytes=1_000))
    wire = receivers.wire()
    wire.send(head("/v1/traces", "transfer-encoding: chunked"))
    wire.send(b"259\r\n" + b"x" * 601 + b"\r\n", b"259\r\n" + b"x" * 601 + b"\r\n")
    assert wire.reply().status == 413


def test_an_incomplete_body_is_answered_408_and_its_connection_closed(open_doors: OpenDoors) -> None:
    receivers = open_doors(limits=ResourceLimits(body_seconds=0.2))
    wire = receivers.wire()
    wire.send(head("/v1/traces", "content-length: 100"), b"x")
    reply = wire.reply()
    assert (reply.status, reply.headers["connection"]) == (408, "close")
    assert wire.is_closed()
    assert receivers.receiver.requests_in_flight == receivers.receiver.bytes_in_flight == 0
    receivers.stop()
    assert receivers.count(semconv.GATEWAY_REFUSED, "limit") == {("body_seconds",): 1}


def test_an_aborted_request_is_not_written_and_releases_its_bytes(receivers: RunningReceivers) -> None:
    wire = receivers.wire()
    wire.send(head("/v1/traces", "content-length: 1000"), SPANS)
    until(lambda: receivers.receiver.requests_in_flight == 1)
    wire.close()
    until(lambda: receivers.receiver.requests_in_flight == 0)
    assert receivers.receiver.bytes_in_flight == 0
    assert receivers.entries() == []
    assert receivers.post(SPANS).status == 200


def test_a_large_compressed_body_is_accepted(receivers: RunningReceivers) -> None:
    body = export_request(1, "x" * 2_000_000)
    assert (
        receivers.post(gzip.compress(body + export_request(5_000, "a longer name")), content_encoding="gzip").status
        == 200
    )
    [entry] = receivers.entries()
    assert entry.body.startswith(body)


def test_a_decompression_bomb_is_refused_and_the_next_request_accepted(receivers: RunningReceivers) -> None:
    bomb = gzip.compress(b"\0" * 80_000_000)
    assert receivers.post(bomb, content_encoding="gzip").status == 413
    assert receivers.post(SPANS).status == 200
