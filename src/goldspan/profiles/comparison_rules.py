"""How peers weigh the arguments of a pair: from 0 (they disagree) to 1, each by its own idea of equality.

A rule takes what is expected first. Values that it cannot compare raise what they raise in Python; the engine makes a
score without a value of it, and of nesting too deep for the interpreter as well.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from fnmatch import translate
from functools import lru_cache
from typing import Any, TypeAlias

from goldspan.content.tools import fold_name, undecorate
from goldspan.model import ABSENT


@dataclass(frozen=True, slots=True)
class NameRule:
    """One value of the axis `name`."""

    key: Callable[[str], str] | None = None
    """What of a name is compared; `None`: all of it."""
    is_same_tool: Callable[[Any, Any], bool] = operator.eq
    """Whether what is expected (first) and what is called (second) name the same tool."""


def canonical_name(name: str) -> str:
    """Without case, separators and the prefixes that hosts put before a name."""
    return fold_name(undecorate(name)[0])


def glob_match(pattern: str, name: str) -> bool:
    """Whether a name fits a pattern of `*` and `?`, case apart. The name of the tool's span is as good as its own."""
    matches = _compile_glob(pattern).match
    return matches(name) is not None or matches(f"execute_tool {name}") is not None


@lru_cache(maxsize=4096)
def _compile_glob(pattern: str) -> re.Pattern[str]:
    # `translate` writes expressions that never go back over many stars; it would read brackets as a set of letters.
    return re.compile(translate(pattern.replace("[", "[[]")), re.IGNORECASE)


NAME_RULES: Mapping[str, NameRule] = {
    "equal": NameRule(),
    "strip": NameRule(str.strip),
    "canonical": NameRule(canonical_name),
    "glob": NameRule(str.strip, is_same_tool=glob_match),
}
"""The axis `name`."""


ArgumentRule: TypeAlias = Callable[[Any, Any], float]
"""How far the arguments of a call (second) agree with the expected ones (first)."""

_MAX_LENGTH_PRODUCT = 4_000_000
"""The greatest product of two lengths for which texts are aligned: beyond it `difflib` may take minutes."""


def ignore_arguments(expected: Any, called: Any) -> float:
    """Whatever they are."""
    return 1.0


def equal_arguments(expected: Any, called: Any) -> float:
    """Python's `==`: 1, 1.0 and True are the same."""
    return 1.0 if expected == called else 0.0


def equal_where_stated(expected: Any, called: Any) -> float:
    """Python's `==`, for an expectation that states arguments; one that does not takes any."""
    return 1.0 if expected is None or expected == (called or {}) else 0.0


def equal_by_key(key: Callable[[Any], Hashable]) -> ArgumentRule:
    """Equality of what a key makes of both sides."""
    return lambda expected, called: 1.0 if key(expected) == key(called) else 0.0


def hashable_value(value: Any) -> Hashable:
    """A value as an element of a set: Python's `==`, but a list is equal to a tuple."""
    if type(value) in _SCALAR_TYPES:
        return value  # type: ignore[no-any-return]
    if type(value) is dict or isinstance(value, Mapping):
        return frozenset(
            [(key, item if type(item) in _SCALAR_TYPES else hashable_value(item)) for key, item in value.items()]
        )
    if isinstance(value, list | tuple):
        return tuple(map(hashable_value, value))
    return value  # type: ignore[no-any-return]  # unhashable values are no JSON


_SCALAR_TYPES = frozenset(
    {str, int, float, bool, type(None)}
)  # asked first: most values are, and other checks take longer


def json_text(value: Any) -> str:
    """Arguments as JSON with sorted keys, so that 1, 1.0, True and "1" are four different values; none are `{}`."""
    return _write_json(value or {})


_write_json = json.JSONEncoder(sort_keys=True, default=str).encode  # made once: that takes longer than most arguments


def arguments_as_text(arguments: Any) -> Hashable:
    """Every argument as text, so that 7 and "7" are the same and 1 and 1.0 are not."""
    return frozenset((key, _value_as_text(value)) for key, value in (arguments or {}).items())


def _value_as_text(value: Any) -> str:
    return json_text(value) if isinstance(value, dict | list) else str(value)


def top_superset(expected: Any, called: Any) -> float:
    """Whether the call has every expected argument; more of them are fine."""
    return float(called is not None and all(key in called and called[key] == value for key, value in expected.items()))


def top_subset(expected: Any, called: Any) -> float:
    """Whether every argument of the call was expected; fewer of them are fine."""
    return top_superset(called, expected)


def deep_superset(expected: Any, called: Any) -> float:
    """Whether the call has every expected argument; dictionaries in it may have more entries too."""
    return float(all(key in called and _is_deep_superset(value, called[key]) for key, value in expected.items()))


def _is_deep_superset(expected: Any, called: Any) -> bool:
    if isinstance(expected, dict) and isinstance(called, dict):
        return bool(deep_superset(expected, called))
    return bool(expected == called)


def share_of_union(expected: Any, called: Any) -> float:
    """The share of all arguments, of either side, that are equal; dictionaries count by their own share."""
    if expected == called:
        return 1.0
    share = 1 / len(expected.keys() | called.keys())
    # Added one by one, as noise in the last digit decides where a threshold is met exactly.
    total = 0.0
    for key, value in expected.items():
        if key in called:
            if value == called[key]:
                total += share
            elif isinstance(value, dict) and isinstance(called[key], dict):
                total += share_of_union(value, called[key]) * share
    return total


def share_of_expected(expected: Any, called: Any) -> float:
    """The share of the expected arguments that read the same as text. Where none is expected, none may be given."""
    if not expected:
        return float(not called)
    same = 0
    for key, value in expected.items():
        if key in called and str(called[key]) == str(value):
            same += 1
    return same / len(expected)


def fuzzy_rule(min_similarity: float) -> ArgumentRule:
    """Whether the expected arguments are this similar on average; others do not matter."""

    def weigh(expected: Any, called: Any) -> float:
        if not expected:
            return 1.0
        similarities = [_similarity(value, called.get(key)) for key, value in expected.items()]
        return float(sum(similarities) / len(similarities) >= min_similarity)

    return weigh


def _similarity(expected: Any, called: Any) -> float:
    if expected is None or called is None or type(expected) is not type(called):
        return 0.0
    if isinstance(expected, str):
        return _text_similarity(expected, called)
    if isinstance(expected, int | float) and not isinstance(expected, bool):
        greatest = max(abs(expected), abs(called))
        return 1 - abs(expected - called) / greatest if greatest else 1.0
    if isinstance(expected, dict):
        return _dict_similarity(expected, called)
    return float(expected == called)


def _text_similarity(expected: str, called: str) -> float:
    if expected == called:
        return 1.0
    if len(expected) * len(called) > _MAX_LENGTH_PRODUCT:
        raise ValueError("the texts are too long to be aligned letter by letter")
    return SequenceMatcher(None, expected, called).ratio()


def _dict_similarity(expected: dict[Any, Any], called: dict[Any, Any]) -> float:
    common = expected.keys() & called.keys()
    if not common:
        return float(not expected and not called)
    of_keys = len(common) / len(expected.keys() | called.keys())
    of_values = sum(_similarity(expected[key], called[key]) for key in common) / len(common)
    return (of_keys + of_values) / 2


def equal_in_javascript(expected: Any, called: Any) -> float:
    """Equality as JavaScript has it: one kind of number, which `true` is not."""
    return float(_js_match(expected, called, exact_keys=True))


def partial_in_javascript(expected: Any, called: Any) -> float:
    """The same, but dictionaries of the call, at any depth, may have more entries than expected."""
    return float(_js_match(expected, called, exact_keys=False))


def _js_match(expected: Any, called: Any, *, exact_keys: bool) -> bool:
    if isinstance(expected, dict) and isinstance(called, dict):
        if exact_keys and expected.keys() != called.keys():
            return False
        return all(
            key in called and _js_match(value, called[key], exact_keys=exact_keys) for key, value in expected.items()
        )
    if isinstance(expected, list) and isinstance(called, list):
        pairs = zip(expected, called, strict=False)
        return len(expected) == len(called) and all(_js_match(*pair, exact_keys=exact_keys) for pair in pairs)
    return isinstance(expected, bool) is isinstance(called, bool) and bool(expected == called)


def equal_at_paths(paths: Sequence[str], *, missing_is_none: bool) -> ArgumentRule:
    """Whether the values at some dotted paths are equal. What is absent is `None`, or else agrees with nothing."""

    def weigh(expected: Any, called: Any) -> float:
        pairs = [(_at(expected, path), _at(called, path)) for path in paths]
        return float(all(one == other and (missing_is_none or one is not ABSENT) for one, other in pairs))

    def _at(arguments: Any, path: str) -> Any:
        for key in path.split("."):
            if not isinstance(arguments, dict) or key not in arguments:
                return None if missing_is_none else ABSENT
            arguments = arguments[key]
        return arguments

    return weigh


ARGUMENT_RULES: Mapping[str, ArgumentRule] = {
    "ignore": ignore_arguments,
    "equal": equal_arguments,
    "equal_where_stated": equal_where_stated,
    "hash_equal": equal_by_key(hashable_value),
    "json_equal": equal_by_key(json_text),
    "text_equal": equal_by_key(arguments_as_text),
    "js_equal": equal_in_javascript,
    "top_superset": top_superset,
    "top_subset": top_subset,
    "deep_superset": deep_superset,
    "partial": partial_in_javascript,
    "union_share": share_of_union,
    "expected_share": share_of_expected,
}
"""The axis `args`, apart from `fuzzy` and `allowed`."""

FULL_SCORE_IF_EQUAL = frozenset({"equal", "equal_where_stated", "union_share"})
"""Of those, rules by which two dictionaries that are equal in Python agree wholly, whatever they hold."""

COLLAPSE_KEYS: Mapping[str, Callable[[Any], Hashable]] = {"hash_equal": hashable_value, "json_equal": json_text}
"""What stands for the arguments where repeated calls collapse into one."""
