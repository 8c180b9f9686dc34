"""Reads spans and log records from files, folders and standard input in any known format.

The format is detected by the contents.

Unreadable places are reported, and the rest of a file is kept. A file without any readable record is an error.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import BufferedReader, FileIO
from pathlib import Path
from typing import TYPE_CHECKING, cast

from goldspan.errors import GoldspanWarning, TraceFileError
from goldspan.model import TelemetryRecord
from goldspan.otlp import format_detection
from goldspan.otlp.streams import LossReporter, decompress

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_UNCOMPRESSED_SUFFIXES = (".json", ".jsonl", ".ndjson", ".pb", ".binpb", ".bin")
_SUFFIXES = tuple(suffix + packed for suffix in _UNCOMPRESSED_SUFFIXES for packed in ("", ".gz", ".zst"))
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
    paths: Iterable[str | os.PathLike[str]], *, on_loss: OnLoss | None = None, on_read: OnBytesRead | None = None
) -> Iterator[TelemetryRecord]:
    """Reads the spans and log records of files, folders and standard input.

    Of a folder, every trace file below it is read, ordered by name. Records keep their order in the files; repeated
    records are not removed. Metrics are ignored. An empty file and a file with only metrics are valid.

    Args:
        paths: Files, folders, or `-` for standard input.
        on_loss: Called for each place that cannot be read. Without it, each file with such places causes one
            `GoldspanWarning`.
        on_read: Called with the number of bytes read since the last call: of a compressed file, its own bytes; of
            standard input, the decompressed bytes.

    Raises:
        TraceFileError: A path does not exist (raised at once), or a file is no trace file (raised when it is read).
    """
    sources = [(os.fspath(path), _files_below(os.fspath(path))) for path in paths]
    return _read_all(sources, on_loss, on_read)


def total_bytes(paths: Iterable[str | os.PathLike[str]]) -> int | None:
    """Returns how many bytes `read_records` will read; `None` if the paths include a pipe or standard input.

    Raises `TraceFileError` for a path that does not exist.
    """
    total = 0
    for named in paths:
        path = os.fspath(named)
        files = _files_below(path)
        if files is None and not os.path.isfile(path):
            return None
        total += sum(map(os.path.getsize, [path] if files is None else files))
    return total


def _files_below(path: str) -> list[str] | None:
    """The trace files of a folder; `None` if the path is not a folder."""
    if path == _STDIN or os.path.isfile(path):
        return None
    if not os.path.exists(path):
        raise TraceFileError(f"{path}: no such file or folder")
    if not os.path.isdir(path):  # a named pipe, /dev/stdin, a shell's <(...)
        return None
    found = sorted(Path(path).rglob("*"))
    files = [str(file) for file in found if file.name.lower().endswith(_SUFFIXES) and file.is_file()]
    if not files:
        raise TraceFileError(
            f"{path}: no trace file in this folder; their names end in {', '.join(_UNCOMPRESSED_SUFFIXES)}"
        )
    return files


def _read_all(
    sources: list[tuple[str, list[str] | None]], on_loss: OnLoss | None, on_read: OnBytesRead | None
) -> Iterator[TelemetryRecord]:
    for path, files in sources:
        if files is None:
            yield from _read_with_warning(path, on_loss, on_read)
        else:
            yield from _read_folder(path, files, on_loss, on_read)


def _read_folder(
    folder: str, files: list[str], on_loss: OnLoss | None, on_read: OnBytesRead | None
) -> Iterator[TelemetryRecord]:
    """Reads the trace files of a folder. Another file is only a loss; if there is no trace file, it is an error."""
    first: TraceFileError | None = None
    other_files = 0
    for file in files:
        try:
            yield from _read_with_warning(file, on_loss, on_read)
        except TraceFileError as error:
            first, other_files = first or error, other_files + 1
            loss = Loss(file, "whole file", "holds no traces")
            _warn([loss]) if on_loss is None else on_loss(loss)
    if first is not None and other_files == len(files):
        raise TraceFileError(f"{folder}: no file in this folder holds traces; the first: {first}") from first


def _read_with_warning(path: str, on_loss: OnLoss | None, on_read: OnBytesRead | None) -> Iterator[TelemetryRecord]:
    if on_loss is not None:
        yield from _read_file(path, on_loss, on_read)
        return
    losses: list[Loss] = []
    yield from _read_file(path, losses.append, on_read)
    if losses:
        _warn(losses)


def _warn(losses: list[Loss]) -> None:
    others = f" (and {len(losses) - 1} more in this file)" if len(losses) > 1 else ""
    warnings.warn(f"not read: {losses[0]}{others}", GoldspanWarning, stacklevel=2)


def _read_file(path: str, on_loss: OnLoss, on_read: OnBytesRead | None) -> Iterator[TelemetryRecord]:
    """Reads one file. Losses before the first readable record are held back: they may become an error."""
    name = "standard input" if path == _STDIN else path
    held: list[Loss] = []
    readable = False

    def report(where: str, what: str) -> None:
        loss = Loss(name, where, what)
        if readable:
            on_loss(loss)
            return
        held.append(loss)
        if len(held) == _MAX_LOSSES_BEFORE_DATA:
            raise _no_traces_error(held)

    for records in format_detection.decode_stream(_read_chunks(path, report, on_read), report):
        if not readable:
            readable = True
            for loss in held:
                on_loss(loss)
        yield from records
    if held and not readable:
        raise _no_traces_error(held)


def _no_traces_error(losses: list[Loss]) -> TraceFileError:
    return TraceFileError(f"{losses[0].path}: holds no traces that can be read; {losses[0].where}: {losses[0].what}")


def _read_chunks(path: str, report: LossReporter, on_read: OnBytesRead | None) -> Iterator[bytes]:
    try:
        if path == _STDIN:
            for piece in decompress(cast(BufferedReader, sys.stdin.buffer), report):
                if on_read is not None:
                    on_read(len(piece))
                yield piece
        else:
            with open(path, "rb") if on_read is None else BufferedReader(_CountingFile(path, on_read)) as file:
                yield from decompress(file, report)
    except OSError as error:
        raise TraceFileError(f"{path}: cannot be read: {error.strerror or error}") from error


class _CountingFile(FileIO):
    """A file that reports how many bytes are read."""

    def __init__(self, path: str, on_read: OnBytesRead) -> None:
        super().__init__(path)
        self._on_read = on_read

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        number = super().readinto(buffer)
        self._on_read(number or 0)
        return number
