"""The rules by which peers compare names and arguments; an argument rule returns a weight from 0 to 1.

The first parameter of a rule is the expected value. Values that it cannot compare raise the usual Python errors, as
does too deep nesting; the engine turns these errors into a score without a value.
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

from goldspan.content.tools import undecorate
from goldspan.model import ABSENT
from goldspan.model.name_folding import fold_name


@dataclass(frozen=True, slots=True)
class NameRule:
    """One value of the axis `name_rule`."""

    key: Callable[[str], str] | None = None
    """Returns the compared form of a name; `None`: the name itself."""
    is_same_tool: Callable[[Any, Any], bool] = operator.eq
    """Whether the expected name (first) and the called name (second) name the same tool."""


def canonical_name(name: str) -> str:
    """Returns a name without case, separators and host prefixes."""
    return fold_name(undecorate(name)[0])


def glob_match(pattern: str, name: str) -> bool:
    """Whether a name, or `execute_tool` and the name, matches a pattern of `*` and `?`, ignoring case."""
    matches = _compile_glob(pattern).match
    return matches(name) is not None or matches(f"execute_tool {name}") is not None


@lru_cache(maxsize=4096)
def _compile_glob(pattern: str) -> re.Pattern[str]:
    # `translate` avoids excessive backtracking for many stars; it would treat brackets as a character set.
    return re.compile(translate(pattern.replace("[", "[[]")), re.IGNORECASE)


NAME_RULES: Mapping[str, NameRule] = {
    "equal": NameRule(),
    "strip": NameRule(str.strip),
    "canonical": NameRule(canonical_name),
    "glob": NameRule(str.strip, is_same_tool=glob_match),
}
"""The axis `name_rule`."""


ArgumentRule: TypeAlias = Callable[[Any, Any], float]
"""Returns how far the arguments of a call (second) agree with the expected ones (first)."""

_MAX_LENGTH_PRODUCT = 4_000_000
"""The greatest product of two text lengths for `difflib`, which may take minutes beyond it."""


def ignore_arguments(expected: Any, called: Any) -> float:
    """Ignores the arguments."""
    return 1.0


def equal_arguments(expected: Any, called: Any) -> float:
    """Compares with Python's `==`: 1, 1.0 and True are equal."""
    return 1.0 if expected == called else 0.0


def equal_where_stated(expected: Any, called: Any) -> float:
    """Compares with Python's `==` if the expectation states arguments; otherwise any arguments match."""
    return 1.0 if expected is None or expected == (called or {}) else 0.0


def equal_by_key(key: Callable[[Any], Hashable]) -> ArgumentRule:
    """Returns a rule that compares the keys of both sides."""
    return lambda expected, called: 1.0 if key(expected) == key(called) else 0.0


def hashable_value(value: Any) -> Hashable:
    """Returns a hashable form of a value: equality is that of Python, but a list equals a tuple."""
    if type(value) in _SCALAR_TYPES:
        return value  # type: ignore[no-any-return]
    if type(value) is dict or isinstance(value, Mapping):
        return frozenset(
            [(key, item if type(item) in _SCALAR_TYPES else hashable_value(item)) for key, item in value.items()]
        )
    if isinstance(value, list | tuple):
        return tuple(map(hashable_value, value))
    return value  # type: ignore[no-any-return]  # other values are not JSON and may be unhashable


_SCALAR_TYPES = frozenset(
    {str, int, float, bool, type(None)}
)  # checked first: most values are scalars, and other checks are slower


def json_text(value: Any) -> str:
    """Returns arguments as JSON with sorted keys: 1, 1.0, True and "1" all differ; `None` becomes `{}`."""
    return _write_json(value or {})


_write_json = json.JSONEncoder(sort_keys=True, default=str).encode  # created once, which takes longer than encoding


def arguments_as_text(arguments: Any) -> Hashable:
    """Returns every argument as text: 7 and "7" are equal, 1 and 1.0 are not."""
    return frozenset((key, _value_as_text(value)) for key, value in (arguments or {}).items())


def _value_as_text(value: Any) -> str:
    return json_text(value) if isinstance(value, dict | list) else str(value)


def top_superset(expected: Any, called: Any) -> float:
    """Whether the call has every expected argument; it may have more."""
    return float(called is not None and all(key in called and called[key] == value for key, value in expected.items()))


def top_subset(expected: Any, called: Any) -> float:
    """Whether every argument of the call was expected; some may be missing."""
    return top_superset(called, expected)


def deep_superset(expected: Any, called: Any) -> float:
    """Whether the call has every expected argument; dictionaries in it may have more entries too."""
    return float(all(key in called and _is_deep_superset(value, called[key]) for key, value in expected.items()))


def _is_deep_superset(expected: Any, called: Any) -> bool:
    if isinstance(expected, dict) and isinstance(called, dict):
        return bool(deep_superset(expected, called))
    return bool(expected == called)


def share_of_union(expected: Any, called: Any) -> float:
    """Returns the share of equal arguments among all arguments of both sides; dictionaries count by their own share."""
    if expected == called:
        return 1.0
    share = 1 / len(expected.keys() | called.keys())
    # Added one by one like the peer, because rounding in the last digit decides at an exact threshold.
    total = 0.0
    for key, value in expected.items():
        if key in called:
            if value == called[key]:
                total += share
            elif isinstance(value, dict) and isinstance(called[key], dict):
                total += share_of_union(value, called[key]) * share
    return total


def share_of_expected(expected: Any, called: Any) -> float:
    """Returns the share of expected arguments that are equal as text. If none are expected, none may be stated."""
    if not expected:
        return float(not called)
    equal_count = 0
    for key, value in expected.items():
        if key in called and str(called[key]) == str(value):
            equal_count += 1
    return equal_count / len(expected)


def fuzzy_rule(min_similarity: float) -> ArgumentRule:
    """Returns a rule: whether the expected arguments reach the similarity on average; others are ignored."""

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
        raise ValueError("the texts are too long for a character comparison")
    return SequenceMatcher(None, expected, called).ratio()


def _dict_similarity(expected: dict[Any, Any], called: dict[Any, Any]) -> float:
    common = expected.keys() & called.keys()
    if not common:
        return float(not expected and not called)
    key_share = len(common) / len(expected.keys() | called.keys())
    value_similarity = sum(_similarity(expected[key], called[key]) for key in common) / len(common)
    return (key_share + value_similarity) / 2


def equal_in_javascript(expected: Any, called: Any) -> float:
    """Compares as JavaScript does: integers and floats are one type, booleans another."""
    return float(_js_match(expected, called, exact_keys=True))


def partial_in_javascript(expected: Any, called: Any) -> float:
    """Compares as JavaScript does; dictionaries of the call, at any depth, may have additional entries."""
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
    """Returns a rule that compares the values at dotted paths. A missing value is `None`, or never matches."""

    def weigh(expected: Any, called: Any) -> float:
        pairs = [(_at(expected, path), _at(called, path)) for path in paths]
        return float(all(first == second and (missing_is_none or first is not ABSENT) for first, second in pairs))

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
"""The axis `argument_rule`, except `fuzzy` and `allowed`."""

FULL_SCORE_IF_EQUAL = frozenset({"equal", "equal_where_stated", "union_share"})
"""The rules by which dictionaries that are equal in Python always have weight 1."""

COLLAPSE_KEYS: Mapping[str, Callable[[Any], Hashable]] = {"hash_equal": hashable_value, "json_equal": json_text}
"""The keys by which repeated calls with equal arguments collapse to one."""
