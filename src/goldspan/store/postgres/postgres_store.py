"""Implements the store in a PostgreSQL database: `PostgresStore` and `open_postgres`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from goldspan.errors import StoreError
from goldspan.model import Evaluation
from goldspan.store.base_store import BaseStore
from goldspan.store.filter_conditions import Condition, clamp_to_int64, encode_cursor, page_size
from goldspan.store.postgres import postgres_tables, run_writer
from goldspan.store.postgres.partitions import Partitions, bytes_of_weeks, existing_weeks
from goldspan.store.postgres.run_selection import VERDICT_COLUMNS, RunSelection
from goldspan.store.postgres.run_writer import DELETED_COLUMNS, original_text, stored_key
from goldspan.store.postgres.sessions import MissingPartitionError, ResultT, Session, Sessions
from goldspan.store.query_results import (
    SELECT_METRICS,
    bucket_limit,
    group_counts,
    require_group_field,
    revision_of,
    stored_evaluation,
    stored_run,
    substitution_counts,
    time_buckets,
    tool_counts,
    verdict_counts,
)
from goldspan.store.retention import MIN_BATCH_SIZE, RetentionSchedule
from goldspan.store.run_records import RunRecord, record_of
from goldspan.store.store_protocol import (
    ALL_RUNS,
    EvaluationPage,
    GroupBy,
    GroupCounts,
    Page,
    Retention,
    RunFilter,
    StoredEvaluation,
    StoredRun,
    Substitution,
    TimeBucket,
    ToolCounts,
    VerdictCounts,
)

_log = logging.getLogger("goldspan")

_PARTITION_ATTEMPTS = 3
"""How often a write is tried if another process drops its partition meanwhile."""


def open_postgres(
    url: str,
    *,
    display_name: str,
    read_only: bool,
    retention: Retention,
    keep_arguments: bool,
    timeout: float,
    clock: Callable[[], int],
) -> PostgresStore:
    """Open the store in a database; create or upgrade its tables if they need it, unless `read_only` is set."""
    sessions = Sessions(url, display_name=display_name, read_only=read_only, timeout=timeout)
    try:
        if read_only:
            sessions.read(
                lambda session: postgres_tables.require_current_version(session, display_name), is_snapshot=True
            )
        else:
            sessions.write(lambda session, _: postgres_tables.migrate(session, clock(), display_name))
    except BaseException:
        sessions.close()
        raise
    return PostgresStore(sessions, retention=retention, keep_arguments=keep_arguments, clock=clock)


class PostgresStore(BaseStore):
    """Stores evaluations in a PostgreSQL database, which several gateways can share; see `Store`."""

    def __init__(
        self, sessions: Sessions, *, retention: Retention, keep_arguments: bool, clock: Callable[[], int]
    ) -> None:
        self._sessions = sessions
        self._keep_arguments = keep_arguments
        self._clock = clock
        self._schedule = RetentionSchedule(retention)
        self._partitions = Partitions(sessions)

    @property
    def location(self) -> str:
        """The URL without passwords."""
        return self._sessions.display_name

    # --- writing ------------------------------------------------------------------------------------------------------

    def submit_many(self, evaluations: Iterable[Evaluation]) -> None:
        """Store several evaluations in one transaction, and regularly delete a batch that exceeds the retention."""
        now_ns = self._clock()
        records = [self._record(evaluation, now_ns) for evaluation in evaluations]
        if not records:
            return

        def write(session: Session, _: int) -> None:
            store = run_writer.lock_store(session, self.location)
            self._write_records(session, records, now_ns, store)

        self._write_to_partitions(records, now_ns, write)
        if batch_size := self._schedule.batch_size(now_ns, len(records)):
            try:
                self._schedule.record_check(self._prune_batch(now_ns, batch_size))
            except StoreError as error:  # the evaluations are stored; the next check continues
                _log.warning("goldspan cannot apply the retention of the store: %s", error)

    def replace_if_current(self, evaluation: Evaluation, expected: tuple[int, str]) -> bool:
        """Store an evaluation only if the current evaluation of its run is still the expected one (compare and swap).

        `expected` is the revision and the digest of the evaluation from which the new one was made. Returns whether it
        was still current; if not, nothing is stored.
        """
        now_ns = self._clock()
        record = self._record(evaluation, now_ns)

        def write(session: Session, failures: int) -> bool:
            store = run_writer.lock_store(session, self.location)
            current = _current_revision(session, record.run_id)
            if failures and current == (record.revision, record.digest):
                return True  # the connection was lost after the commit
            if current != expected:
                return False
            self._write_records(session, [record], now_ns, store, deleted_since_ns=2**63 - 1)
            return True

        return self._write_to_partitions([record], now_ns, write)

    def delete_trace(self, trace_id: str) -> int:
        """Delete every run with spans in a trace.

        The store keeps the id of the trace for the time of `Retention.deletion_memory`, to drop evaluations that arrive
        later. PostgreSQL overwrites the content when it vacuums the tables, and keeps it in its write-ahead log and in
        backups for as long as they are kept.
        """
        wanted = stored_key(trace_id)
        return self._delete(
            Condition(
                f"SELECT {DELETED_COLUMNS} FROM runs WHERE (time_ns, key) IN"
                " (SELECT time_ns, run FROM traces WHERE trace_id = %s)",
                (wanted,),
            ),
            Condition(
                "INSERT INTO deletions (trace_id, time_ns) VALUES (%s, %s)"
                " ON CONFLICT (trace_id) DO UPDATE SET time_ns = excluded.time_ns",
                (wanted, self._clock()),
            ),
        )

    def delete_runs(self, run_ids: Iterable[str]) -> int:
        """Delete runs with all their evaluations, for example runs that turned out to be parts of others.

        Returns the number of deleted runs. Unlike after `delete_trace`, they can be stored again.
        """
        wanted = list(map(stored_key, run_ids))
        return self._delete(Condition(f"SELECT {DELETED_COLUMNS} FROM runs WHERE run_id = ANY(%s)", (wanted,)))

    def prune(self) -> int:
        """Apply the retention now. Returns the number of deleted runs."""
        deleted = 0
        while batch := self._prune_batch(self._clock(), MIN_BATCH_SIZE):
            deleted += batch
        return deleted

    # --- reading ------------------------------------------------------------------------------------------------------

    def runs(
        self,
        filter: RunFilter = ALL_RUNS,  # noqa: A002 - the usual name
        *,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """Return a page of at most 1,000 runs that match, newest first."""
        limit = page_size(limit)
        selection = RunSelection(filter)

        def read(session: Session) -> list[tuple[Any, ...]]:
            statement = selection.page(session, limit + 1, cursor)
            return [] if statement is None else session.execute(*_query(statement)).fetchall()

        rows = _original(self._sessions.read(read, is_snapshot=True))
        has_more = len(rows) > limit
        rows = rows[:limit]
        return Page(tuple(map(stored_run, rows)), encode_cursor(rows[-1][1], rows[-1][2]) if has_more else None)

    def run(self, run_id: str) -> StoredRun | None:
        """Return one run, or `None` if it is not stored."""
        rows = self._rows(Condition(_SELECT_RUN, (stored_key(run_id),)))
        return stored_run(rows[0]) if rows else None

    def evaluations(self, run_id: str) -> tuple[StoredEvaluation, ...]:
        """Return all evaluations of one run, the oldest revision first."""
        rows = self._rows(Condition(_SELECT_EVALUATIONS, (stored_key(run_id),)))
        return tuple(stored_evaluation(*row) for row in rows)

    def current_revision(self, run_id: str) -> tuple[int, str] | None:
        """Return revision and digest of a run's current evaluation, or `None`, without reading its document."""
        return self._sessions.read(lambda session: _current_revision(session, run_id))

    def has_trace(self, trace_id: str) -> bool:
        """Return whether a run with spans in this trace is stored."""
        return bool(self._rows(Condition(_SELECT_TRACE, (stored_key(trace_id),))))

    def evaluations_after(self, after: int = 0, limit: int = 50) -> EvaluationPage:
        """Return at most 1,000 evaluations stored after a position, in the order in which they were stored.

        `after` is 0 for the first call, then the `next_after` of the previous page.
        """
        rows = self._rows(Condition(_SELECT_EVALUATIONS_AFTER, (clamp_to_int64(after), page_size(limit))))
        return EvaluationPage(tuple(stored_evaluation(*row[1:]) for row in rows), rows[-1][0] if rows else after)

    def metrics(self) -> tuple[str, ...]:
        """Return the names of all metrics that have a score, sorted."""
        return tuple(sorted(name for (name,) in self._rows(Condition(SELECT_METRICS, ()))))

    def last_sequence_number(self) -> int:
        """Return the `after` argument with which `evaluations_after` returns only what is stored from now on."""
        ((number,),) = self._rows(Condition("SELECT last_evaluation FROM store", ()))
        return int(number)

    # --- counting -----------------------------------------------------------------------------------------------------

    def count(self, filter: RunFilter = ALL_RUNS) -> VerdictCounts:  # noqa: A002
        """Count the runs that match, by verdict."""
        ((total, evaluated, passed),) = self._rows(RunSelection(filter).grouped(VERDICT_COLUMNS))
        return verdict_counts(total or 0, evaluated, passed)

    def count_by(self, by: GroupBy, filter: RunFilter = ALL_RUNS) -> tuple[GroupCounts, ...]:  # noqa: A002
        """Count the runs that match for each golden, agent, service, environment or unit; most runs first."""
        require_group_field(by)
        statement = RunSelection(filter).grouped(f"run_groups.{by}, max(cells.last_ns), {VERDICT_COLUMNS}")
        return group_counts(self._rows(Condition(f"{statement.sql} GROUP BY run_groups.{by}", statement.values)))

    def trend(self, filter: RunFilter = ALL_RUNS, *, buckets: int = 40) -> tuple[TimeBucket, ...]:  # noqa: A002
        """Count the runs that match in at most `buckets` time intervals of equal length, the oldest first."""
        limit = bucket_limit(buckets)
        selection = RunSelection(filter)

        def read(session: Session) -> tuple[int, int, int, list[tuple[Any, ...]]] | None:
            ends = selection.grouped("min(cells.first_ns), max(cells.last_ns) + 1")
            oldest, newest = session.execute(*_query(ends)).fetchone() or (None, None)
            if oldest is None or newest is None:
                return None
            wanted = selection.time_range
            began = oldest if wanted.begin is None else wanted.begin
            ended = newest if wanted.end is None else wanted.end
            width = (ended - began - 1) // limit + 1
            cells = selection.cells_of_intervals(began, ended, width)
            counts = selection.grouped(
                f"(cells.first_ns - %s) / %s AS number, {VERDICT_COLUMNS}", cells, extra_values=(began, width)
            )
            rows = session.execute(*_query(Condition(f"{counts.sql} GROUP BY number", counts.values))).fetchall()
            return began, ended, width, rows

        found = self._sessions.read(read, is_snapshot=True)
        return () if found is None else time_buckets(*found)

    def tool_counts(self, filter: RunFilter = ALL_RUNS) -> tuple[ToolCounts, ...]:  # noqa: A002
        """Count, for each tool, the matching runs in which it has each role; most problems first."""
        return tool_counts(self._rows(RunSelection(filter).tools()))

    def substitutions(self, filter: RunFilter = ALL_RUNS) -> tuple[Substitution, ...]:  # noqa: A002
        """Return which tool was called in place of which, with the number of matching runs; most runs first."""
        return substitution_counts(self._rows(RunSelection(filter).substitutions()))

    # --- maintenance --------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Read all runs and counts; raise `StoreError` if they contradict each other."""
        problems = self._sessions.read(
            lambda session: [
                problem for problem, statement in _CHECKS.items() if session.execute(statement).fetchone() != (0,)
            ],
            is_snapshot=True,
        )
        if problems:
            raise StoreError(f"{self.location}: it is damaged: {'; '.join(problems)}; restore a backup")

    def close(self) -> None:
        """Close the connections."""
        self._sessions.close()

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _record(self, evaluation: Evaluation, now_ns: int) -> RunRecord:
        return record_of(evaluation, now_ns=now_ns, keep_arguments=self._keep_arguments)

    def _rows(self, statement: Condition) -> list[tuple[Any, ...]]:
        return _original(self._sessions.read(lambda session: session.execute(*_query(statement)).fetchall()))

    def _write_records(
        self,
        session: Session,
        records: Sequence[RunRecord],
        now_ns: int,
        store: run_writer.StoreRow,
        deleted_since_ns: int | None = None,
    ) -> None:
        since_ns = self._schedule.tombstone_cutoff_ns(now_ns) if deleted_since_ns is None else deleted_since_ns
        run_writer.write_records(session, records, now_ns, deleted_since_ns=since_ns, store=store)

    def _write_to_partitions(
        self, records: Sequence[RunRecord], now_ns: int, write: Callable[[Session, int], ResultT]
    ) -> ResultT:
        for _ in range(_PARTITION_ATTEMPTS):
            self._partitions.create([record.time_ns for record in records], now_ns)
            try:
                return self._sessions.write(write)
            except MissingPartitionError as error:
                missing = error
                self._partitions.forget()
        raise missing

    def _delete(self, found: Condition, also: Condition | None = None) -> int:
        """Delete the runs that a statement finds. Returns their number, also if the connection is lost at the end."""
        numbers: list[int] = []

        def write(session: Session, _: int) -> int:
            run_writer.lock_store(session, self.location)
            if also is not None:
                session.execute(*_query(also))
            numbers.append(run_writer.delete_rows(session, session.execute(*_query(found)).fetchall()))
            return max(numbers)

        return self._sessions.write(write)

    def _prune_batch(self, now_ns: int, max_runs: int) -> int:
        """Drop the weeks that exceed the retention, then at most `max_runs` older runs; return their number."""
        cutoff_ns = self._schedule.tombstone_cutoff_ns(now_ns)

        def forget_deletions(session: Session, _: int) -> None:
            session.execute("DELETE FROM deletions WHERE time_ns < %s", (cutoff_ns,))

        self._sessions.write(forget_deletions)
        deleted = self._partitions.drop(weeks) if (weeks := self._excess_weeks(now_ns)) else 0
        if (before := self._schedule.oldest_kept_ns(now_ns)) is not None:
            deleted += self._delete(
                Condition(
                    f"SELECT {DELETED_COLUMNS} FROM runs WHERE time_ns < %s ORDER BY time_ns LIMIT %s",
                    (before, max_runs),
                )
            )
        return deleted

    def _excess_weeks(self, now_ns: int) -> Sequence[int]:
        before = self._schedule.oldest_kept_ns(now_ns)
        max_bytes = self._schedule.retention.max_bytes
        if before is None and max_bytes is None:
            return ()
        weeks = self._sessions.read(existing_weeks)
        excess = {week for week in weeks if before is not None and (week + 1) * postgres_tables.WEEK_NS <= before}
        if max_bytes is not None:
            sizes = self._sessions.read(bytes_of_weeks)
            left = sum(size for week, size in sizes.items() if week not in excess)
            past = [week for week in weeks if week not in excess and week < now_ns // postgres_tables.WEEK_NS]
            for week in past:
                if left <= max_bytes:
                    break
                excess.add(week)
                left -= sizes.get(week, 0)
        return sorted(excess)


def _query(statement: Condition) -> tuple[str, tuple[Any, ...]]:
    """Return the arguments of `execute`. All SQL is written in this package; values are always parameters."""
    return statement.sql, statement.values


def _original(rows: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
    return [tuple(map(original_text, row)) for row in rows]


def _current_revision(session: Session, run_id: str) -> tuple[int, str] | None:
    return revision_of(session.execute(_SELECT_CURRENT_REVISION, (stored_key(run_id),)).fetchone())


_CURRENT = (
    "FROM runs JOIN evaluations AS current ON current.time_ns = runs.time_ns AND current.key = runs.current"
    " WHERE runs.run_id = %s"
)
_SELECT_RUN = (
    "SELECT runs.run_id, runs.time_ns, runs.key, runs.evaluations, current.revision, current.digest, current.stored_ns,"
    f" current.document {_CURRENT}"
)
_SELECT_CURRENT_REVISION = f"SELECT current.revision, current.digest {_CURRENT}"
_SELECT_EVALUATIONS = """
    SELECT run_id, revision, digest, stored_ns, document FROM evaluations WHERE run_id = %s ORDER BY revision, key
"""
_SELECT_EVALUATIONS_AFTER = """
    SELECT key, run_id, revision, digest, stored_ns, document FROM evaluations WHERE key > %s ORDER BY key LIMIT %s
"""
_SELECT_TRACE = "SELECT 1 FROM traces WHERE trace_id = %s LIMIT 1"
_CHECKS = {
    f"the counts of {name} differ from the runs": (
        f"SELECT (SELECT count(*) FROM runs) - (SELECT coalesce(sum(runs), 0) FROM run_counts WHERE grain = {grain})"
    )
    for name, grain in (("hours", run_writer.HOURS), ("days", run_writer.DAYS))
} | {
    "runs have no current evaluation": (
        "SELECT count(*) FROM runs LEFT JOIN evaluations AS current ON current.time_ns = runs.time_ns"
        " AND current.key = runs.current WHERE current.document IS NULL"
    ),
    "runs have no group": "SELECT count(*) FROM runs LEFT JOIN run_groups USING (run_group) WHERE unit IS NULL",
}
