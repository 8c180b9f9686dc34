"""What a judge keeps in one SQLite file: answers by the content of their question, and what was spent.

Several processes may share a file: workers of a gateway, or one command after the other. They then share the budget.
Kept of an answer are the score, the tool and the reason; of the question there is a hash alone.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from goldspan.errors import ConfigurationError, StoreError
from goldspan.judge.model_replies import Assessment
from goldspan.sinks.fork_safety import renew_after_fork
from goldspan.store.sqlite_files import enable_wal, read_header

IN_MEMORY = ":memory:"
_SCHEMA_VERSION = 1
_APPLICATION_ID = 0x676C646A
"""`gldj`: what tells the file from other SQLite files."""
MAX_ENTRIES = 200_000
"""So many answers are kept in a file; those that were given first go first."""
MAX_ENTRIES_IN_MEMORY = 10_000
"""So many without a file: some 10 MB."""
_BUCKET_SECONDS = 60
"""Seconds: spending is noted by the minute."""
SECONDS_PER_DAY = 86_400
_LOCK_TIMEOUT_S = 2.0
_EVICT_EVERY = 256
"""Answers between two looks at how many there are."""

_TABLES = """
CREATE TABLE answers (
    key TEXT PRIMARY KEY, place INTEGER NOT NULL,
    score REAL NOT NULL, better_tool TEXT, reason TEXT NOT NULL, model TEXT
);
CREATE INDEX answers_place ON answers (place);
CREATE TABLE spending (bucket INTEGER PRIMARY KEY, tokens INTEGER NOT NULL, cost REAL NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class CachedAssessment:
    """An answer that was given before."""

    assessment: Assessment
    model: str | None


@dataclass(frozen=True, slots=True)
class Spending:
    """What was spent within the last 24 hours."""

    tokens: int = 0
    cost: float = 0.0
    """In US dollars."""


class JudgeCache:
    """Opens the file when it is first needed. Any thread may use it; after a fork the child opens it anew.

    Its methods raise `StoreError` where the file cannot be read or written.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, clock: Callable[[], float] = time.time) -> None:
        self.path = IN_MEMORY if path is None else str(path)
        self._clock = clock
        self._insert_count = 0
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Begin anew, in a forked child."""
        _parent_connections.append(getattr(self, "_connection", None))
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    @property
    def _max_entries(self) -> int:
        return MAX_ENTRIES_IN_MEMORY if self.path == IN_MEMORY else MAX_ENTRIES

    def check(self) -> None:
        """Raise `ConfigurationError` where the file is of no use."""
        try:
            with self._use_connection():
                pass
        except StoreError as error:
            raise ConfigurationError(str(error)) from None

    def get(self, key: str) -> CachedAssessment | None:
        """The answer to the question of that key."""
        with self._use_connection() as connection:
            row = connection.execute(
                "SELECT score, reason, better_tool, model FROM answers WHERE key = ?", (key,)
            ).fetchone()
        return None if row is None else CachedAssessment(Assessment(*row[:3]), row[3])

    def put(self, key: str, assessment: Assessment, model: str | None) -> None:
        """Keep an answer; one that is there already stays."""
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
        """Note that this is spent, if all of the last 24 hours is then still `within` the budget.

        Answers the minute it is noted under, by which it can be put right; `None`: it is not within.
        """
        minute = int(self._clock()) // _BUCKET_SECONDS
        with self._use_connection() as connection, _transaction(connection):
            connection.execute("DELETE FROM spending WHERE bucket <= ?", (minute - SECONDS_PER_DAY // _BUCKET_SECONDS,))
            spent = _select_spending(connection)
            allowed = is_allowed(Spending(spent.tokens + tokens, spent.cost + cost))
            if allowed:
                _add_spending(connection, minute, tokens, cost)
        return minute if allowed else None

    def adjust_reservation(self, minute: int, tokens: int, cost: float) -> None:
        """Put right what was noted under that minute, by so much more or less."""
        if tokens or cost:
            with self._use_connection() as connection:
                _add_spending(connection, minute, tokens, cost)

    def spending_last_day(self) -> Spending:
        """What was spent within the last 24 hours."""
        with self._use_connection() as connection:
            return _select_spending(
                connection, int(self._clock()) // _BUCKET_SECONDS - SECONDS_PER_DAY // _BUCKET_SECONDS
            )

    def close(self) -> None:
        """Close the file. It is opened again if it is needed again; what was kept in memory is gone then."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    @contextmanager
    def _use_connection(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = _open_connection(self.path)
                yield self._connection
            except (sqlite3.Error, OSError) as error:
                raise StoreError(f"{self.path}: the judge's answers cannot be kept there: {error}") from None


def _open_connection(path: str) -> sqlite3.Connection:
    """A connection to a file that is a ledger of this version."""
    if path != IN_MEMORY:
        # Reasons in it may quote what was asked and passed: whoever shall read it must be let in on purpose.
        os.close(os.open(Path(path), os.O_CREAT | os.O_RDWR, 0o600))
    connection = sqlite3.connect(path, timeout=_LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    try:
        _create_tables(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _create_tables(connection: sqlite3.Connection) -> None:
    _is_new(connection)  # looked at before anything is changed: it may be somebody else's
    enable_wal(connection, _LOCK_TIMEOUT_S)
    connection.execute("PRAGMA synchronous = NORMAL")
    with _transaction(connection):
        if _is_new(connection):
            for statement in filter(str.strip, _TABLES.split(";")):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")


def _is_new(connection: sqlite3.Connection) -> bool:
    """Whether a file holds nothing yet. Raises where it is no ledger of this version."""
    found = read_header(connection)
    if not any(found):
        return True
    if found.application_id != _APPLICATION_ID:
        raise sqlite3.DatabaseError("it is an SQLite file of something else; name another one")
    if found.user_version != _SCHEMA_VERSION:
        raise sqlite3.DatabaseError("it was made by another version of goldspan; delete it, or name another one")
    return False


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All of what is done in the block, or nothing: a transaction that cannot be ended is in nobody's way."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with suppress(sqlite3.Error):
                connection.rollback()
        raise


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
"""Connections of the parent process, which nobody may touch in a child, not even to close them."""
