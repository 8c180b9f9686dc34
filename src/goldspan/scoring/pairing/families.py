"""The best pairs where they show at once, or can be found family by family.

A family is some slots with the calls that may answer each of them and no other slot. Most runs consist of families in
which there is nothing to choose, or all pairs are equally good, or calls hold exactly what is expected, or there are so
few that all ways to pair them are soon tried. What comes out is what weighing everything would bring, in a fraction of
the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import permutations
from typing import NamedTuple, TypeAlias

from goldspan.model import ExpectedTool, Order, ToolCall
from goldspan.scoring.agreement.multisets import equality_keys
from goldspan.scoring.pairing.alignment import align, longest_chain
from goldspan.scoring.pairing.effort import Effort
from goldspan.scoring.pairing.merits import UNITS, Schemas, faults_of
from goldspan.scoring.pairing.timeline import timeline
from goldspan.scoring.plan import Chosen, Content, Plan, Stated

_Slots: TypeAlias = tuple[int, ...]
_Calls: TypeAlias = Sequence[tuple[int, ToolCall]]


def plain_sailing(plan: Plan, calls: _Calls) -> Chosen | None:
    """The pairs where each call answers the only slot it may, or one that states just what it holds, all in order.

    `None` elsewhere. No other pairs are better: every call that may answer has its slot, and where there was a choice
    nothing speaks against it.
    """
    chosen: dict[int, int] = {}
    last = -1
    chose = False
    for position, call in calls:
        asked = plan.asked(call)
        if not asked:
            continue
        if len(asked) == 1:
            slot = asked[0]
        else:
            slot = _next_twin(plan, asked, call, last)
            chose = True
        if slot <= last:
            return None
        last = slot
        chosen[last] = position
    if chose and not plan.requires_all and len(chosen) < len(plan.slots):
        return None  # a required slot may have been passed over for an optional one
    return chosen, chosen


def _next_twin(plan: Plan, slots: _Slots, call: ToolCall, last: int) -> int:
    """The first of some slots after the last one that states just what a call holds; -1 where there is none."""
    if call.error is not None or not plan.says(call):
        return -1
    stated = plan.stated(slots)
    if stated is None:
        return -1
    alike = stated.slots.get(stated.content(call.arguments, call.result), ())
    return next((slot for slot in alike if slot > last), -1)


def by_family(plan: Plan, calls: _Calls, order: Order, schemas: Schemas, effort: Effort) -> Chosen | None:
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
        elif settled := _settled(plan, slots, members, schemas):
            chosen.update(settled.pairs)
            no_others = no_others and settled.are_only
        else:
            return None
    in_sequence = [chosen[slot] for slot in sorted(chosen)]
    if in_sequence == sorted(in_sequence):
        return chosen, chosen
    chain = longest_chain(chosen, plan.stages, timeline(calls), effort)
    if len(chain) == len(chosen) or (order == "any" and no_others and _all_differ(plan, families)):
        return chosen, chain
    if any(call.error is not None or not plan.takes_any(call) for members in families.values() for _, call in members):
        return None
    return _all_alike(plan, calls, families, chosen, effort)


def _all_differ(plan: Plan, families: Mapping[_Slots, _Calls]) -> bool:
    """Whether no two calls of a family hold the same in what is stated, however they write it."""
    for slots, members in families.items():
        stated = plan.stated(slots) if len(members) > 1 else None
        if stated is None:
            continue
        held = [stated.parts(call.arguments, call.result) for _, call in members]
        keys = equality_keys(held)
        if None in keys or len(set(keys)) < len(keys):
            return False
    return True


def _are_apart(families: Iterable[_Slots]) -> bool:
    """Whether no slot is in two of them."""
    slots = [slot for family in families for slot in family]
    return len(slots) == len(set(slots))


class _Settled(NamedTuple):
    """The best pairs of a family, slot to call."""

    pairs: Mapping[int, int]
    are_only: bool
    """Whether no others are as good."""


def _settled(plan: Plan, slots: _Slots, calls: _Calls, schemas: Schemas) -> _Settled | None:
    """The best pairs of a family; `None` where it takes more to find them."""
    for _, call in calls:
        if call.error is not None or not plan.says(call):
            return None
    if plan.takes_any(calls[0][1]):
        return _Settled(dict(zip(slots, [position for position, _ in calls], strict=False)), are_only=False)
    stated = plan.stated(slots)
    if stated is None:
        return None
    held = [stated.content(call.arguments, call.result) for _, call in calls]
    return _twins(stated, slots, calls, held) or _tried(plan, slots, calls, held, schemas)


def _twins(stated: Stated, slots: _Slots, calls: _Calls, contents: Sequence[Content]) -> _Settled | None:
    """The pairs of calls that hold exactly what is expected, where as many pairs as there can be are such.

    Then nothing speaks against any of them.
    """
    pairs: dict[int, int] = {}
    free: dict[Content, Iterator[int]] = {}
    only = len(slots) <= len(calls)  # else a slot that is left over may agree as well without holding the same
    for (position, _), held in zip(calls, contents, strict=True):
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


_FEW, _LITTLE = 3, 4096
"""So many slots, or calls, with one more of the others, and so many bytes in each call: all can be tried."""


def _tried(plan: Plan, slots: _Slots, calls: _Calls, contents: Iterable[Content], schemas: Schemas) -> _Settled | None:
    """The best pairs of a few slots and calls, of all that there can be."""
    if min(len(slots), len(calls)) > _FEW or max(len(slots), len(calls)) > _FEW + 1:
        return None
    if any(isinstance(part, str | bytes) and len(part) > _LITTLE for held in contents for part in held):
        return None
    if len({plan.slots[slot].required for slot in slots}) > 1:
        return None
    against = [[_against(plan.slots[slot].tools[0], call, schemas) for _, call in calls] for slot in slots]
    flipped = len(slots) > len(calls)
    rows = list(zip(*against, strict=True)) if flipped else against
    ways = sorted(
        (sum([row[column] for row, column in zip(rows, columns, strict=True)]), columns)
        for columns in permutations(range(len(rows[0])), len(rows))
    )
    (least, best), *others = ways
    places = [(column, row) if flipped else (row, column) for row, column in enumerate(best)]
    pairs = {slots[slot]: calls[call][0] for slot, call in sorted(places)}
    return _Settled(pairs, are_only=not others or others[0][0] > least)


def _against(tool: ExpectedTool, call: ToolCall, schemas: Schemas) -> int:
    """What speaks against a pair, as digits of one number that no sum over a few pairs mixes up."""
    found = faults_of(tool, call, schemas)
    much, many = 10 * UNITS, 10
    disagreed = found.disagreed * many + found.unjudged
    return (disagreed * much + found.arguments_disagreed) * many + found.arguments_unjudged


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
