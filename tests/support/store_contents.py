"""New stores of either back end for tests, and what is in their tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from typing import Any, TypeAlias

import psycopg

from goldspan.store import Store
from goldspan.store.store_location import is_store_url

NewStore: TypeAlias = Callable[..., AbstractContextManager[Store]]
"""Opens a new, empty store with the options of `open_store`."""


def select(location: str, statement: str) -> list[tuple[Any, ...]]:
    """Return the rows of a statement."""
    if is_store_url(location):
        with psycopg.connect(location, options="-csearch_path=goldspan") as connection:
            return connection.execute(statement.encode()).fetchall()
    with closing(sqlite3.connect(location)) as connection:
        return connection.execute(statement).fetchall()


def all_rows(location: str) -> dict[str, list[str]]:
    """Return the rows of every table that holds runs or counters, sorted."""
    own = ("run_groups", "run_counts", "store") if is_store_url(location) else ("sqlite_sequence",)
    tables = ("runs", "evaluations", "tools", "substitutions", "scores", "traces", *own)
    return {table: sorted(map(repr, select(location, f"SELECT * FROM {table}"))) for table in tables}
