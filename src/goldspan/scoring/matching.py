"""Lay the calls of a run beside the expectations of a golden, once. Every call and every expectation gets one row."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

from goldspan.goldens.naming import Naming, naming
from goldspan.model import (
    COUNTED_KINDS,
    Attempts,
    Comparison,
    ExpectedTool,
    Golden,
    Order,
    Row,
    Run,
    ToolCall,
    Verdict,
)
from goldspan.scoring.calls import CallLike, ToolLike, as_calls, as_golden
from goldspan.scoring.identity import is_called, is_forbidden
from goldspan.scoring.pairing import Pair, pair

NO_GOLDEN = "no golden"
"""The note beside a call of which nothing was expected."""


def compare(
    called: Run | Iterable[CallLike],
    expected: Golden | Iterable[ToolLike] | None,
    *,
    order: Order | None = None,
    attempts: Attempts | None = None,
    forbid: Iterable[str] | None = None,
) -> Comparison:
    """Lay calls beside expectations: lists of names, dictionaries, `ToolCall` / `ExpectedTool`, a run, a golden.

    `order`, `attempts` and `forbid` default to what the golden says; where there is only a list of tools they are
    `"any"`, `"effective"` and nothing. Without expectations (`None`) every call is tolerated. Raises `GoldspanError`
    for what is neither call nor tool.

        >>> compare(["search", "cancel"], ["search", "book"]).missing[0].expected.name
        'book'
    """
    calls = as_calls(called)
    if expected is None:
        return Comparison(None, tuple(_row("tolerated", at, call, NO_GOLDEN) for at, call in enumerate(calls)))
    return compare_with(calls, as_golden(expected, order=order, attempts=attempts, forbid=forbid))


def compare_with(calls: Sequence[ToolCall], golden: Golden) -> Comparison:
    """Lay calls beside a golden."""
    names = naming(golden.vocabulary)
    aside = _aside(calls, golden, names)
    taking_part = [(at, call) for at, call in enumerate(calls) if at not in aside]
    pairs = pair(golden.calls, taking_part, order=golden.order, naming=names)
    return Comparison(golden, tuple(_rows(calls, golden.calls, aside, pairs)))


def _aside(calls: Sequence[ToolCall], golden: Golden, names: Naming) -> dict[int, Row]:
    """The rows of the calls that take no part in the pairing."""
    aside: dict[int, Row] = {}
    for at, call in enumerate(calls):
        if not call.made:
            aside[at] = _row("tolerated", at, call, call.outcome)
        elif golden.forbid and is_forbidden(call, golden.forbid, names):
            aside[at] = _row("forbidden", at, call)
        elif call.kind not in COUNTED_KINDS and not _is_named(call, golden.calls, names):
            aside[at] = _row("tolerated", at, call, call.kind)
    if golden.attempts != "all" and any(call.error is not None for call in calls):
        _set_failures_aside(calls, golden.attempts, aside, names)
    return aside


def _set_failures_aside(calls: Sequence[ToolCall], attempts: Attempts, aside: dict[int, Row], names: Naming) -> None:
    succeeded: set[Hashable] = set()
    for at in reversed(range(len(calls))):
        call = calls[at]
        if at in aside:
            continue
        tool = names.tool(call)
        if call.error is None:
            succeeded.add(tool)
        elif attempts == "succeeded":
            aside[at] = _row("superseded", at, call, "failed")
        elif tool in succeeded:
            aside[at] = _row("superseded", at, call, "made good by a later call")


def _is_named(call: ToolCall, tools: Iterable[ExpectedTool], names: Naming) -> bool:
    return names.declares(call) or any(is_called(tool, call, names) for tool in tools)


def _rows(
    calls: Sequence[ToolCall], tools: Sequence[ExpectedTool], aside: Mapping[int, Row], pairs: Iterable[Pair]
) -> list[Row]:
    pair_at = {found.call: found for found in pairs}
    due = _due(tools, {found.expectation: found.call for found in pair_at.values()})
    rows = due.get(-1, [])
    for at, call in enumerate(calls):
        if found := pair_at.get(at):
            rows.append(
                Row(
                    "paired",
                    expected=tools[found.expectation],
                    called=call,
                    expected_at=found.expectation,
                    called_at=at,
                    agreement=found.agreement,
                    in_order=found.in_order,
                )
            )
        else:
            rows.append(aside.get(at) or _row("unexpected", at, call))
        rows.extend(due.get(at, ()))
    return rows


def _due(tools: Sequence[ExpectedTool], call_of: Mapping[int, int]) -> dict[int, list[Row]]:
    """The rows of the missing expectations, each under the call that answers the expectation before it; -1: none."""
    due: dict[int, list[Row]] = {}
    after = -1
    for expectation, tool in enumerate(tools):
        if expectation in call_of:
            after = call_of[expectation]
        else:
            due.setdefault(after, []).append(Row("missing", expected=tool, expected_at=expectation))
    return due


def _row(verdict: Verdict, at: int, call: ToolCall, note: str | None = None) -> Row:
    return Row(verdict, called=call, called_at=at, note=note)
