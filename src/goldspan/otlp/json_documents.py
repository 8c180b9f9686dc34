"""Finds JSON documents in lines of text, and decodes those of each known format.

One document per line (as the Collector writes), over many lines, in an array, or back to back: one rule reads all.
Separators between documents (white space, commas, square brackets, a byte order mark) are ignored. A line that ends
inside a document continues on the next line, unless that line is a complete document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from goldspan.otlp import jaeger_json, otlp_json, sdk_json
from goldspan.otlp.decode_results import DecodedSpans, RecordBatch, merge_batches
from goldspan.otlp.json_fields import parse_json, parse_object
from goldspan.otlp.streams import LossReporter

_SNAKE_CASE_KEYS = frozenset({"resource_spans", "resource_logs"})
"""Keys that are not OTLP/JSON: protobuf messages dumped with the names of their `.proto` file."""
_METRIC_KEYS = frozenset({"resourceMetrics", "resource_metrics"})
_REQUEST_KEYS = _SNAKE_CASE_KEYS | _METRIC_KEYS | {"resourceSpans", "resourceLogs"}
_BATCH_KEYS = frozenset({"resource", "scopeSpans", "instrumentationLibrarySpans"})


def decode_document(document: Any) -> RecordBatch | None:
    """Decodes the records of a document; `None` if its format is unknown. Metrics are ignored.

    Raises `DecodeError` for a document of a known format with an invalid structure.
    """
    if not isinstance(document, dict):
        return None
    return next((read(document) for fits, read in (*_DOCUMENT_DECODERS, *_PART_DECODERS) if fits(document)), None)


def is_complete_document(document: Any) -> bool:
    """Returns whether a document has a known format, and cannot be a part of another document."""
    return isinstance(document, dict) and any(fits(document) for fits, _ in _DOCUMENT_DECODERS)


def _is_otlp(document: dict[str, Any]) -> bool:
    """`{}` is also a request, from an exporter without data."""
    return not document or not _REQUEST_KEYS.isdisjoint(document)


def _wraps_otlp(wrapper: str, document: dict[str, Any]) -> bool:
    inner = document.get(wrapper)
    return isinstance(inner, dict) and (not _REQUEST_KEYS.isdisjoint(inner) or _has_batches(inner))


def _has_batches(document: dict[str, Any]) -> bool:
    batches = document.get("batches")
    return isinstance(batches, list) and all(
        isinstance(batch, dict) and not _BATCH_KEYS.isdisjoint(batch) for batch in batches
    )


def _read_otlp(document: dict[str, Any]) -> RecordBatch:
    """Accepts ids in hexadecimal and in base64, as in plain proto3 JSON: in a file they are unambiguous."""
    batches = []
    if "resourceSpans" in document:
        batches.append(_as_batch(otlp_json.decode_traces(document, read_id=otlp_json.hex_or_base64_id)))
    if "resourceLogs" in document:
        batches.append(otlp_json.decode_logs(document, read_id=otlp_json.hex_or_base64_id))
    if ignored := sorted(_SNAKE_CASE_KEYS.intersection(document)):
        batches.append(RecordBatch([], 0, f"{ignored[0]} is no field of OTLP/JSON, which has lowerCamelCase names"))
    return merge_batches(batches)


def _read_batches(document: dict[str, Any]) -> RecordBatch:
    return _read_otlp({"resourceSpans": document["batches"]})


def _read_wrapped(wrapper: str, document: dict[str, Any]) -> RecordBatch:
    inner = document[wrapper]
    return _read_batches(inner) if _has_batches(inner) else _read_otlp(inner)


def _read_jaeger(document: dict[str, Any]) -> RecordBatch:
    return _as_batch(jaeger_json.decode_traces(document))


def _as_batch(decoded: DecodedSpans) -> RecordBatch:
    return RecordBatch(decoded.spans, decoded.rejected, decoded.reason)


_DecoderTable = tuple[tuple[Callable[[dict[str, Any]], bool], Callable[[dict[str, Any]], RecordBatch]], ...]
_DOCUMENT_DECODERS: _DecoderTable = (
    (_is_otlp, _read_otlp),
    (_has_batches, _read_batches),  # Grafana Tempo, API v1 and Grafana's download
    (partial(_wraps_otlp, "trace"), partial(_read_wrapped, "trace")),  # Grafana Tempo, API v2
    (partial(_wraps_otlp, "result"), partial(_read_wrapped, "result")),  # Jaeger, API v3
    (jaeger_json.is_api_response, _read_jaeger),
    (sdk_json.is_sdk_record, sdk_json.decode_record),
)
"""The test for each format and its decoder. The first matching row applies."""
_PART_DECODERS: _DecoderTable = ((jaeger_json.is_trace_document, _read_jaeger),)
"""The same for documents that may also be part of another document."""


_SEPARATORS = re.compile(r"[\s,\[\]\ufeff]*")
_BRACKETS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[{}\[\]]', re.DOTALL)
_RECORD_LIST_KEYS = ('"spans"', '"logRecords"', '"log_records"')


class _BrokenJsonError(Exception):
    def __init__(self, what: str, *, start: int, at: int, unfinished: bool) -> None:
        super().__init__(what)
        self.start = start
        """The position where the invalid document starts."""
        self.at = at
        """The position of the error."""
        self.unfinished = unfinished
        """Whether the only error is that the text ends too early."""


def iter_documents(raw_lines: Iterable[bytes], report: LossReporter) -> Iterator[tuple[int, Any]]:
    """Yields each JSON value with the line number where it starts. Unreadable text is passed to `report`."""
    pending: list[str] = []
    first_line = 0
    seen = False
    for number, raw in enumerate(raw_lines, 1):
        if not pending and (document := parse_object(raw)) is not None:
            seen = True
            yield number, document
            continue
        line = _decode_text(raw, number, report)
        if pending:
            if not _is_complete_line(line):
                pending.append(line)
                continue
            yield from _iter_values_reporting("\n".join(pending), first_line, report)
            pending.clear()
        try:
            for _, value in _iter_values(line):
                seen = True
                yield number, value
        except _BrokenJsonError as broken:
            if broken.unfinished:
                pending.append(line[broken.start :])
                first_line = number
            else:
                report(f"line {number}", str(broken))
    if pending:
        yield from _iter_values_reporting("\n".join(pending), first_line, report, only=not seen)


def _decode_text(raw: bytes, number: int, report: LossReporter) -> str:
    if b"\0" in raw:  # some file systems write NUL bytes at the end of a file after a crash
        report(f"line {number}", "NUL bytes, as a crash leaves them")
        raw = raw.replace(b"\0", b"")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        report(f"line {number}", "bytes that are not UTF-8 were replaced")
        return raw.decode(errors="replace")


def _is_complete_line(line: str) -> bool:
    """Whether the line is a complete document, so that it cannot continue the previous document."""
    if not line.startswith("{") or not line.rstrip().endswith("}"):
        return False
    try:
        return all(value and is_complete_document(value) for _, value in _iter_values(line))
    except _BrokenJsonError:
        return False


def _iter_values(text: str, start: int = 0) -> Iterator[tuple[int, Any]]:
    """The JSON objects from `start` on, each with its position. Raises `_BrokenJsonError`."""
    while (start := _skip_separators(text, start)) < len(text):
        if text[start] != "{":
            raise _not_json("no object begins here", text, start, start)
        try:
            value, end = parse_json(text, start)
        except ValueError as error:
            raise _broken_from(error, text, start) from None
        yield start, value
        start = end


def _broken_from(error: ValueError, text: str, start: int) -> _BrokenJsonError:
    if isinstance(error, json.JSONDecodeError):
        return _not_json(error.msg, text, start, error.pos)
    # Not a syntax error: nested too deeply, or a number with too many digits.
    return _BrokenJsonError(f"not read: {error}", start=start, at=start, unfinished=False)


def _not_json(why: str, text: str, start: int, at: int) -> _BrokenJsonError:
    what = f"not JSON: {why} (column {at - text.rfind(chr(10), 0, at)})"
    unfinished = why.startswith("Unterminated string") or not text[at:].strip()
    return _BrokenJsonError(what, start=start, at=at, unfinished=unfinished)


def _skip_separators(text: str, start: int) -> int:
    gap = _SEPARATORS.match(text, start)
    return gap.end() if gap else start


def _iter_values_reporting(
    text: str, first_line: int, report: LossReporter, *, only: bool = False
) -> Iterator[tuple[int, Any]]:
    """The values of a text of many lines; after an invalid one, reading continues at the next line with a `{`.

    If a truncated document is the `only` one of its file, its complete spans are still read.
    """
    if (document := parse_object(text.encode())) is not None:
        yield first_line, document
        return
    start, line, reported = 0, first_line, 0
    while start >= 0:
        try:
            for at, value in _iter_values(text, start):
                line, start, only = line + text.count("\n", start, at), at, False
                yield line, value
            return
        except _BrokenJsonError as broken:
            line, start = line + text.count("\n", start, broken.start), broken.start
            place, what = line, "the JSON that begins here is cut off"
            if not broken.unfinished:
                place, what = line + text.count("\n", start, broken.at), str(broken)
            if place != reported:  # the rest of an invalid line may also be invalid
                report(f"line {place}", what)
                reported = place
            if only and broken.unfinished and (whole := _repair_truncated(text[start:])):
                yield line, parse_json(whole)[0]
                return
            following = text.find("\n{", start)
            line, start = line + text.count("\n", start, max(start, following)), following


def _repair_truncated(text: str) -> str | None:
    """A truncated document, up to its last complete span or log record."""
    opened: list[str] = []  # opening brackets; that of a list with the key before it
    whole, last = None, ""
    for found in _BRACKETS.finditer(text):
        token = found[0]
        if token in ("{", "["):
            opened.append(token if token == "{" else token + last)
        elif token in ("}", "]"):
            opened = opened[:-1]
            if token == "}" and opened and opened[-1][1:] in _RECORD_LIST_KEYS:
                whole = text[: found.end()] + "".join("}" if each == "{" else "]" for each in reversed(opened))
        last = token
    return whole
