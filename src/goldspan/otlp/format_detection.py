"""Detects the format of a byte stream by its first bytes, and decodes its records.

Each format is a row of `_STREAM_DECODERS`. A decoder keeps what it can read and reports the rest.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from io import BufferedReader, BytesIO

from goldspan.model import TelemetryRecord
from goldspan.otlp import json_documents, parquet_files, wire_format
from goldspan.otlp.decode_results import DecodeError, RecordBatch
from goldspan.otlp.json_documents import iter_documents
from goldspan.otlp.streams import LossReporter, decompress, iter_lines, peek

_PEEK_BYTES = 4096
_BINARY_BYTES = re.compile(rb"[\x01-\x08\x0e-\x1f]")
"""Bytes that JSON must escape, and that every protobuf span contains: the length of an id is one of them."""

_StreamDecoder = Callable[[Iterator[bytes], LossReporter], Iterator[Sequence[TelemetryRecord]]]


def decode_stream(pieces: Iterator[bytes], report: LossReporter) -> Iterator[Sequence[TelemetryRecord]]:
    """Yields the records in groups; an empty group for readable data without records.

    Yields nothing if nothing can be read. Unreadable places are passed to `report`.
    """
    start, pieces = peek(pieces, _PEEK_BYTES)
    decode = next(decode for matches, decode in _STREAM_DECODERS if matches(start))
    return decode(pieces, report)


def _is_text(start: bytes) -> bool:
    return _BINARY_BYTES.search(start) is None


def _starts_with_bracket(start: bytes) -> bool:
    """Detects JSON with control characters. A protobuf request starts with a line feed: its first tag."""
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
    """Reads one request, or several back to back: protobuf merges them."""
    from goldspan.otlp import protobuf_signals  # importing protobuf takes as long as reading a small file

    try:
        batch = protobuf_signals.decode_signals(b"".join(pieces), report)
    except DecodeError as error:
        report("whole file", str(error))
    else:
        yield from _batch_records(batch, "whole file", report)


def _read_parquet(pieces: Iterator[bytes], report: LossReporter) -> Iterator[Sequence[TelemetryRecord]]:
    """Reads Parquet from a stream. Its index is at its end, so all of it must be in memory."""
    return parquet_files.decode_file(BytesIO(b"".join(pieces)), report)


def _read_messages(
    read_length: wire_format.LengthReader, pieces: Iterator[bytes], report: LossReporter
) -> Iterator[Sequence[TelemetryRecord]]:
    """Reads length-delimited messages, compressed or not, in protobuf or JSON."""
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
    """Ignores further losses of a message that is already reported as truncated."""


def _batch_records(batch: RecordBatch, where: str, report: LossReporter) -> Iterator[Sequence[TelemetryRecord]]:
    if batch.reason and not batch.rejected:
        report(where, batch.reason)
    elif batch.rejected:
        records = "1 record" if batch.rejected == 1 else f"{batch.rejected} records"
        report(where, f"{records} rejected: {batch.reason}")
    if batch.records or not batch.rejected:
        yield batch.records


_STREAM_DECODERS: tuple[tuple[Callable[[bytes], bool], _StreamDecoder], ...] = (
    (lambda start: start.startswith(parquet_files.MAGIC), _read_parquet),
    (wire_format.starts_with_big_endian_length, partial(_read_messages, wire_format.read_big_endian)),
    (_is_text, _read_json),
    (wire_format.starts_with_varint_length, partial(_read_messages, wire_format.read_varint)),
    (_starts_with_bracket, _read_json),
    (lambda start: True, _read_protobuf),
)
"""The test of the first bytes and the decoder for each format. The first matching row applies."""
