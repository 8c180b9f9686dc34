"""Spans from the bytes of an OTLP `ExportTraceServiceRequest`, the same on the wire as `TracesData`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf.message import DecodeError as ProtobufError
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from goldspan.model import SpanEvent, SpanRecord
from goldspan.otlp.decoding import STATUSES, Decoded, DecodeError, checked_ids, parent_of, readable

_LENGTH_DELIMITED = 2
_PATH_TO_SPANS = (0x0A, 0x12, 0x12)
"""The tags of `resource_spans` in a request, `scope_spans` in those, and `spans` in those."""


def decode_traces(data: bytes) -> Decoded:
    """All spans of one request. Raises `DecodeError` for bytes that are something else; no bytes are no spans."""
    try:
        request = ExportTraceServiceRequest.FromString(data)
    except ProtobufError as error:
        raise DecodeError("neither JSON nor an OTLP trace request in protobuf") from error
    if data and not request.resource_spans:
        raise DecodeError("a protobuf message, but no OTLP trace request")  # every field of it is unknown to OTLP
    spans: list[SpanRecord] = []
    rejected, reason = 0, ""
    for resource_spans in request.resource_spans:
        resource = _attributes(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            scope = scope_spans.scope.name
            for span in scope_spans.spans:
                try:
                    spans.append(_span(span, scope, resource))
                except DecodeError as error:
                    rejected, reason = rejected + 1, reason or str(error)
    return Decoded(spans, rejected, reason)


def decode_damaged(data: bytes) -> Decoded:
    """The spans of a request that was cut off, up to the last whole one; none if the bytes are something else."""
    try:
        return decode_traces(_whole_fields(data, 0))
    except DecodeError:
        return Decoded([])


def is_another_signal(data: bytes) -> bool:
    """Whether the bytes, which are no traces, are OTLP logs or metrics. Nothing in the bytes says which they are."""
    return _is_understood(data, ExportLogsServiceRequest()) or _is_understood(data, ExportMetricsServiceRequest())


def _is_understood(data: bytes, request: Message) -> bool:
    try:
        request.ParseFromString(data)
    except ProtobufError:
        return False
    request.DiscardUnknownFields()
    return request.ByteSize() == len(data)


def _span(span: Span, scope: str, resource: Mapping[str, Any]) -> SpanRecord:
    trace_id, span_id = checked_ids(span.trace_id, span.span_id)
    # Touching a submessage that is not there makes one: asking first is three times as quick.
    status = span.status if span.HasField("status") else None
    events = span.events
    return SpanRecord(
        trace_id,
        span_id,
        parent_of(span.parent_span_id),
        span.name,
        _attributes(span.attributes),
        span.start_time_unix_nano or None,
        span.end_time_unix_nano or None,
        STATUSES.get(status.code, "unset") if status is not None else "unset",
        status.message if status is not None else "",
        tuple(map(_event, events)) if events else (),
        span.kind,
        scope,
        resource,
        span.dropped_attributes_count,
    )


def _event(event: Span.Event) -> SpanEvent:
    return SpanEvent(event.name, _attributes(event.attributes), event.time_unix_nano or None)


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    # Nine of ten values are text that is not empty, and reading the text costs less than asking for the kind.
    return {pair.key: pair.value.string_value or _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    """The plain value. Recursion is bounded: protobuf refuses messages nested more than 100 deep."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [item.string_value or _value(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return _attributes(value.kvlist_value.values)
    if kind == "bytes_value":
        return readable(value.bytes_value)
    return getattr(value, kind) if kind is not None else None


def _whole_fields(data: bytes, depth: int) -> bytes:
    """The message up to where it was cut off. Of a cut field that leads to spans, the same is kept."""
    at = 0
    while at < len(data):
        length, start = _varint(data, at + 1)
        if data[at] & 7 != _LENGTH_DELIMITED or start > len(data):
            break
        if start + length > len(data):
            if depth + 1 < len(_PATH_TO_SPANS) and data[at] == _PATH_TO_SPANS[depth]:
                inner = _whole_fields(data[start:], depth + 1)
                return data[: at + 1] + _as_varint(len(inner)) + inner
            break
        at = start + length
    return data[:at]


def _varint(data: bytes, start: int) -> tuple[int, int]:
    """The number that begins at `start`, and where it ends: beyond `data` where it was cut off."""
    value = 0
    for at in range(start, len(data)):
        value |= (data[at] & 0x7F) << 7 * (at - start)
        if data[at] < 0x80:
            return value, at + 1
    return value, len(data) + 1


def _as_varint(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
