"""Folds the names of tools and agents for comparison."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

SEPARATORS = re.compile(r"[\s_\-./:]+")
"""What separates the words of a name."""


@lru_cache(maxsize=16384)
def fold_name(name: str) -> str:
    """Return the form in which names are compared: without case and separators.

    `web_search`, `WebSearch`, `Web Search` and `web-search` fold to the same text. A name made of separators alone
    folds to itself, so that it equals nothing else.
    """
    if name.isascii():
        return SEPARATORS.sub("", name.lower()) or name
    folded = SEPARATORS.sub("", unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())) or name
    # Without a separator between them, letters may compose.
    return folded if folded == name else fold_name(folded)
