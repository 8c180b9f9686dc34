"""Which of alternative trajectories a run took: those that it met best."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import islice, product
from typing import NamedTuple, TypeAlias

from goldspan.model import Agreement, Order, Row
from goldspan.scoring.pairing import Calls, Pairing, pair
from goldspan.scoring.pairing.effort import Effort
from goldspan.scoring.pairing.merits import NO_FAILURES, Failures, Faults, Schemas, faults
from goldspan.scoring.plan import Layout, Plan

TOO_MANY_PLANS = "so many alternatives that not all of their combinations were tried"

_FEWEST_PLANS, _MOST_PLACES = 16, 20_000
"""So many plans are always tried, and more as long as all of them together have no more slots and calls than this."""


class _Merit(NamedTuple):
    """How well a plan is met: the greater, the better."""

    met: Fraction
    """The share of the required slots that are answered, in order where order matters."""
    unexpected: int
    """The calls that answer nothing, negated."""
    required: int
    """The required slots that are answered."""
    faults: tuple[int, ...]
    """What speaks against the pairs, negated: all of them, and those of required slots."""


_Ways: TypeAlias = tuple[int, ...]
"""Of each item of the golden the way that is taken, by position."""

_Try: TypeAlias = Callable[[_Ways], tuple[_Merit, Pairing]]


def best_pairing(
    asked: Layout, calls: Calls, *, order: Order, schemas: Schemas, failures: Failures = NO_FAILURES
) -> Pairing:
    """Pair calls with the slots of the plan that they meet best; of equally good plans the first."""
    effort = Effort()

    def paired(plan: Plan) -> Pairing:
        return pair(plan, calls, order=order, names=asked.names, schemas=schemas, effort=effort, failures=failures)

    if asked.plans == 1:
        return paired(asked.first)

    def tried(ways: _Ways) -> tuple[_Merit, Pairing]:
        pairing = paired(asked.plan(ways))
        return _merit(pairing, calls, order), pairing

    most = max(_FEWEST_PLANS, _MOST_PLACES // (len(calls) + len(asked.first.slots) + 1))
    choices = [range(len(ways)) for ways in asked.ways]
    if asked.plans <= most:
        _, best = max(map(tried, product(*choices)), key=lambda found: found[0])
    else:
        effort.give_up(TOO_MANY_PLANS)
        best = _one_by_one(tried, choices, most)
    if not asked.known_whole:
        effort.give_up(TOO_MANY_PLANS)
    return best._replace(approximate=effort.given_up)


def _one_by_one(tried: _Try, choices: Sequence[Sequence[int]], most: int) -> Pairing:
    """Choose a way for one item after the other, with the others as they are so far."""
    ways = tuple(choice[0] for choice in choices)
    merit, best = tried(ways)
    others = ((at, way) for at, choice in enumerate(choices) for way in choice[1:])
    for at, way in islice(others, most):
        changed = (*ways[:at], way, *ways[at + 1 :])
        found, pairing = tried(changed)
        if found > merit:
            ways, merit, best = changed, found, pairing
    return best


def _merit(pairing: Pairing, calls: Calls, order: Order) -> _Merit:
    asked = sum(slot.required for slot in pairing.plan.slots)
    required = [row for row in pairing.rows.values() if row.verdict == "paired"]
    met = sum(order == "any" or row.in_order is True for row in required)
    against = [_faults_of(rows) for rows in (pairing.rows.values(), required)]
    return _Merit(
        met=Fraction(met, asked) if asked else Fraction(1),
        unexpected=len(pairing.rows) - len(calls),
        required=len(required),
        # As for the pairs of one plan, what disagrees weighs more than what could not be judged.
        faults=tuple(-one[at] for at in range(len(against[0])) for one in against),
    )


def _faults_of(rows: Iterable[Row]) -> Sequence[int]:
    found = [faults(_share(row.agreement), _share(row.result_agreement)) for row in rows]
    return [sum(column) for column in zip(*found, strict=True)] if found else Faults(0, 0, 0, 0)


def _share(found: Agreement | None) -> float | None:
    return None if found is None else found.share
