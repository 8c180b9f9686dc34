"""Finds the best pairing of calls and slots, and chooses among alternative trajectories."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import islice, permutations, product
from typing import NamedTuple, TypeAlias, TypeVar

from goldspan.goldens.tool_names import ToolNameMatcher
from goldspan.model import Agreement, CallOrder, ComparisonRow, ExpectedTool, RowVerdict, ToolCall, fast_constructor
from goldspan.scoring.arguments.agreement import FULL_AGREEMENT
from goldspan.scoring.arguments.equality import content_key
from goldspan.scoring.arguments.multisets import equality_keys
from goldspan.scoring.matching.alignment import align, call_intervals, longest_chain
from goldspan.scoring.matching.assignment import WorkBudget
from goldspan.scoring.matching.match_costs import (
    NO_FAILED_CALLS,
    SHARE_UNITS,
    FailedCalls,
    Mismatch,
    SchemaLookup,
    compare_pair,
    mismatch_of_pair,
    mismatch_of_shares,
    unknown_count,
)
from goldspan.scoring.matching.slot_plan import ContentKey, GoldenPlans, SlotPairs, SlotPlan
from goldspan.scoring.matching.weighted_match import weighted_match

_Slots: TypeAlias = tuple[int, ...]
_Calls: TypeAlias = Sequence[tuple[int, ToolCall]]


def trivial_match(plan: SlotPlan, calls: _Calls) -> SlotPairs | None:
    """Returns the pairs if each call has a single candidate slot, or one with equal content, and all are in order.

    Else `None`. No other pairs are better: every call with a candidate has a slot, and a chosen slot has no mismatch.
    """
    chosen: dict[int, int] = {}
    last = -1
    chose = False
    for position, call in calls:
        asked = plan.candidate_slots(call)
        if not asked:
            continue
        if len(asked) == 1:
            slot = asked[0]
        else:
            slot = _next_exact_slot(plan, asked, call, last)
            chose = True
        if slot <= last:
            return None
        last = slot
        chosen[last] = position
    if chose and not plan.requires_all and len(chosen) < len(plan.slots):
        return None  # a required slot may have been passed over for an optional one
    return chosen, chosen


def _next_exact_slot(plan: SlotPlan, slots: _Slots, call: ToolCall, last: int) -> int:
    """Returns the first slot after `last` whose content equals that of a call; -1: there is none."""
    if call.error is not None or not plan.is_single_tool(call):
        return -1
    stated = plan.stated_content(slots)
    if stated is None:
        return -1
    alike = stated.slots.get(stated.content_key(call.arguments, call.result), ())
    return next((slot for slot in alike if slot > last), -1)


def grouped_match(
    plan: SlotPlan, calls: _Calls, order: CallOrder, schemas: SchemaLookup, budget: WorkBudget
) -> SlotPairs | None:
    """Returns the pairs if each group of calls with the same candidate slots can be matched alone; else `None`.

    The pairs must be in order, unless no others are equally good, or only the order distinguishes them.
    """
    groups: dict[_Slots, list[tuple[int, ToolCall]]] = {}
    for each in calls:
        if asked := plan.candidate_slots(each[1]):
            groups.setdefault(asked, []).append(each)
    if not are_disjoint(groups):
        return None
    chosen: dict[int, int] = {}
    no_others = True
    for slots, members in groups.items():
        if len(slots) == len(members) == 1:
            chosen[slots[0]] = members[0][0]
        elif settled := _match_group(plan, slots, members, schemas):
            chosen.update(settled.pairs)
            no_others = no_others and settled.is_unique
        else:
            return None
    in_sequence = [chosen[slot] for slot in sorted(chosen)]
    if in_sequence == sorted(in_sequence):
        return chosen, chosen
    chain = longest_chain(chosen, plan.stages, call_intervals(calls), budget)
    if len(chain) == len(chosen) or (order == "any" and no_others and are_calls_distinct(plan, groups)):
        return chosen, chain
    if any(
        call.error is not None or not plan.accepts_any_call(call) for members in groups.values() for _, call in members
    ):
        return None
    return _align_equal_pairs(plan, calls, groups, chosen, budget)


def are_calls_distinct(plan: SlotPlan, groups: Mapping[_Slots, _Calls]) -> bool:
    """Whether no two calls of a group are equal in the stated parts."""
    for slots, members in groups.items():
        stated = plan.stated_content(slots) if len(members) > 1 else None
        if stated is None:
            continue
        held = [stated.values(call.arguments, call.result) for _, call in members]
        keys = equality_keys(held)
        if None in keys or len(set(keys)) < len(keys):
            return False
    return True


def are_disjoint(groups: Iterable[_Slots]) -> bool:
    """Whether no slot is in two groups."""
    slots = [slot for group in groups for slot in group]
    return len(slots) == len(set(slots))


class GroupMatch(NamedTuple):
    """The best pairs of a group, slot to call."""

    pairs: Mapping[int, int]
    is_unique: bool
    """Whether no others are equally good."""


def _match_group(plan: SlotPlan, slots: _Slots, calls: _Calls, schemas: SchemaLookup) -> GroupMatch | None:
    """Returns the best pairs of a group; `None` if finding them takes a weighted match."""
    for _, call in calls:
        if call.error is not None or not plan.is_single_tool(call):
            return None
    if plan.accepts_any_call(calls[0][1]):
        return GroupMatch(dict(zip(slots, [position for position, _ in calls], strict=False)), is_unique=False)
    stated = plan.stated_content(slots)
    if stated is None:
        return None
    held = [stated.content_key(call.arguments, call.result) for _, call in calls]
    found = exact_pairs(stated.slots, len(slots), [position for position, _ in calls], held)
    return found or exhaustive_pairs(plan, slots, calls, held, schemas)


_Content = TypeVar("_Content", bound=Hashable)


def exact_pairs(
    slots: Mapping[_Content, Sequence[int]], slot_count: int, positions: Sequence[int], contents: Sequence[_Content]
) -> GroupMatch | None:
    """Returns the pairs with equal content, if they are as many as possible. They then have no mismatch."""
    pairs: dict[int, int] = {}
    free: dict[_Content, Iterator[int]] = {}
    only = slot_count <= len(positions)  # else a remaining slot may agree too, without equal content
    for position, held in zip(positions, contents, strict=True):
        if held in free:
            only = False
        else:
            equal = slots.get(held, ())
            only = only and len(equal) <= 1
            free[held] = iter(equal)
        slot = next(free[held], None)
        if slot is not None:
            pairs[slot] = position
    return GroupMatch(pairs, only) if len(pairs) == min(slot_count, len(positions)) else None


_MAX_EXHAUSTIVE, _MAX_EXHAUSTIVE_BYTES = 3, 4096
"""The number of slots or calls (with one more of the other side), and the bytes in each call, for exhaustive search."""


def exhaustive_pairs(
    plan: SlotPlan, slots: _Slots, calls: _Calls, contents: Sequence[ContentKey], schemas: SchemaLookup
) -> GroupMatch | None:
    """Returns the best pairs of a few slots and calls by exhaustive search."""
    if min(len(slots), len(calls)) > _MAX_EXHAUSTIVE or max(len(slots), len(calls)) > _MAX_EXHAUSTIVE + 1:
        return None
    if any(isinstance(part, str | bytes) and len(part) > _MAX_EXHAUSTIVE_BYTES for held in contents for part in held):
        return None
    if len({plan.slots[slot].required for slot in slots}) > 1:
        return None
    against = [
        [
            _NO_PENALTY
            if plan.plain_arguments[slot] is not None and plan.plain_arguments[slot] == held[0]
            else _pair_penalty(plan.slots[slot].tools[0], call, schemas)
            for (_, call), held in zip(calls, contents, strict=True)
        ]
        for slot in slots
    ]
    flipped = len(slots) > len(calls)
    rows = list(zip(*against, strict=True)) if flipped else against
    ways = sorted(
        (sum([row[column] for row, column in zip(rows, columns, strict=True)]), columns)
        for columns in permutations(range(len(rows[0])), len(rows))
    )
    (least, best), *others = ways
    places = [(column, row) if flipped else (row, column) for row, column in enumerate(best)]
    pairs = {slots[slot]: calls[call][0] for slot, call in sorted(places)}
    return GroupMatch(pairs, is_unique=not others or others[0][0] > least)


def _pair_penalty(tool: ExpectedTool, call: ToolCall, schemas: SchemaLookup) -> int:
    """Returns the mismatch of a pair as digits of one number, with room for sums over a few pairs."""
    return _penalty(mismatch_of_pair(tool, call, schemas))


def _penalty(found: Mismatch) -> int:
    much, many = 10 * SHARE_UNITS, 10
    disagreed = found.disagreement * many + found.unknown
    return (disagreed * much + found.arguments_disagreement) * many + found.arguments_unknown


_NO_PENALTY = _penalty(mismatch_of_shares(1.0, None))
"""The penalty of a pair with equal arguments, if no result is stated."""


def _align_equal_pairs(
    plan: SlotPlan, calls: _Calls, groups: Mapping[_Slots, _Calls], chosen: Mapping[int, int], budget: WorkBudget
) -> SlotPairs:
    """Returns the pairs with the greatest number in order."""
    # The gain of an optional slot is 1, so that all optional slots together gain less than a required one.
    worth = [1 + slot.required * len(plan.slots) for slot in plan.slots]
    positions = {slots: [position for position, _ in members] for slots, members in groups.items()}
    gains = {slot: dict.fromkeys(positions[slots], worth[slot]) for slots in positions for slot in slots}
    aligned = align(gains, plan.stages, call_intervals(calls), budget, unordered=chosen)
    pairs = dict(aligned)
    taken = set(aligned.values())
    for slots, answers in positions.items():
        left = [call for call in answers if call not in taken]
        pairs.update(zip([slot for slot in slots if slot not in aligned], left, strict=False))
    return pairs, aligned


EXTRA = "extra"
"""The note of an unexpected call that is allowed."""

OPTIONAL = "optional"
"""The note of an expected call that was optional."""

PositionedCalls: TypeAlias = Sequence[tuple[int, ToolCall]]
"""Calls with their positions in the run, ascending."""


class Pairing(NamedTuple):
    """The slots of a plan with their calls."""

    plan: SlotPlan
    rows: Mapping[int, ComparisonRow]
    """One row for each pair, by the position of its call in the run."""
    approximate: str | None = None
    """Why a better pairing may exist; `None`: the pairing is the best one."""

    @property
    def lacks_required_calls(self) -> bool:
        """Whether a required slot has no call."""
        answered = {row.expected_at for row in self.rows.values()}
        return any(slot.required and at not in answered for at, slot in enumerate(self.plan.slots))


def pair_calls(
    plan: SlotPlan,
    calls: PositionedCalls,
    *,
    order: CallOrder,
    names: ToolNameMatcher,
    schemas: SchemaLookup,
    budget: WorkBudget,
    failures: FailedCalls = NO_FAILED_CALLS,
) -> Pairing:
    """Find the calls that match the slots of a plan best."""
    if plan.has_open_slots:
        plan = plan.expand_open_slots([call for at, call in calls if at not in failures.recovered])
    chosen, in_order = (
        not failures.recovered and (trivial_match(plan, calls) or grouped_match(plan, calls, order, schemas, budget))
    ) or weighted_match(plan, calls, order, names, schemas, budget, failures)
    called, plain = dict(calls), plan.plain_arguments
    rows = {}
    arguments: Agreement | None
    result: Agreement | None
    for at, position in chosen.items():
        slot, call = plan.slots[at], called[position]
        held = plain[at]
        if held is not None and held == content_key(call.arguments):  # as most do that are expected
            tool, arguments, result = slot.tools[0], FULL_AGREEMENT, None
        elif plan.compares_values or len(slot.tools) > 1:
            tool, arguments, result = compare_pair(slot, call, names, schemas)
        else:
            tool, arguments, result = slot.tools[0], None, None
        verdict, note = _REQUIRED_VERDICT if slot.required else _OPTIONAL_VERDICT
        rows[position] = _Row(verdict, tool, call, at, position, arguments, result, at in in_order, note)
    return Pairing(plan, rows, budget.incomplete_reason)


_Row = fast_constructor(ComparisonRow)
_REQUIRED_VERDICT: tuple[RowVerdict, None] = ("paired", None)
_OPTIONAL_VERDICT: tuple[RowVerdict, str] = ("tolerated", OPTIONAL)


TOO_MANY_PLANS = "so many alternatives that not all of their combinations were tried"

_MIN_PLANS, _MAX_PLACES = 16, 20_000
"""The number of plans that are always tried, and the total of slots and calls up to which further ones are."""


class _PlanScore(NamedTuple):
    """How well the calls match a plan: greater is better."""

    met_share: Fraction
    """The share of the required slots with a call, in order if the golden requires an order."""
    unexpected: int
    """The number of calls without a slot, negated."""
    required: int
    """The number of required slots with a call."""
    faults: tuple[int, ...]
    """The disagreement, the unknown parts and the other mismatch of the pairs, negated: of all pairs, and of those of
    required slots."""


_PlanChoice: TypeAlias = tuple[int, ...]
"""The position of the chosen trajectory of each item."""

_TryPlan: TypeAlias = Callable[[_PlanChoice], tuple[_PlanScore, Pairing]]


def best_pairing(
    plans: GoldenPlans,
    calls: PositionedCalls,
    *,
    order: CallOrder,
    schemas: SchemaLookup,
    failures: FailedCalls = NO_FAILED_CALLS,
) -> Pairing:
    """Pair calls with the slots of the plan that they match best; of equally good plans, the first one."""
    budget = WorkBudget()

    def paired(plan: SlotPlan) -> Pairing:
        return pair_calls(
            plan, calls, order=order, names=plans.names, schemas=schemas, budget=budget, failures=failures
        )

    if plans.plan_count == 1:
        return paired(plans.first_plan)

    def tried(ways: _PlanChoice) -> tuple[_PlanScore, Pairing]:
        pairing = paired(plans.plan(ways))
        return _plan_score(pairing, calls, order, plans.names), pairing

    most = max(_MIN_PLANS, _MAX_PLACES // (len(calls) + len(plans.first_plan.slots) + 1))
    choices = [range(len(ways)) for ways in plans.trajectories]
    if plans.plan_count <= most:
        _, best = max(map(tried, product(*choices)), key=lambda found: found[0])
    else:
        budget.mark_incomplete(TOO_MANY_PLANS)
        best = _hill_climb(tried, choices, most)
    if not plans.is_complete:
        budget.mark_incomplete(TOO_MANY_PLANS)
    return best._replace(approximate=budget.incomplete_reason)


def _hill_climb(try_plan: _TryPlan, choices: Sequence[Sequence[int]], most: int) -> Pairing:
    """Choose a trajectory for one item after the other, with the current choice of the others."""
    ways = tuple(choice[0] for choice in choices)
    merit, best = try_plan(ways)
    others = ((at, way) for at, choice in enumerate(choices) for way in choice[1:])
    for at, way in islice(others, most):
        changed = (*ways[:at], way, *ways[at + 1 :])
        found, pairing = try_plan(changed)
        if found > merit:
            ways, merit, best = changed, found, pairing
    return best


def _plan_score(pairing: Pairing, calls: PositionedCalls, order: CallOrder, names: ToolNameMatcher) -> _PlanScore:
    asked = sum(slot.required for slot in pairing.plan.slots)
    required = [row for row in pairing.rows.values() if row.verdict == "paired"]
    met = sum(order == "any" or row.in_order is True for row in required)
    against = [_total_faults(rows, names) for rows in (pairing.rows.values(), required)]
    return _PlanScore(
        met_share=Fraction(met, asked) if asked else Fraction(1),
        unexpected=len(pairing.rows) - len(calls),
        required=len(required),
        # As for the pairs of one plan, disagreement has more weight than values that could not be compared.
        faults=tuple(-one[at] for at in range(len(against[0])) for one in against),
    )


def _total_faults(rows: Iterable[ComparisonRow], names: ToolNameMatcher) -> Sequence[int]:
    """Returns the sums of the disagreement of pairs, of their unknown parts, and of the rest of their mismatch."""
    totals = [0] * (1 + len(Mismatch._fields))
    for row in rows:
        mismatch = mismatch_of_shares(_share_or_none(row.agreement), _share_or_none(row.result_agreement))
        unknown = 0
        if isinstance(row.expected, ExpectedTool) and row.called is not None:
            unknown = unknown_count(row.expected, row.called, names)
        faults = mismatch.disagreement, unknown, *mismatch[1:]
        totals = [total + fault for total, fault in zip(totals, faults, strict=True)]
    return totals


def _share_or_none(found: Agreement | None) -> float | None:
    return None if found is None else found.share
