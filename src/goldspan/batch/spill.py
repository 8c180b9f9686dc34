"""Keeps rows in files on disk, divided into buckets by a key, so that each bucket fits into memory.

A row is a tuple of plain values; its first item is its key, in bytes. Rows with equal keys are in the same bucket and
keep their order.
"""

from __future__ import annotations

import marshal
import pickle
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from zlib import crc32

BUCKETS: Final = 64
_BUCKET_BITS: Final = 6
_MAX_LEVEL: Final = 4
"""How often a bucket can be divided again: the hash has 32 bits."""
_ROW_BYTES = 8 * 1024
"""What a row takes in memory on average, while a bucket is divided."""
_MARSHAL, _PICKLE = b"m", b"p"

Row = tuple[Any, ...]


class Spill(NamedTuple):
    """A file with rows, and where the pieces of each bucket are in it."""

    path: str
    pieces: tuple[array[int], ...]
    """For each bucket the position and the length of its pieces, alternately."""
    level: int = 0
    """How often the rows were divided before."""

    def bucket_bytes(self, bucket: int) -> int:
        """Returns the size of a bucket on disk."""
        return sum(self.pieces[bucket][1::2])


class SpillWriter:
    """Writes rows to a spill file. Rows are buffered until they take `buffer_bytes` in memory, as the caller says."""

    def __init__(self, path: str | Path, buffer_bytes: int, level: int = 0) -> None:
        """Create the file."""
        self._path = str(path)
        self._file = open(path, "wb")  # noqa: SIM115 - closed by `__exit__`
        self._buffer_bytes, self._buffered = buffer_bytes, 0
        self._level = level
        self._rows: list[list[Row]] = [[] for _ in range(BUCKETS)]
        self._pieces = tuple(array("Q") for _ in range(BUCKETS))

    def __enter__(self) -> SpillWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, row: Row, size: int) -> None:
        """Add a row that takes about `size` bytes in memory."""
        self._rows[bucket_of(row[0], self._level)].append(row)
        self._buffered += size
        if self._buffered >= self._buffer_bytes:
            self._flush()

    def finish(self) -> Spill:
        """Write what is buffered, close the file, and return the spill."""
        self._flush()
        self._file.close()
        return Spill(self._path, self._pieces, self._level)

    def _flush(self) -> None:
        for rows, pieces in zip(self._rows, self._pieces, strict=True):
            if rows:
                piece = _dump(rows)
                pieces.extend((self._file.tell(), len(piece)))
                self._file.write(piece)
                rows.clear()
        self._buffered = 0


def bucket_of(key: bytes, level: int) -> int:
    """Returns the bucket of a key after `level` earlier divisions."""
    return crc32(key) >> (level * _BUCKET_BITS) & (BUCKETS - 1)


def read_bucket(spills: Iterable[Spill], bucket: int) -> Iterator[list[Row]]:
    """Yields the rows of a bucket in several spills, a piece at a time, in the order in which they were added."""
    for spill in spills:
        pieces = spill.pieces[bucket]
        if not pieces:
            continue
        with open(spill.path, "rb") as file:
            for position, length in zip(pieces[::2], pieces[1::2], strict=True):
                file.seek(position)
                yield _load(file.read(length))


def iter_groups(
    spills: Sequence[Spill], bucket: int, *, max_bytes: int, folder: str | Path
) -> Iterator[dict[bytes, list[Row]]]:
    """Yields all rows of a bucket by key, in parts that take about `max_bytes` on disk.

    A larger bucket is divided in a temporary file in `folder`. The rows of one key are always together, however many
    they are.
    """
    size = sum(spill.bucket_bytes(bucket) for spill in spills)
    if not size:
        return
    level = spills[0].level + 1
    if size <= max_bytes or level > _MAX_LEVEL:
        groups: dict[bytes, list[Row]] = {}
        for rows in read_bucket(spills, bucket):
            for row in rows:
                groups.setdefault(row[0], []).append(row)
        yield groups
        return
    path = Path(folder) / f"{Path(spills[0].path).name}.{bucket}.{level}"
    try:
        with SpillWriter(path, max_bytes, level) as writer:
            for rows in read_bucket(spills, bucket):
                for row in rows:
                    writer.add(row, _ROW_BYTES)
            divided = writer.finish()
        for part in range(BUCKETS):
            yield from iter_groups([divided], part, max_bytes=max_bytes, folder=folder)
    finally:
        path.unlink(missing_ok=True)


def _dump(rows: list[Row]) -> bytes:
    """Encodes rows. Of objects that several rows share, such as their resource, one copy is written."""
    try:
        return _MARSHAL + marshal.dumps(rows)
    except ValueError:  # a value that is not plain, or nested deeply
        return _PICKLE + pickle.dumps(rows)


def _load(piece: bytes) -> list[Row]:
    decode = marshal.loads if piece.startswith(_MARSHAL) else pickle.loads
    rows: list[Row] = decode(memoryview(piece)[1:])
    return rows
