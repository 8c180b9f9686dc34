"""Calls that certainly agree with what is expected, because both hold the same: found without judging any pair."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeAlias

from goldspan.goldens.naming import Naming
from goldspan.model import ABSENT, ToolCall
from goldspan.scoring.agreement.sameness import content
from goldspan.scoring.identity import is_by, is_called
from goldspan.scoring.plan import Plan, Slot

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


def _twins_of(slot: Slot, by_content: _ByContent, names: Naming) -> Sequence[int]:
    found: set[int] = set()
    for tool in slot.tools:
        if tool.arguments is not None or tool.result is not ABSENT:
            key = content(tool.arguments), ABSENT if tool.result is ABSENT else content(tool.result)
            alike = by_content.get(key, ())
            found.update(position for position, call in alike if is_called(tool, call, names) and is_by(tool, call))
    return sorted(found)
