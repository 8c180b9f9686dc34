"""A store in one SQLite file."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, TypeAlias

from goldspan.errors import ConfigurationError, StoreError
from goldspan.model import Evaluation
from goldspan.store.connections import Connections
from goldspan.store.entries import Entry, entry_of, storable
from goldspan.store.exports import Format, exported
from goldspan.store.protocol import (
    EVERY_RUN,
    MOST_AT_ONCE,
    Counts,
    Page,
    Retention,
    RunFilter,
    StoredEvaluation,
    StoredRun,
)
from goldspan.store.pruning import Pruning
from goldspan.store.queries import Query, cursor_at

Watch: TypeAlias = Callable[[Iterable[StoredRun]], Iterable[StoredRun]]

KEEP_ALL = Retention()


def open_store(
    path: str | os.PathLike[str],
    *,
    read_only: bool = False,
    retention: Retention = KEEP_ALL,
    keep_arguments: bool = False,
    timeout: float = 5.0,
    clock: Callable[[], int] = time.time_ns,
) -> SqliteStore:
    """Open a store; it is created where there is none, and an older one is brought up to date.

    With `keep_arguments` the values are stored too: arguments, results, texts of errors, outputs and metadata. Writing
    waits for other processes for up to `timeout` seconds. `clock` tells the time in nanoseconds since the Unix epoch.

    Raises `StoreError` where the file is no store, is damaged, locked, of a newer goldspan or, unless `read_only`, of
    no use because it cannot be written.
    """
    return SqliteStore(
        Connections(Path(path), read_only=read_only, timeout=timeout),
        retention=retention,
        keep_arguments=keep_arguments,
        clock=clock,
    )


class SqliteStore:
    """Keeps evaluations in an SQLite file. Several threads and processes may use one file; see `Store`."""

    def __init__(
        self, connections: Connections, *, retention: Retention, keep_arguments: bool, clock: Callable[[], int]
    ) -> None:
        self._connections = connections
        self._keep_arguments = keep_arguments
        self._clock = clock
        self._pruning = Pruning(retention)
        with connections.reader() if connections.read_only else connections.writer():
            pass  # whatever is wrong with the file is said now

    @property
    def path(self) -> Path:
        """The file."""
        return self._connections.path

    def submit(self, evaluation: Evaluation) -> None:
        """Keep one evaluation."""
        self.submit_many((evaluation,))

    def submit_many(self, evaluations: Iterable[Evaluation]) -> None:
        """Keep several in one transaction, and now and then delete a few that are kept no longer."""
        now_ns = self._clock()
        entries = [entry_of(each, now_ns=now_ns, keep_arguments=self._keep_arguments) for each in evaluations]
        with self._connections.transaction() as connection:
            for entry in entries:
                _store(connection, entry, now_ns)
            deleted = self._pruning.step(connection, now_ns, len(entries))
        if deleted:
            self._give_room_back()

    def runs(
        self,
        filter: RunFilter = EVERY_RUN,  # noqa: A002 - the word for it
        *,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """The runs that are meant, newest first; at most 1,000 at once."""
        if limit < 1:
            raise ConfigurationError(f"limit must be at least 1, not {limit}")
        limit = min(limit, MOST_AT_ONCE)
        query = Query(filter, cursor)
        with self._connections.reader() as connection:
            rows = connection.execute(query.page(limit + 1), query.parameters).fetchall()
        more = len(rows) > limit
        rows = rows[:limit]
        return Page(tuple(map(_run, rows)), cursor_at(rows[-1][1], rows[-1][2]) if more else None)

    def every(self, wanted: RunFilter = EVERY_RUN) -> Iterator[StoredRun]:
        """All runs that are meant, newest first, read a page at a time."""
        cursor: str | None = None
        while True:
            page = self.runs(wanted, limit=MOST_AT_ONCE // 2, cursor=cursor)
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    def run(self, run_id: str) -> StoredRun | None:
        """One run, or `None`."""
        with self._connections.reader() as connection:
            row = connection.execute(_ONE, (storable(run_id),)).fetchone()
        return None if row is None else _run(row)

    def evaluations(self, run_id: str) -> tuple[StoredEvaluation, ...]:
        """All that is stored of one run, the oldest revision first."""
        with self._connections.reader() as connection:
            rows = connection.execute(_ALL_OF_ONE, (storable(run_id),)).fetchall()
        return tuple(_evaluation(*row) for row in rows)

    def count(self, filter: RunFilter = EVERY_RUN) -> Counts:  # noqa: A002
        """How many runs are meant, by what came out."""
        query = Query(filter)
        with self._connections.reader() as connection:
            found = dict(connection.execute(query.counts(), query.parameters).fetchall())
        return Counts(passed=found.get(1, 0), failed=found.get(0, 0), not_evaluated=found.get(None, 0))

    def metrics(self) -> tuple[str, ...]:
        """The names of all metrics of which there is a score, sorted."""
        with self._connections.reader() as connection:
            return tuple(name for (name,) in connection.execute(_METRICS).fetchall())

    def delete_trace(self, trace_id: str) -> int:
        """Delete every run with spans in a trace. What stood in the file is overwritten, in the log beside it too.

        Raises `StoreError` also where the runs are deleted and somebody else reads the file for so long that the log
        cannot be emptied; called once more, it empties the log.
        """
        with self._connections.transaction() as connection:
            deleted = connection.execute(_DELETE_TRACE, (storable(trace_id),)).rowcount
        if deleted:
            self._give_room_back()
        with self._connections.writer() as connection:
            busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise StoreError(
                f"{self.path}: the runs are deleted, but what stood in them is still in the log beside the file, which "
                "another program reads; end that and delete the trace once more"
            )
        return deleted

    def prune(self) -> int:
        """Delete now what is kept no longer, and give the room back."""
        deleted = 0
        while True:
            with self._connections.transaction() as connection:
                batch = self._pruning.batch(connection, self._clock())
            deleted += batch
            if not batch:
                break
            self._give_room_back()
        with self._connections.writer() as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()  # only now is the file itself shorter
        return deleted

    def check(self) -> None:
        """Read the whole file; raises `StoreError` where it is damaged."""
        with self._connections.reader() as connection:
            (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            if found != "ok":
                raise sqlite3.DatabaseError(f"malformed: {found.splitlines()[-1]}")

    def export(
        self,
        target: str | os.PathLike[str] | IO[bytes],
        *,
        format: Format | None = None,  # noqa: A002 - the word for it
        filter: RunFilter = EVERY_RUN,  # noqa: A002
        overwrite: bool = False,
        watch: Watch = iter,
    ) -> int:
        """Write the runs that are meant to a file, newest first; the number of them.

        The format is told by how the name ends (`.csv`, `.parquet`, `.jsonl`), or by `format`. A file appears whole or
        not at all, and one that is there is replaced only with `overwrite`. `watch` may look at the runs on their way.
        """
        return exported(watch(self.every(filter)), target, format, metrics=self.metrics(), overwrite=overwrite)

    def _give_room_back(self) -> None:
        """Cut free pages off the file: as a script, since it goes on only as long as somebody asks for rows."""
        with self._connections.writer() as connection:
            connection.executescript("PRAGMA incremental_vacuum")

    def close(self) -> None:
        """Close the file."""
        self._connections.close()

    def __enter__(self) -> SqliteStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


_ONE = """
    SELECT runs.run_id, runs.time_ns, runs.key, (SELECT count(*) FROM evaluations WHERE run = runs.key),
        current.revision, current.digest, current.stored_ns, current.document
    FROM runs JOIN evaluations AS current ON current.key = runs.current WHERE runs.run_id = ?
"""
_ALL_OF_ONE = """
    SELECT runs.run_id, each.revision, each.digest, each.stored_ns, each.document
    FROM runs JOIN evaluations AS each ON each.run = runs.key WHERE runs.run_id = ? ORDER BY each.revision, each.key
"""
_METRICS = """
    WITH RECURSIVE found(metric) AS (
        SELECT min(metric) FROM scores
        UNION ALL SELECT (SELECT min(metric) FROM scores WHERE metric > found.metric) FROM found WHERE metric NOT NULL
    ) SELECT metric FROM found WHERE metric NOT NULL
"""
"""Hops from name to name in the index: there are few of them, and many scores of each."""
_DELETE_TRACE = "DELETE FROM runs WHERE key IN (SELECT run FROM traces WHERE trace_id = ?)"


def _run(row: tuple[Any, ...]) -> StoredRun:
    run_id, time_ns, _, evaluations, *current = row
    return StoredRun(run_id, time_ns, evaluations, _evaluation(run_id, *current))


def _evaluation(run_id: str, revision: int, digest: str, stored_ns: int, document: str) -> StoredEvaluation:
    return StoredEvaluation(run_id, revision, digest, stored_ns, json.loads(document))


def _store(connection: sqlite3.Connection, entry: Entry, now_ns: int) -> None:
    """Store an evaluation; what is there already stays as it is."""
    connection.execute(
        "INSERT OR IGNORE INTO runs (run_id, time_ns, revision, unit) VALUES (?, ?, ?, ?)",
        (entry.run_id, entry.time_ns, entry.revision, entry.listed[0]),
    )
    found = connection.execute("SELECT key, time_ns, revision FROM runs WHERE run_id = ?", (entry.run_id,))
    run, time_ns, revision = found.fetchone()
    stored = connection.execute(
        "INSERT OR IGNORE INTO evaluations (run, revision, digest, stored_ns, document) VALUES (?, ?, ?, ?, ?)",
        (run, entry.revision, entry.digest, now_ns, entry.document),
    )
    if stored.rowcount and entry.revision >= revision:
        _make_current(connection, entry, run, stored.lastrowid, time_ns)


def _make_current(connection: sqlite3.Connection, entry: Entry, run: int, key: int | None, time_ns: int) -> None:
    connection.execute(
        "UPDATE runs SET current = ?, revision = ?, passed = ?, text = ?, "
        "unit = ?, golden = ?, agent = ?, service = ?, environment = ?, session_id = ? WHERE key = ?",
        (key, entry.revision, entry.passed, entry.text, *entry.listed, run),
    )
    for table in ("tools", "scores", "traces"):
        connection.execute(f"DELETE FROM {table} WHERE run = ?", (run,))
    connection.executemany(
        "INSERT INTO tools (run, tool, role, time_ns) VALUES (?, ?, ?, ?)",
        [(run, tool, role, time_ns) for tool, role in sorted(entry.tools)],
    )
    connection.executemany(
        "INSERT INTO scores (run, metric, value, time_ns) VALUES (?, ?, ?, ?)",
        [(run, metric, value, time_ns) for metric, value in entry.scores.items()],
    )
    connection.executemany(
        "INSERT INTO traces (run, trace_id, time_ns) VALUES (?, ?, ?)",
        [(run, trace_id, time_ns) for trace_id in sorted(entry.traces)],
    )
