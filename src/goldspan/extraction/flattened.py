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
    items = _Numbered()
    for key, value in attributes.items():
        # Most attributes of a span are none of these, and the names of those that are repeat from span to span.
        if key.startswith(prefix):
            path = _path(key, prefix)
            if path:
                _put(items, path, value)
    listed: list[Any] = _listed(items)
    return listed


class _Named(dict[Any, Any]):
    """What stands below one step of a path. A structured attribute's own dictionaries are values, and left alone."""


class _Numbered(_Named):
    """A level whose steps are numbers."""


@lru_cache(maxsize=8192)
def _path(key: str, prefix: str) -> Path:
    """The steps after the prefix; empty where the next one is no number."""
    begin, *steps = key[len(prefix) :].split(".", _DEEPEST)
    path = tuple(int(step) if _NUMBER.fullmatch(step) else step for step in steps)
    return path if not begin and path and isinstance(path[0], int) else ()


def _put(level: _Named, path: Path, value: Any) -> None:
    """Set a value at its path, unless other attributes say that there is no such path."""
    for step, following in pairwise(path):
        below = level.get(step)
        if below is None:
            below = level[step] = _Numbered() if isinstance(following, int) else _Named()
        elif isinstance(below, _Numbered) is not isinstance(following, int) or not isinstance(below, _Named):
            return
        level = below
    level.setdefault(path[-1], value)


def _listed(level: _Named) -> Any:
    if isinstance(level, _Numbered):
        return [_listed(value) if isinstance(value, _Named) else value for _, value in sorted(level.items(), key=_step)]
    return {key: _listed(value) if isinstance(value, _Named) else value for key, value in level.items()}


def _step(item: tuple[Any, Any]) -> Any:
    return item[0]
