"""How peers lay calls beside expectations: each function answers how much of the two found its match."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from goldspan.profiles.case_sides import CaseSide
from goldspan.scoring.matching.assignment import assign

NamesMatch: TypeAlias = Callable[[Any, Any], bool]
"""Whether a name that asks and one that answers mean the same tool."""

PairWeight: TypeAlias = Callable[[int, int], float]
"""How far two that are named alike agree, from 0 to 1, by their positions."""


@dataclass(slots=True)
class SidePair:
    """Two sides to be paired. The one that *asks* is served in its order; usually these are the expectations."""

    driving: CaseSide
    candidates: CaseSide
    names_match: NamesMatch = operator.eq
    pair_weight: PairWeight | None = None
    """`None`: the names say all."""

    @property
    def pairs_by_name(self) -> bool:
        """Whether a pair is made by equal names and nothing else."""
        return self.pair_weight is None and self.names_match is operator.eq

    @property
    def has_all_weights(self) -> bool:
        """Whether every pair has a worth, so that those need no look on which nothing depends.

        Arguments that are no dictionaries may have none, and one such pair leaves the case without a score.
        """
        return self.pair_weight is None or (
            self.driving.has_only_dict_arguments and self.candidates.has_only_dict_arguments
        )

    def weight(self, asking: int, answering: int) -> float:
        """What the pair of these two positions is worth: 0 to 1."""
        agree = self.pair_weight
        if not self.names_match(self.driving.keys[asking], self.candidates.keys[answering]):
            return 0.0
        return 1.0 if agree is None else agree(asking, answering)

    def weights(self, asking: int) -> Iterator[tuple[int, float]]:
        """Everything that is named like the one that asks, with what that pair is worth."""
        name, alike, agree = self.driving.keys[asking], self.names_match, self.pair_weight
        for at, other in enumerate(self.candidates.keys):
            if alike(name, other):
                yield at, 1.0 if agree is None else agree(asking, at)

    def reversed(self) -> SidePair:
        """The other side asks."""
        alike, agree = self.names_match, self.pair_weight
        return SidePair(
            self.candidates,
            self.driving,
            alike if alike is operator.eq else lambda asking, answering: alike(answering, asking),
            None if agree is None else lambda asking, answering: agree(answering, asking),
        )


PairingRule: TypeAlias = Callable[[SidePair], float]
"""How much of the two sides found its match; for weights of 0 and 1 the number of pairs."""


def pair_by_position(board: SidePair) -> float:
    """The first beside the first, the second beside the second, and so on."""
    agree, total = board.pair_weight, 0.0
    for at, alike in enumerate(map(board.names_match, board.driving.keys, board.candidates.keys)):
        if alike:
            total += 1.0 if agree is None else agree(at, at)
    return total


def pair_in_sorted_order(board: SidePair) -> float:
    """By position, once both sides are sorted by name and by the text of their arguments.

    One argument that differs may shift all later pairs.
    """
    pairs = zip(_sorted_positions(board.driving), _sorted_positions(board.candidates), strict=False)
    return sum([board.weight(asking, answering) for asking, answering in pairs])


def _sorted_positions(side: CaseSide) -> list[int]:
    names = side.keys
    seen: set[str] = set()
    repeated: set[str] = set()
    for name in names:
        (repeated if name in seen else seen).add(name)

    def text(at: int) -> list[str]:
        words = [names[at]]
        if words[0] in repeated:  # of most tools there is one call, and its name alone decides its place
            arguments = side.arguments[at]
            for key in sorted(arguments):
                words += (key, str(arguments[key]))
        return words

    return sorted(range(len(names)), key=text)


def longest_common_subsequence(board: SidePair) -> float:
    """The most valuable pairs of which both sides are in order: a weighted longest common subsequence."""
    start, end, others_end = _trim_matching_ends(board)
    nothing_left = start in (end, others_end)
    total = float(start) if nothing_left else _best_subsequence(board, start, end, others_end)
    for _ in range(end, len(board.driving.keys)):  # one by one, as peers do: noise in the last digit is part of a score
        total += 1.0
    return total


def _trim_matching_ends(board: SidePair) -> tuple[int, int, int]:
    """Where both sides start, and where each of them ends, without the pairs at either end that are worth 1.

    No pair is worth more, so the most valuable pairs are those and the best of what is left: most often nothing.
    """
    names, others, alike, agree = board.driving.keys, board.candidates.keys, board.names_match, board.pair_weight
    start, end, others_end = 0, len(names), len(others)
    if not board.has_all_weights:
        return start, end, others_end
    for at, named_alike in enumerate(map(alike, names, others), 1):
        if not named_alike or (agree is not None and agree(at - 1, at - 1) != 1):
            break
        start = at
    while start + 1 < end and start + 1 < others_end:  # the pair at which both sides start is known to be worth less
        if not alike(names[end - 1], others[others_end - 1]):
            break
        if agree is not None and agree(end - 1, others_end - 1) != 1:
            break
        end, others_end = end - 1, others_end - 1
    return start, end, others_end


def _best_subsequence(board: SidePair, start: int, end: int, others_end: int) -> float:
    """The worth of all pairs up to the two ends, of which those before the start are worth 1 each."""
    names, others, alike, agree = board.driving.keys, board.candidates.keys, board.names_match, board.pair_weight
    above = [float(start)] * (others_end - start + 1)
    for row in range(start, end):
        name, left, diagonal = names[row], above[0], above[0]
        best = [left]
        for column, up in enumerate(above[1:], start):
            if up > left:
                left = up
            if alike(name, others[column]):
                through = diagonal + (1.0 if agree is None else agree(row, column))
                if through > left:
                    left = through
            best.append(left)
            diagonal = up
        above = best
    return above[-1]


def pair_in_one_pass(board: SidePair) -> float:
    """How many of those that ask are met, one after another, on one walk along those that answer.

    The first that is never met ends it.
    """
    met, names, alike, agree = 0, board.driving.keys, board.names_match, board.pair_weight
    for at, other in enumerate(board.candidates.keys):
        if met == len(names):
            break
        if alike(names[met], other) and (agree is None or agree(met, at)):
            met += 1
    return met


def pair_independently(board: SidePair) -> float:
    """How many of those that ask find anything that answers them; one answer may do for several."""
    return sum([any(worth for _, worth in board.weights(at)) for at in range(len(board.driving.keys))])


PAIRINGS: Mapping[str, PairingRule] = {
    "position": pair_by_position,
    "sorted": pair_in_sorted_order,
    "lcs": longest_common_subsequence,
    "walk": pair_in_one_pass,
    "any": pair_independently,
}
"""The axis `pairing`, apart from `one_to_one`, for which the axis `assign` says how."""


# --- one to one -------------------------------------------------------------------------------------------------------


def assign_first(board: SidePair) -> float:
    """Each takes the first answer that agrees at all and is still free."""
    others, alike, agree = board.candidates.keys, board.names_match, board.pair_weight
    total, free = 0.0, list(range(len(others)))
    for asking, name in enumerate(board.driving.keys):
        for at in free:
            if alike(name, others[at]):
                worth = 1.0 if agree is None else agree(asking, at)
                if worth:
                    free.remove(at)
                    total += worth
                    break
    return total


def assign_best(board: SidePair) -> float:
    """Each takes the best answer that is still free, of several the first."""
    return _assign_best(board, by_content=False)


def assign_best_by_content(board: SidePair) -> float:
    """The same, but an answer that is taken takes all others of the same content with it."""
    side, names = board.candidates, board.driving.keys
    if board.pairs_by_name and side.keys is side.names:
        return _count_by_content(names, side)
    return _assign_best(board, by_content=len(set(side.names)) < len(side.names))


def _count_by_content(names: list[Any], side: CaseSide) -> int:
    """How many names find an answer, where those of the same content are one answer."""
    different = set(names)
    found = different.intersection(side.names)
    matched = len(found)
    if len(different) < len(names):  # content matters to those that are wanted more than once
        for name in found:
            wanted = names.count(name)
            if wanted > 1 and side.names.count(name) > 1:
                matched += min(wanted, _count_distinct_contents(side, name)) - 1
    return matched


def _count_distinct_contents(side: CaseSide, name: str) -> int:
    """How many items of a name say different things."""
    kept: list[int] = []
    for at, other in enumerate(side.names):
        if other == name and not any(side.has_same_content(at, earlier) for earlier in kept):
            kept.append(at)
    return len(kept)


def assign_optimally(board: SidePair) -> float:
    """The pairs that are worth most in all. No order of either side changes that."""
    worth = [dict(board.weights(at)) for at in range(len(board.driving.keys))]
    # A pair that is worth nothing costs nothing, so that no worse pair is made for the sake of a second one.
    width = range(len(board.candidates.keys))
    costs = [[-round(row.get(at, 0.0) * _WEIGHT_SCALE) for at in width] for row in worth]
    return sum([worth[asking].get(at, 0.0) for asking, at in assign(costs)])


_WEIGHT_SCALE = 2**52
"""The assignment counts in whole numbers; this is as fine as weights are."""

ASSIGNMENTS: Mapping[str, PairingRule] = {
    "first": assign_first,
    "best": assign_best,
    "best_by_content": assign_best_by_content,
    "optimal": assign_optimally,
}
"""The axis `assign`: who gets which answer where each can be given once."""

PAIRS_EQUAL_SIDES_IN_PLACE = frozenset({"position", "lcs", "walk", "first", "best"})
"""Of all these, the ones that pair equal sides item by item, even where a name is there twice: whoever asks, all before
it have their own answer, and the next one that fits is its own."""


def _assign_best(board: SidePair, *, by_content: bool) -> float:
    side, others, alike, agree = board.candidates, board.candidates.keys, board.names_match, board.pair_weight
    total, free, enough = 0.0, list(range(len(others))), 1.0 if board.has_all_weights else math.inf
    for asking, name in enumerate(board.driving.keys):
        best, chosen = 0.0, -1
        for at in free:
            if alike(name, others[at]):
                worth = 1.0 if agree is None else agree(asking, at)
                if worth > best:
                    best, chosen = worth, at
                    if best == enough:  # no pair is worth more than 1
                        break
        if chosen >= 0:
            total += best
            free.remove(chosen)
            if by_content:  # to say the same is mutual, so what is taken already need not be asked
                name = side.names[chosen]
                free = [at for at in free if side.names[at] != name or not side.has_same_content(at, chosen)]
    return total


# --- where names say all ----------------------------------------------------------------------------------------------

NamePairing: TypeAlias = Callable[[Sequence[Any], Sequence[Any]], float]
"""How many of the names that ask (first) find their equal among those that answer.

Most runs are as expected, so rules by which equal lists meet item by item ask for that first.
"""


def count_same_positions(names: Sequence[Any], others: Sequence[Any]) -> float:
    """How many have their equal at the same place."""
    if names == others:
        return len(names)
    matched: int = sum(map(operator.eq, names, others))
    return matched


def count_in_one_pass(names: Sequence[Any], others: Sequence[Any]) -> float:
    """How many are met, one after another, up to the first that is not."""
    if names == others:
        return len(names)
    way, met = iter(others), 0
    for name in names:
        if name not in way:  # which goes on along the way until it meets the name
            break
        met += 1
    return met


def count_shared_names(names: Sequence[Any], others: Sequence[Any]) -> float:
    """How many find one that is still free. Every way of assigning them gives the same."""
    if names == others:
        return len(names)
    if len(names) > _MIN_NAMES_TO_COUNT:
        return (Counter(names) & Counter(others)).total()
    free, matched = list(others), 0
    for name in names:
        if name in free:
            free.remove(name)
            matched += 1
    return matched


def count_distinct_shared_names(names: Sequence[Any], others: Sequence[Any]) -> float:
    """How many different names both sides have."""
    return len(set(names).intersection(others))


_MIN_NAMES_TO_COUNT = 30
"""From about so many names on, counting them is faster than crossing them off a list."""

NAME_PAIRINGS: Mapping[str, NamePairing] = {
    "position": count_same_positions,
    "walk": count_in_one_pass,
    "first": count_shared_names,
    "best": count_shared_names,
    "optimal": count_shared_names,
}
"""By the axes `pairing` and `assign`: those that need no board where pairs are made by equal names and nothing else."""
