"""Rebuilds lists from numbered attributes, such as `llm.input_messages.0.message.role`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter
from typing import Any

_NUMBER = re.compile(r"[0-9]{1,9}")
_MAX_PATH_DEPTH = 12
"""Steps of a path. The longest in recorded exports has seven."""
_MAX_CACHED_PATHS = 64
"""The most paths of an item whose shape is cached."""

FlatItem = dict[str, Any]
"""One item: its values by their paths below the number, such as `message.role`."""
FlatRows = tuple[tuple[tuple[str, ...], tuple[Any, ...]], ...]
"""Several items: the sorted paths and the values of each. Equal attribute names share the paths."""
TEXT_TYPES = frozenset({str, type(None)})
"""The types of values that are equal only if they are the same: `True` equals `1`."""


def unflatten(attributes: Mapping[str, Any], prefix: str) -> list[Any]:
    """Return the items of `{prefix}.{number}.{path}` in the order of their numbers, as nested dictionaries.

    Numbers further down the path become lists.
    """
    return list(map(nest_item, flat_items(attributes, prefix)))


def flat_items(attributes: Mapping[str, Any], prefix: str) -> list[FlatItem]:
    """Return the same items without nesting, so that they can be compared cheaply."""
    return [dict(zip(paths, values, strict=True)) for paths, values in flat_rows(attributes, prefix)]


def flat_rows(attributes: Mapping[str, Any], prefix: str) -> FlatRows:
    """Return the same items as their sorted paths and their values."""
    names = getattr(attributes, "names", None)  # one shared frozenset for all spans with these attributes
    keys, places = _item_paths(frozenset(attributes) if names is None else names, prefix)
    if not keys:
        return ()
    read = getattr(attributes, "read", None)  # decodes several attributes in a fraction of the time of one by one
    known = attributes if read is None else read(keys)
    return tuple([(paths, values_of(known)) for paths, values_of in places])


def nest_item(item: FlatItem) -> Any:
    """Return an item as nested dictionaries and lists. Of two conflicting paths, the first in sort order is used."""
    paths = tuple(sorted(item))
    return nest_row(paths, tuple([item[path] for path in paths]))


def nest_row(paths: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    """Return an item, given as its sorted paths and their values, as nested dictionaries and lists."""
    shape = _cached_shape(paths) if len(paths) <= _MAX_CACHED_PATHS else _build_shape(paths)
    return _fill_shape(shape, dict(zip(paths, values, strict=True)))


_ValuesOf = Callable[[Mapping[str, Any]], tuple[Any, ...]]
"""Returns the values of one item from the attributes."""


@lru_cache(maxsize=1024)
def _item_paths(
    names: frozenset[str], prefix: str
) -> tuple[tuple[str, ...], tuple[tuple[tuple[str, ...], _ValuesOf], ...]]:
    """Return the attributes of all items, and of each item the sorted paths and the getter of its values."""
    items: dict[int, dict[str, str]] = {}
    for key in sorted(names):
        if key.startswith(prefix) and (place := _split_number(key, prefix)) is not None:
            number, path = place
            items.setdefault(number, {})[path] = key
    in_order = [sorted(items[number].items()) for number in sorted(items)]
    places = tuple((tuple([path for path, _ in item]), _values_of([key for _, key in item])) for item in in_order)
    return tuple(key for item in in_order for _, key in item), places


def _values_of(keys: list[str]) -> _ValuesOf:
    if len(keys) > 1:
        return itemgetter(*keys)  # returns a tuple only for several keys
    (key,) = keys
    return lambda attributes: (attributes[key],)


@lru_cache(maxsize=8192)
def _split_number(key: str, prefix: str) -> tuple[int, str] | None:
    """Return the number and the path below it; `None` if no number follows the prefix.

    Cached, because attribute names repeat from span to span.
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
    """The values below one step of a path."""


class _ListLevel(_MappingLevel):
    """The values below a step whose next steps are numbers."""


def _build_shape(paths: tuple[str, ...]) -> Any:
    """Return the nested form of an item, with the path of each value in place of the value."""
    whole = _MappingLevel()
    for path in paths:
        steps = path.split(".", _MAX_PATH_DEPTH - 2) if path else ()
        _set_path(whole, ("", *(int(step) if _NUMBER.fullmatch(step) else step for step in steps)), path)
    return _levels_to_lists(whole[""])


_cached_shape = lru_cache(maxsize=1024)(_build_shape)


def _set_path(level: _MappingLevel, path: tuple[str | int, ...], value: str) -> None:
    """Set a value at its path, unless an earlier path conflicts with it."""
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
