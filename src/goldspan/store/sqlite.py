"""Implements the store in one SQLite file: `SqliteStore` and `open_store`."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

from goldspan.errors import ConfigurationError, StoreError
from goldspan.model import Evaluation
from goldspan.store.connection_pool import ConnectionPool
from goldspan.store.data_frames import StoreFrames
from goldspan.store.queries import AggregateQueries, RunQuery, clamp_to_int64, encode_cursor
from goldspan.store.run_export import export_runs
from goldspan.store.run_records import RunRecord, record_of, valid_unicode, write_records
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
"""Runs deleted at once; twice the number just stored, if that is more, so that pruning keeps up."""
_CHECK_EVERY_EVALUATIONS = 250
"""How many evaluations are stored between two checks."""
_CHECK_EVERY_NS = 60 * 10**9
"""The maximum time between two checks, if few evaluations are stored."""


class RetentionPruner:
    """Deletes the runs that exceed the retention of a store."""

    def __init__(self, retention: Retention) -> None:
        self._retention = retention
        self._stored_since_check = _CHECK_EVERY_EVALUATIONS
        self._last_check_ns = 0

    def prune_if_due(self, connection: sqlite3.Connection, now_ns: int, stored: int) -> int:
        """Delete a batch if a check is due, in the transaction that stores evaluations; return the number of runs."""
        self._stored_since_check += stored
        if self._stored_since_check < _CHECK_EVERY_EVALUATIONS and now_ns - self._last_check_ns < _CHECK_EVERY_NS:
            return 0
        self._last_check_ns = now_ns
        deleted = self.prune_batch(connection, now_ns, max(_MIN_BATCH_SIZE, 2 * stored))
        # After a deletion, the next call checks again because there may be more to delete.
        self._stored_since_check = _CHECK_EVERY_EVALUATIONS if deleted else 0
        return deleted

    def prune_batch(self, connection: sqlite3.Connection, now_ns: int, max_runs: int = _MIN_BATCH_SIZE) -> int:
        """Delete at most `max_runs` of the oldest runs that exceed the retention; return their number."""
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
        """Return the time of the oldest remembered deletion, in nanoseconds since the Unix epoch."""
        return _cutoff_ns(now_ns, self._retention.deletion_memory)

    def _excess_share(self, connection: sqlite3.Connection) -> float:
        """Return the share of the file's content that exceeds `max_bytes`."""
        rows = (
            connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "freelist_count", "page_size")
        )
        pages, free, size = (int(number) for (number,) in rows)
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
    """Open a store. Create the file if it does not exist, and upgrade one that an older goldspan wrote.

    Args:
        path: The SQLite file.
        read_only: Open an existing file for reading only.
        retention: How much the store keeps.
        keep_arguments: Also store values: arguments, results, error messages, outputs and metadata.
        timeout: How many seconds a write waits for other processes.
        clock: Returns the current time in nanoseconds since the Unix epoch.

    Returns:
        The store, to be closed or used as a context manager.

    Raises:
        StoreError: The file is no store, is damaged, locked, or of a newer goldspan; or it cannot be written and
            `read_only` is not set.
    """
    return SqliteStore(
        ConnectionPool(Path(path), read_only=read_only, timeout=timeout),
        retention=retention,
        keep_arguments=keep_arguments,
        clock=clock,
    )


class SqliteStore(AggregateQueries, StoreFrames):
    """Stores evaluations in an SQLite file, which several threads and processes can share; see `Store`."""

    def __init__(
        self, connections: ConnectionPool, *, retention: Retention, keep_arguments: bool, clock: Callable[[], int]
    ) -> None:
        self._connections = connections
        self._keep_arguments = keep_arguments
        self._clock = clock
        self._pruning = RetentionPruner(retention)
        with connections.reader() if connections.read_only else connections.writer():
            pass  # open the file now, so that an error is raised here

    @property
    def path(self) -> Path:
        """The file."""
        return self._connections.path

    def submit(self, evaluation: Evaluation) -> None:
        """Store one evaluation."""
        self.submit_many((evaluation,))

    def submit_many(self, evaluations: Iterable[Evaluation]) -> None:
        """Store several evaluations in one transaction, and regularly delete a batch that exceeds the retention."""
        now_ns = self._clock()
        records = [self._record(evaluation, now_ns) for evaluation in evaluations]
        with self._connections.transaction() as connection:
            write_records(connection, self._without_deleted(connection, records, now_ns), now_ns)
            deleted = self._pruning.prune_if_due(connection, now_ns, len(records))
        if deleted:
            self._vacuum()

    def replace_if_current(self, evaluation: Evaluation, expected: tuple[int, str]) -> bool:
        """Store an evaluation only if the current evaluation of its run is still the expected one (compare and swap).

        `expected` is the revision and the digest of the evaluation from which the new one was made. Returns whether it
        was still current; if not, nothing is stored.
        """
        now_ns = self._clock()
        record = self._record(evaluation, now_ns)
        with self._connections.transaction() as connection:
            is_current = _current_revision(connection, record.run_id) == expected
            if is_current:
                write_records(connection, [record], now_ns)
        return is_current

    def runs(
        self,
        filter: RunFilter = ALL_RUNS,  # noqa: A002 - the usual name
        *,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """Return a page of at most 1,000 runs that match, newest first."""
        limit = _page_size(limit)
        query = RunQuery(filter, cursor)
        with self._connections.reader() as connection:
            rows = connection.execute(query.page_statement(limit + 1), query.parameters).fetchall()
        has_more = len(rows) > limit
        rows = rows[:limit]
        return Page(tuple(map(_stored_run, rows)), encode_cursor(rows[-1][1], rows[-1][2]) if has_more else None)

    def page_with_counts(
        self,
        filter: RunFilter = ALL_RUNS,  # noqa: A002
        *,
        limit: int = 50,
        cursor: str | None = None,
    ) -> tuple[Page, VerdictCounts]:
        """Return a page and the counts of all runs that match, with one query if they fit on the page."""
        page = self.runs(filter, limit=limit, cursor=cursor)
        is_all = cursor is None and page.next_cursor is None
        return page, _count_verdicts(page.items) if is_all else self.count(filter)

    def iter_runs(self, run_filter: RunFilter = ALL_RUNS) -> Iterator[StoredRun]:
        """Iterate over all runs that match, newest first, a page at a time."""
        cursor: str | None = None
        while True:
            page = self.runs(run_filter, limit=MAX_PAGE_SIZE // 2, cursor=cursor)
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    def run(self, run_id: str) -> StoredRun | None:
        """Return one run, or `None` if it is not stored."""
        with self._connections.reader() as connection:
            row = connection.execute(_SELECT_RUN, (valid_unicode(run_id),)).fetchone()
        return None if row is None else _stored_run(row)

    def evaluations(self, run_id: str) -> tuple[StoredEvaluation, ...]:
        """Return all evaluations of one run, the oldest revision first."""
        with self._connections.reader() as connection:
            rows = connection.execute(_SELECT_EVALUATIONS, (valid_unicode(run_id),)).fetchall()
        return tuple(_stored_evaluation(*row) for row in rows)

    def current_revision(self, run_id: str) -> tuple[int, str] | None:
        """Return revision and digest of a run's current evaluation, or `None`, without reading its document."""
        with self._connections.reader() as connection:
            return _current_revision(connection, valid_unicode(run_id))

    def has_trace(self, trace_id: str) -> bool:
        """Return whether a run with spans in this trace is stored."""
        with self._connections.reader() as connection:
            return connection.execute(_SELECT_TRACE, (valid_unicode(trace_id),)).fetchone() is not None

    def evaluations_after(self, after: int = 0, limit: int = 50) -> EvaluationPage:
        """Return at most 1,000 evaluations stored after a position, in the order in which they were stored.

        `after` is 0 for the first call, then the `next_after` of the previous page.
        """
        with self._connections.reader() as connection:
            rows = connection.execute(_SELECT_EVALUATIONS_AFTER, (clamp_to_int64(after), _page_size(limit))).fetchall()
        return EvaluationPage(tuple(_stored_evaluation(*row[1:]) for row in rows), rows[-1][0] if rows else after)

    def metrics(self) -> tuple[str, ...]:
        """Return the names of all metrics that have a score, sorted."""
        with self._connections.reader() as connection:
            return tuple(name for (name,) in connection.execute(_SELECT_METRICS).fetchall())

    def delete_trace(self, trace_id: str) -> int:
        """Delete every run with spans in a trace, and overwrite its content in the file and in the log.

        The store keeps the id of the trace for the time of `Retention.deletion_memory`, to drop evaluations that arrive
        later. Raises `StoreError` also if the runs are deleted but another program reads the file for so long that the
        log cannot be emptied; a second call then empties it.
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
                f"{self.path}: the runs are deleted, but their content is still in the write-ahead log, which another "
                "program reads; stop that program and delete the trace again"
            )
        return deleted

    def delete_runs(self, run_ids: Iterable[str]) -> int:
        """Delete runs with all their evaluations, for example runs that turned out to be parts of others.

        Returns the number of deleted runs. Unlike after `delete_trace`, they can be stored again.
        """
        with self._connections.transaction() as connection:
            return sum(connection.execute(_DELETE_RUN, (valid_unicode(run_id),)).rowcount for run_id in run_ids)

    def prune(self) -> int:
        """Apply the retention now, and shrink the file. Returns the number of deleted runs."""
        deleted = 0
        while True:
            with self._connections.transaction() as connection:
                batch = self._pruning.prune_batch(connection, self._clock())
            deleted += batch
            if not batch:
                break
            self._vacuum()
        with self._connections.writer() as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()  # only this shrinks the file itself
        return deleted

    def check(self) -> None:
        """Read the whole file; raise `StoreError` if it is damaged."""
        with self._connections.reader() as connection:
            (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            if found != "ok":
                raise sqlite3.DatabaseError(f"malformed: {found.splitlines()[-1]}")

    def export(
        self,
        target: ExportTarget,
        *,
        format: ExportFormat | None = None,  # noqa: A002 - the usual name
        filter: RunFilter = ALL_RUNS,  # noqa: A002
        overwrite: bool = False,
        observe: RunObserver = iter,
    ) -> int:
        """Write the runs that match to a file or a binary stream, newest first.

        A file appears only when it is complete.

        Args:
            target: The path of a file, or a binary stream.
            format: `csv`, `parquet` or `jsonl`; by default the suffix of the file's name.
            filter: Selects the runs.
            overwrite: Replace an existing file.
            observe: Called with the runs before they are written, for example to report progress.

        Returns:
            The number of runs.

        Raises:
            ConfigurationError: The format is unknown.
            StoreError: The file exists and `overwrite` is not set, or it cannot be written.
        """
        return export_runs(observe(self.iter_runs(filter)), target, format, metrics=self.metrics(), overwrite=overwrite)

    def _record(self, evaluation: Evaluation, now_ns: int) -> RunRecord:
        return record_of(evaluation, now_ns=now_ns, keep_arguments=self._keep_arguments)

    def _without_deleted(
        self, connection: sqlite3.Connection, records: Sequence[RunRecord], now_ns: int
    ) -> Sequence[RunRecord]:
        """Return the records of runs of which no trace was deleted recently."""
        if connection.execute(_SELECT_ANY_DELETION).fetchone() is None:
            return records
        since_ns = self._pruning.tombstone_cutoff_ns(now_ns)

        def is_deleted(trace_id: str) -> bool:
            return connection.execute(_SELECT_DELETION, (trace_id, since_ns)).fetchone() is not None

        return [record for record in records if not any(map(is_deleted, record.trace_ids))]

    def _vacuum(self) -> None:
        """Return free pages to the operating system. As a script, which steps the pragma to its end."""
        with self._connections.writer() as connection:
            connection.executescript("PRAGMA incremental_vacuum")

    def close(self) -> None:
        """Close the store."""
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
    SELECT runs.run_id, evaluation.revision, evaluation.digest, evaluation.stored_ns, evaluation.document
    FROM runs JOIN evaluations AS evaluation ON evaluation.run = runs.key WHERE runs.run_id = ?
    ORDER BY evaluation.revision, evaluation.key
"""
_SELECT_METRICS = """
    WITH RECURSIVE found(metric) AS (
        SELECT min(metric) FROM scores
        UNION ALL SELECT (SELECT min(metric) FROM scores WHERE metric > found.metric) FROM found WHERE metric NOT NULL
    ) SELECT metric FROM found WHERE metric NOT NULL
"""
"""Skips from name to name in the index (loose index scan), because there are few names with many scores each."""
_SELECT_CURRENT_REVISION = """
    SELECT current.revision, current.digest
    FROM runs JOIN evaluations AS current ON current.key = runs.current WHERE runs.run_id = ?
"""
_SELECT_EVALUATIONS_AFTER = """
    SELECT evaluation.key, runs.run_id, evaluation.revision, evaluation.digest, evaluation.stored_ns,
        evaluation.document
    FROM evaluations AS evaluation CROSS JOIN runs ON runs.key = evaluation.run WHERE evaluation.key > ?
    ORDER BY evaluation.key LIMIT ?
"""
_SELECT_TRACE = "SELECT 1 FROM traces WHERE trace_id = ? LIMIT 1"
_DELETE_RUN = "DELETE FROM runs WHERE run_id = ?"
_DELETE_TRACE = "DELETE FROM runs WHERE key IN (SELECT run FROM traces WHERE trace_id = ?)"
_INSERT_DELETION = "INSERT OR REPLACE INTO deletions (trace_id, time_ns) VALUES (?, ?)"
_SELECT_ANY_DELETION = "SELECT 1 FROM deletions LIMIT 1"
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
