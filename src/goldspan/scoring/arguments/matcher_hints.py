"""Names the matcher that would accept a value which differs from the expected one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from goldspan.goldens.text_matching import compose_unicode, normalize_text
from goldspan.scoring.arguments.equality import (
    equal,
    is_close,
)
from goldspan.scoring.arguments.multisets import can_assign_all
from goldspan.scoring.arguments.schema_coercion import SchemaShape, schema_shape

_MAX_TEXT_CHARACTERS = 10_000
"""The characters of the longest text that gets a hint."""
_MAX_LIST_ITEMS = 1_000
"""The items of the longest list that gets a hint."""
_MAX_COMPARISONS = 20_000
"""The pairs of items that are compared for a hint."""


def matcher_hint(expected: Any, called: Any) -> str | None:
    """Returns the matcher that would accept a called value that differs from the expected one; `None`: no simple one.

    It never raises, and takes milliseconds at worst.
    """
    try:
        return _find_hint(expected, called)
    except Exception:  # noqa: BLE001 - a hint is never worth an error
        return None


def _find_hint(expected: Any, called: Any) -> str | None:
    expected_type, called_type = type(expected), type(called)
    if max(_relative_length(expected, expected_type), _relative_length(called, called_type)) > 1:
        return None
    if expected_type is str and called_type is str:
        return _text_hint(expected, called)
    if expected_type in _LISTS and called_type in _LISTS:
        return _list_hint(expected, called)
    if expected_type in _NUMBERS and called_type in _NUMBERS:
        return _number_hint(expected, called)
    if expected_type is str or called_type is str:
        return _type_hint(expected, called)
    return None


_LISTS = frozenset({list, tuple})
_NUMBERS = frozenset({int, float})


def _relative_length(value: Any, kind: type) -> float:
    """Returns the length of a value as a share of the limit."""
    if kind is str:
        return len(value) / _MAX_TEXT_CHARACTERS
    return len(value) / _MAX_LIST_ITEMS if kind in _LISTS else 0.0


# --- texts ------------------------------------------------------------------------------------------------------------


def _text_hint(expected: str, called: str) -> str | None:
    if normalize_text(expected) == normalize_text(called):
        return f"differs only in {_folded_difference(expected, called)}: {{folded: ...}} accepts it"
    if _is_same_date(expected, called):
        return "is the same date in another notation: {one_of: [...]} accepts both"
    if len(expected.strip()) >= _MIN_CONTAINED_CHARACTERS and compose_unicode(expected) in compose_unicode(called):
        return "holds the expected text and more: {contains: ...} accepts it"
    return None


_MIN_CONTAINED_CHARACTERS = 3
"""The characters of the shortest text for which `contains` is suggested."""


def _folded_difference(expected: str, called: str) -> str:
    if compose_unicode(expected).split() == compose_unicode(called).split():
        return "white space"
    if compose_unicode(compose_unicode(expected).casefold()) == compose_unicode(compose_unicode(called).casefold()):
        return "case"
    return "case and white space"


def _is_same_date(expected: str, called: str) -> bool:
    one, other = _parse_date(expected), _parse_date(called)
    if one is None or other is None or (one.tzinfo is None) is not (other.tzinfo is None):
        return False
    return one == other


def _parse_date(text: str) -> datetime | None:
    """Parse a date, or a date and a time, in ISO 8601."""
    found = _ISO_8601.fullmatch(text.strip()) if len(text) <= _MAX_DATE_CHARACTERS else None
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    moment = f"{year}-{month}-{day}T{hour or '00'}:{minute or '00'}:{second or '00'}.{(fraction or '')[:6]:0<6}"
    try:
        return datetime.fromisoformat(moment + _utc_offset(zone))
    except ValueError:
        return None


def _utc_offset(zone: str | None) -> str:
    if zone is None:
        return ""
    digits = zone[1:].replace(":", "")
    return f"{zone[0]}{digits[:2]}:{digits[2:] or '00'}" if digits else "+00:00"


_MAX_DATE_CHARACTERS = 40
_ISO_8601 = re.compile(
    r"([0-9]{4})-?([0-9]{2})-?([0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):?([0-9]{2})(?::?([0-9]{2})(?:[.,]([0-9]{1,9}))?)?\s?([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
"""ISO 8601, of which `datetime.fromisoformat` of Python 3.10 parses only a part."""


# --- numbers and types ------------------------------------------------------------------------------------------------


def _number_hint(expected: float, called: float) -> str | None:
    if type(expected) is int and type(called) is int:
        return None  # integers count or identify something, so that a close one is not nearly right
    if is_close(expected, called, _MILLIONTH):
        return "differs by less than a millionth: {approx: ...} accepts it"
    if is_close(expected, called, _THOUSANDTH):
        return "differs by about a thousandth or less: {approx: ..., relative: 0.001} accepts it"
    return None


# Slightly below the matcher's limits, which are relative to the expected number and not to the greater one.
_MILLIONTH, _THOUSANDTH = 0.99e-6, 0.99e-3


def _type_hint(expected: Any, called: Any) -> str | None:
    """Returns a hint if a JSON schema of the value's type would convert the text to the value."""
    text, value = (expected, called) if type(expected) is str else (called, expected)
    shape = _SHAPE_BY_TYPE.get(type(value))
    if shape is None or not equal(shape.coerce(text), value):
        return None
    return "differs only in type: `parameters`, a JSON schema of the arguments, makes both the same"


def _shape_of_type(kind: str) -> SchemaShape | None:
    return schema_shape({"type": kind})


_SHAPE_BY_TYPE: Mapping[type, SchemaShape | None] = {
    int: _shape_of_type("number"),
    float: _shape_of_type("number"),
    bool: _shape_of_type("boolean"),
    list: _shape_of_type("array"),
    dict: _shape_of_type("object"),
}


# --- lists ------------------------------------------------------------------------------------------------------------


def _list_hint(expected: Sequence[Any], called: Sequence[Any]) -> str | None:
    remaining = _MAX_COMPARISONS

    def count_comparison() -> None:
        nonlocal remaining
        remaining -= 1
        if remaining < 0:
            raise TimeoutError

    if not expected or not can_assign_all(expected, called, equal, on_comparison=count_comparison):
        return None
    if len(expected) == len(called):
        return "differs only in the order of its items: {unordered: [...]} accepts it"
    return "holds the expected items and more: {contains: [...]} accepts it"
