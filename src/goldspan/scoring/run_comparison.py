"""Calls that may have failed: nothing but the text of their results reads like an error."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from goldspan.goldens.tool_names import ToolNameMatcher
from goldspan.model import (
    ABSENT,
    COUNTED_TOOL_KINDS,
    NO_GOLDEN_NOTE,
    Comparison,
    ComparisonRow,
    ExpectedTool,
    Golden,
    RequirementResult,
    RowVerdict,
    Run,
    ToolCall,
    fast_constructor,
)
from goldspan.model.goldens import iter_expected_calls
from goldspan.scoring.arguments.equality import content_key, equal
from goldspan.scoring.arguments.multisets import equality_keys
from goldspan.scoring.coercion import CallLike, ToolLike, as_golden, as_run
from goldspan.scoring.matching.best_match import Pairing, best_pairing
from goldspan.scoring.matching.match_costs import NO_FAILED_CALLS, FailedCalls, schema_lookup
from goldspan.scoring.matching.slot_plan import GoldenPlans, Slot, SlotPlan, golden_plans, is_forbidden, matches_agent

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from goldspan.scoring.coercion import GoldenFields


def calls_by_other_agents(
    rows: Sequence[ComparisonRow], names: ToolNameMatcher
) -> tuple[tuple[ComparisonRow, ComparisonRow], ...]:
    """Missing expectations, each with an unexpected call of the tool by another agent than the expected one.

    Each call is that of one expectation, the first that it could have answered.
    """
    missing = [row for row in rows if row.verdict == "missing"]
    unexpected = [row for row in rows if row.verdict == "unexpected"]
    by_key: dict[str, list[ComparisonRow]] = {}  # the first last, where it is soon taken
    for row in reversed(unexpected):
        for key in names.called_keys(row.called) if row.called else ():
            by_key.setdefault(key, []).append(row)
    taken: set[int] = set()
    found = []
    for row in missing:
        calls = [
            _first_by_other_agent(by_key.get(key, []), tool, taken)
            for tool in _expected_tools(row)
            for key in names.expected_keys(tool)
        ]
        if free := [call for call in calls if call is not None]:
            call = min(free, key=lambda call: call.called_at or 0)
            taken.add(id(call))
            found.append((row, call))
    return tuple(found)


def _first_by_other_agent(rows: list[ComparisonRow], tool: ExpectedTool, taken: Container[int]) -> ComparisonRow | None:
    """The last of some rows that is not taken, if its call was made by another agent than the tool wants."""
    while rows and id(rows[-1]) in taken:
        rows.pop()
    return rows[-1] if rows and rows[-1].called and not matches_agent(tool, rows[-1].called) else None


def _expected_tools(row: ComparisonRow) -> Sequence[ExpectedTool]:
    return [] if row.expected is None else list(iter_expected_calls([row.expected]))


SUB_AGENT = "sub-agent"
"""The note beside the call of another agent than the run's own, where only its own count."""

FAILED = "failed"
"""The note beside a failure where failures never count."""

RECOVERED = "made good by a later call"
"""The note beside a failure after which the tool was called with success."""

RETRIED = "tried again"
"""The note beside a failure after which the tool failed again, and no more."""

_Row = fast_constructor(ComparisonRow)


class Eligibility(NamedTuple):
    """The calls that take no part, and what is known of those that do and failed; all by position."""

    excluded: Mapping[int, ComparisonRow]
    """The rows of the calls that take no part."""
    failures: FailedCalls = NO_FAILED_CALLS
    """The calls that take part and failed, where a success is preferred to them."""
    ignored_if_unmatched: Mapping[int, str] = MappingProxyType({})
    """Those of them that do not count where they answer nothing, each with the note that says why."""


def select_eligible_calls(
    run: Run, golden: Golden, plans: GoldenPlans, assume_equal: bool | None = None
) -> Eligibility:
    """Tell which calls of a run take part; `alike` is that of a `Reading`.

    Denied and deferred calls were never made. What is forbidden is forbidden whoever calls it, and however it ends.
    """
    aside: dict[int, ComparisonRow] = {}
    failed: list[int] = []
    own = run.agent if golden.depth == "own" else None
    for at, call in enumerate(run.tool_calls):
        if not call.was_made:
            aside[at] = unmatched_row("tolerated", at, call, call.outcome)
        elif golden.forbid and is_forbidden(call, golden.forbid, plans.names):
            aside[at] = unmatched_row("forbidden", at, call)
        elif own is not None and call.agent is not None and call.agent != own:
            aside[at] = unmatched_row("tolerated", at, call, SUB_AGENT)
        elif call.kind not in COUNTED_TOOL_KINDS and not plans.mentions_call(call):
            aside[at] = unmatched_row("tolerated", at, call, call.kind)
        elif call.error is not None:
            failed.append(at)
    if not failed or golden.attempts == "all":
        return Eligibility(aside)
    if golden.attempts == "effective":
        return _select_effective_attempts(run.tool_calls, failed, aside, plans.names, assume_equal)
    for at in failed:
        aside[at] = unmatched_row("superseded", at, run.tool_calls[at], FAILED)
    return Eligibility(aside)


def unmatched_row(verdict: RowVerdict, at: int, call: ToolCall, note: str | None = None) -> ComparisonRow:
    """The row of a call that nothing stands beside."""
    return _Row(verdict, None, call, None, at, None, None, None, note)


def _select_effective_attempts(
    calls: Sequence[ToolCall],
    failed: Iterable[int],
    aside: Mapping[int, ComparisonRow],
    names: ToolNameMatcher,
    assume_equal: bool | None,
) -> Eligibility:
    attempts: dict[Hashable, list[int]] = {names.tool_identity(calls[at]): [] for at in failed}
    for at, call in enumerate(calls):
        if at not in aside and (tool := names.tool_identity(call)) in attempts:
            attempts[tool].append(at)
    superseded: dict[int, ComparisonRow] = {}
    standing: set[int] = set()
    excused: dict[int, str] = {}
    for of_tool in attempts.values():
        keys = equality_keys([calls[at].arguments for at in of_tool])
        made: set[Hashable] = set()
        later, unknown = None, False
        for at, key in zip(reversed(of_tool), reversed(keys), strict=True):
            same = ("no other", at) if key is None else key
            if calls[at].error is None:
                later = RECOVERED
            elif later is not None and _is_retry(same in made, unknown or calls[at].arguments is None, assume_equal):
                superseded[at] = unmatched_row("superseded", at, calls[at], later)
            else:
                standing.add(at)
                if later is not None:
                    excused[at] = later
                later = later or RETRIED
            made.add(same)
            unknown = unknown or calls[at].arguments is None
    made_good = frozenset([at for at, why in excused.items() if why == RECOVERED])
    return Eligibility({**aside, **superseded}, FailedCalls(frozenset(standing), made_good), excused)


def _is_retry(is_equal: bool, is_unknown: bool, assume_equal: bool | None) -> bool:
    """Whether a later call repeats a failed one; `is_unknown`: arguments of either were not captured."""
    return is_equal if assume_equal is None or not is_unknown else assume_equal


_StatedValues: TypeAlias = list[tuple[Any, Any]]
"""The arguments and the result of each of the tools of a slot."""

DUPLICATE = "repeat"
"""The note beside a call or an expectation that was there before."""


def tolerate_duplicates(
    rows: Sequence[ComparisonRow], plan: SlotPlan, names: ToolNameMatcher, assume_equal: bool | None = None
) -> Iterator[ComparisonRow]:
    """The rows; unexpected calls and missing expectations that equal one that counts are tolerated.

    `alike` is that of a `Reading`.
    """
    calls = _CountedCalls(names, assume_equal)
    expected = _CountedSlots(names)
    for row in rows:
        if row.called and row.expected_at is not None:
            calls.add_if_new(row.called)
            expected.add_if_new(plan.slots[row.expected_at])
    for row in rows:
        repeated = False
        if row.verdict == "unexpected" and row.called:
            repeated = not calls.add_if_new(row.called)
        elif row.verdict == "missing" and row.expected_at is not None:
            repeated = not expected.add_if_new(plan.slots[row.expected_at])
        yield replace(row, verdict="tolerated", note=DUPLICATE) if repeated else row


class _CountedCalls:
    """Calls that count."""

    def __init__(self, names: ToolNameMatcher, alike: bool | None) -> None:
        self._names = names
        self._alike = alike
        self._seen: set[Hashable] = set()
        self._arguments: dict[Hashable, list[Any]] = {}

    def add_if_new(self, call: ToolCall) -> bool:
        """Whether no call of the tool had these arguments before; then it is one from now on."""
        tool = self._names.tool_identity(call)
        known = self._arguments.setdefault(tool, [])
        if self._alike is not None and known and (call.arguments is None or None in known):
            known.append(call.arguments)
            return not self._alike
        key = tool, content_key(call.arguments)
        if key in self._seen:
            return False
        self._seen.add(key)
        if any(equal(arguments, call.arguments) for arguments in known):
            return False
        known.append(call.arguments)
        return True


class _CountedSlots:
    """Expectations that count."""

    def __init__(self, names: ToolNameMatcher) -> None:
        self._names = names
        self._seen: set[Hashable] = set()
        self._stated: dict[Hashable, list[_StatedValues]] = {}

    def add_if_new(self, slot: Slot) -> bool:
        """Whether no slot before asked for the same; then it is one from now on."""
        stated = [(tool.arguments, tool.result) for tool in slot.tools]
        asked = tuple([self._tool_key(tool) for tool in slot.tools])
        key = asked, tuple([(content_key(arguments), content_key(result)) for arguments, result in stated])
        if key in self._seen:
            return False
        self._seen.add(key)
        known = self._stated.setdefault(asked, [])
        if any(equal(those, stated) for those in known):
            return False
        known.append(stated)
        return True

    def _tool_key(self, tool: ExpectedTool) -> Hashable:
        """Which tool it is, of which agent, and whether it states arguments and a result."""
        return self._names.expected_keys(tool), tool.agent, tool.arguments is None, tool.result is ABSENT


EXTRA = "extra"
"""The note beside an unexpected call that is allowed."""

NOT_IN_POLICY = "policy"
"""The note beside a call of which a policy says nothing."""

NOT_CALLED = "optional, not called"
"""The note beside an expectation that need not be met and was not."""


def compare(
    called: Run | Iterable[CallLike], expected: Golden | Iterable[ToolLike] | None, **rules: Unpack[GoldenFields]
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
        rows = (unmatched_row("tolerated", at, call, NO_GOLDEN_NOTE) for at, call in enumerate(run.tool_calls))
        return Comparison(None, tuple(rows), run)
    return compare_run(run, as_golden(expected, **rules))


class MissingArgumentsAssumption(NamedTuple):
    """How calls are read whose arguments were not captured: `True` as like another call of the tool, `False` as like
    none, `None` as like those without arguments."""

    are_retries: bool | None = None
    """Of a failed call and a later one, which then repeats it."""
    are_repeats: bool | None = None
    """Of any two calls, where the golden ignores duplicates."""


NO_ASSUMPTION = MissingArgumentsAssumption()


def compare_run(run: Run, golden: Golden, assumption: MissingArgumentsAssumption = NO_ASSUMPTION) -> Comparison:
    """Lay the calls of a run beside a golden."""
    asked = golden_plans(golden)
    present = select_eligible_calls(run, golden, asked, assumption.are_retries)
    found = _pair_eligible_calls(run, golden, asked, present)
    rows: Iterable[ComparisonRow] = _comparison_rows(run, golden, present, found)
    if golden.duplicates == "ignore":
        rows = tolerate_duplicates(tuple(rows), found.plan, asked.names, assumption.are_repeats)
    rows = tuple(rows)
    by_others = calls_by_other_agents(rows, asked.names) if found.plan.names_agents else ()
    return Comparison(golden, rows, run, found.approximate, by_others)


def _pair_eligible_calls(run: Run, golden: Golden, asked: GoldenPlans, present: Eligibility) -> Pairing:
    """The best pairing; failures that were made good take part in it only where something else would be missing."""
    made_good = present.failures.recovered
    calls = [each for each in enumerate(run.tool_calls) if each[0] not in present.excluded]
    schemas = schema_lookup(run, golden, asked.names)
    if not made_good:
        return best_pairing(asked, calls, order=golden.order, schemas=schemas, failures=present.failures)
    lasting = [each for each in calls if each[0] not in made_good]
    without = best_pairing(asked, lasting, order=golden.order, schemas=schemas, failures=present.failures.unrecovered)
    if not without.lacks_required_calls:
        return without
    found = best_pairing(asked, calls, order=golden.order, schemas=schemas, failures=present.failures)
    return without if made_good.isdisjoint(found.rows) else found


def _comparison_rows(run: Run, golden: Golden, present: Eligibility, found: Pairing) -> list[ComparisonRow]:
    pairs = found.rows
    due = _unanswered_rows(found) if len(pairs) < len(found.plan.slots) else {}
    rows = due.get(-1, [])
    for at, call in enumerate(run.tool_calls):
        row = pairs.get(at) or present.excluded.get(at)
        if row is None and at in present.ignored_if_unmatched:
            row = unmatched_row("superseded", at, call, present.ignored_if_unmatched[at])
        elif row is None:
            row = _unexpected_row(at, call, golden)
        rows.append(row)
        if at in due:
            rows.extend(due[at])
    return rows


def _unexpected_row(at: int, call: ToolCall, golden: Golden) -> ComparisonRow:
    """The row of a call that nobody expected."""
    if golden.policy:
        return unmatched_row("tolerated", at, call, NOT_IN_POLICY)
    return (
        unmatched_row("tolerated", at, call, EXTRA)
        if golden.extra == "allow"
        else unmatched_row("unexpected", at, call)
    )


def _unanswered_rows(found: Pairing) -> dict[int, list[ComparisonRow]]:
    """The rows of the slots that nobody answers, each under the call that answers the slot before it; -1: none."""
    call_of = {row.expected_at: call for call, row in found.rows.items()}
    due: dict[int, list[ComparisonRow]] = {}
    after = -1
    for at, slot in enumerate(found.plan.slots):
        if at in call_of:
            after = call_of[at]
        elif slot.required:
            due.setdefault(after, []).append(ComparisonRow("missing", slot.display, expected_at=at))
        else:
            due.setdefault(after, []).append(ComparisonRow("tolerated", slot.display, expected_at=at, note=NOT_CALLED))
    return due


def assuming_suspected_failures(seen: Comparison) -> Comparison | None:
    """The comparison as it would be if all calls that may have failed had; `None`: there are none, or no golden."""
    if seen.golden is None or not any(map(_may_have_failed, seen.run.tool_calls)):
        return None
    calls = [
        replace(call, error=call.error_guess, outcome="error") if _may_have_failed(call) else call
        for call in seen.run.tool_calls
    ]
    return compare_run(replace(seen.run, tool_calls=tuple(calls)), seen.golden)


def suspected_failure_statements(seen: Comparison) -> Iterator[RequirementResult]:
    """That the verdict depends on whether calls failed, one statement for each of them."""
    for at, call in enumerate(seen.run.tool_calls):
        if _may_have_failed(call):
            yield RequirementResult("outcome", f"whether {call.name} failed is not known", called_at=at)


def _may_have_failed(call: ToolCall) -> bool:
    return call.error is None and call.error_guess is not None and call.was_made
