"""Pairs that need no weighing: calls of one tool, and the slots that ask for it and nothing more.

Most runs are like that. What comes out is what weighing would bring, in a fraction of the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from goldspan.model import ToolCall
from goldspan.scoring.pairing.alignment import align, longest_chain
from goldspan.scoring.pairing.effort import Effort
from goldspan.scoring.pairing.timeline import timeline
from goldspan.scoring.plan import Chosen, Plan

_Families: TypeAlias = Mapping[tuple[int, ...], Sequence[int]]
"""Slots, with the calls that answer each of them equally well and no other slot."""


def plain_sailing(plan: Plan, calls: Sequence[tuple[int, ToolCall]]) -> Chosen | None:
    """The pairs where there is nothing to choose and everything is in order; `None` elsewhere."""
    chosen: dict[int, int] = {}
    last = -1
    for position, call in calls:
        asked = plan.asked(call)
        if asked:
            if len(asked) > 1 or asked[0] <= last:
                return None
            last = asked[0]
            chosen[last] = position
    return chosen, chosen


def by_family(plan: Plan, calls: Sequence[tuple[int, ToolCall]], effort: Effort) -> Chosen | None:
    """The pairs where whatever there is to choose from is equally good; `None` elsewhere."""
    families: dict[tuple[int, ...], list[int]] = {}
    telling: set[tuple[int, ...]] = set()  # the families in which one pair may be better than another
    for position, call in calls:
        if asked := plan.asked(call):
            families.setdefault(asked, []).append(position)
            if call.error is not None or not plan.takes_any(call):
                telling.add(asked)
    if any(len(slots) > 1 or len(families[slots]) > 1 for slots in telling) or not _are_apart(families):
        return None
    chosen = _completed({}, families)
    line = timeline(calls)
    chain = longest_chain(chosen, plan.stages, line, effort)
    if len(chain) == len(chosen):
        return chosen, chain
    if telling:
        return None
    # An optional slot is worth 1, so that no number of them makes up for a required one.
    worth = [1 + slot.required * len(plan.slots) for slot in plan.slots]
    gains = {slot: dict.fromkeys(calls, worth[slot]) for slots, calls in families.items() for slot in slots}
    aligned = align(gains, plan.stages, line, effort, unordered=chosen)
    return _completed(aligned, families), aligned


def _are_apart(families: _Families) -> bool:
    """Whether no slot is in two of them."""
    return sum(map(len, families)) == len(set().union(*families))


def _completed(chosen: Mapping[int, int], families: _Families) -> dict[int, int]:
    """The chosen pairs, and of each family what they leave, in sequence."""
    pairs = dict(chosen)
    taken = set(chosen.values())
    for slots, positions in families.items():
        left = [call for call in positions if call not in taken] if taken else positions
        pairs.update(zip([slot for slot in slots if slot not in chosen], left, strict=False))
    return pairs
