"""Finds the lines on which goldens stand in a JSON file, which Python's JSON decoder does not report."""

from __future__ import annotations

import json
import re

_decode_value = json.JSONDecoder().raw_decode
_SPACE = re.compile(r"[ \t\n\r]*")


def find_golden_lines(text: str) -> dict[int, int]:
    """Returns the line of the first key of each golden in a valid JSON text, by position in the list of goldens."""
    start: int | None = _skip_space(text, 0)
    if start is not None and text[start] == "{":
        start = _find_member(text, start, "goldens")
    if start is None or text[start] != "[":
        return {}
    lines: dict[int, int] = {}
    line, counted, position = 1, 0, _skip_space(text, start + 1)
    while text[position] != "]":
        first_key = _skip_space(text, position + 1) if text[position] == "{" else position
        line += text.count("\n", counted, first_key)
        lines[len(lines)], counted = line, first_key
        position = _skip_value(text, position)
    return lines


def _find_member(text: str, start: int, name: str) -> int | None:
    """Returns the position of a member's value in the object at `start`, or `None`."""
    position = _skip_space(text, start + 1)
    while text[position] != "}":
        key, colon = _decode_value(text, position)
        position = _skip_space(text, _skip_space(text, colon) + 1)
        if key == name:
            return position
        position = _skip_value(text, position)
    return None


def _skip_value(text: str, position: int) -> int:
    """Returns the position of the next item, or of the closing bracket, after the value at `position`."""
    position = _skip_space(text, _decode_value(text, position)[1])
    return _skip_space(text, position + 1) if text[position] == "," else position


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return position if match is None else match.end()
