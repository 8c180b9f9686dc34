"""Pairs that need no weighing: in each family of calls and slots it shows at once that none are better.

A family is some slots with the calls that may answer each of them and no other slot. Most runs consist of families in
which there is nothing to choose, or all pairs are equally good, or calls hold exactly what is expected. What comes out
is what weighing would bring, in a fraction of the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from goldspan.model import Order, ToolCall
from goldspan.scoring.pairing.alignment import align, longest_chain
from goldspan.scoring.pairing.effort import Effort
from goldspan.scoring.pairing.timeline import timeline
from goldspan.scoring.plan import Chosen, Content, Plan

_Slots: TypeAlias = tuple[int, ...]
_Calls: TypeAlias = Sequence[tuple[int, ToolCall]]


def plain_sailing(plan: Plan, calls: _Calls) -> Chosen | None:
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


def by_family(plan: Plan, calls: _Calls, order: Order, effort: Effort) -> Chosen | None:
    """The pairs where every family can be settled; `None` elsewhere.

    They must be in order, unless there are no others that are as good, or nothing but the order tells them apart.
    """
    families: dict[_Slots, list[tuple[int, ToolCall]]] = {}
    for each in calls:
        if asked := plan.asked(each[1]):
            families.setdefault(asked, []).append(each)
    if not _are_apart(families):
        return None
    chosen: dict[int, int] = {}
    no_others = True
    for slots, members in families.items():
        if len(slots) == len(members) == 1:
            chosen[slots[0]] = members[0][0]
        elif settled := _settled(plan, slots, members):
            chosen.update(settled.pairs)
            no_others = no_others and settled.are_only
        else:
            return None
    in_sequence = [chosen[slot] for slot in sorted(chosen)]
    if in_sequence == sorted(in_sequence):
        return chosen, chosen
    chain = longest_chain(chosen, plan.stages, timeline(calls), effort)
    if len(chain) == len(chosen) or (order == "any" and no_others):
        return chosen, chain
    if any(call.error is not None or not plan.takes_any(call) for members in families.values() for _, call in members):
        return None
    return _all_alike(plan, calls, families, chosen, effort)


def _are_apart(families: Iterable[_Slots]) -> bool:
    """Whether no slot is in two of them."""
    slots = [slot for family in families for slot in family]
    return len(slots) == len(set(slots))


class _Settled(NamedTuple):
    """The best pairs of a family, slot to call."""

    pairs: Mapping[int, int]
    are_only: bool
    """Whether no others are as good."""


def _settled(plan: Plan, slots: _Slots, calls: _Calls) -> _Settled | None:
    """The best pairs of a family; `None` where they have to be weighed."""
    for _, call in calls:
        if call.error is not None or not plan.says(call):
            return None
    if plan.takes_any(calls[0][1]):
        return _Settled(dict(zip(slots, [position for position, _ in calls], strict=False)), are_only=False)
    return _twins(plan, slots, calls)


def _twins(plan: Plan, slots: _Slots, calls: _Calls) -> _Settled | None:
    """The pairs of calls that hold exactly what is expected, where as many pairs as there can be are such.

    Then nothing speaks against any of them.
    """
    stated = plan.stated(slots)
    if stated is None:
        return None
    pairs: dict[int, int] = {}
    free: dict[Content, Iterator[int]] = {}
    only = len(slots) <= len(calls)  # else a slot that is left over may agree as well without holding the same
    for position, call in calls:
        held = stated.content(call.arguments, call.result)
        if held in free:
            only = False
        else:
            equal = stated.slots.get(held, ())
            only = only and len(equal) <= 1
            free[held] = iter(equal)
        slot = next(free[held], None)
        if slot is not None:
            pairs[slot] = position
    return _Settled(pairs, only) if len(pairs) == min(len(slots), len(calls)) else None


def _all_alike(
    plan: Plan, calls: _Calls, families: Mapping[_Slots, _Calls], chosen: Mapping[int, int], effort: Effort
) -> Chosen:
    """The pairs of which as many as can be are in order."""
    # An optional slot is worth 1, so that no number of them makes up for a required one.
    worth = [1 + slot.required * len(plan.slots) for slot in plan.slots]
    positions = {slots: [position for position, _ in members] for slots, members in families.items()}
    gains = {slot: dict.fromkeys(positions[slots], worth[slot]) for slots in positions for slot in slots}
    aligned = align(gains, plan.stages, timeline(calls), effort, unordered=chosen)
    pairs = dict(aligned)
    taken = set(aligned.values())
    for slots, answers in positions.items():
        left = [call for call in answers if call not in taken]
        pairs.update(zip([slot for slot in slots if slot not in aligned], left, strict=False))
    return pairs, aligned
