"""Messages written one after another, each preceded by its length, as the Collector's file exporter writes protobuf."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

REQUEST_TAG = 0x0A
"""The tag of what every OTLP request consists of: the telemetry of one resource."""
_ITEM_PATH = (REQUEST_TAG, 0x12, 0x12)
"""The tags that lead to the items of every signal: a resource's telemetry in a request, a scope's in that, the item."""
_MAX_VARINT_BYTES = 10


def read_varint(data: bytes | bytearray, start: int) -> tuple[int, int]:
    """The number that begins at `start`, and where it ends: beyond `data` where it was cut off or is none."""
    value = 0
    for at in range(start, min(start + _MAX_VARINT_BYTES, len(data))):
        value |= (data[at] & 0x7F) << 7 * (at - start)
        if data[at] < 0x80:
            return value, at + 1
    return value, len(data) + 1


def encode_varint(value: int) -> bytes:
    """A number as protobuf writes it."""
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def looks_like_request(data: bytes | bytearray, start: int, length: int) -> bool:
    """Whether the `length` bytes from `start` on begin as an OTLP request does, two levels deep."""
    at, end = start, start + length
    for allowed in ((REQUEST_TAG,), (REQUEST_TAG, 0x12, 0x1A)):  # then its resource, its scopes or its schema's URL
        if at >= len(data) or data[at] not in allowed:
            return False
        size, at = read_varint(data, at + 1)
        if at > len(data) or at + size > end:
            return False
        if not size:
            return True
        end = at + size
    return True


def iter_resources(data: bytes) -> Iterator[bytes]:
    """The parts of a request, each of them a request by itself."""
    for tag, start, _, end in _iter_fields(data):
        if tag == REQUEST_TAG:
            yield data[start:end]


def iter_items(data: bytes, path: tuple[int, ...] = _ITEM_PATH) -> Iterator[bytes]:
    """The bytes of each span, log record or metric of a request."""
    if not path:
        yield data
        return
    for tag, _, content, end in _iter_fields(data):
        if tag == path[0]:
            yield from iter_items(data[content:end], path[1:])


def iter_tags(data: bytes) -> Iterator[int]:
    """Number and type of each field of a message."""
    return (tag for tag, *_ in _iter_fields(data))


def complete_prefix(data: bytes, path: tuple[int, ...] = _ITEM_PATH) -> bytes:
    """A request up to where it was cut off: up to its last whole span or log record."""
    kept = 0
    for tag, start, content, end in _iter_fields(data):
        if end <= len(data):
            kept = end
        elif len(path) > 1 and tag == path[0] and content <= len(data):
            inner = complete_prefix(data[content:], path[1:])
            return data[:start] + bytes([tag]) + encode_varint(len(inner)) + inner
    return data[:kept]


def _iter_fields(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Tag, start, start of the content and end of each field; the last may end beyond `data`."""
    start = 0
    while start < len(data):
        tag, content = read_varint(data, start)
        length = 0
        match tag & 7:
            case 0:
                _, content = read_varint(data, content)
            case 1:
                length = 8
            case 2:
                length, content = read_varint(data, content)
            case 5:
                length = 4
            case _:  # what OTLP never had
                length = len(data)
        end = content + length
        yield tag, start, content, end
        start = end


LengthReader = Callable[[bytes | bytearray, int], tuple[int, int]]
"""Reads the length that is written at a place: the length, and where the message begins (beyond the data: cut off)."""

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_MAX_EMPTY_PREFIX = 4096
"""So many bytes of empty messages are passed over when a file is looked at."""
_MIN_TEXT_BYTE = 0x09
"""No text begins with a smaller byte. Messages whose length begins with a greater one would have 150 MiB and more."""


def read_big_endian(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Four bytes, as the Collector writes it."""
    return int.from_bytes(data[at : at + 4], "big"), at + 4


def starts_with_big_endian_length(start: bytes) -> bool:
    """Whether a file begins with a length in four bytes. The Collector packs each message; it may be JSON then."""
    length, at = _first_length(start, read_big_endian)
    return start[:1] < bytes([_MIN_TEXT_BYTE]) and (
        looks_like_request(start, at, length) or start.startswith((_ZSTD_MAGIC, b'{"'), at)
    )


def starts_with_varint_length(start: bytes) -> bool:
    """Whether a file begins with a length as protobuf itself writes it.

    A plain request never looks like that. It begins with its tag, 10; where that is a length, its own length must be
    the tag of the message, 10 again, and the next byte both the tag of a resource (10, 18, 26) and at most 8.
    """
    length, at = _first_length(start, read_varint)
    return looks_like_request(start, at, length)


def split_messages(pieces: Iterable[bytes], read_length: LengthReader) -> Iterator[tuple[bytes, int]]:
    """Each message and how many bytes of it are missing: of the last one, where it was cut off."""
    held = bytearray()
    wanted = 1
    for piece in pieces:
        held += piece
        at = 0
        while len(held) - at >= wanted:
            length, start = read_length(held, at)
            wanted = start + length - at if start <= len(held) else len(held) - at + 1
            if len(held) - at >= wanted:
                yield bytes(held[start : start + length]), 0
                at, wanted = start + length, 1
        del held[:at]
    if held:
        length, start = read_length(held, 0)
        yield bytes(held[start:]), max(start + length - len(held), 1)


def _first_length(start: bytes, read_length: LengthReader) -> tuple[int, int]:
    """The length of the first message that is not empty."""
    length, at = 0, 0
    while not length and at < min(len(start), _MAX_EMPTY_PREFIX):
        length, at = read_length(start, at)
    return length, at
