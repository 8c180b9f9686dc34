"""Values of arguments and results as text for people: never long, never deep, and redacted where that is asked for."""

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
    """`{any: true}`: whatever the value is, as long as it is there."""


@dataclass(frozen=True, slots=True)
class Approx:
    """`{approx: 12.5, within: 0.01}`: a number that is near this one."""

    value: float
    within: float | None = None
    """The greatest difference; where neither this nor `relative` is given, a millionth of the value."""
    relative: float | None = None
    """The greatest difference as a share of `value`. Where both are given, either will do."""


@dataclass(frozen=True, slots=True)
class Contains:
    """`{contains: Paris}`: a text with this text in it, or a list with these items, or a mapping with these entries."""

    part: Any
    """Text, one item, a list of items, or a mapping; items and entries may be matchers."""


@dataclass(frozen=True, slots=True)
class Equal:
    """`{equal: {regex: x}}`: exactly this value, though it looks like a matcher."""

    value: Any


@dataclass(frozen=True, slots=True)
class Folded:
    """`{folded: New York}`: the same text but for case, white space and Unicode composition."""

    text: str


@dataclass(frozen=True, slots=True)
class OfType:
    """`{type: integer}`: any value of this JSON type; 1.0 is an integer, `true` is no number."""

    type: JsonType


@dataclass(frozen=True, slots=True)
class OneOf:
    """`{one_of: [EUR, USD]}`: one of these values, which may be matchers."""

    options: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Regex:
    r"""`{regex: "\\d+"}`: a text that the pattern matches as a whole, in the syntax of Rust's `regex`.

    That engine takes time in proportion to the text whatever the pattern is; it knows no look-around and no
    back-references.
    """

    pattern: str


@dataclass(frozen=True, slots=True)
class Similar:
    """`{similar: Book a room, threshold: 0.9}`: a text that is nearly this one."""

    text: str
    threshold: float = 0.9
    """The least normalized similarity, 0 to 1, of `rapidfuzz.fuzz.ratio`."""


@dataclass(frozen=True, slots=True)
class Unordered:
    """`{unordered: [a, b]}`: a list of these items in any order; items may be matchers."""

    items: tuple[Any, ...]


Matcher: TypeAlias = Anything | Approx | Contains | Equal | Folded | OfType | OneOf | Regex | Similar | Unordered
MATCHERS: tuple[type[Matcher], ...] = get_args(Matcher)
"""Every kind of matcher."""


Redaction: TypeAlias = Callable[[str, Any], Any]
"""Called with the path of a value and the value before it is shown, as in `("to.iban", "DE02")`; what it returns is
shown instead. A container is asked about first and then each of its items, and paths in results begin with `result`.
What it raises is not caught: nothing is shown that was not looked at."""

_MAX_ITEMS = 6
_MAX_LEVELS = 3
_MAX_LENGTH = 200
"""So many items, levels and characters of a value are shown."""


def format_value(value: Any, path: str = "", redact: Redaction | None = None) -> str:
    """A value as Python writes it, never long or deep; a matcher as a golden writes it."""
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
"""How a golden writes each kind of matcher: its first field is what the word says, the others are options."""


def _golden_notation(matcher: Matcher) -> dict[str, Any]:
    """The mapping by which a golden asks for it: one word, and the options that are set."""
    said = {field.name: getattr(matcher, field.name) for field in fields(matcher)}
    word, *_ = said.values() or [True]
    options = dict(islice(said.items(), 1, None))
    return {MATCHER_KEYS[type(matcher)]: word} | {key: value for key, value in options.items() if value is not None}


def join_path(path: str, key: str) -> str:
    """The dotted path of what stands under a key."""
    return f"{path}.{key}" if path and key else path or key


def _format_leaf(value: Any) -> str:
    try:
        return _short_repr.repr(value)
    except ValueError:  # Python refuses to write integers of thousands of digits
        return "an integer of thousands of digits"


_short_repr = reprlib.Repr()
_short_repr.maxstring = _short_repr.maxother = 60
