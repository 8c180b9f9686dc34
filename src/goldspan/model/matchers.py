"""What a golden may ask of a value instead of naming it: the matchers of the golden language, as plain data.

They stand in the arguments and the result of an expected tool, at any depth. What they accept is told beside each one;
`goldspan.scoring.agreement.values` judges by it.
"""

from __future__ import annotations

from dataclasses import dataclass
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
