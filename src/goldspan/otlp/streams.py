"""Bytes as they come out of a file: unpacked, in pieces, as lines, and never more of them in memory than needed."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator
from io import BufferedReader
from itertools import chain
from typing import Any

from goldspan.errors import MissingExtraError

LossReporter = Callable[[str, str], None]
"""Called for each loss with where it is ("line 3", "end of file") and what was lost, in one phrase."""

_CHUNK_BYTES = 64 * 1024
_ZSTD_CHUNK_BYTES = 2 * 1024
"""Bytes unpacked at once: zstd may make 32,768 times as many of them, so that the greatest piece stays at 64 MiB."""


def decompress(file: BufferedReader[Any], report: LossReporter) -> Iterator[bytes]:
    """The contents in pieces, decompressed where the first bytes say so."""
    start = file.peek(16)
    for magic, unpack in _DECOMPRESSORS:
        if start.startswith(magic):
            return unpack(file, report)
    return iter(lambda: file.read1(_CHUNK_BYTES), b"")


def peek(pieces: Iterator[bytes], size: int) -> tuple[bytes, Iterator[bytes]]:
    """The first `size` bytes or a few more (fewer where there are no more), and the pieces with them."""
    start = b""
    for piece in pieces:
        start += piece
        if len(start) >= size:
            break
    return start, chain([start], pieces)


def iter_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The lines without their line feeds. The last one counts with or without a line feed at its end."""
    parts: list[bytes] = []  # of a line that is longer than a piece
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
    """All members of a gzip file; of a damaged one, all that comes before the damage."""
    with gzip.GzipFile(fileobj=file) as unzipped:
        try:
            yield from iter(lambda: unzipped.read1(_CHUNK_BYTES), b"")
        except EOFError:
            report("end of file", "the gzip data is cut off")
        except (gzip.BadGzipFile, zlib.error) as error:
            report("end of file", f"the gzip data is damaged ({error})")


def _unzstd(file: BufferedReader, report: LossReporter) -> Iterator[bytes]:
    """All frames of a zstd file; of a damaged one, all that comes before the damage."""
    try:
        import zstandard
    except ImportError:
        raise MissingExtraError("reading zstd files", "zstd") from None
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
"""The first bytes of a compressed file, and what unpacks it."""
