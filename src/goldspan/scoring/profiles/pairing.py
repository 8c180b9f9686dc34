"""How peers lay calls beside expectations: each function answers how much of the two found its match."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from goldspan.scoring.pairing.assignment import assign
from goldspan.scoring.profiles.reading import Side

Alike: TypeAlias = Callable[[Any, Any], bool]
"""Whether a name that asks and one that answers mean the same tool."""

Agree: TypeAlias = Callable[[int, int], float]
"""How far two that are named alike agree, from 0 to 1, by their positions."""


@dataclass(slots=True)
class Board:
    """Two sides to be paired. The one that *asks* is served in its order; usually these are the expectations."""

    asking: Side
    answering: Side
    alike: Alike = operator.eq
    agree: Agree | None = None
    """`None`: the names say all."""

    @property
    def by_name(self) -> bool:
        """Whether a pair is made by equal names and nothing else."""
        return self.agree is None and self.alike is operator.eq

    @property
    def is_regular(self) -> bool:
        """Whether every pair has a worth, so that those need no look on which nothing depends.

        Arguments that are no dictionaries may have none, and one such pair leaves the case without a score.
        """
        return self.agree is None or (self.asking.holds_dictionaries and self.answering.holds_dictionaries)

    def weight(self, asking: int, answering: int) -> float:
        """What the pair of these two positions is worth: 0 to 1."""
        agree = self.agree
        if not self.alike(self.asking.keys[asking], self.answering.keys[answering]):
            return 0.0
        return 1.0 if agree is None else agree(asking, answering)

    def weights(self, asking: int) -> Iterator[tuple[int, float]]:
        """Everything that is named like the one that asks, with what that pair is worth."""
        name, alike, agree = self.asking.keys[asking], self.alike, self.agree
        for at, other in enumerate(self.answering.keys):
            if alike(name, other):
                yield at, 1.0 if agree is None else agree(asking, at)

    def turned(self) -> Board:
        """The other side asks."""
        alike, agree = self.alike, self.agree
        return Board(
            self.answering,
            self.asking,
            alike if alike is operator.eq else lambda asking, answering: alike(answering, asking),
            None if agree is None else lambda asking, answering: agree(answering, asking),
        )


Pairing: TypeAlias = Callable[[Board], float]
"""How much of the two sides found its match; for weights of 0 and 1 the number of pairs."""


def by_position(board: Board) -> float:
    """The first beside the first, the second beside the second, and so on."""
    agree, total = board.agree, 0.0
    for at, alike in enumerate(map(board.alike, board.asking.keys, board.answering.keys)):
        if alike:
            total += 1.0 if agree is None else agree(at, at)
    return total


def in_sorted_order(board: Board) -> float:
    """By position, once both sides are sorted by name and by the text of their arguments.

    One argument that differs may shift all later pairs.
    """
    pairs = zip(_sorted(board.asking), _sorted(board.answering), strict=False)
    return sum([board.weight(asking, answering) for asking, answering in pairs])


def _sorted(side: Side) -> list[int]:
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


def longest_common(board: Board) -> float:
    """The most valuable pairs of which both sides are in order: a weighted longest common subsequence."""
    start, end, others_end = _without_ends(board)
    nothing_left = start in (end, others_end)
    total = float(start) if nothing_left else _best_between(board, start, end, others_end)
    for _ in range(end, len(board.asking.keys)):  # one by one, as peers do: noise in the last digit is part of a score
        total += 1.0
    return total


def _without_ends(board: Board) -> tuple[int, int, int]:
    """Where both sides start, and where each of them ends, without the pairs at either end that are worth 1.

    No pair is worth more, so the most valuable pairs are those and the best of what is left: most often nothing.
    """
    names, others, alike, agree = board.asking.keys, board.answering.keys, board.alike, board.agree
    start, end, others_end = 0, len(names), len(others)
    if not board.is_regular:
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


def _best_between(board: Board, start: int, end: int, others_end: int) -> float:
    """The worth of all pairs up to the two ends, of which those before the start are worth 1 each."""
    names, others, alike, agree = board.asking.keys, board.answering.keys, board.alike, board.agree
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


def one_walk(board: Board) -> float:
    """How many of those that ask are met, one after another, on one walk along those that answer.

    The first that is never met ends it.
    """
    met, names, alike, agree = 0, board.asking.keys, board.alike, board.agree
    for at, other in enumerate(board.answering.keys):
        if met == len(names):
            break
        if alike(names[met], other) and (agree is None or agree(met, at)):
            met += 1
    return met


def independently(board: Board) -> float:
    """How many of those that ask find anything that answers them; one answer may do for several."""
    return sum([any(worth for _, worth in board.weights(at)) for at in range(len(board.asking.keys))])


PAIRINGS: Mapping[str, Pairing] = {
    "position": by_position,
    "sorted": in_sorted_order,
    "lcs": longest_common,
    "walk": one_walk,
    "any": independently,
}
"""The axis `pairing`, apart from `one_to_one`, for which the axis `assign` says how."""


# --- one to one -------------------------------------------------------------------------------------------------------


def first_fit(board: Board) -> float:
    """Each takes the first answer that agrees at all and is still free."""
    others, alike, agree = board.answering.keys, board.alike, board.agree
    total, free = 0.0, list(range(len(others)))
    for asking, name in enumerate(board.asking.keys):
        for at in free:
            if alike(name, others[at]):
                worth = 1.0 if agree is None else agree(asking, at)
                if worth:
                    free.remove(at)
                    total += worth
                    break
    return total


def best_fit(board: Board) -> float:
    """Each takes the best answer that is still free, of several the first."""
    return _best_fit(board, by_content=False)


def best_fit_by_content(board: Board) -> float:
    """The same, but an answer that is taken takes all others of the same content with it."""
    side, names = board.answering, board.asking.keys
    if board.by_name and side.keys is side.names:
        return _found_by_content(names, side)
    return _best_fit(board, by_content=len(set(side.names)) < len(side.names))


def _found_by_content(names: list[Any], side: Side) -> int:
    """How many names find an answer, where those of the same content are one answer."""
    different = set(names)
    found = different.intersection(side.names)
    matched = len(found)
    if len(different) < len(names):  # content matters to those that are wanted more than once
        for name in found:
            wanted = names.count(name)
            if wanted > 1 and side.names.count(name) > 1:
                matched += min(wanted, _contents(side, name)) - 1
    return matched


def _contents(side: Side, name: str) -> int:
    """How many items of a name say different things."""
    kept: list[int] = []
    for at, other in enumerate(side.names):
        if other == name and not any(side.same(at, earlier) for earlier in kept):
            kept.append(at)
    return len(kept)


def optimal_fit(board: Board) -> float:
    """The pairs that are worth most in all. No order of either side changes that."""
    worth = [dict(board.weights(at)) for at in range(len(board.asking.keys))]
    # A pair that is worth nothing costs nothing, so that no worse pair is made for the sake of a second one.
    width = range(len(board.answering.keys))
    costs = [[-round(row.get(at, 0.0) * _EXACT) for at in width] for row in worth]
    return sum([worth[asking].get(at, 0.0) for asking, at in assign(costs)])


_EXACT = 2**52
"""The assignment counts in whole numbers; this is as fine as weights are."""

ASSIGNMENTS: Mapping[str, Pairing] = {
    "first": first_fit,
    "best": best_fit,
    "best_by_content": best_fit_by_content,
    "optimal": optimal_fit,
}
"""The axis `assign`: who gets which answer where each can be given once."""

IN_PLACE = frozenset({"position", "lcs", "walk", "first", "best"})
"""Of all these, the ones that pair equal sides item by item, even where a name is there twice: whoever asks, all before
it have their own answer, and the next one that fits is its own."""


def _best_fit(board: Board, *, by_content: bool) -> float:
    side, others, alike, agree = board.answering, board.answering.keys, board.alike, board.agree
    total, free, enough = 0.0, list(range(len(others))), 1.0 if board.is_regular else math.inf
    for asking, name in enumerate(board.asking.keys):
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
                free = [at for at in free if side.names[at] != name or not side.same(at, chosen)]
    return total


# --- where names say all ----------------------------------------------------------------------------------------------

PairNames: TypeAlias = Callable[[Sequence[Any], Sequence[Any]], float]
"""How many of the names that ask (first) find their equal among those that answer.

Most runs are as expected, so rules by which equal lists meet item by item ask for that first.
"""


def same_places(names: Sequence[Any], others: Sequence[Any]) -> float:
    """How many have their equal at the same place."""
    if names == others:
        return len(names)
    matched: int = sum(map(operator.eq, names, others))
    return matched


def on_one_walk(names: Sequence[Any], others: Sequence[Any]) -> float:
    """How many are met, one after another, up to the first that is not."""
    if names == others:
        return len(names)
    way, met = iter(others), 0
    for name in names:
        if name not in way:  # which goes on along the way until it meets the name
            break
        met += 1
    return met


def each_once(names: Sequence[Any], others: Sequence[Any]) -> float:
    """How many find one that is still free. Every way of assigning them gives the same."""
    if names == others:
        return len(names)
    if len(names) > _MANY:
        return (Counter(names) & Counter(others)).total()
    free, matched = list(others), 0
    for name in names:
        if name in free:
            free.remove(name)
            matched += 1
    return matched


def distinct(names: Sequence[Any], others: Sequence[Any]) -> float:
    """How many different names both sides have."""
    return len(set(names).intersection(others))


_MANY = 30
"""From about so many names on, counting them is faster than crossing them off a list."""

BY_NAME: Mapping[str, PairNames] = {
    "position": same_places,
    "walk": on_one_walk,
    "first": each_once,
    "best": each_once,
    "optimal": each_once,
}
"""By the axes `pairing` and `assign`: those that need no board where pairs are made by equal names and nothing else."""
