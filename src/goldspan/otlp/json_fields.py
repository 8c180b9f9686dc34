"""Parsed JSON, read field by field: `null` is "not set", and what has the wrong type is a `DecodeError`."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any

from goldspan.otlp.decode_results import DecodeError

UINT32 = range(2**32)
INT32 = range(-(2**31), 2**31)
INT64 = range(-(2**63), 2**63)
UINT64 = range(2**64)

_DECODER = json.JSONDecoder()
_LONE_SURROGATE = re.compile(r"\\\\|\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(\\u[dD][89a-fA-F]\w\w)")


def parse_json(text: str, start: int = 0) -> tuple[Any, int]:
    """The JSON value that begins at `start`, and where it ends. Raises `ValueError`, however deep it nests.

    It is read as `repaired` leaves it, so that results can be sent on.
    """
    try:
        value, end = _DECODER.raw_decode(text, start)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if text.find("\\ud", start, end) >= 0 or text.find("\\uD", start, end) >= 0:
        value = _DECODER.decode(replace_lone_surrogates(text[start:end]))
    return value, end


def replace_lone_surrogates(text: str) -> str:
    """JSON without the halves of surrogate pairs that JSON can write and UTF-8 cannot: each becomes U+FFFD."""
    if "\\ud" not in text and "\\uD" not in text:
        return text
    return _LONE_SURROGATE.sub(lambda found: r"\ufffd" if found[1] else found[0], text)


def text_field(parent: dict[str, Any], field: str) -> str:
    """Text; empty where there is none."""
    given = parent.get(field)
    if type(given) is str:
        return given
    if given is None:
        return ""
    raise DecodeError(f"{field} is not text")


def boolean_field(parent: dict[str, Any], field: str) -> bool:
    """A truth value that is there."""
    given = parent[field]
    if not isinstance(given, bool):
        raise DecodeError(f"{field} is not true or false")
    return given


def integer_field(parent: dict[str, Any], field: str, allowed: range) -> int:
    """Exact, whether written as a number or as text; a float only where it is whole; 0 where there is none."""
    given = parent.get(field)
    if given is None:
        return 0
    try:
        number = int(given) if isinstance(given, int | str) or given.is_integer() else None
    except (ValueError, AttributeError):
        number = None
    if number is None or isinstance(given, bool) or number not in allowed:
        raise DecodeError(f"{field} is not a whole number in its range")
    return number


def number_field(parent: dict[str, Any], field: str) -> float:
    """A number that is there; also `"NaN"`, `"Infinity"` and `"-Infinity"`, which JSON has no numbers for."""
    given = parent[field]
    if isinstance(given, int | float | str) and not isinstance(given, bool):
        try:
            return float(given)
        except (ValueError, OverflowError):
            pass
    raise DecodeError(f"{field} is not a number")


def enum_field(parent: dict[str, Any], field: str, names: Mapping[str, int]) -> int:
    """OTLP wants the number; a plain protobuf dump writes the name. A name from the future counts as 0."""
    given = parent.get(field)
    if isinstance(given, str) and not given.isdecimal():
        return names.get(given, 0)
    return integer_field(parent, field, INT32)


def bytes_field(parent: dict[str, Any], field: str) -> bytes:
    """Bytes written as base64 in either alphabet, with padding or without."""
    given = text_field(parent, field).replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(given + "=" * (-len(given) % 4), validate=True)
    except ValueError as error:
        raise DecodeError(f"{field} is not base64") from error


def object_field(parent: dict[str, Any], field: str) -> dict[str, Any]:
    """An object; empty where there is none."""
    given = parent.get(field)
    if type(given) is dict:
        return given
    if given is None:
        return {}
    raise DecodeError(f"{field} is not a JSON object")


def objects_field(parent: dict[str, Any], field: str) -> list[dict[str, Any]]:
    """The objects of a list, without any `null` between them; empty where there is no list."""
    given = parent.get(field)
    if given is None:
        return []
    if type(given) is list:
        objects = [item for item in given if type(item) is dict]
        if len(objects) + given.count(None) == len(given):
            return objects
    raise DecodeError(f"{field} is not a list of JSON objects")
