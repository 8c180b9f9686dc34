"""Values of arguments and results as text for people: never long, never deep, and redacted where that is asked for."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from dataclasses import fields
from itertools import islice
from typing import Any, TypeAlias

from goldspan.model.matchers import (
    MATCHERS,
    Anything,
    Approx,
    Contains,
    Equal,
    Folded,
    Matcher,
    OfType,
    OneOf,
    Regex,
    Similar,
    Unordered,
)

Redaction: TypeAlias = Callable[[str, Any], Any]
"""Called with the path of a value and the value before it is shown, as in `("to.iban", "DE02")`; what it returns is
shown instead. A container is asked about first and then each of its items, and paths in results begin with `result`.
What it raises is not caught: nothing is shown that was not looked at."""

_ITEMS = 6
_LEVELS = 3
_LENGTH = 200
"""So many items, levels and characters of a value are shown."""


def said(value: Any, path: str = "", redact: Redaction | None = None) -> str:
    """A value as Python writes it, never long or deep; a matcher as a golden writes it."""
    text = _said(value, path, redact, _LEVELS)
    return text if len(text) <= _LENGTH else f"{text[: _LENGTH - 3]}..."


def _said(value: Any, path: str, redact: Redaction | None, levels: int) -> str:
    if isinstance(value, MATCHERS):
        value = _as_written(value)
    if redact is not None:
        value = redact(path, value)
    if isinstance(value, Mapping):
        opening, closing = "{", "}"
        items = (
            f"{_leaf(key)}: {_said(item, path_to(path, str(key)), redact, levels - 1)}" for key, item in value.items()
        )
    elif isinstance(value, list | tuple | set | frozenset):
        opening, closing = "[", "]"
        items = (_said(item, f"{path}[{at}]", redact, levels - 1) for at, item in enumerate(value))
    else:
        return _leaf(value)
    shown = list(islice(items, _ITEMS)) if levels else []
    more = ["..."] if len(value) > len(shown) else []
    return f"{opening}{', '.join(shown + more)}{closing}"


MATCHER_WORDS: Mapping[type[Matcher], str] = {
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


def _as_written(matcher: Matcher) -> dict[str, Any]:
    """The mapping by which a golden asks for it: one word, and the options that are set."""
    said = {field.name: getattr(matcher, field.name) for field in fields(matcher)}
    word, *_ = said.values() or [True]
    options = dict(islice(said.items(), 1, None))
    return {MATCHER_WORDS[type(matcher)]: word} | {key: value for key, value in options.items() if value is not None}


def path_to(path: str, key: str) -> str:
    """The dotted path of what stands under a key."""
    return f"{path}.{key}" if path and key else path or key


def _leaf(value: Any) -> str:
    try:
        return _brief.repr(value)
    except ValueError:  # Python refuses to write integers of thousands of digits
        return "an integer of thousands of digits"


_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = 60
