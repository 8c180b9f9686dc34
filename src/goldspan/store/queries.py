"""What is asked of a store as SQL. Values are always parameters: no text from outside is ever part of a statement."""

from __future__ import annotations

import re
from typing import Any

from goldspan.errors import ConfigurationError
from goldspan.store.entries import as_tool, searched, storable
from goldspan.store.protocol import RunFilter

_PASSED = {"pass": 1, "fail": 0, "not_evaluated": None}
CURSOR = re.compile(r"([0-9]{1,19})-([0-9]{1,19})")
_COLUMNS = ("agent", "golden", "service", "environment", "unit", "session_id")


class Query:
    """The runs that a filter means, newest first.

    The table that says most is walked in the order of time (an index of each is in that order), and the others are
    asked about each run: SQLite has no statistics by which it could choose, and the same question always takes the
    same way.
    """

    def __init__(self, wanted: RunFilter, cursor: str | None = None) -> None:
        self._conditions: list[str] = []
        self.parameters: list[Any] = []
        self._leading = self._tables(wanted)
        self._columns(wanted)
        self._times(wanted, cursor)

    def page(self, limit: int) -> str:
        """The statement for a page, of which `limit` is one more than shown: whether there are more."""
        self.parameters.append(limit)
        return (
            "SELECT runs.run_id, runs.time_ns, runs.key, "
            "(SELECT count(*) FROM evaluations WHERE run = runs.key), "
            "current.revision, current.digest, current.stored_ns, current.document "
            f"{self._from()} JOIN evaluations AS current ON current.key = runs.current "
            f"{self._where()} ORDER BY {self._leading}.time_ns DESC, {self._key()} DESC LIMIT ?"
        )

    def select(self, columns: str) -> str:
        """A statement for columns of the runs that are meant, or for what is counted over them, in no order."""
        return f"SELECT {columns} {self._from()} {self._where()}"

    def _tables(self, wanted: RunFilter) -> str:
        """The conditions on what a run has several of; which of the tables is walked."""
        walked: list[str] = []
        if wanted.trace_id is not None:
            self._of(walked, "traces", ["trace_id = ?"], [storable(wanted.trace_id)])
        if wanted.tool is not None:
            self._of(walked, "tools", ["tool = ?", "role = ?"], [as_tool(wanted.tool), wanted.tool_role])
        if wanted.metric is not None:
            limit = [] if wanted.below is None else [float(wanted.below)]
            self._of(
                walked, "scores", ["metric = ?", *(["value < ?"] if limit else [])], [storable(wanted.metric), *limit]
            )
        return walked[0] if walked else "runs"

    def _of(self, walked: list[str], table: str, conditions: list[str], values: list[Any]) -> None:
        told = " AND ".join(f"{table}.{condition}" for condition in conditions)
        if walked:
            run = f"{walked[0]}.run"
            told = f"EXISTS (SELECT 1 FROM {table} WHERE {table}.run = {run} AND {told})"
        walked.append(table)
        self._conditions.append(told)
        self.parameters += values

    def _columns(self, wanted: RunFilter) -> None:
        if wanted.verdict is not None:
            self._add("runs.passed IS ?", _PASSED[wanted.verdict])
        for name in _COLUMNS:
            if (value := getattr(wanted, name)) is not None:
                self._add(f"runs.{name} = ?", storable(value))
        if wanted.covered is not None:
            self._add("(runs.golden IS NOT NULL) = ?", wanted.covered)
        if wanted.text:
            self._add("instr(runs.text, ?) > 0", searched(wanted.text))

    def _times(self, wanted: RunFilter, cursor: str | None) -> None:
        if wanted.since_ns is not None:
            self._add(f"{self._leading}.time_ns >= ?", bounded(wanted.since_ns))
        if wanted.until_ns is not None:
            self._add(f"{self._leading}.time_ns < ?", bounded(wanted.until_ns))
        if cursor is not None:
            place = CURSOR.fullmatch(cursor)
            if place is None:
                raise ConfigurationError(f"{cursor!r} is no cursor; use the `next_cursor` of a page")
            self._add(
                f"({self._leading}.time_ns, {self._key()}) < (?, ?)", bounded(int(place[1])), bounded(int(place[2]))
            )

    def _add(self, condition: str, *values: Any) -> None:
        self._conditions.append(condition)
        self.parameters += values

    def _key(self) -> str:
        return "runs.key" if self._leading == "runs" else f"{self._leading}.run"

    def _from(self) -> str:
        if self._leading == "runs":
            return "FROM runs"
        return f"FROM {self._leading} CROSS JOIN runs ON runs.key = {self._leading}.run"

    def _where(self) -> str:
        return f"WHERE {' AND '.join(self._conditions)}" if self._conditions else ""


def bounded(number: int) -> int:
    """As near as SQLite can write it."""
    return max(-(2**63), min(number, 2**63 - 1))


def cursor_at(time_ns: int, key: int) -> str:
    """The cursor behind a run."""
    return f"{time_ns}-{key}"
