"""Protobuf's wire format, as far as it shows without a schema: fields, their lengths, and where a message was cut."""

from __future__ import annotations

from collections.abc import Iterator

REQUEST_TAG = 0x0A
"""The tag of what every OTLP request consists of: the telemetry of one resource."""
_PATH_TO_ITEMS = (REQUEST_TAG, 0x12, 0x12)
"""The tags that lead to the items of every signal: a resource's telemetry in a request, a scope's in that, the item."""
_LONGEST_VARINT = 10


def varint(data: bytes | bytearray, start: int) -> tuple[int, int]:
    """The number that begins at `start`, and where it ends: beyond `data` where it was cut off or is none."""
    value = 0
    for at in range(start, min(start + _LONGEST_VARINT, len(data))):
        value |= (data[at] & 0x7F) << 7 * (at - start)
        if data[at] < 0x80:
            return value, at + 1
    return value, len(data) + 1


def as_varint(value: int) -> bytes:
    """A number as protobuf writes it."""
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def begins_request(data: bytes | bytearray, start: int, length: int) -> bool:
    """Whether the `length` bytes from `start` on begin as an OTLP request does, two levels deep."""
    at, end = start, start + length
    for allowed in ((REQUEST_TAG,), (REQUEST_TAG, 0x12, 0x1A)):  # then its resource, its scopes or its schema's URL
        if at >= len(data) or data[at] not in allowed:
            return False
        size, at = varint(data, at + 1)
        if at > len(data) or at + size > end:
            return False
        if not size:
            return True
        end = at + size
    return True


def resources(data: bytes) -> Iterator[bytes]:
    """The parts of a request, each of them a request by itself."""
    for tag, start, _, end in _fields(data):
        if tag == REQUEST_TAG:
            yield data[start:end]


def items(data: bytes, path: tuple[int, ...] = _PATH_TO_ITEMS) -> Iterator[bytes]:
    """The bytes of each span, log record or metric of a request."""
    if not path:
        yield data
        return
    for tag, _, content, end in _fields(data):
        if tag == path[0]:
            yield from items(data[content:end], path[1:])


def tags(data: bytes) -> Iterator[int]:
    """Number and type of each field of a message."""
    return (tag for tag, *_ in _fields(data))


def whole_part(data: bytes, path: tuple[int, ...] = _PATH_TO_ITEMS) -> bytes:
    """A request up to where it was cut off: up to its last whole span or log record."""
    kept = 0
    for tag, start, content, end in _fields(data):
        if end <= len(data):
            kept = end
        elif len(path) > 1 and tag == path[0] and content <= len(data):
            inner = whole_part(data[content:], path[1:])
            return data[:start] + bytes([tag]) + as_varint(len(inner)) + inner
    return data[:kept]


def _fields(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Tag, start, start of the content and end of each field; the last may end beyond `data`."""
    start = 0
    while start < len(data):
        tag, content = varint(data, start)
        length = 0
        match tag & 7:
            case 0:
                _, content = varint(data, content)
            case 1:
                length = 8
            case 2:
                length, content = varint(data, content)
            case 5:
                length = 4
            case _:  # what OTLP never had
                length = len(data)
        end = content + length
        yield tag, start, content, end
        start = end
