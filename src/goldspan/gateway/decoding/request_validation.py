"""Validates export requests for the receivers, so that later stages can decode every accepted item.

Spans, log records and metrics are parsed with the OTLP protobuf messages, as strictly as back ends parse them. A back
end would refuse the whole request for one invalid item; the gateway drops only that item and reports it to the client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData

from goldspan import semconv
from goldspan.gateway.decoding import json_validation
from goldspan.gateway.decoding.export_response import (
    ItemCounter,
    ValidatedRequest,
    check_attribute_count,
    check_item_count,
    malformed_request,
    too_large,
)
from goldspan.gateway.resource_limits import ALL_PARTITIONS, MIB, Media, ResourceLimits, Signal, partition_of
from goldspan.otlp.decode_results import DecodeError, validated_log_ids, validated_span_id, validated_trace_id
from goldspan.otlp.otlp_protobuf import trace_message
from goldspan.otlp.protobuf_errors import PROTOBUF_ERRORS
from goldspan.otlp.wire_format import REQUEST_TAG, encode_varint, read_varint

_SCOPE_TAG = _ITEM_TAG = 0x12
"""Tag of the scopes in a resource's telemetry and of the items in a scope's; the same in all signals."""
_OTHER_PARTS_PER_ITEM = 8
"""Allowed number of other fields per allowed item. An item with a separate resource needs six."""
_MESSAGE_TYPE, _TEXT_TYPES = 11, (9, 12)
"""Field types in descriptor.proto: message; string and bytes."""
_MAX_NESTING = 200
"""More than protobuf parsers allow, which refuse deeper messages afterwards."""
_LARGE_MESSAGE_BYTES = MIB // 4
"""Parsing a smaller message takes at most 20 MiB of memory."""
_TRUNCATED = "the protobuf message is malformed or truncated"

FieldTable = dict[int, Any]
"""Maps the tag of a field to the table of its message, or to `None` for strings and bytes."""

_RawRequest = trace_message("TracesData", raw_fields=["resource", "scope", "spans"])
"""A request of any signal, since their structures are the same. Its resources, scopes and items stay bytes."""
_RESOURCE_PATH = (REQUEST_TAG, 0x0A)
_SCOPE_PATH = (REQUEST_TAG, 0x12, 0x0A)
_ITEM_PATH = (REQUEST_TAG, 0x12, 0x12)
"""The tags from a request down to its resources, scopes and items, in all signals."""

_SMALL_REQUEST_BYTES = 3 * MIB // 2
"""Up to this size a request is parsed at once: that takes at most 100 MiB, even if all its messages are empty."""
_BATCH_BYTES = MIB // 4
_GATEWAY_SCOPE = semconv.GATEWAY_SCOPE.encode()
_NO_SPAN_ID = bytes(8)


def validate_request(
    signal: Signal, media: Media, body: bytes, limits: ResourceLimits, *, partitioned: bool
) -> ValidatedRequest:
    """Validate a decompressed request body. Items that cannot be decoded are dropped and counted.

    The gateway's own telemetry is dropped too, but not counted: forwarding it again would create a loop.
    With `partitioned`, the result names the partitions of traces in protobuf; otherwise it names all partitions.

    Raises `RequestRefused`: 400 for a body that is not a request of that signal or has no valid item, 413 above a
    limit.
    """
    if media == "json":
        return json_validation.validate_json_request(signal, body, limits)
    schema = _SIGNAL_SCHEMAS[signal]
    try:
        body, counter, trace_ids = _validate_protobuf(schema, body, limits)
    except (*PROTOBUF_ERRORS, DecodeError) as error:
        raise malformed_request(f"the body is not an OTLP {signal} request in protobuf") from error
    return counter.result(body, _partition_mask(trace_ids) if partitioned and schema.is_partitioned else ALL_PARTITIONS)


@dataclass(frozen=True, slots=True)
class _SignalSchema:
    """The item name, message types and trace ID reader of a signal."""

    item: str
    request: type[Any]
    field_table: FieldTable
    trace_ids: Callable[[Any, ResourceLimits], set[bytes]]
    """Returns the trace IDs of the items in a request, `b""` for an item without one.

    Raises `DecodeError` for an invalid item, `RequestRefused` for one with too many attributes.
    """
    is_partitioned: bool = True


def _validate_protobuf(
    schema: _SignalSchema, body: bytes, limits: ResourceLimits
) -> tuple[bytes, ItemCounter, set[bytes]]:
    if len(body) > _SMALL_REQUEST_BYTES:
        check_part_counts(body, limits)
    envelope = _RawRequest.FromString(body)
    if body and not envelope.resource_spans:
        raise DecodeError("OTLP defines none of its fields")
    items, may_have_own = _count_items(envelope, limits)
    if len(body) > min(_SMALL_REQUEST_BYTES, limits.max_value_bytes):
        _check_message_sizes(envelope, schema, limits)
    counter = ItemCounter(limits)
    trace_ids = None if may_have_own or len(body) > _SMALL_REQUEST_BYTES else _trace_ids_if_valid(schema, body, limits)
    if trace_ids is not None:
        counter.accept(items)
        return body, counter, trace_ids
    trace_ids = _drop_invalid_items(schema, envelope, counter, limits)
    return envelope.SerializeToString() if counter.is_modified else body, counter, trace_ids


def _count_items(envelope: Any, limits: ResourceLimits) -> tuple[int, bool]:
    """Return the number of items, and whether some may be the gateway's own."""
    items, may_have_own = 0, False
    for resource in envelope.resource_spans:
        for scope in resource.scope_spans:
            items += len(scope.spans)
            may_have_own = may_have_own or _GATEWAY_SCOPE in b"".join(scope.scope)
    check_item_count(items, limits)
    return items, may_have_own


def _check_message_sizes(envelope: Any, schema: _SignalSchema, limits: ResourceLimits) -> None:
    checker = WireSizeChecker(limits)
    for resource in envelope.resource_spans:
        checker.check(b"".join(resource.resource), _RESOURCE_FIELDS)
        for scope in resource.scope_spans:
            checker.check(b"".join(scope.scope), _SCOPE_FIELDS)
            for item in scope.spans:
                checker.check(item, schema.field_table)


def _trace_ids_if_valid(schema: _SignalSchema, body: bytes, limits: ResourceLimits) -> set[bytes] | None:
    """Return the trace IDs of a request, or `None` if any part of it is invalid."""
    try:
        return schema.trace_ids(schema.request.FromString(body), limits)
    except (*PROTOBUF_ERRORS, DecodeError):
        return None


def _partition_mask(trace_ids: Iterable[bytes]) -> int:
    mask = 0
    for trace_id in trace_ids:
        mask |= 1 << partition_of(trace_id)
    return mask


def _drop_invalid_items(
    schema: _SignalSchema, envelope: Any, counter: ItemCounter, limits: ResourceLimits
) -> set[bytes]:
    """Drop invalid items and the gateway's own telemetry. Returns the trace IDs of the remaining items."""
    trace_ids: set[bytes] = set()
    for resource in envelope.resource_spans:
        is_resource_malformed = _is_malformed(schema, b"".join(resource.resource), *_RESOURCE_PATH)
        for scope in resource.scope_spans:
            scope_bytes = b"".join(scope.scope)
            if is_resource_malformed or _is_malformed(schema, scope_bytes, *_SCOPE_PATH):
                reason = f"the resource or scope of a {schema.item} is malformed, or text in it is not UTF-8"
                counter.reject(reason, len(scope.spans))
                scope.Clear()
            elif InstrumentationScope.FromString(scope_bytes).name == semconv.GATEWAY_SCOPE:
                counter.is_modified = True
                scope.Clear()
            else:
                trace_ids |= _drop_invalid_items_of_scope(schema, scope, counter, limits)
        if is_resource_malformed:
            resource.Clear()
    return trace_ids


def _is_malformed(schema: _SignalSchema, content: bytes, *path: int) -> bool:
    try:
        schema.request.FromString(_wrap_message(content, *path))
    except PROTOBUF_ERRORS:
        return True
    return False


def _drop_invalid_items_of_scope(
    schema: _SignalSchema, scope: Any, counter: ItemCounter, limits: ResourceLimits
) -> set[bytes]:
    """Drop the invalid items of one scope. Returns the trace IDs of the remaining items."""
    trace_ids: set[bytes] = set()
    invalid_positions: set[int] = set()
    for start, items in _batches(scope.spans):
        batch_trace_ids = _trace_ids_if_valid(schema, _encode_request(items), limits)
        if batch_trace_ids is not None:
            trace_ids |= batch_trace_ids
            counter.accept(len(items))
            continue
        for position, item in enumerate(items, start):
            try:
                trace_ids |= schema.trace_ids(schema.request.FromString(_wrap_message(item, *_ITEM_PATH)), limits)
                counter.accept()
            except (*PROTOBUF_ERRORS, DecodeError) as error:
                invalid_positions.add(position)
                reason = f"a {schema.item} is malformed or nested too deeply, or text in it is not UTF-8"
                counter.reject(reason if isinstance(error, PROTOBUF_ERRORS) else str(error))
    if invalid_positions:
        kept = [item for position, item in enumerate(scope.spans) if position not in invalid_positions]
        del scope.spans[:]
        scope.spans.extend(kept)
    return trace_ids


def _batches(items: Iterable[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Yield batches of items to parse together, which bounds memory, with the position of the first item of each."""
    start, size = 0, 0
    batch: list[bytes] = []
    for item in items:
        if batch and size + len(item) > _BATCH_BYTES:
            yield start, batch
            start, size, batch = start + len(batch), 0, []
        batch.append(item)
        size += len(item)
    if batch:
        yield start, batch


def _encode_request(items: list[bytes]) -> bytes:
    envelope = _RawRequest()
    envelope.resource_spans.add().scope_spans.add().spans.extend(items)
    return bytes(envelope.SerializeToString())


def _wrap_message(content: bytes, *path: int) -> bytes:
    """Return a request with nothing but this message at its path, since parsers limit nesting from the root."""
    for tag in reversed(path):
        content = b"".join((bytes((tag,)), encode_varint(len(content)), content))
    return content


def _span_trace_ids(request: Any, limits: ResourceLimits) -> set[bytes]:
    trace_ids: set[bytes] = set()
    max_attributes = limits.max_attributes
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:  # one span object exists at a time; this loop dominates the cost
                trace_id = span.trace_id
                if trace_id not in trace_ids:
                    validated_trace_id(trace_id)
                    trace_ids.add(trace_id)
                span_id = span.span_id
                if len(span_id) != 8 or span_id == _NO_SPAN_ID:
                    validated_span_id(span_id)
                if len(span.attributes) > max_attributes:
                    check_attribute_count(len(span.attributes), limits)
    return trace_ids


def _log_trace_ids(request: Any, limits: ResourceLimits) -> set[bytes]:
    trace_ids: set[bytes] = set()
    for resource in request.resource_logs:
        for scope in resource.scope_logs:
            for log in scope.log_records:
                trace_id, span_id = log.trace_id, log.span_id
                if trace_id not in trace_ids or len(span_id) not in (0, 8):
                    validated_log_ids(trace_id, span_id)
                    trace_ids.add(trace_id)
                check_attribute_count(len(log.attributes), limits)
    return {trace_id if any(trace_id) else b"" for trace_id in trace_ids}


def _metric_trace_ids(_request: Any, _limits: ResourceLimits) -> set[bytes]:
    """Return no trace IDs: a metric only has to parse."""
    return set()


def check_part_counts(body: bytes, limits: ResourceLimits) -> None:
    """Raise `RequestRefused` if a request has too many items or other fields, `DecodeError` if it is malformed."""
    items = others = 0
    for tag, start, end in _wire_fields(body, 0, len(body)):
        others += 1
        for inner_tag, inner_start, inner_end in _wire_fields(body, start, end) if tag == REQUEST_TAG else ():
            others += 1
            for item_tag, _, _ in _wire_fields(body, inner_start, inner_end) if inner_tag == _SCOPE_TAG else ():
                if item_tag == _ITEM_TAG:
                    items += 1
                else:
                    others += 1
                check_item_count(max(items, others // _OTHER_PARTS_PER_ITEM), limits)
            check_item_count(others // _OTHER_PARTS_PER_ITEM, limits)
        check_item_count(others // _OTHER_PARTS_PER_ITEM, limits)


class WireSizeChecker:
    """Checks the large messages of one request: spans, log records, metrics, resources and scopes."""

    def __init__(self, limits: ResourceLimits) -> None:
        self._limits = limits
        self._value_count = 0
        self.min_checked_bytes = min(_LARGE_MESSAGE_BYTES, limits.max_value_bytes)
        """Size in bytes above which a message is checked."""

    def check(self, message: bytes, table: FieldTable) -> None:
        """Raise `RequestRefused` above a limit, `DecodeError` if the message is malformed."""
        if len(message) > self.min_checked_bytes:
            self._check_fields(message, 0, len(message), table, 0)

    def _check_fields(self, data: bytes, start: int, end: int, table: FieldTable, depth: int) -> None:
        max_value_bytes, max_values = self._limits.max_value_bytes, self._limits.max_values
        for tag, part_start, part_end in _wire_fields(data, start, end):
            self._value_count += 1
            if self._value_count > max_values:
                raise too_large("max_values", f"the request has more than {max_values:,} values in large spans")
            if tag not in table:
                continue
            inner = table[tag]
            if inner is not None and depth < _MAX_NESTING:
                self._check_fields(data, part_start, part_end, inner, depth + 1)
            elif inner is None and part_end - part_start > max_value_bytes:
                raise too_large("max_value_bytes", f"a string is longer than {max_value_bytes:,} bytes")


def field_table(descriptor: Any) -> FieldTable:
    """Return the field table that `WireSizeChecker.check` needs for a message, from its protobuf descriptor."""
    if descriptor.full_name not in _FIELD_TABLES:
        table = _FIELD_TABLES[descriptor.full_name] = {}
        for field in descriptor.fields:
            tag = field.number << 3 | 2
            if field.type == _MESSAGE_TYPE:
                table[tag] = field_table(field.message_type)
            elif field.type in _TEXT_TYPES:
                table[tag] = None
    return _FIELD_TABLES[descriptor.full_name]


_FIELD_TABLES: dict[str, FieldTable] = {}


def _wire_fields(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the tag, content start and content end of each field. Raises `DecodeError` for truncated data."""
    while start < end:
        tag, content = data[start], start + 1
        if tag >= 0x80:
            tag, content = read_varint(data, start)
        kind = tag & 7
        if kind == 2:
            size, content = read_varint(data, content)
            start = content + size
        elif kind == 0:
            _, start = read_varint(data, content)
        elif kind in (1, 5):
            start = content + (8 if kind == 1 else 4)
        else:  # groups, which OTLP does not use
            raise DecodeError(_TRUNCATED)
        if start > end:
            raise DecodeError(_TRUNCATED)
        yield tag, content, start


_RESOURCE_FIELDS, _SCOPE_FIELDS = field_table(Resource.DESCRIPTOR), field_table(InstrumentationScope.DESCRIPTOR)
_SIGNAL_SCHEMAS: dict[Signal, _SignalSchema] = {
    "traces": _SignalSchema("span", TracesData, field_table(Span.DESCRIPTOR), _span_trace_ids),
    # The worker that scores a log record can depend on its session, not only on its trace ID.
    "logs": _SignalSchema(
        "log record", LogsData, field_table(LogRecord.DESCRIPTOR), _log_trace_ids, is_partitioned=False
    ),
    "metrics": _SignalSchema(
        "metric", MetricsData, field_table(Metric.DESCRIPTOR), _metric_trace_ids, is_partitioned=False
    ),
}
