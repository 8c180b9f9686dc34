"""Finds the best pairs of slots and calls by cost, where several pairs compete."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, TypeAlias

from goldspan.goldens.tool_names import ToolNameMatcher
from goldspan.model import ABSENT, CallOrder, ToolCall
from goldspan.scoring.arguments.equality import content_key
from goldspan.scoring.matching.alignment import CallIntervals, align, call_intervals, longest_chain
from goldspan.scoring.matching.assignment import Flow, WorkBudget, assign_multiset
from goldspan.scoring.matching.match_costs import NO_FAILED_CALLS, FailedCalls, PairCosts, SchemaLookup
from goldspan.scoring.matching.slot_plan import Slot, SlotPairs, SlotPlan, is_call_of, matches_agent

_NO_PAIRS: Mapping[int, int] = {}


class _EqualGroup(NamedTuple):
    """The key of equal slots or equal calls."""

    kind: int
    preferred_slot: int | None
    """The slot of the preferred pair that contains it."""


def match_unordered(
    costs: PairCosts,
    slots: Iterable[int],
    calls: Iterable[int],
    budget: WorkBudget,
    *,
    preferred: Mapping[int, int] = _NO_PAIRS,
) -> dict[int, int]:
    """Returns the best of the largest sets of pairs (slot to call); of equally good ones, the `preferred` pairs."""
    partner = {call: slot for slot, call in preferred.items()}
    rows: dict[_EqualGroup, list[int]] = {}
    for slot in slots:
        group = _EqualGroup(costs.slot_kinds[slot], slot if slot in preferred else None)
        rows.setdefault(group, []).append(slot)
    columns: dict[_EqualGroup, list[int]] = {}
    for call in calls:
        columns.setdefault(_EqualGroup(costs.call_kinds[call], partner.get(call)), []).append(call)
    pairs: dict[int, int] = {}
    for block_rows, block_columns in _independent_blocks(costs, rows, columns):
        of_rows, of_columns = [rows[row] for row in block_rows], [columns[column] for column in block_columns]
        if len(block_rows) == len(block_columns) == 1:
            # The two may be in one block only because of a slot or a call that is not among these.
            if block_columns[0].kind in costs.candidate_kinds[block_rows[0].kind]:
                pairs.update(zip(of_rows[0], of_columns[0], strict=False))
            continue
        matrix = [_cost_row(costs, row, block_columns, prefers_pairs=bool(preferred)) for row in block_rows]
        flows = assign_multiset(matrix, [*map(len, of_rows)], [*map(len, of_columns)], budget)
        pairs.update(_single_pairs(flows, of_rows, of_columns))
    return pairs


def _independent_blocks(
    costs: PairCosts, rows: Iterable[_EqualGroup], columns: Iterable[_EqualGroup]
) -> list[tuple[list[_EqualGroup], list[_EqualGroup]]]:
    """Divide slots and calls into blocks, so that a call can match only slots of its own block."""
    of_slots, of_calls = costs.independent_blocks
    blocks: dict[int, tuple[list[_EqualGroup], list[_EqualGroup]]] = {}
    for row in rows:
        if row.kind in of_slots:
            blocks.setdefault(of_slots[row.kind], ([], []))[0].append(row)
    for column in columns:
        if (number := of_calls.get(column.kind)) in blocks:
            blocks[number][1].append(column)
    return [block for block in blocks.values() if block[1]]


def _cost_row(
    pair_costs: PairCosts, row: _EqualGroup, columns: Iterable[_EqualGroup], *, prefers_pairs: bool
) -> list[int | None]:
    costs = pair_costs.costs(row.kind)
    if not prefers_pairs:
        return [costs.get(column.kind) for column in columns]
    # Append a last digit: whether the pair is not preferred.
    radix = len(pair_costs.slot_kinds) + 1
    found: list[int | None] = []
    for column in columns:
        cost = costs.get(column.kind)
        is_preferred = row.preferred_slot is not None and row.preferred_slot == column.preferred_slot
        found.append(None if cost is None else cost * radix + (not is_preferred))
    return found


def _single_pairs(flows: Sequence[Flow], rows: list[list[int]], columns: list[list[int]]) -> Iterator[tuple[int, int]]:
    """Yield the single pairs of flows. The first calls and slots of each kind are used, in sequence."""
    unused = [iter(calls) for calls in columns]
    assigned: dict[int, list[int]] = {}
    for row, column, amount in sorted(flows, key=lambda flow: rows[flow[0]][0]):
        assigned.setdefault(row, []).extend(islice(unused[column], amount))
    for row, calls in assigned.items():
        yield from zip(rows[row], sorted(calls), strict=False)


ExactMatches: TypeAlias = Mapping[int, Sequence[int]]
"""The calls that agree completely with each slot, by position, ascending."""

_CallsByContent: TypeAlias = Mapping[tuple[Hashable, Hashable], Sequence[tuple[int, ToolCall]]]


def find_exact_matches(plan: SlotPlan, calls: Sequence[tuple[int, ToolCall]], names: ToolNameMatcher) -> ExactMatches:
    """Returns the calls with the content that a slot states; a slot that states nothing has none."""
    by_content: dict[tuple[Hashable, Hashable], list[tuple[int, ToolCall]]] = {}
    for position, call in calls:
        arguments = content_key(call.arguments) if plan.states_arguments else None
        result = content_key(call.result) if plan.states_results else None
        for key in {(arguments, result), (arguments, ABSENT), (None, result)}:
            by_content.setdefault(key, []).append((position, call))
    of_kind: dict[int, Sequence[int]] = {}
    for slot, kind in zip(plan.slots, plan.kinds, strict=True):
        if kind not in of_kind:
            of_kind[kind] = _exact_matches_of(slot, by_content, names)
    return {at: of_kind[kind] for at, kind in enumerate(plan.kinds) if of_kind[kind]}


def assign_exact_matches(found: ExactMatches, chosen: Mapping[int, int]) -> dict[int, int]:
    """Returns the slots that are not in the chosen pairs (slot to call), each with its first unused exact match."""
    used = set(chosen.values())
    pairs: dict[int, int] = {}
    for slot, calls in found.items():
        call = next((call for call in calls if call not in used), None)
        if slot not in chosen and call is not None:
            pairs[slot] = call
            used.add(call)
    return pairs


def _exact_matches_of(slot: Slot, by_content: _CallsByContent, names: ToolNameMatcher) -> Sequence[int]:
    found: set[int] = set()
    for tool in slot.tools:
        if tool.arguments is not None or tool.result is not ABSENT:
            key = content_key(tool.arguments), ABSENT if tool.result is ABSENT else content_key(tool.result)
            equal_calls = by_content.get(key, ())
            found.update(
                position
                for position, call in equal_calls
                if is_call_of(tool, call, names) and matches_agent(tool, call)
            )
    return sorted(found)


TOO_MANY_TO_ORDER = "so many calls of one tool that more of them may be in order"
TOO_MANY_TO_COMPARE = "so many different calls of one tool that not all of them were told apart"

_MAX_PREFERRED = 300
"""The number of pairs in order up to which they are preferred to equally good pairs."""


def weighted_match(
    plan: SlotPlan,
    calls: Sequence[tuple[int, ToolCall]],
    order: CallOrder,
    names: ToolNameMatcher,
    schemas: SchemaLookup,
    budget: WorkBudget,
    failures: FailedCalls = NO_FAILED_CALLS,
) -> SlotPairs:
    """Returns the best pairs, and which of them are in order."""
    costs = PairCosts(plan, calls, names, schemas, failures)
    intervals = call_intervals(calls)
    if budget.try_spend(costs.estimate_steps(range(len(plan.slots)))):
        problem = _MatchProblem(costs, plan.stages, intervals, budget)
    else:
        budget.mark_incomplete(TOO_MANY_TO_COMPARE)
        rough_costs = PairCosts(plan, calls, names, schemas, failures, compare_values=False)
        others = [(at, call) for at, call in calls if at not in failures.recovered]
        exact_matches = find_exact_matches(plan, others, names)
        problem = _MatchProblem(costs, plan.stages, intervals, budget, exact_matches, rough_costs)
    return _match_any_order(problem) if order == "any" else _match_in_order(problem)


@dataclass(frozen=True, slots=True)
class _MatchProblem:
    """The slots and calls to match, with their costs."""

    costs: PairCosts
    stages: Sequence[int]
    intervals: CallIntervals
    budget: WorkBudget
    exact_matches: ExactMatches = field(default_factory=dict)
    """If there are too many pairs to compare: slots with the calls that certainly agree with them."""
    rough_costs: PairCosts | None = None
    """The costs without comparison of values, if even the remaining pairs are too many."""

    def costs_for(self, slots: Sequence[int]) -> PairCosts:
        """Returns the costs of these slots, with compared values if the budget covers them."""
        return (
            self.costs
            if self.rough_costs is None or self.budget.try_spend(self.costs.estimate_steps(slots))
            else self.rough_costs
        )


def _match_any_order(problem: _MatchProblem) -> SlotPairs:
    stages, intervals, budget = problem.stages, problem.intervals, problem.budget
    chosen = _with_remaining_pairs({}, problem)
    chain = longest_chain(chosen, stages, intervals, budget)
    if len(chain) == len(chosen) or not problem.costs.has_alternatives or problem.rough_costs:
        return chosen, chain
    # Of equally good pairs, prefer those that are in order.
    costs = problem.costs
    aligned = _align_problem(problem, chosen)
    other = _with_remaining_pairs(aligned, problem)
    if costs.total(other) == costs.total(chosen):
        return other, aligned
    if len(aligned) > _MAX_PREFERRED:
        budget.mark_incomplete(TOO_MANY_TO_ORDER)
        return chosen, chain
    other = match_unordered(costs, range(len(stages)), intervals.calls, budget, preferred=aligned)
    return other, longest_chain(other, stages, intervals, budget)


def _match_in_order(problem: _MatchProblem) -> SlotPairs:
    chosen = _with_remaining_pairs({}, problem)
    chain = longest_chain(chosen, problem.stages, problem.intervals, problem.budget)
    if len(chain) == len(chosen):
        return chosen, chain
    aligned = _align_problem(problem, chosen)
    return _with_remaining_pairs(aligned, problem), aligned


def _align_problem(problem: _MatchProblem, unordered: Mapping[int, int]) -> dict[int, int]:
    """Returns the best pairs that are all in order."""
    slots = [slot for slot, kind in enumerate(problem.costs.slot_kinds) if kind in problem.costs.candidate_kinds]
    costs = problem.costs_for([slot for slot in slots if slot not in problem.exact_matches])
    gains = {slot: costs.gains(slot) for slot in slots if slot not in problem.exact_matches}
    if problem.rough_costs:
        for slot, calls in problem.exact_matches.items():
            rough_gains = problem.rough_costs.gains(slot)
            gains[slot] = {call: rough_gains[call] for call in calls}
    known = None if problem.rough_costs else unordered
    return align(gains, problem.stages, problem.intervals, problem.budget, unordered=known)


def _with_remaining_pairs(chosen: Mapping[int, int], problem: _MatchProblem) -> dict[int, int]:
    """Returns the chosen pairs and the best pairs of the remaining slots and calls."""
    pairs = {**chosen, **assign_exact_matches(problem.exact_matches, chosen)}
    used = set(pairs.values())
    slots = [slot for slot in range(len(problem.stages)) if slot not in pairs]
    calls = [call for call in problem.intervals.calls if call not in used]
    return {**pairs, **match_unordered(problem.costs_for(slots), slots, calls, problem.budget)}
