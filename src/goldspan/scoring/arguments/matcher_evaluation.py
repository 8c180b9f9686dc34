"""Decides whether a called value equals an expected plain value, or is accepted by a matcher.

`goldspan.model.value_matchers` documents the matchers; this module implements them. The work is bounded for all values.
A value that cannot be compared within the limits does not agree, and the evaluator notes the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import isfinite, ulp
from numbers import Number
from typing import Any

from goldspan.goldens.text_matching import compile_regex, compose_unicode, normalize_text
from goldspan.model import ABSENT
from goldspan.model.value_matchers import (
    Anything,
    Approx,
    Contains,
    Equal,
    Folded,
    JsonType,
    OfType,
    OneOf,
    Regex,
    Similar,
    Unordered,
)
from goldspan.scoring.arguments.equality import (
    SCALAR_TYPES,
    as_dictionary,
    as_list,
    leaf_equal,
    structurally_equal,
)
from goldspan.scoring.arguments.multisets import can_assign_all
from goldspan.scoring.arguments.schema_coercion import SchemaShape


def agrees(expected: Any, called: Any) -> bool:
    """Whether a called value is the expected one, which can contain matchers at any depth."""
    return MatcherEvaluator().agrees(expected, called)


class MatcherEvaluator:
    """Compares the values of one call. The work is limited to about half a second."""

    __slots__ = ("_depth", "_left", "note")

    def __init__(self) -> None:
        self._left = _MAX_WORK
        self._depth = 0
        self.note: str | None = None
        """Why the last value that did not agree could not be compared; `None`: it was compared."""

    def agrees(self, expected: Any, called: Any, shape: SchemaShape | None = None) -> bool:
        """Whether a called value is the expected one, as written or as the tool's JSON schema reads it."""
        self.note = None
        try:
            if shape is None and type(called) in SCALAR_TYPES:  # the value has no parts
                return self._evaluate_leaf(expected, called, None)
            return self.accepts_nested(expected, called, shape)
        except _WorkLimitError:
            self.note = "there is too much to try"
            return False

    def accepts_nested(self, expected: Any, called: Any, shape: SchemaShape | None) -> bool:
        """Whether a part of a matcher accepts a value. The work counts for the whole matcher."""
        return structurally_equal(expected, called, self._evaluate_leaf, shape)

    def spend_work(self, work: int = 1) -> None:
        """Count work, in microseconds at worst. Raises an error above the limit, which ends the comparison."""
        self._left -= work
        if self._left < 0:
            raise _WorkLimitError

    def _evaluate_leaf(self, wanted: Any, given: Any, shape: SchemaShape | None) -> bool:
        accepts = _MATCHER_FUNCTIONS.get(type(wanted))
        if accepts is None:
            return leaf_equal(wanted, given)
        self._left -= 1  # inlined `spend_work`, because this runs for every matcher of every pair
        if self._left < 0:
            raise _WorkLimitError
        if self._depth == _MAX_DEPTH:
            self.note = f"matchers lie more than {_MAX_DEPTH} levels deep"
            return False
        self._depth += 1
        try:
            return accepts(self, wanted, given, shape)
        except _WorkLimitError:
            raise
        except Exception:  # noqa: BLE001 - values of the application's types can raise anything
            return False
        finally:
            self._depth -= 1


_MAX_WORK = 500_000
_MAX_DEPTH = 100
_MAX_FOLDED_CHARACTERS = 100_000
"""The characters of a text that is folded."""
_MAX_SIMILAR_CHARACTERS = 10_000
"""The characters of a text that is compared by similarity, which takes quadratic time."""


class _WorkLimitError(Exception):
    """The limit of work is reached."""


def _anything(evaluator: MatcherEvaluator, wanted: Anything, given: Any, shape: SchemaShape | None) -> bool:
    return given is not ABSENT


def _approx(evaluator: MatcherEvaluator, wanted: Approx, given: Any, shape: SchemaShape | None) -> bool:
    if not _is_number(given):
        return False
    if leaf_equal(wanted.value, given):
        return True
    try:
        value, found = float(wanted.value), float(given)
    except OverflowError:  # an integer outside the range of floats
        return False
    if not (isfinite(value) and isfinite(found)):
        return False
    allowed = [] if wanted.within is None else [wanted.within]
    if wanted.relative is not None or not allowed:
        allowed.append(abs(value) * (_MILLIONTH if wanted.relative is None else wanted.relative))
    # In binary, the difference of 1.1 and 1.0 is slightly more than 0.1; allow for this rounding.
    return abs(found - value) <= max(allowed) + 4 * ulp(max(abs(value), abs(found)))


_MILLIONTH = 1e-6


def _contains(evaluator: MatcherEvaluator, wanted: Contains, given: Any, shape: SchemaShape | None) -> bool:
    if isinstance(given, str):
        return isinstance(wanted.part, str) and _contains_text(wanted.part, given)
    entries = as_dictionary(given)
    if entries is not None:
        part = as_dictionary(wanted.part)
        return part is not None and all(
            evaluator.accepts_nested(value, entries.get(key, ABSENT), shape and shape.property(key))
            for key, value in part.items()
        )
    items = _items(given)
    if items is None:
        return False
    parts = as_list(wanted.part)
    return _each_part_has_item(evaluator, [wanted.part] if parts is None else parts, items, shape)


def _contains_text(part: str, text: str) -> bool:
    if part in text or (part.isascii() and text.isascii()):
        return part in text
    return compose_unicode(part) in compose_unicode(text)


def _equal(evaluator: MatcherEvaluator, wanted: Equal, given: Any, shape: SchemaShape | None) -> bool:
    return structurally_equal(wanted.value, given, leaf_equal, shape)


def _folded(evaluator: MatcherEvaluator, wanted: Folded, given: Any, shape: SchemaShape | None) -> bool:
    text = wanted.text
    if not isinstance(given, str) or _is_too_long(evaluator, max(len(text), len(given)), _MAX_FOLDED_CHARACTERS):
        return False
    evaluator.spend_work((len(text) + len(given)) // _CHARACTERS_PER_STEP)
    return normalize_text(text) == normalize_text(given)


_CHARACTERS_PER_STEP = 20
"""The characters that are folded in a microsecond at worst."""


def _of_type(evaluator: MatcherEvaluator, wanted: OfType, given: Any, shape: SchemaShape | None) -> bool:
    return _TYPE_CHECKS[wanted.type](given)


def _one_of(evaluator: MatcherEvaluator, wanted: OneOf, given: Any, shape: SchemaShape | None) -> bool:
    return any(evaluator.accepts_nested(option, given, shape) for option in wanted.options)


def _regex(evaluator: MatcherEvaluator, wanted: Regex, given: Any, shape: SchemaShape | None) -> bool:
    if not isinstance(given, str):
        return False
    try:
        compiled = compile_regex(wanted.pattern)
    except ValueError as error:
        evaluator.note = f"the pattern cannot be used: {error}"
        return False
    if _is_too_long(evaluator, len(given), compiled.max_text_length):
        return False
    evaluator.spend_work(compiled.worst_case_microseconds(given))
    return compiled.matches_whole(given)


def _similar(evaluator: MatcherEvaluator, wanted: Similar, given: Any, shape: SchemaShape | None) -> bool:
    text = wanted.text
    if not isinstance(given, str):
        return False
    if len(text) > _CHEAP_CHARACTERS or len(given) > _CHEAP_CHARACTERS:
        if _is_too_long(evaluator, max(len(text), len(given)), _MAX_SIMILAR_CHARACTERS):
            return False
        evaluator.spend_work(len(text) * len(given) // _CHARACTER_PAIRS_PER_STEP)
    least = 100 * (wanted.threshold - _ROUNDING)
    return least <= 0 or _load_ratio()(text, given, score_cutoff=least) > 0


_CHARACTER_PAIRS_PER_STEP = 50_000
"""The pairs of characters that rapidfuzz compares in a microsecond."""
_CHEAP_CHARACTERS = 200
"""The characters of a text that takes no more time than any other value."""
_ROUNDING = 1e-9


@cache
def _load_ratio() -> Callable[..., float]:
    from rapidfuzz.fuzz import ratio  # takes longer to load than all of goldspan's core

    return ratio


def _unordered(evaluator: MatcherEvaluator, wanted: Unordered, given: Any, shape: SchemaShape | None) -> bool:
    items = _items(given)
    return (
        items is not None
        and len(items) == len(wanted.items)
        and _each_part_has_item(evaluator, wanted.items, items, shape)
    )


_MATCHER_FUNCTIONS: Mapping[type, Callable[[MatcherEvaluator, Any, Any, SchemaShape | None], bool]] = {
    Anything: _anything,
    Approx: _approx,
    Contains: _contains,
    Equal: _equal,
    Folded: _folded,
    OfType: _of_type,
    OneOf: _one_of,
    Regex: _regex,
    Similar: _similar,
    Unordered: _unordered,
}


# --- shared helpers ---------------------------------------------------------------------------------------------------


def _each_part_has_item(
    evaluator: MatcherEvaluator, wanted: Sequence[Any], items: Sequence[Any], shape: SchemaShape | None
) -> bool:
    """Whether each wanted item can be assigned a different item that it accepts."""
    inner = shape and shape.item(0)
    return can_assign_all(
        wanted,
        items,
        lambda part, item: evaluator.accepts_nested(part, item, inner),
        on_comparison=evaluator.spend_work,
        coerce=inner.coerce if inner else None,
    )


def _items(value: Any) -> Sequence[Any] | None:
    return list(value) if isinstance(value, set | frozenset) else as_list(value)


def _is_too_long(evaluator: MatcherEvaluator, length: int, longest: int) -> bool:
    if length <= longest:
        return False
    evaluator.note = f"a text of {length:,} characters is too long to be compared: {longest:,} at most"
    return True


def _is_number(value: Any) -> bool:
    return isinstance(value, Number) and not isinstance(value, bool | complex)


def _is_integer(value: Any) -> bool:
    return _is_number(value) and value % 1 == 0


_TYPE_CHECKS: Mapping[JsonType, Callable[[Any], bool]] = {
    "array": lambda value: isinstance(value, list | tuple),
    "boolean": lambda value: isinstance(value, bool),
    "integer": _is_integer,
    "null": lambda value: value is None or value is ABSENT,
    "number": _is_number,
    "object": lambda value: isinstance(value, Mapping),
    "string": lambda value: isinstance(value, str),
}
