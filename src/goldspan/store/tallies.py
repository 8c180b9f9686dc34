"""How many of the runs that are meant: by verdict, name, time and tool. Every answer is counted in the file."""

from __future__ import annotations

from typing import Any

from goldspan.errors import ConfigurationError
from goldspan.store.connections import Connections
from goldspan.store.entries import as_tool
from goldspan.store.protocol import (
    EVERY_RUN,
    MOST_AT_ONCE,
    TALLIED,
    Bucket,
    Counts,
    RunFilter,
    Substitution,
    Tally,
    TallyBy,
    ToolTally,
)
from goldspan.store.queries import Query, bounded

_COUNTS = "count(*), count(passed), sum(passed)"
"""All runs, those with a verdict, and those that passed, without sorting them."""


class Tallies:
    """What a store counts. Each method asks once, and so sees the store as it is at one moment."""

    _connections: Connections

    def count(self, filter: RunFilter = EVERY_RUN) -> Counts:  # noqa: A002 - the word for it
        """How many runs are meant, by what came out."""
        query = Query(filter)
        (found,) = self._rows(query.select(_COUNTS), query.parameters)
        return _counts(*found)

    def tallies(self, by: TallyBy, filter: RunFilter = EVERY_RUN) -> tuple[Tally, ...]:  # noqa: A002
        """How many of the runs that are meant came out how, for each golden, agent and so on; most runs first."""
        if by not in TALLIED:
            raise ConfigurationError(f"`by` is {', '.join(TALLIED[:-1])} or {TALLIED[-1]}, not {by!r}")
        query = Query(filter)
        found = self._rows(
            query.select(f"runs.{by}, max(runs.time_ns), {_COUNTS}") + f" GROUP BY runs.{by}", query.parameters
        )
        tallied = (Tally(name, _counts(*counts), last_ns) for name, last_ns, *counts in found)
        return tuple(sorted(tallied, key=lambda each: (-each.counts.total, each.name or "")))

    def trend(self, filter: RunFilter = EVERY_RUN, *, buckets: int = 40) -> tuple[Bucket, ...]:  # noqa: A002
        """How the runs that are meant came out over time: at most so many spans of equal length, the oldest first."""
        if buckets < 1:
            raise ConfigurationError(f"buckets must be at least 1, not {buckets}")
        query = Query(filter)
        since, until = (None if time is None else max(0, bounded(time)) for time in (filter.since_ns, filter.until_ns))
        parameters = [*query.parameters, since, until, min(buckets, MOST_AT_ONCE)]
        found = self._rows(_TREND.format(meant=query.select("runs.time_ns, runs.passed")), parameters)
        counted = {number: _counts(*counts) for _, _, _, number, *counts in found}
        return tuple(
            Bucket(begin + number * width, counted.get(number, Counts()))
            for begin, end, width, *_ in found[:1]
            for number in range((end - begin - 1) // width + 1)
        )

    def tools(self, filter: RunFilter = EVERY_RUN) -> tuple[ToolTally, ...]:  # noqa: A002
        """In how many of the runs that are meant each tool was called, missing and so on; most trouble first."""
        query = Query(filter)
        roles: dict[str, dict[str, int]] = {}
        names: dict[str, str] = {}
        for tool, role, runs, _, name in self._rows(_TOOLS.format(shapes=_shapes(query)), query.parameters):
            roles.setdefault(tool, {})[role] = runs
            names.setdefault(tool, name)
        tallied = (
            ToolTally(name, **{role: roles[tool].get(role, 0) for role in ToolTally.__slots__ if role != "name"})
            for tool, name in names.items()
        )
        return tuple(sorted(tallied, key=lambda each: (-each.trouble, -each.called, -each.expected, each.name)))

    def substitutions(self, filter: RunFilter = EVERY_RUN) -> tuple[Substitution, ...]:  # noqa: A002
        """Which tool was called in place of which one that was expected, and in how many runs; most runs first."""
        query = Query(filter)
        runs: dict[tuple[str, str], int] = {}
        names: dict[tuple[str, str], tuple[str, str]] = {}
        found = self._rows(_SUBSTITUTIONS.format(shapes=_shapes(query)), query.parameters)
        for expected, called, number, _ in found:  # a run has one row of each pair, however it spells them
            pair = (as_tool(expected), as_tool(called))
            runs[pair] = runs.get(pair, 0) + number
            names.setdefault(pair, (expected, called))
        tallied = (Substitution(*names[pair], number) for pair, number in runs.items())
        return tuple(sorted(tallied, key=lambda each: (-each.runs, each.expected, each.called)))

    def newest_arrival(self) -> int:
        """What `arrivals` is asked with to learn only of what is stored from now on. It never becomes less."""
        found = self._rows(_NEWEST_ARRIVAL, [])
        return int(found[0][0]) if found else 0

    def _rows(self, statement: str, parameters: list[Any]) -> list[tuple[Any, ...]]:
        with self._connections.reader() as connection:
            return connection.execute(statement, parameters).fetchall()


_TREND = f"""
    WITH meant (time_ns, passed) AS ({{meant}}),
    span (began, ended) AS (SELECT coalesce(?, min(time_ns)), coalesce(?, max(time_ns) + 1) FROM meant),
    step (began, ended, width) AS (SELECT began, ended, (ended - began - 1) / ? + 1 FROM span)
    SELECT began, ended, width, (time_ns - began) / width, {_COUNTS}
    FROM step CROSS JOIN meant GROUP BY 4
"""
_TOOLS = """
    SELECT tools.tool, tools.role, sum(shapes.runs), min(shapes.run) AS first, coalesce(tools.name, tools.tool)
    FROM ({shapes}) AS shapes CROSS JOIN tools ON tools.run = shapes.run
    GROUP BY tools.tool, tools.role ORDER BY first, tools.role
"""
"""SQLite takes the name from the row that `min` comes from: it is shown as the first run writes it."""
_SUBSTITUTIONS = """
    SELECT substitutions.expected, substitutions.called, sum(shapes.runs), min(shapes.run) AS first
    FROM ({shapes}) AS shapes CROSS JOIN substitutions ON substitutions.run = shapes.run
    GROUP BY substitutions.expected, substitutions.called ORDER BY first
"""
_NEWEST_ARRIVAL = "SELECT seq FROM sqlite_sequence WHERE name = 'evaluations'"


def _shapes(query: Query) -> str:
    """The first run of each shape, with how many of that shape are meant: what is true of one is true of all."""
    return query.select("min(runs.key) AS run, count(*) AS runs") + " GROUP BY runs.shape"


def _counts(total: int, judged: int, passed: int | None) -> Counts:
    """Counts; of no verdicts at all SQLite knows no sum."""
    return Counts(passed=passed or 0, failed=judged - (passed or 0), not_evaluated=total - judged)
