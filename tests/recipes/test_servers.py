"""Tests of servers that fork or restart workers of an application that calls `instrument()` once."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from capture.receivers import Received, http_receiver, plain
from recipes.environments import is_built, python_of

pytestmark = [
    pytest.mark.skipif(not is_built("servers"), reason="the environment of servers is missing: make recipes"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
]

AGENT = """
import os
import goldspan

VERSION = 1
running = goldspan.instrument("goldens.yaml")

@goldspan.trace
def search(query):
    return query

@goldspan.trace(kind="agent", golden="g")
def agent(question):
    return search(question)

def answer():
    agent("hi")
    return f"{VERSION} {os.getpid()}".encode()
"""
WSGI = """
def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [answer()]
"""
ASGI = """
async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": answer()})
    elif scope["type"] == "lifespan":
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        running.shutdown()
        await send({"type": "lifespan.shutdown.complete"})
"""
PATIENCE_S = 90


@pytest.fixture
def received() -> Iterator[tuple[str, Received]]:
    with http_receiver() as receiver:
        yield receiver


@contextmanager
def serving(folder: Path, endpoint: str, *command: str) -> Iterator[str]:
    """Start a server, yield its address, and stop it at the end of the block."""
    (folder / "goldens.yaml").write_text("goldens: [{id: g, tools: [search]}]")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [python_of("servers"), "-m", *(part.replace("PORT", port) for part in command)],
            cwd=folder,
            env={**os.environ, **settings, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=log,
            stderr=log,
        )
        try:
            yield f"http://127.0.0.1:{port}/"
            server.send_signal(signal.SIGTERM)
            server.wait(PATIENCE_S)
        finally:
            server.kill()
            server.wait()


def ask(address: str) -> list[str]:
    """Wait for the first answer, and return the version and the process that answered."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
                return str(answer.read().decode()).split()
        except (urllib.error.URLError, ConnectionError):
            assert time.monotonic() < until, "the server does not answer"
            time.sleep(0.1)


def scored(received: Received) -> list[Any]:
    """Return the spans of requests that have results."""
    spans = (span for scope in received._scopes("resource_spans", "scope_spans") for span in scope.spans)
    return [span for span in spans if plain(span.attributes).get("goldspan.passed") is True]


@pytest.mark.e2e
def test_workers_forked_from_a_master_that_instrumented_itself_score_every_request_once(
    tmp_path: Path, received: tuple[str, Received]
) -> None:
    endpoint, got = received
    (tmp_path / "service.py").write_text(AGENT + WSGI)
    gunicorn = ("gunicorn", "--preload", "--workers", "2", "--max-requests", "4", "--bind", "127.0.0.1:PORT")
    with serving(tmp_path, endpoint, *gunicorn, "service:app") as address:
        processes = {ask(address)[1] for _ in range(12)}
    log = (tmp_path / "log").read_text()
    assert len(processes) >= 2, log
    assert len(scored(got)) == 12, log
    assert len({span.trace_id for span in scored(got)}) == 12
    assert "goldspan could not" not in log


@pytest.mark.e2e
def test_an_application_that_is_reloaded_scores_before_and_after(
    tmp_path: Path, received: tuple[str, Received]
) -> None:
    endpoint, got = received
    service = tmp_path / "service.py"
    service.write_text(AGENT + ASGI)
    uvicorn = ("uvicorn", "--reload", "--port", "PORT", "--log-level", "warning")
    asked = 0
    with serving(tmp_path, endpoint, *uvicorn, "service:app") as address:
        for version in ("1", "2"):
            service.write_text((AGENT + ASGI).replace("VERSION = 1", f"VERSION = {version}"))
            until = time.monotonic() + PATIENCE_S
            while True:
                asked += 1
                if ask(address)[0] == version:
                    break
                assert time.monotonic() < until, "the application is not reloaded"
                time.sleep(0.2)
    log = (tmp_path / "log").read_text()
    assert len(scored(got)) == asked, log
    assert "goldspan could not" not in log
