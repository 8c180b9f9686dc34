"""When two plain values are the same: the one place where an expected and a called value meet.

A key that is absent equals `None`, and `None` equals `{}`. 1 equals 1.0, but `True` is no number; NaN equals NaN; lists
are ordered, and a tuple is a list. A float equals a number within `TOLERANCE`, so that 0.1 + 0.2 is 0.3; integers are
exact. Texts are equal in Unicode normal form C, so that it does not matter how an "é" is composed; the keys of
dictionaries are exact. Because of the tolerance, equality is reflexive and symmetric but not transitive.

Nothing here recurses over values: they may be nested as deeply as they like, hold themselves, and be of types that
refuse to be compared.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Hashable, Mapping
from math import isclose
from typing import Any, TypeAlias

from goldspan.goldens.text_matching import compose_unicode
from goldspan.model import ABSENT, ExpectedTool
from goldspan.scoring.arguments.schema_coercion import SchemaShape

_MARSHAL_VERSION = 2  # the last format without references, which would tell apart what only sits elsewhere in memory


def content_key(value: Any) -> Hashable:
    """What two values have in common that agree with the same things; others may differ and be equal all the same.

    A value that holds more than plain data, such as a matcher, has this in common with itself only.
    """
    if value is None or isinstance(value, str):
        return value
    try:
        # Unlike JSON it tells 1, 1.0 and True apart, and unlike a hash it takes dictionaries.
        return marshal.dumps(value, _MARSHAL_VERSION)
    except ValueError:
        return id(value)


def expectation_key(tool: ExpectedTool) -> Hashable:
    """What two expected tools have in common that the same calls answer equally well."""
    if tool.arguments is None and tool.result is ABSENT:
        return tool.name, tool.server
    judged = tool.arguments, tool.result, tool.defaults
    return tool.name, tool.server, tool.match, tool.ignore, *map(content_key, judged)


def is_plain_expectation(tool: ExpectedTool) -> bool:
    """Whether a tool states only plain data, which is quickly compared, and no matcher."""
    return all(
        not isinstance(content_key(stated), int) for stated in (tool.arguments, tool.result) if stated is not ABSENT
    )


SCALAR_TYPES = frozenset({bool, float, int, str})
"""The types of most arguments. Two values of the same one of them agree or not without a look inside."""

NUMBER_TOLERANCE = 1e-9
"""By how much of the greater one a float and another number may differ and be equal."""

LeafPredicate: TypeAlias = Callable[[Any, Any, SchemaShape | None], bool]
"""Whether a called value is what was expected, where the two are not both dictionaries or both lists."""


def equal(expected: Any, called: Any) -> bool:
    """Whether a called value is the expected one. Matchers mean nothing here."""
    if type(expected) is type(called) and type(expected) in SCALAR_TYPES:
        return leaf_equal(expected, called)
    return structurally_equal(expected, called, leaf_equal)


def leaf_equal(wanted: Any, given: Any, _: SchemaShape | None = None) -> bool:
    """Whether two values are the same that are not both dictionaries or both lists."""
    if wanted is given:
        return True
    try:
        if type(wanted) is not type(given):
            if is_none_or_absent(wanted) and is_none_or_absent(given):
                return True
            if isinstance(wanted, bool) is not isinstance(given, bool):
                return False
        return bool(wanted == given) or _equal_within_tolerance(wanted, given)
    except Exception:  # noqa: BLE001 - values of a user's own types may compare as they like
        return False


def _equal_within_tolerance(wanted: Any, given: Any) -> bool:
    """Whether two values are equal that `==` tells apart."""
    kind = type(wanted)
    if kind is type(given) and (kind is int or (kind is str and wanted.isascii() and given.isascii())):
        return False  # as most that differ
    if isinstance(wanted, str):
        return isinstance(given, str) and text_equal(wanted, given)
    numbers = isinstance(wanted, _NUMBER_TYPES) and isinstance(given, _NUMBER_TYPES)
    if numbers and (isinstance(wanted, float) or isinstance(given, float)) and is_close(wanted, given):
        return True
    return bool(wanted != wanted and given != given)  # only NaN differs from itself


_NUMBER_TYPES = (int, float)
"""A tuple, which is checked in half the time that `int | float` takes."""


def text_equal(one: str, other: str) -> bool:
    """Whether two texts that `==` tells apart are equal in Unicode normal form C."""
    if one.isascii() and other.isascii():
        return False
    # No text has more than four times the characters of another that it equals (UAX #15, section 12.1).
    return len(one) <= 4 * len(other) and len(other) <= 4 * len(one) and compose_unicode(one) == compose_unicode(other)


def is_close(one: float, other: float, tolerance: float = NUMBER_TOLERANCE) -> bool:
    """Whether two numbers differ by so little of the greater one. An integer too great for a float is close to none."""
    try:
        return isclose(one, other, rel_tol=tolerance)
    except OverflowError:
        return False


def structurally_equal(expected: Any, called: Any, leaf: LeafPredicate, shape: SchemaShape | None = None) -> bool:
    """Whether two values have the same keys and items, and all their leaves agree.

    Where a JSON schema gives them a `shape`, an absent value is its default, and what does not agree as written may
    still agree as the schema reads it.
    """
    waiting: list[_ValuePair] = [(expected, called, shape)]
    met: dict[tuple[int, int, int], _ValuePair] = {}
    while waiting:
        pair = waiting.pop()
        wanted, given, shape = pair
        inner = _child_pairs(wanted, given, shape)
        if inner is not None:
            # What was met before, in these places, is being compared already: so circles end.
            if met.setdefault((id(wanted), id(given), id(shape)), pair) is pair:
                waiting.extend(inner)
        elif not leaf(wanted, given, shape):
            if shape is None:
                return False
            read, found = shape.coerce(wanted), shape.coerce(given)
            if read is wanted and found is given:
                return False
            waiting.append((read, found, shape))
    return True


def fill_default(wanted: Any, given: Any, default: Any) -> tuple[Any, Any]:
    """Both values, with the default for the one that is left out. Two sides without a value need none."""
    if wanted is ABSENT and not is_none_or_absent(given):
        return default, given
    if given is ABSENT and not is_none_or_absent(wanted):
        return wanted, default
    return wanted, given


def as_dictionary(value: Any) -> dict[Any, Any] | None:
    """A mapping of any kind as a dictionary; `None` for anything else, and for a mapping that cannot be read."""
    if type(value) is dict:
        return value
    try:
        return dict(value) if isinstance(value, Mapping) else None
    except Exception:  # noqa: BLE001 - a user's own mapping may do as it likes
        return None


def as_list(value: Any) -> list[Any] | tuple[Any, ...] | None:
    """A list or tuple; `None` for anything else."""
    if type(value) is list or type(value) is tuple:
        return value
    try:
        return list(value) if isinstance(value, list | tuple) else None
    except Exception:  # noqa: BLE001 - a user's own list may do as it likes
        return None


def is_none_or_absent(value: Any) -> bool:
    """Whether it is `None` or not there at all, which is the same."""
    return value is None or value is ABSENT


_ValuePair: TypeAlias = tuple[Any, Any, SchemaShape | None]


def _child_pairs(wanted: Any, given: Any, shape: SchemaShape | None) -> list[_ValuePair] | None:
    """What must agree inside two dictionaries or two lists of one length; `None` for anything else."""
    if type(wanted) in SCALAR_TYPES or type(given) in SCALAR_TYPES:
        return None
    one, other = as_dictionary(wanted), as_dictionary(given)
    if one is None and other is not None and is_none_or_absent(wanted):
        one = {}
    elif other is None and one is not None and is_none_or_absent(given):
        other = {}
    if one is not None and other is not None:
        return _dictionary_pairs(one, other, shape)
    items, others = as_list(wanted), as_list(given)
    if items is None or others is None or len(items) != len(others):
        return None
    pairs = zip(items, others, strict=True)
    return [(item, found, shape and shape.item(at)) for at, (item, found) in enumerate(pairs)]


def _dictionary_pairs(
    wanted: dict[Any, Any], given: dict[Any, Any], shape: SchemaShape | None
) -> list[_ValuePair] | None:
    pairs: list[_ValuePair] = []
    try:
        for key in {**wanted, **given}:
            one, other = wanted.get(key, ABSENT), given.get(key, ABSENT)
            inner = shape.property(key) if shape else None
            if inner is not None and inner.default is not ABSENT:
                one, other = fill_default(one, other, inner.default)
            pairs.append((one, other, inner))
    except Exception:  # noqa: BLE001 - a key of a user's own type may refuse to be looked up
        return None
    return pairs
