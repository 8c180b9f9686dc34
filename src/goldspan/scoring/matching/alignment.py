"""Order: the best way to lay calls beside slots without going back.

Slots stand in *stages* that follow one another, calls on a timeline on which some overlap. Two pairs are in order
unless they are strictly reversed: the slot of the one is due before the other's, and its call began when the other's
had ended.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple, TypeAlias

from goldspan.model import ToolCall
from goldspan.scoring.matching.assignment import WorkBudget, assign, prefix_gains


@dataclass(frozen=True)
class CallIntervals:
    """Calls in the order in which they began."""

    calls: Sequence[int]
    """Their positions in the run, ascending."""
    first_after_end: Sequence[int]
    """For each of them the index of the first later one that began when it had ended; those in between overlap it."""

    @property
    def has_overlaps(self) -> bool:
        """Whether any two calls ran at the same time."""
        return any(ended > at + 1 for at, ended in enumerate(self.first_after_end))

    @cached_property
    def concurrent_groups(self) -> list[list[int]] | None:
        """The calls cut into groups that each ran at the same time, one group after the other.

        `None` where calls overlap in another way: a long one beside two that follow one another.
        """
        groups, begin = [], 0
        while begin < len(self.calls):
            end = self.first_after_end[begin]
            if any(ended != end for ended in self.first_after_end[begin:end]):
                return None
            groups.append(list(self.calls[begin:end]))
            begin = end
        return groups

    def restrict_to(self, calls: Iterable[int]) -> CallIntervals:
        """The same of some of the calls."""
        kept = sorted(calls)
        if len(kept) == len(self.calls):
            return self
        at = {call: index for index, call in enumerate(self.calls)}
        ended = []
        for call in kept:
            end = self.first_after_end[at[call]]
            ended.append(bisect_left(kept, self.calls[end]) if end < len(self.calls) else len(kept))
        return CallIntervals(kept, ended)

    def is_in_order(self, pairs: Mapping[int, int], stages: Mapping[int, int] | Sequence[int]) -> bool:
        """Whether no two pairs (slot to call) are strictly reversed: one slot due before the other, its call after."""
        index = {call: at for at, call in enumerate(self.calls)}
        latest = at_stage = -1  # the last beginning of a call of an earlier stage, and of one up to this stage
        stage_now = None
        for slot in sorted(pairs, key=stages.__getitem__):
            if stages[slot] != stage_now:
                stage_now, latest = stages[slot], at_stage
            at = index[pairs[slot]]
            if self.first_after_end[at] <= latest:
                return False
            at_stage = max(at_stage, at)
        return True


def call_intervals(calls: Sequence[tuple[int, ToolCall]]) -> CallIntervals:
    """When some calls ran, which come with their positions in the run, in order."""
    positions = [position for position, _ in calls]
    ended = []
    for at, (_, call) in enumerate(calls):
        end = at + 1
        if call.concurrent_with:
            beside = set(call.concurrent_with)
            while end < len(positions) and positions[end] in beside:
                end += 1
        ended.append(end)
    return CallIntervals(positions, ended)


_STEPS_PER_STATE = 12  # what following one way by one pair costs, in steps of `Effort`
_MIN_STATES = 4  # following fewer ways than these is not worth while


class _SweepState(NamedTuple):
    """What is still open."""

    floor: int
    """The stage that no later call may go before."""
    running: tuple[tuple[int, int], ...]
    """Of calls that may overlap later ones: the index of the call from which on they count as ended, and their stage.
    Ascending in both; what an earlier ended call of a later stage makes needless is left out."""
    taken: int
    """The slots that are taken, as bits; only those that matter from here on."""


_PartialAlignment: TypeAlias = "tuple[int, _PartialAlignment | None, int, int]"
"""What it is worth, what came before, and the last pair: its slot and its call."""


def sweep_alignment(
    gains: Sequence[Mapping[int, int]], stages: Sequence[int], intervals: CallIntervals, budget: WorkBudget
) -> tuple[dict[int, int], bool]:
    """The most valuable pairs (slot to call) that are in order, and whether they are certainly that.

    Where there are more ways than `effort` covers, only the most valuable ones are followed.
    """
    offers = _candidate_slots(gains, intervals)
    most = budget.remaining // (2 * _STEPS_PER_STATE * (sum(map(len, offers)) + len(offers)) + 1)
    if most < _MIN_STATES:
        return {}, False
    whole = True
    open_later = _slots_open_later(offers)
    in_stage = _slots_by_stage(stages)
    ways: dict[_SweepState, _PartialAlignment] = {_SweepState(0, (), 0): (0, None, -1, -1)}
    for at, offered in enumerate(offers):
        budget.remaining -= len(ways) * (len(offered) + 1) * _STEPS_PER_STATE
        further: dict[_SweepState, _PartialAlignment] = {}
        for state, way in ways.items():
            floor, running = _begin_call(state, at)
            _keep_best(further, _normalized_state(floor, running, state.taken, open_later[at], in_stage), way)
            for slot, gain in offered:
                stage = stages[slot]
                if stage < floor or state.taken >> slot & 1:
                    continue
                then = _with_running_call(running, floor, intervals.first_after_end[at], stage)
                settled = _normalized_state(floor, then, state.taken | 1 << slot, open_later[at], in_stage)
                _keep_best(further, settled, (way[0] + gain, way, slot, intervals.calls[at]))
        ways, whole = _prune(further, most, whole)
    return _backtrack(max(ways.values(), key=lambda way: way[0])), whole


def _candidate_slots(gains: Sequence[Mapping[int, int]], line: CallIntervals) -> list[list[tuple[int, int]]]:
    """For each call the slots that it may answer, with what that is worth."""
    offers: dict[int, list[tuple[int, int]]] = {call: [] for call in line.calls}
    for slot, row in enumerate(gains):
        for call, gain in row.items():
            offers[call].append((slot, gain))
    return list(offers.values())


def _slots_open_later(offers: Sequence[Sequence[tuple[int, int]]]) -> list[int]:
    """For each call the slots, as bits, that calls after it may answer."""
    found, so_far = [], 0
    for offered in reversed(offers):
        found.append(so_far)
        for slot, _ in offered:
            so_far |= 1 << slot
    return found[::-1]


def _slots_by_stage(stages: Sequence[int]) -> list[int]:
    """For each stage its slots, as bits."""
    found = [0] * (max(stages, default=0) + 1)
    for slot, stage in enumerate(stages):
        found[stage] |= 1 << slot
    return found


def _begin_call(state: _SweepState, at: int) -> tuple[int, tuple[tuple[int, int], ...]]:
    """The floor and the running calls when the call of that index begins."""
    floor, running = state.floor, state.running
    while running and running[0][0] <= at:
        floor, running = max(floor, running[0][1]), running[1:]
    return floor, running


def _with_running_call(
    running: tuple[tuple[int, int], ...], floor: int, ended: int, stage: int
) -> tuple[tuple[int, int], ...]:
    if stage <= floor or any(other <= ended and over >= stage for other, over in running):
        return running
    kept = [one for one in running if not (one[0] >= ended and one[1] <= stage)]
    return tuple(sorted([*kept, (ended, stage)]))


def _normalized_state(
    floor: int, running: tuple[tuple[int, int], ...], taken: int, open_later: int, in_stage: Sequence[int]
) -> _SweepState:
    """The state without what no longer matters: ways that differ in nothing else are one."""
    while floor < len(in_stage) and not in_stage[floor] & open_later & ~taken:
        floor += 1
    below = in_stage[floor] & -in_stage[floor] if floor < len(in_stage) else 0
    taken &= open_later & -below if below else 0
    return _SweepState(floor, tuple(one for one in running if one[1] > floor), taken)


def _keep_best(ways: dict[_SweepState, _PartialAlignment], state: _SweepState, way: _PartialAlignment) -> None:
    known = ways.get(state)
    if known is None or way[0] > known[0]:
        ways[state] = way


def _prune(
    ways: dict[_SweepState, _PartialAlignment], most: int, whole: bool
) -> tuple[dict[_SweepState, _PartialAlignment], bool]:
    """The ways that may still be the best, and whether they are all of those."""
    kept: dict[_SweepState, _PartialAlignment] = {}
    lowest = None  # the floor of a way that is worth no less and leaves everything from there on open
    for state, way in sorted(ways.items(), key=lambda item: (-item[1][0], item[0])):
        if lowest is not None and state.floor >= lowest and state not in kept:
            continue
        if len(kept) == most:
            return kept, False
        kept[state] = way
        if not state.taken and not state.running:
            lowest = state.floor
    return kept, whole


def _backtrack(way: _PartialAlignment) -> dict[int, int]:
    pairs: dict[int, int] = {}
    step: _PartialAlignment | None = way
    while step is not None and step[1] is not None:
        _, before, slot, call = step
        pairs[slot] = call
        step = before
    return pairs


Gains = Mapping[int, Mapping[int, int]]
"""For slots the calls that may answer them, each with what that pair is worth: more than 0."""

TOO_MANY_TO_ALIGN = "so many calls overlap, or slots stand side by side, that not all of their orders were tried"


def longest_chain(
    pairs: Mapping[int, int], stages: Sequence[int], intervals: CallIntervals, budget: WorkBudget
) -> dict[int, int]:
    """The largest part of some pairs (slot to call) in which both sides are in order."""
    if intervals.is_in_order(pairs, stages):
        return dict(pairs)
    intervals = intervals.restrict_to(pairs.values())
    if intervals.concurrent_groups is None:
        return align({slot: {call: 1} for slot, call in pairs.items()}, stages, intervals, budget)
    return _longest_increasing_run(pairs, stages, intervals.concurrent_groups)


def align(
    gains: Gains,
    stages: Sequence[int],
    intervals: CallIntervals,
    budget: WorkBudget,
    *,
    unordered: Mapping[int, int] | None = None,
) -> dict[int, int]:
    """The most valuable pairs (slot to call) of which both sides are in order.

    Exact where all slots stand one after the other, or all calls do, and where few of both overlap; otherwise as good
    as `effort` allows. `unordered` are the most valuable pairs if order did not matter: nothing can be better.
    """
    slots = sorted(gains)
    rows, stages = [gains[slot] for slot in slots], [stages[slot] for slot in slots]
    intervals = intervals.restrict_to({call for row in rows for call in row})
    most = None if unordered is None else sum(gains[slot][call] for slot, call in unordered.items())
    found = _best_alignment(rows, stages, intervals, budget, most)
    return {slots[row]: call for row, call in found.items()}


def _best_alignment(
    rows: GainRows, stages: Sequence[int], line: CallIntervals, effort: WorkBudget, most: int | None
) -> dict[int, int]:
    # As if nothing overlapped and all slots followed one another: right, fast, and perhaps too strict.
    in_line = _align_as_sequence(rows, line, effort)
    if in_line is not None and (_is_sequential(stages, line) or _total_gain(in_line, rows) == most):
        return in_line
    exact = _align_with_sequence(rows, stages, line, effort)
    if exact is not None:
        return exact
    swept, whole = sweep_alignment(rows, stages, line, effort)
    best = max(swept, in_line or {}, key=lambda pairs: _total_gain(pairs, rows))
    if not whole and _total_gain(best, rows) != most:
        effort.mark_incomplete(TOO_MANY_TO_ALIGN)
    return best


def _is_sequential(stages: Sequence[int], line: CallIntervals) -> bool:
    return not line.has_overlaps and len(set(stages)) == len(stages)


def _total_gain(pairs: Mapping[int, int], rows: GainRows) -> int:
    return sum(rows[row][call] for row, call in pairs.items())


# --- a plain sequence on one side at least: each group of the other side takes a stretch of it ------------------------

GainRows = Sequence[Mapping[int, int]]
"""Gains of slots in the order of their stages."""


def _align_with_sequence(
    rows: GainRows, stages: Sequence[int], line: CallIntervals, effort: WorkBudget
) -> dict[int, int] | None:
    """The best pairs; `None` where neither side is a plain sequence, or the work too much."""
    if len(set(stages)) == len(stages) and line.concurrent_groups is not None:
        return (
            _align_groups(rows, line.concurrent_groups)
            if effort.try_spend(_estimate_steps(rows, line.concurrent_groups))
            else None
        )
    if line.has_overlaps:
        return None
    offers: dict[int, dict[int, int]] = {call: {} for call in line.calls}
    for row, gains in enumerate(rows):
        for call, gain in gains.items():
            offers[call][row] = gain
    by_stage: dict[int, list[int]] = {}
    for row, stage in enumerate(stages):
        by_stage.setdefault(stage, []).append(row)
    mirrored, groups = list(offers.values()), list(by_stage.values())
    if not effort.try_spend(_estimate_steps(mirrored, groups)):
        return None
    return {row: line.calls[at] for at, row in _align_groups(mirrored, groups).items()}


def _align_as_sequence(rows: GainRows, line: CallIntervals, effort: WorkBudget) -> dict[int, int] | None:
    groups = [[call] for call in line.calls]
    return _align_groups(rows, groups) if effort.try_spend(_estimate_steps(rows, groups)) else None


def _estimate_steps(rows: GainRows, groups: Sequence[Sequence[int]]) -> int:
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


def _align_groups(rows: GainRows, groups: Sequence[Sequence[int]]) -> dict[int, int]:
    best = [0] * (len(rows) + 1)  # the greatest gain of the first n slots with the groups so far
    starts: list[list[int]] = []  # for each group and n: where the stretch of slots begins that the group takes
    for group in groups:
        best, start = _extend_by_call(rows, group[0], best) if len(group) == 1 else _extend_by_group(rows, group, best)
        starts.append(start)
    pairs: dict[int, int] = {}
    end = len(rows)
    for group, start in zip(reversed(groups), reversed(starts), strict=True):
        stretch = range(start[end], end)
        pairs.update(_assign_group(rows, group, stretch))
        end = start[end]
    return pairs


def _extend_by_call(rows: GainRows, call: int, best: list[int]) -> tuple[list[int], list[int]]:
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


def _extend_by_group(rows: GainRows, group: Sequence[int], best: list[int]) -> tuple[list[int], list[int]]:
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


def _assign_group(rows: GainRows, group: Sequence[int], stretch: range) -> dict[int, int]:
    """Which call of a group answers which slot of its stretch."""
    costs = [[-rows[row][call] if call in rows[row] else None for call in group] for row in stretch]
    return {stretch[row]: group[column] for row, column in assign(costs)}


# --- pairs that are given ---------------------------------------------------------------------------------------------


def _longest_increasing_run(
    pairs: Mapping[int, int], stages: Sequence[int], groups: Sequence[Sequence[int]]
) -> dict[int, int]:
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
