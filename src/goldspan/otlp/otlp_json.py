"""Spans and log records from OTLP/JSON: proto3 JSON, but with hexadecimal ids.

Read as tolerantly as senders write: int64 as text or number, enums as numbers or names, `null` for "not set", unknown
fields, and what OTLP called scopes before 2022.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from goldspan.model import LogRecord, SpanEvent, SpanRecord
from goldspan.otlp.decoding import STATUSES, Decoded, DecodeError, checked_ids, parent_of, readable
from goldspan.otlp.json_fields import (
    INT64,
    UINT32,
    UINT64,
    boolean_of,
    bytes_of,
    enum_of,
    integer_of,
    number_of,
    object_of,
    objects_of,
    text_of,
)
from goldspan.otlp.records import Batch, event_name, log_ids

IdOf = Callable[[dict[str, Any], str], bytes]
"""Reads a field that holds an id; empty where there is none. Raises `DecodeError`."""

_DEEPEST = 100
"""How deep values may nest: protobuf's own limit for all messages."""
_STATUS_CODES = {"STATUS_CODE_UNSET": 0, "STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": 2}
_SPAN_KINDS = {
    f"SPAN_KIND_{name}": kind
    for kind, name in enumerate(("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"))
}
_NOTHING: Mapping[str, Any] = {}
_BASE64_IDS = {24: "==", 12: "="}
"""How long ids of 16 and of 8 bytes are in base64, and how they end. No id in hexadecimal digits looks like that."""


def hexadecimal_id(parent: dict[str, Any], field: str) -> bytes:
    """An id as OTLP/JSON writes it."""
    try:
        return bytes.fromhex(text_of(parent, field))
    except ValueError as error:
        raise DecodeError(f"{field} is not hexadecimal") from error


def hexadecimal_or_base64_id(parent: dict[str, Any], field: str) -> bytes:
    """An id as OTLP/JSON writes it, or as plain proto3 JSON does: Grafana Tempo and protobuf's own libraries."""
    given = text_of(parent, field)
    if given.endswith(_BASE64_IDS.get(len(given), "\0")):
        return bytes_of(parent, field)
    return hexadecimal_id(parent, field)


def decode_traces(document: Any, *, id_of: IdOf = hexadecimal_id, old_names: bool = True) -> Decoded:
    """All spans of one parsed request. Raises `DecodeError` where its outline is not that of OTLP.

    A span with a wrong value in it is rejected alone. Without `old_names`, what OTLP called scopes before 2022 is a
    field that nobody knows, as names in snake_case always are.
    """
    spans: list[SpanRecord] = []
    rejected, reason = 0, ""
    for span, scope, resource in _items(document, "Spans", "spans", old_names):
        try:
            spans.append(span_of(span, scope, resource, id_of))
        except DecodeError as error:
            rejected, reason = rejected + 1, reason or str(error)
    return Decoded(spans, rejected, reason)


def decode_logs(document: Any, *, id_of: IdOf = hexadecimal_id, old_names: bool = True) -> Batch:
    """All log records of one parsed request; else as `decode_traces`."""
    logs: list[LogRecord] = []
    rejected, reason = 0, ""
    for log, scope, resource in _items(document, "Logs", "logRecords", old_names):
        try:
            logs.append(log_of(log, scope, resource, id_of))
        except DecodeError as error:
            rejected, reason = rejected + 1, reason or str(error)
    return Batch(logs, rejected, reason)


def _items(
    document: Any, signal: str, items: str, old_names: bool
) -> Iterator[tuple[dict[str, Any], str, dict[str, Any]]]:
    """Each span or log record with its scope's name and its resource."""
    if not isinstance(document, dict):
        raise DecodeError("not a JSON object")
    for outer in objects_of(document, f"resource{signal}"):
        resource = attributes_of(object_of(outer, "resource"))
        inners = objects_of(outer, f"scope{signal}")
        for inner in inners or (objects_of(outer, f"instrumentationLibrary{signal}") if old_names else []):
            scope = text_of(object_of(inner, "scope") or object_of(inner, "instrumentationLibrary"), "name")
            for item in objects_of(inner, items):
                yield item, scope, resource


def span_of(
    span: dict[str, Any], scope: str = "", resource: Mapping[str, Any] = _NOTHING, id_of: IdOf = hexadecimal_id
) -> SpanRecord:
    """One span. Raises `DecodeError`."""
    trace_id, span_id = checked_ids(id_of(span, "traceId"), id_of(span, "spanId"))
    status = object_of(span, "status")
    return SpanRecord(
        trace_id,
        span_id,
        parent_of(id_of(span, "parentSpanId")),
        text_of(span, "name"),
        attributes_of(span),
        integer_of(span, "startTimeUnixNano", UINT64) or None,
        integer_of(span, "endTimeUnixNano", UINT64) or None,
        STATUSES.get(enum_of(status, "code", _STATUS_CODES), "unset"),
        text_of(status, "message"),
        tuple(map(_event, objects_of(span, "events"))),
        enum_of(span, "kind", _SPAN_KINDS),
        scope,
        resource,
        integer_of(span, "droppedAttributesCount", UINT32),
    )


def _event(event: dict[str, Any]) -> SpanEvent:
    return SpanEvent(text_of(event, "name"), attributes_of(event), integer_of(event, "timeUnixNano", UINT64) or None)


def log_of(
    log: dict[str, Any], scope: str = "", resource: Mapping[str, Any] = _NOTHING, id_of: IdOf = hexadecimal_id
) -> LogRecord:
    """One log record. Raises `DecodeError`."""
    trace_id, span_id = log_ids(id_of(log, "traceId"), id_of(log, "spanId"))
    attributes = attributes_of(log)
    return LogRecord(
        event_name(text_of(log, "eventName"), attributes),
        attributes,
        _value(object_of(log, "body"), 0),
        trace_id,
        span_id,
        integer_of(log, "timeUnixNano", UINT64) or integer_of(log, "observedTimeUnixNano", UINT64) or None,
        scope,
        resource,
    )


def attributes_of(parent: dict[str, Any], field: str = "attributes", depth: int = 0) -> dict[str, Any]:
    """Plain values by key; of a key that occurs twice the last value counts. Raises `DecodeError`."""
    return {text_of(pair, "key"): _value(object_of(pair, "value"), depth) for pair in objects_of(parent, field)}


def _value(value: dict[str, Any], depth: int) -> Any:
    """The plain value of an `AnyValue`."""
    text = value.get("stringValue")
    if type(text) is str:  # nine of ten
        return text
    if depth > _DEEPEST:
        raise DecodeError("a value is nested too deeply")
    for kind, given in value.items():
        if given is not None and (plain := _PLAIN.get(kind)) is not None:
            return plain(value, kind, depth)
    return None


def _array(value: dict[str, Any], kind: str, depth: int) -> list[Any]:
    return [_value(item, depth + 1) for item in objects_of(object_of(value, kind), "values")]


def _kvlist(value: dict[str, Any], kind: str, depth: int) -> dict[str, Any]:
    return attributes_of(object_of(value, kind), "values", depth + 1)


_PLAIN: Mapping[str, Callable[[dict[str, Any], str, int], Any]] = {
    "stringValue": lambda value, kind, _depth: text_of(value, kind),
    "boolValue": lambda value, kind, _depth: boolean_of(value, kind),
    "intValue": lambda value, kind, _depth: integer_of(value, kind, INT64),
    "doubleValue": lambda value, kind, _depth: number_of(value, kind),
    "arrayValue": _array,
    "kvlistValue": _kvlist,
    "bytesValue": lambda value, kind, _depth: readable(bytes_of(value, kind)),
}
