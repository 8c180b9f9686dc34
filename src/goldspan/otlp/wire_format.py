"""Splits protobuf bytes into messages and fields, without decoding them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

REQUEST_TAG = 0x0A
"""The tag of the only field of an OTLP request: the telemetry of one resource."""
_ITEM_PATH = (REQUEST_TAG, 0x12, 0x12)
"""The tags on the path to the items of every signal: resource, scope, item."""
_MAX_VARINT_BYTES = 10


def read_varint(data: bytes | bytearray, start: int) -> tuple[int, int]:
    """Returns the varint at `start` and its end; the end is beyond `data` if the varint is truncated or invalid."""
    value = 0
    for at in range(start, min(start + _MAX_VARINT_BYTES, len(data))):
        value |= (data[at] & 0x7F) << 7 * (at - start)
        if data[at] < 0x80:
            return value, at + 1
    return value, len(data) + 1


def encode_varint(value: int) -> bytes:
    """Encodes a number as a protobuf varint."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def looks_like_request(data: bytes | bytearray, start: int, length: int) -> bool:
    """Returns whether `length` bytes from `start` on look like an OTLP request, two levels deep."""
    at, end = start, start + length
    for allowed in ((REQUEST_TAG,), (REQUEST_TAG, 0x12, 0x1A)):  # then the resource, the scopes or the schema URL
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
    """Yields one request for each resource of a request."""
    for tag, start, _, end in _iter_fields(data):
        if tag == REQUEST_TAG:
            yield data[start:end]


def iter_items(data: bytes, path: tuple[int, ...] = _ITEM_PATH) -> Iterator[bytes]:
    """Yields the bytes of each span, log record or metric of a request."""
    if not path:
        yield data
        return
    for tag, _, content, end in _iter_fields(data):
        if tag == path[0]:
            yield from iter_items(data[content:end], path[1:])


def iter_tags(data: bytes) -> Iterator[int]:
    """Yields the tag (number and type) of each field of a message."""
    return (tag for tag, *_ in _iter_fields(data))


def complete_prefix(data: bytes, path: tuple[int, ...] = _ITEM_PATH) -> bytes:
    """Returns a truncated request up to its last complete span or log record."""
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
            case _:  # not used in OTLP
                length = len(data)
        end = content + length
        yield tag, start, content, end
        start = end


LengthReader = Callable[[bytes | bytearray, int], tuple[int, int]]
"""Reads the length at a position; returns it and the start of the message (beyond the data if truncated)."""

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_MAX_EMPTY_PREFIX = 4096
"""The maximum number of bytes of empty messages that detection skips."""
_MIN_TEXT_BYTE = 0x09
"""No text starts with a smaller byte. A length that starts with a greater byte would be 150 MiB or more."""


def read_big_endian(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Reads a length of four bytes, as the Collector writes it."""
    return int.from_bytes(data[at : at + 4], "big"), at + 4


def starts_with_big_endian_length(start: bytes) -> bool:
    """Returns whether a file starts with a length of four bytes. The message may be compressed or JSON."""
    length, at = _first_length(start, read_big_endian)
    return start[:1] < bytes([_MIN_TEXT_BYTE]) and (
        looks_like_request(start, at, length) or start.startswith((_ZSTD_MAGIC, b'{"'), at)
    )


def starts_with_varint_length(start: bytes) -> bool:
    """Returns whether a file starts with a varint length.

    A plain request never matches. It starts with its tag, 10. Read as a length, the next byte, its length, would have
    to be the tag of a message, also 10, and the byte after it both a tag in a resource (10, 18, 26) and at most 8.
    """
    length, at = _first_length(start, read_varint)
    return looks_like_request(start, at, length)


def split_messages(pieces: Iterable[bytes], read_length: LengthReader) -> Iterator[tuple[bytes, int]]:
    """Yields each message and the number of its missing bytes, which only the last message can have."""
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
    """The length and the start of the first message that is not empty."""
    length, at = 0, 0
    while not length and at < min(len(start), _MAX_EMPTY_PREFIX):
        length, at = read_length(start, at)
    return length, at
