"""Tests the benchmark of the store in PostgreSQL with few runs; it measures the time of every view with millions."""

from __future__ import annotations

import postgres_store
import pytest

from goldspan.store import open_store
from support.postgres_server import PostgresServer

pytestmark = pytest.mark.needs("postgres", "initdb")


@pytest.mark.e2e
def test_the_benchmark_of_postgres_fills_a_store_consistently_and_renders_every_view(
    postgres_server: PostgresServer,
) -> None:
    url = postgres_server.create_database()
    postgres_store.fill(url, 12_000)
    with open_store(url, read_only=True, timeout=60) as store:
        store.check()
        assert store.count().total == 12_000
        assert len({run.run_id for run in store.iter_runs()}) == 12_000
        for name, view in postgres_store.views(store).items():
            page = view()
            assert getattr(page, "status", 200) == 200, name
