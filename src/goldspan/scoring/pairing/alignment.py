"""Order: the best way to lay calls beside slots without going back.

Slots stand in *stages* that follow one another, calls on a timeline on which some overlap. Two pairs are in order
unless they are strictly reversed: the slot of the one is due before the other's, and its call began when the other's
had ended.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import chain

from goldspan.scoring.pairing.assignment import assign, prefix_gains
from goldspan.scoring.pairing.effort import Effort
from goldspan.scoring.pairing.sweep import sweep
from goldspan.scoring.pairing.timeline import Timeline

Gains = Mapping[int, Mapping[int, int]]
"""For slots the calls that may answer them, each with what that pair is worth: more than 0."""

TOO_MANY_TO_ALIGN = "so many calls overlap, or slots stand side by side, that not all of their orders were tried"


def longest_chain(pairs: Mapping[int, int], stages: Sequence[int], line: Timeline, effort: Effort) -> dict[int, int]:
    """The largest part of some pairs (slot to call) in which both sides are in order."""
    if line.is_in_order(pairs, stages):
        return dict(pairs)
    line = line.only(pairs.values())
    if line.groups is None:
        return align({slot: {call: 1} for slot, call in pairs.items()}, stages, line, effort)
    return _longest_run(pairs, stages, line.groups)


def align(
    gains: Gains,
    stages: Sequence[int],
    line: Timeline,
    effort: Effort,
    *,
    unordered: Mapping[int, int] | None = None,
) -> dict[int, int]:
    """The most valuable pairs (slot to call) of which both sides are in order.

    Exact where all slots stand one after the other, or all calls do, and where few of both overlap; otherwise as good
    as `effort` allows. `unordered` are the most valuable pairs if order did not matter: nothing can be better.
    """
    slots = sorted(gains)
    rows, stages = [gains[slot] for slot in slots], [stages[slot] for slot in slots]
    line = line.only({call for row in rows for call in row})
    most = None if unordered is None else sum(gains[slot][call] for slot, call in unordered.items())
    found = _aligned(rows, stages, line, effort, most)
    return {slots[row]: call for row, call in found.items()}


def _aligned(rows: Rows, stages: Sequence[int], line: Timeline, effort: Effort, most: int | None) -> dict[int, int]:
    # As if nothing overlapped and all slots followed one another: right, fast, and perhaps too strict.
    in_line = _in_line(rows, line, effort)
    if in_line is not None and (_is_plain(stages, line) or _worth(in_line, rows) == most):
        return in_line
    exact = _along_either(rows, stages, line, effort)
    if exact is not None:
        return exact
    swept, whole = sweep(rows, stages, line, effort)
    best = max(swept, in_line or {}, key=lambda pairs: _worth(pairs, rows))
    if not whole and _worth(best, rows) != most:
        effort.give_up(TOO_MANY_TO_ALIGN)
    return best


def _is_plain(stages: Sequence[int], line: Timeline) -> bool:
    return not line.overlaps and len(set(stages)) == len(stages)


def _worth(pairs: Mapping[int, int], rows: Rows) -> int:
    return sum(rows[row][call] for row, call in pairs.items())


# --- a plain sequence on one side at least: each group of the other side takes a stretch of it ------------------------

Rows = Sequence[Mapping[int, int]]
"""Gains of slots in the order of their stages."""


def _along_either(rows: Rows, stages: Sequence[int], line: Timeline, effort: Effort) -> dict[int, int] | None:
    """The best pairs; `None` where neither side is a plain sequence, or the work too much."""
    if len(set(stages)) == len(stages) and line.groups is not None:
        return _along(rows, line.groups) if effort.covers(_steps(rows, line.groups)) else None
    if line.overlaps:
        return None
    offers: dict[int, dict[int, int]] = {call: {} for call in line.calls}
    for row, gains in enumerate(rows):
        for call, gain in gains.items():
            offers[call][row] = gain
    by_stage: dict[int, list[int]] = {}
    for row, stage in enumerate(stages):
        by_stage.setdefault(stage, []).append(row)
    mirrored, groups = list(offers.values()), list(by_stage.values())
    if not effort.covers(_steps(mirrored, groups)):
        return None
    return {row: line.calls[at] for at, row in _along(mirrored, groups).items()}


def _in_line(rows: Rows, line: Timeline, effort: Effort) -> dict[int, int] | None:
    groups = [[call] for call in line.calls]
    return _along(rows, groups) if effort.covers(_steps(rows, groups)) else None


def _steps(rows: Rows, groups: Sequence[Sequence[int]]) -> int:
    """About how many steps of `Effort` the alignment takes."""
    asked: dict[int, int] = {}
    if any(len(group) > 1 for group in groups):
        for call in chain.from_iterable(rows):
            asked[call] = asked.get(call, 0) + 1
    steps = len(groups) * len(rows) * 3
    for group in groups:
        if len(group) > 1:
            asking = min(len(rows), sum(asked.get(call, 0) for call in group))
            steps += asking**2 * (15 + len(group))
    return steps


def _along(rows: Rows, groups: Sequence[Sequence[int]]) -> dict[int, int]:
    best = [0] * (len(rows) + 1)  # the greatest gain of the first n slots with the groups so far
    starts: list[list[int]] = []  # for each group and n: where the stretch of slots begins that the group takes
    for group in groups:
        best, start = _one_call(rows, group[0], best) if len(group) == 1 else _many_calls(rows, group, best)
        starts.append(start)
    pairs: dict[int, int] = {}
    end = len(rows)
    for group, start in zip(reversed(groups), reversed(starts), strict=True):
        stretch = range(start[end], end)
        pairs.update(_answers(rows, group, stretch))
        end = start[end]
    return pairs


def _one_call(rows: Rows, call: int, best: list[int]) -> tuple[list[int], list[int]]:
    better, start = best[:1], [0]
    for end in range(1, len(best)):
        gain = rows[end - 1].get(call, 0)
        taken = best[end - 1] + gain
        if gain and taken > best[end] and taken > better[-1]:
            better.append(taken)
            start.append(end - 1)
        elif better[-1] > best[end]:  # the call has answered an earlier slot
            better.append(better[-1])
            start.append(start[-1])
        else:
            better.append(best[end])
            start.append(end)
    return better, start


def _many_calls(rows: Rows, group: Sequence[int], best: list[int]) -> tuple[list[int], list[int]]:
    better, start = list(best), list(range(len(best)))
    asking = [at for at, gain in enumerate(rows) if not gain.keys().isdisjoint(group)]
    table = [[rows[at].get(call, 0) for call in group] for at in asking]
    for first, begin in enumerate(asking):
        for at, gain in zip(asking[first:], prefix_gains(table[first:]), strict=True):
            if best[begin] + gain > better[at + 1]:
                better[at + 1] = best[begin] + gain
                start[at + 1] = begin
    for end in range(1, len(better)):  # what the group has taken before this slot
        if better[end - 1] > better[end]:
            better[end], start[end] = better[end - 1], start[end - 1]
    return better, start


def _answers(rows: Rows, group: Sequence[int], stretch: range) -> dict[int, int]:
    """Which call of a group answers which slot of its stretch."""
    costs = [[-rows[row][call] if call in rows[row] else None for call in group] for row in stretch]
    return {stretch[row]: group[column] for row, column in assign(costs)}


# --- pairs that are given ---------------------------------------------------------------------------------------------


def _longest_run(pairs: Mapping[int, int], stages: Sequence[int], groups: Sequence[Sequence[int]]) -> dict[int, int]:
    """The largest part of some pairs in which neither stages nor groups go back."""
    group_of = {call: number for number, group in enumerate(groups) for call in group}
    # Patience, from the last call to the first, so that of equal chains the one of the earliest calls is found:
    # `heads[n]` is the latest stage, negated, at which a chain of n + 1 can begin so far, and `begins[n]` its slot.
    heads: list[int] = []
    begins: list[int] = []
    after: dict[int, int | None] = {}
    for slot in sorted(pairs, key=lambda slot: (group_of[pairs[slot]], slot), reverse=True):
        length = bisect_right(heads, -stages[slot])
        after[slot] = begins[length - 1] if length else None
        heads[length : length + 1] = [-stages[slot]]
        begins[length : length + 1] = [slot]
    run: dict[int, int] = {}
    following = begins[-1] if begins else None
    while following is not None:
        run[following] = pairs[following]
        following = after[following]
    return run
