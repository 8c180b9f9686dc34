"""Tests of gateways that share a store in PostgreSQL, also while its server restarts."""

from __future__ import annotations

import csv
import os
import random
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from goldspan.store import Store, open_store
from support.gateway_agent_runs import GOLDENS, Request, request
from support.gateway_process import Gateway, eventually, serving
from support.postgres_server import PostgresServer

pytestmark = [pytest.mark.e2e, pytest.mark.needs("postgres", "initdb")]


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server of its own, which the test stops."""
    started = PostgresServer()
    yield started
    started.remove()


def gateway_options(folder: Path) -> tuple[str, ...]:
    folder.mkdir()
    (folder / "goldens.yaml").write_text(GOLDENS, encoding="utf-8")
    return ("--goldens", "goldens.yaml", "--grace", "0.1", "--late", "1")


def send(gateway: Gateway, requests: list[Request]) -> None:
    for each in requests:
        for body in each.bodies:
            assert gateway.post(body)[0] == 200


def text_of(gateway: Gateway, path: str) -> str:
    with urllib.request.urlopen(gateway.address + path, timeout=60) as answer:
        content: bytes = answer.read()
    return content.decode()


def stored_ids(store: Store) -> set[str]:
    return {run.run_id for run in store.iter_runs()}


def test_gateways_with_one_store_lose_and_double_nothing_while_its_server_restarts(
    server: PostgresServer, tmp_path: Path
) -> None:
    draw = random.Random(1)
    runs = [request(number, draw) for number in range(90)]
    url = server.create_database()
    environment = {"GOLDSPAN_STORE": url}
    with (
        serving(tmp_path / "one", *gateway_options(tmp_path / "one"), environment=environment) as one,
        serving(tmp_path / "two", *gateway_options(tmp_path / "two"), environment=environment) as two,
    ):
        send(one, runs[:30])
        send(two, runs[20:50])  # ten runs reach both
        with open_store(url, read_only=True, timeout=60) as store:
            eventually(lambda: stored_ids(store) == {run.run_id for run in runs[:50]}, "the runs were not stored")
            server.stop()
            send(one, runs[50:70])
            eventually(lambda: "store is unavailable" in text_of(one, "/readyz"), lambda: text_of(one, "/readyz"))
            send(two, runs[70:])  # it is not ready for reading, and accepts telemetry
            assert "goldspan_gateway_store_retries" in text_of(one, "/metrics")
            server.start()
            eventually(lambda: stored_ids(store) == {run.run_id for run in runs}, "the runs were not stored")
            eventually(lambda: text_of(one, "/readyz") == "ready", lambda: text_of(one, "/readyz"))
            assert {run.evaluation_count for run in store.iter_runs()} == {1}
            assert store.count().passed == 90
            store.check()
        for gateway in (one, two):
            assert len(gateway.get("/api/v1/runs?limit=1000")["runs"]) == 90
            assert "90" in text_of(gateway, "/")
            assert "secret-word" not in gateway.log + text_of(gateway, "/") + text_of(gateway, "/metrics")
        trace_id = runs[0].run_id.partition(":")[0]
        delete = urllib.request.Request(f"{one.address}/api/v1/traces/{trace_id}", method="DELETE")
        with urllib.request.urlopen(delete, timeout=60) as answer:
            assert answer.status == 200
        assert len(two.get("/api/v1/runs?limit=1000")["runs"]) == 89
    assert "store: postgresql://postgres@127.0.0.1" in one.log


def test_commands_read_the_store_of_a_url(server: PostgresServer, tmp_path: Path) -> None:
    url = server.create_database()
    draw = random.Random(2)
    options = gateway_options(tmp_path / "one")
    with serving(tmp_path / "one", *options, environment={"GOLDSPAN_STORE": url}) as gateway:
        send(gateway, [request(0, draw)])
        with open_store(url, read_only=True) as store:
            eventually(lambda: store.count().total == 1, "the run was not stored")

    def goldspan(*arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "goldspan", *arguments], cwd=tmp_path, text=True, capture_output=True, check=False,
            env=os.environ | {"NO_COLOR": "1"},
        )  # fmt: skip
        assert "secret-word" not in done.stdout + done.stderr
        return done

    assert goldspan("export", url, "runs.csv").stderr == "1 run written to runs.csv\n"
    with (tmp_path / "runs.csv").open(newline="", encoding="utf-8") as file:
        assert [row["golden_id"] for row in csv.DictReader(file)] == ["trip"]
    assert "1 run: 1 passed" in goldspan("report", url, "--markdown", "-").stdout
    assert goldspan("goldens", "stale", "one/goldens.yaml", url, "--since", "2020-01-01").returncode == 0
    assert "--state" in goldspan("export", url, "--to", "phoenix").stderr
    missing = goldspan("report", url.replace("/test", "/no_"), "--markdown", "-")
    assert (missing.returncode, "does not exist" in missing.stderr) == (2, True)
    shown = goldspan("serve", "--store", url, "--print-config").stdout
    assert 'store: "postgresql://postgres@' in shown or "store: postgresql://postgres@" in shown
    assert "its password is hidden" in shown
