"""What Python's `repr` writes, read back.

Nothing is evaluated, and Python's own parser never sees a text: it recurses, and on some versions a long chain of
operators kills the process. The reader here takes one token at a time, in linear time and to a bounded depth. A text
that merely looks like a value denotes none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from goldspan.extraction import objects
from goldspan.extraction.objects import Constructed
from goldspan.model import ABSENT

DEEPEST = 200
"""Levels: what is nested deeper could not be compared or written again without exhausting the stack."""
_LONGEST = 1_000_000
"""Characters: more than any value that somebody would want to see."""
BRACKETS = frozenset("[{(")


def constructed(text: str, *, cut_off: bool = False) -> Constructed | None:
    """The object that a text shows, as `Type(field=value)` or as `field=value field=value`; `None` if it shows none.

    With `cut_off`, a text that ends in the middle gives the fields that are complete.
    """
    stripped = text.strip()
    if not (_NAMED.match(stripped) or _FIELD.match(stripped)):
        return None
    shown = read(stripped, cut_off=cut_off)
    return shown if isinstance(shown, Constructed) else None


def read(text: str, *, cut_off: bool = False) -> Any:
    """The value a text denotes in the notation of `repr`, else `ABSENT`."""
    if len(text) > _LONGEST:
        return ABSENT
    outermost = _Level("", None if text[0] in BRACKETS or _NAMED.match(text) else "")
    levels = [outermost]
    try:
        held: re.Match[str] | None = None
        for token in _TOKENS.finditer(text):
            if cut_off and token.lastgroup == "other" and _CUT.match(text, token.start()):
                break
            if held is not None:
                _take(held, levels)
            held = token
        # What a text that was cut off ends in may be the beginning of a longer name or number.
        if held is not None and not (cut_off and len(levels) > 1 and held.lastgroup in ("name", "number")):
            _take(held, levels)
        if len(levels) > 1 and not cut_off:
            return ABSENT
        while len(levels) > 1:
            inner = levels.pop()
            levels[-1].add(inner.value())
        if outermost.type_name is not None:
            return outermost.value() if len(outermost.pairs) > 1 and not outermost.items else ABSENT
    except _NoNotationError:
        return ABSENT
    return outermost.items[0] if len(outermost.items) == 1 else ABSENT


_NAMED = re.compile(r"[A-Za-z_][\w.]*\(")
_FIELD = re.compile(r"[A-Za-z_]\w*=(?!=)\S")
_LITERAL = r"""b?(?:'[^'\\\n]*(?:\\.[^'\\\n]*)*'|"[^"\\\n]*(?:\\.[^"\\\n]*)*")"""
_NAME = r"[A-Za-z_]\w*"
_TOKENS = re.compile(
    rf"""(?P<space>\s+)
      | (?P<text>{_LITERAL}(?:\s*{_LITERAL})*)
      | (?P<number>[-+]?(?:[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?|inf\b|nan\b))
      | (?P<open>[\[({{])
      | (?P<close>[\])}}])
      | (?P<comma>,)
      | (?P<colon>:)
      | (?P<field>{_NAME}=(?!=))
      | (?P<call>{_NAME}(?:\.{_NAME})*\()
      | (?P<name>{_NAME}(?:\.{_NAME})*)
      | (?P<member><{_NAME}(?:\.{_NAME})*:\s(?:{_LITERAL}|-?[0-9]+)>)
      | (?P<opaque><[^<>]*(?:<[^<>]*>[^<>]*)*>)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_OPAQUE = re.compile(r"<(?:class '|function |bound method |coroutine |module )|.* (?:object>|at 0x)", re.DOTALL)
_CUT = re.compile(r"""(?:\.\.\.|…)\Z|b?['"<]""")
_CONSTANTS: dict[str, Any] = {"True": True, "False": False, "None": None, "nan": math.nan, "inf": math.inf}
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U(00[01][0-9a-fA-F]{5})|(.))", re.DOTALL)
_ESCAPED = {"\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_CLOSING = {"[": "]", "{": "}", "(": ")"}


class _NoNotationError(Exception):
    """The text is not what `repr` writes."""


class _Level:
    """What stands between one pair of brackets, as far as it has been read."""

    __slots__ = ("commas", "items", "key", "opening", "pairs", "ready", "type_name")

    def __init__(self, opening: str, type_name: str | None = None) -> None:
        self.opening = opening
        self.type_name = type_name
        """Of the object whose fields these are; `None`: brackets of their own."""
        self.items: list[Any] = []
        self.pairs: list[tuple[Any, Any]] = []
        self.key: Any = ABSENT
        self.ready = True
        """Whether a value may come next."""
        self.commas = 0

    def add(self, value: Any) -> None:
        if not self.ready:
            raise _NoNotationError
        if self.key is ABSENT:
            self.items.append(value)
        else:
            self.pairs.append((self.key, value))
            self.key = ABSENT
        self.ready = False

    def begin_field(self, name: str) -> None:
        # Fields outside brackets have nothing but a space between them.
        if self.type_name is None or self.key is not ABSENT or not (self.ready or not self.opening):
            raise _NoNotationError
        self.key, self.ready = name, True

    def colon(self) -> None:
        if self.opening != "{" or self.ready or len(self.items) != 1:
            raise _NoNotationError
        self.key, self.ready = self.items.pop(), True

    def comma(self) -> None:
        if self.ready or not self.opening or (self.pairs and self.items and self.type_name is None):
            raise _NoNotationError
        self.commas += 1
        self.ready = True

    def value(self) -> Any:
        if self.type_name is not None:
            return objects.stand_for(self.type_name, self.items, self.pairs)
        if self.opening == "[":
            return self.items
        if self.opening == "(":
            return self.items[0] if len(self.items) == 1 and not self.commas else tuple(self.items)
        if self.pairs and self.items:
            raise _NoNotationError
        try:
            return set(self.items) if self.items else dict(self.pairs)
        except TypeError:
            if self.pairs:
                raise _NoNotationError from None
            return self.items


def _take(token: re.Match[str], levels: list[_Level]) -> None:
    """Let one token take effect."""
    kind, written, level = token.lastgroup, token[0], levels[-1]
    if kind == "space":
        return
    if kind == "comma":
        level.comma()
    elif kind == "colon":
        level.colon()
    elif kind == "field":
        level.begin_field(written[:-1])
    elif kind in ("open", "call"):
        if not level.ready or len(levels) > DEEPEST:
            raise _NoNotationError
        levels.append(_Level(written) if kind == "open" else _Level("(", _type_name(written[:-1])))
    elif kind == "close":
        if _CLOSING.get(level.opening) != written or level.key is not ABSENT:
            raise _NoNotationError
        levels.pop()
        levels[-1].add(level.value())
    else:
        level.add(_SCALARS.get(kind or "", _refuse)(written, level))


def _refuse(written: str, level: _Level) -> Any:
    raise _NoNotationError


def _text(written: str, level: _Level) -> Any:
    """One text, or several side by side, as `pprint` breaks long ones."""
    if "\\" not in written and written.count(written[0]) == 2 and written[0] != "b":
        return written[1:-1]
    parts = [_literal(literal[0]) for literal in _ONE_LITERAL.finditer(written)]
    if all(isinstance(part, str) for part in parts):
        return "".join(parts)
    if all(isinstance(part, bytes) for part in parts):
        return b"".join(parts)
    raise _NoNotationError


_ONE_LITERAL = re.compile(_LITERAL, re.DOTALL)


def _literal(written: str) -> Any:
    said = _ESCAPE.sub(_unescaped, written.removeprefix("b")[1:-1])
    if written[0] != "b":
        return said
    try:
        return said.encode("latin-1")
    except UnicodeEncodeError:
        raise _NoNotationError from None


def _unescaped(escape: re.Match[str]) -> str:
    octal, *hexadecimal, letter = escape.groups()
    if letter is not None:
        return _ESCAPED.get(letter, escape[0])
    code = int(octal, 8) if octal else int(next(filter(None, hexadecimal)), 16)
    return chr(code) if code <= 0x10FFFF else escape[0]


def _number(written: str, level: _Level) -> Any:
    digits = written.lstrip("+-")
    try:
        if not digits.isdecimal():
            return float(written)
        if digits[0] == "0" and digits.strip("0"):
            raise _NoNotationError
        return int(written)
    except ValueError:  # more digits than Python converts
        raise _NoNotationError from None


def _name(written: str, level: _Level) -> Any:
    """A constant, or a name that some object shows as a field's value, such as a time zone's."""
    if written in _CONSTANTS:
        return _CONSTANTS[written]
    if level.type_name is None:
        raise _NoNotationError
    return written


def _member(written: str, level: _Level) -> Any:
    """The value of an enumeration's member: `<Role.USER: 'user'>`."""
    value = written[1:-1].partition(":")[2].strip()
    return _number(value, level) if value[-1].isdecimal() else _text(value, level)


def _opaque(written: str, level: _Level) -> Any:
    """An object that shows nothing of itself stays the text it is: `<Context object at 0x7f13>`."""
    if not _OPAQUE.match(written):
        raise _NoNotationError
    return written


_SCALARS: dict[str, Callable[[str, _Level], Any]] = {
    "text": _text,
    "number": _number,
    "name": _name,
    "member": _member,
    "opaque": _opaque,
}


def _type_name(dotted: str) -> str:
    """The name of a type. A function's name is none: `print(1)` in a text is no value."""
    name = dotted.rpartition(".")[2]
    if objects.is_known(name) or name.lstrip("_")[:1].isupper():
        return name
    raise _NoNotationError
