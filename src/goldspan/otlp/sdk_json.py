"""Decodes spans and log records in the JSON of OpenTelemetry SDKs, one per document.

The console exporters of Python write `to_json()`. JavaScript has no such method: files contain the output of its
console exporter, the serialized span object, or selected fields of it, as GitHub Copilot writes. The field names are
the same in camelCase or snake_case, with an underscore if a field is private. Unlike in OTLP, attributes are plain
JSON, and kinds start at 0. Python does not write the instrumentation scope.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from goldspan.model import LogRecord, SpanEvent, SpanRecord, SpanStatus
from goldspan.otlp.decode_results import (
    STATUS_BY_CODE,
    DecodeError,
    RecordBatch,
    event_name,
    parent_span_id,
    validated_ids,
    validated_log_ids,
)
from goldspan.otlp.json_fields import INT32, UINT32, UINT64, integer_field, object_field, objects_field, text_field

_SECOND_NS = 1_000_000_000
_UNITS = ((10**11, _SECOND_NS), (10**14, 1_000_000), (10**17, 1_000))
"""Upper limits of numbers in seconds, milliseconds and microseconds; greater numbers are nanoseconds.

The ranges of the units do not overlap for times from 1973 to 5138.
"""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_ISO_8601 = re.compile(r"([0-9-]{10})[T ]([0-9:]{8})(?:\.([0-9]{1,9})[0-9]*)?(Z|[+-][0-9]{2}:[0-9]{2})?")


def time_field(parent: Mapping[str, Any], field: str) -> int | None:
    """Reads a time in nanoseconds since the Unix epoch; `None` if it is missing or zero. Raises `DecodeError`.

    Accepts `[seconds, nanoseconds]`, a number whose magnitude determines its unit, and ISO 8601 (default: UTC).
    """
    value = parent.get(field)
    if value is None:
        return None
    time = _parse_text(value) if isinstance(value, str) else _parse_pair(value) if isinstance(value, list) else None
    if time is None and _is_number(value):
        time = _to_nanoseconds(value, _unit_of(value))
    if time is None or time not in UINT64:
        raise DecodeError(f"{field} is neither [seconds, nanoseconds], nor a number, nor ISO 8601")
    return time or None


def duration_field(parent: Mapping[str, Any], field: str, *, start_time: Any) -> int | None:
    """Reads a duration in nanoseconds; `None` if it is unknown. Raises `DecodeError`.

    Accepts a pair, or a number in the unit of `start_time`, which must also be a number.
    """
    value = parent.get(field)
    if value is None:
        return None
    duration = _parse_pair(value) if isinstance(value, list) else None
    if duration is None and not _is_number(value):
        raise DecodeError(f"{field} is neither [seconds, nanoseconds] nor a number")
    if duration is None and _is_number(start_time):
        duration = _to_nanoseconds(value, _unit_of(start_time))
    return duration


def _is_number(value: Any) -> bool:
    """Whether a value is a number from 0 to the maximum of an unsigned 64-bit integer."""
    return type(value) in (int, float) and 0 <= value < UINT64.stop


def _unit_of(time: float) -> int:
    return next((unit for end, unit in _UNITS if time < end), 1)


def _to_nanoseconds(amount: float, unit: int) -> int:
    """Converts the whole part and the fraction separately: a float cannot represent current times in nanoseconds."""
    whole = int(amount)
    return whole * unit + round((amount - whole) * unit)


def _parse_pair(value: list[Any]) -> int | None:
    """Parses a pair. Early JavaScript SDKs computed nanoseconds as floats, so they may have a fraction."""
    if len(value) != 2 or not all(map(_is_number, value)):
        return None
    seconds, nanoseconds = value
    return _to_nanoseconds(seconds, _SECOND_NS) + _to_nanoseconds(nanoseconds, 1)


def _parse_text(value: str) -> int | None:
    """Parses ISO 8601, or digits: JavaScript writes too large numbers as text."""
    if len(value) <= len(str(UINT64.stop)) and value.isascii() and value.isdecimal():
        return _to_nanoseconds(int(value), _unit_of(int(value)))
    match = _ISO_8601.fullmatch(value)
    if match is None:
        return None
    day, time, fraction, zone = match.groups()
    offset = "+00:00" if zone in (None, "Z") else zone
    try:
        passed = datetime.fromisoformat(f"{day}T{time}{offset}") - _EPOCH
    except ValueError:
        return None
    return passed // timedelta(seconds=1) * _SECOND_NS + int((fraction or "0").ljust(9, "0"))


_MAX_DEPTH = 100
"""The maximum nesting depth of attributes, as in OTLP."""
_KINDS = {"INTERNAL": 1, "SERVER": 2, "CLIENT": 3, "PRODUCER": 4, "CONSUMER": 5}
_STATUSES: Mapping[str, SpanStatus] = {"OK": "ok", "ERROR": "error"}
_LOG_TIME_FIELDS = ("hrTime", "timestamp", "hrTimeObserved", "observedTimestamp")
"""The time of the event under the name of each SDK, then the time when it was observed."""
_LOG_ONLY_FIELDS = frozenset({"body", "eventName", "severityNumber"})
_METRIC_ONLY_FIELDS = frozenset({"dataPoints", "scopeMetrics"})


def is_sdk_record(document: Mapping[str, Any]) -> bool:
    """Returns whether a document is a span, a log record or a metric."""
    fields = _normalize_names(document)
    return _is_span(fields) or _is_log(fields) or _is_metric(fields)


def decode_record(document: Mapping[str, Any]) -> RecordBatch:
    """Decodes the record in a document. A record with an invalid value is rejected; metrics are ignored."""
    fields = _normalize_names(document)
    try:
        if _is_span(fields):
            return RecordBatch([_decode_span(fields)])
        return RecordBatch([_decode_log(fields)] if _is_log(fields) else [])
    except DecodeError as error:
        return RecordBatch([], 1, str(error))


def _normalize_names(document: Mapping[str, Any]) -> dict[str, Any]:
    """Renames the fields to their public names in camelCase; nested values are unchanged."""
    fields = {}
    for name in sorted(document, key=_is_public):
        first, *rest = name.strip("_").split("_")
        fields[first + "".join(map(str.capitalize, rest))] = document[name]
    return fields


def _is_public(name: str) -> bool:
    return not name.startswith("_")


def _is_span(fields: dict[str, Any]) -> bool:
    ids = _span_context(fields)
    return (
        "attributes" in fields
        and ("startTime" in fields or {"timestamp", "duration"} <= fields.keys())
        and "traceId" in ids
        and ("spanId" in ids or "id" in ids)
    )


def _is_log(fields: Mapping[str, Any]) -> bool:
    return (
        {"attributes", "resource"} <= fields.keys()
        and not fields.keys().isdisjoint(_LOG_TIME_FIELDS)
        and not fields.keys().isdisjoint(_LOG_ONLY_FIELDS)
    )


def _is_metric(fields: Mapping[str, Any]) -> bool:
    return "resource" in fields and not fields.keys().isdisjoint(_METRIC_ONLY_FIELDS)


def _span_context(fields: dict[str, Any]) -> dict[str, Any]:
    """The object with a record's ids: the record itself, else its span context."""
    inner = fields.get("spanContext", fields.get("context"))
    return _normalize_names(inner) if "traceId" not in fields and isinstance(inner, dict) else fields


def _decode_span(fields: dict[str, Any]) -> SpanRecord:
    ids = _span_context(fields)
    trace_id, span_id = validated_ids(_id_field(ids, "traceId"), _id_field(ids, "spanId" if "spanId" in ids else "id"))
    start_ns, end_ns = _start_and_end(fields)
    status, message = _decode_status(fields)
    return SpanRecord(
        trace_id,
        span_id,
        parent_span_id(_parent_id(fields)),
        text_field(fields, "name"),
        _decode_attributes(fields),
        start_ns,
        end_ns,
        status,
        message,
        tuple(map(_decode_event, objects_field(fields, "events"))),
        _decode_kind(fields),
        _scope_name(fields),
        _resource_attributes(fields),
        integer_field(fields, "droppedAttributesCount", UINT32),
    )


def _decode_log(fields: dict[str, Any]) -> LogRecord:
    ids = _span_context(fields)
    trace_id, span_id = validated_log_ids(_id_field(ids, "traceId"), _id_field(ids, "spanId"))
    attributes = _decode_attributes(fields)
    _check_depth(fields.get("body"), "body")
    times = (time_field(fields, name) for name in _LOG_TIME_FIELDS)
    return LogRecord(
        event_name(text_field(fields, "eventName"), attributes),
        attributes,
        fields.get("body"),
        trace_id,
        span_id,
        next(filter(None, times), None),
        _scope_name(fields),
        _resource_attributes(fields),
    )


def _id_field(parent: dict[str, Any], field: str) -> bytes:
    """Reads an id in hexadecimal, with or without `0x`."""
    try:
        return bytes.fromhex(text_field(parent, field).removeprefix("0x"))
    except ValueError as error:
        raise DecodeError(f"{field} is not hexadecimal") from error


def _parent_id(fields: dict[str, Any]) -> bytes:
    context = _normalize_names(object_field(fields, "parentSpanContext"))
    return _id_field(context, "spanId") or _id_field(fields, "parentSpanId") or _id_field(fields, "parentId")


def _start_and_end(fields: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Start and end. The output of JavaScript's console exporter has a duration instead of an end."""
    began = "startTime" if "startTime" in fields else "timestamp"
    start, end = time_field(fields, began), time_field(fields, "endTime")
    if start is not None and end is None:
        duration = duration_field(fields, "duration", start_time=fields[began])
        end = start + duration if duration is not None else None
    return start, end


def _decode_status(fields: dict[str, Any]) -> tuple[SpanStatus, str]:
    status = _normalize_names(object_field(fields, "status"))
    message = text_field(status, "message") or text_field(status, "description")
    code = "code" if "code" in status else "statusCode"
    if isinstance(status.get(code), str):
        return _STATUSES.get(_enum_member(status[code]), "unset"), message
    return STATUS_BY_CODE.get(integer_field(status, code, INT32), "unset"), message


def _decode_kind(fields: dict[str, Any]) -> int:
    """The kind as in OTLP. The SDKs have no "unspecified" kind and start at 0 for internal spans."""
    value = fields.get("kind")
    if isinstance(value, str):
        return _KINDS.get(_enum_member(value), 0)
    number = integer_field(fields, "kind", INT32) + 1
    return number if value is not None and number in _KINDS.values() else 0


def _enum_member(match: str) -> str:
    """The member name in Python's notation of an enum, such as `SpanKind.CLIENT`."""
    return match.rpartition(".")[2].upper()


def _decode_event(event: dict[str, Any]) -> SpanEvent:
    return SpanEvent(text_field(event, "name"), _decode_attributes(event), time_field(event, _event_time_field(event)))


def _event_time_field(event: Mapping[str, Any]) -> str:
    return "time" if "time" in event else "timestamp"


def _scope_name(fields: dict[str, Any]) -> str:
    """The scope name. The JavaScript SDK called the scope a library before version 2."""
    return text_field(
        object_field(fields, "instrumentationScope") or object_field(fields, "instrumentationLibrary"), "name"
    )


def _resource_attributes(fields: dict[str, Any]) -> dict[str, Any]:
    """The resource attributes; version 2 of the JavaScript SDK writes pairs, of which the first of a key counts."""
    resource = _normalize_names(object_field(fields, "resource"))
    pairs = resource.get("rawAttributes")
    if "attributes" in resource or pairs is None:
        return _decode_attributes(resource)
    try:
        return _decode_attributes({"attributes": dict(reversed(pairs))})
    except (TypeError, ValueError) as error:
        raise DecodeError("the resource's attributes are no pairs") from error


def _decode_attributes(parent: dict[str, Any]) -> dict[str, Any]:
    attributes = object_field(parent, "attributes")
    _check_depth(attributes, "attributes")
    return attributes


def _check_depth(value: Any, field: str) -> None:
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [part for outer in level for part in _children(outer) if isinstance(part, dict | list)]
        if not level:
            return
    raise DecodeError(f"{field} is nested too deeply")


def _children(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
