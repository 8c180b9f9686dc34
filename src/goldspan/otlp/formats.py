"""Records from pieces of bytes. What they are is known from how they begin.

A format is a row of `_FORMATS`. It keeps what can be read and reports the rest.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from io import BufferedReader, BytesIO

from goldspan.model import Record
from goldspan.otlp import delimited, lengths, shapes
from goldspan.otlp.decoding import DecodeError
from goldspan.otlp.documents import documents
from goldspan.otlp.records import Batch
from goldspan.otlp.streams import Report, lines, looked_at, unpacked

_LOOKED_AT = 4096
_NOT_IN_TEXT = re.compile(rb"[\x01-\x08\x0e-\x1f]")
"""Bytes that JSON has to escape, and of which every span in protobuf has some: the length of an id is one."""

_Read = Callable[[Iterator[bytes], Report], Iterator[Sequence[Record]]]


def read(pieces: Iterator[bytes], report: Report) -> Iterator[Sequence[Record]]:
    """The records, as many at a time as stand together; none at a time for what is readable and holds none.

    Nothing at all is yielded where nothing can be read. What cannot is handed to `report`.
    """
    start, pieces = looked_at(pieces, _LOOKED_AT)
    read_format = next(read_format for begins, read_format in _FORMATS if begins(start))
    return read_format(pieces, report)


def _is_text(start: bytes) -> bool:
    return _NOT_IN_TEXT.search(start) is None


def _begins_with_bracket(start: bytes) -> bool:
    """JSON with control characters in it. A request in protobuf begins with a line feed: its first tag."""
    return start.removeprefix(BOM_UTF8).startswith((b"{", b"["))


def _read_json(pieces: Iterator[bytes], report: Report) -> Iterator[Sequence[Record]]:
    for number, document in documents(lines(pieces), report):
        where = f"line {number}"
        try:
            batch = shapes.decode(document)
        except DecodeError as error:
            report(where, str(error))
        else:
            if batch is None:
                report(where, "JSON, but no traces and no logs")
            else:
                yield from _kept(batch, where, report)


def _read_protobuf(pieces: Iterator[bytes], report: Report) -> Iterator[Sequence[Record]]:
    """One request, or several written back to back: protobuf merges them."""
    from goldspan.otlp import protobuf_signals  # loading protobuf takes as long as reading a small file

    try:
        batch = protobuf_signals.decode(b"".join(pieces), report)
    except DecodeError as error:
        report("whole file", str(error))
    else:
        yield from _kept(batch, "whole file", report)


def _read_messages(
    length_at: delimited.LengthAt, pieces: Iterator[bytes], report: Report
) -> Iterator[Sequence[Record]]:
    """Messages in a row, packed or not, protobuf or JSON."""
    for number, (message, missing) in enumerate(delimited.messages(pieces, length_at), 1):
        where = f"message {number}"
        if missing:
            report(where, f"cut off, {missing} bytes are missing")
            yield from _read_message(message, _ignore)
        else:
            yield from _read_message(message, partial(_report_at, where, report))


def _read_message(message: bytes, report: Report) -> Iterator[Sequence[Record]]:
    start, pieces = looked_at(unpacked(BufferedReader(BytesIO(message)), report), 1)
    return (_read_json if _begins_with_bracket(start) else _read_protobuf)(pieces, report)


def _report_at(place: str, report: Report, _where: str, what: str) -> None:
    report(place, what)


def _ignore(_where: str, _what: str) -> None:
    """What else is wrong with a message that is known to be cut off tells nothing new."""


def _kept(batch: Batch, where: str, report: Report) -> Iterator[Sequence[Record]]:
    if batch.reason and not batch.rejected:
        report(where, batch.reason)
    elif batch.rejected:
        records = "1 record" if batch.rejected == 1 else f"{batch.rejected} records"
        report(where, f"{records} rejected: {batch.reason}")
    if batch.records or not batch.rejected:
        yield batch.records


_FORMATS: tuple[tuple[Callable[[bytes], bool], _Read], ...] = (
    (delimited.begins_big_endian, partial(_read_messages, delimited.big_endian)),
    (_is_text, _read_json),
    (delimited.begins_varint, partial(_read_messages, lengths.varint)),
    (_begins_with_bracket, _read_json),
    (lambda start: True, _read_protobuf),
)
"""How the bytes begin, and what reads them. The first row that fits is taken."""
