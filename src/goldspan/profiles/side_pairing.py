"""The rules by which peers pair calls with expectations; each returns the total weight of the pairs."""

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
"""Whether a name of the driving side and a candidate name the same tool."""

PairWeight: TypeAlias = Callable[[int, int], float]
"""Returns the weight, 0 to 1, of a pair with matching names, by the positions of its items."""


@dataclass(slots=True)
class SidePair:
    """Two sides to pair. Items of the driving side, usually the expectations, choose among the candidates in order."""

    driving: CaseSide
    candidates: CaseSide
    names_match: NamesMatch = operator.eq
    pair_weight: PairWeight | None = None
    """`None`: only names are compared."""

    @property
    def pairs_by_name(self) -> bool:
        """Whether pairs depend on equal names only."""
        return self.pair_weight is None and self.names_match is operator.eq

    @property
    def has_all_weights(self) -> bool:
        """Whether every pair has a weight, so that pairs without influence can be skipped.

        For arguments that are not dictionaries, computing a weight may raise, which leaves the case without a score.
        """
        return self.pair_weight is None or (
            self.driving.has_only_dict_arguments and self.candidates.has_only_dict_arguments
        )

    def weight(self, asking: int, answering: int) -> float:
        """Returns the weight of the pair of these positions, 0 to 1."""
        agree = self.pair_weight
        if not self.names_match(self.driving.keys[asking], self.candidates.keys[answering]):
            return 0.0
        return 1.0 if agree is None else agree(asking, answering)

    def weights(self, asking: int) -> Iterator[tuple[int, float]]:
        """Yields the candidates with a matching name, and the weight of each pair."""
        name, names_match, agree = self.driving.keys[asking], self.names_match, self.pair_weight
        for at, other in enumerate(self.candidates.keys):
            if names_match(name, other):
                yield at, 1.0 if agree is None else agree(asking, at)

    def reversed(self) -> SidePair:
        """Returns the pair with the sides exchanged."""
        names_match, agree = self.names_match, self.pair_weight
        return SidePair(
            self.candidates,
            self.driving,
            names_match if names_match is operator.eq else lambda asking, answering: names_match(answering, asking),
            None if agree is None else lambda asking, answering: agree(answering, asking),
        )


PairingRule: TypeAlias = Callable[[SidePair], float]
"""Returns the total weight of the pairs; for weights of 0 and 1, their number."""


def pair_by_position(sides: SidePair) -> float:
    """Pairs the items at the same positions."""
    agree, total = sides.pair_weight, 0.0
    for at, names_match in enumerate(map(sides.names_match, sides.driving.keys, sides.candidates.keys)):
        if names_match:
            total += 1.0 if agree is None else agree(at, at)
    return total


def pair_in_sorted_order(sides: SidePair) -> float:
    """Pairs by position after sorting both sides by name and by the text of their arguments.

    One different argument can shift all later pairs.
    """
    pairs = zip(_sorted_positions(sides.driving), _sorted_positions(sides.candidates), strict=False)
    return sum([sides.weight(asking, answering) for asking, answering in pairs])


def _sorted_positions(side: CaseSide) -> list[int]:
    names = side.keys
    seen: set[str] = set()
    repeated: set[str] = set()
    for name in names:
        (repeated if name in seen else seen).add(name)

    def text(at: int) -> list[str]:
        words = [names[at]]
        if words[0] in repeated:  # the name of a single call decides its position
            arguments = side.arguments[at]
            for key in sorted(arguments):
                words += (key, str(arguments[key]))
        return words

    return sorted(range(len(names)), key=text)


def longest_common_subsequence(sides: SidePair) -> float:
    """Returns the weight of the weighted longest common subsequence of both sides."""
    start, end, others_end = _trim_matching_ends(sides)
    nothing_left = start in (end, others_end)
    total = float(start) if nothing_left else _best_subsequence(sides, start, end, others_end)
    for _ in range(end, len(sides.driving.keys)):  # one by one, to reproduce the rounding of the peers
        total += 1.0
    return total


def _trim_matching_ends(sides: SidePair) -> tuple[int, int, int]:
    """Returns the start of both sides and the end of each, without the pairs of weight 1 at both ends.

    No pair has a greater weight, so an optimal subsequence contains them. Usually nothing else remains.
    """
    names, others, names_match, agree = sides.driving.keys, sides.candidates.keys, sides.names_match, sides.pair_weight
    start, end, others_end = 0, len(names), len(others)
    if not sides.has_all_weights:
        return start, end, others_end
    for at, named_alike in enumerate(map(names_match, names, others), 1):
        if not named_alike or (agree is not None and agree(at - 1, at - 1) != 1):
            break
        start = at
    while start + 1 < end and start + 1 < others_end:  # the pair at `start` has a lower weight
        if not names_match(names[end - 1], others[others_end - 1]):
            break
        if agree is not None and agree(end - 1, others_end - 1) != 1:
            break
        end, others_end = end - 1, others_end - 1
    return start, end, others_end


def _best_subsequence(sides: SidePair, start: int, end: int, others_end: int) -> float:
    """Returns the total weight up to the two ends; each pair before the start has weight 1."""
    names, others, names_match, agree = sides.driving.keys, sides.candidates.keys, sides.names_match, sides.pair_weight
    above = [float(start)] * (others_end - start + 1)
    for row in range(start, end):
        name, left, diagonal = names[row], above[0], above[0]
        best = [left]
        for column, up in enumerate(above[1:], start):
            if up > left:
                left = up
            if names_match(name, others[column]):
                through = diagonal + (1.0 if agree is None else agree(row, column))
                if through > left:
                    left = through
            best.append(left)
            diagonal = up
        above = best
    return above[-1]


def pair_in_one_pass(sides: SidePair) -> float:
    """Counts the driving items that are matched in order in one pass over the candidates.

    The first unmatched item ends the count.
    """
    met, names, names_match, agree = 0, sides.driving.keys, sides.names_match, sides.pair_weight
    for at, other in enumerate(sides.candidates.keys):
        if met == len(names):
            break
        if names_match(names[met], other) and (agree is None or agree(met, at)):
            met += 1
    return met


def pair_independently(sides: SidePair) -> float:
    """Counts the driving items with any matching candidate; a candidate may match several items."""
    return sum([any(worth for _, worth in sides.weights(at)) for at in range(len(sides.driving.keys))])


PAIRINGS: Mapping[str, PairingRule] = {
    "position": pair_by_position,
    "sorted": pair_in_sorted_order,
    "lcs": longest_common_subsequence,
    "walk": pair_in_one_pass,
    "any": pair_independently,
}
"""The axis `pairing`, except `one_to_one`, which the axis `assignment` defines."""


# --- one to one -------------------------------------------------------------------------------------------------------


def assign_first(sides: SidePair) -> float:
    """Assigns each driving item the first free candidate with a weight above 0."""
    others, names_match, agree = sides.candidates.keys, sides.names_match, sides.pair_weight
    total, free = 0.0, list(range(len(others)))
    for asking, name in enumerate(sides.driving.keys):
        for at in free:
            if names_match(name, others[at]):
                worth = 1.0 if agree is None else agree(asking, at)
                if worth:
                    free.remove(at)
                    total += worth
                    break
    return total


def assign_best(sides: SidePair) -> float:
    """Assigns each driving item the best free candidate, of several the first."""
    return _assign_best(sides, by_content=False)


def assign_best_by_content(sides: SidePair) -> float:
    """Assigns like `assign_best`, but an assigned candidate removes all others with the same content."""
    side, names = sides.candidates, sides.driving.keys
    if sides.pairs_by_name and side.keys is side.names:
        return _count_by_content(names, side)
    return _assign_best(sides, by_content=len(set(side.names)) < len(side.names))


def _count_by_content(names: list[Any], side: CaseSide) -> int:
    """Counts the names with a candidate, where candidates with the same content count once."""
    different = set(names)
    found = different.intersection(side.names)
    matched = len(found)
    if len(different) < len(names):  # content matters only for repeated names
        for name in found:
            wanted = names.count(name)
            if wanted > 1 and side.names.count(name) > 1:
                matched += min(wanted, _count_distinct_contents(side, name)) - 1
    return matched


def _count_distinct_contents(side: CaseSide, name: str) -> int:
    """Counts the distinct contents of the items with a name."""
    kept: list[int] = []
    for at, other in enumerate(side.names):
        if other == name and not any(side.has_same_content(at, earlier) for earlier in kept):
            kept.append(at)
    return len(kept)


def assign_optimally(sides: SidePair) -> float:
    """Returns the greatest total weight of any assignment, which does not depend on the order of the sides."""
    worth = [dict(sides.weights(at)) for at in range(len(sides.driving.keys))]
    # A pair of weight 0 has no cost, so that it never replaces a better pair.
    width = range(len(sides.candidates.keys))
    costs = [[-round(row.get(at, 0.0) * _WEIGHT_SCALE) for at in width] for row in worth]
    return sum([worth[asking].get(at, 0.0) for asking, at in assign(costs)])


_WEIGHT_SCALE = 2**52
"""The assignment uses integer costs; this scale keeps the precision of the weights."""

ASSIGNMENTS: Mapping[str, PairingRule] = {
    "first": assign_first,
    "best": assign_best,
    "best_by_content": assign_best_by_content,
    "optimal": assign_optimally,
}
"""The axis `assignment`: how each candidate is assigned at most once."""

PAIRS_EQUAL_SIDES_IN_PLACE = frozenset({"position", "lcs", "walk", "first", "best"})
"""The rules that pair equal sides item by item, even with repeated names: when an item is assigned, the earlier items
have their own equals, and the next fitting candidate is its equal."""


def _assign_best(sides: SidePair, *, by_content: bool) -> float:
    side, others, names_match, agree = sides.candidates, sides.candidates.keys, sides.names_match, sides.pair_weight
    total, free, enough = 0.0, list(range(len(others))), 1.0 if sides.has_all_weights else math.inf
    for asking, name in enumerate(sides.driving.keys):
        best, chosen = 0.0, -1
        for at in free:
            if names_match(name, others[at]):
                worth = 1.0 if agree is None else agree(asking, at)
                if worth > best:
                    best, chosen = worth, at
                    if best == enough:  # no pair has a greater weight
                        break
        if chosen >= 0:
            total += best
            free.remove(chosen)
            if by_content:  # equality is symmetric, so assigned items need no check
                name = side.names[chosen]
                free = [at for at in free if side.names[at] != name or not side.has_same_content(at, chosen)]
    return total


# --- names only -------------------------------------------------------------------------------------------------------

NamePairing: TypeAlias = Callable[[Sequence[Any], Sequence[Any]], float]
"""Counts the driving names (first) with an equal name among the candidates.

Most runs are as expected, so rules that pair equal lists item by item check for equality first.
"""


def count_same_positions(names: Sequence[Any], others: Sequence[Any]) -> float:
    """Counts the equal names at the same positions."""
    if names == others:
        return len(names)
    matched: int = sum(map(operator.eq, names, others))
    return matched


def count_in_one_pass(names: Sequence[Any], others: Sequence[Any]) -> float:
    """Counts the names that occur in order, up to the first missing one."""
    if names == others:
        return len(names)
    way, met = iter(others), 0
    for name in names:
        if name not in way:  # advances the iterator to the name
            break
        met += 1
    return met


def count_shared_names(names: Sequence[Any], others: Sequence[Any]) -> float:
    """Counts the names with a free equal. Every assignment gives the same count."""
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
    """Counts the distinct names that both sides share."""
    return len(set(names).intersection(others))


_MIN_NAMES_TO_COUNT = 30
"""Above this number of names, counting is faster than removing them from a list."""

NAME_PAIRINGS: Mapping[str, NamePairing] = {
    "position": count_same_positions,
    "walk": count_in_one_pass,
    "first": count_shared_names,
    "best": count_shared_names,
    "optimal": count_shared_names,
}
"""By the axes `pairing` and `assignment`: the rules that need no `SidePair` if only equal names matter."""
