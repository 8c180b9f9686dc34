"""The best pairs where they have to be weighed against each other."""

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
    """What several slots, or several calls, have in common."""

    kind: int
    preferred_slot: int | None
    """The slot of the favoured pair that it is part of."""


def match_unordered(
    costs: PairCosts,
    slots: Iterable[int],
    calls: Iterable[int],
    budget: WorkBudget,
    *,
    preferred: Mapping[int, int] = _NO_PAIRS,
) -> dict[int, int]:
    """As many pairs (slot to call) as can be, and of those the best; of equally good ones those that are `favoured`."""
    partner = {call: slot for slot, call in preferred.items()}
    rows: dict[_EqualGroup, list[int]] = {}
    for slot in slots:
        alike = _EqualGroup(costs.slot_kinds[slot], slot if slot in preferred else None)
        rows.setdefault(alike, []).append(slot)
    columns: dict[_EqualGroup, list[int]] = {}
    for call in calls:
        columns.setdefault(_EqualGroup(costs.call_kinds[call], partner.get(call)), []).append(call)
    pairs: dict[int, int] = {}
    for block_rows, block_columns in _independent_blocks(costs, rows, columns):
        of_rows, of_columns = [rows[row] for row in block_rows], [columns[column] for column in block_columns]
        if len(block_rows) == len(block_columns) == 1:
            # What joined the two may have been a slot or a call that is not among these.
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
    """Cut slots and calls into blocks such that no call of one may answer a slot of another."""
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
    # A digit more, the last one: whether the pair is none of the favoured.
    radix = len(pair_costs.slot_kinds) + 1
    found: list[int | None] = []
    for column in columns:
        cost = costs.get(column.kind)
        is_favoured = row.preferred_slot is not None and row.preferred_slot == column.preferred_slot
        found.append(None if cost is None else cost * radix + (not is_favoured))
    return found


def _single_pairs(flows: Sequence[Flow], rows: list[list[int]], columns: list[list[int]]) -> Iterator[tuple[int, int]]:
    """The single pairs. Of each kind the calls and slots that come first are taken, and dealt in sequence."""
    left = [iter(calls) for calls in columns]
    dealt: dict[int, list[int]] = {}
    for row, column, amount in sorted(flows, key=lambda flow: rows[flow[0]][0]):
        dealt.setdefault(row, []).extend(islice(left[column], amount))
    for row, calls in dealt.items():
        yield from zip(rows[row], sorted(calls), strict=False)


ExactMatches: TypeAlias = Mapping[int, Sequence[int]]
"""For slots the calls that agree with all they state, by position, ascending."""

_CallsByContent: TypeAlias = Mapping[tuple[Hashable, Hashable], Sequence[tuple[int, ToolCall]]]


def find_exact_matches(plan: SlotPlan, calls: Sequence[tuple[int, ToolCall]], names: ToolNameMatcher) -> ExactMatches:
    """The calls that hold what a slot states; a slot that states nothing has none."""
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
    """Slots that are not among the chosen pairs (slot to call), each with its first twin that is still free."""
    taken = set(chosen.values())
    pairs: dict[int, int] = {}
    for slot, calls in found.items():
        free = next((call for call in calls if call not in taken), None)
        if slot not in chosen and free is not None:
            pairs[slot] = free
            taken.add(free)
    return pairs


def _exact_matches_of(slot: Slot, by_content: _CallsByContent, names: ToolNameMatcher) -> Sequence[int]:
    found: set[int] = set()
    for tool in slot.tools:
        if tool.arguments is not None or tool.result is not ABSENT:
            key = content_key(tool.arguments), ABSENT if tool.result is ABSENT else content_key(tool.result)
            alike = by_content.get(key, ())
            found.update(
                position for position, call in alike if is_call_of(tool, call, names) and matches_agent(tool, call)
            )
    return sorted(found)


TOO_MANY_TO_ORDER = "so many calls of one tool that more of them may be in order"
TOO_MANY_TO_COMPARE = "so many different calls of one tool that not all of them were told apart"

_MAX_PREFERRED = 300
"""So many pairs that are in order may be told apart from others that are as good."""


def weighted_match(
    plan: SlotPlan,
    calls: Sequence[tuple[int, ToolCall]],
    order: CallOrder,
    names: ToolNameMatcher,
    schemas: SchemaLookup,
    budget: WorkBudget,
    failures: FailedCalls = NO_FAILED_CALLS,
) -> SlotPairs:
    """The best pairs, and which of them are in order."""
    merits = PairCosts(plan, calls, names, schemas, failures)
    line = call_intervals(calls)
    if budget.try_spend(merits.estimate_steps(range(len(plan.slots)))):
        problem = _MatchProblem(merits, plan.stages, line, budget)
    else:
        budget.mark_incomplete(TOO_MANY_TO_COMPARE)
        rough = PairCosts(plan, calls, names, schemas, failures, compare_values=False)
        lasting = [(at, call) for at, call in calls if at not in failures.recovered]
        problem = _MatchProblem(merits, plan.stages, line, budget, find_exact_matches(plan, lasting, names), rough)
    return _match_any_order(problem) if order == "any" else _match_in_order(problem)


@dataclass(frozen=True, slots=True)
class _MatchProblem:
    """What there is to choose from."""

    costs: PairCosts
    stages: Sequence[int]
    intervals: CallIntervals
    budget: WorkBudget
    exact_matches: ExactMatches = field(default_factory=dict)
    """Where there are too many pairs to judge: slots with the calls that certainly agree with them."""
    rough_costs: PairCosts | None = None
    """What there is to go by where even without those there are too many."""

    def costs_for(self, slots: Sequence[int]) -> PairCosts:
        """Judges these slots, as well as can be afforded."""
        return (
            self.costs
            if self.rough_costs is None or self.budget.try_spend(self.costs.estimate_steps(slots))
            else self.rough_costs
        )


def _match_any_order(problem: _MatchProblem) -> SlotPairs:
    stages, line, effort = problem.stages, problem.intervals, problem.budget
    chosen = _with_remaining_pairs({}, problem)
    chain = longest_chain(chosen, stages, line, effort)
    if len(chain) == len(chosen) or not problem.costs.has_alternatives or problem.rough_costs:
        return chosen, chain
    # Equally good pairs may be there to choose from: prefer those that are in order.
    merits = problem.costs
    aligned = _align_problem(problem, chosen)
    other = _with_remaining_pairs(aligned, problem)
    if merits.total(other) == merits.total(chosen):
        return other, aligned
    if len(aligned) > _MAX_PREFERRED:
        effort.mark_incomplete(TOO_MANY_TO_ORDER)
        return chosen, chain
    other = match_unordered(merits, range(len(stages)), line.calls, effort, preferred=aligned)
    return other, longest_chain(other, stages, line, effort)


def _match_in_order(problem: _MatchProblem) -> SlotPairs:
    chosen = _with_remaining_pairs({}, problem)
    chain = longest_chain(chosen, problem.stages, problem.intervals, problem.budget)
    if len(chain) == len(chosen):
        return chosen, chain
    aligned = _align_problem(problem, chosen)
    return _with_remaining_pairs(aligned, problem), aligned


def _align_problem(problem: _MatchProblem, unordered: Mapping[int, int]) -> dict[int, int]:
    """The best pairs that are all in order."""
    slots = [slot for slot, kind in enumerate(problem.costs.slot_kinds) if kind in problem.costs.candidate_kinds]
    merits = problem.costs_for([slot for slot in slots if slot not in problem.exact_matches])
    gains = {slot: merits.gains(slot) for slot in slots if slot not in problem.exact_matches}
    if problem.rough_costs:
        for slot, calls in problem.exact_matches.items():
            worth = problem.rough_costs.gains(slot)
            gains[slot] = {call: worth[call] for call in calls}
    known = None if problem.rough_costs else unordered
    return align(gains, problem.stages, problem.intervals, problem.budget, unordered=known)


def _with_remaining_pairs(chosen: Mapping[int, int], problem: _MatchProblem) -> dict[int, int]:
    """The chosen pairs, and the best pairs of what they leave."""
    pairs = {**chosen, **assign_exact_matches(problem.exact_matches, chosen)}
    taken = set(pairs.values())
    slots = [slot for slot in range(len(problem.stages)) if slot not in pairs]
    calls = [call for call in problem.intervals.calls if call not in taken]
    return {**pairs, **match_unordered(problem.costs_for(slots), slots, calls, problem.budget)}
