"""Defines the results of decoders, and the rules for ids and log records that all formats share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from goldspan.errors import GoldspanError
from goldspan.model import SpanRecord, SpanStatus, TelemetryRecord

STATUS_BY_CODE: Mapping[int, SpanStatus] = {0: "unset", 1: "ok", 2: "error"}
"""The codes of OTLP's `Status.StatusCode`. An unknown code counts as unset."""

_NO_TRACE_ID = bytes(16)
_NO_SPAN_ID = bytes(8)


class DecodeError(GoldspanError):
    """Bytes or a document that cannot be decoded, or one record that is invalid in OTLP."""


@dataclass(frozen=True, slots=True)
class DecodedSpans:
    """The spans of one export request."""

    spans: list[SpanRecord]
    rejected: int = 0
    """The number of rejected spans: their ids are invalid, or a value has the wrong type."""
    reason: str = ""
    """Why the first rejected span was rejected."""


def validated_ids(trace_id: bytes, span_id: bytes) -> tuple[str, str]:
    """Returns the ids of a span in hexadecimal. Raises `DecodeError` for ids that are invalid in OTLP."""
    return validated_trace_id(trace_id), validated_span_id(span_id)


def validated_trace_id(trace_id: bytes) -> str:
    """Returns a trace id in hexadecimal. Raises `DecodeError` for an id that is invalid in OTLP."""
    if len(trace_id) != 16 or trace_id == _NO_TRACE_ID:
        raise DecodeError("the trace id is not 16 bytes, or all of them are zero")
    return trace_id.hex()


def validated_span_id(span_id: bytes) -> str:
    """Returns a span id in hexadecimal. Raises `DecodeError` for an id that is invalid in OTLP."""
    if len(span_id) != 8 or span_id == _NO_SPAN_ID:
        raise DecodeError("the span id is not 8 bytes, or all of them are zero")
    return span_id.hex()


def parent_span_id(parent_id: bytes) -> str | None:
    """Returns the parent's id in hexadecimal, or `None`; some SDKs write zeros for "no parent"."""
    return parent_id.hex() if parent_id.strip(b"\0") else None


def text_or_bytes(value: bytes) -> Any:
    """Returns bytes as text if they are UTF-8, because some tracers write text as bytes; else the bytes."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """The records of one request, document or message."""

    records: Sequence[TelemetryRecord]
    rejected: int = 0
    """The number of rejected records: their ids are invalid, or a value has the wrong type."""
    reason: str = ""
    """Why the first rejected record was rejected; if none was rejected, what was ignored."""


def merge_batches(batches: Iterable[RecordBatch]) -> RecordBatch:
    """Merges all_batches batches into one."""
    all_batches = list(batches)
    return RecordBatch(
        list(chain.from_iterable(batch.records for batch in all_batches)),
        sum(batch.rejected for batch in all_batches),
        next((batch.reason for batch in all_batches if batch.reason), ""),
    )


def validated_log_ids(trace_id: bytes, span_id: bytes) -> tuple[str | None, str | None]:
    """Returns the ids of a log record in hexadecimal; unlike a span's, they may be missing or zero.

    Raises `DecodeError` for ids of another length.
    """
    if len(trace_id) not in (0, 16):
        raise DecodeError("the trace id of a log record is not 16 bytes")
    if len(span_id) not in (0, 8):
        raise DecodeError("the span id of a log record is not 8 bytes")
    return (trace_id.hex() if any(trace_id) else None), (span_id.hex() if any(span_id) else None)


def event_name(field: str, attributes: Mapping[str, Any]) -> str:
    """Returns the event name: SDKs wrote it as an attribute before OTLP had a field for it."""
    if field:
        return field
    name = attributes.get("event.name")
    return name if isinstance(name, str) else ""
