"""Decodes a protobuf message whose signal (traces, logs or metrics) is unknown.

Requests of all signals have the same structure: resources contain scopes, and scopes contain items. Only the fields of
the items differ, by number and type. The decoder chooses the signal that knows most of the items' fields; if several
do, the one that knows most bytes; if several still do, the one with valid records.
"""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData

from goldspan.otlp import otlp_protobuf, wire_format
from goldspan.otlp.decode_results import DecodeError, RecordBatch, merge_batches
from goldspan.otlp.protobuf_errors import PROTOBUF_ERRORS
from goldspan.otlp.streams import LossReporter

_UNKNOWN_FORMAT = "neither JSON nor OTLP in protobuf"
_MAX_ITEMS_SAMPLED = 100
_WIRE_TYPES = {
    FieldDescriptor.TYPE_FIXED64: 1,
    FieldDescriptor.TYPE_FIXED32: 5,
    FieldDescriptor.TYPE_STRING: 2,
    FieldDescriptor.TYPE_BYTES: 2,
    FieldDescriptor.TYPE_MESSAGE: 2,
}
"""The wire types of the field types other than varint (0)."""


def decode_signals(data: bytes, report: LossReporter) -> RecordBatch:
    """Decodes the records of one request, or of several back to back, of any signal; metrics are ignored.

    All complete records of a truncated message are kept. An unreadable part does not affect the others. Raises
    `DecodeError` if nothing can be read. Empty data has no records.
    """
    if not data:
        return RecordBatch([])
    if (traces := _decode_if_only_traces(data)) is not None:
        return traces
    whole = wire_format.complete_prefix(data)
    batches, faults = [], []
    for part in wire_format.iter_resources(whole):
        try:
            batches.append(_decode_most_likely(part))
        except DecodeError as error:
            faults.append(str(error))
    found = merge_batches(batches)
    if not batches or (whole != data and not found.records):
        raise DecodeError(_UNKNOWN_FORMAT)
    if faults:
        report("whole file", f"{len(faults)} of {len(faults) + len(batches)} parts cannot be read: {faults[0]}")
    if whole != data:
        report("end of file", "the protobuf message is cut off")
    return found


def _decode_if_only_traces(data: bytes) -> RecordBatch | None:
    """The fast path for the most frequent signal.

    A log record never decodes to a valid span: its first field is a number, and that of a span is the trace id. A
    metric never decodes to a span with a time.
    """
    try:
        decoded = otlp_protobuf.decode_traces(data)
    except DecodeError:
        return None
    timed = any(span.end_ns or span.start_ns for span in decoded.spans)
    return RecordBatch(decoded.spans) if timed and not decoded.rejected else None


def _decode_most_likely(part: bytes) -> RecordBatch:
    items = list(wire_format.iter_items(part))
    tags = [tag for item in items[:_MAX_ITEMS_SAMPLED] for tag in wire_format.iter_tags(item)]
    if not tags and 2 * _count_known_bytes(part, TracesData()) < len(part):
        raise DecodeError(_UNKNOWN_FORMAT)
    readings: list[tuple[int, int, bool, RecordBatch]] = []
    for request, known, decode_signal in _SIGNAL_DECODERS:
        score = sum(tag in known for tag in tags)
        if 2 * score >= len(tags):
            try:
                batch = decode_signal(part)
            except DecodeError as error:
                batch = RecordBatch([], len(items), str(error))
            readings.append((score, _count_known_bytes(part, request()), bool(batch.records), batch))
    if not readings:
        raise DecodeError(_UNKNOWN_FORMAT)
    return max(readings, key=lambda reading: reading[:3])[3]  # of equal results, the first


def _known_tags(item: type[Message]) -> frozenset[int]:
    return frozenset(field.number << 3 | _WIRE_TYPES.get(field.type, 0) for field in item.DESCRIPTOR.fields)


def _count_known_bytes(part: bytes, request: Message) -> int:
    """The number of bytes in fields that the request type knows; -1 if the bytes contradict the type."""
    try:
        request.ParseFromString(part)
    except PROTOBUF_ERRORS:
        return -1
    request.DiscardUnknownFields()
    return request.ByteSize()


def _decode_traces(part: bytes) -> RecordBatch:
    decoded = otlp_protobuf.decode_traces(part)
    return RecordBatch(decoded.spans, decoded.rejected, decoded.reason)


_SIGNAL_DECODERS: tuple[tuple[type[Message], frozenset[int], Callable[[bytes], RecordBatch]], ...] = (
    (TracesData, _known_tags(Span), _decode_traces),
    (LogsData, _known_tags(LogRecord), otlp_protobuf.decode_logs),
    (MetricsData, _known_tags(Metric), lambda part: RecordBatch([])),
)
"""The request type, the tags of the items and the decoder of each signal."""
