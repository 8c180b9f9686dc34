"""What the readers hand on, and the rules for log records that both wire formats share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from goldspan.model import Record
from goldspan.otlp.decoding import DecodeError


@dataclass(frozen=True, slots=True)
class Batch:
    """The records of one request, document or message."""

    records: Sequence[Record]
    rejected: int = 0
    """Records that were left out: their ids are invalid or a value in them has the wrong type."""
    reason: str = ""
    """Why the first of the rejected records was rejected; with none, what was ignored."""


def joined(batches: Iterable[Batch]) -> Batch:
    """Several batches as one."""
    several = list(batches)
    return Batch(
        list(chain.from_iterable(batch.records for batch in several)),
        sum(batch.rejected for batch in several),
        next((batch.reason for batch in several if batch.reason), ""),
    )


def log_ids(trace_id: bytes, span_id: bytes) -> tuple[str | None, str | None]:
    """The ids of a log record in hexadecimal digits; unlike a span's they may be absent, or zeros.

    Raises `DecodeError` for ids of another length.
    """
    if len(trace_id) not in (0, 16):
        raise DecodeError("the trace id of a log record is not 16 bytes")
    if len(span_id) not in (0, 8):
        raise DecodeError("the span id of a log record is not 8 bytes")
    return (trace_id.hex() if any(trace_id) else None), (span_id.hex() if any(span_id) else None)


def event_name(field: str, attributes: Mapping[str, Any]) -> str:
    """The event's name: SDKs wrote it as an attribute before OTLP had a field for it."""
    if field:
        return field
    name = attributes.get("event.name")
    return name if isinstance(name, str) else ""
