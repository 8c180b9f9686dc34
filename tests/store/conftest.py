"""Fixtures of the store tests: stores in files, and a clock that a test sets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from goldspan.store import SqliteStore, open_store

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
    return tmp_path / "goldspan.db"


@pytest.fixture
def store(path: Path, clock: Clock) -> Iterator[SqliteStore]:
    with open_store(path, clock=clock) as opened:
        yield opened
