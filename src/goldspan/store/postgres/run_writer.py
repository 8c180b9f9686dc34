"""Stores and deletes runs with their index rows and counts, while the store is locked."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from goldspan.store.postgres.postgres_tables import require_known_version
from goldspan.store.postgres.sessions import Session
from goldspan.store.run_records import RunRecord, valid_unicode

HOUR_NS = 3600 * 10**9
DAY_NS = 24 * HOUR_NS
HOURS, DAYS = 1, 2
"""The grains of `run_counts`."""

_NUL, _STORED_NUL = "\0", "\ufdd0"
"""PostgreSQL cannot store the character NUL. The other one is not a character, so no text contains it."""


def stored_text(text: str) -> str:
    """Return a text in the form in which it is stored."""
    return valid_unicode(text).replace(_NUL, _STORED_NUL)


def stored_key(text: str) -> str:
    """Return a text in the form in which it is stored in a column with an index, whose entries have a maximum size.

    A longer text is replaced by its beginning and its hash. So it can still be found, and a client that sends one does
    not prevent the others from being stored.
    """
    text = stored_text(text)
    encoded = text.encode()
    if len(encoded) <= _MAX_KEY_BYTES:
        return text
    return f"{text[:_KEPT_CHARACTERS]}…{hashlib.sha256(encoded).hexdigest()}"


def original_text(value: Any) -> Any:
    """Return the value of a column as it was before it was stored."""
    return value.replace(_STORED_NUL, _NUL) if isinstance(value, str) and _STORED_NUL in value else value


_MAX_KEY_BYTES = 600
"""The server allows 2,704 bytes for an entry of an index, which has at most three texts."""
_KEPT_CHARACTERS = 100


class StoreRow(NamedTuple):
    """The row of the table `store`."""

    version: int
    last_run: int
    last_evaluation: int
    weeks_since_ns: int


def lock_store(session: Session, display_name: str) -> StoreRow:
    """Wait until no other transaction writes, and return the counters."""
    row = session.execute("SELECT version, last_run, last_evaluation, weeks_since_ns FROM store FOR UPDATE").fetchone()
    found = StoreRow(*(row or (0, 0, 0, 0)))
    require_known_version(found.version, display_name)
    return found


@dataclass(slots=True)
class _RunState:
    """A run while a batch is stored."""

    key: int
    time_ns: int
    revision: int
    is_new: bool
    evaluations: int = 0
    current: int = 0
    record: RunRecord | None = None
    """The current evaluation, if it is of this batch."""
    old_group: int = 0
    old_trace_ids: Sequence[str] = ()
    known: set[tuple[int, str]] = field(default_factory=set)
    """Revision and digest of all its evaluations."""


def write_records(
    session: Session, records: Sequence[RunRecord], now_ns: int, *, deleted_since_ns: int, store: StoreRow
) -> None:
    """Store evaluations; ignore those that are stored already, and those of traces that were deleted recently."""
    records = _without_deleted(session, records, deleted_since_ns)
    runs = _stored_runs(session, {stored_key(record.run_id) for record in records})
    next_run, next_evaluation = store.last_run, store.last_evaluation
    evaluation_rows: list[tuple[Any, ...]] = []
    for record in records:
        run_id = stored_key(record.run_id)
        run = runs.get(run_id)
        if run is None:
            next_run += 1
            run = runs[run_id] = _RunState(next_run, record.time_ns, record.revision, is_new=True)
        if (record.revision, record.digest) in run.known:
            continue
        run.known.add((record.revision, record.digest))
        next_evaluation += 1
        run.evaluations += 1
        evaluation_rows.append(
            (next_evaluation, run.time_ns, run_id, record.revision, record.digest, now_ns, record.document)
        )
        if record.revision >= run.revision:
            run.record, run.revision, run.current = record, record.revision, next_evaluation
    if not evaluation_rows:
        return
    _insert(session, "evaluations", _EVALUATION_COLUMNS, evaluation_rows)
    _insert_groups(session, [run.record for run in runs.values() if run.record is not None])
    _insert_new_runs(session, {run_id: run for run_id, run in runs.items() if run.is_new})
    _update_runs(session, [run for run in runs.values() if not run.is_new])
    session.execute("UPDATE store SET last_run = %s, last_evaluation = %s", (next_run, next_evaluation))


def group_of(record: RunRecord) -> int:
    """Return the key of a run's group: a 64-bit hash of what the runs of the group have in common."""
    content = repr((record.passed, record.indexed_columns[:-1], record.shape)).encode()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big", signed=True)


_EVALUATION_COLUMNS = ("key", "time_ns", "run_id", "revision", "digest", "stored_ns", "document")
_RUN_COLUMNS = (
    "key", "time_ns", "run_group", "current", "revision", "evaluations", "run_id", "session_id", "text", "trace_ids"
)  # fmt: skip
_GROUP_COLUMNS = ("run_group", "passed", "unit", "golden", "agent", "service", "environment", "shape")


def _without_deleted(session: Session, records: Sequence[RunRecord], since_ns: int) -> Sequence[RunRecord]:
    trace_ids = {stored_key(trace_id) for record in records for trace_id in record.trace_ids}
    found = session.execute(
        "SELECT trace_id FROM deletions WHERE trace_id = ANY(%s) AND time_ns >= %s", (list(trace_ids), since_ns)
    ).fetchall()
    deleted = {trace_id for (trace_id,) in found}
    return [record for record in records if deleted.isdisjoint(map(stored_key, record.trace_ids))]


def _stored_runs(session: Session, run_ids: Iterable[str]) -> dict[str, _RunState]:
    wanted = list(run_ids)
    rows = session.execute(
        "SELECT run_id, key, time_ns, revision, evaluations, current, run_group, trace_ids FROM runs"
        " WHERE run_id = ANY(%s)",
        (wanted,),
    ).fetchall()
    runs = {
        run_id: _RunState(
            key, time_ns, revision, is_new=False, evaluations=evaluations, current=current, old_group=group,
            old_trace_ids=trace_ids,
        )
        for run_id, key, time_ns, revision, evaluations, current, group, trace_ids in rows
    }  # fmt: skip
    if runs:
        known = session.execute(
            "SELECT run_id, revision, digest FROM evaluations WHERE run_id = ANY(%s)", (list(runs),)
        ).fetchall()
        for run_id, revision, digest in known:
            runs[run_id].known.add((revision, digest))
    return runs


def _insert(
    session: Session, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, on_conflict: str = ""
) -> None:
    placeholders = ", ".join(["%s"] * len(columns))
    with session.cursor() as cursor:
        cursor.executemany(
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({placeholders}) {on_conflict}", list(rows)
        )


def _insert_groups(session: Session, records: Iterable[RunRecord]) -> None:
    """Insert the groups that do not exist yet, and the rows of their shapes."""
    by_group = {group_of(record): record for record in records}
    stored = session.execute("SELECT run_group FROM run_groups WHERE run_group = ANY(%s)", (list(by_group),)).fetchall()
    new = {group: by_group[group] for group in by_group.keys() - {group for (group,) in stored}}
    if not new:
        return
    texts = {group: [None if text is None else stored_text(text) for text in record.indexed_columns[:-1]]
             for group, record in new.items()}  # fmt: skip
    _insert(
        session, "run_groups", _GROUP_COLUMNS,
        [(group, record.passed, *texts[group], record.shape) for group, record in new.items()],
    )  # fmt: skip
    shapes = {record.shape: record for record in new.values()}
    tables: Mapping[str, tuple[tuple[str, ...], list[tuple[Any, ...]]]] = {
        "tools": (
            ("tool", "role", "name"),
            [(shape, stored_key(tool), role, stored_text(name))
             for shape, record in shapes.items() for tool, role, name in record.tools],
        ),
        "substitutions": (
            ("expected", "called"),
            [(shape, *map(stored_key, pair)) for shape, record in shapes.items() for pair in record.substitutions],
        ),
        "scores": (
            ("metric", "value"),
            [(shape, stored_key(metric), value)
             for shape, record in shapes.items() for metric, value in record.scores.items()],
        ),
    }  # fmt: skip
    for table, (columns, rows) in tables.items():
        _insert(session, table, ("shape", *columns), rows, on_conflict="ON CONFLICT DO NOTHING")


def _insert_new_runs(session: Session, runs: Mapping[str, _RunState]) -> None:
    rows: list[tuple[Any, ...]] = []
    traces: list[tuple[Any, ...]] = []
    counts: dict[tuple[int, int, int], tuple[int, int, int, int]] = {}
    for run_id, run in runs.items():
        record = run.record
        assert record is not None
        group = group_of(record)
        trace_ids = sorted(map(stored_key, record.trace_ids))
        rows.append((run.key, run.time_ns, group, run.current, run.revision, run.evaluations, run_id,
                     *_own_columns(record), trace_ids))  # fmt: skip
        traces += [(trace_id, run.time_ns, run.key) for trace_id in trace_ids]
        for grain, width in ((HOURS, HOUR_NS), (DAYS, DAY_NS)):
            cell = grain, run.time_ns // width * width, group
            runs_before, first, oldest, newest = counts.get(cell, (0, run.key, run.time_ns, run.time_ns))
            counts[cell] = runs_before + 1, first, min(oldest, run.time_ns), max(newest, run.time_ns)
    _insert(session, "runs", _RUN_COLUMNS, rows)
    _insert(session, "traces", ("trace_id", "time_ns", "run"), traces)
    _insert(
        session, "run_counts", ("grain", "time_ns", "run_group", "runs", "first_run", "first_ns", "last_ns"),
        [(*cell, *counts[cell]) for cell in sorted(counts)],
        on_conflict=(
            "ON CONFLICT (grain, time_ns, run_group) DO UPDATE SET runs = run_counts.runs + excluded.runs,"
            " first_run = least(run_counts.first_run, excluded.first_run),"
            " first_ns = least(run_counts.first_ns, excluded.first_ns),"
            " last_ns = greatest(run_counts.last_ns, excluded.last_ns)"
        ),
    )  # fmt: skip


def _update_runs(session: Session, runs: Iterable[_RunState]) -> None:
    moved: list[tuple[int, int]] = []
    for run in runs:
        record = run.record
        if record is None:
            session.execute(
                "UPDATE runs SET evaluations = %s WHERE time_ns = %s AND key = %s",
                (run.evaluations, run.time_ns, run.key),
            )
            continue
        group = group_of(record)
        trace_ids = sorted(map(stored_key, record.trace_ids))
        session.execute(
            "UPDATE runs SET run_group = %s, current = %s, revision = %s, evaluations = %s, session_id = %s, text = %s,"
            " trace_ids = %s WHERE time_ns = %s AND key = %s",
            (group, run.current, run.revision, run.evaluations, *_own_columns(record), trace_ids, run.time_ns, run.key),
        )
        if trace_ids != list(run.old_trace_ids):
            _delete_traces(session, [(run.key, run.time_ns, run.old_trace_ids)])
            _insert(session, "traces", ("trace_id", "time_ns", "run"),
                    [(trace_id, run.time_ns, run.key) for trace_id in trace_ids])  # fmt: skip
        if group != run.old_group:
            moved += [(run.time_ns, group), (run.time_ns, run.old_group)]
    _count_again(session, moved)
    delete_unused_groups(session, [group for _, group in moved])


def _own_columns(record: RunRecord) -> tuple[str | None, str | None]:
    """Return session and searched text, which belong to one run."""
    session_id, text = record.indexed_columns[-1], record.search_text
    return None if session_id is None else stored_key(session_id), None if text is None else stored_text(text)


# --- deletion ---------------------------------------------------------------------------------------------------------

DELETED_COLUMNS = "key, time_ns, run_id, run_group, trace_ids"


def delete_rows(session: Session, runs: Sequence[tuple[Any, ...]]) -> int:
    """Delete runs, given by their `DELETED_COLUMNS`, and return their number."""
    if not runs:
        return 0
    keys, times, run_ids, groups, _ = map(list, zip(*runs, strict=True))
    session.execute(
        "DELETE FROM evaluations USING unnest(%s::bigint[], %s::text[]) AS gone (time_ns, run_id)"
        " WHERE evaluations.time_ns = gone.time_ns AND evaluations.run_id = gone.run_id",
        (times, run_ids),
    )
    _delete_traces(session, [(key, time_ns, trace_ids) for key, time_ns, _, _, trace_ids in runs])
    session.execute(
        "DELETE FROM runs USING unnest(%s::bigint[], %s::bigint[]) AS gone (time_ns, key)"
        " WHERE runs.time_ns = gone.time_ns AND runs.key = gone.key",
        (times, keys),
    )
    _count_again(session, list(zip(times, groups, strict=True)))
    delete_unused_groups(session, groups)
    return len(runs)


def _delete_traces(session: Session, runs: Iterable[tuple[int, int, Sequence[str]]]) -> None:
    rows = [(trace_id, time_ns, key) for key, time_ns, trace_ids in runs for trace_id in trace_ids]
    if rows:
        session.execute(
            "DELETE FROM traces USING unnest(%s::text[], %s::bigint[], %s::bigint[]) AS gone (trace_id, time_ns, run)"
            " WHERE traces.trace_id = gone.trace_id AND traces.time_ns = gone.time_ns AND traces.run = gone.run",
            [list(column) for column in zip(*rows, strict=True)],
        )


def _count_again(session: Session, cells: Iterable[tuple[int, int]]) -> None:
    """Count the runs of groups in the hours and days of some times again, after runs left or joined the groups."""
    found = list(cells)
    for grain, width, source in ((HOURS, HOUR_NS, _RUNS_OF_HOURS), (DAYS, DAY_NS, _HOURS_OF_DAYS)):
        wanted = sorted({(time_ns // width * width, group) for time_ns, group in found})
        if wanted:
            times, groups = map(list, zip(*wanted, strict=True))
            session.execute(_DELETE_COUNTS, (times, groups, grain))
            session.execute(source, (times, groups))


_DELETE_COUNTS = """
    DELETE FROM run_counts USING unnest(%s::bigint[], %s::bigint[]) AS wanted (time_ns, run_group)
    WHERE run_counts.time_ns = wanted.time_ns AND run_counts.run_group = wanted.run_group AND run_counts.grain = %s
"""
_RUNS_OF_HOURS = f"""
    INSERT INTO run_counts (grain, time_ns, run_group, runs, first_run, first_ns, last_ns)
    SELECT {HOURS}, wanted.time_ns, wanted.run_group, count(*), min(runs.key), min(runs.time_ns), max(runs.time_ns)
    FROM unnest(%s::bigint[], %s::bigint[]) AS wanted (time_ns, run_group)
    JOIN runs ON runs.run_group = wanted.run_group
        AND runs.time_ns >= wanted.time_ns AND runs.time_ns < wanted.time_ns + {HOUR_NS}
    GROUP BY wanted.time_ns, wanted.run_group
"""
_HOURS_OF_DAYS = f"""
    INSERT INTO run_counts (grain, time_ns, run_group, runs, first_run, first_ns, last_ns)
    SELECT {DAYS}, wanted.time_ns, wanted.run_group, sum(hours.runs), min(hours.first_run), min(hours.first_ns),
        max(hours.last_ns)
    FROM unnest(%s::bigint[], %s::bigint[]) AS wanted (time_ns, run_group)
    JOIN run_counts AS hours ON hours.run_group = wanted.run_group AND hours.grain = {HOURS}
        AND hours.time_ns >= wanted.time_ns AND hours.time_ns < wanted.time_ns + {DAY_NS}
    GROUP BY wanted.time_ns, wanted.run_group
"""


def delete_unused_groups(session: Session, groups: Iterable[int]) -> None:
    """Delete those groups that no run has any more, and the rows of shapes that no group has any more."""
    candidates = list(set(groups))
    if not candidates:
        return
    deleted = session.execute(
        "DELETE FROM run_groups WHERE run_group = ANY(%s)"
        " AND NOT EXISTS (SELECT 1 FROM run_counts WHERE run_counts.run_group = run_groups.run_group)"
        " RETURNING shape",
        (candidates,),
    ).fetchall()
    shapes = list({shape for (shape,) in deleted})
    for table in ("tools", "substitutions", "scores") if shapes else ():
        session.execute(
            f"DELETE FROM {table} WHERE shape = ANY(%s)"
            f" AND NOT EXISTS (SELECT 1 FROM run_groups WHERE run_groups.shape = {table}.shape)",
            (shapes,),
        )
