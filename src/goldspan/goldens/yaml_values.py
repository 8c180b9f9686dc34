"""YAML as plain values: in one pass over the parser's events, without recursion, in bounded time.

It is read with JSON's idea of a plain value: numbers, `true`, `false` and `null` (or `~`), and everything else is text.
YAML 1.1 would make the arguments `insurance: no`, `zip: 020`, `time: 14:30` and `day: 2024-05-20` into `False`, 16, 870
and a date, and no call would ever match them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from goldspan.goldens.words import shown

MAX_DEPTH = 100

_VALUES_A_BYTE = 4
_VALUES_FREE = 10_000
"""A file may stand for this many values plus so many a byte: plenty for anchors, nothing for an alias bomb."""

# The C parser is ten times faster.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class YamlError(Exception):
    """Why a text is no YAML for us, as half a sentence."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = line
        """Counted from 1, where it is known."""


EMPTY = object()
"""No document at all."""


def values(text: str) -> Any:
    """The one document in a YAML text, or `EMPTY`. Raises `YamlError`."""
    try:
        return _Builder(most=_VALUES_FREE + _VALUES_A_BYTE * len(text)).built(text)
    except yaml.MarkedYAMLError as error:
        if "nesting" in (error.problem or ""):
            # libyaml has a limit of its own since 0.2.6. It reads ahead, so that it can reach its limit before ours.
            raise YamlError("is nested too deeply") from None
        mark = error.problem_mark or error.context_mark
        told = f"not YAML: {error.problem or error.context}"
        if mark and any(line.lstrip(" ").startswith("\t") for line in text.split("\n")[mark.line : mark.line + 1]):
            told += "; indent with spaces, not with tabs"
        raise YamlError(told, mark.line + 1 if mark else None) from None
    except yaml.reader.ReaderError as error:
        raise YamlError(f"not YAML: the character {chr(error.character)!r} is not allowed") from None


@dataclass(slots=True)
class _Open:
    """A list or a mapping whose end has not come yet."""

    value: Any
    anchor: str | None
    before: int
    """How many values there were before it."""
    key: Any = None
    """The key whose value comes next."""
    merged: list[Mapping[Any, Any]] = field(default_factory=list)
    """What `<<` names: the mapping's own keys go before theirs, and the first of them before the others."""


_NO_KEY = object()
_MERGE = object()


class _Builder:
    """Puts values together as the events of the parser come."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._number = 0
        self._anchored: dict[str, tuple[Any, int] | None] = {}
        """What an anchor stands for, and for how many values; `None` while it is still open."""
        self._open: list[_Open] = []
        self._root: Any = EMPTY

    def built(self, text: str) -> Any:
        """The value of a whole text."""
        event: Any
        for event in yaml.parse(text, Loader=_Loader):
            kind = type(event)
            if kind is yaml.ScalarEvent:
                self._count(1)
                value = _scalar(event)
                if event.anchor:
                    self._anchored[event.anchor] = (value, 1)
                self._put(value, event)
            elif kind is yaml.MappingStartEvent:
                self._begin(event, _Open({}, event.anchor, self._number, _NO_KEY))
            elif kind is yaml.SequenceStartEvent:
                self._begin(event, _Open([], event.anchor, self._number))
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                self._end(event)
            elif kind is yaml.AliasEvent:
                self._put(self._meant(event), event)
            elif kind is yaml.DocumentStartEvent and self._root is not EMPTY:
                raise YamlError("holds more than one document", _line(event))
        return self._root

    def _count(self, more: int) -> None:
        self._number += more
        if self._number > self._most:
            raise YamlError("its aliases stand for far more than the file holds")

    def _begin(self, event: Any, opened: _Open) -> None:
        self._count(1)
        if len(self._open) >= MAX_DEPTH:
            raise YamlError("is nested too deeply")
        if event.tag and event.tag not in _COLLECTIONS:
            raise YamlError(f"not YAML: could not determine a constructor for the tag {event.tag!r}", _line(event))
        if event.anchor:
            self._anchored[event.anchor] = None
        self._open.append(opened)

    def _end(self, event: Any) -> None:
        ended = self._open.pop()
        value = ended.value
        if ended.merged:
            value = {key: inner for mapping in reversed(ended.merged) for key, inner in mapping.items()} | value
        if ended.anchor:
            self._anchored[ended.anchor] = (value, self._number - ended.before)
        self._put(value, event)

    def _meant(self, event: Any) -> Any:
        if event.anchor not in self._anchored:
            raise YamlError(f"not YAML: found undefined alias {event.anchor!r}", _line(event))
        found = self._anchored[event.anchor]
        if found is None:
            raise YamlError("its aliases hold themselves", _line(event))
        self._count(found[1])
        return found[0]

    def _put(self, value: Any, event: Any) -> None:
        """Put a value where it belongs: it is the next item, key or value of what is open."""
        if not self._open:
            self._root = value
            return
        inside = self._open[-1]
        if type(inside.value) is list:
            inside.value.append(value)
        elif inside.key is _NO_KEY:
            inside.key = self._key(value, inside.value, event)
        elif inside.key is _MERGE:
            inside.merged += _mappings(value, event)
            inside.key = _NO_KEY
        else:
            inside.value[inside.key] = value
            inside.key = _NO_KEY

    def _key(self, value: Any, taken: Mapping[Any, Any], event: Any) -> Any:
        if type(value) in (list, dict):
            raise YamlError(f"the key {shown(value)} must be text", _line(event))
        if value == "<<" and event.implicit[0]:
            return _MERGE
        if value in taken:
            raise YamlError(f"{value!r} is there twice", _line(event))
        return value


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _mappings(value: Any, event: Any) -> list[Mapping[Any, Any]]:
    found = value if type(value) is list else [value]
    if not all(type(each) is dict for each in found):
        raise YamlError("what '<<' names must be a mapping, or a list of mappings", _line(event))
    return found


# --- scalars ----------------------------------------------------------------------------------------------------------

_COLLECTIONS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
_WORDS = {
    **dict.fromkeys(("", "~", "null")),
    "true": True,
    "false": False,
    ".inf": math.inf,
    "-.inf": -math.inf,
    ".nan": math.nan,
}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?P<float>(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)")


def _scalar(event: Any) -> Any:
    value = event.value
    try:
        if event.tag not in (None, "!"):
            return _tagged(event)
        if event.tag or not event.implicit[0]:  # said to be text by a mere `!`, in quotes, or a block
            return value
        if value in _WORDS:
            return _WORDS[value]
        if value[0] in "-0123456789" and (hit := _NUMBER.fullmatch(value)):
            return float(value) if hit["float"] else int(value)
        return value
    except ValueError as error:
        told = "holds a number of thousands of digits" if "digits" in str(error) else f"not YAML: {error}"
        raise YamlError(told) from None


def _tagged(event: Any) -> Any:
    """A scalar whose type is written before it, as in `!!str 12`."""
    return yaml.SafeLoader("").construct_object(
        yaml.ScalarNode(event.tag, event.value, event.start_mark, event.end_mark, event.style)
    )
