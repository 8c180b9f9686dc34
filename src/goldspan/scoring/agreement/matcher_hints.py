"""Which matcher would have accepted a value that differs from a plain one. A hint holds no part of either value."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from goldspan.goldens.texts import composed, normalized
from goldspan.scoring.agreement.equality import close, equal
from goldspan.scoring.agreement.multisets import each_has_its_own
from goldspan.scoring.agreement.schemas import Shape, shape_of

_LONGEST = 10_000
"""Characters of a text that is looked at."""
_MOST = 1_000
"""Items of a list that is looked at."""
_LOOKS = 20_000
"""Pairs of items that are laid beside each other."""


def hint(expected: Any, called: Any) -> str | None:
    """What would have accepted a called value that differs from a stated plain one; `None` where nothing simple would.

    It never raises, and takes milliseconds at worst.
    """
    try:
        return _hint(expected, called)
    except Exception:  # noqa: BLE001 - a hint is never worth an error
        return None


def _hint(expected: Any, called: Any) -> str | None:
    kind, its = type(expected), type(called)
    if max(_length(expected, kind), _length(called, its)) > 1:
        return None
    if kind is str and its is str:
        return _of_texts(expected, called)
    if kind in _LISTS and its in _LISTS:
        return _of_lists(expected, called)
    if kind in _NUMBERS and its in _NUMBERS:
        return _of_numbers(expected, called)
    if kind is str or its is str:
        return _of_types(expected, called)
    return None


_LISTS = frozenset({list, tuple})
_NUMBERS = frozenset({int, float})


def _length(value: Any, kind: type) -> float:
    """How long a value is, as a share of what is looked at."""
    if kind is str:
        return len(value) / _LONGEST
    return len(value) / _MOST if kind in _LISTS else 0.0


# --- texts ------------------------------------------------------------------------------------------------------------


def _of_texts(expected: str, called: str) -> str | None:
    if normalized(expected) == normalized(called):
        return f"differs only in {_what_is_folded(expected, called)}: {{folded: ...}} accepts it"
    if _is_same_date(expected, called):
        return "is the same date in another notation: {one_of: [...]} accepts both"
    if len(expected.strip()) >= _SHORTEST and composed(expected) in composed(called):
        return "holds the expected text and more: {contains: ...} accepts it"
    return None


_SHORTEST = 3
"""Characters of a text that is not in others by chance."""


def _what_is_folded(expected: str, called: str) -> str:
    if composed(expected).split() == composed(called).split():
        return "white space"
    if composed(composed(expected).casefold()) == composed(composed(called).casefold()):
        return "case"
    return "case and white space"


def _is_same_date(expected: str, called: str) -> bool:
    one, other = _date(expected), _date(called)
    if one is None or other is None or (one.tzinfo is None) is not (other.tzinfo is None):
        return False
    return one == other


def _date(text: str) -> datetime | None:
    """A date, or a date and a time, in ISO 8601."""
    found = _ISO.fullmatch(text.strip()) if len(text) <= _LONGEST_DATE else None
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    moment = f"{year}-{month}-{day}T{hour or '00'}:{minute or '00'}:{second or '00'}.{(fraction or '')[:6]:0<6}"
    try:
        return datetime.fromisoformat(moment + _offset(zone))
    except ValueError:
        return None


def _offset(zone: str | None) -> str:
    if zone is None:
        return ""
    digits = zone[1:].replace(":", "")
    return f"{zone[0]}{digits[:2]}:{digits[2:] or '00'}" if digits else "+00:00"


_LONGEST_DATE = 40
_ISO = re.compile(
    r"([0-9]{4})-?([0-9]{2})-?([0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):?([0-9]{2})(?::?([0-9]{2})(?:[.,]([0-9]{1,9}))?)?\s?([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
"""What Python 3.10 cannot read itself."""


# --- numbers and types ------------------------------------------------------------------------------------------------


def _of_numbers(expected: float, called: float) -> str | None:
    if type(expected) is int and type(called) is int:
        return None  # numbers that count or name something are not nearly right
    if close(expected, called, _MILLIONTH):
        return "differs by less than a millionth: {approx: ...} accepts it"
    if close(expected, called, _THOUSANDTH):
        return "differs by about a thousandth or less: {approx: ..., relative: 0.001} accepts it"
    return None


# A bit less than what the matcher allows, which is relative to the expected number and not to the greater one.
_MILLIONTH, _THOUSANDTH = 0.99e-6, 0.99e-3


def _of_types(expected: Any, called: Any) -> str | None:
    """For a text and a value of another type: whether a schema of that type reads the text as that value."""
    text, value = (expected, called) if type(expected) is str else (called, expected)
    shape = _SHAPES.get(type(value))
    if shape is None or not equal(shape.fold(text), value):
        return None
    return "differs only in type: `parameters`, a JSON schema of the arguments, makes both the same"


def _shape(kind: str) -> Shape | None:
    return shape_of({"type": kind})


_SHAPES: Mapping[type, Shape | None] = {
    int: _shape("number"),
    float: _shape("number"),
    bool: _shape("boolean"),
    list: _shape("array"),
    dict: _shape("object"),
}


# --- lists ------------------------------------------------------------------------------------------------------------


def _of_lists(expected: Sequence[Any], called: Sequence[Any]) -> str | None:
    left = _LOOKS

    def look() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise TimeoutError

    if not expected or not each_has_its_own(expected, called, equal, look=look):
        return None
    if len(expected) == len(called):
        return "differs only in the order of its items: {unordered: [...]} accepts it"
    return "holds the expected items and more: {contains: [...]} accepts it"
