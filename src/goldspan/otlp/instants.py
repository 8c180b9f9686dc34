"""Times as SDKs write them where nothing but JSON tells how: pairs, numbers and text, all as nanoseconds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from goldspan.otlp.decoding import DecodeError
from goldspan.otlp.json_fields import UINT64

_SECOND = 1_000_000_000
_UNITS = ((10**11, _SECOND), (10**14, 1_000_000), (10**17, 1_000))
"""Below which size a number counts seconds, milliseconds, microseconds; from the last one on, nanoseconds.

Each unit has one size from 1973 to 5138, so that a time of our days is never taken for another.
"""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_ISO_8601 = re.compile(r"([0-9-]{10})[T ]([0-9:]{8})(?:\.([0-9]{1,9})[0-9]*)?(Z|[+-][0-9]{2}:[0-9]{2})?")


def instant_of(parent: Mapping[str, Any], field: str) -> int | None:
    """A time in nanoseconds since the Unix epoch; `None` where there is none, or zero. Raises `DecodeError`.

    `[seconds, nanoseconds]`; a number in the unit that its size tells; or ISO 8601, which is UTC unless it says more.
    """
    given = parent.get(field)
    if given is None:
        return None
    time = _of_text(given) if isinstance(given, str) else _of_pair(given) if isinstance(given, list) else None
    if time is None and _is_amount(given):
        time = _in_nanoseconds(given, _unit_of(given))
    if time is None or time not in UINT64:
        raise DecodeError(f"{field} is neither [seconds, nanoseconds], nor a number, nor ISO 8601")
    return time or None


def duration_of(parent: Mapping[str, Any], field: str, *, beside: Any) -> int | None:
    """A duration in nanoseconds; `None` where it is not known. Raises `DecodeError`.

    A pair, or a number in the unit of the time that stands `beside` it, which must be a number then.
    """
    given = parent.get(field)
    if given is None:
        return None
    duration = _of_pair(given) if isinstance(given, list) else None
    if duration is None and not _is_amount(given):
        raise DecodeError(f"{field} is neither [seconds, nanoseconds] nor a number")
    if duration is None and _is_amount(beside):
        duration = _in_nanoseconds(given, _unit_of(beside))
    return duration


def _is_amount(given: Any) -> bool:
    """Whether it is a number that is no less than zero, finite and not absurdly large."""
    return type(given) in (int, float) and 0 <= given < UINT64.stop


def _unit_of(time: float) -> int:
    return next((unit for end, unit in _UNITS if time < end), 1)


def _in_nanoseconds(amount: float, unit: int) -> int:
    """Whole part and fraction on their own: a float has no room for today's nanoseconds."""
    whole = int(amount)
    return whole * unit + round((amount - whole) * unit)


def _of_pair(given: list[Any]) -> int | None:
    """Early SDKs in JavaScript computed the nanoseconds in floats, and left some that are not whole."""
    if len(given) != 2 or not all(map(_is_amount, given)):
        return None
    seconds, nanoseconds = given
    return _in_nanoseconds(seconds, _SECOND) + _in_nanoseconds(nanoseconds, 1)


def _of_text(given: str) -> int | None:
    """ISO 8601, or digits: what becomes of numbers that are too large for JavaScript."""
    if len(given) <= len(str(UINT64.stop)) and given.isascii() and given.isdecimal():
        return _in_nanoseconds(int(given), _unit_of(int(given)))
    written = _ISO_8601.fullmatch(given)
    if written is None:
        return None
    day, time, fraction, zone = written.groups()
    offset = "+00:00" if zone in (None, "Z") else zone
    try:
        passed = datetime.fromisoformat(f"{day}T{time}{offset}") - _EPOCH
    except ValueError:
        return None
    return passed // timedelta(seconds=1) * _SECOND + int((fraction or "0").ljust(9, "0"))
