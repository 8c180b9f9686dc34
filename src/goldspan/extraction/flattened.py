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
_FEW = 64
"""Paths of an item whose shape is remembered."""

Flat = dict[str, Any]
"""One item: what stands at each path below its number, such as `message.role`."""


def unflattened(attributes: Mapping[str, Any], prefix: str) -> list[Any]:
    """The items of `{prefix}.{number}.{path}` in the order of their numbers, each with its path as nested dictionaries.

    Numbers further down the path make lists as well.
    """
    return list(map(nested, flat_items(attributes, prefix)))


def flat_items(attributes: Mapping[str, Any], prefix: str) -> list[Flat]:
    """The same items, not nested yet: so they can be told apart without that work."""
    names = getattr(
        attributes, "names", None
    )  # where it is known already, and one object for all spans that have these
    places = _places(frozenset(attributes) if names is None else names, prefix)
    return [{path: attributes.get(key) for path, key in item} for item in places]


def nested(item: Flat) -> Any:
    """An item as nested dictionaries and lists. Where two paths contradict each other, the first in sorting counts."""
    paths = tuple(sorted(item))
    return _filled(_shape(paths) if len(paths) <= _FEW else _shape_of(paths), item)


@lru_cache(maxsize=1024)
def _places(names: frozenset[str], prefix: str) -> tuple[tuple[tuple[str, str], ...], ...]:
    """For each item, its paths and the attributes that stand there. Most attributes of a span are none of these."""
    items: dict[int, dict[str, str]] = {}
    for key in sorted(names):
        if key.startswith(prefix) and (place := _place(key, prefix)) is not None:
            number, path = place
            items.setdefault(number, {})[path] = key
    return tuple(tuple(items[number].items()) for number in sorted(items))


@lru_cache(maxsize=8192)
def _place(key: str, prefix: str) -> tuple[int, str] | None:
    """The number and the path below it; `None` where no number follows the prefix.

    The names of attributes are repeated from span to span, and so are the shapes of items.
    """
    begin, *steps = key[len(prefix) :].split(".", 2)
    if begin or not steps or not _NUMBER.fullmatch(steps[0]):
        return None
    return int(steps[0]), steps[1] if len(steps) > 1 else ""


def _filled(shape: Any, item: Flat) -> Any:
    if isinstance(shape, str):
        return item[shape]
    if isinstance(shape, list):
        return [_filled(inner, item) for inner in shape]
    return {step: item[inner] if isinstance(inner, str) else _filled(inner, item) for step, inner in shape.items()}


class _Named(dict[Any, Any]):
    """What stands below one step of a path."""


class _Numbered(_Named):
    """A level whose steps are numbers."""


def _shape_of(paths: tuple[str, ...]) -> Any:
    """An item with the path of each value in the place of that value."""
    whole = _Named()
    for path in paths:
        steps = path.split(".", _DEEPEST - 2) if path else ()
        _put(whole, ("", *(int(step) if _NUMBER.fullmatch(step) else step for step in steps)), path)
    return _listed(whole[""])


_shape = lru_cache(maxsize=1024)(_shape_of)


def _put(level: _Named, path: tuple[str | int, ...], value: str) -> None:
    """Set a value at its path, unless others say that there is no such path."""
    for step, following in pairwise(path):
        below = level.get(step)
        if below is None:
            below = level[step] = _Numbered() if isinstance(following, int) else _Named()
        elif not isinstance(below, _Named) or isinstance(below, _Numbered) is not isinstance(following, int):
            return
        level = below
    level.setdefault(path[-1], value)


def _listed(level: Any) -> Any:
    if isinstance(level, _Numbered):
        return [_listed(level[number]) for number in sorted(level)]
    return {step: _listed(below) for step, below in level.items()} if isinstance(level, _Named) else level
