"""Parses text that holds a value: JSON, JSON inside JSON, and the output of Python's `repr`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timezone
from typing import Any

from goldspan.model import ABSENT


class ReprObject(dict[str, Any]):
    """The fields of an object, parsed from its `repr`, and the name of its type.

    Fields without a name are in the list `args`.
    """

    __slots__ = ("type_name",)

    def __init__(self, type_name: str, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.type_name = type_name
        """Without its module. Empty if the text has only the fields."""


def plain_object(type_name: str, items: list[Any], pairs: Iterable[tuple[str, Any]]) -> Any:
    """Return the plain value of an object, if its type has one, else its fields."""
    fields = dict(pairs)
    make = _PLAIN_TYPES.get(type_name)
    if make is not None:
        try:
            return make(*items, **fields)
        except (TypeError, ValueError, LookupError, OverflowError):
            pass
    return ReprObject(type_name, {**fields, "args": items} if items else fields)


_UTC = ("datetime.timezone.utc", "timezone.utc", "UTC")


def has_plain_value(type_name: str) -> bool:
    """Whether objects of a type have a plain value."""
    return type_name in _PLAIN_TYPES


def _isoformat_datetime(*parts: int, tzinfo: Any = None, fold: int = 0) -> str:
    if tzinfo not in (None, *_UTC):
        raise ValueError(tzinfo)
    said = datetime(*parts, tzinfo=timezone.utc).isoformat()  # type: ignore[arg-type,misc]
    return said if tzinfo else said.removesuffix("+00:00")


def _isoformat_date(year: int, month: int, day: int) -> str:
    return date(year, month, day).isoformat()


def _isoformat_time(*parts: int) -> str:
    return time(*parts).isoformat()  # type: ignore[arg-type]


def _first_argument(value: Any = (), *_: Any, **__: Any) -> Any:
    return value


def _as_set(values: Iterable[Any] = ()) -> Any:
    return set(values)


def _last_argument(*values: Any) -> Any:
    return values[-1]


_PLAIN_TYPES: dict[str, Callable[..., Any]] = {
    "datetime": _isoformat_datetime,
    "date": _isoformat_date,
    "time": _isoformat_time,
    "Decimal": float,
    "set": _as_set,
    "frozenset": _as_set,
    "defaultdict": _last_argument,
    "TzInfo": _first_argument,
    **dict.fromkeys(
        ("UUID", "Path", "PosixPath", "PurePosixPath", "WindowsPath", "Url", "AnyUrl", "HttpUrl"), _first_argument
    ),
    **dict.fromkeys(("SecretStr", "str_", "float32", "float64", "int32", "int64", "bool_"), _first_argument),
    **dict.fromkeys(("OrderedDict", "Counter", "mappingproxy", "deque", "array"), _first_argument),
    **dict.fromkeys(("dict_keys", "dict_values", "dict_items"), _first_argument),
}


MAX_DEPTH = 200
"""Levels of nesting that are parsed. Comparing or writing deeper values would exhaust the stack."""
_MAX_REPR_CHARS = 1_000_000
"""The longest `repr` that is parsed, in characters."""
BRACKETS = frozenset("[{(")


def parse_object(text: str, *, is_truncated: bool = False) -> ReprObject | None:
    """Parse an object written as `Type(field=value)` or `field=value field=value`; return `None` for any other text.

    If `is_truncated`, return the fields that are complete.
    """
    stripped = text.strip()
    if not (_NAMED.match(stripped) or _FIELD.match(stripped)):
        return None
    shown = parse_repr(stripped, is_truncated=is_truncated)
    return shown if isinstance(shown, ReprObject) else None


def parse_repr(text: str, *, is_truncated: bool = False) -> Any:
    """Return the value of a text that `repr` wrote, else `ABSENT`."""
    if len(text) > _MAX_REPR_CHARS:
        return ABSENT
    outermost = _Level("", None if text[0] in BRACKETS or _NAMED.match(text) else "")
    levels = [outermost]
    try:
        held: re.Match[str] | None = None
        for token in _TOKENS.finditer(text):
            if is_truncated and token.lastgroup == "other" and _TRUNCATION.match(text, token.start()):
                break
            if held is not None:
                _apply_token(held, levels)
            held = token
        # The last token of a truncated text may be the start of a longer name or number.
        if held is not None and not (is_truncated and len(levels) > 1 and held.lastgroup in ("name", "number")):
            _apply_token(held, levels)
        if len(levels) > 1 and not is_truncated:
            return ABSENT
        while len(levels) > 1:
            inner = levels.pop()
            levels[-1].add(inner.value())
        if outermost.type_name is not None:
            return outermost.value() if len(outermost.pairs) > 1 and not outermost.items else ABSENT
    except _InvalidReprError:
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
_TRUNCATION = re.compile(r"""(?:\.\.\.|…)\Z|b?['"<]""")
_CONSTANTS: dict[str, Any] = {"True": True, "False": False, "None": None, "nan": math.nan, "inf": math.inf}
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U(00[01][0-9a-fA-F]{5})|(.))", re.DOTALL)
_ESCAPED = {"\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_CLOSING = {"[": "]", "{": "}", "(": ")"}


class _InvalidReprError(Exception):
    """The text is not the output of `repr`."""


class _Level:
    """The content of one pair of brackets while it is parsed."""

    __slots__ = ("commas", "expects_value", "items", "key", "opening", "pairs", "type_name")

    def __init__(self, opening: str, type_name: str | None = None) -> None:
        self.opening = opening
        self.type_name = type_name
        """The type of the object whose fields these are. `None`: a plain list, tuple, set or dictionary."""
        self.items: list[Any] = []
        self.pairs: list[tuple[Any, Any]] = []
        self.key: Any = ABSENT
        self.expects_value = True
        """Whether a value may come next."""
        self.commas = 0

    def add(self, value: Any) -> None:
        if not self.expects_value:
            raise _InvalidReprError
        if self.key is ABSENT:
            self.items.append(value)
        else:
            self.pairs.append((self.key, value))
            self.key = ABSENT
        self.expects_value = False

    def begin_field(self, name: str) -> None:
        # Only a space separates fields outside brackets.
        if self.type_name is None or self.key is not ABSENT or not (self.expects_value or not self.opening):
            raise _InvalidReprError
        self.key, self.expects_value = name, True

    def colon(self) -> None:
        if self.opening != "{" or self.expects_value or len(self.items) != 1:
            raise _InvalidReprError
        self.key, self.expects_value = self.items.pop(), True

    def comma(self) -> None:
        if self.expects_value or not self.opening or (self.pairs and self.items and self.type_name is None):
            raise _InvalidReprError
        self.commas += 1
        self.expects_value = True

    def value(self) -> Any:
        if self.type_name is not None:
            return plain_object(self.type_name, self.items, self.pairs)
        if self.opening == "[":
            return self.items
        if self.opening == "(":
            return self.items[0] if len(self.items) == 1 and not self.commas else tuple(self.items)
        if self.pairs and self.items:
            raise _InvalidReprError
        try:
            return set(self.items) if self.items else dict(self.pairs)
        except TypeError:
            if self.pairs:
                raise _InvalidReprError from None
            return self.items


def _apply_token(token: re.Match[str], levels: list[_Level]) -> None:
    """Apply one token to the levels."""
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
        if not level.expects_value or len(levels) > MAX_DEPTH:
            raise _InvalidReprError
        levels.append(_Level(written) if kind == "open" else _Level("(", _parse_type_name(written[:-1])))
    elif kind == "close":
        if _CLOSING.get(level.opening) != written or level.key is not ABSENT:
            raise _InvalidReprError
        levels.pop()
        levels[-1].add(level.value())
    else:
        level.add(_SCALARS.get(kind or "", _reject_token)(written, level))


def _reject_token(written: str, level: _Level) -> Any:
    raise _InvalidReprError


def _parse_strings(written: str, level: _Level) -> Any:
    """Parse one string literal, or several adjacent ones, which `pprint` writes for long strings."""
    if "\\" not in written and written.count(written[0]) == 2 and written[0] != "b":
        return written[1:-1]
    parts = [_parse_string(literal[0]) for literal in _ONE_LITERAL.finditer(written)]
    if all(isinstance(part, str) for part in parts):
        return "".join(parts)
    if all(isinstance(part, bytes) for part in parts):
        return b"".join(parts)
    raise _InvalidReprError


_ONE_LITERAL = re.compile(_LITERAL, re.DOTALL)


def _parse_string(written: str) -> Any:
    said = _ESCAPE.sub(_unescaped, written.removeprefix("b")[1:-1])
    if written[0] != "b":
        return said
    try:
        return said.encode("latin-1")
    except UnicodeEncodeError:
        raise _InvalidReprError from None


def _unescaped(escape: re.Match[str]) -> str:
    octal, *hexadecimal, letter = escape.groups()
    if letter is not None:
        return _ESCAPED.get(letter, escape[0])
    code = int(octal, 8) if octal else int(next(filter(None, hexadecimal)), 16)
    return chr(code) if code <= 0x10FFFF else escape[0]


def _parse_number(written: str, level: _Level) -> Any:
    digits = written.lstrip("+-")
    try:
        if not digits.isdecimal():
            return float(written)
        if digits[0] == "0" and digits.strip("0"):
            raise _InvalidReprError
        return int(written)
    except ValueError:  # more digits than Python converts
        raise _InvalidReprError from None


def _parse_name(written: str, level: _Level) -> Any:
    """Parse a constant, or a name that an object shows as the value of a field, such as a time zone."""
    if written in _CONSTANTS:
        return _CONSTANTS[written]
    if level.type_name is None:
        raise _InvalidReprError
    return written


def _parse_enum_member(written: str, level: _Level) -> Any:
    """Return the value of an enumeration member: `<Role.USER: 'user'>`."""
    value = written[1:-1].partition(":")[2].strip()
    return _parse_number(value, level) if value[-1].isdecimal() else _parse_strings(value, level)


def _parse_opaque(written: str, level: _Level) -> Any:
    """Return the text of an object that shows no fields: `<Context object at 0x7f13>`."""
    if not _OPAQUE.match(written):
        raise _InvalidReprError
    return written


_SCALARS: dict[str, Callable[[str, _Level], Any]] = {
    "text": _parse_strings,
    "number": _parse_number,
    "name": _parse_name,
    "member": _parse_enum_member,
    "opaque": _parse_opaque,
}


def _parse_type_name(dotted: str) -> str:
    """Return the name of a type. Rejects function names: `print(1)` in a text is not a value."""
    name = dotted.rpartition(".")[2]
    if has_plain_value(name) or name.lstrip("_")[:1].isupper():
        return name
    raise _InvalidReprError


_MAX_JSON_NESTING = 3
"""Levels of JSON inside JSON that are parsed. Recorded exports have at most two."""


def plain_value(value: Any) -> Any:
    """Parse a text in JSON or Python notation. Return any other text, and any other value, unchanged."""
    if not isinstance(value, str):
        if not isinstance(value, bytes):
            return value
        value = value.decode("utf-8", "replace")
    begin = value[:1]
    if begin not in _LITERAL_STARTS and not begin.isspace():
        return value  # most texts are prose; this check is cheap
    if begin == "{" and len(value) <= MAX_DEPTH and (read := _parse_json(value)) is not ABSENT:
        return read  # the shape of most arguments
    read = parse_literal(value)
    levels = 1
    # A quoted text with brackets was encoded twice. A quoted `42` is a text.
    while isinstance(read, str) and levels < _MAX_JSON_NESTING and read.lstrip()[:1] in _QUOTED_STARTS:
        inner = parse_literal(read)
        if inner is ABSENT:
            break
        read, levels = inner, levels + 1
    return value if read is ABSENT else read


def parse_literal(text: str) -> Any:
    """Return the value of a text in JSON or, if it is in brackets, in Python notation; else `ABSENT`."""
    stripped = text.strip()
    begin = stripped[:1]
    if begin in BRACKETS:
        if _exceeds_max_depth(stripped):
            return ABSENT
    elif begin != '"' and (begin not in _LITERAL_STARTS or not _SCALAR.fullmatch(stripped)):
        return ABSENT
    read = _parse_json(stripped)
    return parse_repr(stripped) if read is ABSENT and begin in BRACKETS else read


def parse_json_list(text: str) -> list[Any] | None:
    """Return the items of a JSON list; `None` for any other text."""
    stripped = text.strip()
    read = _parse_json(stripped) if stripped[:1] == "[" and not _exceeds_max_depth(stripped) else None
    return read if isinstance(read, list) else None


def _parse_json(text: str) -> Any:
    try:
        read, end = _JSON.raw_decode(text)
    except (ValueError, RecursionError):
        return ABSENT
    return read if end == len(text) else ABSENT


_JSON = json.JSONDecoder()
_LITERAL_STARTS = frozenset('[{("-0123456789tfnNI')
"""The first characters of JSON and of Python literals in brackets."""
_QUOTED_STARTS = frozenset('[{("')
_SCALAR = re.compile(r"true|false|null|NaN|-?Infinity|-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_BRACKET = re.compile(r"[\[\](){}]")


def _exceeds_max_depth(text: str) -> bool:
    """Whether brackets are nested deeper than `MAX_DEPTH`. Brackets inside quoted text count, too."""
    if len(text) <= MAX_DEPTH or text.count("{") + text.count("[") + text.count("(") <= MAX_DEPTH:
        return False
    depth = 0
    for bracket in _BRACKET.finditer(text):
        depth += 1 if bracket[0] in "[{(" else -1
        if depth > MAX_DEPTH:
            return True
    return False
