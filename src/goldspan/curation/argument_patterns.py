"""Finds what the arguments of similar calls have in common, as values and matchers of a golden."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from goldspan.errors import GoldenError
from goldspan.goldens.golden_files.golden_writer import literal_value
from goldspan.goldens.text_matching import normalize_text
from goldspan.model.telemetry import content_digest
from goldspan.model.value_matchers import Anything, JsonType, OfType, OneOf, Regex, Unordered

_MAX_CHOICES = 4
"""The greatest number of different values of a `one_of`."""
_MIN_CALLS_OF_CHOICES = 8
"""The least number of calls that show that an argument has only a few values."""
_MAX_SHAPE_LENGTH = 64
"""Longer texts, in characters, have no shape: they are sentences."""
_MAX_NESTING = 4
"""Levels of mappings in an argument that are compared entry by entry."""


@dataclass(frozen=True, slots=True)
class ArgumentPattern:
    """What the values of one argument have in common."""

    expected: Any
    """A value or a matcher."""
    note: str
    """The support as a clause; empty if all values are equal."""


@dataclass(frozen=True, slots=True)
class CallSample:
    """The arguments of a call, and the text of its request."""

    arguments: Mapping[Any, Any]
    request: str
    """The normalized text."""


def find_argument_patterns(calls: Sequence[CallSample], min_support: float) -> dict[str, ArgumentPattern]:
    """Return the pattern of each argument that at least the given share of the calls has, sorted by name."""
    needed = min_support * len(calls)
    names = Counter(name for call in calls for name in call.arguments if isinstance(name, str))
    patterns: dict[str, ArgumentPattern] = {}
    for name in sorted(name for name, count in names.items() if count >= needed):
        having = [call for call in calls if name in call.arguments]
        values, requests = [call.arguments[name] for call in having], [call.request for call in having]
        if (pattern := _argument_pattern(values, requests, min_support)) is not None:
            patterns[name] = pattern
    return patterns


def _argument_pattern(values: Sequence[Any], requests: Sequence[str], min_support: float) -> ArgumentPattern | None:
    total = len(values)
    try:
        pattern = _constant(values, min_support) or _choice(values, min_support)
        if pattern is not None:
            return pattern
        matcher = _common_form(values, min_support, _MAX_NESTING)
    except GoldenError:
        return None  # no golden file can express the values
    copied = sum(map(_occurs_in, values, requests))
    if copied >= min_support * total:
        note = f"copied from the request in {copied} of {total} calls"
        return ArgumentPattern(matcher, note)
    return ArgumentPattern(matcher, "" if isinstance(matcher, Anything) else f"{_count_distinct(values)} values")


def _constant(values: Sequence[Any], min_support: float) -> ArgumentPattern | None:
    """Return the value that at least the given share of the calls has."""
    total = len(values)
    value, count = _most_frequent(values, values)
    if count >= min_support * total:
        note = "" if count == total else f"this value in {count} of {total} calls"
        return ArgumentPattern(literal_value(value), note)
    lists = [value for value in values if isinstance(value, list | tuple)]
    if len(lists) == total:
        value, count = _most_frequent(lists, [sorted(map(_digest, items)) for items in lists])
        if count >= min_support * total:
            note = f"these items in any order in {count} of {total} calls"
            return ArgumentPattern(Unordered(tuple(map(literal_value, value))), note)
    return None


def _choice(values: Sequence[Any], min_support: float) -> ArgumentPattern | None:
    """Return the few values that many calls have; each of them must be repeated."""
    if len(values) < _MIN_CALLS_OF_CHOICES or not all(isinstance(value, str | int | float) for value in values):
        return None
    counts = Counter(map(_digest, values))
    by_digest = {_digest(value): value for value in values}
    repeated = sorted((digest for digest in counts if counts[digest] > 1), key=lambda digest: (-counts[digest], digest))
    covered = sum(counts[digest] for digest in repeated)
    if len(repeated) > _MAX_CHOICES or covered < min_support * len(values):
        return None
    shares = ", ".join(f"{_brief(by_digest[digest])} {counts[digest]}" for digest in repeated)
    options = tuple(literal_value(by_digest[digest]) for digest in repeated)
    return ArgumentPattern(OneOf(options), f"{shares} of {len(values)} calls")


def _common_form(values: Sequence[Any], min_support: float, levels: int) -> Any:
    """Return a matcher of the type or of the shape of values that differ."""
    needed = min_support * len(values)
    json_type, count = Counter(map(_json_type, values)).most_common(1)[0]
    if count < needed:
        numbers = sum(_json_type(value) in ("integer", "number") for value in values)
        return OfType("number") if numbers >= needed else Anything()
    of_type = [value for value in values if _json_type(value) == json_type]
    if json_type == "string" and (pattern := _text_shape(of_type, needed)) is not None:
        return Regex(pattern)
    if json_type == "object" and levels and len({frozenset(value) for value in of_type}) == 1:
        return {
            key: _entry_form([value[key] for value in of_type], min_support, levels - 1) for key in sorted(of_type[0])
        }
    return OfType(json_type)


def _entry_form(values: Sequence[Any], min_support: float, levels: int) -> Any:
    constant = _constant(values, min_support)
    return constant.expected if constant is not None else _common_form(values, min_support, levels)


def _json_type(value: Any) -> JsonType:
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    if isinstance(value, int | float):
        return "integer" if isinstance(value, int) or value.is_integer() else "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, Mapping) else "array"


# --- shapes of texts --------------------------------------------------------------------------------------------------

_RUNS = re.compile(r"[0-9]+|[A-Z]+|[a-z]+|.", re.DOTALL)
_SPECIAL_CHARACTERS = frozenset("\\.+*?()|[]{}^$")
_CLASSES = {"0": "[0-9]", "A": "[A-Z]", "a": "[a-z]"}


def _text_shape(texts: Sequence[str], needed: float) -> str | None:
    """Return a regular expression for ids, dates and numbers of one form, such as `[A-Z]{2}-[0-9]+`.

    Words alone have no shape: a city in one word says nothing about the next one.
    """
    shapes: Counter[tuple[str, ...]] = Counter()
    runs_of_shape: dict[tuple[str, ...], list[list[str]]] = {}
    for text in texts:
        if 0 < len(text) <= _MAX_SHAPE_LENGTH and text.isascii() and text.isprintable():
            runs = _RUNS.findall(text)
            shape = tuple(map(_class_of_run, runs))
            shapes[shape] += 1
            runs_of_shape.setdefault(shape, []).append(runs)
    if not shapes:
        return None
    shape, count = min(shapes.items(), key=lambda item: (-item[1], item[0]))
    if count < needed or "0" not in shape or " " in shape:
        return None
    return "".join(map(_run_pattern, shape, zip(*runs_of_shape[shape], strict=True)))


def _class_of_run(run: str) -> str:
    first = run[0]
    return "0" if first.isdigit() else "A" if first.isupper() else "a" if first.islower() else first


def _run_pattern(kind: str, runs: Sequence[str]) -> str:
    if kind not in _CLASSES:
        return f"\\{kind}" if kind in _SPECIAL_CHARACTERS else kind
    if kind != "0" and len(set(runs)) == 1:
        return runs[0]
    lengths = set(map(len, runs))
    return _CLASSES[kind] + ("+" if len(lengths) > 1 else "" if lengths == {1} else f"{{{lengths.pop()}}}")


# --- values -----------------------------------------------------------------------------------------------------------


def _occurs_in(value: Any, request: str) -> bool:
    """Whether a text or a number is a part of the request, bounded by other characters than letters and digits."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return False
    try:
        text = normalize_text(str(int(value)) if isinstance(value, float) and value.is_integer() else str(value))
    except ValueError:  # Python refuses to format integers of thousands of digits
        return False
    return bool(text) and re.search(rf"(?<!\w){re.escape(text)}(?!\w)", request) is not None


def _most_frequent(values: Sequence[Any], keys: Sequence[Any]) -> tuple[Any, int]:
    """Return the value with the most frequent key and the number of values with it; of several, the least digest."""
    counts = Counter(map(_digest, keys))
    digest, count = min(counts.items(), key=lambda item: (-item[1], item[0]))
    return next(value for value, key in zip(values, keys, strict=True) if _digest(key) == digest), count


def _count_distinct(values: Sequence[Any]) -> int:
    return len(set(map(_digest, values)))


def _digest(value: Any) -> str:
    try:
        return content_digest([value])
    except (TypeError, ValueError, RecursionError):  # keys of several types, cycles, or thousands of levels
        return repr(type(value))


def _brief(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except ValueError:  # an integer of thousands of digits
        return "a number"
    return text if len(text) <= 30 else f"{text[:29]}…"
