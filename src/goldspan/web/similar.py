"""Texts that ask for much the same: alike but for names, numbers and quotations, or nearly so."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rapidfuzz.fuzz import ratio

from goldspan.goldens.texts import normalized

_ALIKE = 80.0
"""From this `rapidfuzz.fuzz.ratio` on, two texts without what varies in them ask for the same."""
_NEIGHBOURS = 12
"""Each text is compared with so many behind it, in each of two orders: time grows with the number of texts."""
_END = 150
"""Of a long text so many characters at its beginning and at its end decide: what many have in common stands before."""


def groups(texts: Sequence[str | None]) -> list[list[int]]:
    """The positions of texts that ask for the same, group by group; what the order of the texts is does not matter.

    Sorted neighbourhoods: M. A. Hernández, S. J. Stolfo, "The merge/purge problem for large databases", SIGMOD 1995.
    """
    having: dict[str, list[int]] = {}
    for at, text in enumerate(texts):
        having.setdefault(masked(text), []).append(at)
    joined = _Joined(having)
    for ordered in (sorted(having), sorted(having, key=lambda text: text.split()[::-1])):
        for at, text in enumerate(ordered):
            for other in ordered[at + 1 : at + 1 + _NEIGHBOURS]:
                if text and not joined.has(text, other) and ratio(text, other, score_cutoff=_ALIKE):
                    joined.join(text, other)
    return [sorted(at for text in group for at in having[text]) for group in joined.groups()]


def masked(text: str | None) -> str:
    """A text without what varies from one request of its kind to the next.

    >>> masked('Refund order AB-17 to "Ann Lee", please!')
    'refund order # to # please'
    """
    told = normalized(_excerpt(text or "")).replace("#", " ")
    told = _NAMED.sub(" # ", _QUOTED.sub(" # ", told))
    return " ".join(_PUNCTUATION.sub(" ", told).split())


def _excerpt(text: str) -> str:
    return text if len(text) <= 2 * _END else f"{text[:_END]} {text[-_END:]}"


_QUOTED = re.compile(r""""[^"]*"|“[^”]*”|„[^“”]*[“”]|«[^»]*»|`[^`]*`|(?<!\w)'[^']*'(?!\w)""")
_NAMED = re.compile(r"[\w./:@+-]*[\d@][\w./:@+-]*", re.ASCII)
"""Numbers, ids, dates, addresses: what has a digit or an @ in it."""
_PUNCTUATION = re.compile(r"[^\w#]+")


class _Joined:
    """Which texts belong together, directly or by way of others: disjoint sets."""

    def __init__(self, texts: Sequence[str] | dict[str, list[int]]) -> None:
        self._above = {text: text for text in texts}

    def has(self, one: str, other: str) -> bool:
        return self._top(one) == self._top(other)

    def join(self, one: str, other: str) -> None:
        first, second = sorted((self._top(one), self._top(other)))
        self._above[second] = first

    def groups(self) -> Iterator[list[str]]:
        found: dict[str, list[str]] = {}
        for text in self._above:
            found.setdefault(self._top(text), []).append(text)
        yield from found.values()

    def _top(self, text: str) -> str:
        while (above := self._above[text]) != text:
            self._above[text] = self._above[above]
            text = above
        return text
