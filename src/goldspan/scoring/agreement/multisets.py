"""Lists whose order does not matter: whether each wanted item can be given an item of its own."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain
from typing import Any

from goldspan.model import ABSENT

Fits = Callable[[Any, Any], bool]
"""Whether a given item will do for a wanted one. What will do for one of two equal items will do for the other."""
Look = Callable[[], None]
"""Called for each pair that is looked at; may raise to put an end to it."""


def each_has_its_own(
    wanted: Sequence[Any], given: Sequence[Any], fits: Fits, *, look: Look, read: Callable[[Any], Any] | None = None
) -> bool:
    """Whether there is an assignment in which every wanted item has a given item that fits, and no two share one.

    Exact. Equal items find each other by hashing; only what is left is tried pair by pair. `read` gives items the form
    in which they are equal.
    """
    if len(wanted) > len(given):
        return False
    left = _without_equals(wanted, given, read)
    return left is not None and _assigned(*left, fits, look)


def _without_equals(
    wanted: Sequence[Any], given: Sequence[Any], read: Callable[[Any], Any] | None
) -> tuple[list[Any], list[Any]] | None:
    """The items of both sides that found no equal, or `None` where one is wanted that nothing else can be.

    Of the wanted items the plain ones come first: they fail fastest.
    """
    wanted_read, given_read = (list(map(read, items)) if read else items for items in (wanted, given))
    wanted_keys, given_keys = equality_keys(wanted_read), equality_keys(given_read)
    if None in wanted_keys:  # matchers, it may be, and they tell `None` from `{}`, which are equal
        wanted_keys, given_keys = (equality_keys(items, with_nothing=False) for items in (wanted_read, given_read))
    places: dict[Hashable, list[int]] = {}
    for place in reversed(range(len(given))):
        places.setdefault(given_keys[place], []).append(place)
    plain, others, taken = list[Any](), list[Any](), set[int]()
    for item, key in zip(wanted, wanted_keys, strict=True):
        if key is None:
            others.append(item)
        elif places.get(key):
            taken.add(places[key].pop())
        elif None not in places and (read is None or type(key) in _WHOLE):
            return None
        else:
            plain.append(item)
    return plain + others, [item for place, item in enumerate(given) if place not in taken]


def _assigned(wanted: Sequence[Any], given: Sequence[Any], fits: Fits, look: Look) -> bool:
    """Augmenting paths, breadth first: an item whose place is taken gets it if the holder finds another."""
    holder: dict[int, int] = {}
    place_of: dict[int, int] = {}
    known: dict[tuple[int, int], bool] = {}

    def fitting(item: int, place: int) -> bool:
        look()
        at = item, place
        if at not in known:
            known[at] = fits(wanted[item], given[place])
        return known[at]

    for newcomer in range(len(wanted)):
        asked_by: dict[int, int] = {}
        place = _free_place(newcomer, len(given), fitting, holder, asked_by)
        if place is None:
            return False
        while place is not None:  # everybody who asked along the way moves on by one place
            item = asked_by[place]
            before = place_of.get(item)
            holder[place], place_of[item] = item, place
            place = before
    return True


def _free_place(
    newcomer: int, places: int, fitting: Callable[[int, int], bool], holder: dict[int, int], asked_by: dict[int, int]
) -> int | None:
    askers = [newcomer]
    for item in askers:  # grows by the holders of the places that are asked for
        for place in chain(range(item, places), range(item)):  # lists are often in the same order after all
            if place not in asked_by and fitting(item, place):
                asked_by[place] = item
                if place not in holder:
                    return place
                askers.append(holder[place])
    return None


_WHOLE = frozenset({str, int, float})
"""Keys of values that nothing inside of them can make equal to another."""

# --- keys -------------------------------------------------------------------------------------------------------------

_DEEPEST = 32
_OWN_KEY = frozenset({str, int})
"""What is its own key: most of all values."""
_CONTAINERS = frozenset({list, tuple, dict})
_MOST = 200_000
"""Values within values. Lists that hold one another several times have more of them than there is time."""
_NOTHING = ("nothing",)
_NOT_A_NUMBER = ("not a number",)


def equality_keys(values: Iterable[Any], *, with_nothing: bool = True) -> list[Hashable | None]:
    """For each value a key that equal values share and no others have.

    `None` where a value is not made of plain JSON values alone, is nested too deeply, comes after too many, or, unless
    `with_nothing`, has a `None` or a `{}` in it.
    """
    room = _MOST

    def key(value: Any, depth: int) -> Hashable | None:
        nonlocal room
        kind = type(value)
        if kind is str or kind is int or kind is float:
            return value if value == value else _NOT_A_NUMBER
        if kind is bool:
            return (bool, value)
        if value is None or value is ABSENT:
            return _NOTHING if with_nothing else None
        if kind not in _CONTAINERS or depth == _DEEPEST:
            return None
        room -= len(value)
        if room < 0:
            return None
        if kind is not dict:
            items = [item if type(item) in _OWN_KEY else key(item, depth + 1) for item in value]
            return None if None in items else (list, *items)
        known = with_nothing or bool(value)
        entries: list[tuple[Any, Hashable]] = []
        for name, item in value.items():
            inside = item if type(item) in _OWN_KEY else key(item, depth + 1)
            if inside is None:
                known = False
            elif inside is not _NOTHING:
                entries.append((name, inside))
        return (frozenset(entries) or _NOTHING) if known else None

    return [key(value, 0) for value in values]


def surely_differ(one: Any, other: Any) -> bool:
    """Whether two dictionaries differ in a text or a whole number, so that there is no need to make their keys.

    It takes a tenth of the time of making them. `False` says nothing: the two may differ all the same.
    """
    if type(one) is not dict or type(other) is not dict:
        return False
    for name, value in one.items():
        if type(value) in _OWN_KEY:
            found = other.get(name)
            if type(found) in _OWN_KEY and found != value:
                return True
    return False
