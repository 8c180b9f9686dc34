"""Spans from trace files. What a file holds is known from its contents, never from its name.

A format is a row of `_FORMATS` and a function that turns pieces of bytes into decoded requests. It keeps what can be
read and reports the rest; a file of which it can keep nothing is no trace file, and that is an error.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import cast

from goldspan.errors import GoldspanWarning, TraceFileError
from goldspan.model import SpanRecord
from goldspan.otlp import otlp_json
from goldspan.otlp.decoding import Decoded, DecodeError
from goldspan.otlp.documents import documents, is_request
from goldspan.otlp.streams import Report, lines, looked_at, unpacked

_PLAIN_SUFFIXES = (".json", ".jsonl", ".ndjson", ".pb", ".binpb", ".bin")
_SUFFIXES = tuple(suffix + packed for suffix in _PLAIN_SUFFIXES for packed in ("", ".gz", ".zst"))
"""What a trace file is called inside a folder. A file that a person names may be called anything."""
_STANDARD_INPUT = "-"
_LOOKED_AT = 4096
_PATIENCE = 100
"""So many unreadable places before the first readable one, and a file is taken for something else."""
_NOT_IN_TEXT = re.compile(rb"[\x01-\x08\x0e-\x1f]")
"""Bytes that JSON has to escape, and of which every span in protobuf has some: the length of an id is one."""


@dataclass(frozen=True, slots=True)
class Loss:
    """One place of a trace file that could not be read. The rest of the file was."""

    path: str
    where: str
    """`line 3`, `end of file`, `whole file`."""
    what: str

    def __str__(self) -> str:
        """The loss in one line."""
        return f"{self.path}, {self.where}: {self.what}"


OnLoss = Callable[[Loss], object]


def read_spans(paths: Iterable[str | os.PathLike[str]], *, on_loss: OnLoss | None = None) -> Iterator[SpanRecord]:
    """The spans of files, of folders (every trace file below, in the order of names) and of standard input (`-`).

    Spans come in the order they stand in; one that was exported twice comes twice. Unreadable places are handed to
    `on_loss`; without it, each file that has some gives one `GoldspanWarning`. Raises `TraceFileError` for a path
    that does not exist (at once) and for a file that holds no traces (when its turn comes). An empty file is fine.
    """
    sources = [(os.fspath(path), _files_below(os.fspath(path))) for path in paths]
    return _read_all(sources, on_loss)


def _files_below(path: str) -> list[str] | None:
    """The trace files of a folder; `None` for what is not a folder."""
    if path == _STANDARD_INPUT or os.path.isfile(path):
        return None
    if not os.path.exists(path):
        raise TraceFileError(f"{path}: no such file or folder")
    if not os.path.isdir(path):  # a named pipe, /dev/stdin, a shell's <(...)
        return None
    found = sorted(Path(path).rglob("*"))
    files = [str(file) for file in found if file.name.lower().endswith(_SUFFIXES) and file.is_file()]
    if not files:
        raise TraceFileError(f"{path}: no trace file in this folder; their names end in {', '.join(_PLAIN_SUFFIXES)}")
    return files


def _read_all(sources: list[tuple[str, list[str] | None]], on_loss: OnLoss | None) -> Iterator[SpanRecord]:
    for path, files in sources:
        if files is None:
            yield from _read_warning(path, on_loss)
        else:
            yield from _read_folder(path, files, on_loss)


def _read_folder(folder: str, files: list[str], on_loss: OnLoss | None) -> Iterator[SpanRecord]:
    """Nobody named these files, so one that holds something else is only a loss. If all do, it is a mistake."""
    first: TraceFileError | None = None
    strangers = 0
    for file in files:
        try:
            yield from _read_warning(file, on_loss)
        except TraceFileError as error:
            first, strangers = first or error, strangers + 1
            loss = Loss(file, "whole file", "holds no traces")
            _warn([loss]) if on_loss is None else on_loss(loss)
    if first is not None and strangers == len(files):
        raise TraceFileError(f"{folder}: no file in this folder holds traces; the first: {first}") from first


def _read_warning(path: str, on_loss: OnLoss | None) -> Iterator[SpanRecord]:
    if on_loss is not None:
        yield from _read_file(path, on_loss)
        return
    losses: list[Loss] = []
    yield from _read_file(path, losses.append)
    if losses:
        _warn(losses)


def _warn(losses: list[Loss]) -> None:
    others = f" (and {len(losses) - 1} more in this file)" if len(losses) > 1 else ""
    warnings.warn(f"not read: {losses[0]}{others}", GoldspanWarning, stacklevel=2)


def _read_file(path: str, on_loss: OnLoss) -> Iterator[SpanRecord]:
    """Losses are held back until something was read: before that, they may be the reasons for an error."""
    name = "standard input" if path == _STANDARD_INPUT else path
    held: list[Loss] = []
    readable = False

    def report(where: str, what: str) -> None:
        loss = Loss(name, where, what)
        if readable:
            on_loss(loss)
            return
        held.append(loss)
        if len(held) == _PATIENCE:
            raise _no_traces(held)

    for decoded in _requests(path, report):
        if not readable:
            readable = True
            for loss in held:
                on_loss(loss)
        yield from decoded.spans
    if held and not readable:
        raise _no_traces(held)


def _no_traces(losses: list[Loss]) -> TraceFileError:
    return TraceFileError(f"{losses[0].path}: holds no traces that can be read; {losses[0].where}: {losses[0].what}")


def _requests(path: str, report: Report) -> Iterator[Decoded]:
    start, pieces = looked_at(_pieces(path, report), _LOOKED_AT)
    read = next(read for looks_alike, read in _FORMATS if looks_alike(start))
    return read(pieces, report)


def _pieces(path: str, report: Report) -> Iterator[bytes]:
    try:
        if path == _STANDARD_INPUT:
            yield from unpacked(cast(BufferedReader, sys.stdin.buffer), report)
        else:
            with open(path, "rb") as file:
                yield from unpacked(file, report)
    except OSError as error:
        raise TraceFileError(f"{path}: cannot be read: {error.strerror or error}") from error


def _read_json(pieces: Iterator[bytes], report: Report) -> Iterator[Decoded]:
    """One or many documents. Those with logs or metrics belong to OTLP too and are passed over."""
    for number, document in documents(lines(pieces), report):
        where = f"line {number}"
        if not is_request(document):
            report(where, "JSON, but not OTLP")
            continue
        try:
            decoded = otlp_json.decode_traces(document)
        except DecodeError as error:
            report(where, str(error))
        else:
            yield from _kept(decoded, where, report)


def _read_protobuf(pieces: Iterator[bytes], report: Report) -> Iterator[Decoded]:
    """One request, or several written back to back: protobuf merges them. Logs and metrics are passed over."""
    from goldspan.otlp import protobuf  # loading it takes as long as reading a small file

    buffer = BytesIO()
    buffer.writelines(pieces)
    data = buffer.getvalue()
    fault = ""
    try:
        decoded = protobuf.decode_traces(data)
    except DecodeError as error:
        decoded, fault = protobuf.decode_damaged(data), str(error)
    if not decoded.spans and (fault or decoded.rejected) and protobuf.is_another_signal(data):
        yield Decoded([])
    elif fault and not decoded.spans:
        report("whole file", fault)
    else:
        if fault:
            report("end of file", "the protobuf message is cut off")
        yield from _kept(decoded, "whole file", report)


def _kept(decoded: Decoded, where: str, report: Report) -> Iterator[Decoded]:
    if decoded.rejected:
        spans = "1 span" if decoded.rejected == 1 else f"{decoded.rejected} spans"
        report(where, f"{spans} rejected: {decoded.reason}")
    if decoded.spans or not decoded.rejected:
        yield decoded


def _is_text(start: bytes) -> bool:
    """A request in protobuf begins with a line feed (its first field), so that a bracket is proof of JSON."""
    return start.removeprefix(BOM_UTF8).startswith((b"{", b"[")) or _NOT_IN_TEXT.search(start) is None


_FORMATS: tuple[tuple[Callable[[bytes], bool], Callable[[Iterator[bytes], Report], Iterator[Decoded]]], ...] = (
    (_is_text, _read_json),
    (lambda start: True, _read_protobuf),
)
"""How a file begins, and what reads it. The first row that fits is taken."""
