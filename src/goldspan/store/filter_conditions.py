"""The conditions of a filter in SQL. The back ends differ only in what a `Dialect` names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from goldspan.errors import ConfigurationError
from goldspan.store.run_records import search_key, tool_key
from goldspan.store.store_protocol import MAX_PAGE_SIZE, RunFilter

_PASSED_VALUES = {"pass": True, "fail": False, "not_evaluated": None}
_GROUP_COLUMNS = ("agent", "golden", "service", "environment", "unit")
CURSOR_PATTERN = re.compile(r"([0-9]{1,19})-([0-9]{1,19})")


class Condition(NamedTuple):
    """A condition with its parameters."""

    sql: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What differs between the statements of the back ends."""

    parameter: str
    """The placeholder of a parameter."""
    equals: str
    """The operator that compares values and also finds NULL equal to NULL."""
    group_table: str
    """The table with the columns that many runs share: verdict, unit, golden, agent, service and environment."""
    shape: str
    """The shape of a run; the rows of `tools` and `scores` belong to a shape."""
    contains: str
    """The condition that the column `text` of a run contains a parameter."""
    text: Callable[[str], str]
    """Returns a text in the form in which the back end stores it."""
    key: Callable[[str], str]
    """Returns a text in the form in which the back end stores it in a column with an index."""
    pattern: Callable[[str], str]
    """Returns the parameter of `contains` for a text."""

    def conditions(self, run_filter: RunFilter) -> Iterator[Condition]:
        """Yield the conditions that depend on the run itself: session and text, but not trace and time."""
        if run_filter.session_id is not None:
            yield Condition(f"runs.session_id = {self.parameter}", (self.key(run_filter.session_id),))
        if run_filter.text:
            yield Condition(self.contains, (self.pattern(self.text(search_key(run_filter.text))),))

    def group_conditions(self, run_filter: RunFilter) -> Iterator[Condition]:
        """Yield the conditions that all runs with the same shared columns and shape meet alike."""
        table = self.group_table
        if run_filter.tool is not None:
            yield Condition(
                f"{self.shape} IN (SELECT shape FROM tools WHERE tool = {self.parameter} AND role = {self.parameter})",
                (self.key(tool_key(run_filter.tool)), run_filter.tool_role),
            )
        if run_filter.metric is not None:
            limit = () if run_filter.below is None else (float(run_filter.below),)
            below = f" AND value < {self.parameter}" if limit else ""
            yield Condition(
                f"{self.shape} IN (SELECT shape FROM scores WHERE metric = {self.parameter}{below})",
                (self.key(run_filter.metric), *limit),
            )
        if run_filter.verdict is not None:
            passed = _PASSED_VALUES[run_filter.verdict]
            yield Condition(f"{table}.passed {self.equals} {self.parameter}", (passed,))
        for name in _GROUP_COLUMNS:
            if (value := getattr(run_filter, name)) is not None:
                yield Condition(f"{table}.{name} = {self.parameter}", (self.text(value),))
        if run_filter.covered is not None:
            yield Condition(f"({table}.golden IS NOT NULL) = {self.parameter}", (run_filter.covered,))

    def time_conditions(
        self, run_filter: RunFilter, cursor: str | None, *, time_column: str, key_column: str
    ) -> Iterator[Condition]:
        """Yield the conditions of the time range and the cursor."""
        if run_filter.since_ns is not None:
            yield Condition(f"{time_column} >= {self.parameter}", (clamp_to_int64(run_filter.since_ns),))
        if run_filter.until_ns is not None:
            yield Condition(f"{time_column} < {self.parameter}", (clamp_to_int64(run_filter.until_ns),))
        if cursor is not None:
            yield Condition(
                f"({time_column}, {key_column}) < ({self.parameter}, {self.parameter})", decode_cursor(cursor)
            )


def joined(conditions: Iterable[Condition]) -> Condition:
    """Return the conditions as a WHERE clause, which is empty without conditions, and all their parameters."""
    found = tuple(conditions)
    clause = f"WHERE {' AND '.join(condition.sql for condition in found)}" if found else ""
    return Condition(clause, tuple(value for condition in found for value in condition.values))


def clamp_to_int64(number: int) -> int:
    """Clamp a number to the range of a 64-bit integer."""
    return max(-(2**63), min(number, 2**63 - 1))


def encode_cursor(time_ns: int, key: int) -> str:
    """Return the cursor of the page that starts after a run."""
    return f"{time_ns}-{key}"


def decode_cursor(cursor: str) -> tuple[int, int]:
    """Return time and key of the last run of the previous page. Raises `ConfigurationError` for any other text."""
    match = CURSOR_PATTERN.fullmatch(cursor)
    if match is None:
        raise ConfigurationError(f"{cursor!r} is not a cursor; use the `next_cursor` of a page")
    return clamp_to_int64(int(match[1])), clamp_to_int64(int(match[2]))


def page_size(limit: int) -> int:
    """Return the number of entries of a page, at most 1,000. Raises `ConfigurationError` for a limit below 1."""
    if limit < 1:
        raise ConfigurationError(f"limit must be at least 1, not {limit}")
    return min(limit, MAX_PAGE_SIZE)
