"""Decompresses files and splits them into lines, with a small part of them in memory."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator
from io import BufferedReader
from itertools import chain
from typing import Any

from goldspan._extras import require_extra

LossReporter = Callable[[str, str], None]
"""Called for each loss with its place ("line 3", "end of file") and a short description."""

_CHUNK_BYTES = 64 * 1024
_ZSTD_CHUNK_BYTES = 2 * 1024
"""Bytes decompressed at once: zstd may expand them by a factor of 32,768, which limits a piece to 64 MiB."""


def decompress(file: BufferedReader[Any], report: LossReporter) -> Iterator[bytes]:
    """Yields the contents in pieces, decompressed if the first bytes show a known compression."""
    start = file.peek(16)
    for magic, unpack in _DECOMPRESSORS:
        if start.startswith(magic):
            return unpack(file, report)
    return iter(lambda: file.read1(_CHUNK_BYTES), b"")


def peek(pieces: Iterator[bytes], size: int) -> tuple[bytes, Iterator[bytes]]:
    """Returns at least the first `size` bytes (fewer at the end of the data), and all pieces including them."""
    start = b""
    for piece in pieces:
        start += piece
        if len(start) >= size:
            break
    return start, chain([start], pieces)


def iter_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the lines without line feeds. The last line may end without a line feed."""
    parts: list[bytes] = []  # the parts of a line that spans several pieces
    for piece in pieces:
        *ended, rest = piece.split(b"\n")
        for line in ended:
            yield b"".join((*parts, line))
            parts.clear()
        if rest:
            parts.append(rest)
    if parts:
        yield b"".join(parts)


def _gunzip(file: BufferedReader, report: LossReporter) -> Iterator[bytes]:
    """Decompresses all members of a gzip file; for a damaged file, everything before the damage."""
    with gzip.GzipFile(fileobj=file) as unzipped:
        try:
            yield from iter(lambda: unzipped.read1(_CHUNK_BYTES), b"")
        except EOFError:
            report("end of file", "the gzip data is cut off")
        except (gzip.BadGzipFile, zlib.error) as error:
            report("end of file", f"the gzip data is damaged ({error})")


def _unzstd(file: BufferedReader, report: LossReporter) -> Iterator[bytes]:
    """Decompresses all frames of a zstd file; for a damaged file, everything before the damage."""
    with require_extra("zstd"):
        import zstandard
    decompressor = zstandard.ZstdDecompressor()
    frame = None
    for piece in iter(lambda: file.read(_ZSTD_CHUNK_BYTES), b""):
        while piece:
            frame = frame or decompressor.decompressobj()
            try:
                yield frame.decompress(piece)
            except zstandard.ZstdError as error:
                report("end of file", f"the zstd data is damaged ({error})")
                return
            piece = frame.unused_data if frame.eof else b""
            frame = None if frame.eof else frame
    if frame is not None:
        report("end of file", "the zstd data is cut off")


_Decompressor = Callable[[BufferedReader, LossReporter], Iterator[bytes]]
_DECOMPRESSORS: tuple[tuple[bytes, _Decompressor], ...] = (
    (b"\x1f\x8b", _gunzip),
    (b"\x28\xb5\x2f\xfd", _unzstd),
)
"""The first bytes of each compression format, and its decompressor."""
