"""Computes how far the arguments and the result of a call agree with the expected ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from types import MappingProxyType
from typing import Any, TypeAlias

from goldspan._guard import suppress_errors
from goldspan.content.literals import parse_literal
from goldspan.model import ABSENT, Agreement, Difference, ExpectedTool, ToolCall, fast_constructor
from goldspan.scoring.arguments.equality import (
    SCALAR_TYPES,
    as_dictionary,
    as_list,
    fill_default,
    is_none_or_absent,
    leaf_equal,
    shallowly_equal,
)
from goldspan.scoring.arguments.matcher_evaluation import MatcherEvaluator
from goldspan.scoring.arguments.matcher_hints import matcher_hint
from goldspan.scoring.arguments.schema_coercion import SchemaShape, schema_shape

_DifferenceFields: TypeAlias = "tuple[str, Any, Any, str | None]"
_RawAgreement: TypeAlias = tuple[float, Sequence[_DifferenceFields]]
"""How far two values agree, from 0 to 1, and the fields of each `Difference`."""

_RAW_FULL_AGREEMENT: _RawAgreement = 1.0, ()
FULL_AGREEMENT = Agreement(1.0)
"""The agreement of equal values."""


def argument_agreement(tool: ExpectedTool, call: ToolCall, schema: Mapping[str, Any] | None = None) -> Agreement | None:
    """Compare arguments key by key. Returns `None` if the golden does not state them or they were not captured.

    Each key of either side has an equal share, or with `match: subset` each key of the golden; if both sides have a
    dictionary, its share is divided among its keys. All other values, including lists, agree completely or not at all.
    Arguments that the golden ignores are removed from both sides first. An argument that one side leaves out has its
    default: the one that the golden declares, else that of the tool's JSON `schema`. Values that differ as written are
    converted to the type in the schema and compared again: 5 and the text `5` are the same integer.

    Differences have the key as a dotted path, `payment.amount`; it is empty if the arguments are not a dictionary.
    """
    return _build_agreement(_compare_arguments(tool, call, schema))


def argument_share(tool: ExpectedTool, call: ToolCall, schema: Mapping[str, Any] | None = None) -> float | None:
    """Returns only the share of `argument_agreement`, in less time."""
    found = _compare_arguments(tool, call, schema)
    return found and found[0]


def result_agreement(tool: ExpectedTool, call: ToolCall) -> Agreement | None:
    """Compare a result with the expected one: dictionaries by shares, like arguments, and all other values completely.

    A result that is text can contain the expected value as JSON. Returns `None` if the golden does not state a result,
    or the result was not captured. Telemetry does not distinguish a result that was not captured from a tool that
    returned nothing. A missing result can therefore agree with the golden, and differs from it only if the call failed.
    """
    return _build_agreement(_compare_result(tool, call))


def result_share(tool: ExpectedTool, call: ToolCall) -> float | None:
    """Returns only the share of `result_agreement`, in less time."""
    found = _compare_result(tool, call)
    return found and found[0]


def _build_agreement(found: _RawAgreement | None) -> Agreement | None:
    if found is None:
        return None
    share, differences = found
    if not differences:
        return FULL_AGREEMENT
    found_differences = [_Difference(*each) for each in differences]
    for difference in found_differences[:_MAX_HINTS]:
        if difference.note is None:  # else the values could not be compared
            difference.with_deferred_hint(matcher_hint)
    return Agreement(share, tuple(found_differences))


_Difference = fast_constructor(Difference)
_MAX_HINTS = 20
"""The number of differences of a call that get a hint."""


def _compare_arguments(tool: ExpectedTool, call: ToolCall, schema: Mapping[str, Any] | None) -> _RawAgreement | None:
    wanted, given = tool.arguments, call.arguments
    if wanted is None or given is None:
        return None
    try:
        if shallowly_equal(wanted, given):  # then ignored keys, defaults and schemas make no difference
            return _RAW_FULL_AGREEMENT
        if tool.ignore:
            wanted, given = _without_ignored(wanted, tool.ignore), _without_ignored(given, tool.ignore)
        comparing = _KeywiseComparison(tool.match == "subset", tool.defaults)
        return comparing.compare(wanted, given, schema_shape(schema) if schema else None)
    except Exception:  # even keys can have types of the application that raise when they are looked up or shown
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
"""The characters of the longest result that is parsed: more than any model receives."""


# --- by shares --------------------------------------------------------------------------------------------------------


_NO_DEFAULTS: Mapping[str, Any] = MappingProxyType({})
_MAX_DEPTH = 100
_MAX_DICTIONARIES = 10_000
"""Dictionaries that are nested deeper, or exceed this number, are compared completely instead of key by key: mutually
nested dictionaries can be practically endless."""
_PendingDictionaries: TypeAlias = tuple[str, dict[Any, Any], dict[Any, Any], int, SchemaShape | None, int]
"""Two dictionaries to compare: the path prefix, both, the divisor of their share, the shape, and the depth."""


class _KeywiseComparison:
    """Compares two values by shares, key by key."""

    __slots__ = ("_agreeing", "_defaults", "_dictionary_count", "_differences", "_evaluator", "_pending", "_subset")

    def __init__(self, subset: bool = False, defaults: Mapping[str, Any] = _NO_DEFAULTS) -> None:
        self._subset = subset
        self._defaults = defaults
        self._evaluator = MatcherEvaluator()
        self._agreeing: dict[int, int] = {}  # the number of agreeing keys by the divisor of their share
        self._differences: list[_DifferenceFields] = []
        self._pending: list[_PendingDictionaries] = []
        self._dictionary_count = 0

    def compare(self, wanted: Any, given: Any, shape: SchemaShape | None) -> _RawAgreement:
        """Returns how far two values agree: completely or not at all, if they are not both dictionaries."""
        one = wanted if type(wanted) is dict else as_dictionary(wanted)
        other = given if type(given) is dict else as_dictionary(given)
        if one is None or other is None:
            if self._evaluator.agrees(wanted, given, shape):
                return _RAW_FULL_AGREEMENT
            return 0.0, [("", wanted, given, self._evaluator.note)]
        self._compare_keys("", one, other, 1, shape, 0)
        while self._pending:
            self._compare_keys(*self._pending.pop())
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
            if simple and leaf_equal(one, other):  # the fastest comparison first
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
            if self._evaluator.agrees(one, other, inner):
                agreeing += 1
            else:
                self._differences.append((path, one, other, self._evaluator.note))
        if agreeing:
            self._agreeing[shares] = self._agreeing.get(shares, 0) + agreeing

    def _enqueue_nested(
        self, path: str, wanted: Any, given: Any, shares: int, shape: SchemaShape | None, depth: int
    ) -> bool:
        """Add two dictionaries to those that are compared key by key. Returns false for all other values."""
        if type(wanted) in SCALAR_TYPES or depth > _MAX_DEPTH or self._dictionary_count > _MAX_DICTIONARIES:
            return False
        one, other = as_dictionary(wanted), as_dictionary(given)
        if one is None or other is None:
            if not any(name.startswith(f"{path}.") for name in self._defaults):
                return False
            # A dictionary that is left out consists of the defaults that are declared for its keys.
            one = {} if is_none_or_absent(wanted) else one
            other = {} if is_none_or_absent(given) else other
        if one is None or other is None:
            return False
        self._dictionary_count += 1
        self._pending.append((f"{path}.", one, other, shares, shape, depth))
        return True


def _without_ignored(value: Any, paths: Sequence[str], depth: int = 0) -> Any:
    """Returns the value without the entries at these dotted paths, in dictionaries and in lists of dictionaries."""
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
