"""Fixtures of the store tests: stores of every back end, and a clock that a test sets."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from goldspan.store import Store, open_store
from support.postgres_server import PostgresServer
from support.store_contents import NewStore

NOW = 1_800_000_000 * 10**9


class Clock:
    """A clock that advances only when a test sets it."""

    def __init__(self) -> None:
        self.now_ns = NOW

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a new SQLite file."""
    return tmp_path / "goldspan.db"


@pytest.fixture(
    scope="session",
    params=["sqlite", pytest.param("postgres", marks=[pytest.mark.e2e, pytest.mark.needs("postgres", "initdb")])],
)
def back_end(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def location(back_end: str, request: pytest.FixtureRequest) -> str | Path:
    """The location of a new store: a path, or the URL of an empty database."""
    if back_end == "sqlite":
        path: Path = request.getfixturevalue("path")
        return path
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.create_database()


@pytest.fixture
def store(location: str | Path, clock: Clock) -> Iterator[Store]:
    with open_store(location, clock=clock) as opened:
        yield opened


@pytest.fixture(scope="session")
def new_store(back_end: str, request: pytest.FixtureRequest) -> NewStore:
    server: PostgresServer | None = None if back_end == "sqlite" else request.getfixturevalue("postgres_server")

    @contextmanager
    def opened(**options: Any) -> Iterator[Store]:
        if server is None:
            with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "s.db", **options) as store:
                yield store
        else:
            with open_store(server.emptied_database(), **options) as store:
                yield store

    return opened
