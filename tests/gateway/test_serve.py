"""Tests of `goldspan serve`: requests are scored, stored, forwarded and returned by the API."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from support.gateway_process import Gateway, eventually, serving
from support.gateway_scoring_harness import request
from support.recording_backend import back_end
from support.span_builders import agent, tool, trace_id

QUICK = ("--grace", "0.2", "--idle", "1")
GOLDENS = """
goldens:
  - {id: trip, input: Book a trip, tools: [search, book]}
"""


def trip(number: int = 0, *tools: str) -> bytes:
    """Returns the spans of an agent that books a trip."""
    root = agent("helper", asked="Book a trip", trace_id=trace_id(number))
    calls = [tool(name, parent_id=root.span_id, trace_id=root.trace_id) for name in tools]
    return request(root, *calls, service="shop")


def stored(gateway: Gateway, number: int = 1) -> list[dict[str, Any]]:
    """Returns the runs of the API when it has this number of them."""
    eventually(lambda: len(gateway.get("/api/v1/runs")["runs"]) >= number, lambda: gateway.log)
    runs: list[dict[str, Any]] = gateway.get("/api/v1/runs")["runs"]
    assert len(runs) == number
    return runs


def scraped_metrics(gateway: Gateway) -> dict[str, float]:
    """Returns the values in `/metrics`."""
    with urllib.request.urlopen(gateway.address + "/metrics") as answer:
        lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def memory(gateway: Gateway, what: str = "VmHWM") -> int:
    """Returns the memory of the gateway's process in bytes: the peak, or the current value (`VmRSS`)."""
    status = Path(f"/proc/{gateway._process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith(what))) * 1024


def test_received_runs_are_scored_and_found_by_trace_id(tmp_path: Path) -> None:
    (tmp_path / "goldens.yaml").write_text(GOLDENS)
    with serving(tmp_path, *QUICK, "--goldens", "goldens.yaml") as gateway:
        assert gateway.post(trip(0, "search", "book"))[0] == 200
        assert gateway.post(trip(1, "mail"))[0] == 200
        stored(gateway, 2)
        (good,) = gateway.get(f"/api/v1/runs?trace_id={trace_id(0)}")["runs"]
        (bad,) = gateway.get(f"/api/v1/runs?trace_id={trace_id(1).upper()}")["runs"]
        assert (good["verdict"], bad["verdict"]) == ("pass", "fail")
        assert [call["name"] for call in good["tool_calls"]] == ["search", "book"]
        assert "book" in bad["reason"]
        counted = 'goldspan_gateway_items_total{goldspan_signal="traces",worker="0"}'
        eventually(lambda: scraped_metrics(gateway).get(counted) == 5.0, lambda: gateway.log)
        for what in ("listens on", "access: this machine only, without a token", "goldens: goldens.yaml", "off: "):
            assert what in gateway.log


def test_changed_goldens_are_reloaded_and_used_for_rescoring(tmp_path: Path) -> None:
    goldens = tmp_path / "goldens.yaml"
    goldens.write_text(GOLDENS)
    with serving(tmp_path, *QUICK, "--goldens", "goldens.yaml") as gateway:
        gateway.post(trip(0, "mail"))
        (run,) = stored(gateway)
        assert run["verdict"] == "fail"
        goldens.write_text(GOLDENS.replace("[search, book]", "[mail]"))

        def rescored() -> bool:
            path = f"/api/v1/runs/{run['run_id']}/rescore"
            answered = urllib.request.urlopen(urllib.request.Request(gateway.address + path, method="POST"))
            return json.loads(answered.read())["run"]["verdict"] == "pass"

        eventually(rescored, lambda: gateway.log)
        (run,) = stored(gateway)
        assert (run["revision"], run["verdict"]) == (2, "pass")


@pytest.mark.e2e
def test_requests_are_forwarded_byte_for_byte_with_results(tmp_path: Path) -> None:
    with back_end() as there, serving(tmp_path, *QUICK, "--forward", there.address) as gateway:
        posts = [trip(number, "search") for number in range(3)]
        for body in posts:
            assert gateway.post(body)[0] == 200
        eventually(lambda: len(there.events) > 0 and len(there.bodies["/v1/traces"]) == 3, lambda: gateway.log)
        assert sorted(there.bodies["/v1/traces"]) == sorted(posts)  # several are in flight
        event = there.events[0]
        assert event.event_name == "gen_ai.evaluation.result"
        assert event.trace_id.hex() in {trace_id(number) for number in range(3)}


@pytest.mark.e2e
def test_an_unavailable_back_end_delays_nothing_and_later_receives_every_span(tmp_path: Path) -> None:
    with back_end() as there:
        there.go_down()
        with serving(tmp_path, *QUICK, "--forward", there.address) as gateway:
            for number in range(5):
                assert gateway.post(trip(number, "search"))[0] == 200
            stored(gateway, 5)
            there.come_up()
            eventually(lambda: len(there.spans) == 10, lambda: gateway.log)


def test_with_enrich_the_root_span_is_forwarded_with_results(tmp_path: Path) -> None:
    (tmp_path / "goldens.yaml").write_text(GOLDENS)
    options = ("--goldens", "goldens.yaml", "--enrich")
    with back_end() as there, serving(tmp_path, *QUICK, *options, "--forward", there.address) as gateway:
        gateway.post(trip(0, "search", "book"))
        eventually(lambda: len(there.spans) == 3, lambda: gateway.log)
        (body,) = there.bodies["/v1/traces"]
        (resource,) = TracesData.FromString(body).resource_spans
        (scope,) = resource.scope_spans
        told = {span.name: {pair.key: pair.value for pair in span.attributes} for span in scope.spans}
        assert told["invoke_agent helper"]["goldspan.passed"].bool_value is True
        assert told["invoke_agent helper"]["goldspan.golden.id"].string_value == "trip"
        assert resource.resource.attributes[0].value.string_value == "shop"


@pytest.mark.e2e
def test_results_that_return_to_the_gateway_are_not_forwarded(tmp_path: Path) -> None:
    options = ("--results", "events", "--results", "spans", "--results", "metrics")
    with back_end() as there:
        with serving(tmp_path, *QUICK, *options, "--forward", there.address) as gateway:
            gateway.post(trip(0, "search"))
            stored(gateway)
        came = {path: list(bodies) for path, bodies in there.bodies.items()}
        assert [len(bodies) for bodies in came.values()] == [2, 1, 1]
        with serving(tmp_path, *QUICK, *options, "--forward", there.address) as gateway:
            for path, bodies in came.items():
                assert gateway.post(bodies[-1], path)[0] == 200
            gateway.post(trip(1, "search"))
            stored(gateway, 2)
        assert [len(bodies) for bodies in there.bodies.values()] == [4, 2, 2]


@pytest.mark.e2e
@pytest.mark.parametrize("back_end", ["http://127.0.0.1:4318", "http://localhost:4318/x", "grpc://[::1]:4317"])
def test_a_gateway_that_would_forward_to_itself_is_refused(tmp_path: Path, back_end: str) -> None:
    command = [sys.executable, "-m", "goldspan", "serve", "--forward", back_end]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "is this gateway itself" in " ".join(ended.stderr.split())


@pytest.mark.e2e
def test_pending_traces_are_scored_and_forwarded_before_shutdown(tmp_path: Path) -> None:
    with back_end() as there:
        with serving(tmp_path, "--grace", "60", "--forward", there.address) as gateway:
            for number in range(20):
                gateway.post(trip(number, "search"))
        assert len(there.spans) == 40
        with serving(tmp_path, *QUICK) as gateway:
            assert len(gateway.get("/api/v1/runs?limit=100")["runs"]) == 20


@pytest.mark.e2e
@pytest.mark.parametrize("grace", ["60", "0.3"], ids=["while it waits for more", "while it scores"])
def test_traces_not_scored_within_drain_seconds_are_scored_once_after_a_restart(tmp_path: Path, grace: str) -> None:
    (tmp_path / "goldens.yaml").write_text(GOLDENS)
    options = ("--goldens", "goldens.yaml", "--grace")
    no_time = {"GOLDSPAN_DRAIN_SECONDS": "0.01"}
    posts = [b"".join(trip(number, "search", "book") for number in range(at, at + 150)) for at in (0, 150, 300)]
    with serving(tmp_path, *options, grace, environment=no_time) as gateway:  # which lets it shut down in order
        for body in posts:
            assert gateway.post(body)[0] == 200
        if grace != "60":
            eventually(lambda: bool(gateway.get("/api/v1/runs")["runs"]), lambda: gateway.log)
    assert " error " not in gateway.log
    if grace == "60":  # otherwise it may have finished
        assert "the traces that are not scored yet are scored at the next start" in gateway.log
    with serving(tmp_path, *options, "0.2") as gateway:
        eventually(lambda: len(gateway.get("/api/v1/runs?limit=1000")["runs"]) == 450, lambda: gateway.log)
        runs = gateway.get("/api/v1/runs?limit=1000")["runs"]
        assert {(run["evaluation_count"], run["verdict"]) for run in runs} == {(1, "pass")}


@pytest.mark.e2e
@pytest.mark.parametrize("workers", [1, 2])
def test_a_locked_store_does_not_delay_shutdown_and_runs_are_scored_after_a_restart(
    tmp_path: Path, workers: int
) -> None:
    """Otherwise it waits for the store for 30 seconds."""
    options = (*QUICK, "--workers", str(workers))
    gateway = Gateway(tmp_path, options, {"GOLDSPAN_DRAIN_SECONDS": "0.5"})
    try:
        gateway.start()
        names = [f'goldspan_gateway_journal_size_bytes{{worker="{worker}"}}' for worker in range(workers)]
        eventually(lambda: {*names} <= {*scraped_metrics(gateway)}, lambda: gateway.log)
        with closing(sqlite3.connect(gateway.data / "goldspan.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            for number in range(6):
                assert gateway.post(trip(number, "search"))[0] == 200
            os.kill(gateway.process, signal.SIGTERM)
            assert gateway._process.wait(20) == 0, gateway.log
        assert gateway.log.count("the traces that are not scored yet are scored at the next start") == workers
        assert " error " not in gateway.log
        gateway.start()
        assert {run["evaluation_count"] for run in stored(gateway, 6)} == {1}
        assert gateway.stop() == 0, gateway.log
    finally:
        gateway.kill()


@pytest.mark.e2e
def test_changing_the_number_of_workers_loses_no_run(tmp_path: Path) -> None:
    with back_end() as there:
        numbers = iter(range(1000))
        for workers in (2, 3, 1):
            options = ("--grace", "5", "--workers", str(workers), "--forward", there.address)
            with serving(tmp_path, *options) as gateway:
                for _ in range(12):
                    number = next(numbers)
                    whole = TracesData.FromString(trip(number, "search", "book"))
                    for span in whole.resource_spans[0].scope_spans[0].spans:
                        alone = TracesData()
                        alone.resource_spans.add().scope_spans.add(spans=[span])
                        assert gateway.post(alone.SerializeToString())[0] == 200
        with serving(tmp_path, *QUICK, "--forward", there.address) as gateway:
            eventually(lambda: len(gateway.get("/api/v1/runs?limit=100")["runs"]) == 36, lambda: gateway.log)
            runs = gateway.get("/api/v1/runs?limit=100")["runs"]
            assert all(run["tools_used"] == ["search", "book"] for run in runs)
            assert all(run["evaluation_count"] == 1 for run in runs)
            eventually(lambda: len(there.spans) == 36 * 3, lambda: gateway.log)


def test_tokens_authorize_ingest_and_read(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("# agents\nsend-1\nsend-2\n")
    os.chmod(tmp_path / "tokens", 0o600)
    environment = {"GOLDSPAN_READ_TOKEN": "read-1"}
    with serving(tmp_path, *QUICK, "--token-file", "tokens", environment=environment) as gateway:
        body = trip(0, "search")
        assert gateway.post(body)[0] == 401
        assert gateway.post(body, authorization="Bearer read-1")[0] == 403
        assert gateway.post(body, authorization="Bearer send-2")[0] == 200

        def read(token: str) -> tuple[int, str | None]:
            asked = urllib.request.Request(gateway.address + "/api/v1/runs", headers={"Authorization": token})
            try:
                return urllib.request.urlopen(asked).status, None
            except urllib.error.HTTPError as error:
                return error.code, json.loads(error.read())["error"]["code"]

        assert read("Bearer send-1") == (403, "forbidden")
        assert read("") == (401, "unauthenticated")
        assert read("Bearer read-1") == (200, None)
        assert not {"send-1", "send-2", "read-1"} & set(gateway.log.split())


@pytest.mark.e2e
def test_a_gzip_bomb_takes_little_memory(tmp_path: Path) -> None:
    """A gzip bomb of 1 GiB."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1) as bomb:
        for _ in range(1024):
            bomb.write(bytes(2**20))
    with serving(tmp_path, *QUICK) as gateway:
        gateway.post(trip(0, "search"))
        stored(gateway)
        before = memory(gateway, "VmRSS")
        for _ in range(3):
            status, _answer = gateway.post(packed.getvalue(), content_encoding="gzip")
            assert status == 413
        assert memory(gateway) - before < 64 * 2**20


@pytest.mark.e2e
def test_an_occupied_port_is_reported_in_one_line(tmp_path: Path) -> None:
    with serving(tmp_path, *QUICK) as gateway:
        command = [sys.executable, "-m", "goldspan", "serve", "--data", "other", "--grpc-port", "0"]
        port = ["--http-port", str(gateway.http_port)]
        ended = subprocess.run([*command, *port], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 2
        assert ended.stderr.strip().splitlines()[-1].endswith("in use")
        assert "Traceback" not in ended.stderr


@pytest.mark.e2e
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_shuts_the_gateway_down_with_exit_status_0(tmp_path: Path, number: signal.Signals) -> None:
    gateway = Gateway(tmp_path, QUICK)
    gateway.start()
    os.kill(gateway._process.pid, number)
    assert gateway._process.wait(60) == 0
    assert "Traceback" not in gateway.log


@pytest.mark.e2e
def test_processed_entries_are_pruned_from_the_journal(tmp_path: Path) -> None:
    with serving(tmp_path, *QUICK, "--late", "0.2") as gateway:
        for number in range(50):
            gateway.post(trip(number, "search"))
        name = 'goldspan_gateway_journal_size_bytes{worker="0"}'
        eventually(lambda: scraped_metrics(gateway)[name] == 0.0, lambda: gateway.log)
