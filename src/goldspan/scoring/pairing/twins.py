"""Calls that certainly agree with what is expected, because both hold the same: found without judging any pair."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeAlias

from goldspan.goldens.naming import Naming
from goldspan.model import ABSENT, Order, ToolCall
from goldspan.scoring.agreement.sameness import content
from goldspan.scoring.identity import is_called
from goldspan.scoring.pairing.alignment import longest_chain
from goldspan.scoring.pairing.effort import Effort
from goldspan.scoring.pairing.timeline import timeline
from goldspan.scoring.plan import Chosen, Plan, Slot

Twins: TypeAlias = Mapping[int, Sequence[int]]
"""For slots the calls that agree with all they state, by position, ascending."""

_ByContent: TypeAlias = Mapping[tuple[Hashable, Hashable], Sequence[tuple[int, ToolCall]]]


def twins(plan: Plan, calls: Sequence[tuple[int, ToolCall]], names: Naming) -> Twins:
    """The calls that hold what a slot states; a slot that states nothing has none."""
    by_content: dict[tuple[Hashable, Hashable], list[tuple[int, ToolCall]]] = {}
    for position, call in calls:
        arguments = content(call.arguments) if plan.states_arguments else None
        result = content(call.result) if plan.states_results else None
        for key in {(arguments, result), (arguments, ABSENT), (None, result)}:
            by_content.setdefault(key, []).append((position, call))
    of_kind: dict[int, Sequence[int]] = {}
    for slot, kind in zip(plan.slots, plan.kinds, strict=True):
        if kind not in of_kind:
            of_kind[kind] = _twins_of(slot, by_content, names)
    return {at: of_kind[kind] for at, kind in enumerate(plan.kinds) if of_kind[kind]}


def first_free(found: Twins, chosen: Mapping[int, int]) -> dict[int, int]:
    """Slots that are not among the chosen pairs (slot to call), each with its first twin that is still free."""
    taken = set(chosen.values())
    pairs: dict[int, int] = {}
    for slot, calls in found.items():
        free = next((call for call in calls if call not in taken), None)
        if slot not in chosen and free is not None:
            pairs[slot] = free
            taken.add(free)
    return pairs


def by_twins(plan: Plan, calls: Sequence[tuple[int, ToolCall]], order: Order, effort: Effort) -> Chosen | None:
    """The pairs where every slot that has a call at all has a twin of its own; `None` elsewhere.

    Then nothing speaks against any pair. They must be in order, unless order is the only thing that could be better and
    no slot has another twin.
    """
    if not plan.holding:
        return None
    chosen: dict[int, int] = {}
    asked: dict[tuple[int, ...], frozenset[int]] = {}
    free: dict[Hashable, Iterator[int]] = {}  # slots that the same calls may answer and that hold the same
    no_other = True
    for position, call in calls:
        slots = plan.asked(call)
        if not slots:
            continue
        if call.error is not None or not plan.says(call):
            return None
        if slots not in asked:
            asked[slots] = frozenset(slots)
        held = slots, plan.content(call.arguments, call.result)
        if held in free:
            no_other = False
        else:
            alike = [at for at in plan.holding.get(held[1], ()) if at in asked[slots]]
            no_other = no_other and len(alike) <= 1
            free[held] = iter(alike)
        slot = next((at for at in free[held] if at not in chosen), None)
        if slot is not None:
            chosen[slot] = position
    if len(chosen) < len(frozenset[int]().union(*asked.values())):
        return None
    if list(chosen) == sorted(chosen):
        return chosen, chosen
    chain = longest_chain(chosen, plan.stages, timeline(calls), effort)
    return (chosen, chain) if len(chain) == len(chosen) or (order == "any" and no_other) else None


def _twins_of(slot: Slot, by_content: _ByContent, names: Naming) -> Sequence[int]:
    found: set[int] = set()
    for tool in slot.tools:
        if tool.arguments is not None or tool.result is not ABSENT:
            key = content(tool.arguments), ABSENT if tool.result is ABSENT else content(tool.result)
            found.update(position for position, call in by_content.get(key, ()) if is_called(tool, call, names))
    return sorted(found)
