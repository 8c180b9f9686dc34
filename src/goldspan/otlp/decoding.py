"""What both wire formats have in common: the outcome of decoding, and the rules for ids and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from goldspan.errors import GoldspanError
from goldspan.model import SpanRecord, Status

STATUSES: Mapping[int, Status] = {0: "unset", 1: "ok", 2: "error"}
"""The codes of OTLP's `Status.StatusCode`. A code from the future counts as unset."""

_NO_TRACE_ID = bytes(16)
_NO_SPAN_ID = bytes(8)


class DecodeError(GoldspanError):
    """Bytes or a document that are not OTLP traces, or one span that is not what OTLP says a span is."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """The spans of one export request."""

    spans: list[SpanRecord]
    rejected: int = 0
    """Spans that were left out: their ids are invalid or a value in them has the wrong type."""
    reason: str = ""
    """Why the first of the rejected spans was rejected."""


def checked_ids(trace_id: bytes, span_id: bytes) -> tuple[str, str]:
    """The ids of a span in hexadecimal digits. Raises `DecodeError` for ids that OTLP calls invalid."""
    return checked_trace_id(trace_id), checked_span_id(span_id)


def checked_trace_id(trace_id: bytes) -> str:
    """A trace's id in hexadecimal digits. Raises `DecodeError` for one that OTLP calls invalid."""
    if len(trace_id) != 16 or trace_id == _NO_TRACE_ID:
        raise DecodeError("the trace id is not 16 bytes, or all of them are zero")
    return trace_id.hex()


def checked_span_id(span_id: bytes) -> str:
    """A span's id in hexadecimal digits. Raises `DecodeError` for one that OTLP calls invalid."""
    if len(span_id) != 8 or span_id == _NO_SPAN_ID:
        raise DecodeError("the span id is not 8 bytes, or all of them are zero")
    return span_id.hex()


def parent_of(parent_id: bytes) -> str | None:
    """The parent's id in hexadecimal digits; some SDKs write zeros for "no parent"."""
    return parent_id.hex() if parent_id.strip(b"\0") else None


def readable(value: bytes) -> Any:
    """Text where the bytes are text, since tracers in other languages write text as bytes too; else the bytes."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
