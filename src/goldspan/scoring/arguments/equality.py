"""Decides whether an expected and a called plain value are equal.

An absent key equals `None`, and `None` equals `{}`. 1 equals 1.0, but `True` is not a number; NaN equals NaN; lists
are ordered, and a tuple is a list. A float equals a number within `NUMBER_TOLERANCE`, so that 0.1 + 0.2 equals 0.3;
integers are exact. Texts are equal in Unicode normal form C, however an "é" is composed; the keys of dictionaries are
exact. Because of the tolerance, equality is reflexive and symmetric but not transitive.

No function here is recursive: values can be nested to any depth, contain themselves, and have types that raise when
they are compared.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Hashable, Mapping
from math import isclose
from typing import Any, TypeAlias

from goldspan.goldens.text_matching import compose_unicode
from goldspan.model import ABSENT, ExpectedTool
from goldspan.scoring.arguments.schema_coercion import SchemaShape

_MARSHAL_VERSION = 2  # the last format without references, which depend on object identity


def content_key(value: Any) -> Hashable:
    """Returns a key: values with the same key agree with the same values. Equal values can have different keys.

    A value that contains more than plain data, such as a matcher, has a key that no other value has.
    """
    if value is None or isinstance(value, str):
        return value
    try:
        # Unlike JSON, `marshal` distinguishes 1, 1.0 and True; unlike a hash, it accepts dictionaries.
        return marshal.dumps(value, _MARSHAL_VERSION)
    except ValueError:
        return id(value)


def expectation_key(tool: ExpectedTool) -> Hashable:
    """Returns a key: expected tools with the same key are matched equally well by the same calls."""
    if tool.arguments is None and tool.result is ABSENT:
        return tool.name, tool.server
    contents = tool.arguments, tool.result, tool.defaults
    return tool.name, tool.server, tool.match, tool.ignore, *map(content_key, contents)


def is_plain_expectation(tool: ExpectedTool) -> bool:
    """Whether a tool states only plain data, which is fast to compare, and no matcher."""
    return all(
        not isinstance(content_key(stated), int) for stated in (tool.arguments, tool.result) if stated is not ABSENT
    )


SCALAR_TYPES = frozenset({bool, float, int, str})
"""The types of most arguments. Values of one of these types have no parts."""

NUMBER_TOLERANCE = 1e-9
"""The relative difference up to which a float equals another number."""

LeafPredicate: TypeAlias = Callable[[Any, Any, SchemaShape | None], bool]
"""Returns whether a called value is the expected one, for values that are not both dictionaries or both lists."""


def equal(expected: Any, called: Any) -> bool:
    """Whether a called value equals the expected one. Matchers are compared as plain values."""
    if type(expected) is type(called) and type(expected) in SCALAR_TYPES:
        return leaf_equal(expected, called)
    return structurally_equal(expected, called, leaf_equal)


def leaf_equal(wanted: Any, given: Any, _: SchemaShape | None = None) -> bool:
    """Whether two values are equal that are not both dictionaries or both lists."""
    if wanted is given:
        return True
    try:
        if type(wanted) is not type(given):
            if is_none_or_absent(wanted) and is_none_or_absent(given):
                return True
            if isinstance(wanted, bool) is not isinstance(given, bool):
                return False
        return bool(wanted == given) or _equal_within_tolerance(wanted, given)
    except Exception:  # noqa: BLE001 - values of the application's types can raise anything when they are compared
        return False


def _equal_within_tolerance(wanted: Any, given: Any) -> bool:
    """Whether two values are equal for which `==` is false."""
    kind = type(wanted)
    if kind is type(given) and (kind is int or (kind is str and wanted.isascii() and given.isascii())):
        return False  # the most common case
    if isinstance(wanted, str):
        return isinstance(given, str) and text_equal(wanted, given)
    numbers = isinstance(wanted, _NUMBER_TYPES) and isinstance(given, _NUMBER_TYPES)
    if numbers and (isinstance(wanted, float) or isinstance(given, float)) and is_close(wanted, given):
        return True
    return bool(wanted != wanted and given != given)  # both are NaN


_NUMBER_TYPES = (int, float)
"""A tuple: `isinstance` takes half the time that it takes with `int | float`."""


def text_equal(one: str, other: str) -> bool:
    """Whether two texts for which `==` is false are equal in Unicode normal form C."""
    if one.isascii() and other.isascii():
        return False
    # Equal texts differ in length by a factor of four at most (UAX #15, section 12.1).
    return len(one) <= 4 * len(other) and len(other) <= 4 * len(one) and compose_unicode(one) == compose_unicode(other)


def is_close(one: float, other: float, tolerance: float = NUMBER_TOLERANCE) -> bool:
    """Whether two numbers are equal within a relative tolerance. An integer too large for a float is close to none."""
    try:
        return isclose(one, other, rel_tol=tolerance)
    except OverflowError:
        return False


def structurally_equal(expected: Any, called: Any, leaf: LeafPredicate, shape: SchemaShape | None = None) -> bool:
    """Whether two values have the same keys and items, and all their leaves agree.

    With the `shape` of a JSON schema, an absent value has its default, and values that differ as written are converted
    to the type in the schema and compared again.
    """
    pending: list[_ValuePair] = [(expected, called, shape)]
    known: dict[tuple[int, int, int], _ValuePair] = {}
    while pending:
        pair = pending.pop()
        wanted, given, shape = pair
        inner = _child_pairs(wanted, given, shape)
        if inner is not None:
            # A pair that occurred before is compared only once, so that cyclic values end.
            if known.setdefault((id(wanted), id(given), id(shape)), pair) is pair:
                pending.extend(inner)
        elif not leaf(wanted, given, shape):
            if shape is None:
                return False
            one, other = shape.coerce(wanted), shape.coerce(given)
            if one is wanted and other is given:
                return False
            pending.append((one, other, shape))
    return True


def shallowly_equal(wanted: Any, given: Any) -> bool:
    """Whether both are equal dictionaries of scalars and small containers of scalars, as most equal arguments are."""
    if type(wanted) is not dict or type(given) is not dict or len(wanted) != len(given):
        return False
    for key, one in wanted.items():
        other = given.get(key, ABSENT)
        if type(one) is not type(other):
            return False
        if type(one) in SCALAR_TYPES:
            if one != other:
                return False
        elif not _are_small_containers_equal(one, other):
            return False
    return True


def _are_small_containers_equal(one: Any, other: Any) -> bool:
    """Whether two values of one type are equal short lists, or small dictionaries, of scalars."""
    if (type(one) is not list and type(one) is not dict) or not len(one) == len(other) <= _MAX_SHALLOW_ITEMS:
        return False
    values, others = (one, other) if isinstance(one, list) else (one.values(), [other.get(key, ABSENT) for key in one])
    for value, found in zip(values, others, strict=True):
        if type(value) is not type(found) or type(value) not in SCALAR_TYPES or value != found:
            return False
    return True


_MAX_SHALLOW_ITEMS = 32
"""The number of values in a small container. A long list can occur many times, and only the full comparison remembers
which values it has compared."""


def fill_default(wanted: Any, given: Any, default: Any) -> tuple[Any, Any]:
    """Returns both values, with the default in place of a missing one. If both are missing, no default applies."""
    if wanted is ABSENT and not is_none_or_absent(given):
        return default, given
    if given is ABSENT and not is_none_or_absent(wanted):
        return wanted, default
    return wanted, given


def as_dictionary(value: Any) -> dict[Any, Any] | None:
    """Returns a mapping as a dictionary; `None` for any other value, and for a mapping that raises."""
    if type(value) is dict:
        return value
    try:
        return dict(value) if isinstance(value, Mapping) else None
    except Exception:  # noqa: BLE001 - a mapping of the application's types can raise anything
        return None


def as_list(value: Any) -> list[Any] | tuple[Any, ...] | None:
    """Returns a list or tuple; `None` for any other value."""
    if type(value) is list or type(value) is tuple:
        return value
    try:
        return list(value) if isinstance(value, list | tuple) else None
    except Exception:  # noqa: BLE001 - a list of the application's types can raise anything
        return None


def is_none_or_absent(value: Any) -> bool:
    """Whether a value is `None` or `ABSENT`, which are equal."""
    return value is None or value is ABSENT


_ValuePair: TypeAlias = tuple[Any, Any, SchemaShape | None]


def _child_pairs(wanted: Any, given: Any, shape: SchemaShape | None) -> list[_ValuePair] | None:
    """Returns the pairs of values inside two dictionaries, or two lists of one length; `None` for other values."""
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
    except Exception:  # noqa: BLE001 - a key of the application's types can raise when it is looked up
        return None
    return pairs
