"""Converts records to rows of plain values for a spill, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goldspan.batch.spill import Row
from goldspan.extraction.logs_to_spans import log_session, session_trace_id
from goldspan.model import LogRecord, SpanEvent, SpanRecord, TelemetryRecord

_RECORD_BYTES = 1500
_VALUE_BYTES = 120
"""What a record, and each attribute besides its text, takes in memory on average."""
_MESSAGE_BYTES = 1000
"""What a record takes in protobuf besides its texts."""


def record_to_row(record: TelemetryRecord, position: int) -> Row | None:
    """Returns the row of a record; its key is the trace. `position` is the place of the record among all.

    Returns `None` for a log record without a trace and a session, which is part of no run.
    """
    if isinstance(record, SpanRecord):
        return (
            bytes.fromhex(record.trace_id),
            position,
            record.span_id,
            record.parent_id,
            record.name,
            _plain(record.attributes),
            record.start_ns,
            record.end_ns,
            record.status,
            record.status_message,
            tuple([(event.name, _plain(event.attributes), event.time_ns) for event in record.events]),
            record.kind,
            record.scope,
            _plain(record.resource),
            record.dropped_attributes,
        )
    trace_id = record.trace_id
    if trace_id is None:
        session = log_session(record)
        if session is None:
            return None
        trace_id = session_trace_id(session)
    fields = (record.name, _plain(record.attributes), record.body, record.trace_id, record.span_id, record.time_ns)
    return (bytes.fromhex(trace_id), position, *fields, record.scope, _plain(record.resource))


def row_to_record(row: Row) -> TelemetryRecord:
    """Returns the record of a row, which equals the one that was converted."""
    if len(row) == _LOG_ITEMS:
        return LogRecord(*row[2:])
    trace_id, _, span_id, parent_id, name, attributes, start, end, status, message, events, *rest = row
    return SpanRecord(
        trace_id.hex(),
        span_id,
        parent_id,
        name,
        attributes,
        start,
        end,
        status,
        message,
        tuple([SpanEvent(*event) for event in events]),
        *rest,
    )


_LOG_ITEMS = 10


def memory_size(record: TelemetryRecord) -> int:
    """Returns about how many bytes a record takes in memory until its run is extracted."""
    attributes = record.attributes
    texts = sum([len(value) for value in attributes.values() if isinstance(value, (str, bytes))])
    for event in record.events if isinstance(record, SpanRecord) else ():
        texts += _VALUE_BYTES + sum([len(value) for value in event.attributes.values() if isinstance(value, str)])
    size = _RECORD_BYTES + _VALUE_BYTES * len(attributes) + 2 * texts
    # Attributes that are decoded when they are first read keep their message in protobuf, too.
    return size if type(attributes) is dict else size + _MESSAGE_BYTES + texts


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return values if type(values) is dict else dict(values)
