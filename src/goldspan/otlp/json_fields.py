"""Reads and checks the fields of JSON objects.

`null` means "not set"; a wrong type raises `DecodeError`.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Mapping
from typing import Any

from goldspan.otlp.decode_results import DecodeError

UINT32 = range(2**32)
INT32 = range(-(2**31), 2**31)
INT64 = range(-(2**63), 2**63)
UINT64 = range(2**64)

_MIN_BYTES_WORTH_AN_IMPORT = 64 * 1024
"""Most commands have already imported `pydantic_core`. For the others, only a large document justifies its import."""
_DECODER = json.JSONDecoder()
_SURROGATE = re.compile(r"\\u[dD]")
_LONE_SURROGATE = re.compile(r"\\\\|\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(\\u[dD][89a-fA-F]\w\w)")


def parse_object(text: bytes) -> dict[str, Any] | None:
    """Returns the object that the text consists of, or `None`: then `parse_json` must read it, or explain the error.

    It takes half the time of `parse_json`.
    """
    if not text.startswith(b"{") or not text.endswith((b"}", b"}\r")):
        return None
    if len(text) < _MIN_BYTES_WORTH_AN_IMPORT and "pydantic_core" not in sys.modules:
        return None
    from pydantic_core import from_json  # deferred: the import takes 12 ms

    try:
        value: dict[str, Any] = from_json(text)
    except ValueError:
        return None
    return value


def parse_json(text: str, start: int = 0) -> tuple[Any, int]:
    """Returns the JSON value that starts at `start`, and its end. Raises `ValueError`, also for deep nesting.

    Lone surrogates are replaced, so that the value can be encoded as UTF-8.
    """
    try:
        value, end = _DECODER.raw_decode(text, start)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if _SURROGATE.search(text, start, end):  # twice as fast as two calls of `find`, in JSON full of escaped quotes
        value = _DECODER.decode(replace_lone_surrogates(text[start:end]))
    return value, end


def replace_lone_surrogates(text: str) -> str:
    """Replaces lone surrogates, which JSON can express and UTF-8 cannot, with U+FFFD."""
    if not _SURROGATE.search(text):
        return text
    return _LONE_SURROGATE.sub(lambda found: r"\ufffd" if found[1] else found[0], text)


def text_field(parent: dict[str, Any], field: str) -> str:
    """Reads text; empty if the field is missing."""
    value = parent.get(field)
    if type(value) is str:
        return value
    if value is None:
        return ""
    raise DecodeError(f"{field} is not text")


def boolean_field(parent: dict[str, Any], field: str) -> bool:
    """Reads a boolean; the field must exist."""
    value = parent[field]
    if not isinstance(value, bool):
        raise DecodeError(f"{field} is not true or false")
    return value


def integer_field(parent: dict[str, Any], field: str, allowed: range) -> int:
    """Reads an integer from a number, from text or from a whole float; 0 if the field is missing."""
    value = parent.get(field)
    if value is None:
        return 0
    if type(value) is int and value in allowed:
        return value
    try:
        number = int(value) if isinstance(value, (int, str)) or value.is_integer() else None
    except (ValueError, AttributeError):
        number = None
    if number is None or isinstance(value, bool) or number not in allowed:
        raise DecodeError(f"{field} is not a whole number in its range")
    return number


def number_field(parent: dict[str, Any], field: str) -> float:
    """Reads a number, also as text such as `"NaN"` and `"-Infinity"`; the field must exist."""
    value = parent[field]
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    raise DecodeError(f"{field} is not a number")


def enum_field(parent: dict[str, Any], field: str, names: Mapping[str, int]) -> int:
    """Reads an enum: OTLP requires the number, a protobuf dump writes the name. An unknown name counts as 0."""
    value = parent.get(field)
    if isinstance(value, str) and not value.isdecimal():
        return names.get(value, 0)
    return integer_field(parent, field, INT32)


def bytes_field(parent: dict[str, Any], field: str) -> bytes:
    """Reads bytes in base64 of either alphabet, with or without padding."""
    value = text_field(parent, field).replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except ValueError as error:
        raise DecodeError(f"{field} is not base64") from error


def object_field(parent: dict[str, Any], field: str) -> dict[str, Any]:
    """Reads an object; empty if the field is missing."""
    value = parent.get(field)
    if type(value) is dict:
        return value
    if value is None:
        return {}
    raise DecodeError(f"{field} is not a JSON object")


def objects_field(parent: dict[str, Any], field: str) -> list[dict[str, Any]]:
    """Reads the objects of a list and skips `null`; empty if the field is missing."""
    value = parent.get(field)
    if value is None:
        return []
    if type(value) is list:
        objects = [item for item in value if type(item) is dict]
        if len(objects) == len(value) or len(objects) + value.count(None) == len(value):
            return objects
    raise DecodeError(f"{field} is not a list of JSON objects")
