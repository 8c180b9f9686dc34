"""Attributes with numbers in their names, such as `llm.input_messages.0.message.role`, put back into lists."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

_NUMBER = re.compile(r"[0-9]{1,9}")
_MAX_PATH_DEPTH = 12
"""Steps of a path; the longest seen in the wild has seven."""
_MAX_CACHED_PATHS = 64
"""Paths of an item whose shape is remembered."""

FlatItem = dict[str, Any]
"""One item: what stands at each path below its number, such as `message.role`."""


def unflatten(attributes: Mapping[str, Any], prefix: str) -> list[Any]:
    """The items of `{prefix}.{number}.{path}` in the order of their numbers, each with its path as nested dictionaries.

    Numbers further down the path make lists as well.
    """
    return list(map(nest_item, flat_items(attributes, prefix)))


def flat_items(attributes: Mapping[str, Any], prefix: str) -> list[FlatItem]:
    """The same items, not nested yet: so they can be told apart without that work."""
    names = getattr(
        attributes, "names", None
    )  # where it is known already, and one object for all spans that have these
    places = _item_paths(frozenset(attributes) if names is None else names, prefix)
    return [{path: attributes.get(key) for path, key in item} for item in places]


def nest_item(item: FlatItem) -> Any:
    """An item as nested dictionaries and lists. Where two paths contradict each other, the first in sorting counts."""
    paths = tuple(sorted(item))
    return _fill_shape(_cached_shape(paths) if len(paths) <= _MAX_CACHED_PATHS else _build_shape(paths), item)


@lru_cache(maxsize=1024)
def _item_paths(names: frozenset[str], prefix: str) -> tuple[tuple[tuple[str, str], ...], ...]:
    """For each item, its paths and the attributes that stand there. Most attributes of a span are none of these."""
    items: dict[int, dict[str, str]] = {}
    for key in sorted(names):
        if key.startswith(prefix) and (place := _split_number(key, prefix)) is not None:
            number, path = place
            items.setdefault(number, {})[path] = key
    return tuple(tuple(items[number].items()) for number in sorted(items))


@lru_cache(maxsize=8192)
def _split_number(key: str, prefix: str) -> tuple[int, str] | None:
    """The number and the path below it; `None` where no number follows the prefix.

    The names of attributes are repeated from span to span, and so are the shapes of items.
    """
    begin, *steps = key[len(prefix) :].split(".", 2)
    if begin or not steps or not _NUMBER.fullmatch(steps[0]):
        return None
    return int(steps[0]), steps[1] if len(steps) > 1 else ""


def _fill_shape(shape: Any, item: FlatItem) -> Any:
    if isinstance(shape, str):
        return item[shape]
    if isinstance(shape, list):
        return [_fill_shape(inner, item) for inner in shape]
    return {step: item[inner] if isinstance(inner, str) else _fill_shape(inner, item) for step, inner in shape.items()}


class _MappingLevel(dict[Any, Any]):
    """What stands below one step of a path."""


class _ListLevel(_MappingLevel):
    """A level whose steps are numbers."""


def _build_shape(paths: tuple[str, ...]) -> Any:
    """An item with the path of each value in the place of that value."""
    whole = _MappingLevel()
    for path in paths:
        steps = path.split(".", _MAX_PATH_DEPTH - 2) if path else ()
        _set_path(whole, ("", *(int(step) if _NUMBER.fullmatch(step) else step for step in steps)), path)
    return _levels_to_lists(whole[""])


_cached_shape = lru_cache(maxsize=1024)(_build_shape)


def _set_path(level: _MappingLevel, path: tuple[str | int, ...], value: str) -> None:
    """Set a value at its path, unless others say that there is no such path."""
    for step, following in pairwise(path):
        below = level.get(step)
        if below is None:
            below = level[step] = _ListLevel() if isinstance(following, int) else _MappingLevel()
        elif not isinstance(below, _MappingLevel) or isinstance(below, _ListLevel) is not isinstance(following, int):
            return
        level = below
    level.setdefault(path[-1], value)


def _levels_to_lists(level: Any) -> Any:
    if isinstance(level, _ListLevel):
        return [_levels_to_lists(level[number]) for number in sorted(level)]
    return (
        {step: _levels_to_lists(below) for step, below in level.items()} if isinstance(level, _MappingLevel) else level
    )
