"""Attributes out of OTLP protobuf, and the plain values in them."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from functools import lru_cache
from typing import Any

from google.protobuf.message import DecodeError as ProtobufError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from goldspan.otlp.decode_results import readable
from goldspan.otlp.wire_format import read_varint

_STRING_VALUE = b"\x0a"
"""The tag of `string_value` in an `AnyValue`."""
_TWO_BYTE_LENGTH = 0x80
"""The length of a text from here on takes two bytes, and from 0x4000 on more."""


class LazyAttributes(Mapping[str, Any]):
    """Attributes as they came, each value decoded when it is first asked for.

    Iterating gives the keys at once and in no particular order, which is what `keys.isdisjoint(attributes)` wants;
    `keys()`, `items()`, `values()` and `dict()` are in the order of the keys. Of a key that occurs twice the last value
    counts. A value that cannot be decoded is `None`, and text that is not UTF-8 has its offending bytes replaced.

    Reading is safe from many threads. While these attributes live, all of the request they came in does; what `dict`,
    `copy.copy` and `pickle` make of them is a plain dictionary that holds nothing else.
    """

    __slots__ = ("_names", "_raw", "_read")

    def __init__(self, raw: Mapping[str, bytes]) -> None:
        self._raw = raw
        self._read: dict[str, Any] = {}
        self._names: frozenset[str] | None = None

    def __getitem__(self, key: str) -> Any:
        if key in self._raw:  # asking it for what it does not have would put that in
            return self.get(key)
        raise KeyError(key)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of that attribute, or the default where there is none."""
        read = self._read
        if key in read:
            return read[key]
        raw = self._raw.get(key)
        if raw is None:
            return default
        value = read[key] = decode_value(raw)
        return value

    def read(self, keys: Iterable[str]) -> Mapping[str, Any]:
        """Everything that was decoded so far, among it these keys, all of which are there: a quick way to ask often."""
        read, raw = self._read, self._raw
        for key in keys:
            if key not in read:
                read[key] = decode_value(raw[key])
        return read

    @property
    def names(self) -> frozenset[str]:
        """The keys, the same object as long as others have the same: quick to look something up by."""
        if self._names is None:
            self._names = _intern_names(frozenset(self._raw))
        return self._names

    def __contains__(self, key: object) -> bool:
        return key in self._raw

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)

    def keys(self) -> KeysView[str]:
        """The keys, sorted."""
        return dict.fromkeys(sorted(self._raw)).keys()

    def items(self) -> ItemsView[str, Any]:
        """Keys and values, in the order of the keys."""
        return self._decode_all().items()

    def values(self) -> ValuesView[Any]:
        """The values, in the order of their keys."""
        return self._decode_all().values()

    def __repr__(self) -> str:
        return repr(self._decode_all())

    def __reduce__(self) -> tuple[type, tuple[dict[str, Any]]]:
        return dict, (self._decode_all(),)

    def _decode_all(self) -> dict[str, Any]:
        return {key: self.get(key) for key in sorted(self._raw)}


@lru_cache(maxsize=1024)
def _intern_names(names: frozenset[str]) -> frozenset[str]:
    return names


def decode_value(raw: bytes) -> Any:
    """The plain value of the bytes of an `AnyValue`; `None` for one that is empty, broken or nested too deeply."""
    # Nine of ten values are text, and making a message for one would cost more than a look at its length.
    if raw[:1] == _STRING_VALUE:
        size = len(raw) - 2
        if size > 0 and raw[1] == size < _TWO_BYTE_LENGTH:
            return raw[2:].decode("utf-8", "replace")
        if size > _TWO_BYTE_LENGTH and raw[1] >= 0x80 > raw[2] and raw[1] - 0x80 + (raw[2] << 7) == size - 1:
            return raw[3:].decode("utf-8", "replace")
    try:
        value = AnyValue.FromString(raw)
    except ProtobufError:
        return _decode_damaged_text(raw)
    return value.string_value or any_value_to_python(value)


def _decode_damaged_text(raw: bytes) -> str | None:
    """Text that is not UTF-8, with U+FFFD for what cannot be read. Any other broken value is not known."""
    size, start = read_varint(raw, 1)
    is_text = raw[:1] == _STRING_VALUE and start + size == len(raw)
    return str(raw[start:], "utf-8", "replace") if is_text else None


def any_value_to_python(value: AnyValue) -> Any:
    """The plain value. Recursion is bounded: protobuf refuses messages nested more than 100 deep."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [item.string_value or any_value_to_python(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return key_values_to_dict(value.kvlist_value.values)
    if kind == "bytes_value":
        return readable(value.bytes_value)
    return getattr(value, kind) if kind is not None else None


def key_values_to_dict(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    """Plain values by key; of a key that occurs twice the last value counts."""
    # Nine of ten values are text that is not empty, and reading the text costs less than asking for the kind.
    return {pair.key: pair.value.string_value or any_value_to_python(pair.value) for pair in pairs}
