"""Tests that Langfuse's official client sends the requests that goldspan sends, and reads the replies of the tests."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from recipes.environments import is_built, python_of
from support.product_server import ProductServer, accepted, product_server
from support.pulls import pull
from support.trace_servers import FIXTURES, LangfuseApi, traces_of, window_of

pytestmark = pytest.mark.e2e

ENVIRONMENT = "product_clients"
KEYS = {"LANGFUSE_PUBLIC_KEY": "pk-lf-public", "LANGFUSE_SECRET_KEY": "sk-lf-secret"}
FILES = sorted((FIXTURES / "captures").glob("*.pb.gz"))


@contextmanager
def official_client(server: ProductServer) -> Iterator[Callable[[dict[str, str]], dict[str, Any]]]:
    """Start the client, and return what it reads with the parameters of a request."""
    if not is_built(ENVIRONMENT):
        pytest.skip(f"{ENVIRONMENT}'s environment is missing: make recipes")
    program = Path(__file__).with_name("langfuse_client.py")
    command = [python_of(ENVIRONMENT), str(program), server.url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8") as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(query: dict[str, str]) -> dict[str, Any]:
            process.stdin.write(json.dumps(query) + "\n")
            process.stdin.flush()
            answer: dict[str, Any] = json.loads(process.stdout.readline())
            return answer

        yield ask
        process.stdin.close()


def with_times(query: dict[str, str]) -> dict[str, Any]:
    """Replace times by what they mean: there are several notations."""
    return {
        name: datetime.fromisoformat(text.replace("Z", "+00:00")) if "Time" in name else text
        for name, text in query.items()
    }


def test_the_official_client_sends_the_same_requests_and_reads_the_same_replies(tmp_path: Path) -> None:
    traces = traces_of(*FILES)
    api = LangfuseApi(traces)
    with product_server(api) as server:
        url = f"langfuse+{server.url}"
        pull(url, tmp_path, window_of(traces), environment=KEYS, page_size=20)
        requests = list(server.received)
        with official_client(server) as ask:
            for request in requests:
                answer = ask(request.query)
                expected = json.loads(api(request).body)
                assert answer == {
                    "ids": [row["id"] for row in expected["data"]],
                    "cursor": expected["meta"].get("cursor"),
                    "metadata": [row.get("metadata") for row in expected["data"]],
                }
                sent = server.received[-1]
                assert (sent.path, with_times(sent.query)) == (request.path, with_times(request.query))
                assert sent.headers["authorization"] == request.headers["authorization"]
    assert any("cursor" in request.query for request in requests)
    assert any("traceId" in request.query for request in requests)


def test_the_official_client_refuses_a_parameter_and_a_field_that_it_does_not_know() -> None:
    row = {"id": "1", "startTime": "2026-09-21T14:13:20.000Z", "projectId": "p", "type": "SPAN", "unknownField": 1}
    with (
        product_server(lambda _: accepted({"data": [row], "meta": {}})) as server,
        official_client(server) as ask,
    ):
        assert "unknown_parameter" in ask({"unknownParameter": "1"})["error"]
        assert "unknownField" in ask({"fields": "core"})["error"]
