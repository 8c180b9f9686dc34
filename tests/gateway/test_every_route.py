"""Tests of the authorization of every route and method: only the probes respond without a token."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from goldspan import Golden, Goldens, evaluate
from goldspan.gateway import api_routes as api
from goldspan.gateway.internal_telemetry import MAX_CONCURRENT_SCRAPES, InternalTelemetry
from goldspan.gateway.receivers import grpc as rpc
from goldspan.gateway.receivers.authorization import PUBLIC_PATHS, Authorizer, is_login_path
from goldspan.gateway.resource_limits import ResourceLimits
from goldspan.gateway.settings.gateway_settings import GatewaySettings
from goldspan.store import open_store
from goldspan.web import http_routes as page
from goldspan.web.pages import Pages
from support.gateway_receivers import OpenDoors, RunningReceivers, Wire, export_request, head, until

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")
NOWHERE = ("/", "/nowhere", "/v1", "/v1/", "/v1/traces/", "/v1/nowhere", "/api", "//v1/traces", "/healthz/", "/HEALTHZ")
UNKNOWN_CALLS = ("/opentelemetry.proto.collector.trace.v1.TraceService/Import", "/grpc.health.v1.Health/Check", "/a/b")
GUARDED = Authorizer(ingest_tokens=("in",), read_tokens=("out",))
LOGIN_STATUSES = (200, 303, 401, 404, 405)
"""The statuses of the login paths and static files, which contain no data of runs."""


async def figures(request: Request) -> Response:
    return PlainTextResponse("figures")


@pytest.fixture
def guarded(open_doors: OpenDoors, tmp_path: Path) -> Iterator[RunningReceivers]:
    """Returns the complete application of a worker, with a token for each permission."""
    goldens = Goldens([Golden("g", "What?")])
    with open_store(tmp_path / "goldspan.db") as store:
        routes = [
            *api.api_routes(
                store, evaluate=lambda run: evaluate(run, goldens), drop_pending_trace=lambda trace_id: None
            ),
            *page.page_routes(Pages(store, goldens=lambda: goldens, is_live=True), is_ending=lambda: True),
            Route("/metrics", figures),
        ]
        yield open_doors(authority=GUARDED, routes=routes)


def paths(receivers: RunningReceivers) -> list[str]:
    """Returns every path, with values for its parameters, and some unknown paths."""
    made = [
        "/".join("1" if part.startswith("{") else part for part in route.path.split("/"))
        for route in receivers.app.routes
    ]
    return [*dict.fromkeys(made), *NOWHERE]


def test_the_tested_paths_include_every_route(guarded: RunningReceivers) -> None:
    listed = paths(guarded)
    assert {"/v1/traces", "/v1/logs", "/v1/metrics", "/healthz", "/readyz", "/metrics"} < set(listed)
    assert {"/api/v1/runs", "/runs/1", "/goldens/1", "/uncovered", "/news", "/trend", "/enter"} < set(listed)
    assert len(guarded.app.routes) == len(guarded.app._starlette.routes)


@pytest.mark.parametrize("method", METHODS)
def test_every_path_needs_a_token(guarded: RunningReceivers, method: str) -> None:
    for path in paths(guarded):
        reply = guarded.ask(method, path)
        if path in PUBLIC_PATHS:
            assert reply.status in (200, 405)
        elif is_login_path(path):
            assert reply.status in LOGIN_STATUSES
        else:
            assert (path, reply.status, reply.headers.get("www-authenticate")) == (path, 401, "Bearer")
            assert guarded.ask(method, path, authorization="Bearer nonsense").status == 401


@pytest.mark.parametrize("method", METHODS)
def test_every_path_needs_a_token_with_its_permission(guarded: RunningReceivers, method: str) -> None:
    for path in paths(guarded):
        if path in PUBLIC_PATHS or is_login_path(path):
            continue
        wrong, right = ("out", "in") if path.startswith("/v1/") else ("in", "out")
        assert (path, guarded.ask(method, path, authorization=f"Bearer {wrong}").status) == (path, 403)
        assert guarded.ask(method, path, authorization=f"Bearer {right}").status not in (401, 403)


def call(receivers: RunningReceivers, method: str, *metadata: tuple[str, str]) -> grpc.StatusCode:
    with grpc.insecure_channel(f"localhost:{receivers.grpc_port}") as channel:
        try:
            channel.unary_unary(method)(b"", metadata=metadata, timeout=30)
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def test_every_grpc_call_needs_a_token(guarded: RunningReceivers) -> None:
    for method in (*rpc.EXPORT_METHODS, *UNKNOWN_CALLS):
        assert call(guarded, method) is grpc.StatusCode.UNAUTHENTICATED
        assert call(guarded, method, ("authorization", "Bearer nonsense")) is grpc.StatusCode.UNAUTHENTICATED


def test_every_grpc_call_needs_a_token_with_its_permission(guarded: RunningReceivers) -> None:
    for method in rpc.EXPORT_METHODS:
        assert call(guarded, method, ("authorization", "Bearer out")) is grpc.StatusCode.PERMISSION_DENIED
        assert call(guarded, method, ("authorization", "bearer in")) is grpc.StatusCode.OK
    for method in UNKNOWN_CALLS:
        right = "in" if method.startswith("/opentelemetry.proto.collector.") else "out"
        assert call(guarded, method, ("authorization", f"Bearer {right}")) is grpc.StatusCode.UNIMPLEMENTED


def test_a_request_without_a_token_is_not_written_to_the_journal(guarded: RunningReceivers) -> None:
    assert guarded.post(export_request()).status == 401
    assert guarded.entries() == []
    assert guarded.post(export_request(), authorization="Bearer in").status == 200
    assert len(guarded.entries()) == 1


@pytest.mark.e2e
@pytest.mark.parametrize("path", ["/api/v1/openapi.json", "/metrics"])
def test_a_response_occupies_its_slot_until_it_is_sent(
    open_doors: OpenDoors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """A client that requests much and reads nothing has at most one response in memory per slot."""
    long = "x" * 20_000_000
    monkeypatch.setattr(api._Api, "respond", lambda *_: api.ApiResponse(200, long))
    monkeypatch.setattr(InternalTelemetry, "render", lambda *_: (long.encode(), "text/plain"))
    telemetry = InternalTelemetry(GatewaySettings(data=tmp_path))
    with open_store(tmp_path / "goldspan.db") as store:
        routes = api.api_routes(
            store, evaluate=lambda run: evaluate(run, Goldens([])), drop_pending_trace=lambda trace_id: None
        )
        receivers = open_doors(routes=[*routes, *telemetry.routes], limits=ResourceLimits(keep_alive_seconds=300))
        wires = [receivers.wire() for _ in range(8)]
        for wire in wires:
            wire.send(head(path, method="GET", media=""))

        def sending() -> int:
            return sum(each.flow.write_paused for each in list(receivers.http.state.connections))

        turns = api.MAX_CONCURRENT_API_REQUESTS if path.startswith("/api/") else MAX_CONCURRENT_SCRAPES
        until(lambda: sending() == turns)
        assert receivers.post(export_request()).status == 200
        assert sending() == turns
        with ThreadPoolExecutor(len(wires)) as pool:  # the clients that hold the slots
            answers = list(pool.map(Wire.reply, wires))
        assert [(reply.status, len(reply.body)) for reply in answers] == [(200, len(long))] * 8
        until(lambda: not receivers.http.state.tasks)
    telemetry.stop()
