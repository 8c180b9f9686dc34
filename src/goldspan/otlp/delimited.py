"""Messages written one after another, each preceded by its length, as the Collector's file exporter writes protobuf."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from goldspan.otlp.lengths import begins_request, varint

LengthAt = Callable[[bytes | bytearray, int], tuple[int, int]]
"""Reads the length that is written at a place: the length, and where the message begins (beyond the data: cut off)."""

_ZSTD = b"\x28\xb5\x2f\xfd"
_EMPTY_AT_MOST = 4096
"""So many bytes of empty messages are passed over when a file is looked at."""
_LEAST_OF_TEXT = 0x09
"""No text begins with a smaller byte. Messages whose length begins with a greater one would have 150 MiB and more."""


def big_endian(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Four bytes, as the Collector writes it."""
    return int.from_bytes(data[at : at + 4], "big"), at + 4


def begins_big_endian(start: bytes) -> bool:
    """Whether a file begins with a length in four bytes. The Collector packs each message; it may be JSON then."""
    length, at = _first_length(start, big_endian)
    return start[:1] < bytes([_LEAST_OF_TEXT]) and (
        begins_request(start, at, length) or start.startswith((_ZSTD, b'{"'), at)
    )


def begins_varint(start: bytes) -> bool:
    """Whether a file begins with a length as protobuf itself writes it.

    A plain request never looks like that. It begins with its tag, 10; where that is a length, its own length must be
    the tag of the message, 10 again, and the next byte both the tag of a resource (10, 18, 26) and at most 8.
    """
    length, at = _first_length(start, varint)
    return begins_request(start, at, length)


def messages(pieces: Iterable[bytes], length_at: LengthAt) -> Iterator[tuple[bytes, int]]:
    """Each message and how many bytes of it are missing: of the last one, where it was cut off."""
    held = bytearray()
    wanted = 1
    for piece in pieces:
        held += piece
        at = 0
        while len(held) - at >= wanted:
            length, start = length_at(held, at)
            wanted = start + length - at if start <= len(held) else len(held) - at + 1
            if len(held) - at >= wanted:
                yield bytes(held[start : start + length]), 0
                at, wanted = start + length, 1
        del held[:at]
    if held:
        length, start = length_at(held, 0)
        yield bytes(held[start:]), max(start + length - len(held), 1)


def _first_length(start: bytes, length_at: LengthAt) -> tuple[int, int]:
    """The length of the first message that is not empty."""
    length, at = 0, 0
    while not length and at < min(len(start), _EMPTY_AT_MOST):
        length, at = length_at(start, at)
    return length, at
