"""Attributes with numbers in their names, such as `llm.input_messages.0.message.role`, put back into lists."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

_NUMBER = re.compile(r"[0-9]{1,9}")
_DEEPEST = 12
"""Steps of a path; the longest seen in the wild has seven."""

Path = tuple[str | int, ...]


def unflattened(attributes: Mapping[str, Any], prefix: str) -> list[Any]:
    """The items of `{prefix}.{number}.{path}` in the order of their numbers, each with its path as nested dictionaries.

    Numbers further down the path make lists as well.
    """
    # Most attributes of a span are none of these: what they hold need not even be decoded.
    flat = [key for key in attributes if key.startswith(prefix)]
    if not flat:
        return []
    whole = _Named()
    numbered: list[tuple[_Named, str | int, _Numbered]] = []
    # Where two of them contradict each other, it is not their order in the span that decides.
    for key in sorted(flat):
        path = _path(key, prefix)
        if path:
            _put(whole, path, attributes.get(key), numbered)
    for above, step, level in reversed(numbered):
        above[step] = [level[number] for number in sorted(level)]
    listed: list[Any] = whole.get("", [])
    return listed


class _Named(dict[Any, Any]):
    """What stands below one step of a path. A structured attribute's own dictionaries are values, and left alone."""


class _Numbered(_Named):
    """A level whose steps are numbers."""


@lru_cache(maxsize=8192)
def _path(key: str, prefix: str) -> Path:
    """The steps after the prefix, of which the first is empty; no steps where the next one is no number.

    The names of attributes are repeated from span to span.
    """
    begin, *steps = key[len(prefix) :].split(".", _DEEPEST)
    path = tuple(int(step) if _NUMBER.fullmatch(step) else step for step in steps)
    return ("", *path) if not begin and path and isinstance(path[0], int) else ()


def _put(level: _Named, path: Path, value: Any, numbered: list[tuple[_Named, str | int, _Numbered]]) -> None:
    """Set a value at its path, unless other attributes say that there is no such path. New lists go to `numbered`."""
    for step, following in pairwise(path):
        below = level.get(step)
        if below is None:
            if isinstance(following, int):
                below = _Numbered()
                numbered.append((level, step, below))
            else:
                below = _Named()
            level[step] = below
        elif isinstance(below, _Numbered) is not isinstance(following, int) or not isinstance(below, _Named):
            return
        level = below
    level.setdefault(path[-1], value)
