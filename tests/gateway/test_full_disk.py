"""Tests of a full disk or journal: clients are asked to retry, and no acknowledged request is lost."""

from __future__ import annotations

import http.client
import random
import sys
import time
from collections.abc import Iterator
from email.message import Message
from pathlib import Path

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from goldspan.gateway.journal.journal import Journal
from support.gateway_agent_runs import GOLDENS, request
from support.gateway_process import Gateway, eventually, serving
from support.recording_backend import back_end

MAX_POSTS = 400
"""Number of requests of about 100 kB after which a full disk must be detected."""
JOURNAL_BYTES = 2_000_000
SMALL = {
    "GOLDSPAN_LIMITS__MAX_JOURNAL_BYTES": str(JOURNAL_BYTES),
    "GOLDSPAN_LIMITS__MAX_BACKLOG_BYTES": str(JOURNAL_BYTES),
}
"""The size of a journal that a few requests fill."""


@pytest.mark.e2e
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds the files of another process")
def test_a_full_disk_is_answered_503_and_the_gateway_resumes_when_there_is_space(tmp_path: Path) -> None:
    (tmp_path / "goldens.yaml").write_text(GOLDENS)
    draw = random.Random(1)
    runs = []
    bodies = []
    with (
        back_end() as behind,
        serving(tmp_path, "--goldens", "goldens.yaml", "--grace", "0.2", "--forward", behind.address) as gateway,
    ):

        def post() -> int:
            made = request(len(runs), draw, filler=30_000)
            status, _ = gateway.post(made.bodies[0])
            if status == 200:
                runs.append(made.run_id)
                bodies.append(made.bodies[0])
            return status

        assert post() == 200
        _bound_files(gateway, 4096)
        assert next(status for _ in range(MAX_POSTS) if (status := post()) != 200) == 503
        assert gateway.post(request(0, draw).bodies[0])[0] == 503
        _bound_files(gateway, None)
        eventually(lambda: post() == 200, lambda: gateway.log)
        eventually(lambda: {*bodies} <= {*behind.bodies["/v1/traces"]}, lambda: gateway.log)
        eventually(lambda: {*runs} <= _passed(gateway), lambda: gateway.log)


def test_a_full_journal_is_answered_503_and_accepted_requests_are_scored_and_forwarded(tmp_path: Path) -> None:
    (tmp_path / "goldens.yaml").write_text(GOLDENS)
    draw = random.Random(2)
    with back_end() as behind:
        behind.behave("hangs")  # so the journal prunes nothing
        options = ("--goldens", "goldens.yaml", "--grace", "1", "--forward", behind.address)
        with serving(tmp_path, *options, environment=SMALL) as gateway:
            began = time.monotonic()
            bodies = _fill_journal(gateway, draw)
            for _ in range(20):
                status, headers, _ = _ask(gateway, "POST", "/v1/traces", request(0, draw).bodies[0])
                assert (status, headers["Retry-After"]) == (503, "5")
            eventually(lambda: bodies.keys() <= _passed(gateway), lambda: gateway.log)
            eventually(lambda: bodies.keys() <= {*_runs_with_results(gateway)}, lambda: gateway.log)
            eventually(lambda: _ask(gateway, "GET", "/readyz")[0] == 503, lambda: gateway.log)
            _, headers, why = _ask(gateway, "GET", "/readyz")
            assert headers["Retry-After"] == "5"
            assert b"the journal is full (max_journal_bytes)" in why
            told = gateway.log.count("requests are refused: ")
            assert 1 <= told <= 1 + (time.monotonic() - began) / 60
            assert behind.bodies["/v1/traces"] == behind.events == []
            behind.behave("takes")
            eventually(lambda: _passed(gateway) <= {_run_of(event) for event in behind.events}, lambda: gateway.log)
            eventually(lambda: {*bodies.values()} <= {*behind.bodies["/v1/traces"]}, lambda: gateway.log)
            eventually(lambda: gateway.post(request(0, draw).bodies[0])[0] == 200, lambda: gateway.log)
            eventually(lambda: _ask(gateway, "GET", "/readyz")[0] == 200, lambda: gateway.log)
            for run in gateway.get("/api/v1/runs?limit=1000")["runs"]:
                assert (run["evaluation_count"], run["verdict"]) == (1, "pass")


def _fill_journal(gateway: Gateway, draw: random.Random) -> dict[str, bytes]:
    """Posts until even the smallest request is refused. Returns the accepted bodies by run."""
    taken: dict[str, bytes] = {}
    for filler in (30_000, 10_000, 1_000, 0):
        while True:
            made = request(len(taken), draw, filler=filler)
            (body,) = made.bodies
            status, _ = gateway.post(body)
            if status != 200:
                assert status == 503
                break
            taken[made.run_id] = body
    return taken


def _runs_with_results(gateway: Gateway) -> Iterator[str]:
    """Returns the runs with results in the journal."""
    journal = Journal(gateway.data / "journal" / "0.db", max_bytes=JOURNAL_BYTES, attach=True)
    try:
        for entry in journal.read(0, origins=frozenset({"result"})):
            if entry.signal == "logs":
                for resource in ExportLogsServiceRequest.FromString(entry.body).resource_logs:
                    yield from (_run_of(event) for scope in resource.scope_logs for event in scope.log_records)
    finally:
        journal.close()


def _run_of(event: LogRecord) -> str:
    return f"{event.trace_id.hex()}:{event.span_id.hex()}"


def _ask(gateway: Gateway, method: str, path: str, body: bytes | None = None) -> tuple[int, Message, bytes]:
    """Status, headers and body of a response."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.http_port, timeout=60)
    try:
        connection.request(method, path, body, {"Content-Type": "application/x-protobuf"})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def _bound_files(gateway: Gateway, size: int | None) -> None:
    """Limits the size of the files of the gateway: writes beyond it fail, as on a full disk."""
    import resource  # not available on Windows

    bound = resource.RLIM_INFINITY if size is None else size
    resource.prlimit(gateway.process, resource.RLIMIT_FSIZE, (bound, resource.RLIM_INFINITY))


def _passed(gateway: Gateway) -> set[str]:
    return {run["run_id"] for run in gateway.get("/api/v1/runs?verdict=pass&limit=1000")["runs"]}
