"""Builds the SQL for the runs that match a filter, from counts of hours and days.

Verdict, golden, agent, service, environment, unit, tools and scores are the same for all runs of a group. So a filter
on them selects groups, and the counts of its runs are sums over whole days and hours, and over the runs themselves only
in the hours where a time range begins and ends. A filter on a session, a trace or a text reads runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from goldspan.store.filter_conditions import Condition, Dialect, clamp_to_int64, decode_cursor, joined
from goldspan.store.postgres.run_writer import DAY_NS, DAYS, HOUR_NS, HOURS, stored_key, stored_text
from goldspan.store.postgres.sessions import Session
from goldspan.store.store_protocol import RunFilter

_LIKE_WILDCARDS = str.maketrans({"\\": "\\\\", "%": "\\%", "_": "\\_"})

POSTGRES = Dialect(
    parameter="%s",
    equals="IS NOT DISTINCT FROM",
    group_table="run_groups",
    shape="run_groups.shape",
    contains="runs.text LIKE %s",  # can use an index of trigrams
    text=stored_text,
    key=stored_key,
    pattern=lambda text: f"%{text.translate(_LIKE_WILDCARDS)}%",
)

VERDICT_COLUMNS = (
    "sum(cells.runs)::bigint, (sum(cells.runs) FILTER (WHERE run_groups.passed IS NOT NULL))::bigint, "
    "(sum(cells.runs) FILTER (WHERE run_groups.passed))::bigint"
)
"""The number of all runs, of those with a verdict, and of those that passed."""
_MAX_LISTED_GROUPS = 10_000
"""If more groups match, the server looks for them itself."""


@dataclass(frozen=True, slots=True)
class TimeRange:
    """From `begin` to before `end`, in nanoseconds since the Unix epoch; `None`: without a limit."""

    begin: int | None
    end: int | None

    @classmethod
    def of_filter(cls, run_filter: RunFilter) -> TimeRange:
        """Return the range of a filter. No run is earlier than 1970."""
        begin, end = (
            None if time_ns is None else max(0, clamp_to_int64(time_ns))
            for time_ns in (run_filter.since_ns, run_filter.until_ns)
        )
        return cls(begin, end)

    def aligned(self, width: int) -> TimeRange:
        """Return the part that consists of whole intervals of a width. It can end before it begins: it is empty."""
        return TimeRange(
            None if self.begin is None else -(-self.begin // width) * width,
            None if self.end is None else self.end // width * width,
        )

    @property
    def is_empty(self) -> bool:
        """Whether it contains no time."""
        return self.begin is not None and self.end is not None and self.begin >= self.end

    def without(self, part: TimeRange) -> Iterator[TimeRange]:
        """Yield what is left before and after a part of this range."""
        if part.is_empty:
            yield self
            return
        for rest in (TimeRange(self.begin, part.begin), TimeRange(part.end, self.end)):
            if rest.begin != rest.end and not rest.is_empty:
                yield rest

    def conditions(self, column: str) -> Iterator[Condition]:
        """Yield the conditions that a time is in this range."""
        if self.begin is not None:
            yield Condition(f"{column} >= %s", (self.begin,))
        if self.end is not None:
            yield Condition(f"{column} < %s", (self.end,))


class _SplitHour(NamedTuple):
    """An hour in which an interval ends."""

    hour: int
    begin: int
    """The begin of the shorter part."""
    end: int
    """The end of the shorter part."""
    longer_part: int
    """A time in the longer part."""


def _split_hour(time_ns: int) -> _SplitHour:
    hour = time_ns // HOUR_NS * HOUR_NS
    if time_ns - hour <= HOUR_NS // 2:
        return _SplitHour(hour, hour, time_ns, time_ns)
    return _SplitHour(hour, time_ns, hour + HOUR_NS, hour)


_HOURS_AT_PLACES = """
    SELECT run_group, runs, first_run, coalesce(split.place, run_counts.time_ns) AS first_ns, last_ns
    FROM run_counts LEFT JOIN unnest(%s::bigint[], %s::bigint[]) AS split (hour, place)
        ON split.hour = run_counts.time_ns {where}
"""
_MOVED_RUNS = """
    SELECT run_group, runs * factor, 0, CASE factor WHEN 1 THEN begin_ns ELSE place END, 0
    FROM (
        SELECT runs.run_group, part.begin_ns, part.place, count(*)::integer AS runs
        FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[]) AS part (begin_ns, end_ns, place)
        JOIN runs ON runs.time_ns >= part.begin_ns AND runs.time_ns < part.end_ns
        GROUP BY runs.run_group, part.begin_ns, part.place
    ) AS moved CROSS JOIN (VALUES (1), (-1)) AS directions (factor)
"""
_COUNTED = "run_group, runs, first_run, first_ns, last_ns"
_ONE_RUN = "runs.run_group, 1 AS runs, runs.key AS first_run, runs.time_ns AS first_ns, runs.time_ns AS last_ns"


class RunSelection:
    """The runs that match a filter."""

    def __init__(self, run_filter: RunFilter) -> None:
        self.time_range = TimeRange.of_filter(run_filter)
        self._trace = run_filter.trace_id
        self._groups = tuple(POSTGRES.group_conditions(run_filter))
        self._own = tuple(POSTGRES.conditions(run_filter))

    @property
    def is_counted(self) -> bool:
        """Whether the counts of hours and days suffice to count the runs."""
        return self._trace is None and not self._own

    def cells(self) -> Condition:
        """Return the statement for the numbers of matching runs by group, as `cells`; groups are not restricted yet."""
        if not self.is_counted:
            return self._runs_in(self.time_range)
        return _union(self._counted_cells())

    def grouped(self, columns: str, cells: Condition | None = None, *, extra_values: Sequence[Any] = ()) -> Condition:
        """Return the statement for aggregates of `cells` and their `run_groups`.

        `extra_values` are the parameters of the columns.
        """
        found = self.cells() if cells is None else cells
        where = joined(self._groups)
        return Condition(
            f"SELECT {columns} FROM ({found.sql}) AS cells JOIN run_groups USING (run_group) {where.sql}",
            (*extra_values, *found.values, *where.values),
        )

    def tools(self) -> Condition:
        """Return the statement for tool, role, number of runs, first run and name, in the order of the first run."""
        return self._of_shapes(_TOOLS_STATEMENT)

    def substitutions(self) -> Condition:
        """Return the statement for expected and called tool, number of runs and first run, in the same order."""
        return self._of_shapes(_SUBSTITUTIONS_STATEMENT)

    def _of_shapes(self, statement: str) -> Condition:
        """Return a statement over the number of matching runs and the first run of each shape."""
        shapes = self.grouped("run_groups.shape, sum(cells.runs) AS runs, min(cells.first_run) AS run")
        return Condition(statement.format(shapes=f"{shapes.sql} GROUP BY run_groups.shape"), shapes.values)

    def cells_of_intervals(self, began: int, ended: int, width: int) -> Condition:
        """Return the statement for the cells between two times, none of which is in two intervals of a width.

        The column `first_ns` is a time in the interval of the cell. An hour in which an interval ends counts for the
        interval of its longer part, and the runs of its shorter part, which are read, are moved to the other one.
        """
        hours = TimeRange(began, ended).aligned(HOUR_NS)
        if not self.is_counted or width < HOUR_NS or hours.begin is None or hours.end is None or hours.is_empty:
            return self._runs_in(TimeRange(began, ended))
        split = [_split_hour(time_ns) for time_ns in range(began, ended, width) if time_ns % HOUR_NS]
        split = [hour for hour in split if hours.begin <= hour.hour < hours.end]
        where = joined((*hours.conditions("run_counts.time_ns"), Condition("grain = %s", (HOURS,))))
        starts, places = [hour.hour for hour in split], [hour.longer_part for hour in split]
        begins, ends = [hour.begin for hour in split], [hour.end for hour in split]
        edges = TimeRange(began, ended).without(hours)
        return _union(
            (
                Condition(_HOURS_AT_PLACES.format(where=where.sql), (starts, places, *where.values)),
                Condition(_MOVED_RUNS, (begins, ends, places)),
                *map(self._runs_in, edges),
            )
        )

    def page(self, session: Session, limit: int, cursor: str | None) -> Condition | None:
        """Return the statement for a page, newest first; `None`: no run matches."""
        conditions = list(self.time_range.conditions("runs.time_ns"))
        position = None if cursor is None else decode_cursor(cursor)
        if position is not None:
            conditions.append(Condition("(runs.time_ns, runs.key) < (%s, %s)", position))
            conditions.append(Condition("runs.time_ns <= %s", position[:1]))  # lets the server skip partitions
        if self._groups and self.is_counted:
            plan = self._plan_page(session, limit, None if position is None else position[0])
            if plan is None:
                return None
            conditions += plan
        elif self._groups:
            where = joined(self._groups)
            conditions.append(
                Condition(f"runs.run_group IN (SELECT run_group FROM run_groups {where.sql})", where.values)
            )
        conditions += self._own
        source = "runs"
        if self._trace is not None:
            source = "traces JOIN runs ON runs.time_ns = traces.time_ns AND runs.key = traces.run"
            conditions.append(Condition("traces.trace_id = %s", (stored_key(self._trace),)))
        where = joined(conditions)
        return Condition(_PAGE.format(source=source, where=where.sql), (*where.values, limit))

    def _plan_page(self, session: Session, limit: int, before_ns: int | None) -> list[Condition] | None:
        """Return conditions with which a page reads few runs; `None`: no run matches.

        The counts of days tell how far back the page reaches. Within that time, the server either walks back through
        all runs until the page is full, or reads the runs of the matching groups and sorts them. Which is cheaper
        follows from the numbers of matching and of all runs, which the statistics of the server do not contain.
        """
        last_ns = min(time_ns for time_ns in (before_ns, self.time_range.end, 2**63 - 1) if time_ns is not None)
        first_ns = self.time_range.begin
        days = TimeRange(None if first_ns is None else first_ns // DAY_NS * DAY_NS, min(last_ns + 1, 2**63 - 1))
        grain = joined((*days.conditions("time_ns"), Condition("grain = %s", (DAYS,))))
        where = joined(self._groups)
        rows = session.execute(
            "SELECT time_ns, sum(runs) FILTER (WHERE matching.run_group IS NOT NULL)::bigint, sum(runs)::bigint"
            f" FROM run_counts LEFT JOIN (SELECT run_group FROM run_groups {where.sql}) AS matching USING (run_group)"
            f" {grain.sql} GROUP BY time_ns ORDER BY time_ns DESC",
            (*where.values, *grain.values),
        ).fetchall()
        certain = matching = total = 0
        begin: int | None = None
        for day, of_day, all_of_day in rows:
            matching += of_day or 0
            total += all_of_day
            begin = day
            if day + DAY_NS <= last_ns:
                certain += of_day or 0  # none of them is after the range or the cursor
            if certain >= limit:
                break
        if not matching or begin is None:
            return None
        conditions = [Condition("runs.time_ns >= %s", (begin,))]
        groups = [
            group
            for (group,) in session.execute(
                f"SELECT run_group FROM run_groups {where.sql} LIMIT {_MAX_LISTED_GROUPS + 1}", where.values
            )
        ]
        if len(groups) > _MAX_LISTED_GROUPS:
            in_groups = f"runs.run_group IN (SELECT run_group FROM run_groups {where.sql})"
            return [*conditions, Condition(in_groups, where.values)]
        # The sum is no column of an index, so it keeps the server from reading the runs by group.
        column = "runs.run_group" if matching * matching < total * limit else "(runs.run_group + 0)"
        return [*conditions, Condition(f"{column} = ANY(%s::bigint[])", (groups,))]

    def _counted_cells(self) -> Iterator[Condition]:
        if self.time_range.is_empty:
            yield self._runs_in(self.time_range)
            return
        hours, days = self.time_range.aligned(HOUR_NS), self.time_range.aligned(DAY_NS)
        for part in self.time_range.without(hours):
            yield self._runs_in(part)
        if hours.is_empty:
            return
        grains = [(DAYS, days)] if not days.is_empty else []
        grains += [(HOURS, part) for part in hours.without(days)]
        for grain, part in grains:
            where = joined((*part.conditions("time_ns"), Condition("grain = %s", (grain,))))
            yield Condition(f"SELECT {_COUNTED} FROM run_counts {where.sql}", where.values)

    def _runs_in(self, time_range: TimeRange) -> Condition:
        conditions = [*time_range.conditions("runs.time_ns"), *self._own]
        source = "runs"
        if self._trace is not None:
            source = "traces JOIN runs ON runs.time_ns = traces.time_ns AND runs.key = traces.run"
            conditions.append(Condition("traces.trace_id = %s", (stored_key(self._trace),)))
        where = joined(conditions)
        return Condition(f"SELECT {_ONE_RUN} FROM {source} {where.sql}", where.values)


def _union(statements: Iterable[Condition]) -> Condition:
    found = tuple(statements)
    return Condition(
        " UNION ALL ".join(statement.sql for statement in found),
        tuple(value for statement in found for value in statement.values),
    )


_PAGE = """
    WITH page AS MATERIALIZED (
        SELECT runs.run_id, runs.time_ns, runs.key, runs.evaluations, runs.current FROM {source} {where}
        ORDER BY runs.time_ns DESC, runs.key DESC LIMIT %s
    )
    SELECT page.run_id, page.time_ns, page.key, page.evaluations, current.revision, current.digest, current.stored_ns,
        current.document
    FROM page JOIN evaluations AS current ON current.time_ns = page.time_ns AND current.key = page.current
    ORDER BY page.time_ns DESC, page.key DESC
"""
_TOOLS_STATEMENT = """
    SELECT tools.tool, tools.role, sum(shapes.runs)::bigint, min(shapes.run) AS first,
        (array_agg(tools.name ORDER BY shapes.run))[1]
    FROM ({shapes}) AS shapes JOIN tools USING (shape)
    GROUP BY tools.tool, tools.role ORDER BY first, tools.role
"""
_SUBSTITUTIONS_STATEMENT = """
    SELECT substitutions.expected, substitutions.called, sum(shapes.runs)::bigint, min(shapes.run) AS first
    FROM ({shapes}) AS shapes JOIN substitutions USING (shape)
    GROUP BY substitutions.expected, substitutions.called ORDER BY first
"""
