"""Reads spans and log records from files, folders and standard input in any known format.

The format is detected by the contents.

Unreadable places are reported, and the rest of a file is kept. A file without any readable record is an error.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import BufferedReader, FileIO, RawIOBase
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from goldspan.errors import GoldspanWarning, TraceFileError
from goldspan.model import TelemetryRecord
from goldspan.otlp import format_detection, parquet_files, remote_files
from goldspan.otlp.start_range import ALL_STARTS, StartRange
from goldspan.otlp.streams import LossReporter, decompress

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_UNCOMPRESSED_SUFFIXES = (".json", ".jsonl", ".ndjson", ".pb", ".binpb", ".bin")
_SUFFIXES = (*(suffix + packed for suffix in _UNCOMPRESSED_SUFFIXES for packed in ("", ".gz", ".zst")), ".parquet")
"""The suffixes of trace files in a folder. A file that is named explicitly may have any suffix."""
_STDIN = "-"
_MAX_LOSSES_BEFORE_DATA = 100
"""A file with this many unreadable places before the first readable one is not a trace file."""


@dataclass(frozen=True, slots=True)
class Loss:
    """One place of a trace file that could not be read."""

    path: str
    where: str
    """`line 3`, `message 3`, `end of file`, `whole file`."""
    what: str

    def __str__(self) -> str:
        """The loss in one line."""
        return f"{self.path}, {self.where}: {self.what}"


OnLoss = Callable[[Loss], object]
OnBytesRead = Callable[[int], object]


def read_records(
    paths: Iterable[str | os.PathLike[str]],
    *,
    on_loss: OnLoss | None = None,
    on_read: OnBytesRead | None = None,
    start_range: StartRange = ALL_STARTS,
) -> Iterator[TelemetryRecord]:
    """Reads the spans and log records of files, folders and standard input.

    Of a folder, every trace file below it is read, ordered by name. Records keep their order in the files; repeated
    records are not removed. Metrics are ignored. An empty file and a file with only metrics are valid.

    Args:
        paths: Files, folders, or `-` for standard input. A file or folder may be a URL such as `s3://bucket/traces`,
            which fsspec reads.
        on_loss: Called for each place that cannot be read. Without it, each file with such places causes one
            `GoldspanWarning`.
        on_read: Called with the number of bytes read since the last call: of a compressed file, its own bytes; of
            standard input, the decompressed bytes.
        start_range: The runs that are needed. Records that started more than an hour before or after it are left out.

    Raises:
        TraceFileError: A path does not exist (raised at once), or a file is no trace file (raised when it is read).
    """
    sources = [(os.fspath(path), _files_below(os.fspath(path))) for path in paths]
    return _read_all(sources, on_loss, on_read, start_range)


def total_bytes(paths: Iterable[str | os.PathLike[str]]) -> int | None:
    """Returns how many bytes `read_records` will read; `None` if the paths include a pipe or standard input.

    Raises `TraceFileError` for a path that does not exist.
    """
    total = 0
    for named in paths:
        path = os.fspath(named)
        files = _files_below(path)
        if files is None and not remote_files.is_url(path) and not os.path.isfile(path):
            return None
        total += sum(map(_size_of, [path] if files is None else files))
    return total


def _size_of(path: str) -> int:
    return remote_files.size_of(path) if remote_files.is_url(path) else os.path.getsize(path)


def _files_below(path: str) -> list[str] | None:
    """The trace files of a folder; `None` if the path is not a folder."""
    if path == _STDIN or os.path.isfile(path):
        return None
    files: list[str] | None
    if remote_files.is_url(path):
        files = remote_files.files_below(path, _is_trace_file)
        if files is None:
            return None
    elif not os.path.exists(path):
        raise TraceFileError(f"{path}: no such file or folder")
    elif not os.path.isdir(path):  # a named pipe, /dev/stdin, a shell's <(...)
        return None
    else:
        files = [str(file) for file in sorted(Path(path).rglob("*")) if _is_trace_file(file.name) and file.is_file()]
    if not files:
        suffixes = ", ".join((*_UNCOMPRESSED_SUFFIXES, ".parquet"))
        raise TraceFileError(f"{path}: no trace file in this folder; their names end in {suffixes}")
    return files


def _is_trace_file(name: str) -> bool:
    return name.lower().endswith(_SUFFIXES)


@dataclass(frozen=True, slots=True)
class FilePart:
    """A trace file, or the lines of one from a position up to another."""

    path: str
    folder: str | None = None
    """The folder that was named, if the file is in one. A file in it that is no trace file is only a loss."""
    start: int = 0
    end: int | None = None
    """`None`: the end of the file."""
    start_range: StartRange = ALL_STARTS
    """The runs that are needed; see `read_records`."""

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole file."""
        return self.start == 0 and self.end is None

    @property
    def can_be_opened_again(self) -> bool:
        """Whether another process can read it: not standard input, and no pipe."""
        return remote_files.is_url(self.path) or os.path.isfile(self.path)


def list_files(paths: Iterable[str | os.PathLike[str]], start_range: StartRange = ALL_STARTS) -> list[FilePart]:
    """Returns the trace files that `read_records` reads, in its order, for the runs that started in a range of time.

    Raises `TraceFileError` for a path that does not exist.
    """
    parts: list[FilePart] = []
    for named in paths:
        path = os.fspath(named)
        files = _files_below(path)
        folder = None if files is None else path
        parts += [FilePart(file, folder, start_range=start_range) for file in ([path] if files is None else files)]
    return parts


def split_file(file: FilePart, size: int) -> list[FilePart]:
    """Returns the parts of a file with about `size` bytes each, if it consists of lines with an OTLP request each.

    Every other file is returned as it is.
    """
    if not os.path.isfile(file.path) or (total := os.path.getsize(file.path)) <= size:
        return [file]
    cuts = [0]
    with open(file.path, "rb") as lines:
        if not lines.readline().startswith(_REQUEST_START):
            return [file]
        while cuts[-1] + size < total:
            lines.seek(cuts[-1] + size)
            lines.readline()
            position = lines.tell()
            while (line := lines.readline()) and not line.startswith(_REQUEST_START):
                position = lines.tell()
            if not line:
                break
            cuts.append(position)
    return [replace(file, start=start, end=end) for start, end in zip(cuts, [*cuts[1:], total], strict=True)]


_REQUEST_START = b'{"resource'
"""How a line with a request starts. No line inside a request that has several lines does."""


def part_bytes(part: FilePart) -> int:
    """Returns the number of bytes of a part."""
    return (_size_of(part.path) if part.end is None else part.end) - part.start


def read_part(part: FilePart, on_loss: OnLoss, on_read: OnBytesRead | None = None) -> Iterator[TelemetryRecord]:
    """Reads the records of a file or a part of one; lines are counted from the start of the part."""
    return _read_file(part, on_loss, on_read)


def _read_all(
    sources: list[tuple[str, list[str] | None]],
    on_loss: OnLoss | None,
    on_read: OnBytesRead | None,
    start_range: StartRange,
) -> Iterator[TelemetryRecord]:
    for path, files in sources:
        if files is None:
            yield from _read_with_warning(FilePart(path, start_range=start_range), on_loss, on_read)
        else:
            parts = [FilePart(file, path, start_range=start_range) for file in files]
            yield from _read_folder(path, parts, on_loss, on_read)


def _read_folder(
    folder: str, files: list[FilePart], on_loss: OnLoss | None, on_read: OnBytesRead | None
) -> Iterator[TelemetryRecord]:
    """Reads the trace files of a folder. Another file is only a loss; if there is no trace file, it is an error."""
    errors: list[TraceFileError] = []
    for file in files:
        try:
            yield from _read_with_warning(file, on_loss, on_read)
        except TraceFileError as error:
            errors.append(error)
            loss = no_traces_loss(file.path)
            _warn([loss]) if on_loss is None else on_loss(loss)
    if len(errors) == len(files):
        raise no_traces_in_folder(folder, errors[0]) from errors[0]


def no_traces_loss(path: str) -> Loss:
    """Returns the loss of a file in a folder that is no trace file."""
    return Loss(path, "whole file", "holds no traces")


def no_traces_in_folder(folder: str, first: object) -> TraceFileError:
    """Returns the error for a folder without any trace file; `first` is the error of the first file."""
    return TraceFileError(f"{folder}: no file in this folder holds traces; the first: {first}")


def _read_with_warning(
    part: FilePart, on_loss: OnLoss | None, on_read: OnBytesRead | None
) -> Iterator[TelemetryRecord]:
    if on_loss is not None:
        yield from _read_file(part, on_loss, on_read)
        return
    losses: list[Loss] = []
    yield from _read_file(part, losses.append, on_read)
    if losses:
        _warn(losses)


def _warn(losses: list[Loss]) -> None:
    others = f" (and {len(losses) - 1} more in this file)" if len(losses) > 1 else ""
    warnings.warn(f"not read: {losses[0]}{others}", GoldspanWarning, stacklevel=2)


def _read_file(part: FilePart, on_loss: OnLoss, on_read: OnBytesRead | None) -> Iterator[TelemetryRecord]:
    """Reads one file. Losses before the first readable record are held back: they may become an error."""
    path = part.path
    name = "standard input" if path == _STDIN else path
    needed = part.start_range.with_margin()
    held: list[Loss] = []
    readable = part.start > 0  # the start of the file was readable

    def report(where: str, what: str) -> None:
        loss = Loss(name, where, what)
        if readable:
            on_loss(loss)
            return
        held.append(loss)
        if len(held) == _MAX_LOSSES_BEFORE_DATA:
            raise _no_traces_error(held)

    if part.is_whole and _is_parquet(path):
        groups = _read_parquet(path, needed, report, on_read)
    else:
        groups = format_detection.decode_stream(_read_chunks(part, report, on_read), report)
    for records in groups:
        if not readable:
            readable = True
            for loss in held:
                on_loss(loss)
        yield from needed.select_records(records) if needed.is_bounded else records
    if held and not readable:
        raise _no_traces_error(held)


def _no_traces_error(losses: list[Loss]) -> TraceFileError:
    return TraceFileError(f"{losses[0].path}: holds no traces that can be read; {losses[0].where}: {losses[0].what}")


def _is_parquet(path: str) -> bool:
    """Whether a file can seek and starts as Parquet does, or is a remote one with its suffix."""
    if remote_files.is_url(path):
        return path.lower().endswith(".parquet")
    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            return file.read(len(parquet_files.MAGIC)) == parquet_files.MAGIC
    except OSError:
        return False  # the error is raised where the file is read


def _read_parquet(
    path: str, needed: StartRange, report: LossReporter, on_read: OnBytesRead | None
) -> Iterator[Sequence[TelemetryRecord]]:
    size = 0 if on_read is None else _size_of(path)

    def on_share_read(share: float) -> None:
        if on_read is not None:
            on_read(round(size * share))

    if not remote_files.is_url(path):
        yield from parquet_files.decode_file(path, report, on_share_read, needed)
        return
    with remote_files.open_url(path) as file:
        yield from parquet_files.decode_file(file, report, on_share_read, needed)


def _read_chunks(part: FilePart, report: LossReporter, on_read: OnBytesRead | None) -> Iterator[bytes]:
    path = part.path
    try:
        if path == _STDIN:
            for piece in decompress(cast(BufferedReader, sys.stdin.buffer), report):
                if on_read is not None:
                    on_read(len(piece))
                yield piece
        elif remote_files.is_url(path):
            with remote_files.open_url(path) as remote:
                yield from decompress(BufferedReader(_CountedReads(remote, on_read)), report)
        elif not part.is_whole:
            with BufferedReader(_CountedReads(_PartOfFile(path, part.start, part.end), on_read)) as file:
                yield from decompress(file, report)
        else:
            with open(path, "rb") if on_read is None else BufferedReader(_CountingFile(path, on_read)) as file:
                yield from decompress(file, report)
    except OSError as error:
        raise TraceFileError(f"{path}: cannot be read: {error.strerror or error}") from error


class _PartOfFile(FileIO):
    """The bytes of a file from a position up to another."""

    def __init__(self, path: str, start: int, end: int | None) -> None:
        super().__init__(path)
        self.seek(start)
        self._remaining = sys.maxsize if end is None else end - start

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(self._remaining if size is None or size < 0 else min(size, self._remaining)) or b""
        self._remaining -= len(data)
        return data


class _CountedReads(RawIOBase):
    """A file that reports how many bytes are read."""

    def __init__(self, file: IO[bytes] | FileIO, on_read: OnBytesRead | None) -> None:
        super().__init__()
        self._file = file
        self._on_read = on_read

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        target = memoryview(buffer)
        read = self._file.read(len(target)) or b""
        target[: len(read)] = read
        if self._on_read is not None:
            self._on_read(len(read))
        return len(read)


class _CountingFile(FileIO):
    """A file that reports how many bytes are read."""

    def __init__(self, path: str, on_read: OnBytesRead) -> None:
        super().__init__(path)
        self._on_read = on_read

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        number = super().readinto(buffer)
        self._on_read(number or 0)
        return number
