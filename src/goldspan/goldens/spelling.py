"""Sentences about what a person wrote: the word they probably meant, and lists that read well."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable

from goldspan.content.tools import fold_name

MIN_SIMILARITY = 0.75
"""From this similarity on, a word is taken for a slip of the pen: one wrong letter in four, two in eight."""


_MAX_WORD_LENGTH = 100
"""What is longer is no word."""
_NOT_TYPOS = frozenset({"model"})
"""Words that are nearly one of ours, and that many have for something of their own."""


def nearest_word(word: str, known: Iterable[str]) -> str | None:
    """The known word that this one was probably meant to be, or `None`. Case and separators do not matter."""
    if len(word) > _MAX_WORD_LENGTH:
        return None
    # Only mistakes come here, and loading rapidfuzz takes longer than all of goldspan's core.
    from rapidfuzz.distance import OSA

    def similarity(candidate: str) -> float:
        return OSA.normalized_similarity(fold_name(word), fold_name(candidate))

    best = max(sorted(known), key=similarity, default=None)
    return best if best is not None and similarity(best) >= MIN_SIMILARITY else None


def is_typo(key: str, known: Iterable[str]) -> bool:
    """Whether a key that nobody knows is a known one with a slip of the pen, and not a word of its author's."""
    if key in _NOT_TYPOS or len(key) > _MAX_WORD_LENGTH:
        return False
    # Who mistypes a word hardly does so in its first letter: `code` is no `mode`, and `batch` no `match`.
    return nearest_word(key, [word for word in known if fold_name(word)[:1] == fold_name(key)[:1]]) is not None


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """` Did you mean 'in_order'?`, or nothing where no known word is close."""
    meant = nearest_word(word, known) if isinstance(word, str) else None
    return f" Did you mean {meant!r}?" if meant else ""


def join_words(words: Iterable[str], *, last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    *others, final = words
    return f"{', '.join(others)} {last} {final}" if others else final


def short_repr(value: object) -> str:
    """A value as a message shows it: as Python writes it, but never long or deep."""
    if type(value) is str and len(value) < _reprlib.maxstring // 2:
        return repr(value)  # reprlib takes its time
    return _reprlib.repr(value)


_reprlib = reprlib.Repr()
_reprlib.maxstring = _reprlib.maxother = 60
_reprlib.maxlevel = 3
