"""Texts that denote values: JSON, JSON inside JSON, and what Python's `repr` writes."""

from __future__ import annotations

import json
import re
from typing import Any

from goldspan.extraction import reprs
from goldspan.extraction.objects import Constructed
from goldspan.extraction.reprs import BRACKETS, DEEPEST, constructed
from goldspan.model import ABSENT

__all__ = ["Constructed", "constructed", "denoted", "listed", "plain"]

_NESTING = 3
"""How often a text may be JSON again. Seen in the wild: twice."""


def plain(value: Any) -> Any:
    """A value as written, with JSON and Python notation read; any other text stays text."""
    if not isinstance(value, str):
        if not isinstance(value, bytes):
            return value
        value = value.decode("utf-8", "replace")
    begin = value[:1]
    if begin not in _BEGINNINGS and not begin.isspace():
        return value  # words, as most texts are: not worth a closer look
    if begin == "{" and len(value) <= DEEPEST and (read := _json(value)) is not ABSENT:
        return read  # as most arguments are: in one go
    read = denoted(value)
    levels = 1
    # A quoted text that holds brackets was written twice; the one that holds `42` is a text that says so.
    while isinstance(read, str) and levels < _NESTING and read.lstrip()[:1] in _WRAPPED:
        inner = denoted(read)
        if inner is ABSENT:
            break
        read, levels = inner, levels + 1
    return value if read is ABSENT else read


def denoted(text: str) -> Any:
    """The value that a text denotes in JSON or, if it is in brackets, in Python; `ABSENT` where it denotes none."""
    stripped = text.strip()
    begin = stripped[:1]
    if begin in BRACKETS:
        if _too_deep(stripped):
            return ABSENT
    elif begin != '"' and (begin not in _BEGINNINGS or not _SCALAR.fullmatch(stripped)):
        return ABSENT
    read = _json(stripped)
    return reprs.read(stripped) if read is ABSENT and begin in BRACKETS else read


def listed(text: str) -> list[Any] | None:
    """The items of a list in JSON; `None` for anything else."""
    stripped = text.strip()
    read = _json(stripped) if stripped[:1] == "[" and not _too_deep(stripped) else None
    return read if isinstance(read, list) else None


def _json(text: str) -> Any:
    try:
        read, end = _JSON.raw_decode(text)
    except (ValueError, RecursionError):
        return ABSENT
    return read if end == len(text) else ABSENT


_JSON = json.JSONDecoder()
_BEGINNINGS = frozenset('[{("-0123456789tfnNI')
"""What a text begins with that is JSON or, in brackets, Python."""
_WRAPPED = frozenset('[{("')
_SCALAR = re.compile(r"true|false|null|NaN|-?Infinity|-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_BRACKET = re.compile(r"[\[\](){}]")


def _too_deep(text: str) -> bool:
    """Whether brackets are nested beyond what can be handled; those inside quoted text count too, which is no harm."""
    if len(text) <= DEEPEST or text.count("{") + text.count("[") + text.count("(") <= DEEPEST:
        return False
    depth = 0
    for bracket in _BRACKET.finditer(text):
        depth += 1 if bracket[0] in "[{(" else -1
        if depth > DEEPEST:
            return True
    return False
