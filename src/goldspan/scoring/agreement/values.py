"""Whether a called value is what a golden asks for: equal to a plain value, or accepted by a matcher.

What each matcher means is told beside it in `goldspan.model.matchers`; here stands the function that judges by it. The
work is bounded whatever the values are. A value that cannot be judged within the bounds does not agree, and the judge
notes why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import isfinite, ulp
from numbers import Number
from typing import Any

from goldspan.goldens.patterns import pattern
from goldspan.goldens.texts import composed, normalized
from goldspan.model import ABSENT
from goldspan.model.matchers import (
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
from goldspan.scoring.agreement.equality import SIMPLE, as_dictionary, as_list, corresponds, equal, same
from goldspan.scoring.agreement.multisets import each_has_its_own
from goldspan.scoring.agreement.schemas import Shape

__all__ = ["Judge", "agrees", "equal"]


def agrees(expected: Any, called: Any) -> bool:
    """Whether a called value is the expected one, which may be or hold matchers at any depth."""
    return Judge().agrees(expected, called)


class Judge:
    """Judges the values of one call, with work for about half a second at worst."""

    __slots__ = ("_depth", "_left", "note")

    def __init__(self) -> None:
        self._left = _WORK
        self._depth = 0
        self.note: str | None = None
        """Why the last value that did not agree could not be judged; `None`: it was."""

    def agrees(self, expected: Any, called: Any, shape: Shape | None = None) -> bool:
        """Whether a called value is the expected one, as written or as the tool's JSON schema reads it."""
        self.note = None
        try:
            if shape is None and type(called) in SIMPLE:  # there is nothing to walk through
                return self._leaf(expected, called, None)
            return self.accepts(expected, called, shape)
        except _OutOfWorkError:
            self.note = "there is too much to try"
            return False

    def accepts(self, expected: Any, called: Any, shape: Shape | None) -> bool:
        """The same for the parts of a matcher, whose work is that of the whole."""
        return corresponds(expected, called, self._leaf, shape)

    def spend(self, work: int = 1) -> None:
        """Count work, in microseconds at worst, and stop all of it once there was too much."""
        self._left -= work
        if self._left < 0:
            raise _OutOfWorkError

    def _leaf(self, wanted: Any, given: Any, shape: Shape | None) -> bool:
        judged = _JUDGED.get(type(wanted))
        if judged is None:
            return same(wanted, given)
        self._left -= 1  # as `spend` does it: for every matcher of every pair, a call less is felt
        if self._left < 0:
            raise _OutOfWorkError
        if self._depth == _DEEPEST:
            self.note = f"matchers lie more than {_DEEPEST} levels deep"
            return False
        self._depth += 1
        try:
            return judged(self, wanted, given, shape)
        except _OutOfWorkError:
            raise
        except Exception:  # noqa: BLE001 - values of a user's own types may do as they like
            return False
        finally:
            self._depth -= 1


_WORK = 500_000
_DEEPEST = 100
_LONGEST = 100_000
"""Characters of a text that is folded."""
_LONGEST_SIMILAR = 10_000
"""Characters of a text that is measured against a similar one, which takes time in proportion to their square."""


class _OutOfWorkError(Exception):
    """Nothing more may be tried."""


def _anything(judge: Judge, wanted: Anything, given: Any, shape: Shape | None) -> bool:
    return given is not ABSENT


def _approx(judge: Judge, wanted: Approx, given: Any, shape: Shape | None) -> bool:
    if not _is_number(given):
        return False
    if same(wanted.value, given):
        return True
    try:
        value, found = float(wanted.value), float(given)
    except OverflowError:  # an integer beyond all that a golden can say
        return False
    if not (isfinite(value) and isfinite(found)):
        return False
    allowed = [] if wanted.within is None else [wanted.within]
    if wanted.relative is not None or not allowed:
        allowed.append(abs(value) * (_MILLIONTH if wanted.relative is None else wanted.relative))
    # The difference of 1.1 and 1.0 is a bit more than 0.1 in binary, and no person would say so.
    return abs(found - value) <= max(allowed) + 4 * ulp(max(abs(value), abs(found)))


_MILLIONTH = 1e-6


def _contains(judge: Judge, wanted: Contains, given: Any, shape: Shape | None) -> bool:
    if isinstance(given, str):
        return isinstance(wanted.part, str) and _is_within(wanted.part, given)
    entries = as_dictionary(given)
    if entries is not None:
        part = as_dictionary(wanted.part)
        return part is not None and all(
            judge.accepts(value, entries.get(key, ABSENT), shape and shape.property(key)) for key, value in part.items()
        )
    items = _items(given)
    if items is None:
        return False
    parts = as_list(wanted.part)
    return _each(judge, [wanted.part] if parts is None else parts, items, shape)


def _is_within(part: str, text: str) -> bool:
    if part in text or (part.isascii() and text.isascii()):
        return part in text
    return composed(part) in composed(text)


def _equal(judge: Judge, wanted: Equal, given: Any, shape: Shape | None) -> bool:
    return corresponds(wanted.value, given, same, shape)


def _folded(judge: Judge, wanted: Folded, given: Any, shape: Shape | None) -> bool:
    text = wanted.text
    if not isinstance(given, str) or _is_too_long(judge, max(len(text), len(given)), _LONGEST):
        return False
    judge.spend((len(text) + len(given)) // _CHARACTERS)
    return normalized(text) == normalized(given)


_CHARACTERS = 20
"""Characters that are folded in a microsecond at worst."""


def _of_type(judge: Judge, wanted: OfType, given: Any, shape: Shape | None) -> bool:
    return _IS_OF_TYPE[wanted.type](given)


def _one_of(judge: Judge, wanted: OneOf, given: Any, shape: Shape | None) -> bool:
    return any(judge.accepts(option, given, shape) for option in wanted.options)


def _regex(judge: Judge, wanted: Regex, given: Any, shape: Shape | None) -> bool:
    if not isinstance(given, str):
        return False
    try:
        compiled = pattern(wanted.pattern)
    except ValueError as error:
        judge.note = f"the pattern cannot be used: {error}"
        return False
    if _is_too_long(judge, len(given), compiled.longest):
        return False
    judge.spend(compiled.work(given))
    return compiled.matches(given)


def _similar(judge: Judge, wanted: Similar, given: Any, shape: Shape | None) -> bool:
    text = wanted.text
    if not isinstance(given, str):
        return False
    if len(text) > _SHORT or len(given) > _SHORT:
        if _is_too_long(judge, max(len(text), len(given)), _LONGEST_SIMILAR):
            return False
        judge.spend(len(text) * len(given) // _CHARACTERS_SQUARED)
    least = 100 * (wanted.threshold - _ROUNDING)
    return least <= 0 or _ratio()(text, given, score_cutoff=least) > 0


_CHARACTERS_SQUARED = 50_000
"""Pairs of characters that rapidfuzz compares in a microsecond."""
_SHORT = 200
"""Characters of a text that costs no more than any other value."""
_ROUNDING = 1e-9


@cache
def _ratio() -> Callable[..., float]:
    from rapidfuzz.fuzz import ratio  # takes longer to load than all of goldspan's core

    return ratio


def _unordered(judge: Judge, wanted: Unordered, given: Any, shape: Shape | None) -> bool:
    items = _items(given)
    return items is not None and len(items) == len(wanted.items) and _each(judge, wanted.items, items, shape)


_JUDGED: Mapping[type, Callable[[Judge, Any, Any, Shape | None], bool]] = {
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


# --- what they have in common -----------------------------------------------------------------------------------------


def _each(judge: Judge, wanted: Sequence[Any], items: Sequence[Any], shape: Shape | None) -> bool:
    """Whether each wanted item has an item of its own."""
    inner = shape and shape.item(0)
    return each_has_its_own(
        wanted,
        items,
        lambda part, item: judge.accepts(part, item, inner),
        look=judge.spend,
        read=inner.fold if inner else None,
    )


def _items(value: Any) -> Sequence[Any] | None:
    return list(value) if isinstance(value, set | frozenset) else as_list(value)


def _is_too_long(judge: Judge, length: int, longest: int) -> bool:
    if length <= longest:
        return False
    judge.note = f"a text of {length:,} characters is too long to be judged: {longest:,} at most"
    return True


def _is_number(value: Any) -> bool:
    return isinstance(value, Number) and not isinstance(value, bool | complex)


def _is_integer(value: Any) -> bool:
    return _is_number(value) and value % 1 == 0


_IS_OF_TYPE: Mapping[JsonType, Callable[[Any], bool]] = {
    "array": lambda value: isinstance(value, list | tuple),
    "boolean": lambda value: isinstance(value, bool),
    "integer": _is_integer,
    "null": lambda value: value is None or value is ABSENT,
    "number": _is_number,
    "object": lambda value: isinstance(value, Mapping),
    "string": lambda value: isinstance(value, str),
}
