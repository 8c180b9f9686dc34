"""Lay the calls of a run beside the expectations of a golden, once. Every call and every slot gets one row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from goldspan.model import NO_GOLDEN, Comparison, Golden, Row, Run, ToolCall
from goldspan.scoring.alternatives import best_pairing
from goldspan.scoring.attendance import Attendance, attendance, row_of_call
from goldspan.scoring.calls import CallLike, ToolLike, as_golden, as_run
from goldspan.scoring.definitions import schemas_of
from goldspan.scoring.others import made_by_others
from goldspan.scoring.pairing import Pairing
from goldspan.scoring.plan import Layout, layout
from goldspan.scoring.repeats import without_repeats

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from goldspan.scoring.calls import GoldenKeys

EXTRA = "extra"
"""The note beside an unexpected call that is allowed."""

BESIDE_POLICY = "policy"
"""The note beside a call of which a policy says nothing."""

NOT_CALLED = "optional, not called"
"""The note beside an expectation that need not be met and was not."""


def compare(
    called: Run | Iterable[CallLike], expected: Golden | Iterable[ToolLike] | None, **rules: Unpack[GoldenKeys]
) -> Comparison:
    """Lay calls beside expectations: lists of names, dictionaries, `ToolCall` / `ExpectedTool`, a run, a golden.

    `rules` stand in for what the golden says, and may be any key of a golden, such as `order`, `match` or `forbid`;
    where there is only a list of tools they are what a golden has where it says nothing. Without expectations (`None`)
    every call is tolerated. Raises `GoldspanError` for what is neither call nor tool, and for a rule that does not
    exist.

        >>> compare(["search", "cancel"], ["search", "book"]).missing[0].expected.name
        'book'
    """
    run = as_run(called)
    if expected is None:
        rows = (row_of_call("tolerated", at, call, NO_GOLDEN) for at, call in enumerate(run.tool_calls))
        return Comparison(None, tuple(rows), run)
    return compare_run(run, as_golden(expected, **rules))


class Reading(NamedTuple):
    """How calls are read whose arguments were not captured: `True` as like another call of the tool, `False` as like
    none, `None` as like those without arguments."""

    retries: bool | None = None
    """Of a failed call and a later one, which then repeats it."""
    repeats: bool | None = None
    """Of any two calls, where the golden ignores duplicates."""


AS_CAPTURED = Reading()


def compare_run(run: Run, golden: Golden, reading: Reading = AS_CAPTURED) -> Comparison:
    """Lay the calls of a run beside a golden."""
    asked = layout(golden)
    present = attendance(run, golden, asked, reading.retries)
    found = _pairing(run, golden, asked, present)
    rows: Iterable[Row] = _rows(run, golden, present, found)
    if golden.duplicates == "ignore":
        rows = without_repeats(tuple(rows), found.plan, asked.names, reading.repeats)
    rows = tuple(rows)
    by_others = made_by_others(rows, asked.names) if found.plan.names_agents else ()
    return Comparison(golden, rows, run, found.approximate, by_others)


def _pairing(run: Run, golden: Golden, asked: Layout, present: Attendance) -> Pairing:
    """The best pairing; failures that were made good take part in it only where something else would be missing."""
    made_good = present.failures.made_good
    calls = [each for each in enumerate(run.tool_calls) if each[0] not in present.aside]
    schemas = schemas_of(run, golden, asked.names)
    if not made_good:
        return best_pairing(asked, calls, order=golden.order, schemas=schemas, failures=present.failures)
    lasting = [each for each in calls if each[0] not in made_good]
    without = best_pairing(asked, lasting, order=golden.order, schemas=schemas, failures=present.failures.lasting)
    if not without.lacks_calls:
        return without
    found = best_pairing(asked, calls, order=golden.order, schemas=schemas, failures=present.failures)
    return without if made_good.isdisjoint(found.rows) else found


def _rows(run: Run, golden: Golden, present: Attendance, found: Pairing) -> list[Row]:
    pairs = found.rows
    due = _due(found) if len(pairs) < len(found.plan.slots) else {}
    rows = due.get(-1, [])
    for at, call in enumerate(run.tool_calls):
        row = pairs.get(at) or present.aside.get(at)
        if row is None and at in present.excused:
            row = row_of_call("superseded", at, call, present.excused[at])
        elif row is None:
            row = _beside(at, call, golden)
        rows.append(row)
        if at in due:
            rows.extend(due[at])
    return rows


def _beside(at: int, call: ToolCall, golden: Golden) -> Row:
    """The row of a call that nobody expected."""
    if golden.policy:
        return row_of_call("tolerated", at, call, BESIDE_POLICY)
    return row_of_call("tolerated", at, call, EXTRA) if golden.extra == "allow" else row_of_call("unexpected", at, call)


def _due(found: Pairing) -> dict[int, list[Row]]:
    """The rows of the slots that nobody answers, each under the call that answers the slot before it; -1: none."""
    call_of = {row.expected_at: call for call, row in found.rows.items()}
    due: dict[int, list[Row]] = {}
    after = -1
    for at, slot in enumerate(found.plan.slots):
        if at in call_of:
            after = call_of[at]
        elif slot.required:
            due.setdefault(after, []).append(Row("missing", slot.shown, expected_at=at))
        else:
            due.setdefault(after, []).append(Row("tolerated", slot.shown, expected_at=at, note=NOT_CALLED))
    return due
