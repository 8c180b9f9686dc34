"""A store in one SQLite file."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

from goldspan.errors import ConfigurationError, StoreError
from goldspan.model import Evaluation
from goldspan.store.connection_pool import ConnectionPool
from goldspan.store.queries import AggregateQueries, RunQuery, clamp_to_int64, encode_cursor
from goldspan.store.run_export import export_runs
from goldspan.store.run_records import RunRecord, record_of, valid_unicode, write_record
from goldspan.store.store_protocol import (
    ALL_RUNS,
    MAX_PAGE_SIZE,
    EvaluationPage,
    ExportFormat,
    ExportTarget,
    Page,
    Retention,
    RunFilter,
    RunObserver,
    StoredEvaluation,
    StoredRun,
    VerdictCounts,
)

_MIN_BATCH_SIZE = 500
"""So many runs are deleted at once, or twice as many as were just stored at once: it must keep up."""
_CHECK_EVERY_EVALUATIONS = 250
"""So many evaluations are stored from one look to the next, at least where they come one by one."""
_CHECK_EVERY_NS = 60 * 10**9
"""And where few are stored, so much time passes at most."""


class RetentionPruner:
    """Keeps a store within its retention."""

    def __init__(self, retention: Retention) -> None:
        self._retention = retention
        self._stored_since_check = _CHECK_EVERY_EVALUATIONS
        self._last_check_ns = 0

    def prune_if_due(self, connection: sqlite3.Connection, now_ns: int, stored: int) -> int:
        """Called within the transaction that stores so many evaluations: where it is time, delete a batch; how many."""
        self._stored_since_check += stored
        if self._stored_since_check < _CHECK_EVERY_EVALUATIONS and now_ns - self._last_check_ns < _CHECK_EVERY_NS:
            return 0
        self._last_check_ns = now_ns
        deleted = self.prune_batch(connection, now_ns, max(_MIN_BATCH_SIZE, 2 * stored))
        self._stored_since_check = (
            _CHECK_EVERY_EVALUATIONS if deleted else 0
        )  # where something had to go there may be more, and the next call looks
        return deleted

    def prune_batch(self, connection: sqlite3.Connection, now_ns: int, max_runs: int = _MIN_BATCH_SIZE) -> int:
        """Delete the oldest runs that are too old or too much, but so many at most; how many."""
        deleted = 0
        connection.execute("DELETE FROM deletions WHERE time_ns < ?", (self.tombstone_cutoff_ns(now_ns),))
        if self._retention.max_age is not None:
            before = _cutoff_ns(now_ns, self._retention.max_age)
            deleted = connection.execute(_DELETE_EXPIRED, (before, max_runs)).rowcount
        if self._retention.max_bytes is not None and (share := self._excess_share(connection)) > 0:
            (runs,) = connection.execute("SELECT count(*) FROM runs").fetchone()
            deleted += connection.execute(_DELETE_OLDEST, (min(max_runs - deleted, int(runs * share) + 1),)).rowcount
        return deleted

    def tombstone_cutoff_ns(self, now_ns: int) -> int:
        """The time of the oldest deletion that is remembered, in nanoseconds since the Unix epoch."""
        return _cutoff_ns(now_ns, self._retention.deletion_memory)

    def _excess_share(self, connection: sqlite3.Connection) -> float:
        """The share of what the file holds that is too much."""
        told = (
            connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "freelist_count", "page_size")
        )
        pages, free, size = (int(number) for (number,) in told)
        used = (pages - free) * size
        return (used - (self._retention.max_bytes or 0)) / used


def _cutoff_ns(now_ns: int, age: timedelta) -> int:
    return max(0, now_ns - age // timedelta(microseconds=1) * 1000)


_DELETE_EXPIRED = "DELETE FROM runs WHERE key IN (SELECT key FROM runs WHERE time_ns < ? ORDER BY time_ns LIMIT ?)"
_DELETE_OLDEST = "DELETE FROM runs WHERE key IN (SELECT key FROM runs ORDER BY time_ns, key LIMIT ?)"


UNLIMITED_RETENTION = Retention()


def open_store(
    path: str | os.PathLike[str],
    *,
    read_only: bool = False,
    retention: Retention = UNLIMITED_RETENTION,
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
        ConnectionPool(Path(path), read_only=read_only, timeout=timeout),
        retention=retention,
        keep_arguments=keep_arguments,
        clock=clock,
    )


class SqliteStore(AggregateQueries):
    """Keeps evaluations in an SQLite file. Several threads and processes may use one file; see `Store`."""

    def __init__(
        self, connections: ConnectionPool, *, retention: Retention, keep_arguments: bool, clock: Callable[[], int]
    ) -> None:
        self._connections = connections
        self._keep_arguments = keep_arguments
        self._clock = clock
        self._pruning = RetentionPruner(retention)
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
        entries = [self._record(each, now_ns) for each in evaluations]
        with self._connections.transaction() as connection:
            for entry in entries:
                if not self._is_deleted(connection, entry, now_ns):
                    write_record(connection, entry, now_ns)
            deleted = self._pruning.prune_if_due(connection, now_ns, len(entries))
        if deleted:
            self._vacuum()

    def replace_if_current(self, evaluation: Evaluation, expected: tuple[int, str]) -> bool:
        """Keep an evaluation that was made of what was stored, if nothing else was stored of the run meanwhile.

        `seen` is the revision and the digest of the evaluation that was current then. Answers whether it still was;
        otherwise nothing is changed.
        """
        now_ns = self._clock()
        entry = self._record(evaluation, now_ns)
        with self._connections.transaction() as connection:
            unchanged = _current_revision(connection, entry.run_id) == expected
            if unchanged:
                write_record(connection, entry, now_ns)
        return unchanged

    def runs(
        self,
        filter: RunFilter = ALL_RUNS,  # noqa: A002 - the word for it
        *,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """The runs that are meant, newest first; at most 1,000 at once."""
        limit = _page_size(limit)
        query = RunQuery(filter, cursor)
        with self._connections.reader() as connection:
            rows = connection.execute(query.page_statement(limit + 1), query.parameters).fetchall()
        more = len(rows) > limit
        rows = rows[:limit]
        return Page(tuple(map(_stored_run, rows)), encode_cursor(rows[-1][1], rows[-1][2]) if more else None)

    def page_with_counts(
        self,
        filter: RunFilter = ALL_RUNS,  # noqa: A002
        *,
        limit: int = 50,
        cursor: str | None = None,
    ) -> tuple[Page, VerdictCounts]:
        """A page, and how many runs are meant in all. Where the page has all of them, they are looked for only once."""
        page = self.runs(filter, limit=limit, cursor=cursor)
        is_all = cursor is None and page.next_cursor is None
        return page, _count_verdicts(page.items) if is_all else self.count(filter)

    def iter_runs(self, run_filter: RunFilter = ALL_RUNS) -> Iterator[StoredRun]:
        """All runs that are meant, newest first, read a page at a time."""
        cursor: str | None = None
        while True:
            page = self.runs(run_filter, limit=MAX_PAGE_SIZE // 2, cursor=cursor)
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    def run(self, run_id: str) -> StoredRun | None:
        """One run, or `None`."""
        with self._connections.reader() as connection:
            row = connection.execute(_SELECT_RUN, (valid_unicode(run_id),)).fetchone()
        return None if row is None else _stored_run(row)

    def evaluations(self, run_id: str) -> tuple[StoredEvaluation, ...]:
        """All that is stored of one run, the oldest revision first."""
        with self._connections.reader() as connection:
            rows = connection.execute(_SELECT_EVALUATIONS, (valid_unicode(run_id),)).fetchall()
        return tuple(_stored_evaluation(*row) for row in rows)

    def current_revision(self, run_id: str) -> tuple[int, str] | None:
        """Revision and digest of a run's current evaluation, without its document; `None` where it is not stored."""
        with self._connections.reader() as connection:
            return _current_revision(connection, valid_unicode(run_id))

    def has_trace(self, trace_id: str) -> bool:
        """Whether a run with spans in that trace is stored."""
        with self._connections.reader() as connection:
            return connection.execute(_SELECT_TRACE, (valid_unicode(trace_id),)).fetchone() is not None

    def evaluations_after(self, after: int = 0, limit: int = 50) -> EvaluationPage:
        """What was stored after that place, in the order of storing; at most 1,000 at once.

        `after` is 0 to begin with, and then the `next_after` of the answer before.
        """
        with self._connections.reader() as connection:
            rows = connection.execute(_SELECT_EVALUATIONS_AFTER, (clamp_to_int64(after), _page_size(limit))).fetchall()
        return EvaluationPage(tuple(_stored_evaluation(*row[1:]) for row in rows), rows[-1][0] if rows else after)

    def metrics(self) -> tuple[str, ...]:
        """The names of all metrics of which there is a score, sorted."""
        with self._connections.reader() as connection:
            return tuple(name for (name,) in connection.execute(_SELECT_METRICS).fetchall())

    def delete_trace(self, trace_id: str) -> int:
        """Delete every run with spans in a trace. What stood in the file is overwritten, in the log beside it too.

        The id of the trace stays, for as long as the deletion is remembered, so that what comes later is not stored.
        Raises `StoreError` also where the runs are deleted and somebody else reads the file for so long that the log
        cannot be emptied; called once more, it empties the log.
        """
        with self._connections.transaction() as connection:
            connection.execute(_INSERT_DELETION, (valid_unicode(trace_id), self._clock()))
            deleted = connection.execute(_DELETE_TRACE, (valid_unicode(trace_id),)).rowcount
        if deleted:
            self._vacuum()
        with self._connections.writer() as connection:
            busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise StoreError(
                f"{self.path}: the runs are deleted, but what stood in them is still in the log beside the file, which "
                "another program reads; end that and delete the trace once more"
            )
        return deleted

    def delete_runs(self, run_ids: Iterable[str]) -> int:
        """Delete runs with all their evaluations, such as turned out to be parts of others; the number of runs.

        Unlike what was deleted by its trace, they may be stored again.
        """
        with self._connections.transaction() as connection:
            return sum(connection.execute(_DELETE_RUN, (valid_unicode(run_id),)).rowcount for run_id in run_ids)

    def prune(self) -> int:
        """Delete now what is kept no longer, and give the room back."""
        deleted = 0
        while True:
            with self._connections.transaction() as connection:
                batch = self._pruning.prune_batch(connection, self._clock())
            deleted += batch
            if not batch:
                break
            self._vacuum()
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
        target: ExportTarget,
        *,
        format: ExportFormat | None = None,  # noqa: A002 - the word for it
        filter: RunFilter = ALL_RUNS,  # noqa: A002
        overwrite: bool = False,
        observe: RunObserver = iter,
    ) -> int:
        """Write the runs that are meant to a file, newest first; the number of them.

        The format is told by how the name ends (`.csv`, `.parquet`, `.jsonl`), or by `format`. A file appears whole or
        not at all, and one that is there is replaced only with `overwrite`. `watch` may look at the runs on their way.
        """
        return export_runs(observe(self.iter_runs(filter)), target, format, metrics=self.metrics(), overwrite=overwrite)

    def _record(self, evaluation: Evaluation, now_ns: int) -> RunRecord:
        return record_of(evaluation, now_ns=now_ns, keep_arguments=self._keep_arguments)

    def _is_deleted(self, connection: sqlite3.Connection, entry: RunRecord, now_ns: int) -> bool:
        """Whether somebody had a trace of that run deleted a short time ago."""
        since_ns = self._pruning.tombstone_cutoff_ns(now_ns)
        asked = (connection.execute(_SELECT_DELETION, (trace_id, since_ns)) for trace_id in entry.trace_ids)
        return any(answer.fetchone() for answer in asked)

    def _vacuum(self) -> None:
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


_SELECT_RUN = """
    SELECT runs.run_id, runs.time_ns, runs.key, (SELECT count(*) FROM evaluations WHERE run = runs.key),
        current.revision, current.digest, current.stored_ns, current.document
    FROM runs JOIN evaluations AS current ON current.key = runs.current WHERE runs.run_id = ?
"""
_SELECT_EVALUATIONS = """
    SELECT runs.run_id, each.revision, each.digest, each.stored_ns, each.document
    FROM runs JOIN evaluations AS each ON each.run = runs.key WHERE runs.run_id = ? ORDER BY each.revision, each.key
"""
_SELECT_METRICS = """
    WITH RECURSIVE found(metric) AS (
        SELECT min(metric) FROM scores
        UNION ALL SELECT (SELECT min(metric) FROM scores WHERE metric > found.metric) FROM found WHERE metric NOT NULL
    ) SELECT metric FROM found WHERE metric NOT NULL
"""
"""Hops from name to name in the index: there are few of them, and many scores of each."""
_SELECT_CURRENT_REVISION = """
    SELECT current.revision, current.digest
    FROM runs JOIN evaluations AS current ON current.key = runs.current WHERE runs.run_id = ?
"""
_SELECT_EVALUATIONS_AFTER = """
    SELECT each.key, runs.run_id, each.revision, each.digest, each.stored_ns, each.document
    FROM evaluations AS each CROSS JOIN runs ON runs.key = each.run WHERE each.key > ? ORDER BY each.key LIMIT ?
"""
_SELECT_TRACE = "SELECT 1 FROM traces WHERE trace_id = ? LIMIT 1"
_DELETE_RUN = "DELETE FROM runs WHERE run_id = ?"
_DELETE_TRACE = "DELETE FROM runs WHERE key IN (SELECT run FROM traces WHERE trace_id = ?)"
_INSERT_DELETION = "INSERT OR REPLACE INTO deletions (trace_id, time_ns) VALUES (?, ?)"
_SELECT_DELETION = "SELECT 1 FROM deletions WHERE trace_id = ? AND time_ns >= ?"


def _page_size(limit: int) -> int:
    if limit < 1:
        raise ConfigurationError(f"limit must be at least 1, not {limit}")
    return min(limit, MAX_PAGE_SIZE)


def _current_revision(connection: sqlite3.Connection, run_id: str) -> tuple[int, str] | None:
    row = connection.execute(_SELECT_CURRENT_REVISION, (run_id,)).fetchone()
    return None if row is None else (row[0], row[1])


def _count_verdicts(runs: Iterable[StoredRun]) -> VerdictCounts:
    verdicts = Counter(run.current.document["passed"] for run in runs)
    return VerdictCounts(passed=verdicts[True], failed=verdicts[False], not_evaluated=verdicts[None])


def _stored_run(row: tuple[Any, ...]) -> StoredRun:
    run_id, time_ns, _, evaluations, *current = row
    return StoredRun(run_id, time_ns, evaluations, _stored_evaluation(run_id, *current))


def _stored_evaluation(run_id: str, revision: int, digest: str, stored_ns: int, document: str) -> StoredEvaluation:
    return StoredEvaluation(run_id, revision, digest, stored_ns, json.loads(document))
