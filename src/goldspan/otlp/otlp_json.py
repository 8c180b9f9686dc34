"""Decodes spans and log records from OTLP/JSON: proto3 JSON with hexadecimal ids.

The decoder accepts the variants that senders write: int64 as text or number, enums as numbers or names, `null` for "not
set", unknown fields, and the field names for scopes before 2022.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from goldspan.model import LogRecord, SpanEvent, SpanRecord
from goldspan.otlp.decode_results import (
    STATUS_BY_CODE,
    DecodedSpans,
    DecodeError,
    RecordBatch,
    event_name,
    parent_span_id,
    text_or_bytes,
    validated_ids,
    validated_log_ids,
)
from goldspan.otlp.json_fields import (
    INT32,
    INT64,
    UINT32,
    UINT64,
    boolean_field,
    bytes_field,
    enum_field,
    integer_field,
    number_field,
    object_field,
    objects_field,
    text_field,
)

IdReader = Callable[[dict[str, Any], str], bytes]
"""Reads an id field; returns no bytes if the field is missing. Raises `DecodeError`."""

_MAX_DEPTH = 100
"""The maximum nesting depth of values: protobuf's own limit for all messages."""
_STATUS_CODES = {"STATUS_CODE_UNSET": 0, "STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": 2}
_SPAN_KINDS = {
    f"SPAN_KIND_{name}": kind
    for kind, name in enumerate(("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"))
}
_from_hex = bytes.fromhex
_NO_ATTRIBUTES: Mapping[str, Any] = {}
_BASE64_IDS = {24: "==", 12: "="}
"""The length and the padding of ids of 16 and 8 bytes in base64. No hexadecimal id has such a padding."""


def hex_id(parent: dict[str, Any], field: str) -> bytes:
    """Reads an id as OTLP/JSON writes it."""
    try:
        return bytes.fromhex(text_field(parent, field))
    except ValueError as error:
        raise DecodeError(f"{field} is not hexadecimal") from error


def hex_or_base64_id(parent: dict[str, Any], field: str) -> bytes:
    """Reads an id as OTLP/JSON writes it, or as plain proto3 JSON does (Grafana Tempo, protobuf libraries)."""
    text = text_field(parent, field)
    if text.endswith("=") and text.endswith(_BASE64_IDS.get(len(text), "\0")):
        return bytes_field(parent, field)
    return hex_id(parent, field)


def decode_traces(document: Any, *, read_id: IdReader = hex_id, old_names: bool = True) -> DecodedSpans:
    """Decodes all spans of one parsed request. Raises `DecodeError` if its structure is not that of OTLP.

    A span with an invalid value is rejected without affecting others. Without `old_names`, the field names for scopes
    before 2022 are ignored. Names in snake_case are always ignored.
    """
    spans: list[SpanRecord] = []
    rejected, reason = 0, ""
    for span, scope, resource in _iter_items(document, "Spans", "spans", old_names):
        try:
            spans.append(decode_span(span, scope, resource, read_id))
        except DecodeError as error:
            rejected, reason = rejected + 1, reason or str(error)
    return DecodedSpans(spans, rejected, reason)


def decode_logs(document: Any, *, read_id: IdReader = hex_id, old_names: bool = True) -> RecordBatch:
    """Decodes all log records of one parsed request, like `decode_traces`."""
    logs: list[LogRecord] = []
    rejected, reason = 0, ""
    for log, scope, resource in _iter_items(document, "Logs", "logRecords", old_names):
        try:
            logs.append(decode_log(log, scope, resource, read_id))
        except DecodeError as error:
            rejected, reason = rejected + 1, reason or str(error)
    return RecordBatch(logs, rejected, reason)


def _iter_items(
    document: Any, signal: str, items: str, old_names: bool
) -> Iterator[tuple[dict[str, Any], str, dict[str, Any]]]:
    """Yields each span or log record with its scope name and its resource."""
    if not isinstance(document, dict):
        raise DecodeError("not a JSON object")
    for outer in objects_field(document, f"resource{signal}"):
        resource = decode_attributes(object_field(outer, "resource"))
        inners = objects_field(outer, f"scope{signal}")
        for inner in inners or (objects_field(outer, f"instrumentationLibrary{signal}") if old_names else []):
            scope = text_field(object_field(inner, "scope") or object_field(inner, "instrumentationLibrary"), "name")
            for item in objects_field(inner, items):
                yield item, scope, resource


def decode_span(
    span: dict[str, Any], scope: str = "", resource: Mapping[str, Any] = _NO_ATTRIBUTES, read_id: IdReader = hex_id
) -> SpanRecord:
    """Decodes one span. Raises `DecodeError`."""
    record = _decode_usual_span(span, scope, resource)
    return decode_any_span(span, scope, resource, read_id) if record is None else record


def _decode_usual_span(span: dict[str, Any], scope: str, resource: Mapping[str, Any]) -> SpanRecord | None:
    """Decodes a span whose fields have the form in which exporters write them; `None` for every other span.

    It does what `decode_any_span` does in four fifths of its time.
    """
    read = span.get
    trace_id, span_id, parent_id, name = read("traceId"), read("spanId"), read("parentSpanId", ""), read("name")
    start, end, kind, status = read("startTimeUnixNano"), read("endTimeUnixNano"), read("kind"), read("status", {})
    if not type(trace_id) is type(span_id) is type(parent_id) is type(name) is type(start) is type(end) is str:
        return None
    try:
        ids = _from_hex(trace_id).hex(), _from_hex(span_id).hex(), _from_hex(parent_id).hex()
        start_ns, end_ns = int(start), int(end)
    except ValueError:
        return None
    if (
        ids != (trace_id, span_id, parent_id)
        or not (len(trace_id) == 32 and len(span_id) == 16 and trace_id.strip("0") and span_id.strip("0"))
        or not (0 < start_ns < UINT64.stop and 0 < end_ns < UINT64.stop)
        or not (type(kind) is int and kind in INT32 and type(status) is dict)
    ):
        return None
    return SpanRecord(
        trace_id,
        span_id,
        parent_id if parent_id.strip("0") else None,
        name,
        decode_attributes(span),
        start_ns,
        end_ns,
        STATUS_BY_CODE.get(enum_field(status, "code", _STATUS_CODES), "unset") if status else "unset",
        text_field(status, "message") if status else "",
        tuple(map(_decode_event, objects_field(span, "events"))) if "events" in span else (),
        kind,
        scope,
        resource,
        integer_field(span, "droppedAttributesCount", UINT32) if "droppedAttributesCount" in span else 0,
    )


def decode_any_span(
    span: dict[str, Any], scope: str = "", resource: Mapping[str, Any] = _NO_ATTRIBUTES, read_id: IdReader = hex_id
) -> SpanRecord:
    """Decodes one span in every accepted form. Raises `DecodeError`."""
    trace_id, span_id = validated_ids(read_id(span, "traceId"), read_id(span, "spanId"))
    status = object_field(span, "status")
    return SpanRecord(
        trace_id,
        span_id,
        parent_span_id(read_id(span, "parentSpanId")),
        text_field(span, "name"),
        decode_attributes(span),
        integer_field(span, "startTimeUnixNano", UINT64) or None,
        integer_field(span, "endTimeUnixNano", UINT64) or None,
        STATUS_BY_CODE.get(enum_field(status, "code", _STATUS_CODES), "unset"),
        text_field(status, "message"),
        tuple(map(_decode_event, objects_field(span, "events"))),
        enum_field(span, "kind", _SPAN_KINDS),
        scope,
        resource,
        integer_field(span, "droppedAttributesCount", UINT32),
    )


def _decode_event(event: dict[str, Any]) -> SpanEvent:
    return SpanEvent(
        text_field(event, "name"), decode_attributes(event), integer_field(event, "timeUnixNano", UINT64) or None
    )


def decode_log(
    log: dict[str, Any], scope: str = "", resource: Mapping[str, Any] = _NO_ATTRIBUTES, read_id: IdReader = hex_id
) -> LogRecord:
    """Decodes one log record. Raises `DecodeError`."""
    trace_id, span_id = validated_log_ids(read_id(log, "traceId"), read_id(log, "spanId"))
    attributes = decode_attributes(log)
    return LogRecord(
        event_name(text_field(log, "eventName"), attributes),
        attributes,
        _decode_value(object_field(log, "body"), 0),
        trace_id,
        span_id,
        integer_field(log, "timeUnixNano", UINT64) or integer_field(log, "observedTimeUnixNano", UINT64) or None,
        scope,
        resource,
    )


def decode_attributes(parent: dict[str, Any], field: str = "attributes", depth: int = 0) -> dict[str, Any]:
    """Decodes attributes; the last value of a repeated key counts. Raises `DecodeError`."""
    pairs = parent.get(field)
    attributes: dict[str, Any] = {}
    # Nine of ten attributes are text, and most others are integers. The loop tests for both first,
    # which takes half the time of `_decode_value(object_field(pair, "value"), depth)` for each.
    try:
        for pair in pairs if type(pairs) is list else objects_field(parent, field):
            try:
                key, value = pair["key"], pair["value"]
                if type(key) is str is type(text := value.get("stringValue")):
                    attributes[key] = text
                    continue
                text = value.get("intValue")
                if type(key) is str is type(text) and len(text) < 19 and len(value) == 1 and depth == 0:
                    attributes[key] = int(text)  # 18 digits fit into 64 bits
                    continue
            except (AttributeError, LookupError, TypeError, ValueError):
                pass
            if pair is not None:
                name = text_field(pair, "key")
                attributes[name] = _decode_value(object_field(pair, "value"), depth)
    except (AttributeError, DecodeError):
        objects_field(parent, field)  # raises where an item is not an object
        raise
    return attributes


def _decode_value(value: dict[str, Any], depth: int) -> Any:
    """The plain value of an `AnyValue`."""
    text = value.get("stringValue")
    if type(text) is str:
        return text
    if depth > _MAX_DEPTH:
        raise DecodeError("a value is nested too deeply")
    for kind, item in value.items():
        if item is not None and (decode := _VALUE_DECODERS.get(kind)) is not None:
            return decode(value, kind, depth)
    return None


def _decode_array(value: dict[str, Any], kind: str, depth: int) -> list[Any]:
    return [_decode_value(item, depth + 1) for item in objects_field(object_field(value, kind), "values")]


def _decode_key_values(value: dict[str, Any], kind: str, depth: int) -> dict[str, Any]:
    return decode_attributes(object_field(value, kind), "values", depth + 1)


_VALUE_DECODERS: Mapping[str, Callable[[dict[str, Any], str, int], Any]] = {
    "stringValue": lambda value, kind, _depth: text_field(value, kind),
    "boolValue": lambda value, kind, _depth: boolean_field(value, kind),
    "intValue": lambda value, kind, _depth: integer_field(value, kind, INT64),
    "doubleValue": lambda value, kind, _depth: number_field(value, kind),
    "arrayValue": _decode_array,
    "kvlistValue": _decode_key_values,
    "bytesValue": lambda value, kind, _depth: text_or_bytes(bytes_field(value, kind)),
}
