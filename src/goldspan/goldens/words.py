"""Sentences about what a person wrote: the word they probably meant, and lists that read well."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable

from goldspan.extraction.names import fold

CLOSE = 0.75
"""From this similarity on, a word is taken for a slip of the pen: one wrong letter in four, two in eight."""


_LONGEST = 100
"""What is longer is no word."""
_NO_SLIPS = frozenset({"model"})
"""Words that are nearly one of ours, and that many have for something of their own."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that this one was probably meant to be, or `None`. Case and separators do not matter."""
    if len(word) > _LONGEST:
        return None
    # Only mistakes come here, and loading rapidfuzz takes longer than all of goldspan's core.
    from rapidfuzz.distance import OSA

    def similarity(candidate: str) -> float:
        return OSA.normalized_similarity(fold(word), fold(candidate))

    best = max(sorted(known), key=similarity, default=None)
    return best if best is not None and similarity(best) >= CLOSE else None


def is_slip(key: str, known: Iterable[str]) -> bool:
    """Whether a key that nobody knows is a known one with a slip of the pen, and not a word of its author's."""
    if key in _NO_SLIPS or len(key) > _LONGEST:
        return False
    # Who mistypes a word hardly does so in its first letter: `code` is no `mode`, and `batch` no `match`.
    return nearest(key, [word for word in known if fold(word)[:1] == fold(key)[:1]]) is not None


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
    if type(value) is str and len(value) < _brief.maxstring // 2:
        return repr(value)  # reprlib takes its time
    return _brief.repr(value)


_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = 60
_brief.maxlevel = 3
