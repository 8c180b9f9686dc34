"""The best pairs where they have to be weighed against each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from goldspan.goldens.naming import Naming
from goldspan.model import Order, ToolCall
from goldspan.scoring.pairing.alignment import align, longest_chain
from goldspan.scoring.pairing.dealing import deal
from goldspan.scoring.pairing.effort import Effort
from goldspan.scoring.pairing.merits import NO_FAILURES, Failures, Merits, Schemas
from goldspan.scoring.pairing.timeline import Timeline, timeline
from goldspan.scoring.pairing.twins import Twins, first_free, twins
from goldspan.scoring.plan import Chosen, Plan

TOO_MANY_TO_ORDER = "so many calls of one tool that more of them may be in order"
TOO_MANY_TO_JUDGE = "so many different calls of one tool that not all of them were told apart"

_MOST_FAVOURED = 300
"""So many pairs that are in order may be told apart from others that are as good."""


def by_merit(
    plan: Plan,
    calls: Sequence[tuple[int, ToolCall]],
    order: Order,
    names: Naming,
    schemas: Schemas,
    effort: Effort,
    failures: Failures = NO_FAILURES,
) -> Chosen:
    """The best pairs, and which of them are in order."""
    merits = Merits(plan, calls, names, schemas, failures)
    line = timeline(calls)
    if effort.covers(merits.steps(range(len(plan.slots)))):
        problem = _Problem(merits, plan.stages, line, effort)
    else:
        effort.give_up(TOO_MANY_TO_JUDGE)
        rough = Merits(plan, calls, names, schemas, failures, judging=False)
        lasting = [(at, call) for at, call in calls if at not in failures.made_good]
        problem = _Problem(merits, plan.stages, line, effort, twins(plan, lasting, names), rough)
    return _any_order(problem) if order == "any" else _in_order(problem)


@dataclass(frozen=True, slots=True)
class _Problem:
    """What there is to choose from."""

    merits: Merits
    stages: Sequence[int]
    line: Timeline
    effort: Effort
    twins: Twins = field(default_factory=dict)
    """Where there are too many pairs to judge: slots with the calls that certainly agree with them."""
    rough: Merits | None = None
    """What there is to go by where even without those there are too many."""

    def merits_for(self, slots: Sequence[int]) -> Merits:
        """Judges these slots, as well as can be afforded."""
        return self.merits if self.rough is None or self.effort.covers(self.merits.steps(slots)) else self.rough


def _any_order(problem: _Problem) -> Chosen:
    stages, line, effort = problem.stages, problem.line, problem.effort
    chosen = _completed({}, problem)
    chain = longest_chain(chosen, stages, line, effort)
    if len(chain) == len(chosen) or not problem.merits.leave_a_choice or problem.rough:
        return chosen, chain
    # Equally good pairs may be there to choose from: prefer those that are in order.
    merits = problem.merits
    aligned = _aligned(problem, chosen)
    other = _completed(aligned, problem)
    if merits.total(other) == merits.total(chosen):
        return other, aligned
    if len(aligned) > _MOST_FAVOURED:
        effort.give_up(TOO_MANY_TO_ORDER)
        return chosen, chain
    other = deal(merits, range(len(stages)), line.calls, effort, favoured=aligned)
    return other, longest_chain(other, stages, line, effort)


def _in_order(problem: _Problem) -> Chosen:
    chosen = _completed({}, problem)
    chain = longest_chain(chosen, problem.stages, problem.line, problem.effort)
    if len(chain) == len(chosen):
        return chosen, chain
    aligned = _aligned(problem, chosen)
    return _completed(aligned, problem), aligned


def _aligned(problem: _Problem, unordered: Mapping[int, int]) -> dict[int, int]:
    """The best pairs that are all in order."""
    slots = [slot for slot, kind in enumerate(problem.merits.slot_kinds) if kind in problem.merits.answers]
    merits = problem.merits_for([slot for slot in slots if slot not in problem.twins])
    gains = {slot: merits.gains(slot) for slot in slots if slot not in problem.twins}
    if problem.rough:
        for slot, calls in problem.twins.items():
            worth = problem.rough.gains(slot)
            gains[slot] = {call: worth[call] for call in calls}
    known = None if problem.rough else unordered
    return align(gains, problem.stages, problem.line, problem.effort, unordered=known)


def _completed(chosen: Mapping[int, int], problem: _Problem) -> dict[int, int]:
    """The chosen pairs, and the best pairs of what they leave."""
    pairs = {**chosen, **first_free(problem.twins, chosen)}
    taken = set(pairs.values())
    slots = [slot for slot in range(len(problem.stages)) if slot not in pairs]
    calls = [call for call in problem.line.calls if call not in taken]
    return {**pairs, **deal(problem.merits_for(slots), slots, calls, problem.effort)}
