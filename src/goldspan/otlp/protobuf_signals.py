"""Records from a protobuf message of which nothing says which signal it holds.

Requests of all signals have one outline: resources, in each of them scopes, in each of these items. Only the fields of
the items differ, by number and by type. So a message is taken for the signal that knows most of its items' fields;
where two know as many, for the one that understands most of what is in them; and where both do that, for the one that
finds valid records.
"""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError as ProtobufError
from google.protobuf.message import Message
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData

from goldspan.otlp import lengths, protobuf, protobuf_logs
from goldspan.otlp.decoding import DecodeError
from goldspan.otlp.records import Batch, joined
from goldspan.otlp.streams import Report

_UNKNOWN = "neither JSON nor OTLP in protobuf"
_ITEMS_LOOKED_AT = 100
_WIRE_TYPES = {
    FieldDescriptor.TYPE_FIXED64: 1,
    FieldDescriptor.TYPE_FIXED32: 5,
    FieldDescriptor.TYPE_STRING: 2,
    FieldDescriptor.TYPE_BYTES: 2,
    FieldDescriptor.TYPE_MESSAGE: 2,
}
"""How the fields are written that are no varints (0)."""


def decode(data: bytes, report: Report) -> Batch:
    """The records of one request, or of several back to back, of any signals; of metrics none.

    Of a message that was cut off, all whole records are kept; a part that cannot be read does not cost the others.
    Raises `DecodeError` where nothing in it can be read. No bytes are no records.
    """
    if not data:
        return Batch([])
    if (traces := _nothing_but_traces(data)) is not None:
        return traces
    whole = lengths.whole_part(data)
    batches, faults = [], []
    for part in lengths.resources(whole):
        try:
            batches.append(_told_apart(part))
        except DecodeError as error:
            faults.append(str(error))
    found = joined(batches)
    if not batches or (whole != data and not found.records):
        raise DecodeError(_UNKNOWN)
    if faults:
        report("whole file", f"{len(faults)} of {len(faults) + len(batches)} parts cannot be read: {faults[0]}")
    if whole != data:
        report("end of file", "the protobuf message is cut off")
    return found


def _nothing_but_traces(data: bytes) -> Batch | None:
    """The quick way for what is most frequent, and certain.

    A log record gives no valid span: its first field is a number, where a span has the trace's id. Nor does a metric
    give one with a time: it has none.
    """
    try:
        decoded = protobuf.decode_traces(data)
    except DecodeError:
        return None
    timed = any(span.end_ns or span.start_ns for span in decoded.spans)
    return Batch(decoded.spans) if timed and not decoded.rejected else None


def _told_apart(part: bytes) -> Batch:
    items = list(lengths.items(part))
    tags = [tag for item in items[:_ITEMS_LOOKED_AT] for tag in lengths.tags(item)]
    if not tags and 2 * _bytes_understood(part, TracesData()) < len(part):
        raise DecodeError(_UNKNOWN)
    readings: list[tuple[int, int, bool, Batch]] = []
    for request, known, decode_signal in _SIGNALS:
        score = sum(tag in known for tag in tags)
        if 2 * score >= len(tags):
            try:
                batch = decode_signal(part)
            except DecodeError as error:
                batch = Batch([], len(items), str(error))
            readings.append((score, _bytes_understood(part, request()), bool(batch.records), batch))
    if not readings:
        raise DecodeError(_UNKNOWN)
    return max(readings, key=lambda reading: reading[:3])[3]  # of equal ones, the first


def _tags_of(item: type[Message]) -> frozenset[int]:
    return frozenset(field.number << 3 | _WIRE_TYPES.get(field.type, 0) for field in item.DESCRIPTOR.fields)


def _bytes_understood(part: bytes, request: Message) -> int:
    """How many bytes belong to fields that the request and all messages in it know; -1 where they contradict them."""
    try:
        request.ParseFromString(part)
    except ProtobufError:
        return -1
    request.DiscardUnknownFields()
    return request.ByteSize()


def _decode_traces(part: bytes) -> Batch:
    decoded = protobuf.decode_traces(part)
    return Batch(decoded.spans, decoded.rejected, decoded.reason)


_SIGNALS: tuple[tuple[type[Message], frozenset[int], Callable[[bytes], Batch]], ...] = (
    (TracesData, _tags_of(Span), _decode_traces),
    (LogsData, _tags_of(LogRecord), protobuf_logs.decode_logs),
    (MetricsData, _tags_of(Metric), lambda part: Batch([])),
)
"""A signal's request, the fields of its items, and what reads it."""
