"""Order: the best way to lay calls beside expectations without going back.

Calls come in groups. Those of one group overlap in time, so they may stand in any order among themselves.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from goldspan.model import ToolCall
from goldspan.scoring.assignment import assign, prefix_gains

Gains = Sequence[Mapping[int, int]]
"""For each expectation the calls that may answer it, each with what that pair is worth: more than 0."""


def concurrent_groups(calls: Sequence[tuple[int, ToolCall]]) -> list[list[int]]:
    """Cut calls, given with their positions in the run, into groups that each ran at the same time."""
    groups: list[list[int]] = []
    for position, call in calls:
        if groups and all(other in call.concurrent_with for other in groups[-1]):
            groups[-1].append(position)
        else:
            groups.append([position])
    return groups


def longest_chain(pairs: Mapping[int, int], groups: Sequence[Sequence[int]]) -> set[int]:
    """The expectations of the largest part of some pairs (expectation to call) in which both sides are in order."""
    group_of = {call: number for number, group in enumerate(groups) for call in group}
    # Patience, from the last call to the first, so that of equal chains the one of the earliest calls is found:
    # `heads[n]` is the greatest expectation, negated, at which a chain of n + 1 can begin so far.
    heads: list[int] = []
    after: dict[int, int | None] = {}
    for expectation in sorted(pairs, key=lambda expectation: (group_of[pairs[expectation]], expectation), reverse=True):
        length = bisect_left(heads, -expectation)
        after[expectation] = -heads[length - 1] if length else None
        heads[length : length + 1] = [-expectation]
    chain: set[int] = set()
    following = -heads[-1] if heads else None
    while following is not None:
        chain.add(following)
        following = after[following]
    return chain


def align(gains: Gains, groups: Sequence[Sequence[int]]) -> dict[int, int]:
    """The most valuable pairs (expectation to call) of which both sides are in order: a common subsequence.

    A group takes expectations that stand together, whichever of its calls answers which.
    """
    best = [0] * (len(gains) + 1)  # the greatest gain of the first n expectations with the groups so far
    starts: list[list[int]] = []  # for each group and n: where the stretch of expectations begins that the group takes
    for group in groups:
        step = _one_call if len(group) == 1 else _many_calls
        best, start = step(gains, group, best)
        starts.append(start)
    pairs: dict[int, int] = {}
    end = len(gains)
    for group, start in zip(reversed(groups), reversed(starts), strict=True):
        stretch = range(start[end], end)
        pairs.update(_answers(gains, group, stretch))
        end = start[end]
    return pairs


def _one_call(gains: Gains, group: Sequence[int], best: list[int]) -> tuple[list[int], list[int]]:
    (call,) = group
    better, start = best[:1], [0]
    for end in range(1, len(best)):
        gain = gains[end - 1].get(call, 0)
        taken = best[end - 1] + gain
        if gain and taken > best[end] and taken > better[-1]:
            better.append(taken)
            start.append(end - 1)
        elif better[-1] > best[end]:  # the call has answered an earlier expectation
            better.append(better[-1])
            start.append(start[-1])
        else:
            better.append(best[end])
            start.append(end)
    return better, start


def _many_calls(gains: Gains, group: Sequence[int], best: list[int]) -> tuple[list[int], list[int]]:
    better, start = list(best), list(range(len(best)))
    for begin in range(len(gains)):
        if gains[begin].keys().isdisjoint(group):
            continue
        rows = [[expectation.get(call, 0) for call in group] for expectation in gains[begin:]]
        for end, gain in enumerate(prefix_gains(rows), start=begin + 1):
            if best[begin] + gain > better[end]:
                better[end] = best[begin] + gain
                start[end] = begin
    return better, start


def _answers(gains: Gains, group: Sequence[int], stretch: range) -> dict[int, int]:
    """Which call of a group answers which expectation of its stretch."""
    costs = [[-gains[row][call] if call in gains[row] else None for call in group] for row in stretch]
    return {stretch[row]: group[column] for row, column in assign(costs)}
