"""Which of many texts share so many trigrams with a text that they may be near it: all of them counted at once.

A trigram is three characters in a row; 2,048 kinds of them are told apart. For each kind a *band* of texts has a whole
number whose bit n says whether text n has it. Adding such numbers up in columns, as carry-save adders do (Warren,
Hacker's Delight, section 5-1), counts for thousands of texts at once, and it needs nothing but Python's integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, islice

_BITS = 11
KINDS = 1 << _BITS
"""How many kinds of trigrams are told apart. Two trigrams of one kind make a bound weaker, never wrong."""
_OF_A_DELETION = 3
"""How many trigrams of a text may go with one of its characters."""
_OF_AN_INSERTION = 2
"""How many trigrams of a text may go where a character is put in between."""


def kinds(text: str) -> set[int]:
    """The kinds of the trigrams of a text, before which two more characters are thought, the same for every text."""
    found: set[int] = set()
    add = found.add
    kind = 0
    for code in map(ord, text):
        kind = (kind << _SHIFT ^ code) & _LOW  # what was there three characters ago is shifted out
        add(kind)
    return found


_SHIFT = -(-_BITS // 3)
_LOW = KINDS - 1


def most_missing(length: int, other: int, distance: float) -> float:
    """How many kinds of a text of that length another may lack at most, if their Indel distance is no greater.

    Where `d` characters are deleted and `i` inserted, `d + i` is the distance and `d - i` the difference of lengths;
    a deletion takes at most three trigrams away and an insertion two. (Ukkonen 1992, "Approximate string-matching with
    q-grams and maximal matches", theorem 5.1, with both told apart.)
    """
    deletions = (distance + length - other) / 2
    return _OF_A_DELETION * deletions + _OF_AN_INSERTION * (distance - deletions)


class Band:
    """Some texts, of which it is counted how many kinds of trigrams they share with another."""

    __slots__ = ("_planes", "size")

    def __init__(self, texts: Sequence[str]) -> None:
        self.size = len(texts)
        """How many texts there are."""
        rows = [bytearray(b"0") * len(texts) for _ in range(KINDS)]
        for place, text in enumerate(texts, 1):
            for kind in kinds(text):
                rows[kind][-place] = 49  # "1"; the first text has the lowest bit
        self._planes = [int(row, 2) for row in rows]

    def frequencies(self) -> Iterator[int]:
        """Of how many texts each kind is a part."""
        return (plane.bit_count() for plane in self._planes)

    def counts(self, of: Iterable[int], onto: Sequence[int] = ()) -> list[int]:
        """How many of these kinds each text has, in columns: bit n of number i is bit i of the count of text n.

        `onto`: what was counted of others, to go on from.
        """
        columns: list[int] = []
        level = [plane for kind in of if (plane := self._planes[kind])]
        rest = iter(onto)
        while level or onto[len(columns) :]:
            level += islice(rest, 1)
            carried = []
            while len(level) > 2:
                a, b, c = level.pop(), level.pop(), level.pop()
                odd = a ^ b
                level.append(odd ^ c)
                carried.append(a & b | odd & c)
            if len(level) == 2:
                a, b = level
                level = [a ^ b]
                carried.append(a & b)
            columns += level
            level = carried
        return columns


def greatest(counts: Sequence[int], among: int) -> tuple[int, int]:
    """The greatest count among some texts (the bits of a number), and the texts that have it."""
    most = 0
    for place in reversed(range(len(counts))):
        if having := among & counts[place]:
            among = having
            most += 1 << place
    return most, among


def at_least(counts: Sequence[int], least: int, among: int) -> int:
    """Those of some texts (the bits of a number) whose count is no less."""
    if least <= 0:
        return among
    if least >> len(counts):
        return 0
    more = 0  # those whose count is greater than one less
    for place, column in enumerate(counts):
        more = more & column if (least - 1) >> place & 1 else more | column
    return more & among


def places(bits: int) -> list[int]:
    """Which bits are set, the lowest first."""
    digits = f"{bits:b}"[::-1]
    if bits.bit_count() * _DENSE > len(digits):
        return list(compress(range(len(digits)), digits.encode().translate(_AS_TRUTH)))
    found = []
    at = digits.find("1")
    while at >= 0:
        found.append(at)
        at = digits.find("1", at + 1)
    return found


_AS_TRUTH = bytes.maketrans(b"01", b"\0\1")
_DENSE = 12
"""Where more than one bit in so many is set, going through all of them is faster than going from one to the next."""
