"""When two texts say the same: one form for both, in time proportional to the text whatever it holds."""

from __future__ import annotations

import unicodedata


def normalized(text: str | None) -> str:
    """The form in which typed texts are compared: white space, case and Unicode composition do not matter."""
    if text is None:
        return ""
    folded = text.casefold() if text.isascii() else composed(composed(text).casefold())
    return " ".join(folded.split())


_SHORT = 1_000
"""Characters that are composed in less than a millisecond, whatever they are."""
_TOO_MANY_MARKS = b"\1" * 31
"""A run of more than 30 combining characters means nothing in any script (UAX #15, section 13), and sorting it takes
Python the square of its length: 10 MB of them, hours."""


def composed(text: str) -> str:
    """The text in Unicode normal form C, unless it would take too long to make."""
    if len(text) > _SHORT and _TOO_MANY_MARKS in bytes(map(bool, map(unicodedata.combining, text))):
        return text
    return unicodedata.normalize("NFC", text)
