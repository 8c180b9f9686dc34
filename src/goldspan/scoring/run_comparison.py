"""Compares the calls of a run with the expected calls of a golden, row by row."""

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
from goldspan.scoring.matching.best_match import EXTRA, Pairing, best_pairing
from goldspan.scoring.matching.direct_match import direct_match
from goldspan.scoring.matching.match_costs import NO_FAILED_CALLS, FailedCalls, schema_lookup
from goldspan.scoring.matching.slot_plan import GoldenPlans, Slot, SlotPlan, golden_plans, is_forbidden, matches_agent

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from goldspan.scoring.coercion import GoldenFields


def calls_by_other_agents(
    rows: Sequence[ComparisonRow], names: ToolNameMatcher
) -> tuple[tuple[ComparisonRow, ComparisonRow], ...]:
    """Returns missing expectations, each with an unexpected call of the tool by another agent than the expected one.

    Each call belongs to one expectation, the first that it would match.
    """
    missing = [row for row in rows if row.verdict == "missing"]
    unexpected = [row for row in rows if row.verdict == "unexpected"]
    by_key: dict[str, list[ComparisonRow]] = {}  # in reverse order, so that the first row is popped first
    for row in reversed(unexpected):
        for key in names.called_keys(row.called) if row.called else ():
            by_key.setdefault(key, []).append(row)
    used: set[int] = set()
    found = []
    for row in missing:
        calls = [
            _first_by_other_agent(by_key.get(key, []), tool, used)
            for tool in _expected_tools(row)
            for key in names.expected_keys(tool)
        ]
        if free := [call for call in calls if call is not None]:
            call = min(free, key=lambda call: call.called_at or 0)
            used.add(id(call))
            found.append((row, call))
    return tuple(found)


def _first_by_other_agent(rows: list[ComparisonRow], tool: ExpectedTool, used: Container[int]) -> ComparisonRow | None:
    """Returns the last unused row, if its call was made by another agent than the expected one."""
    while rows and id(rows[-1]) in used:
        rows.pop()
    return rows[-1] if rows and rows[-1].called and not matches_agent(tool, rows[-1].called) else None


def _expected_tools(row: ComparisonRow) -> Sequence[ExpectedTool]:
    return [] if row.expected is None else list(iter_expected_calls([row.expected]))


SUB_AGENT = "sub-agent"
"""The note of a call by another agent than the run's own, with `depth: own`."""

FAILED = "failed"
"""The note of a failed call, with `attempts: succeeded`."""

RECOVERED = "made good by a later call"
"""The note of a failed call after which a call of the tool succeeded."""

RETRIED = "tried again"
"""The note of a failed call after which the tool was called again without success."""

_Row = fast_constructor(ComparisonRow)


class Eligibility(NamedTuple):
    """The calls that are not matched with expectations, and the failed ones among the others; all by position."""

    excluded: Mapping[int, ComparisonRow]
    """The rows of the calls that are not matched."""
    failures: FailedCalls = NO_FAILED_CALLS
    """The failed calls that are matched only if no successful call is available."""
    ignored_if_unmatched: Mapping[int, str] = MappingProxyType({})
    """The failed calls that do not count if they match no expectation, each with the note of its row."""


def select_eligible_calls(
    run: Run, golden: Golden, plans: GoldenPlans, assume_equal: bool | None = None
) -> Eligibility:
    """Decide which calls of a run are matched; `assume_equal` is `MissingArgumentsAssumption.are_retries`.

    Denied and deferred calls were never made. A forbidden call is forbidden for every agent and with every outcome.
    """
    excluded: dict[int, ComparisonRow] = {}
    failed: list[int] = []
    own_agent = run.agent if golden.depth == "own" else None
    for at, call in enumerate(run.tool_calls):
        if not call.was_made:
            excluded[at] = unmatched_row("tolerated", at, call, call.outcome)
        elif golden.forbid and is_forbidden(call, golden.forbid, plans.names):
            excluded[at] = unmatched_row("forbidden", at, call)
        elif own_agent is not None and call.agent is not None and call.agent != own_agent:
            excluded[at] = unmatched_row("tolerated", at, call, SUB_AGENT)
        elif call.kind not in COUNTED_TOOL_KINDS and not plans.mentions_call(call):
            excluded[at] = unmatched_row("tolerated", at, call, call.kind)
        elif call.error is not None:
            failed.append(at)
    if not failed or golden.attempts == "all":
        return Eligibility(excluded)
    if golden.attempts == "effective":
        return _select_effective_attempts(run.tool_calls, failed, excluded, plans.names, assume_equal)
    for at in failed:
        excluded[at] = unmatched_row("superseded", at, run.tool_calls[at], FAILED)
    return Eligibility(excluded)


def unmatched_row(verdict: RowVerdict, at: int, call: ToolCall, note: str | None = None) -> ComparisonRow:
    """Returns the row of a call without an expectation."""
    return _Row(verdict, None, call, None, at, None, None, None, note)


def _select_effective_attempts(
    calls: Sequence[ToolCall],
    failed: Iterable[int],
    excluded: Mapping[int, ComparisonRow],
    names: ToolNameMatcher,
    assume_equal: bool | None,
) -> Eligibility:
    attempts: dict[Hashable, list[int]] = {names.tool_identity(calls[at]): [] for at in failed}
    for at, call in enumerate(calls):
        if at not in excluded and (tool := names.tool_identity(call)) in attempts:
            attempts[tool].append(at)
    superseded: dict[int, ComparisonRow] = {}
    remaining: set[int] = set()
    notes: dict[int, str] = {}
    for positions in attempts.values():
        keys = equality_keys([calls[at].arguments for at in positions])
        later_keys: set[Hashable] = set()
        note, has_unknown = None, False
        for at, key in zip(reversed(positions), reversed(keys), strict=True):
            own_key = ("no other", at) if key is None else key
            is_unknown = has_unknown or calls[at].arguments is None
            if calls[at].error is None:
                note = RECOVERED
            elif note is not None and _is_retry(own_key in later_keys, is_unknown, assume_equal):
                superseded[at] = unmatched_row("superseded", at, calls[at], note)
            else:
                remaining.add(at)
                if note is not None:
                    notes[at] = note
                note = note or RETRIED
            later_keys.add(own_key)
            has_unknown = is_unknown
    recovered = frozenset([at for at, note in notes.items() if note == RECOVERED])
    return Eligibility({**excluded, **superseded}, FailedCalls(frozenset(remaining), recovered), notes)


def _is_retry(is_equal: bool, is_unknown: bool, assume_equal: bool | None) -> bool:
    """Whether a later call retries a failed one; `is_unknown`: arguments of either were not captured."""
    return is_equal if assume_equal is None or not is_unknown else assume_equal


_StatedValues: TypeAlias = list[tuple[Any, Any]]
"""The expected arguments and result of each tool of a slot."""

DUPLICATE = "repeat"
"""The note of a call or an expectation that repeats an earlier one."""


def tolerate_duplicates(
    rows: Sequence[ComparisonRow], plan: SlotPlan, names: ToolNameMatcher, assume_equal: bool | None = None
) -> Iterator[ComparisonRow]:
    """Yield the rows. An unexpected call or a missing expectation is tolerated if it equals one that counts.

    `assume_equal` is `MissingArgumentsAssumption.are_repeats`.
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
    """The calls that count, without duplicates."""

    def __init__(self, names: ToolNameMatcher, assume_equal: bool | None) -> None:
        self._names = names
        self._assume_equal = assume_equal
        self._seen: set[Hashable] = set()
        self._arguments: dict[Hashable, list[Any]] = {}

    def add_if_new(self, call: ToolCall) -> bool:
        """Add a call unless an earlier call of the tool has equal arguments. Returns whether it was added."""
        tool = self._names.tool_identity(call)
        known = self._arguments.setdefault(tool, [])
        if self._assume_equal is not None and known and (call.arguments is None or None in known):
            known.append(call.arguments)
            return not self._assume_equal
        key = tool, content_key(call.arguments)
        if key in self._seen:
            return False
        self._seen.add(key)
        if any(equal(arguments, call.arguments) for arguments in known):
            return False
        known.append(call.arguments)
        return True


class _CountedSlots:
    """The expectations that count, without duplicates."""

    def __init__(self, names: ToolNameMatcher) -> None:
        self._names = names
        self._seen: set[Hashable] = set()
        self._stated: dict[Hashable, list[_StatedValues]] = {}

    def add_if_new(self, slot: Slot) -> bool:
        """Add a slot unless an earlier one expects the same. Returns whether it was added."""
        stated = [(tool.arguments, tool.result) for tool in slot.tools]
        tools = tuple([self._tool_key(tool) for tool in slot.tools])
        key = tools, tuple([(content_key(arguments), content_key(result)) for arguments, result in stated])
        if key in self._seen:
            return False
        self._seen.add(key)
        known = self._stated.setdefault(tools, [])
        if any(equal(earlier, stated) for earlier in known):
            return False
        known.append(stated)
        return True

    def _tool_key(self, tool: ExpectedTool) -> Hashable:
        """Identifies the tool and agent, and whether arguments and a result are stated."""
        return self._names.expected_keys(tool), tool.agent, tool.arguments is None, tool.result is ABSENT


NOT_IN_POLICY = "policy"
"""The note of a call that a policy does not mention."""

NOT_CALLED = "optional, not called"
"""The note of an optional expectation without a call."""


def compare(
    called: Run | Iterable[CallLike], expected: Golden | Iterable[ToolLike] | None, **rules: Unpack[GoldenFields]
) -> Comparison:
    """Compare calls with expected calls.

        >>> compare(["search", "cancel"], ["search", "book"]).missing[0].expected.name
        'book'

    Args:
        called: A run, or a list of names, dictionaries or `ToolCall` values.
        expected: A golden, or a list of names, dictionaries or `ExpectedTool` values. With `None` every call is
            tolerated.
        **rules: Any key of a golden, such as `order`, `match` or `forbid`, in place of the golden's.

    Returns:
        The comparison.

    Raises:
        GoldspanError: An item is neither a call nor a tool, or a rule does not exist.
    """
    run = as_run(called)
    if expected is None:
        rows = (unmatched_row("tolerated", at, call, NO_GOLDEN_NOTE) for at, call in enumerate(run.tool_calls))
        return Comparison(None, tuple(rows), run)
    return compare_run(run, as_golden(expected, **rules))


class MissingArgumentsAssumption(NamedTuple):
    """What is assumed of calls whose arguments were not captured. `True`: they equal those of every call of the tool;
    `False`: they equal those of no call; `None`: they equal those of calls without arguments."""

    are_retries: bool | None = None
    """The assumption that decides whether a later call retries a failed one."""
    are_repeats: bool | None = None
    """The assumption that decides whether a call is a duplicate, with `duplicates: ignore`."""


NO_ASSUMPTION = MissingArgumentsAssumption()


def compare_run(run: Run, golden: Golden, assumption: MissingArgumentsAssumption = NO_ASSUMPTION) -> Comparison:
    """Compare the calls of a run with a golden."""
    direct = direct_match(golden_plans(golden))
    comparison = direct and direct.compare(run, golden)
    return comparison or compare_by_best_pairing(run, golden, assumption)


def compare_by_best_pairing(
    run: Run, golden: Golden, assumption: MissingArgumentsAssumption = NO_ASSUMPTION
) -> Comparison:
    """Compare any run with any golden. `compare_run` returns the same, in less time if the direct match applies."""
    plans = golden_plans(golden)
    eligibility = select_eligible_calls(run, golden, plans, assumption.are_retries)
    pairing = _pair_eligible_calls(run, golden, plans, eligibility)
    rows: Iterable[ComparisonRow] = _comparison_rows(run, golden, eligibility, pairing)
    if golden.duplicates == "ignore":
        rows = tolerate_duplicates(tuple(rows), pairing.plan, plans.names, assumption.are_repeats)
    rows = tuple(rows)
    wrong_agent_pairs = calls_by_other_agents(rows, plans.names) if pairing.plan.names_agents else ()
    return Comparison(golden, rows, run, pairing.approximate, wrong_agent_pairs)


def _pair_eligible_calls(run: Run, golden: Golden, plans: GoldenPlans, eligibility: Eligibility) -> Pairing:
    """Returns the best pairing. It uses recovered failures only if a required expectation is missing without them."""
    failures = eligibility.failures
    calls = [each for each in enumerate(run.tool_calls) if each[0] not in eligibility.excluded]
    schemas = schema_lookup(run, golden, plans.names)
    if not failures.recovered:
        return best_pairing(plans, calls, order=golden.order, schemas=schemas, failures=failures)
    others = [each for each in calls if each[0] not in failures.recovered]
    without = best_pairing(plans, others, order=golden.order, schemas=schemas, failures=failures.unrecovered)
    if not without.lacks_required_calls:
        return without
    pairing = best_pairing(plans, calls, order=golden.order, schemas=schemas, failures=failures)
    return without if failures.recovered.isdisjoint(pairing.rows) else pairing


def _comparison_rows(run: Run, golden: Golden, eligibility: Eligibility, pairing: Pairing) -> list[ComparisonRow]:
    pairs = pairing.rows
    unanswered = _unanswered_rows(pairing) if len(pairs) < len(pairing.plan.slots) else {}
    rows = unanswered.get(-1, [])
    for at, call in enumerate(run.tool_calls):
        row = pairs.get(at) or eligibility.excluded.get(at)
        if row is None and at in eligibility.ignored_if_unmatched:
            row = unmatched_row("superseded", at, call, eligibility.ignored_if_unmatched[at])
        elif row is None:
            row = _unexpected_row(at, call, golden)
        rows.append(row)
        if at in unanswered:
            rows.extend(unanswered[at])
    return rows


def _unexpected_row(at: int, call: ToolCall, golden: Golden) -> ComparisonRow:
    """Returns the row of a call that matches no expectation."""
    if golden.policy:
        return unmatched_row("tolerated", at, call, NOT_IN_POLICY)
    return (
        unmatched_row("tolerated", at, call, EXTRA)
        if golden.extra == "allow"
        else unmatched_row("unexpected", at, call)
    )


def _unanswered_rows(pairing: Pairing) -> dict[int, list[ComparisonRow]]:
    """Returns the rows of the slots without a call, by the call of the slot before; -1: no slot before has a call."""
    call_of = {row.expected_at: call for call, row in pairing.rows.items()}
    rows: dict[int, list[ComparisonRow]] = {}
    after = -1
    for at, slot in enumerate(pairing.plan.slots):
        if at in call_of:
            after = call_of[at]
        elif slot.required:
            rows.setdefault(after, []).append(ComparisonRow("missing", slot.display, expected_at=at))
        else:
            rows.setdefault(after, []).append(ComparisonRow("tolerated", slot.display, expected_at=at, note=NOT_CALLED))
    return rows


# --- calls that may have failed: only the text of their results reads like an error -----------------------------------


def assuming_suspected_failures(comparison: Comparison) -> Comparison | None:
    """Returns the comparison if all calls that may have failed had failed; `None`: there are none, or no golden."""
    if comparison.golden is None or comparison.is_all_successful:
        return None
    if not any(map(_may_have_failed, comparison.run.tool_calls)):
        return None
    calls = [
        replace(call, error=call.error_guess, outcome="error") if _may_have_failed(call) else call
        for call in comparison.run.tool_calls
    ]
    return compare_run(replace(comparison.run, tool_calls=tuple(calls)), comparison.golden)


def suspected_failure_statements(comparison: Comparison) -> Iterator[RequirementResult]:
    """Yield a result for each call that may have failed, for a verdict that depends on them."""
    for at, call in enumerate(comparison.run.tool_calls):
        if _may_have_failed(call):
            yield RequirementResult("outcome", f"whether {call.name} failed is not known", called_at=at)


def _may_have_failed(call: ToolCall) -> bool:
    return call.error is None and call.error_guess is not None and call.was_made
