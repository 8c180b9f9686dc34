"""Decodes spans and log records from OTLP export requests in protobuf."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from goldspan.model import LogRecord, SpanEvent, SpanRecord
from goldspan.otlp.decode_results import (
    STATUS_BY_CODE,
    DecodedSpans,
    DecodeError,
    RecordBatch,
    event_name,
    parent_span_id,
    validated_log_ids,
    validated_span_id,
    validated_trace_id,
)
from goldspan.otlp.protobuf_attributes import (
    LazyAttributes,
    any_value_to_python,
    attribute_names,
    key_values_to_dict,
)
from goldspan.otlp.protobuf_errors import PROTOBUF_ERRORS


def trace_message(name: str, *, raw_fields: Iterable[str] = ()) -> type[Any]:
    """Returns the class of a message of `trace.proto`, with attributes as maps and `raw_fields` as bytes.

    A raw field is a list of bytes: on the wire, even a singular field may be split into parts, which are joined.
    """
    pool = DescriptorPool()  # a separate pool: the default pool contains the original messages
    for module in (common_pb2, resource_pb2, trace_pb2):
        file = FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
        for message in file.message_type:
            _redeclare_message(message, f".{file.package}.{message.name}", frozenset(raw_fields))
        pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(f"{trace_pb2.DESCRIPTOR.package}.{name}"))


def _redeclare_message(message: DescriptorProto, full_name: str, raw_fields: frozenset[str]) -> None:
    for inner in message.nested_type:
        _redeclare_message(inner, f"{full_name}.{inner.name}", raw_fields)
    for field in message.field:
        if field.name in raw_fields:
            field.type = FieldDescriptorProto.TYPE_BYTES
            field.label = FieldDescriptorProto.LABEL_REPEATED
            field.ClearField("type_name")
        elif field.name == "attributes":
            message.nested_type.append(_attribute_map_entry())
            field.type_name = f"{full_name}.{_attribute_map_entry().name}"


def _attribute_map_entry() -> DescriptorProto:
    """The entry type that the compiler generates for `map<string, bytes> attributes`."""
    entry = DescriptorProto(name="AttributesEntry")
    entry.options.map_entry = True
    once = FieldDescriptorProto.LABEL_OPTIONAL
    entry.field.add(name="key", number=1, type=FieldDescriptorProto.TYPE_STRING, label=once)
    entry.field.add(name="value", number=2, type=FieldDescriptorProto.TYPE_BYTES, label=once)
    return entry


_Request = trace_message("TracesData")
_Span = trace_message("Span")
_RawItemsRequest = trace_message("TracesData", raw_fields=["spans"])
"""A request whose items are bytes, so that each can be parsed separately. The structure of logs is that of traces."""


def decode_traces(data: bytes) -> DecodedSpans:
    """Decodes all spans of one request. Raises `DecodeError` for other bytes; empty data has no spans.

    An invalid span, or one whose name or keys are not UTF-8, is rejected without affecting others.
    """
    try:
        return _decode_request(_Request.FromString(data))
    except PROTOBUF_ERRORS as error:
        fault = error
    with suppress(*PROTOBUF_ERRORS):
        decoded = _decode_request(_RawItemsRequest.FromString(data), _parse_span)
        if decoded.spans:
            return decoded
    raise DecodeError("neither JSON nor an OTLP trace request in protobuf") from fault


class _TraceIdCache(dict[bytes, str]):
    """Trace ids in hexadecimal. The spans of a trace share one string, which makes grouping fast."""

    def __missing__(self, trace_id: bytes) -> str:
        checked = self[trace_id] = validated_trace_id(trace_id)
        return checked


class _ParentIdCache(dict[bytes, str | None]):
    """Ids of parents in hexadecimal, which siblings share."""

    def __missing__(self, span_id: bytes) -> str | None:
        parent_id = self[span_id] = parent_span_id(span_id)
        return parent_id


_new_record = object.__new__


def _decode_request(request: Any, parse_span: Callable[[Any], Any] | None = None) -> DecodedSpans:
    """Decodes a request whose spans are messages, or bytes that `parse_span` parses."""
    if not request.resource_spans and request.ByteSize():
        raise DecodeError("a protobuf message, but no OTLP trace request")  # every field of it is unknown to OTLP
    spans: list[SpanRecord] = []
    rejected, reason = 0, ""
    trace_ids, parent_ids = _TraceIdCache(), _ParentIdCache()
    for resource_spans in request.resource_spans:
        resource = LazyAttributes(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            scope = scope_spans.scope.name
            for span in scope_spans.spans:
                # A function that builds the record would add a twelfth to the time of decoding.
                try:
                    if parse_span is not None:
                        span = parse_span(span)
                    record = _new_record(_LazySpanRecord)
                    record._span = span
                    record._names = None
                    record.trace_id = trace_ids[span.trace_id]
                    record.span_id = validated_span_id(span.span_id)
                    record.parent_id = parent_ids[span.parent_span_id]
                    record.name = span.name
                    record.start_ns = span.start_time_unix_nano or None
                    record.end_ns = span.end_time_unix_nano or None
                    record.dropped_attributes = span.dropped_attributes_count
                    record.scope = scope
                    record.resource = resource
                    spans.append(record)
                except DecodeError as error:
                    rejected, reason = rejected + 1, reason or str(error)
    return DecodedSpans(spans, rejected, reason)


def _parse_span(data: bytes) -> Any:
    try:
        return _Span.FromString(data)
    except PROTOBUF_ERRORS as error:
        raise DecodeError("a span is broken, or text in it is not UTF-8") from error


class _LazySpanRecord(SpanRecord):
    """A span that decodes its attributes, events and status on first access.

    Its message is part of the request: one span keeps the whole request in memory. `pickle` and `copy.deepcopy` produce
    a plain record that does not.
    """

    __slots__ = ("_names", "_span")
    _names: frozenset[str] | None
    _span: Any
    """The message; `None` after the lazy fields are decoded, and in a copy by `dataclasses.replace`."""

    def __init__(self, *fields: Any, **named_fields: Any) -> None:
        """Create a record whose fields are all set, as `dataclasses.replace` does."""
        SpanRecord.__init__(self, *fields, **named_fields)
        self._names = self._span = None

    def __getattr__(self, name: str) -> Any:
        """Decode all lazy fields at once, because they are usually read together."""
        if name not in _LAZY_FIELDS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if (span := self._span) is not None:
            self._decode_lazy_fields(span)
        return object.__getattribute__(self, name)

    def _decode_lazy_fields(self, span: Any) -> LazyAttributes:
        """Set the lazy fields. Concurrent calls set equal values, and `_span` only after all of them."""
        status = span.status
        attributes = self.attributes = LazyAttributes(span.attributes, self._names)
        self.status = STATUS_BY_CODE.get(status.code, "unset")
        self.status_message = status.message
        self.events = tuple(map(_span_event, span.events)) if span.events else ()
        self.kind = span.kind
        self._span = None
        return attributes

    def attribute_names(self) -> frozenset[str]:
        """Returns the attribute names without decoding values."""
        names = self._names
        if names is None:
            span = self._span
            names = super().attribute_names() if span is None else attribute_names(self.name, span.attributes)
            self._names = names
        return names

    def decode_attributes(self, keys: Iterable[str]) -> Mapping[str, Any]:
        """Returns attributes that include the given keys, which must exist; decodes no others."""
        span = self._span
        attributes = self.attributes if span is None else self._decode_lazy_fields(span)
        return attributes.read(keys) if isinstance(attributes, LazyAttributes) else attributes

    def __reduce__(self) -> tuple[type[SpanRecord], tuple[Any, ...]]:
        return SpanRecord, tuple(getattr(self, name) for name in SpanRecord.__dataclass_fields__)


_LAZY_FIELDS = frozenset({"attributes", "status", "status_message", "events", "kind"})


def _span_event(event: Any) -> SpanEvent:
    return SpanEvent(event.name, LazyAttributes(event.attributes), event.time_unix_nano or None)


def decode_logs(data: bytes) -> RecordBatch:
    """Decodes all log records of one request. Raises `DecodeError` for other bytes; empty data has no records.

    An invalid record, or one with text that is not UTF-8, is rejected without affecting others.
    """
    try:
        request = _RawItemsRequest.FromString(data)
    except PROTOBUF_ERRORS as error:
        raise DecodeError("neither JSON nor an OTLP logs request in protobuf") from error
    if data and not request.resource_spans:
        raise DecodeError("a protobuf message, but no OTLP logs request")
    logs: list[LogRecord] = []
    rejected, reason = 0, ""
    for resource_logs in request.resource_spans:
        resource = LazyAttributes(resource_logs.resource.attributes)
        for scope_logs in resource_logs.scope_spans:
            scope = scope_logs.scope.name
            for log in scope_logs.spans:
                try:
                    logs.append(_log_record(log, scope, resource))
                except DecodeError as error:
                    rejected, reason = rejected + 1, reason or str(error)
    return RecordBatch(logs, rejected, reason)


def _log_record(data: bytes, scope: str, resource: Mapping[str, Any]) -> LogRecord:
    try:
        log = logs_pb2.LogRecord.FromString(data)
    except PROTOBUF_ERRORS as error:
        raise DecodeError("a log record is broken, or text in it is not UTF-8") from error
    trace_id, span_id = validated_log_ids(log.trace_id, log.span_id)
    attributes = key_values_to_dict(log.attributes)
    return LogRecord(
        event_name(log.event_name, attributes),
        attributes,
        any_value_to_python(log.body),
        trace_id,
        span_id,
        log.time_unix_nano or log.observed_time_unix_nano or None,
        scope,
        resource,
    )
