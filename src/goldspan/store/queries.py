"""Builds the SQL for pages of runs, and for counts by verdict, name, time and tool, in SQLite."""

from __future__ import annotations

from typing import Any

from goldspan.store.connection_pool import ConnectionPool
from goldspan.store.filter_conditions import Condition, Dialect, clamp_to_int64, joined
from goldspan.store.query_results import (
    bucket_limit,
    group_counts,
    require_group_field,
    substitution_counts,
    time_buckets,
    tool_counts,
    verdict_counts,
)
from goldspan.store.run_records import valid_unicode
from goldspan.store.store_protocol import (
    ALL_RUNS,
    GroupBy,
    GroupCounts,
    RunFilter,
    Substitution,
    TimeBucket,
    ToolCounts,
    VerdictCounts,
)

SQLITE = Dialect(
    parameter="?",
    equals="IS",
    group_table="runs",
    shape="+runs.shape",
    contains="instr(runs.text, ?) > 0",
    text=valid_unicode,
    key=valid_unicode,
    pattern=str,
)


class RunQuery:
    """The SQL for the runs that match a filter, newest first.

    The query scans the runs, or those of a trace, by an index in time order, and tests the other conditions for each.
    The join order is fixed here because SQLite has no statistics to choose one; the query plan is always the same. The
    `+` before a column keeps SQLite from using its index, which would read a run for each entry of the index.
    """

    def __init__(self, run_filter: RunFilter, cursor: str | None = None) -> None:
        conditions: list[Condition] = []
        self._driving_table, self._key_column = "runs", "runs.key"
        if run_filter.trace_id is not None:
            conditions.append(Condition("traces.trace_id = ?", (valid_unicode(run_filter.trace_id),)))
            self._driving_table, self._key_column = "traces", "traces.run"
        conditions += SQLITE.group_conditions(run_filter)
        conditions += SQLITE.conditions(run_filter)
        conditions += SQLITE.time_conditions(
            run_filter, cursor, time_column=f"{self._driving_table}.time_ns", key_column=self._key_column
        )
        self._where_clause, values = joined(conditions)
        self.parameters: list[Any] = [*values]

    def page_statement(self, limit: int) -> str:
        """Return the statement for a page. Callers pass one more than the page size, to detect further runs."""
        self.parameters.append(limit)
        return (
            "SELECT runs.run_id, runs.time_ns, runs.key, "
            "(SELECT count(*) FROM evaluations WHERE run = runs.key), "
            "current.revision, current.digest, current.stored_ns, current.document "
            f"{self._from_clause()} JOIN evaluations AS current ON current.key = runs.current "
            f"{self._where_clause} ORDER BY {self._driving_table}.time_ns DESC, {self._key_column} DESC LIMIT ?"
        )

    def select_statement(self, columns: str) -> str:
        """Return a statement that selects columns or aggregates of the matching runs, unordered."""
        return f"SELECT {columns} {self._from_clause()} {self._where_clause}"

    def _from_clause(self) -> str:
        if self._driving_table == "runs":
            return "FROM runs"
        return f"FROM {self._driving_table} CROSS JOIN runs ON runs.key = {self._driving_table}.run"


_COUNT_COLUMNS = "count(*), count(passed), sum(passed)"
"""The number of all runs, of those with a verdict, and of those that passed."""


class AggregateQueries:
    """The aggregates of a store. Each method runs one statement, and so sees one consistent state."""

    _connections: ConnectionPool

    def count(self, filter: RunFilter = ALL_RUNS) -> VerdictCounts:  # noqa: A002 - the usual name
        """Count the runs that match, by verdict."""
        query = RunQuery(filter)
        (found,) = self._rows(query.select_statement(_COUNT_COLUMNS), query.parameters)
        return verdict_counts(*found)

    def count_by(self, by: GroupBy, filter: RunFilter = ALL_RUNS) -> tuple[GroupCounts, ...]:  # noqa: A002
        """Count the runs that match for each golden, agent, service, environment or unit; most runs first."""
        require_group_field(by)
        query = RunQuery(filter)
        found = self._rows(
            query.select_statement(f"runs.{by}, max(runs.time_ns), {_COUNT_COLUMNS}") + f" GROUP BY runs.{by}",
            query.parameters,
        )
        return group_counts(found)

    def trend(self, filter: RunFilter = ALL_RUNS, *, buckets: int = 40) -> tuple[TimeBucket, ...]:  # noqa: A002
        """Count the runs that match in at most `buckets` time intervals of equal length, the oldest first."""
        limit = bucket_limit(buckets)
        query = RunQuery(filter)
        since, until = (
            None if time is None else max(0, clamp_to_int64(time)) for time in (filter.since_ns, filter.until_ns)
        )
        found = self._rows(
            _TREND_STATEMENT.format(matching=query.select_statement("runs.time_ns, runs.passed")),
            [*query.parameters, since, until, limit],
        )
        if not found:
            return ()
        began, ended, width, *_ = found[0]
        return time_buckets(began, ended, width, (row[3:] for row in found))

    def tool_counts(self, filter: RunFilter = ALL_RUNS) -> tuple[ToolCounts, ...]:  # noqa: A002
        """Count, for each tool, the matching runs in which it has each role; most problems first."""
        query = RunQuery(filter)
        return tool_counts(self._rows(_TOOLS_STATEMENT.format(shapes=_shapes_statement(query)), query.parameters))

    def substitutions(self, filter: RunFilter = ALL_RUNS) -> tuple[Substitution, ...]:  # noqa: A002
        """Return which tool was called in place of which, with the number of matching runs; most runs first."""
        query = RunQuery(filter)
        return substitution_counts(
            self._rows(_SUBSTITUTIONS_STATEMENT.format(shapes=_shapes_statement(query)), query.parameters)
        )

    def last_sequence_number(self) -> int:
        """Return the `after` argument with which `evaluations_after` returns only what is stored from now on."""
        found = self._rows(_LAST_SEQUENCE_STATEMENT, [])
        return int(found[0][0]) if found else 0

    def _rows(self, statement: str, parameters: list[Any]) -> list[tuple[Any, ...]]:
        with self._connections.reader() as connection:
            return connection.execute(statement, parameters).fetchall()


_TREND_STATEMENT = f"""
    WITH matching (time_ns, passed) AS ({{matching}}),
    span (began, ended) AS (SELECT coalesce(?, min(time_ns)), coalesce(?, max(time_ns) + 1) FROM matching),
    step (began, ended, width) AS (SELECT began, ended, (ended - began - 1) / ? + 1 FROM span)
    SELECT began, ended, width, (time_ns - began) / width, {_COUNT_COLUMNS}
    FROM step CROSS JOIN matching GROUP BY 4
"""
_TOOLS_STATEMENT = """
    SELECT tools.tool, tools.role, sum(shapes.runs), min(shapes.run) AS first, tools.name
    FROM ({shapes}) AS shapes CROSS JOIN tools ON tools.shape = shapes.shape
    GROUP BY tools.tool, tools.role ORDER BY first, tools.role
"""
"""SQLite takes the bare column `name` from the row with the minimum, so the first run's spelling is displayed."""
_SUBSTITUTIONS_STATEMENT = """
    SELECT substitutions.expected, substitutions.called, sum(shapes.runs), min(shapes.run) AS first
    FROM ({shapes}) AS shapes CROSS JOIN substitutions ON substitutions.shape = shapes.shape
    GROUP BY substitutions.expected, substitutions.called ORDER BY first
"""
_LAST_SEQUENCE_STATEMENT = "SELECT seq FROM sqlite_sequence WHERE name = 'evaluations'"


def _shapes_statement(query: RunQuery) -> str:
    """Return a statement for the first run of each shape and the number of matching runs of that shape."""
    return (
        query.select_statement("runs.shape AS shape, min(runs.key) AS run, count(*) AS runs") + " GROUP BY +runs.shape"
    )
