"""Defines the matchers of argument values, and formats values of arguments and results as short text."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any, Literal, TypeAlias, get_args

JsonType = Literal["array", "boolean", "integer", "null", "number", "object", "string"]
JSON_TYPES: tuple[JsonType, ...] = get_args(JsonType)


@dataclass(frozen=True, slots=True)
class Anything:
    """`{any: true}`: any value, if it is present."""


@dataclass(frozen=True, slots=True)
class Approx:
    """`{approx: 12.5, within: 0.01}`: a number close to this one."""

    value: float
    within: float | None = None
    """The greatest absolute difference; if neither this nor `relative` is set, a millionth of the value."""
    relative: float | None = None
    """The greatest difference as a share of `value`. If both are set, the greater one applies."""


@dataclass(frozen=True, slots=True)
class Contains:
    """`{contains: Paris}`: a text that contains this text, a list with these items, or a mapping with these entries."""

    part: Any
    """Text, one item, a list of items, or a mapping; items and entries can be matchers."""


@dataclass(frozen=True, slots=True)
class Equal:
    """`{equal: {regex: x}}`: exactly this value, which would otherwise be read as a matcher."""

    value: Any


@dataclass(frozen=True, slots=True)
class Folded:
    """`{folded: New York}`: the same text, ignoring case, white space and Unicode composition."""

    text: str


@dataclass(frozen=True, slots=True)
class OfType:
    """`{type: integer}`: any value of this JSON type; 1.0 is an integer, `true` is not a number."""

    type: JsonType


@dataclass(frozen=True, slots=True)
class OneOf:
    """`{one_of: [EUR, USD]}`: one of these values, which can be matchers."""

    options: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Regex:
    r"""`{regex: "\\d+"}`: a text that the pattern matches as a whole, in the syntax of Rust's `regex`.

    The engine runs in time linear in the text for every pattern. It has no look-around and no back-references.
    """

    pattern: str


@dataclass(frozen=True, slots=True)
class Similar:
    """`{similar: Book a room, threshold: 0.9}`: a text that is similar to this one."""

    text: str
    threshold: float = 0.9
    """The least normalized similarity, 0 to 1, of `rapidfuzz.fuzz.ratio`."""


@dataclass(frozen=True, slots=True)
class Unordered:
    """`{unordered: [a, b]}`: a list of these items in any order; items can be matchers."""

    items: tuple[Any, ...]


Matcher: TypeAlias = Anything | Approx | Contains | Equal | Folded | OfType | OneOf | Regex | Similar | Unordered
MATCHERS: tuple[type[Matcher], ...] = get_args(Matcher)
"""Every kind of matcher."""


Redaction: TypeAlias = Callable[[str, Any], Any]
"""Receives the path of a value and the value, as in `("to.iban", "DE02")`, and returns the value to show. It is called
for a container first and then for each of its items. Paths in results start with `result`. Its exceptions are not
caught, so that no value is shown without redaction."""

_MAX_ITEMS = 6
_MAX_LEVELS = 3
_MAX_LENGTH = 200
"""The number of items, levels and characters of a value that are shown."""


def format_value(value: Any, path: str = "", redact: Redaction | None = None) -> str:
    """Returns a shortened `repr` of a value; a matcher has the notation of a golden file."""
    text = _format_nested(value, path, redact, _MAX_LEVELS)
    return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 3]}..."


def _format_nested(value: Any, path: str, redact: Redaction | None, levels: int) -> str:
    if isinstance(value, MATCHERS):
        value = _golden_notation(value)
    if redact is not None:
        value = redact(path, value)
    if isinstance(value, Mapping):
        opening, closing = "{", "}"
        items = (
            f"{_format_leaf(key)}: {_format_nested(item, join_path(path, str(key)), redact, levels - 1)}"
            for key, item in value.items()
        )
    elif isinstance(value, list | tuple | set | frozenset):
        opening, closing = "[", "]"
        items = (_format_nested(item, f"{path}[{at}]", redact, levels - 1) for at, item in enumerate(value))
    else:
        return _format_leaf(value)
    shown = list(islice(items, _MAX_ITEMS)) if levels else []
    more = ["..."] if len(value) > len(shown) else []
    return f"{opening}{', '.join(shown + more)}{closing}"


MATCHER_KEYS: Mapping[type[Matcher], str] = {
    Anything: "any",
    Approx: "approx",
    Contains: "contains",
    Equal: "equal",
    Folded: "folded",
    OfType: "type",
    OneOf: "one_of",
    Regex: "regex",
    Similar: "similar",
    Unordered: "unordered",
}
"""The key of each matcher in a golden file. Its value is the matcher's first field; the other fields are options."""


def _golden_notation(matcher: Matcher) -> dict[str, Any]:
    """Returns the matcher as a golden file writes it: its key, and the options that are set."""
    values = {field.name: getattr(matcher, field.name) for field in fields(matcher)}
    argument, *_ = values.values() or [True]
    options = dict(islice(values.items(), 1, None))
    return {MATCHER_KEYS[type(matcher)]: argument} | {key: value for key, value in options.items() if value is not None}


def join_path(path: str, key: str) -> str:
    """Returns the dotted path of the value under a key."""
    return f"{path}.{key}" if path and key else path or key


def _format_leaf(value: Any) -> str:
    try:
        return _short_repr.repr(value)
    except ValueError:  # Python before 3.14 refuses to format integers of thousands of digits
        return _ShortRepr.huge_integer


class _ShortRepr(reprlib.Repr):
    huge_integer = "an integer of thousands of digits"

    def repr_int(self, x: int, level: int) -> str:
        text = super().repr_int(x, level)
        return self.huge_integer if text.startswith("<") else text  # Python 3.14 names the type and the address


_short_repr = _ShortRepr()
_short_repr.maxstring = _short_repr.maxother = 60
