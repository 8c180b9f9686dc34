"""Spans and log records as OpenTelemetry's SDKs put themselves into JSON, one a document.

Python's console exporters write `to_json()` of each. JavaScript has no such method: files hold what its console
exporter would print, the span object as it is, or fields that somebody picked from it, as GitHub Copilot does. All
name the same things, in camelCase or snake_case and with an underscore where a field is private. Unlike in OTLP,
attributes are plain JSON, and kinds count from 0. Python's does not write the instrumentation scope.
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
"""Below which size a number counts seconds, milliseconds, microseconds; from the last one on, nanoseconds.

Each unit has one size from 1973 to 5138, so that a time of our days is never taken for another.
"""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_ISO_8601 = re.compile(r"([0-9-]{10})[T ]([0-9:]{8})(?:\.([0-9]{1,9})[0-9]*)?(Z|[+-][0-9]{2}:[0-9]{2})?")


def time_field(parent: Mapping[str, Any], field: str) -> int | None:
    """A time in nanoseconds since the Unix epoch; `None` where there is none, or zero. Raises `DecodeError`.

    `[seconds, nanoseconds]`; a number in the unit that its size tells; or ISO 8601, which is UTC unless it says more.
    """
    given = parent.get(field)
    if given is None:
        return None
    time = _parse_text(given) if isinstance(given, str) else _parse_pair(given) if isinstance(given, list) else None
    if time is None and _is_number(given):
        time = _to_nanoseconds(given, _unit_of(given))
    if time is None or time not in UINT64:
        raise DecodeError(f"{field} is neither [seconds, nanoseconds], nor a number, nor ISO 8601")
    return time or None


def duration_field(parent: Mapping[str, Any], field: str, *, beside: Any) -> int | None:
    """A duration in nanoseconds; `None` where it is not known. Raises `DecodeError`.

    A pair, or a number in the unit of the time that stands `beside` it, which must be a number then.
    """
    given = parent.get(field)
    if given is None:
        return None
    duration = _parse_pair(given) if isinstance(given, list) else None
    if duration is None and not _is_number(given):
        raise DecodeError(f"{field} is neither [seconds, nanoseconds] nor a number")
    if duration is None and _is_number(beside):
        duration = _to_nanoseconds(given, _unit_of(beside))
    return duration


def _is_number(given: Any) -> bool:
    """Whether it is a number that is no less than zero, finite and not absurdly large."""
    return type(given) in (int, float) and 0 <= given < UINT64.stop


def _unit_of(time: float) -> int:
    return next((unit for end, unit in _UNITS if time < end), 1)


def _to_nanoseconds(amount: float, unit: int) -> int:
    """Whole part and fraction on their own: a float has no room for today's nanoseconds."""
    whole = int(amount)
    return whole * unit + round((amount - whole) * unit)


def _parse_pair(given: list[Any]) -> int | None:
    """Early SDKs in JavaScript computed the nanoseconds in floats, and left some that are not whole."""
    if len(given) != 2 or not all(map(_is_number, given)):
        return None
    seconds, nanoseconds = given
    return _to_nanoseconds(seconds, _SECOND_NS) + _to_nanoseconds(nanoseconds, 1)


def _parse_text(given: str) -> int | None:
    """ISO 8601, or digits: what becomes of numbers that are too large for JavaScript."""
    if len(given) <= len(str(UINT64.stop)) and given.isascii() and given.isdecimal():
        return _to_nanoseconds(int(given), _unit_of(int(given)))
    written = _ISO_8601.fullmatch(given)
    if written is None:
        return None
    day, time, fraction, zone = written.groups()
    offset = "+00:00" if zone in (None, "Z") else zone
    try:
        passed = datetime.fromisoformat(f"{day}T{time}{offset}") - _EPOCH
    except ValueError:
        return None
    return passed // timedelta(seconds=1) * _SECOND_NS + int((fraction or "0").ljust(9, "0"))


_MAX_DEPTH = 100
"""How deep attributes may nest: as in OTLP."""
_KINDS = {"INTERNAL": 1, "SERVER": 2, "CLIENT": 3, "PRODUCER": 4, "CONSUMER": 5}
_STATUSES: Mapping[str, SpanStatus] = {"OK": "ok", "ERROR": "error"}
_LOG_TIME_FIELDS = ("hrTime", "timestamp", "hrTimeObserved", "observedTimestamp")
"""The time of the event, under each SDK's name for it, then the time at which it was observed."""
_LOG_ONLY_FIELDS = frozenset({"body", "eventName", "severityNumber"})
_METRIC_ONLY_FIELDS = frozenset({"dataPoints", "scopeMetrics"})


def is_sdk_record(document: Mapping[str, Any]) -> bool:
    """Whether it is a span, a log record or a metric."""
    fields = _normalize_names(document)
    return _is_span(fields) or _is_log(fields) or _is_metric(fields)


def decode_record(document: Mapping[str, Any]) -> RecordBatch:
    """The record that such a document is. One with a wrong value in it is rejected; metrics are passed over."""
    fields = _normalize_names(document)
    try:
        if _is_span(fields):
            return RecordBatch([_decode_span(fields)])
        return RecordBatch([_decode_log(fields)] if _is_log(fields) else [])
    except DecodeError as error:
        return RecordBatch([], 1, str(error))


def _normalize_names(document: Mapping[str, Any]) -> dict[str, Any]:
    """The fields under one name each, the public one in camelCase; what is within them stays as it is."""
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
    """Where a record's ids stand: in its own fields, else in one of them."""
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
    """An id in hexadecimal digits, with `0x` before them or without."""
    try:
        return bytes.fromhex(text_field(parent, field).removeprefix("0x"))
    except ValueError as error:
        raise DecodeError(f"{field} is not hexadecimal") from error


def _parent_id(fields: dict[str, Any]) -> bytes:
    context = _normalize_names(object_field(fields, "parentSpanContext"))
    return _id_field(context, "spanId") or _id_field(fields, "parentSpanId") or _id_field(fields, "parentId")


def _start_and_end(fields: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Start and end. What JavaScript's console exporter would print has a duration in place of the end."""
    began = "startTime" if "startTime" in fields else "timestamp"
    start, end = time_field(fields, began), time_field(fields, "endTime")
    if start is not None and end is None:
        duration = duration_field(fields, "duration", beside=fields[began])
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
    """OTLP's number. The SDKs have none for "unspecified", and begin with 0 for internal spans."""
    given = fields.get("kind")
    if isinstance(given, str):
        return _KINDS.get(_enum_member(given), 0)
    number = integer_field(fields, "kind", INT32) + 1
    return number if given is not None and number in _KINDS.values() else 0


def _enum_member(written: str) -> str:
    """The member of an enum out of how Python writes it: `SpanKind.CLIENT`."""
    return written.rpartition(".")[2].upper()


def _decode_event(event: dict[str, Any]) -> SpanEvent:
    return SpanEvent(text_field(event, "name"), _decode_attributes(event), time_field(event, _event_time_field(event)))


def _event_time_field(event: Mapping[str, Any]) -> str:
    return "time" if "time" in event else "timestamp"


def _scope_name(fields: dict[str, Any]) -> str:
    """JavaScript's SDK called it a library until its version 2."""
    return text_field(
        object_field(fields, "instrumentationScope") or object_field(fields, "instrumentationLibrary"), "name"
    )


def _resource_attributes(fields: dict[str, Any]) -> dict[str, Any]:
    """Its attributes; version 2 of JavaScript's SDK keeps them as pairs, of which the first of a key counts."""
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
