"""Records from pieces of bytes. What they are is known from how they begin.

A format is a row of `_FORMATS`. It keeps what can be read and reports the rest.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from io import BufferedReader, BytesIO

from goldspan.model import TelemetryRecord
from goldspan.otlp import json_documents, wire_format
from goldspan.otlp.decode_results import DecodeError, RecordBatch
from goldspan.otlp.json_documents import iter_documents
from goldspan.otlp.streams import LossReporter, decompress, iter_lines, peek

_PEEK_BYTES = 4096
_BINARY_BYTES = re.compile(rb"[\x01-\x08\x0e-\x1f]")
"""Bytes that JSON has to escape, and of which every span in protobuf has some: the length of an id is one."""

_StreamDecoder = Callable[[Iterator[bytes], LossReporter], Iterator[Sequence[TelemetryRecord]]]


def decode_stream(pieces: Iterator[bytes], report: LossReporter) -> Iterator[Sequence[TelemetryRecord]]:
    """The records, as many at a time as stand together; none at a time for what is readable and holds none.

    Nothing at all is yielded where nothing can be read. What cannot is handed to `report`.
    """
    start, pieces = peek(pieces, _PEEK_BYTES)
    read_format = next(read_format for begins, read_format in _STREAM_DECODERS if begins(start))
    return read_format(pieces, report)


def _is_text(start: bytes) -> bool:
    return _BINARY_BYTES.search(start) is None


def _starts_with_bracket(start: bytes) -> bool:
    """JSON with control characters in it. A request in protobuf begins with a line feed: its first tag."""
    return start.removeprefix(BOM_UTF8).startswith((b"{", b"["))


def _read_json(pieces: Iterator[bytes], report: LossReporter) -> Iterator[Sequence[TelemetryRecord]]:
    for number, document in iter_documents(iter_lines(pieces), report):
        where = f"line {number}"
        try:
            batch = json_documents.decode_document(document)
        except DecodeError as error:
            report(where, str(error))
        else:
            if batch is None:
                report(where, "JSON, but no traces and no logs")
            else:
                yield from _batch_records(batch, where, report)


def _read_protobuf(pieces: Iterator[bytes], report: LossReporter) -> Iterator[Sequence[TelemetryRecord]]:
    """One request, or several written back to back: protobuf merges them."""
    from goldspan.otlp import protobuf_signals  # loading protobuf takes as long as reading a small file

    try:
        batch = protobuf_signals.decode_signals(b"".join(pieces), report)
    except DecodeError as error:
        report("whole file", str(error))
    else:
        yield from _batch_records(batch, "whole file", report)


def _read_messages(
    read_length: wire_format.LengthReader, pieces: Iterator[bytes], report: LossReporter
) -> Iterator[Sequence[TelemetryRecord]]:
    """Messages in a row, packed or not, protobuf or JSON."""
    for number, (message, missing) in enumerate(wire_format.split_messages(pieces, read_length), 1):
        where = f"message {number}"
        if missing:
            report(where, f"cut off, {missing} bytes are missing")
            yield from _read_message(message, _ignore_loss)
        else:
            yield from _read_message(message, partial(_report_at_place, where, report))


def _read_message(message: bytes, report: LossReporter) -> Iterator[Sequence[TelemetryRecord]]:
    start, pieces = peek(decompress(BufferedReader(BytesIO(message)), report), 1)
    return (_read_json if _starts_with_bracket(start) else _read_protobuf)(pieces, report)


def _report_at_place(place: str, report: LossReporter, _where: str, what: str) -> None:
    report(place, what)


def _ignore_loss(_where: str, _what: str) -> None:
    """What else is wrong with a message that is known to be cut off tells nothing new."""


def _batch_records(batch: RecordBatch, where: str, report: LossReporter) -> Iterator[Sequence[TelemetryRecord]]:
    if batch.reason and not batch.rejected:
        report(where, batch.reason)
    elif batch.rejected:
        records = "1 record" if batch.rejected == 1 else f"{batch.rejected} records"
        report(where, f"{records} rejected: {batch.reason}")
    if batch.records or not batch.rejected:
        yield batch.records


_STREAM_DECODERS: tuple[tuple[Callable[[bytes], bool], _StreamDecoder], ...] = (
    (wire_format.starts_with_big_endian_length, partial(_read_messages, wire_format.read_big_endian)),
    (_is_text, _read_json),
    (wire_format.starts_with_varint_length, partial(_read_messages, wire_format.read_varint)),
    (_starts_with_bracket, _read_json),
    (lambda start: True, _read_protobuf),
)
"""How the bytes begin, and what reads them. The first row that fits is taken."""
