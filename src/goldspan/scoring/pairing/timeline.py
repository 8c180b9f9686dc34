"""When calls ran: which of them had ended before another began, and which overlap."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from goldspan.model import ToolCall


@dataclass(frozen=True)
class Timeline:
    """Calls in the order in which they began."""

    calls: Sequence[int]
    """Their positions in the run, ascending."""
    ended: Sequence[int]
    """For each of them the index of the first later one that began when it had ended; those in between overlap it."""

    @property
    def overlaps(self) -> bool:
        """Whether any two calls ran at the same time."""
        return any(ended > at + 1 for at, ended in enumerate(self.ended))

    @cached_property
    def groups(self) -> list[list[int]] | None:
        """The calls cut into groups that each ran at the same time, one group after the other.

        `None` where calls overlap in another way: a long one beside two that follow one another.
        """
        groups, begin = [], 0
        while begin < len(self.calls):
            end = self.ended[begin]
            if any(ended != end for ended in self.ended[begin:end]):
                return None
            groups.append(list(self.calls[begin:end]))
            begin = end
        return groups

    def only(self, calls: Iterable[int]) -> Timeline:
        """The same of some of the calls."""
        kept = sorted(calls)
        if len(kept) == len(self.calls):
            return self
        at = {call: index for index, call in enumerate(self.calls)}
        ended = []
        for call in kept:
            end = self.ended[at[call]]
            ended.append(bisect_left(kept, self.calls[end]) if end < len(self.calls) else len(kept))
        return Timeline(kept, ended)

    def is_in_order(self, pairs: Mapping[int, int], stages: Mapping[int, int] | Sequence[int]) -> bool:
        """Whether no two pairs (slot to call) are strictly reversed: one slot due before the other, its call after."""
        index = {call: at for at, call in enumerate(self.calls)}
        latest = at_stage = -1  # the last beginning of a call of an earlier stage, and of one up to this stage
        stage_now = None
        for slot in sorted(pairs, key=stages.__getitem__):
            if stages[slot] != stage_now:
                stage_now, latest = stages[slot], at_stage
            at = index[pairs[slot]]
            if self.ended[at] <= latest:
                return False
            at_stage = max(at_stage, at)
        return True


def timeline(calls: Sequence[tuple[int, ToolCall]]) -> Timeline:
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
    return Timeline(positions, ended)
