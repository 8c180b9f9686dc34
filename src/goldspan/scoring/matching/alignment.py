"""Finds the most valuable pairs of slots and calls that are in order.

Slots are in *stages* that follow one another, and calls can overlap in time. Two pairs are in order unless they are
strictly reversed: the slot of one is due before the slot of the other, and its call started after the other call ended.
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
    """Calls in the order of their start."""

    calls: Sequence[int]
    """The positions in the run, ascending."""
    first_after_end: Sequence[int]
    """For each call, the index of the first call that started after its end. The calls in between overlap it."""

    @property
    def has_overlaps(self) -> bool:
        """Whether any two calls ran at the same time."""
        return any(ended > at + 1 for at, ended in enumerate(self.first_after_end))

    @cached_property
    def concurrent_groups(self) -> list[list[int]] | None:
        """Successive groups of calls that ran at the same time.

        `None` if calls overlap in another way, for example a long call with two successive ones.
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
        """Returns the intervals of some of the calls."""
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
        """Whether no two pairs (slot to call) are strictly reversed."""
        index = {call: at for at, call in enumerate(self.calls)}
        latest = at_stage = -1  # the latest start of a call of an earlier stage, and of one up to this stage
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
    """Returns the intervals of calls with their positions in the run, in order."""
    positions = [position for position, _ in calls]
    ended = []
    for at, (_, call) in enumerate(calls):
        end = at + 1
        if call.concurrent_with:
            concurrent = set(call.concurrent_with)
            while end < len(positions) and positions[end] in concurrent:
                end += 1
        ended.append(end)
    return CallIntervals(positions, ended)


_STEPS_PER_STATE = 12  # the steps of `WorkBudget` for extending one state by one pair
_MIN_STATES = 4  # with fewer states the sweep is not attempted


class _SweepState(NamedTuple):
    """The constraints on later calls of a partial alignment."""

    floor: int
    """The earliest stage that later calls can match."""
    running: tuple[tuple[int, int], ...]
    """For calls that can overlap later ones: the index of the first call after their end, and their stage. Ascending in
    both, without entries that an earlier ended call of a later stage makes redundant."""
    taken: int
    """The slots in use, as bits; only those that later calls could match."""


_PartialAlignment: TypeAlias = "tuple[int, _PartialAlignment | None, int, int]"
"""The gain, the previous alignment, and the last pair: slot and call."""


def sweep_alignment(
    gains: Sequence[Mapping[int, int]], stages: Sequence[int], intervals: CallIntervals, budget: WorkBudget
) -> tuple[dict[int, int], bool]:
    """Returns the most valuable pairs (slot to call) that are in order, and whether this is certain.

    If there are more states than `budget` covers, only the most valuable ones are extended.
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


def _candidate_slots(gains: Sequence[Mapping[int, int]], intervals: CallIntervals) -> list[list[tuple[int, int]]]:
    """Returns, for each call, the slots that it can match, with their gains."""
    offers: dict[int, list[tuple[int, int]]] = {call: [] for call in intervals.calls}
    for slot, row in enumerate(gains):
        for call, gain in row.items():
            offers[call].append((slot, gain))
    return list(offers.values())


def _slots_open_later(offers: Sequence[Sequence[tuple[int, int]]]) -> list[int]:
    """Returns, for each call, the slots that later calls can match, as bits."""
    found, so_far = [], 0
    for offered in reversed(offers):
        found.append(so_far)
        for slot, _ in offered:
            so_far |= 1 << slot
    return found[::-1]


def _slots_by_stage(stages: Sequence[int]) -> list[int]:
    """Returns the slots of each stage, as bits."""
    found = [0] * (max(stages, default=0) + 1)
    for slot, stage in enumerate(stages):
        found[stage] |= 1 << slot
    return found


def _begin_call(state: _SweepState, at: int) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Returns the floor and the running calls at the start of the call with that index."""
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
    """Returns the state without irrelevant constraints, so that equivalent states are equal."""
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
    """Returns the states that can still be the best, and whether none of those was dropped."""
    kept: dict[_SweepState, _PartialAlignment] = {}
    lowest = None  # the floor of a kept state with at least this gain and without other constraints
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
"""For slots, the candidate calls, each with the gain of the pair: more than 0."""

TOO_MANY_TO_ALIGN = "so many calls overlap, or slots stand side by side, that not all of their orders were tried"


def longest_chain(
    pairs: Mapping[int, int], stages: Sequence[int], intervals: CallIntervals, budget: WorkBudget
) -> dict[int, int]:
    """Returns the largest subset of pairs (slot to call) in which both sides are in order."""
    if intervals.is_in_order(pairs, stages):
        return dict(pairs)
    intervals = intervals.restrict_to(pairs.values())
    if intervals.concurrent_groups is None:
        return align({slot: {call: 1} for slot, call in pairs.items()}, stages, intervals, budget)
    group_of = {call: number for number, group in enumerate(intervals.concurrent_groups) for call in group}
    return longest_increasing_run(pairs, stages, group_of)


def align(
    gains: Gains,
    stages: Sequence[int],
    intervals: CallIntervals,
    budget: WorkBudget,
    *,
    unordered: Mapping[int, int] | None = None,
) -> dict[int, int]:
    """Returns the most valuable pairs (slot to call) in which both sides are in order.

    The result is exact if all slots or all calls are sequential, or if few overlap; otherwise it is limited by
    `budget`. `unordered` are the most valuable pairs without an order, whose gain is an upper bound.
    """
    slots = sorted(gains)
    rows, stages = [gains[slot] for slot in slots], [stages[slot] for slot in slots]
    intervals = intervals.restrict_to({call for row in rows for call in row})
    most = None if unordered is None else sum(gains[slot][call] for slot, call in unordered.items())
    found = _best_alignment(rows, stages, intervals, budget, most)
    return {slots[row]: call for row, call in found.items()}


def _best_alignment(
    rows: GainRows, stages: Sequence[int], intervals: CallIntervals, budget: WorkBudget, most: int | None
) -> dict[int, int]:
    # Assume that no calls overlap and that all slots are sequential: a valid and fast result, possibly too strict.
    in_line = _align_as_sequence(rows, intervals, budget)
    if in_line is not None and (_is_sequential(stages, intervals) or _total_gain(in_line, rows) == most):
        return in_line
    exact = _align_with_sequence(rows, stages, intervals, budget)
    if exact is not None:
        return exact
    swept, whole = sweep_alignment(rows, stages, intervals, budget)
    best = max(swept, in_line or {}, key=lambda pairs: _total_gain(pairs, rows))
    if not whole and _total_gain(best, rows) != most:
        budget.mark_incomplete(TOO_MANY_TO_ALIGN)
    return best


def _is_sequential(stages: Sequence[int], intervals: CallIntervals) -> bool:
    return not intervals.has_overlaps and len(set(stages)) == len(stages)


def _total_gain(pairs: Mapping[int, int], rows: GainRows) -> int:
    return sum(rows[row][call] for row, call in pairs.items())


# --- a sequence on one side at least: each group of the other side is matched with a range of it ----------------------

GainRows = Sequence[Mapping[int, int]]
"""The gains of slots in the order of their stages."""


def _align_with_sequence(
    rows: GainRows, stages: Sequence[int], intervals: CallIntervals, budget: WorkBudget
) -> dict[int, int] | None:
    """Returns the best pairs; `None` if neither side is a sequence, or the budget does not cover the work."""
    if len(set(stages)) == len(stages) and intervals.concurrent_groups is not None:
        return (
            _align_groups(rows, intervals.concurrent_groups)
            if budget.try_spend(_estimate_steps(rows, intervals.concurrent_groups))
            else None
        )
    if intervals.has_overlaps:
        return None
    offers: dict[int, dict[int, int]] = {call: {} for call in intervals.calls}
    for row, gains in enumerate(rows):
        for call, gain in gains.items():
            offers[call][row] = gain
    by_stage: dict[int, list[int]] = {}
    for row, stage in enumerate(stages):
        by_stage.setdefault(stage, []).append(row)
    mirrored, groups = list(offers.values()), list(by_stage.values())
    if not budget.try_spend(_estimate_steps(mirrored, groups)):
        return None
    return {row: intervals.calls[at] for at, row in _align_groups(mirrored, groups).items()}


def _align_as_sequence(rows: GainRows, intervals: CallIntervals, budget: WorkBudget) -> dict[int, int] | None:
    groups = [[call] for call in intervals.calls]
    return _align_groups(rows, groups) if budget.try_spend(_estimate_steps(rows, groups)) else None


def _estimate_steps(rows: GainRows, groups: Sequence[Sequence[int]]) -> int:
    """Returns about how many steps of `WorkBudget` the alignment takes."""
    slot_counts: dict[int, int] = {}
    if any(len(group) > 1 for group in groups):
        for call in chain.from_iterable(rows):
            slot_counts[call] = slot_counts.get(call, 0) + 1
    steps = len(groups) * len(rows) * 3
    for group in groups:
        if len(group) > 1:
            candidates = min(len(rows), sum(slot_counts.get(call, 0) for call in group))
            steps += candidates**2 * (15 + len(group))
    return steps


def _align_groups(rows: GainRows, groups: Sequence[Sequence[int]]) -> dict[int, int]:
    best = [0] * (len(rows) + 1)  # the greatest gain of the first n slots with the groups so far
    starts: list[list[int]] = []  # for each group and n: the start of the range of slots of the group
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
        elif better[-1] > best[end]:  # the call matches an earlier slot
            better.append(better[-1])
            start.append(start[-1])
        else:
            better.append(best[end])
            start.append(end)
    return better, start


def _extend_by_group(rows: GainRows, group: Sequence[int], best: list[int]) -> tuple[list[int], list[int]]:
    better, start = list(best), list(range(len(best)))
    candidates = [at for at, gain in enumerate(rows) if not gain.keys().isdisjoint(group)]
    table = [[rows[at].get(call, 0) for call in group] for at in candidates]
    for first, begin in enumerate(candidates):
        for at, gain in zip(candidates[first:], prefix_gains(table[first:]), strict=True):
            if best[begin] + gain > better[at + 1]:
                better[at + 1] = best[begin] + gain
                start[at + 1] = begin
    for end in range(1, len(better)):  # the group matches only slots before this one
        if better[end - 1] > better[end]:
            better[end], start[end] = better[end - 1], start[end - 1]
    return better, start


def _assign_group(rows: GainRows, group: Sequence[int], stretch: range) -> dict[int, int]:
    """Returns the best pairs of the calls of a group with the slots of its range."""
    costs = [[-rows[row][call] if call in rows[row] else None for call in group] for row in stretch]
    return {stretch[row]: group[column] for row, column in assign(costs)}


# --- the order of fixed pairs -----------------------------------------------------------------------------------------


def longest_increasing_run(
    pairs: Mapping[int, int], stages: Sequence[int], group_of: Mapping[int, int] | Sequence[int]
) -> dict[int, int]:
    """Returns the largest subset of pairs in which neither stages nor the groups of the calls decrease."""
    # Patience sorting, from the last call to the first, so that of equal chains the one of the earliest calls is found:
    # `heads[n]` is the latest stage, negated, at which a chain of n + 1 can start so far, and `begins[n]` its slot.
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
