"""Implements the store in one SQLite file: `SqliteStore`."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from goldspan.errors import StoreError
from goldspan.model import Evaluation
from goldspan.store.base_store import BaseStore
from goldspan.store.connection_pool import ConnectionPool
from goldspan.store.filter_conditions import clamp_to_int64, encode_cursor, page_size
from goldspan.store.queries import AggregateQueries, RunQuery
from goldspan.store.query_results import SELECT_METRICS, revision_of, stored_evaluation, stored_run
from goldspan.store.retention import MIN_BATCH_SIZE, RetentionSchedule
from goldspan.store.run_records import RunRecord, record_of, valid_unicode, write_records
from goldspan.store.store_protocol import (
    ALL_RUNS,
    EvaluationPage,
    Page,
    Retention,
    RunFilter,
    StoredEvaluation,
    StoredRun,
)


class RetentionPruner(RetentionSchedule):
    """Deletes the runs that exceed the retention of a store."""

    def prune_if_due(self, connection: sqlite3.Connection, now_ns: int, stored: int) -> int:
        """Delete a batch if a check is due, in the transaction that stores evaluations; return the number of runs."""
        batch_size = self.batch_size(now_ns, stored)
        if not batch_size:
            return 0
        deleted = self.prune_batch(connection, now_ns, batch_size)
        self.record_check(deleted)
        return deleted

    def prune_batch(self, connection: sqlite3.Connection, now_ns: int, max_runs: int = MIN_BATCH_SIZE) -> int:
        """Delete at most `max_runs` of the oldest runs that exceed the retention; return their number."""
        deleted = 0
        connection.execute("DELETE FROM deletions WHERE time_ns < ?", (self.tombstone_cutoff_ns(now_ns),))
        if (before := self.oldest_kept_ns(now_ns)) is not None:
            deleted = connection.execute(_DELETE_EXPIRED, (before, max_runs)).rowcount
        if self.retention.max_bytes is not None and (share := self._excess_share(connection)) > 0:
            (runs,) = connection.execute("SELECT count(*) FROM runs").fetchone()
            deleted += connection.execute(_DELETE_OLDEST, (min(max_runs - deleted, int(runs * share) + 1),)).rowcount
        return deleted

    def _excess_share(self, connection: sqlite3.Connection) -> float:
        """Return the share of the file's content that exceeds `max_bytes`."""
        rows = (
            connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "freelist_count", "page_size")
        )
        pages, free, size = (int(number) for (number,) in rows)
        used = (pages - free) * size
        return (used - (self.retention.max_bytes or 0)) / used


_DELETE_EXPIRED = "DELETE FROM runs WHERE key IN (SELECT key FROM runs WHERE time_ns < ? ORDER BY time_ns LIMIT ?)"
_DELETE_OLDEST = "DELETE FROM runs WHERE key IN (SELECT key FROM runs ORDER BY time_ns, key LIMIT ?)"


class SqliteStore(AggregateQueries, BaseStore):
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

    @property
    def location(self) -> str:
        """The file, as messages name it."""
        return str(self.path)

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
        limit = page_size(limit)
        query = RunQuery(filter, cursor)
        with self._connections.reader() as connection:
            rows = connection.execute(query.page_statement(limit + 1), query.parameters).fetchall()
        has_more = len(rows) > limit
        rows = rows[:limit]
        return Page(tuple(map(stored_run, rows)), encode_cursor(rows[-1][1], rows[-1][2]) if has_more else None)

    def run(self, run_id: str) -> StoredRun | None:
        """Return one run, or `None` if it is not stored."""
        with self._connections.reader() as connection:
            row = connection.execute(_SELECT_RUN, (valid_unicode(run_id),)).fetchone()
        return None if row is None else stored_run(row)

    def evaluations(self, run_id: str) -> tuple[StoredEvaluation, ...]:
        """Return all evaluations of one run, the oldest revision first."""
        with self._connections.reader() as connection:
            rows = connection.execute(_SELECT_EVALUATIONS, (valid_unicode(run_id),)).fetchall()
        return tuple(stored_evaluation(*row) for row in rows)

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
            rows = connection.execute(_SELECT_EVALUATIONS_AFTER, (clamp_to_int64(after), page_size(limit))).fetchall()
        return EvaluationPage(tuple(stored_evaluation(*row[1:]) for row in rows), rows[-1][0] if rows else after)

    def metrics(self) -> tuple[str, ...]:
        """Return the names of all metrics that have a score, sorted."""
        with self._connections.reader() as connection:
            return tuple(name for (name,) in connection.execute(SELECT_METRICS).fetchall())

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


def _current_revision(connection: sqlite3.Connection, run_id: str) -> tuple[int, str] | None:
    return revision_of(connection.execute(_SELECT_CURRENT_REVISION, (run_id,)).fetchone())
