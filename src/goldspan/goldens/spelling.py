"""Wording of error messages: suggestions for misspelled words, lists of words and short values."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable

from goldspan.model.name_folding import fold_name

MIN_SIMILARITY = 0.75
"""The least similarity of a misspelled word to the intended one: one wrong letter in four, two in eight."""

_MAX_WORD_LENGTH = 100
"""Longer texts are not treated as words."""
_NOT_TYPOS = frozenset({"model"})
"""Words that resemble a defined key, but are common as keys of other data."""


def nearest_word(word: str, known: Iterable[str]) -> str | None:
    """Returns the known word most similar to this one, or `None`. Case and separators do not matter."""
    if len(word) > _MAX_WORD_LENGTH:
        return None
    # Imported only for errors: importing rapidfuzz takes longer than importing the core of goldspan.
    from rapidfuzz.distance import OSA

    def similarity(candidate: str) -> float:
        return OSA.normalized_similarity(fold_name(word), fold_name(candidate))

    best = max(sorted(known), key=similarity, default=None)
    return best if best is not None and similarity(best) >= MIN_SIMILARITY else None


def is_typo(key: str, known: Iterable[str]) -> bool:
    """Whether an unknown key is a misspelled known key, and not a different word."""
    if key in _NOT_TYPOS or len(key) > _MAX_WORD_LENGTH:
        return False
    # The first letter is rarely mistyped: `code` is not a misspelled `mode`, and `batch` not a misspelled `match`.
    return nearest_word(key, [word for word in known if fold_name(word)[:1] == fold_name(key)[:1]]) is not None


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Returns ` Did you mean 'in_order'?`, or an empty text if no known word is similar."""
    suggestion = nearest_word(word, known) if isinstance(word, str) else None
    return f" Did you mean {suggestion!r}?" if suggestion else ""


def join_words(words: Iterable[str], *, last: str = "and") -> str:
    """Joins words to `a`, `a and b` or `a, b and c`."""
    *others, final = words
    return f"{', '.join(others)} {last} {final}" if others else final


def short_repr(value: object) -> str:
    """Returns the `repr` of a value for a message, with long and deeply nested values shortened."""
    if type(value) is str and len(value) < _reprlib.maxstring // 2:
        return repr(value)  # much faster than reprlib
    return _reprlib.repr(value)


_reprlib = reprlib.Repr()
_reprlib.maxstring = _reprlib.maxother = 60
_reprlib.maxlevel = 3
