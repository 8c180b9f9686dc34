"""Decides whether the expected items of a list can be assigned to different called items."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from itertools import chain
from math import inf
from types import MappingProxyType
from typing import Any

from goldspan.goldens.text_matching import compose_unicode
from goldspan.model import ABSENT
from goldspan.scoring.arguments.equality import NUMBER_TOLERANCE, equal, is_close, leaf_equal, shallowly_equal

ItemPredicate = Callable[[Any, Any], bool]
"""Returns whether a called item is accepted for an expected one. It treats equal items equally."""
OnComparison = Callable[[], None]
"""Called for each pair that is compared; it can raise to end the comparison."""


def can_assign_all(
    wanted: Sequence[Any],
    given: Sequence[Any],
    fits: ItemPredicate,
    *,
    on_comparison: OnComparison,
    coerce: Callable[[Any], Any] | None = None,
) -> bool:
    """Whether every expected item can be assigned a different called item that fits.

    The result is exact. Equal items are matched by hash; only the remaining ones are compared in pairs. `coerce`
    converts items to the form in which they are compared.
    """
    if len(wanted) > len(given):
        return False
    left = _remove_equal_items(wanted, given, coerce)
    return left is not None and _has_complete_assignment(*left, fits, on_comparison)


def _remove_equal_items(
    wanted: Sequence[Any], given: Sequence[Any], coerce: Callable[[Any], Any] | None
) -> tuple[list[Any], list[Any]] | None:
    """Returns the items of both sides without an equal one; `None` if an expected item can match no other item.

    Plain expected items come first, because they fail fastest.
    """
    wanted_read, given_read = (list(map(coerce, items)) if coerce else items for items in (wanted, given))
    wanted_keys, given_keys = _comparison_keys(wanted_read, given_read)
    places: dict[Hashable, list[int]] = {}
    for place in reversed(range(len(given))):
        places.setdefault(given_keys[place], []).append(place)
    plain, others, taken = list[Any](), list[Any](), set[int]()
    for item, key in zip(wanted, wanted_keys, strict=True):
        if key is None:
            others.append(item)
        elif places.get(key):
            taken.add(places[key].pop())
        elif None not in places and (coerce is None or type(key) in _EXACT_KEY_TYPES):
            return None
        else:
            plain.append(item)
    return plain + others, [item for place, item in enumerate(given) if place not in taken]


def _comparison_keys(
    wanted: Sequence[Any], given: Sequence[Any]
) -> tuple[Sequence[Hashable | None], Sequence[Hashable | None]]:
    """Returns the `equality_keys` of two sides, with `None` also for items that must be compared in pairs."""
    keys = equality_keys([*wanted, *given])
    if None in keys[: len(wanted)]:  # these may be matchers, which can distinguish equal values
        keys = equality_keys([*wanted, *given], as_written=True)
    apart = [None if type(key) is ToleranceKey else key for key in keys]
    return apart[: len(wanted)], apart[len(wanted) :]


def _has_complete_assignment(
    wanted: Sequence[Any], given: Sequence[Any], fits: ItemPredicate, on_comparison: OnComparison
) -> bool:
    """Whether augmenting paths, found breadth first, assign every expected item a place."""
    holder: dict[int, int] = {}
    place_of: dict[int, int] = {}
    known: dict[tuple[int, int], bool] = {}

    def fitting(item: int, place: int) -> bool:
        on_comparison()
        at = item, place
        if at not in known:
            known[at] = fits(wanted[item], given[place])
        return known[at]

    for newcomer in range(len(wanted)):
        asked_by: dict[int, int] = {}
        place = _find_free_place(newcomer, len(given), fitting, holder, asked_by)
        if place is None:
            return False
        while place is not None:  # the items along the path each move to the next place
            item = asked_by[place]
            before = place_of.get(item)
            holder[place], place_of[item] = item, place
            place = before
    return True


def _find_free_place(
    newcomer: int, places: int, fitting: Callable[[int, int], bool], holder: dict[int, int], asked_by: dict[int, int]
) -> int | None:
    askers = [newcomer]
    for item in askers:  # the loop appends the holders of occupied places
        for place in chain(range(item, places), range(item)):  # lists are often in the same order
            if place not in asked_by and fitting(item, place):
                asked_by[place] = item
                if place not in holder:
                    return place
                askers.append(holder[place])
    return None


_EXACT_KEY_TYPES = frozenset({str, int, float})
"""The types of keys whose values equal only values with the same key."""

# --- keys -------------------------------------------------------------------------------------------------------------

_MAX_DEPTH = 32
_TEXT_AND_NUMBER_TYPES = frozenset({str, int, float})
_CONTAINER_TYPES = frozenset({list, tuple, dict})
_MAX_VALUES = 400_000
"""The number of nested values. Lists that contain each other several times can have too many of them."""
_NULL_KEY = ("nothing",)
_NAN_KEY = ("not a number",)
_NO_CLASSES: Mapping[float, Hashable] = MappingProxyType({})


class ToleranceKey:
    """The key of a value with a float that equals several numbers, which are not all equal to each other.

    Two of these keys are equal if their values are.
    """

    __slots__ = ("_common", "_value")

    def __init__(self, value: Any, common: Hashable) -> None:
        self._value = value
        self._common = hash(common)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ToleranceKey) and self._common == other._common and equal(self._value, other._value)

    def __hash__(self) -> int:
        return self._common


def equality_keys(values: Iterable[Any], *, as_written: bool = False) -> list[Hashable | None]:
    """Returns a key for each value, equal for equal values only. The keys are valid among these values only.

    The key is `None` if a value contains more than plain JSON values, is nested too deeply, or exceeds the number of
    values; with `as_written` also if a matcher can distinguish it from an equal value, such as `None` from `{}`.
    """
    values = list(values)
    keys = _KeyBuilder(as_written)
    found = keys.build(values)
    respelled = keys.respelled if as_written else frozenset[str]()
    classes = _tolerance_classes(keys.floats, _exact_numbers(values)) if keys.floats else {}
    return _KeyBuilder(as_written, classes, respelled).build(values) if classes or respelled else found


class _KeyBuilder:
    """Builds the keys of values. A first pass collects the floats and texts that a second pass may need."""

    __slots__ = ("_as_written", "_classes", "_near", "_own_key", "_respelled", "_room", "floats", "respelled")

    def __init__(
        self, as_written: bool, classes: Mapping[float, Hashable] = _NO_CLASSES, respelled: Set[str] = frozenset()
    ) -> None:
        self._as_written = as_written
        self._classes = classes
        self._respelled = respelled
        self._own_key = None if classes or respelled else int
        self._near = False
        self._room = _MAX_VALUES
        self.floats: set[float] = set()
        """The floats that may equal other numbers."""
        self.respelled: set[str] = set()
        """The texts that were not in Unicode normal form, converted to it."""

    def build(self, values: Iterable[Any]) -> list[Hashable | None]:
        """Returns the key of each value."""
        return [self._top_level_key(value) for value in values]

    def _top_level_key(self, value: Any) -> Hashable | None:
        self._near = False
        key = self._key(value, 0)
        return ToleranceKey(value, key) if self._near and key is not None else key

    def _key(self, value: Any, depth: int) -> Hashable | None:
        kind = type(value)
        if kind is str:
            return value if self._own_key and value.isascii() else self._text(value)
        if kind is int or kind is float:
            return self._number(value)
        if kind is bool:
            return (bool, value)
        if value is None or value is ABSENT:
            return None if self._as_written else _NULL_KEY
        if kind not in _CONTAINER_TYPES or depth == _MAX_DEPTH:
            return None
        self._room -= len(value)
        if self._room < 0:
            return None
        if kind is not dict:
            own = self._own_key
            items = [item if type(item) is own else self._key(item, depth + 1) for item in value]
            return None if None in items else (list, *items)
        return self._entries(value, depth + 1)

    def _entries(self, value: dict[Any, Any], depth: int) -> Hashable | None:
        known, own = not self._as_written or bool(value), self._own_key
        entries: list[tuple[Any, Hashable]] = []
        for name, item in value.items():
            inside = item if type(item) is own else self._key(item, depth)
            if inside is None:
                known = False
            elif inside is not _NULL_KEY:
                entries.append((name, inside))
        return (frozenset(entries) or _NULL_KEY) if known else None

    def _text(self, value: str) -> Hashable | None:
        key = compose_unicode(value)
        if key != value:
            self.respelled.add(key)
        return None if key in self._respelled else key

    def _number(self, value: float) -> Hashable | None:
        if value != value:
            return _NAN_KEY
        if type(value) is float and not _is_exact(value):
            self.floats.add(value)
        key = self._classes.get(value)
        if key is None:
            return value
        if self._as_written:
            return None
        self._near = self._near or type(key) is tuple
        return key


def certainly_differ(one: Any, other: Any) -> bool:
    """Whether two dictionaries certainly differ in a text or a number, so that their keys are not needed.

    It takes a tenth of the time of the keys. If it is false, the two can still differ.
    """
    if type(one) is not dict or type(other) is not dict:
        return False
    for name, value in one.items():
        if type(value) in _TEXT_AND_NUMBER_TYPES:
            found = other.get(name)
            if type(found) not in _TEXT_AND_NUMBER_TYPES or found == value:
                continue
            if (type(found) is int and type(value) is int) or not leaf_equal(value, found):
                return True
    return False


def plain_keys(values: Sequence[Any]) -> list[int] | None:
    """Returns a key for each of a few values, equal for equal values only, in a fifth of the time of `equality_keys`.

    `None`: two values are neither certainly different, nor equal dictionaries of scalars and small containers.
    """
    keys: list[int] = []
    for at, value in enumerate(values):
        own = at
        for earlier in set(keys):
            if certainly_differ(values[earlier], value):
                continue
            if not shallowly_equal(values[earlier], value):
                return None
            own = earlier
            break
        keys.append(own)
    return keys


# --- numbers within the tolerance -------------------------------------------------------------------------------------


def _tolerance_classes(floats: Set[float], exact: Set[float]) -> Mapping[float, Hashable]:
    """Returns the shared keys of numbers that can equal others among these; a tuple if not all of them are equal.

    Rounding can move the limit of the tolerance. Numbers are therefore grouped within twice the tolerance, and count as
    certainly equal within half of it; otherwise the keys compare the values.
    """
    classes: dict[float, Hashable] = {}
    for run in _group_close_numbers(sorted(floats | exact)):
        if len(run) > 1 and not floats.isdisjoint(run):
            are_equal = is_close(run[0], run[-1], NUMBER_TOLERANCE / 2) and sum(number in exact for number in run) <= 1
            classes |= dict.fromkeys(run, run[0] if are_equal else ("about", run[0]))
    return classes


def _group_close_numbers(ascending: Iterable[float]) -> list[list[float]]:
    """Returns the numbers in groups in which each is close to the next one."""
    runs: list[list[float]] = []
    for number in ascending:
        if runs and is_close(runs[-1][-1], number, 2 * NUMBER_TOLERANCE):
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs


def _is_exact(number: float) -> bool:
    """Whether a number equals no other exact number. All integers are exact."""
    return abs(number) == inf or (number.is_integer() and abs(number) < _MAX_EXACT)


_MAX_EXACT = 0.4 / NUMBER_TOLERANCE
"""Integers below this number differ by more than twice the tolerance."""


def _exact_numbers(values: Iterable[Any]) -> Set[float]:
    """Returns the integers, and the exact floats, at any depth."""
    found: set[float] = set()
    waiting = list(values)
    met: set[int] = set()
    while waiting:
        value = waiting.pop()
        kind = type(value)
        if kind is int or (kind is float and _is_exact(value)):
            found.add(value)
        elif kind in _CONTAINER_TYPES and id(value) not in met:
            met.add(id(value))
            waiting.extend(value.values() if kind is dict else value)
    return found
