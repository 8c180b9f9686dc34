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
from goldspan.judge.opinions import Opinion
from goldspan.sinks.forking import renew_in_forked_children
from goldspan.store.files import identity, write_ahead

IN_MEMORY = ":memory:"
_VERSION = 1
_APPLICATION = 0x676C646A
"""`gldj`: what tells the file from other SQLite files."""
MOST_ANSWERS = 200_000
"""So many answers are kept in a file; those that were given first go first."""
MOST_IN_MEMORY = 10_000
"""So many without a file: some 10 MB."""
_BUCKET = 60
"""Seconds: spending is noted by the minute."""
DAY = 86_400
_PATIENCE_S = 2.0
_LOOK_EVERY = 256
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
class Known:
    """An answer that was given before."""

    opinion: Opinion
    model: str | None


@dataclass(frozen=True, slots=True)
class Spent:
    """What was spent within the last 24 hours."""

    tokens: int = 0
    cost: float = 0.0
    """In US dollars."""


class Ledger:
    """Opens the file when it is first needed. Any thread may use it; after a fork the child opens it anew.

    Its methods raise `StoreError` where the file cannot be read or written.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, clock: Callable[[], float] = time.time) -> None:
        self.path = IN_MEMORY if path is None else str(path)
        self._clock = clock
        self._added = 0
        self.renew()
        renew_in_forked_children(self)

    def renew(self) -> None:
        """Begin anew, in a forked child."""
        _inherited.append(getattr(self, "_connection", None))
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    @property
    def _most(self) -> int:
        return MOST_IN_MEMORY if self.path == IN_MEMORY else MOST_ANSWERS

    def check(self) -> None:
        """Raise `ConfigurationError` where the file is of no use."""
        try:
            with self._open():
                pass
        except StoreError as error:
            raise ConfigurationError(str(error)) from None

    def find(self, key: str) -> Known | None:
        """The answer to the question of that key."""
        with self._open() as connection:
            row = connection.execute(
                "SELECT score, reason, better_tool, model FROM answers WHERE key = ?", (key,)
            ).fetchone()
        return None if row is None else Known(Opinion(*row[:3]), row[3])

    def keep(self, key: str, opinion: Opinion, model: str | None) -> None:
        """Keep an answer; one that is there already stays."""
        with self._open() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO answers (key, place, score, better_tool, reason, model) "
                "VALUES (?, (SELECT coalesce(max(place), 0) + 1 FROM answers), ?, ?, ?, ?)",
                (key, opinion.score, opinion.better_tool, opinion.reason, model),
            )
            self._added += 1
            if self._added % _LOOK_EVERY == 1:
                connection.execute(
                    "DELETE FROM answers WHERE place <= (SELECT max(place) FROM answers) - ?", (self._most,)
                )

    def spend(self, tokens: int, cost: float, within: Callable[[Spent], bool] = lambda _: True) -> int | None:
        """Note that this is spent, if all of the last 24 hours is then still `within` the budget.

        Answers the minute it is noted under, by which it can be put right; `None`: it is not within.
        """
        minute = int(self._clock()) // _BUCKET
        with self._open() as connection, _transaction(connection):
            connection.execute("DELETE FROM spending WHERE bucket <= ?", (minute - DAY // _BUCKET,))
            spent = _spent(connection)
            allowed = within(Spent(spent.tokens + tokens, spent.cost + cost))
            if allowed:
                _note(connection, minute, tokens, cost)
        return minute if allowed else None

    def settle(self, minute: int, tokens: int, cost: float) -> None:
        """Put right what was noted under that minute, by so much more or less."""
        if tokens or cost:
            with self._open() as connection:
                _note(connection, minute, tokens, cost)

    def spent(self) -> Spent:
        """What was spent within the last 24 hours."""
        with self._open() as connection:
            return _spent(connection, int(self._clock()) // _BUCKET - DAY // _BUCKET)

    def close(self) -> None:
        """Close the file. It is opened again if it is needed again; what was kept in memory is gone then."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = _opened(self.path)
                yield self._connection
            except (sqlite3.Error, OSError) as error:
                raise StoreError(f"{self.path}: the judge's answers cannot be kept there: {error}") from None


def _opened(path: str) -> sqlite3.Connection:
    """A connection to a file that is a ledger of this version."""
    if path != IN_MEMORY:
        # Reasons in it may quote what was asked and passed: whoever shall read it must be let in on purpose.
        os.close(os.open(Path(path), os.O_CREAT | os.O_RDWR, 0o600))
    connection = sqlite3.connect(path, timeout=_PATIENCE_S, isolation_level=None, check_same_thread=False)
    try:
        _prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    _is_new(connection)  # looked at before anything is changed: it may be somebody else's
    write_ahead(connection, _PATIENCE_S)
    connection.execute("PRAGMA synchronous = NORMAL")
    with _transaction(connection):
        if _is_new(connection):
            for statement in filter(str.strip, _TABLES.split(";")):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            connection.execute(f"PRAGMA user_version = {_VERSION}")


def _is_new(connection: sqlite3.Connection) -> bool:
    """Whether a file holds nothing yet. Raises where it is no ledger of this version."""
    found = identity(connection)
    if not any(found):
        return True
    if found.application != _APPLICATION:
        raise sqlite3.DatabaseError("it is an SQLite file of something else; name another one")
    if found.version != _VERSION:
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


def _spent(connection: sqlite3.Connection, after: int = -1) -> Spent:
    row = connection.execute(
        "SELECT coalesce(sum(tokens), 0), coalesce(sum(cost), 0.0) FROM spending WHERE bucket > ?", (after,)
    ).fetchone()
    return Spent(*row)


def _note(connection: sqlite3.Connection, minute: int, tokens: int, cost: float) -> None:
    connection.execute(
        "INSERT INTO spending (bucket, tokens, cost) VALUES (?, ?, ?) ON CONFLICT (bucket) DO UPDATE "
        "SET tokens = tokens + excluded.tokens, cost = cost + excluded.cost",
        (minute, tokens, cost),
    )


_inherited: list[sqlite3.Connection | None] = []
"""Connections of the parent process, which nobody may touch in a child, not even to close them."""
