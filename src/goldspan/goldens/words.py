"""Sentences about what a person wrote: the word they probably meant, and lists that read well."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable

from goldspan.extraction.names import fold

CLOSE = 0.75
"""From this similarity on, a word is taken for a slip of the pen: one wrong letter in four, two in eight."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that this one was probably meant to be, or `None`. Case and separators do not matter."""
    # Only mistakes come here, and loading rapidfuzz takes longer than all of goldspan's core.
    from rapidfuzz.distance import OSA

    def similarity(candidate: str) -> float:
        return OSA.normalized_similarity(fold(word), fold(candidate))

    best = max(sorted(known), key=similarity, default=None)
    return best if best is not None and similarity(best) >= CLOSE else None


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """` Did you mean 'in_order'?`, or nothing where no known word is close."""
    meant = nearest(word, known) if isinstance(word, str) else None
    return f" Did you mean {meant!r}?" if meant else ""


def listed(words: Iterable[str], *, last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    *others, final = words
    return f"{', '.join(others)} {last} {final}" if others else final


def shown(value: object) -> str:
    """A value as a message shows it: as Python writes it, but never long or deep."""
    return _brief.repr(value)


_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = 60
_brief.maxlevel = 3
