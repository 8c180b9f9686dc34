"""Calls that were made by another agent than the expected one."""

from __future__ import annotations

from collections.abc import Container, Sequence

from goldspan.goldens.naming import Naming
from goldspan.model import ExpectedTool, Row
from goldspan.model.goldens import expected_calls
from goldspan.scoring.identity import is_by


def made_by_others(rows: Sequence[Row], names: Naming) -> tuple[tuple[Row, Row], ...]:
    """Missing expectations, each with an unexpected call of the tool by another agent than the expected one.

    Each call is that of one expectation, the first that it could have answered.
    """
    missing = [row for row in rows if row.verdict == "missing"]
    unexpected = [row for row in rows if row.verdict == "unexpected"]
    by_key: dict[str, list[Row]] = {}  # the first last, where it is soon taken
    for row in reversed(unexpected):
        for key in names.called(row.called) if row.called else ():
            by_key.setdefault(key, []).append(row)
    taken: set[int] = set()
    found = []
    for row in missing:
        calls = [_first(by_key.get(key, []), tool, taken) for tool in _tools(row) for key in names.wanted(tool)]
        if free := [call for call in calls if call is not None]:
            call = min(free, key=lambda call: call.called_at or 0)
            taken.add(id(call))
            found.append((row, call))
    return tuple(found)


def _first(rows: list[Row], tool: ExpectedTool, taken: Container[int]) -> Row | None:
    """The last of some rows that is not taken, if its call was made by another agent than the tool wants."""
    while rows and id(rows[-1]) in taken:
        rows.pop()
    return rows[-1] if rows and rows[-1].called and not is_by(tool, rows[-1].called) else None


def _tools(row: Row) -> Sequence[ExpectedTool]:
    return [] if row.expected is None else list(expected_calls([row.expected]))
