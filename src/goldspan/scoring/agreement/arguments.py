"""How far the arguments, and the result, of a call agree with the expected ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from math import fsum
from types import MappingProxyType
from typing import Any, TypeAlias

from goldspan._guard import guard
from goldspan.extraction.notation import denoted
from goldspan.model import ABSENT, Agreement, Difference, ExpectedTool, ToolCall
from goldspan.scoring.agreement.equality import SIMPLE, as_dictionary, as_list, completed, is_nothing, same
from goldspan.scoring.agreement.matcher_hints import hint
from goldspan.scoring.agreement.schemas import Shape, shape_of
from goldspan.scoring.agreement.values import Judge

_Differing: TypeAlias = "tuple[str, Any, Any, str | None]"
_Found: TypeAlias = tuple[float, Sequence[_Differing]]
"""How far two values agree, from 0 to 1, and what each `Difference` is made of: most are only counted."""

_AGREED: _Found = 1.0, ()
WHOLLY = Agreement(1.0)
"""What agrees in everything."""


def agreement(tool: ExpectedTool, call: ToolCall, schema: Mapping[str, Any] | None = None) -> Agreement | None:
    """Compare arguments key by key. `None` where the golden does not state them or the call's were not captured.

    Each key of either side has an equal share, with `match: subset` each key of the golden; a dictionary on both sides
    divides its share among its own keys. Everything else agrees or not as a whole, lists too. What the golden ignores
    is dropped from both sides first. Where one side leaves an argument out, its default stands for it: the one that the
    golden declares, else that of the tool's JSON `schema`. A value that does not agree as written may agree as the
    schema reads it: 5 and the text `5` are the same integer.

    Differences name the key as a dotted path, `payment.amount`; the key is empty where the arguments are no dictionary.
    """
    return _told(_arguments(tool, call, schema))


def argument_share(tool: ExpectedTool, call: ToolCall, schema: Mapping[str, Any] | None = None) -> float | None:
    """The share of `agreement` alone, in less time."""
    found = _arguments(tool, call, schema)
    return found and found[0]


def result_agreement(tool: ExpectedTool, call: ToolCall) -> Agreement | None:
    """Compare a result with the expected one: dictionaries by shares, as arguments are, everything else as a whole.

    A result that is text may say in JSON what the golden expects. `None` where the golden expects nothing of it, or the
    result was not captured: telemetry does not tell that from a tool that returned nothing, so that a result that is
    not there can agree with a golden, and can differ from it only where the call failed.
    """
    return _told(_result(tool, call))


def result_share(tool: ExpectedTool, call: ToolCall) -> float | None:
    """The share of `result_agreement` alone, in less time."""
    found = _result(tool, call)
    return found and found[0]


def _told(found: _Found | None) -> Agreement | None:
    if found is None:
        return None
    share, differences = found
    if not differences:
        return WHOLLY
    told = [Difference(*each, _hint_at(*each)) for each in islice(differences, _MOST_HINTS)]
    told += [Difference(*each) for each in islice(differences, _MOST_HINTS, None)]
    return Agreement(share, tuple(told))


_MOST_HINTS = 20
"""So many differences of a call come with a hint: nobody reads more of them."""


def _hint_at(key: str, expected: Any, called: Any, note: str | None) -> str | None:
    """What would have accepted the value; nothing where the two could not be compared."""
    return hint(expected, called) if note is None else None


def _arguments(tool: ExpectedTool, call: ToolCall, schema: Mapping[str, Any] | None) -> _Found | None:
    wanted, given = tool.arguments, call.arguments
    if wanted is None or given is None:
        return None
    try:
        if _same_at_a_glance(wanted, given):  # and so they are whatever is ignored, left out or read otherwise
            return _AGREED
        if tool.ignore:
            wanted, given = _without(wanted, tool.ignore), _without(given, tool.ignore)
        comparing = _Comparing(tool.match == "subset", tool.defaults)
        return comparing.compare(wanted, given, shape_of(schema) if schema else None)
    except Exception:  # even keys may be of a user's own type, and refuse to be looked up or shown
        with guard("compare the arguments of a call"):
            raise
        return 0.0, [("", wanted, given, None)]


def _result(tool: ExpectedTool, call: ToolCall) -> _Found | None:
    wanted, given = tool.result, call.result
    if wanted is ABSENT:
        return None
    try:
        if given is not None:
            return _compared_as_text_or_read(wanted, given)
        share, differences = _Comparing().compare(wanted, ABSENT, None)
        ended = call.outcome is not None or call.error is not None
        failed = call.outcome == "error" or call.error is not None
        return (share, differences) if failed or (ended and not differences) else None
    except Exception:
        with guard("compare the result of a call"):
            raise
        return 0.0, [("", wanted, given, None)]


def _same_at_a_glance(wanted: Any, given: Any) -> bool:
    """Whether both are the same dictionary of simple values and a few more inside, as most are that agree at all."""
    if type(wanted) is not dict or type(given) is not dict or len(wanted) != len(given):
        return False
    for key, one in wanted.items():
        other = given.get(key, ABSENT)
        if type(one) is not type(other):
            return False
        if type(one) in SIMPLE:
            if one != other:
                return False
        elif not _same_inside(one, other):
            return False
    return True


def _same_inside(one: Any, other: Any) -> bool:
    """Whether two values of one type are the same short list, or small dictionary, of simple values."""
    if (type(one) is not list and type(one) is not dict) or not len(one) == len(other) <= _FEW:
        return False
    values, others = (one, other) if isinstance(one, list) else (one.values(), [other.get(key, ABSENT) for key in one])
    for value, found in zip(values, others, strict=True):
        if type(value) is not type(found) or type(value) not in SIMPLE or value != found:
            return False
    return True


_FEW = 32
"""So many values inside are looked at: one long list may stand in many places, and only the whole comparison remembers
what it has met before."""


def _compared_as_text_or_read(wanted: Any, given: Any) -> _Found:
    as_written = _Comparing().compare(wanted, given, None)
    if not as_written[1] or not isinstance(given, str) or isinstance(wanted, str):
        return as_written
    read = denoted(given) if len(given) <= _LONGEST_JSON else ABSENT
    if read is ABSENT:
        return as_written
    as_read = _Comparing().compare(wanted, read, None)
    return as_read if as_read[0] > as_written[0] or isinstance(wanted, Mapping) else as_written


_LONGEST_JSON = 1_000_000
"""Characters of a result that are read: more than any model is given."""


# --- by shares --------------------------------------------------------------------------------------------------------


_NO_DEFAULTS: Mapping[str, Any] = MappingProxyType({})
_DEEPEST = 100
_MOST_DICTIONARIES = 10_000
"""What lies deeper, or comes after so many, agrees or not as a whole: dictionaries that hold one another several times
are as good as endless."""
_Level: TypeAlias = tuple[str, dict[Any, Any], dict[Any, Any], int, Shape | None, int]
"""Two dictionaries: the path to what is inside of them, both, their share as one of so many, shape and depth."""


class _Comparing:
    """One comparison by shares, key by key."""

    __slots__ = ("_agreeing", "_defaults", "_differences", "_judge", "_met", "_subset", "_waiting")

    def __init__(self, subset: bool = False, defaults: Mapping[str, Any] = _NO_DEFAULTS) -> None:
        self._subset = subset
        self._defaults = defaults
        self._judge = Judge()
        self._agreeing: dict[int, int] = {}  # by share: how many keys agree that have one of so many equal shares
        self._differences: list[_Differing] = []
        self._waiting: list[_Level] = []
        self._met = 0

    def compare(self, wanted: Any, given: Any, shape: Shape | None) -> _Found:
        """How far the two agree: as a whole, where they are not both dictionaries."""
        one = wanted if type(wanted) is dict else as_dictionary(wanted)
        other = given if type(given) is dict else as_dictionary(given)
        if one is None or other is None:
            if self._judge.agrees(wanted, given, shape):
                return _AGREED
            return 0.0, [("", wanted, given, self._judge.note)]
        self._compare_keys("", one, other, 1, shape, 0)
        while self._waiting:
            self._compare_keys(*self._waiting.pop())
        if not self._differences:
            return _AGREED
        if not self._agreeing:
            return 0.0, self._differences
        share = fsum([count / shares for shares, count in self._agreeing.items()])
        return min(share, 1.0), self._differences

    def _compare_keys(
        self, start: str, wanted: dict[Any, Any], given: dict[Any, Any], shares: int, shape: Shape | None, depth: int
    ) -> None:
        keys = wanted if self._subset else {**wanted, **given}
        shares *= len(keys) or 1
        agreeing = 0 if keys else 1
        for key in keys:
            one, other = wanted.get(key, ABSENT), given.get(key, ABSENT)
            simple = type(one) in SIMPLE and type(other) in SIMPLE
            if simple and same(one, other):  # the quickest way first
                agreeing += 1
                continue
            path = f"{start}{key}"
            inner = shape.property(key) if shape else None
            if simple and (inner is None or (inner.fold(one) is one and inner.fold(other) is other)):
                self._differences.append((path, one, other, None))
                continue
            if one is ABSENT or other is ABSENT:
                default = self._defaults.get(path, inner.default if inner else ABSENT)
                one, other = completed(one, other, default)
            if type(other) not in SIMPLE and self._goes_deeper(path, one, other, shares, inner, depth + 1):
                continue
            if self._judge.agrees(one, other, inner):
                agreeing += 1
            else:
                self._differences.append((path, one, other, self._judge.note))
        if agreeing:
            self._agreeing[shares] = self._agreeing.get(shares, 0) + agreeing

    def _goes_deeper(self, path: str, wanted: Any, given: Any, shares: int, shape: Shape | None, depth: int) -> bool:
        """Whether both are dictionaries, which are then compared key by key in their turn."""
        if type(wanted) in SIMPLE or depth > _DEEPEST or self._met > _MOST_DICTIONARIES:
            return False
        one, other = as_dictionary(wanted), as_dictionary(given)
        if one is None or other is None:
            if not any(name.startswith(f"{path}.") for name in self._defaults):
                return False
            # Where a dictionary is left out, the declared defaults in it stand for it.
            one = {} if is_nothing(wanted) else one
            other = {} if is_nothing(given) else other
        if one is None or other is None:
            return False
        self._met += 1
        self._waiting.append((f"{path}.", one, other, shares, shape, depth))
        return True


def _without(value: Any, paths: Sequence[str], depth: int = 0) -> Any:
    """The value without what lies at these dotted paths, in dictionaries and in lists of them."""
    if not paths or depth == _DEEPEST:
        return value
    items = as_list(value)
    if items is not None:
        return [_without(item, paths, depth + 1) if as_list(item) is None else item for item in items]
    entries = as_dictionary(value)
    if entries is None:
        return value
    kept = {}
    for key, item in entries.items():
        if key not in paths:
            start = f"{key}."
            kept[key] = _without(item, [path[len(start) :] for path in paths if path.startswith(start)], depth + 1)
    return kept
