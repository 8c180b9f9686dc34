"""Is a request what it says it is? Read once at the door, so that nobody has to doubt it behind.

Spans, log records and metrics are parsed with OTLP's own messages, as strictly as back ends do it: one that they would
refuse, and all that came with it, is left out here alone, and the client is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError as ProtobufError
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
from goldspan.otlp.wire_format import REQUEST_TAG, encode_varint, read_varint

_SCOPE_TAG = _ITEM_TAG = 0x12
"""What is in a resource's telemetry, and in a scope's: the same number in all signals."""
_OTHER_PARTS_PER_ITEM = 8
"""Parts of other kinds for each item that is allowed: an item with a resource of its own comes with six."""
_MESSAGE_TYPE, _TEXT_TYPES = 11, (9, 12)
"""The types of fields that matter here, as in descriptor.proto: messages; texts and bytes."""
_MAX_NESTING = 200
"""Beyond what protobuf's parsers follow: they refuse it afterwards."""
_LARGE_MESSAGE_BYTES = MIB // 4
"""What is smaller takes 20 MiB of memory at most when it is parsed."""
_TRUNCATED = "the protobuf message is broken or cut off"

FieldTable = dict[int, Any]
"""By tag: the table of the message that is there, or `None` for text and bytes."""


def check_part_counts(body: bytes, limits: ResourceLimits) -> None:
    """Raises `Refused` for a request with more items than are allowed, or with very many other parts, and `DecodeError`
    for one that is broken."""
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
    """Weighs the large messages of one request: spans, log records, metrics, resources and scopes."""

    def __init__(self, limits: ResourceLimits) -> None:
        self._limits = limits
        self._value_count = 0
        self.min_checked_bytes = min(_LARGE_MESSAGE_BYTES, limits.max_value_bytes)
        """Bytes of a message from which on it is weighed."""

    def check(self, message: bytes, table: FieldTable) -> None:
        """Raises `Refused` for more than is allowed, `DecodeError` for what is broken."""
        if len(message) > self.min_checked_bytes:
            self._check_fields(message, 0, len(message), table, 0)

    def _check_fields(self, data: bytes, start: int, end: int, table: FieldTable, depth: int) -> None:
        longest, most = self._limits.max_value_bytes, self._limits.max_values
        for tag, part_start, part_end in _wire_fields(data, start, end):
            self._value_count += 1
            if self._value_count > most:
                raise too_large("max_values", f"the request has more than {most:,} values in large spans")
            if tag not in table:
                continue
            inner = table[tag]
            if inner is not None and depth < _MAX_NESTING:
                self._check_fields(data, part_start, part_end, inner, depth + 1)
            elif inner is None and part_end - part_start > longest:
                raise too_large("max_value_bytes", f"a text is longer than {longest:,} bytes")


def field_table(descriptor: Any) -> FieldTable:
    """What `Scales.weigh` has to know of a message, from its protobuf descriptor."""
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
    """Tag, start and end of the content of each field. Raises `DecodeError` for what is cut off."""
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
        else:  # groups, which OTLP never had
            raise DecodeError(_TRUNCATED)
        if start > end:
            raise DecodeError(_TRUNCATED)
        yield tag, content, start


_RawRequest = trace_message("TracesData", raw_fields=["resource", "scope", "spans"])
"""A request of any signal, for their outlines are the same. What is in it is bytes, to be parsed one by one."""
_RESOURCE_PATH = (REQUEST_TAG, 0x0A)
_SCOPE_PATH = (REQUEST_TAG, 0x12, 0x0A)
_ITEM_PATH = (REQUEST_TAG, 0x12, 0x12)
"""The tags that lead to what is in a request, in all signals."""

_SMALL_REQUEST_BYTES = 3 * MIB // 2
"""Up to here a request is parsed as it is: even if all its messages are empty, that takes no more than 100 MiB."""
_BATCH_BYTES = MIB // 4
_GATEWAY_SCOPE = semconv.GATEWAY_SCOPE.encode()
_NO_SPAN_ID = bytes(8)


def validate_request(
    signal: Signal, media: Media, body: bytes, limits: ResourceLimits, *, partitioned: bool
) -> ValidatedRequest:
    """Check the body of a request, after inflating. Items that cannot be read are left out and counted.

    What the gateway itself made is left out, too, and not counted: results that come back would be handed on for ever.
    Raises `Refused`: 400 for what is no request of that signal or has nothing readable in it, 413 at a limit. With
    `partitioned` the partitions of traces in protobuf are told, else all of them.
    """
    if media == "json":
        return json_validation.validate_json_request(signal, body, limits)
    wire = _SIGNAL_SCHEMAS[signal]
    try:
        body, sieve, trace_ids = _validate_protobuf(wire, body, limits)
    except (ProtobufError, DecodeError) as error:
        raise malformed_request(f"the body is no OTLP {signal} request in protobuf") from error
    return sieve.result(body, _partition_mask(trace_ids) if partitioned and wire.is_partitioned else ALL_PARTITIONS)


@dataclass(frozen=True, slots=True)
class _SignalSchema:
    """What is particular to a signal."""

    item: str
    request: type[Any]
    field_table: FieldTable
    trace_ids: Callable[[Any, ResourceLimits], set[bytes]]
    """The traces that items of a request are of, `b""` for none. Raises `DecodeError` for an item that is not valid,
    `Refused` for one with too many attributes."""
    is_partitioned: bool = True


def _validate_protobuf(
    schema: _SignalSchema, body: bytes, limits: ResourceLimits
) -> tuple[bytes, ItemCounter, set[bytes]]:
    if len(body) > _SMALL_REQUEST_BYTES:
        check_part_counts(body, limits)
    envelope = _RawRequest.FromString(body)
    if body and not envelope.resource_spans:
        raise DecodeError("every field of it is unknown to OTLP")
    items, has_own = _count_items(envelope, limits)
    if len(body) > min(_SMALL_REQUEST_BYTES, limits.max_value_bytes):
        _check_message_sizes(envelope, schema, limits)
    sieve = ItemCounter(limits)
    trace_ids = None if has_own or len(body) > _SMALL_REQUEST_BYTES else _trace_ids_if_valid(schema, body, limits)
    if trace_ids is not None:
        sieve.accept(items)
        return body, sieve, trace_ids
    trace_ids = _drop_invalid_items(schema, envelope, sieve, limits)
    return envelope.SerializeToString() if sieve.is_modified else body, sieve, trace_ids


def _count_items(envelope: Any, limits: ResourceLimits) -> tuple[int, bool]:
    """How many items there are, and whether the gateway's own may be among them."""
    items, has_own = 0, False
    for resource in envelope.resource_spans:
        for scope in resource.scope_spans:
            items += len(scope.spans)
            has_own = has_own or _GATEWAY_SCOPE in b"".join(scope.scope)
    check_item_count(items, limits)
    return items, has_own


def _check_message_sizes(envelope: Any, schema: _SignalSchema, limits: ResourceLimits) -> None:
    scales = WireSizeChecker(limits)
    for resource in envelope.resource_spans:
        scales.check(b"".join(resource.resource), _RESOURCE_FIELDS)
        for scope in resource.scope_spans:
            scales.check(b"".join(scope.scope), _SCOPE_FIELDS)
            for item in scope.spans:
                scales.check(item, schema.field_table)


def _trace_ids_if_valid(schema: _SignalSchema, body: bytes, limits: ResourceLimits) -> set[bytes] | None:
    """The traces in a request; `None` if not everything in it is good."""
    try:
        return schema.trace_ids(schema.request.FromString(body), limits)
    except (ProtobufError, DecodeError):
        return None


def _partition_mask(trace_ids: Iterable[bytes]) -> int:
    mask = 0
    for trace_id in trace_ids:
        mask |= 1 << partition_of(trace_id)
    return mask


def _drop_invalid_items(
    schema: _SignalSchema, envelope: Any, counter: ItemCounter, limits: ResourceLimits
) -> set[bytes]:
    """Leave out of a request what is not good, and the gateway's own. The traces in what is left."""
    trace_ids: set[bytes] = set()
    for resource in envelope.resource_spans:
        broken = _is_malformed(schema, b"".join(resource.resource), *_RESOURCE_PATH)
        for scope in resource.scope_spans:
            described = b"".join(scope.scope)
            if broken or _is_malformed(schema, described, *_SCOPE_PATH):
                reason = f"the resource or scope of a {schema.item} is broken, or text in it is not UTF-8"
                counter.reject(reason, len(scope.spans))
                scope.Clear()
            elif InstrumentationScope.FromString(described).name == semconv.GATEWAY_SCOPE:
                counter.is_modified = True
                scope.Clear()
            else:
                trace_ids |= _drop_invalid_items_of_scope(schema, scope, counter, limits)
        if broken:
            resource.Clear()
    return trace_ids


def _is_malformed(schema: _SignalSchema, content: bytes, *path: int) -> bool:
    try:
        schema.request.FromString(_wrap_message(content, *path))
    except ProtobufError:
        return True
    return False


def _drop_invalid_items_of_scope(
    schema: _SignalSchema, scope: Any, counter: ItemCounter, limits: ResourceLimits
) -> set[bytes]:
    """Leave out of one scope the items that are not good. The traces in what is left."""
    trace_ids: set[bytes] = set()
    bad: set[int] = set()
    for start, items in _batches(scope.spans):
        found = _trace_ids_if_valid(schema, _encode_request(items), limits)
        if found is not None:
            trace_ids |= found
            counter.accept(len(items))
            continue
        for position, item in enumerate(items, start):
            try:
                trace_ids |= schema.trace_ids(schema.request.FromString(_wrap_message(item, *_ITEM_PATH)), limits)
                counter.accept()
            except (ProtobufError, DecodeError) as error:
                bad.add(position)
                broken = f"a {schema.item} is broken or nests too deeply, or text in it is not UTF-8"
                counter.reject(broken if isinstance(error, ProtobufError) else str(error))
    if bad:
        kept = [item for position, item in enumerate(scope.spans) if position not in bad]
        del scope.spans[:]
        scope.spans.extend(kept)
    return trace_ids


def _batches(items: Iterable[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Items that are parsed together, which takes little memory at once, and the position of the first of them."""
    start, size = 0, 0
    portion: list[bytes] = []
    for item in items:
        if portion and size + len(item) > _BATCH_BYTES:
            yield start, portion
            start, size, portion = start + len(portion), 0, []
        portion.append(item)
        size += len(item)
    if portion:
        yield start, portion


def _encode_request(items: list[bytes]) -> bytes:
    envelope = _RawRequest()
    envelope.resource_spans.add().scope_spans.add().spans.extend(items)
    return bytes(envelope.SerializeToString())


def _wrap_message(content: bytes, *path: int) -> bytes:
    """A request with nothing else in it: how deep something may nest depends on how deep it stands itself."""
    for tag in reversed(path):
        content = b"".join((bytes((tag,)), encode_varint(len(content)), content))
    return content


def _span_trace_ids(request: Any, limits: ResourceLimits) -> set[bytes]:
    trace_ids: set[bytes] = set()
    most = limits.max_attributes
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:  # of each at a time there is but one object, and the loop is what this costs
                trace_id = span.trace_id
                if trace_id not in trace_ids:
                    validated_trace_id(trace_id)
                    trace_ids.add(trace_id)
                span_id = span.span_id
                if len(span_id) != 8 or span_id == _NO_SPAN_ID:
                    validated_span_id(span_id)
                if len(span.attributes) > most:
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
    """None: all that matters of metrics is that they can be parsed."""
    return set()


_RESOURCE_FIELDS, _SCOPE_FIELDS = field_table(Resource.DESCRIPTOR), field_table(InstrumentationScope.DESCRIPTOR)
_SIGNAL_SCHEMAS: dict[Signal, _SignalSchema] = {
    "traces": _SignalSchema("span", TracesData, field_table(Span.DESCRIPTOR), _span_trace_ids),
    # Which worker has to do with logs may be decided by the session that they name.
    "logs": _SignalSchema(
        "log record", LogsData, field_table(LogRecord.DESCRIPTOR), _log_trace_ids, is_partitioned=False
    ),
    "metrics": _SignalSchema(
        "metric", MetricsData, field_table(Metric.DESCRIPTOR), _metric_trace_ids, is_partitioned=False
    ),
}
