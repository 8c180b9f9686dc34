"""Decodes the attributes of OTLP protobuf messages, lazily or at once."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from functools import lru_cache
from types import CodeType
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from goldspan.otlp.decode_results import text_or_bytes
from goldspan.otlp.protobuf_errors import PROTOBUF_ERRORS
from goldspan.otlp.wire_format import read_varint

_STRING_TAG = 0x0A
"""The tag of `string_value` in an `AnyValue`."""
_TWO_BYTE_LENGTH = 0x80
"""From this length on, the length of a text takes two bytes (from 0x4000 on, more)."""
_MAX_NAME_SETS = 1024
"""Sets of attribute names, and names of spans, that are cached."""
_MAX_EXPECTED_NAMES = 64
"""The largest set of attribute names for which a check is generated."""


class LazyAttributes(Mapping[str, Any]):
    """A mapping of attributes that decodes each value on first access.

    Iteration yields the keys in no particular order, without sorting, as `keys.isdisjoint(attributes)` needs. `keys()`,
    `items()`, `values()` and `dict()` are sorted by key. The last value of a repeated key counts. A value that cannot
    be decoded is `None`; bytes that are not UTF-8 are replaced in text.

    Reading is thread-safe. The attributes keep the whole request in memory. `dict`, `copy.copy` and `pickle` produce a
    plain dictionary that does not.
    """

    __slots__ = ("_names", "_raw", "_read")

    def __init__(self, raw: Mapping[str, bytes], names: frozenset[str] | None = None) -> None:
        """Store the protobuf map, and its keys if they are known and interned."""
        self._raw = raw
        self._read: dict[str, Any] = {}
        self._names = names

    def __getitem__(self, key: str) -> Any:
        read = self._read
        if key in read:
            return read[key]
        raw = self._raw.get(key)  # `[key]` would add a missing key to the protobuf map
        if raw is None:
            raise KeyError(key)
        value = read[key] = decode_value(raw)
        return value

    def get(self, key: str, default: Any = None) -> Any:
        """Returns the value of an attribute, or the default if it is missing."""
        read = self._read
        if key in read:
            return read[key]
        names = self._names
        if names is not None and key not in names:  # takes a fifth of the time of asking the map
            return default
        raw = self._raw.get(key)
        if raw is None:
            return default
        value = read[key] = decode_value(raw)
        return value

    def read(self, keys: Iterable[str]) -> Mapping[str, Any]:
        """Decodes the given keys, which must exist, and returns all values decoded so far: a fast path."""
        read, raw = self._read, self._raw
        for key in keys:
            if key not in read:
                encoded = raw[key]
                size = len(encoded) - 2
                # Decoding a short text here saves a third of the time of `decode_value`.
                if 0 < size < _TWO_BYTE_LENGTH and encoded[1] == size and encoded[0] == _STRING_TAG:
                    try:
                        read[key] = encoded[2:].decode()
                    except UnicodeDecodeError:
                        read[key] = decode_value(encoded)
                else:
                    read[key] = decode_value(encoded)
        return read

    @property
    def names(self) -> frozenset[str]:
        """The keys as an interned set: equal sets are the same object, which makes lookups by it fast."""
        if self._names is None:
            self._names = _intern_names(frozenset(self._raw))
        return self._names

    def __contains__(self, key: object) -> bool:
        return key in (self._names or self._raw)

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)

    def keys(self) -> KeysView[str]:
        """Returns the keys, sorted."""
        return dict.fromkeys(sorted(self._raw)).keys()

    def items(self) -> ItemsView[str, Any]:
        """Returns the keys and values, sorted by key."""
        return self._decode_all().items()

    def values(self) -> ValuesView[Any]:
        """Returns the values, sorted by key."""
        return self._decode_all().values()

    def __repr__(self) -> str:
        return repr(self._decode_all())

    def __reduce__(self) -> tuple[type, tuple[dict[str, Any]]]:
        return dict, (self._decode_all(),)

    def _decode_all(self) -> dict[str, Any]:
        return {key: self.get(key) for key in sorted(self._raw)}


@lru_cache(maxsize=_MAX_NAME_SETS)
def _intern_names(names: frozenset[str]) -> frozenset[str]:
    return names


def attribute_names(span_name: str, raw: Mapping[str, bytes]) -> frozenset[str]:
    """Returns the attribute names of a span, interned.

    The span is expected to have the names of the latest span of the same name with as many attributes. To check this
    takes half the time of listing the names of a protobuf map, which creates a string for each.
    """
    key = span_name, len(raw)
    expected = _expected_names.get(key)
    if expected is not None and expected.are_all_in(raw):
        return expected.names
    if len(raw) > _MAX_EXPECTED_NAMES:
        return _intern_names(frozenset(raw))
    found = _ExpectedNames.of(frozenset(raw))
    if len(_expected_names) >= _MAX_NAME_SETS:
        _expected_names.clear()
    _expected_names[key] = found
    return found.names


class _ExpectedNames:
    """A set of attribute names, and a generated function that checks whether a map has all of them."""

    __slots__ = ("are_all_in", "names")

    def __init__(self, names: frozenset[str]) -> None:
        self.names = _intern_names(names)
        namespace: dict[str, Any] = {f"name_{number}": name for number, name in enumerate(names)}
        exec(_compile_check(len(names)), namespace)  # the code contains no text of a span
        self.are_all_in: Callable[[Mapping[str, bytes]], bool] = namespace["are_all_in"]

    @staticmethod
    @lru_cache(maxsize=_MAX_NAME_SETS)
    def of(names: frozenset[str]) -> _ExpectedNames:
        """Returns the same object for equal names."""
        return _ExpectedNames(names)


_expected_names: dict[tuple[str, int], _ExpectedNames] = {}
"""By the name of the span and the number of its attributes."""


@lru_cache(maxsize=_MAX_EXPECTED_NAMES + 1)
def _compile_check(count: int) -> CodeType:
    """Returns the code of a function that checks whether a map has so many names, its global variables."""
    checks = " and ".join(f"name_{number} in raw" for number in range(count)) or "True"
    return compile(f"def are_all_in(raw): return {checks}", "<goldspan names>", "exec")


def decode_value(raw: bytes) -> Any:
    """Decodes the bytes of an `AnyValue`; `None` if it is empty, invalid or nested too deeply."""
    # Nine of ten values are text, and parsing a message costs more than checking the length.
    size = len(raw) - 2
    if size > 0 and raw[0] == _STRING_TAG:
        try:  # `decode` without arguments takes a fifth less time than with `errors="replace"`
            if raw[1] == size < _TWO_BYTE_LENGTH:
                return raw[2:].decode()
            if size > _TWO_BYTE_LENGTH and raw[1] >= 0x80 > raw[2] and raw[1] - 0x80 + (raw[2] << 7) == size - 1:
                return raw[3:].decode()
        except UnicodeDecodeError:
            return _decode_damaged_text(raw)
    try:
        value = AnyValue.FromString(raw)
    except PROTOBUF_ERRORS:
        return _decode_damaged_text(raw)
    return value.string_value or any_value_to_python(value)


def _decode_damaged_text(raw: bytes) -> str | None:
    """Text with U+FFFD for bytes that are not UTF-8; `None` for any other invalid value."""
    size, start = read_varint(raw, 1)
    is_text = raw[:1] == bytes([_STRING_TAG]) and start + size == len(raw)
    return str(raw[start:], "utf-8", "replace") if is_text else None


def any_value_to_python(value: AnyValue) -> Any:
    """Returns the plain value. Recursion is bounded: protobuf rejects messages nested more than 100 levels deep."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [item.string_value or any_value_to_python(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return key_values_to_dict(value.kvlist_value.values)
    if kind == "bytes_value":
        return text_or_bytes(value.bytes_value)
    return getattr(value, kind) if kind is not None else None


def key_values_to_dict(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    """Returns the plain values by key; the last value of a repeated key counts."""
    # Nine of ten values are non-empty text, and reading the text costs less than reading the kind.
    return {pair.key: pair.value.string_value or any_value_to_python(pair.value) for pair in pairs}
