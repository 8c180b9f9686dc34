"""Builds the SQL for filtered pages of runs, and for counts by verdict, name, time and tool."""

from __future__ import annotations

import re
from typing import Any

from goldspan.errors import ConfigurationError
from goldspan.store.connection_pool import ConnectionPool
from goldspan.store.run_records import search_key, tool_key, valid_unicode
from goldspan.store.store_protocol import (
    ALL_RUNS,
    GROUP_BY_FIELDS,
    MAX_PAGE_SIZE,
    GroupBy,
    GroupCounts,
    RunFilter,
    Substitution,
    TimeBucket,
    ToolCounts,
    VerdictCounts,
)

_PASSED_VALUES = {"pass": 1, "fail": 0, "not_evaluated": None}
CURSOR_PATTERN = re.compile(r"([0-9]{1,19})-([0-9]{1,19})")
_EQUALITY_COLUMNS = ("agent", "golden", "service", "environment", "unit", "session_id")


class RunQuery:
    """The SQL for the runs that match a filter, newest first.

    The query scans the runs, or those of a trace, by an index in time order, and tests the other conditions for each.
    The join order is fixed here because SQLite has no statistics to choose one; the query plan is always the same. The
    `+` before a column keeps SQLite from using its index, which would read a run for each entry of the index.
    """

    def __init__(self, run_filter: RunFilter, cursor: str | None = None) -> None:
        self._conditions: list[str] = []
        self.parameters: list[Any] = []
        self._driving_table = self._add_table_conditions(run_filter)
        self._add_column_conditions(run_filter)
        self._add_time_conditions(run_filter, cursor)

    def page_statement(self, limit: int) -> str:
        """Return the statement for a page. Callers pass one more than the page size, to detect further runs."""
        self.parameters.append(limit)
        return (
            "SELECT runs.run_id, runs.time_ns, runs.key, "
            "(SELECT count(*) FROM evaluations WHERE run = runs.key), "
            "current.revision, current.digest, current.stored_ns, current.document "
            f"{self._from_clause()} JOIN evaluations AS current ON current.key = runs.current "
            f"{self._where_clause()} ORDER BY {self._driving_table}.time_ns DESC, {self._key_column()} DESC LIMIT ?"
        )

    def select_statement(self, columns: str) -> str:
        """Return a statement that selects columns or aggregates of the matching runs, unordered."""
        return f"SELECT {columns} {self._from_clause()} {self._where_clause()}"

    def _add_table_conditions(self, run_filter: RunFilter) -> str:
        """Add the conditions on traces, tools and scores; return the table to scan."""
        if run_filter.trace_id is not None:
            self._add_condition("traces.trace_id = ?", valid_unicode(run_filter.trace_id))
        if run_filter.tool is not None:
            self._add_condition(
                "+runs.shape IN (SELECT shape FROM tools WHERE tool = ? AND role = ?)",
                tool_key(run_filter.tool),
                run_filter.tool_role,
            )
        if run_filter.metric is not None:
            limit = [] if run_filter.below is None else [float(run_filter.below)]
            self._add_condition(
                f"+runs.shape IN (SELECT shape FROM scores WHERE metric = ?{' AND value < ?' if limit else ''})",
                valid_unicode(run_filter.metric),
                *limit,
            )
        return "runs" if run_filter.trace_id is None else "traces"

    def _add_column_conditions(self, run_filter: RunFilter) -> None:
        if run_filter.verdict is not None:
            self._add_condition("runs.passed IS ?", _PASSED_VALUES[run_filter.verdict])
        for name in _EQUALITY_COLUMNS:
            if (value := getattr(run_filter, name)) is not None:
                self._add_condition(f"runs.{name} = ?", valid_unicode(value))
        if run_filter.covered is not None:
            self._add_condition("(runs.golden IS NOT NULL) = ?", run_filter.covered)
        if run_filter.text:
            self._add_condition("instr(runs.text, ?) > 0", search_key(run_filter.text))

    def _add_time_conditions(self, run_filter: RunFilter, cursor: str | None) -> None:
        if run_filter.since_ns is not None:
            self._add_condition(f"{self._driving_table}.time_ns >= ?", clamp_to_int64(run_filter.since_ns))
        if run_filter.until_ns is not None:
            self._add_condition(f"{self._driving_table}.time_ns < ?", clamp_to_int64(run_filter.until_ns))
        if cursor is not None:
            match = CURSOR_PATTERN.fullmatch(cursor)
            if match is None:
                raise ConfigurationError(f"{cursor!r} is not a cursor; use the `next_cursor` of a page")
            self._add_condition(
                f"({self._driving_table}.time_ns, {self._key_column()}) < (?, ?)",
                clamp_to_int64(int(match[1])),
                clamp_to_int64(int(match[2])),
            )

    def _add_condition(self, condition: str, *values: Any) -> None:
        self._conditions.append(condition)
        self.parameters += values

    def _key_column(self) -> str:
        return "runs.key" if self._driving_table == "runs" else f"{self._driving_table}.run"

    def _from_clause(self) -> str:
        if self._driving_table == "runs":
            return "FROM runs"
        return f"FROM {self._driving_table} CROSS JOIN runs ON runs.key = {self._driving_table}.run"

    def _where_clause(self) -> str:
        return f"WHERE {' AND '.join(self._conditions)}" if self._conditions else ""


def clamp_to_int64(number: int) -> int:
    """Clamp a number to the range of an SQLite integer."""
    return max(-(2**63), min(number, 2**63 - 1))


def encode_cursor(time_ns: int, key: int) -> str:
    """Return the cursor of the page that starts after a run."""
    return f"{time_ns}-{key}"


_COUNT_COLUMNS = "count(*), count(passed), sum(passed)"
"""The number of all runs, of those with a verdict, and of those that passed."""


class AggregateQueries:
    """The aggregates of a store. Each method runs one statement, and so sees one consistent state."""

    _connections: ConnectionPool

    def count(self, filter: RunFilter = ALL_RUNS) -> VerdictCounts:  # noqa: A002 - the usual name
        """Count the runs that match, by verdict."""
        query = RunQuery(filter)
        (found,) = self._rows(query.select_statement(_COUNT_COLUMNS), query.parameters)
        return _verdict_counts(*found)

    def count_by(self, by: GroupBy, filter: RunFilter = ALL_RUNS) -> tuple[GroupCounts, ...]:  # noqa: A002
        """Count the runs that match for each golden, agent, service, environment or unit; most runs first."""
        if by not in GROUP_BY_FIELDS:
            raise ConfigurationError(f"`by` is {', '.join(GROUP_BY_FIELDS[:-1])} or {GROUP_BY_FIELDS[-1]}, not {by!r}")
        query = RunQuery(filter)
        found = self._rows(
            query.select_statement(f"runs.{by}, max(runs.time_ns), {_COUNT_COLUMNS}") + f" GROUP BY runs.{by}",
            query.parameters,
        )
        groups = (GroupCounts(name, _verdict_counts(*counts), last_ns) for name, last_ns, *counts in found)
        return tuple(sorted(groups, key=lambda group: (-group.counts.total, group.name or "")))

    def trend(self, filter: RunFilter = ALL_RUNS, *, buckets: int = 40) -> tuple[TimeBucket, ...]:  # noqa: A002
        """Count the runs that match in at most `buckets` time intervals of equal length, the oldest first."""
        if buckets < 1:
            raise ConfigurationError(f"buckets must be at least 1, not {buckets}")
        query = RunQuery(filter)
        since, until = (
            None if time is None else max(0, clamp_to_int64(time)) for time in (filter.since_ns, filter.until_ns)
        )
        parameters = [*query.parameters, since, until, min(buckets, MAX_PAGE_SIZE)]
        found = self._rows(
            _TREND_STATEMENT.format(matching=query.select_statement("runs.time_ns, runs.passed")), parameters
        )
        counted = {number: _verdict_counts(*counts) for _, _, _, number, *counts in found}
        return tuple(
            TimeBucket(begin + number * width, counted.get(number, VerdictCounts()))
            for begin, end, width, *_ in found[:1]
            for number in range((end - begin - 1) // width + 1)
        )

    def tool_counts(self, filter: RunFilter = ALL_RUNS) -> tuple[ToolCounts, ...]:  # noqa: A002
        """Count, for each tool, the matching runs in which it has each role; most problems first."""
        query = RunQuery(filter)
        roles: dict[str, dict[str, int]] = {}
        names: dict[str, str] = {}
        for tool, role, runs, _, name in self._rows(
            _TOOLS_STATEMENT.format(shapes=_shapes_statement(query)), query.parameters
        ):
            roles.setdefault(tool, {})[role] = runs
            names.setdefault(tool, name)
        tools = (
            ToolCounts(name, **{role: roles[tool].get(role, 0) for role in ToolCounts.__slots__ if role != "name"})
            for tool, name in names.items()
        )
        return tuple(sorted(tools, key=lambda tool: (-tool.problem_count, -tool.called, -tool.expected, tool.name)))

    def substitutions(self, filter: RunFilter = ALL_RUNS) -> tuple[Substitution, ...]:  # noqa: A002
        """Return which tool was called in place of which, with the number of matching runs; most runs first."""
        query = RunQuery(filter)
        runs: dict[tuple[str, str], int] = {}
        names: dict[tuple[str, str], tuple[str, str]] = {}
        found = self._rows(_SUBSTITUTIONS_STATEMENT.format(shapes=_shapes_statement(query)), query.parameters)
        for expected, called, number, _ in found:  # a run has one row per pair, whatever the spelling
            pair = (tool_key(expected), tool_key(called))
            runs[pair] = runs.get(pair, 0) + number
            names.setdefault(pair, (expected, called))
        substitutions = (Substitution(*names[pair], number) for pair, number in runs.items())
        return tuple(sorted(substitutions, key=lambda pair: (-pair.runs, pair.expected, pair.called)))

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


def _verdict_counts(total: int, evaluated: int, passed: int | None) -> VerdictCounts:
    """Return the counts; the sum of no rows is NULL in SQL."""
    return VerdictCounts(passed=passed or 0, failed=evaluated - (passed or 0), not_evaluated=total - evaluated)
