"""Tests with third-party clients: the gateway forwards every span of them byte for byte."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import set_span_in_context

from capture.receivers import plain
from recipes.environments import FOLDER, is_built, python_of
from support.byte_proxies import grpc_relay, http_relay
from support.gateway_process import Gateway, eventually, free_port, serving
from support.recording_backend import BackEnd, back_end

REQUESTS = 100
"""Number of requests of a client, with three spans each."""
GOLDENS = "goldens: [{id: trip, when: {agent: travel}, tools: [search_hotels, book_hotel]}]"

Client = Callable[[str, int], "list[str]"]
"""Exports the spans of this number of requests to an address, and prints `TRACE_ID SPAN_ID` of each span."""


def python_http(address: str, requests: int) -> list[str]:
    exporter = HttpExporter(f"{address}/v1/traces", compression=Compression.Gzip)
    return _exported(BatchSpanProcessor(exporter, max_export_batch_size=64), requests)


def python_grpc(address: str, requests: int) -> list[str]:
    return _exported(BatchSpanProcessor(GrpcExporter(address, insecure=True), max_export_batch_size=64), requests)


def _exported(exporting: BatchSpanProcessor, requests: int) -> list[str]:
    provider = TracerProvider()
    provider.add_span_processor(exporting)
    tracer = provider.get_tracer("shop.agents")
    ended = []
    for _ in range(requests):
        agent = tracer.start_span(
            "invoke_agent travel",
            attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "travel"},
        )
        for tool in ("search_hotels", "book_hotel"):
            attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool, "price": 118.5}
            call = tracer.start_span(f"execute_tool {tool}", set_span_in_context(agent), attributes=attributes)
            call.end()
            ended.append(call)
        agent.end()
        ended.append(agent)
    assert exporting.force_flush()
    provider.shutdown()
    contexts = [span.get_span_context() for span in ended]
    return [f"{context.trace_id:032x} {context.span_id:016x}" for context in contexts]


def node(how: str) -> Client:
    """An exporter from npm: proto, http (JSON) or grpc."""

    def export(address: str, requests: int) -> list[str]:
        done = subprocess.run(
            ["node", Path(__file__).with_name("exporting.cjs"), how, _endpoint(address, how), str(requests)],
            env={**os.environ, "NODE_PATH": str(FOLDER / "node" / "node_modules")},
            capture_output=True,
            encoding="utf-8",
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return done.stdout.split("\n")[:-1]

    return export


def _endpoint(address: str, how: str) -> str:
    return address if how == "grpc" else f"{address}/v1/traces"


NEEDS_NODE = [
    pytest.mark.needs("node"),
    pytest.mark.skipif(not is_built("node"), reason="node needs its environment: make recipes"),
]
NEEDS_ROTEL = pytest.mark.skipif(not is_built("rotel"), reason="rotel needs its environment: make recipes")

CLIENTS = [
    pytest.param(python_http, http_relay, id="Python over HTTP"),
    pytest.param(python_grpc, grpc_relay, id="Python over gRPC"),
    pytest.param(node("proto"), http_relay, id="Node.js over HTTP", marks=NEEDS_NODE),
    pytest.param(node("http"), http_relay, id="Node.js in JSON", marks=NEEDS_NODE),
    pytest.param(node("grpc"), grpc_relay, id="Node.js over gRPC", marks=NEEDS_NODE),
]


@contextmanager
def rotel(folder: Path, endpoint: str, protocol: str, *options: str) -> Iterator[str]:
    """The address of a rotel that accepts OTLP over HTTP and forwards it to an endpoint."""
    port = free_port()
    program = next(python_of("rotel").parent.parent.glob("lib/*/site-packages/rotel/rotel-agent"))
    command = [
        *(program, "start", "--otlp-http-endpoint", f"127.0.0.1:{port}"),
        *("--otlp-grpc-endpoint", f"127.0.0.1:{free_port()}", "--exporter", "otlp"),
        *("--otlp-exporter-endpoint", endpoint, "--otlp-exporter-protocol", protocol, *options),
    ]
    with (folder / "rotel.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    gateway = Gateway(folder, (), http_port=port)
    try:
        eventually(lambda: _answers(gateway), lambda: (folder / "rotel.log").read_text())
        yield gateway.address
    finally:
        process.terminate()
        process.wait(60)


def _answers(server: Gateway) -> bool:
    try:
        return server.post(b"")[0] == 200
    except OSError:
        return False


@pytest.fixture
def goldens(tmp_path: Path) -> str:
    (tmp_path / "goldens.yaml").write_text(GOLDENS)
    return str(tmp_path / "goldens.yaml")


def options(goldens: str, *forward: str) -> tuple[str, ...]:
    """The settings of a gateway that scores soon."""
    addresses = [part for address in forward for part in ("--forward", address)]
    return ("--goldens", goldens, "--grace", "0.2", "--idle", "5", *addresses)


@pytest.mark.e2e
@pytest.mark.parametrize(("client", "relay"), CLIENTS)
def test_requests_of_a_client_are_forwarded_byte_for_byte_and_each_run_is_scored_once(
    client: Client, relay: Callable[[int], Any], goldens: str, tmp_path: Path
) -> None:
    with (
        back_end() as behind,
        serving(tmp_path, *options(goldens, behind.address), grpc=True) as gateway,
        relay(gateway.grpc_port if relay is grpc_relay else gateway.http_port) as (address, passed),
    ):
        sent = client(address, REQUESTS)
        assert sum(passed.values()) > 1
        _wait_for_spans(behind, sent, gateway)
        assert behind.spans == Counter(sent)
        assert Counter(behind.bodies["/v1/traces"]) == passed
        _wait_for_results(behind, gateway)
    _check_scores(behind, sent)


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("client", "relay"),
    [pytest.param(python_http, http_relay, id="from HTTP"), pytest.param(python_grpc, grpc_relay, id="from gRPC")],
)
def test_a_grpc_back_end_receives_the_same_bytes(
    client: Client, relay: Callable[[int], Any], goldens: str, tmp_path: Path
) -> None:
    with (
        grpc_relay(0) as (behind, arrived),
        serving(tmp_path, *options(goldens, behind.replace("http", "grpc")), grpc=True) as gateway,
        relay(gateway.grpc_port if relay is grpc_relay else gateway.http_port) as (address, passed),
    ):
        client(address, REQUESTS)
        eventually(lambda: sum(arrived.values()) >= sum(passed.values()), lambda: gateway.log)
    assert arrived == passed


@pytest.mark.e2e
@NEEDS_ROTEL
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_every_span_that_rotel_sends_to_the_gateway_is_forwarded_unchanged(
    protocol: str, goldens: str, tmp_path: Path
) -> None:
    relay = grpc_relay if protocol == "grpc" else http_relay
    with (
        back_end() as behind,
        serving(tmp_path, *options(goldens, behind.address), grpc=True) as gateway,
        relay(gateway.grpc_port if protocol == "grpc" else gateway.http_port) as (address, passed),
        rotel(tmp_path, address, protocol) as in_front,
    ):
        sent = python_http(in_front, REQUESTS)
        _wait_for_spans(behind, sent, gateway)
        assert behind.spans == Counter(sent)
        # rotel responds before it forwards, so the back end may have everything before the relay has its response
        eventually(lambda: Counter(behind.bodies["/v1/traces"]) == passed, lambda: gateway.log)
        _wait_for_results(behind, gateway)
    _check_scores(behind, sent)


@pytest.mark.e2e
@NEEDS_ROTEL
@pytest.mark.parametrize(
    "client",
    [pytest.param(python_http, id="protobuf"), pytest.param(node("http"), id="JSON", marks=NEEDS_NODE)],
)
def test_rotel_behind_the_gateway_receives_every_span_and_the_results(
    client: Client, goldens: str, tmp_path: Path
) -> None:
    with (
        back_end() as behind,
        rotel(tmp_path, behind.address, "http") as collector,
        serving(tmp_path, *options(goldens, collector)) as gateway,
    ):
        sent = client(gateway.address, REQUESTS)
        _wait_for_spans(behind, sent, gateway)
        _wait_for_results(behind, gateway)
    assert behind.spans == Counter(sent)
    _check_scores(behind, sent)


def _wait_for_spans(behind: BackEnd, sent: list[str], gateway: Gateway) -> None:
    eventually(lambda: behind.spans.keys() >= set(sent), lambda: gateway.log)


def _wait_for_results(behind: BackEnd, gateway: Gateway) -> None:
    eventually(lambda: len(_scores(behind)) >= REQUESTS, lambda: f"{len(_scores(behind))} results\n{gateway.log}")


def _scores(behind: BackEnd) -> list[tuple[str, object]]:
    """Returns the trace and the value of each received score of `tool_correctness`."""
    said = [(record.trace_id.hex(), plain(record.attributes)) for record in behind.events]
    return [
        (trace_id, attributes.get("gen_ai.evaluation.score.value"))
        for trace_id, attributes in said
        if attributes.get("gen_ai.evaluation.name") == "tool_correctness"
    ]


def _check_scores(behind: BackEnd, sent: list[str]) -> None:
    """Asserts that one correct score of each request has arrived."""
    traces = {name.split()[0] for name in sent}
    assert len(traces) == REQUESTS
    assert sorted(_scores(behind)) == sorted((trace_id, 1.0) for trace_id in traces)
