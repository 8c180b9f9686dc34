"""The values that objects stand for, once their `repr` is read: dates, paths, sets, and fields for all others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timezone
from typing import Any


class Constructed(dict[str, Any]):
    """An object as its `repr` shows it: its fields, and the name of its type.

    Fields without a name stand under `args`.
    """

    __slots__ = ("type_name",)

    def __init__(self, type_name: str, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.type_name = type_name
        """Without its module; empty where the text gives the fields alone."""


def stand_for(type_name: str, items: list[Any], pairs: Iterable[tuple[str, Any]]) -> Any:
    """An object's plain value where its type has one, else its fields."""
    fields = dict(pairs)
    make = _PLAIN_TYPES.get(type_name)
    if make is not None:
        try:
            return make(*items, **fields)
        except (TypeError, ValueError, LookupError, OverflowError):
            pass
    return Constructed(type_name, {**fields, "args": items} if items else fields)


_UTC = ("datetime.timezone.utc", "timezone.utc", "UTC")


def is_known(type_name: str) -> bool:
    """Whether objects of a type have a plain value."""
    return type_name in _PLAIN_TYPES


def _moment(*parts: int, tzinfo: Any = None, fold: int = 0) -> str:
    if tzinfo not in (None, *_UTC):
        raise ValueError(tzinfo)
    said = datetime(*parts, tzinfo=timezone.utc).isoformat()  # type: ignore[arg-type,misc]
    return said if tzinfo else said.removesuffix("+00:00")


def _day(year: int, month: int, day: int) -> str:
    return date(year, month, day).isoformat()


def _clock(*parts: int) -> str:
    return time(*parts).isoformat()  # type: ignore[arg-type]


def _first(value: Any = (), *_: Any, **__: Any) -> Any:
    return value


def _unique(values: Iterable[Any] = ()) -> Any:
    return set(values)


def _last(*values: Any) -> Any:
    return values[-1]


_PLAIN_TYPES: dict[str, Callable[..., Any]] = {
    "datetime": _moment,
    "date": _day,
    "time": _clock,
    "Decimal": float,
    "set": _unique,
    "frozenset": _unique,
    "defaultdict": _last,
    "TzInfo": _first,
    **dict.fromkeys(("UUID", "Path", "PosixPath", "PurePosixPath", "WindowsPath", "Url", "AnyUrl", "HttpUrl"), _first),
    **dict.fromkeys(("SecretStr", "str_", "float32", "float64", "int32", "int64", "bool_"), _first),
    **dict.fromkeys(("OrderedDict", "Counter", "mappingproxy", "deque", "array"), _first),
    **dict.fromkeys(("dict_keys", "dict_values", "dict_items"), _first),
}
