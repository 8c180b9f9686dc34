"""How far the arguments, and the result, of a call agree with the expected ones."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from math import fsum
from types import MappingProxyType
from typing import Any, TypeAlias

from goldspan._guard import suppress_errors
from goldspan.content.literals import parse_literal
from goldspan.goldens.text_matching import compose_unicode, normalize_text
from goldspan.model import ABSENT, Agreement, Difference, ExpectedTool, ToolCall
from goldspan.scoring.arguments.equality import (
    SCALAR_TYPES,
    as_dictionary,
    as_list,
    equal,
    fill_default,
    is_close,
    is_none_or_absent,
    leaf_equal,
)
from goldspan.scoring.arguments.matcher_evaluation import MatcherEvaluator
from goldspan.scoring.arguments.multisets import can_assign_all
from goldspan.scoring.arguments.schema_coercion import SchemaShape, schema_shape

_MAX_TEXT_CHARACTERS = 10_000
"""Characters of a text that is looked at."""
_MAX_LIST_ITEMS = 1_000
"""Items of a list that is looked at."""
_MAX_COMPARISONS = 20_000
"""Pairs of items that are laid beside each other."""


def matcher_hint(expected: Any, called: Any) -> str | None:
    """What would have accepted a called value that differs from a stated plain one; `None` where nothing simple would.

    It never raises, and takes milliseconds at worst.
    """
    try:
        return _find_hint(expected, called)
    except Exception:  # noqa: BLE001 - a hint is never worth an error
        return None


def _find_hint(expected: Any, called: Any) -> str | None:
    kind, its = type(expected), type(called)
    if max(_relative_length(expected, kind), _relative_length(called, its)) > 1:
        return None
    if kind is str and its is str:
        return _text_hint(expected, called)
    if kind in _LISTS and its in _LISTS:
        return _list_hint(expected, called)
    if kind in _NUMBERS and its in _NUMBERS:
        return _number_hint(expected, called)
    if kind is str or its is str:
        return _type_hint(expected, called)
    return None


_LISTS = frozenset({list, tuple})
_NUMBERS = frozenset({int, float})


def _relative_length(value: Any, kind: type) -> float:
    """How long a value is, as a share of what is looked at."""
    if kind is str:
        return len(value) / _MAX_TEXT_CHARACTERS
    return len(value) / _MAX_LIST_ITEMS if kind in _LISTS else 0.0


# --- texts ------------------------------------------------------------------------------------------------------------


def _text_hint(expected: str, called: str) -> str | None:
    if normalize_text(expected) == normalize_text(called):
        return f"differs only in {_folded_difference(expected, called)}: {{folded: ...}} accepts it"
    if _is_same_date(expected, called):
        return "is the same date in another notation: {one_of: [...]} accepts both"
    if len(expected.strip()) >= _MIN_CONTAINED_CHARACTERS and compose_unicode(expected) in compose_unicode(called):
        return "holds the expected text and more: {contains: ...} accepts it"
    return None


_MIN_CONTAINED_CHARACTERS = 3
"""Characters of a text that is not in others by chance."""


def _folded_difference(expected: str, called: str) -> str:
    if compose_unicode(expected).split() == compose_unicode(called).split():
        return "white space"
    if compose_unicode(compose_unicode(expected).casefold()) == compose_unicode(compose_unicode(called).casefold()):
        return "case"
    return "case and white space"


def _is_same_date(expected: str, called: str) -> bool:
    one, other = _parse_date(expected), _parse_date(called)
    if one is None or other is None or (one.tzinfo is None) is not (other.tzinfo is None):
        return False
    return one == other


def _parse_date(text: str) -> datetime | None:
    """A date, or a date and a time, in ISO 8601."""
    found = _ISO_8601.fullmatch(text.strip()) if len(text) <= _MAX_DATE_CHARACTERS else None
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    moment = f"{year}-{month}-{day}T{hour or '00'}:{minute or '00'}:{second or '00'}.{(fraction or '')[:6]:0<6}"
    try:
        return datetime.fromisoformat(moment + _utc_offset(zone))
    except ValueError:
        return None


def _utc_offset(zone: str | None) -> str:
    if zone is None:
        return ""
    digits = zone[1:].replace(":", "")
    return f"{zone[0]}{digits[:2]}:{digits[2:] or '00'}" if digits else "+00:00"


_MAX_DATE_CHARACTERS = 40
_ISO_8601 = re.compile(
    r"([0-9]{4})-?([0-9]{2})-?([0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):?([0-9]{2})(?::?([0-9]{2})(?:[.,]([0-9]{1,9}))?)?\s?([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
"""What Python 3.10 cannot read itself."""


# --- numbers and types ------------------------------------------------------------------------------------------------


def _number_hint(expected: float, called: float) -> str | None:
    if type(expected) is int and type(called) is int:
        return None  # numbers that count or name something are not nearly right
    if is_close(expected, called, _MILLIONTH):
        return "differs by less than a millionth: {approx: ...} accepts it"
    if is_close(expected, called, _THOUSANDTH):
        return "differs by about a thousandth or less: {approx: ..., relative: 0.001} accepts it"
    return None


# A bit less than what the matcher allows, which is relative to the expected number and not to the greater one.
_MILLIONTH, _THOUSANDTH = 0.99e-6, 0.99e-3


def _type_hint(expected: Any, called: Any) -> str | None:
    """For a text and a value of another type: whether a schema of that type reads the text as that value."""
    text, value = (expected, called) if type(expected) is str else (called, expected)
    shape = _SHAPE_BY_TYPE.get(type(value))
    if shape is None or not equal(shape.coerce(text), value):
        return None
    return "differs only in type: `parameters`, a JSON schema of the arguments, makes both the same"


def _shape_of_type(kind: str) -> SchemaShape | None:
    return schema_shape({"type": kind})


_SHAPE_BY_TYPE: Mapping[type, SchemaShape | None] = {
    int: _shape_of_type("number"),
    float: _shape_of_type("number"),
    bool: _shape_of_type("boolean"),
    list: _shape_of_type("array"),
    dict: _shape_of_type("object"),
}


# --- lists ------------------------------------------------------------------------------------------------------------


def _list_hint(expected: Sequence[Any], called: Sequence[Any]) -> str | None:
    left = _MAX_COMPARISONS

    def look() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise TimeoutError

    if not expected or not can_assign_all(expected, called, equal, on_comparison=look):
        return None
    if len(expected) == len(called):
        return "differs only in the order of its items: {unordered: [...]} accepts it"
    return "holds the expected items and more: {contains: [...]} accepts it"


_DifferenceFields: TypeAlias = "tuple[str, Any, Any, str | None]"
_RawAgreement: TypeAlias = tuple[float, Sequence[_DifferenceFields]]
"""How far two values agree, from 0 to 1, and what each `Difference` is made of: most are only counted."""

_RAW_FULL_AGREEMENT: _RawAgreement = 1.0, ()
FULL_AGREEMENT = Agreement(1.0)
"""What agrees in everything."""


def argument_agreement(tool: ExpectedTool, call: ToolCall, schema: Mapping[str, Any] | None = None) -> Agreement | None:
    """Compare arguments key by key. `None` where the golden does not state them or the call's were not captured.

    Each key of either side has an equal share, with `match: subset` each key of the golden; a dictionary on both sides
    divides its share among its own keys. Everything else agrees or not as a whole, lists too. What the golden ignores
    is dropped from both sides first. Where one side leaves an argument out, its default stands for it: the one that the
    golden declares, else that of the tool's JSON `schema`. A value that does not agree as written may agree as the
    schema reads it: 5 and the text `5` are the same integer.

    Differences name the key as a dotted path, `payment.amount`; the key is empty where the arguments are no dictionary.
    """
    return _build_agreement(_compare_arguments(tool, call, schema))


def argument_share(tool: ExpectedTool, call: ToolCall, schema: Mapping[str, Any] | None = None) -> float | None:
    """The share of `agreement` alone, in less time."""
    found = _compare_arguments(tool, call, schema)
    return found and found[0]


def result_agreement(tool: ExpectedTool, call: ToolCall) -> Agreement | None:
    """Compare a result with the expected one: dictionaries by shares, as arguments are, everything else as a whole.

    A result that is text may say in JSON what the golden expects. `None` where the golden expects nothing of it, or the
    result was not captured: telemetry does not tell that from a tool that returned nothing, so that a result that is
    not there can agree with a golden, and can differ from it only where the call failed.
    """
    return _build_agreement(_compare_result(tool, call))


def result_share(tool: ExpectedTool, call: ToolCall) -> float | None:
    """The share of `result_agreement` alone, in less time."""
    found = _compare_result(tool, call)
    return found and found[0]


def _build_agreement(found: _RawAgreement | None) -> Agreement | None:
    if found is None:
        return None
    share, differences = found
    if not differences:
        return FULL_AGREEMENT
    told = [Difference(*each, _difference_hint(*each)) for each in islice(differences, _MAX_HINTS)]
    told += [Difference(*each) for each in islice(differences, _MAX_HINTS, None)]
    return Agreement(share, tuple(told))


_MAX_HINTS = 20
"""So many differences of a call come with a hint: nobody reads more of them."""


def _difference_hint(key: str, expected: Any, called: Any, note: str | None) -> str | None:
    """What would have accepted the value; nothing where the two could not be compared."""
    return matcher_hint(expected, called) if note is None else None


def _compare_arguments(tool: ExpectedTool, call: ToolCall, schema: Mapping[str, Any] | None) -> _RawAgreement | None:
    wanted, given = tool.arguments, call.arguments
    if wanted is None or given is None:
        return None
    try:
        if _are_shallowly_equal(wanted, given):  # and so they are whatever is ignored, left out or read otherwise
            return _RAW_FULL_AGREEMENT
        if tool.ignore:
            wanted, given = _without_ignored(wanted, tool.ignore), _without_ignored(given, tool.ignore)
        comparing = _KeywiseComparison(tool.match == "subset", tool.defaults)
        return comparing.compare(wanted, given, schema_shape(schema) if schema else None)
    except Exception:  # even keys may be of a user's own type, and refuse to be looked up or shown
        with suppress_errors("compare the arguments of a call"):
            raise
        return 0.0, [("", wanted, given, None)]


def _compare_result(tool: ExpectedTool, call: ToolCall) -> _RawAgreement | None:
    wanted, given = tool.result, call.result
    if wanted is ABSENT:
        return None
    try:
        if given is not None:
            return _compare_text_or_parsed_json(wanted, given)
        share, differences = _KeywiseComparison().compare(wanted, ABSENT, None)
        ended = call.outcome is not None or call.error is not None
        failed = call.outcome == "error" or call.error is not None
        return (share, differences) if failed or (ended and not differences) else None
    except Exception:
        with suppress_errors("compare the result of a call"):
            raise
        return 0.0, [("", wanted, given, None)]


def _are_shallowly_equal(wanted: Any, given: Any) -> bool:
    """Whether both are the same dictionary of simple values and a few more inside, as most are that agree at all."""
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
    """Whether two values of one type are the same short list, or small dictionary, of simple values."""
    if (type(one) is not list and type(one) is not dict) or not len(one) == len(other) <= _MAX_SHALLOW_ITEMS:
        return False
    values, others = (one, other) if isinstance(one, list) else (one.values(), [other.get(key, ABSENT) for key in one])
    for value, found in zip(values, others, strict=True):
        if type(value) is not type(found) or type(value) not in SCALAR_TYPES or value != found:
            return False
    return True


_MAX_SHALLOW_ITEMS = 32
"""So many values inside are looked at: one long list may stand in many places, and only the whole comparison remembers
what it has met before."""


def _compare_text_or_parsed_json(wanted: Any, given: Any) -> _RawAgreement:
    as_written = _KeywiseComparison().compare(wanted, given, None)
    if not as_written[1] or not isinstance(given, str) or isinstance(wanted, str):
        return as_written
    read = parse_literal(given) if len(given) <= _MAX_RESULT_CHARACTERS else ABSENT
    if read is ABSENT:
        return as_written
    as_read = _KeywiseComparison().compare(wanted, read, None)
    return as_read if as_read[0] > as_written[0] or isinstance(wanted, Mapping) else as_written


_MAX_RESULT_CHARACTERS = 1_000_000
"""Characters of a result that are read: more than any model is given."""


# --- by shares --------------------------------------------------------------------------------------------------------


_NO_DEFAULTS: Mapping[str, Any] = MappingProxyType({})
_MAX_DEPTH = 100
_MAX_DICTIONARIES = 10_000
"""What lies deeper, or comes after so many, agrees or not as a whole: dictionaries that hold one another several times
are as good as endless."""
_PendingDictionaries: TypeAlias = tuple[str, dict[Any, Any], dict[Any, Any], int, SchemaShape | None, int]
"""Two dictionaries: the path to what is inside of them, both, their share as one of so many, shape and depth."""


class _KeywiseComparison:
    """One comparison by shares, key by key."""

    __slots__ = ("_agreeing", "_defaults", "_differences", "_judge", "_met", "_subset", "_waiting")

    def __init__(self, subset: bool = False, defaults: Mapping[str, Any] = _NO_DEFAULTS) -> None:
        self._subset = subset
        self._defaults = defaults
        self._judge = MatcherEvaluator()
        self._agreeing: dict[int, int] = {}  # by share: how many keys agree that have one of so many equal shares
        self._differences: list[_DifferenceFields] = []
        self._waiting: list[_PendingDictionaries] = []
        self._met = 0

    def compare(self, wanted: Any, given: Any, shape: SchemaShape | None) -> _RawAgreement:
        """How far the two agree: as a whole, where they are not both dictionaries."""
        one = wanted if type(wanted) is dict else as_dictionary(wanted)
        other = given if type(given) is dict else as_dictionary(given)
        if one is None or other is None:
            if self._judge.agrees(wanted, given, shape):
                return _RAW_FULL_AGREEMENT
            return 0.0, [("", wanted, given, self._judge.note)]
        self._compare_keys("", one, other, 1, shape, 0)
        while self._waiting:
            self._compare_keys(*self._waiting.pop())
        if not self._differences:
            return _RAW_FULL_AGREEMENT
        if not self._agreeing:
            return 0.0, self._differences
        share = fsum([count / shares for shares, count in self._agreeing.items()])
        return min(share, 1.0), self._differences

    def _compare_keys(
        self,
        start: str,
        wanted: dict[Any, Any],
        given: dict[Any, Any],
        shares: int,
        shape: SchemaShape | None,
        depth: int,
    ) -> None:
        keys = wanted if self._subset else {**wanted, **given}
        shares *= len(keys) or 1
        agreeing = 0 if keys else 1
        for key in keys:
            one, other = wanted.get(key, ABSENT), given.get(key, ABSENT)
            simple = type(one) in SCALAR_TYPES and type(other) in SCALAR_TYPES
            if simple and leaf_equal(one, other):  # the quickest way first
                agreeing += 1
                continue
            path = f"{start}{key}"
            inner = shape.property(key) if shape else None
            if simple and (inner is None or (inner.coerce(one) is one and inner.coerce(other) is other)):
                self._differences.append((path, one, other, None))
                continue
            if one is ABSENT or other is ABSENT:
                default = self._defaults.get(path, inner.default if inner else ABSENT)
                one, other = fill_default(one, other, default)
            if type(other) not in SCALAR_TYPES and self._enqueue_nested(path, one, other, shares, inner, depth + 1):
                continue
            if self._judge.agrees(one, other, inner):
                agreeing += 1
            else:
                self._differences.append((path, one, other, self._judge.note))
        if agreeing:
            self._agreeing[shares] = self._agreeing.get(shares, 0) + agreeing

    def _enqueue_nested(
        self, path: str, wanted: Any, given: Any, shares: int, shape: SchemaShape | None, depth: int
    ) -> bool:
        """Whether both are dictionaries, which are then compared key by key in their turn."""
        if type(wanted) in SCALAR_TYPES or depth > _MAX_DEPTH or self._met > _MAX_DICTIONARIES:
            return False
        one, other = as_dictionary(wanted), as_dictionary(given)
        if one is None or other is None:
            if not any(name.startswith(f"{path}.") for name in self._defaults):
                return False
            # Where a dictionary is left out, the declared defaults in it stand for it.
            one = {} if is_none_or_absent(wanted) else one
            other = {} if is_none_or_absent(given) else other
        if one is None or other is None:
            return False
        self._met += 1
        self._waiting.append((f"{path}.", one, other, shares, shape, depth))
        return True


def _without_ignored(value: Any, paths: Sequence[str], depth: int = 0) -> Any:
    """The value without what lies at these dotted paths, in dictionaries and in lists of them."""
    if not paths or depth == _MAX_DEPTH:
        return value
    items = as_list(value)
    if items is not None:
        return [_without_ignored(item, paths, depth + 1) if as_list(item) is None else item for item in items]
    entries = as_dictionary(value)
    if entries is None:
        return value
    kept = {}
    for key, item in entries.items():
        if key not in paths:
            start = f"{key}."
            kept[key] = _without_ignored(
                item, [path[len(start) :] for path in paths if path.startswith(start)], depth + 1
            )
    return kept
