"""Caches the judge's assessments and records its spending in one SQLite file.

Several processes can share a file: the workers of a gateway, or commands that run one after another. They then share
the budget. The file stores the score, the better tool and the reason of an assessment, and only a hash of its prompt.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from goldspan.errors import ConfigurationError, StoreError
from goldspan.judge.tool_selection import Assessment
from goldspan.sinks.fork_safety import renew_after_fork
from goldspan.store.sqlite_files import SqliteFormat, open_for_writing, transaction

IN_MEMORY = ":memory:"
MAX_ENTRIES = 200_000
"""Maximum number of assessments in a file; the oldest are evicted first."""
MAX_ENTRIES_IN_MEMORY = 10_000
"""Maximum number of assessments without a file, about 10 MB."""
_BUCKET_SECONDS = 60
"""Spending is recorded per minute."""
SECONDS_PER_DAY = 86_400
_LOCK_TIMEOUT_S = 2.0
_EVICT_EVERY = 256
"""Number of insertions between two evictions."""

_CACHE_FORMAT = SqliteFormat(
    application_id=0x676C646A,  # `gldj` in ASCII
    migrations=(
        (
            """CREATE TABLE answers (
                key TEXT PRIMARY KEY, place INTEGER NOT NULL,
                score REAL NOT NULL, better_tool TEXT, reason TEXT NOT NULL, model TEXT
            )""",
            "CREATE INDEX answers_place ON answers (place)",
            "CREATE TABLE spending (bucket INTEGER PRIMARY KEY, tokens INTEGER NOT NULL, cost REAL NOT NULL)",
        ),
    ),
    connection_pragmas=("synchronous = NORMAL",),
    upgrade_hint="delete it, or name another one",
    foreign_hint="name another one",
)


@dataclass(frozen=True, slots=True)
class CachedAssessment:
    """A stored assessment and the model that made it."""

    assessment: Assessment
    model: str | None


@dataclass(frozen=True, slots=True)
class Spending:
    """The tokens and the cost spent within the last 24 hours."""

    tokens: int = 0
    cost: float = 0.0
    """In US dollars."""


class JudgeCache:
    """Stores assessments and spending. It is thread-safe.

    It opens the file on first use; a forked child opens it again. Its methods raise `StoreError` if the file cannot
    be read or written.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, clock: Callable[[], float] = time.time) -> None:
        self.path = IN_MEMORY if path is None else str(path)
        self._clock = clock
        self._insert_count = 0
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Replace the lock and drop the connection, in a forked child."""
        _parent_connections.append(getattr(self, "_connection", None))
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    @property
    def _max_entries(self) -> int:
        return MAX_ENTRIES_IN_MEMORY if self.path == IN_MEMORY else MAX_ENTRIES

    def check(self) -> None:
        """Raise `ConfigurationError` if the file cannot be used."""
        try:
            with self._use_connection():
                pass
        except StoreError as error:
            raise ConfigurationError(str(error)) from None

    def get(self, key: str) -> CachedAssessment | None:
        """Return the assessment stored under the key, or `None`."""
        with self._use_connection() as connection:
            row = connection.execute(
                "SELECT score, reason, better_tool, model FROM answers WHERE key = ?", (key,)
            ).fetchone()
        return None if row is None else CachedAssessment(Assessment(*row[:3]), row[3])

    def put(self, key: str, assessment: Assessment, model: str | None) -> None:
        """Store an assessment, unless the key is already present."""
        with self._use_connection() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO answers (key, place, score, better_tool, reason, model) "
                "VALUES (?, (SELECT coalesce(max(place), 0) + 1 FROM answers), ?, ?, ?, ?)",
                (key, assessment.score, assessment.better_tool, assessment.reason, model),
            )
            self._insert_count += 1
            if self._insert_count % _EVICT_EVERY == 1:
                connection.execute(
                    "DELETE FROM answers WHERE place <= (SELECT max(place) FROM answers) - ?", (self._max_entries,)
                )

    def reserve(self, tokens: int, cost: float, is_allowed: Callable[[Spending], bool] = lambda _: True) -> int | None:
        """Record spending if `is_allowed` accepts the total of the last 24 hours with it.

        Returns the minute under which it is recorded, for `adjust_reservation`; `None` if it is not allowed.
        """
        minute = int(self._clock()) // _BUCKET_SECONDS
        with self._use_connection() as connection, transaction(connection):
            connection.execute("DELETE FROM spending WHERE bucket <= ?", (minute - SECONDS_PER_DAY // _BUCKET_SECONDS,))
            spent = _select_spending(connection)
            allowed = is_allowed(Spending(spent.tokens + tokens, spent.cost + cost))
            if allowed:
                _add_spending(connection, minute, tokens, cost)
        return minute if allowed else None

    def adjust_reservation(self, minute: int, tokens: int, cost: float) -> None:
        """Add the differences, positive or negative, to the spending recorded under that minute."""
        if tokens or cost:
            with self._use_connection() as connection:
                _add_spending(connection, minute, tokens, cost)

    def spending_last_day(self) -> Spending:
        """Return what was spent within the last 24 hours."""
        with self._use_connection() as connection:
            return _select_spending(
                connection, int(self._clock()) // _BUCKET_SECONDS - SECONDS_PER_DAY // _BUCKET_SECONDS
            )

    def close(self) -> None:
        """Close the file. The next use opens it again; a cache in memory loses its content."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    @contextmanager
    def _use_connection(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                if self._connection is None:
                    path = None if self.path == IN_MEMORY else Path(self.path)
                    self._connection = open_for_writing(path, _CACHE_FORMAT, timeout=_LOCK_TIMEOUT_S)
                yield self._connection
            except (sqlite3.Error, OSError) as error:
                raise StoreError(f"{self.path}: the judge's answers cannot be kept there: {error}") from None


def _select_spending(connection: sqlite3.Connection, after: int = -1) -> Spending:
    row = connection.execute(
        "SELECT coalesce(sum(tokens), 0), coalesce(sum(cost), 0.0) FROM spending WHERE bucket > ?", (after,)
    ).fetchone()
    return Spending(*row)


def _add_spending(connection: sqlite3.Connection, minute: int, tokens: int, cost: float) -> None:
    connection.execute(
        "INSERT INTO spending (bucket, tokens, cost) VALUES (?, ?, ?) ON CONFLICT (bucket) DO UPDATE "
        "SET tokens = tokens + excluded.tokens, cost = cost + excluded.cost",
        (minute, tokens, cost),
    )


_parent_connections: list[sqlite3.Connection | None] = []
"""Connections of the parent process. A child must not use or close them, so this list keeps them referenced."""
