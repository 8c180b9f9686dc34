"""Spans and log records as OpenTelemetry's SDKs put themselves into JSON, one a document.

Python's console exporters write `to_json()` of each. JavaScript has no such method: files hold what its console
exporter would print, the span object as it is, or fields that somebody picked from it, as GitHub Copilot does. All
name the same things, in camelCase or snake_case and with an underscore where a field is private. Unlike in OTLP,
attributes are plain JSON, and kinds count from 0. Python's does not write the instrumentation scope.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from goldspan.model import LogRecord, SpanEvent, SpanRecord, Status
from goldspan.otlp.decoding import STATUSES, DecodeError, checked_ids, parent_of
from goldspan.otlp.instants import duration_of, instant_of
from goldspan.otlp.json_fields import INT32, UINT32, integer_of, object_of, objects_of, text_of
from goldspan.otlp.records import Batch, event_name, log_ids

_DEEPEST = 100
"""How deep attributes may nest: as in OTLP."""
_KINDS = {"INTERNAL": 1, "SERVER": 2, "CLIENT": 3, "PRODUCER": 4, "CONSUMER": 5}
_STATUSES: Mapping[str, Status] = {"OK": "ok", "ERROR": "error"}
_LOG_TIMES = ("hrTime", "timestamp", "hrTimeObserved", "observedTimestamp")
"""The time of the event, under each SDK's name for it, then the time at which it was observed."""
_ONLY_OF_LOGS = frozenset({"body", "eventName", "severityNumber"})
_ONLY_OF_METRICS = frozenset({"dataPoints", "scopeMetrics"})


def is_record(document: Mapping[str, Any]) -> bool:
    """Whether it is a span, a log record or a metric."""
    fields = _renamed(document)
    return _is_span(fields) or _is_log(fields) or _is_metric(fields)


def decode(document: Mapping[str, Any]) -> Batch:
    """The record that such a document is. One with a wrong value in it is rejected; metrics are passed over."""
    fields = _renamed(document)
    try:
        if _is_span(fields):
            return Batch([_span(fields)])
        return Batch([_log(fields)] if _is_log(fields) else [])
    except DecodeError as error:
        return Batch([], 1, str(error))


def _renamed(document: Mapping[str, Any]) -> dict[str, Any]:
    """The fields under one name each, the public one in camelCase; what is within them stays as it is."""
    fields = {}
    for name in sorted(document, key=_is_public):
        first, *rest = name.strip("_").split("_")
        fields[first + "".join(map(str.capitalize, rest))] = document[name]
    return fields


def _is_public(name: str) -> bool:
    return not name.startswith("_")


def _is_span(fields: dict[str, Any]) -> bool:
    ids = _context(fields)
    return (
        "attributes" in fields
        and ("startTime" in fields or {"timestamp", "duration"} <= fields.keys())
        and "traceId" in ids
        and ("spanId" in ids or "id" in ids)
    )


def _is_log(fields: Mapping[str, Any]) -> bool:
    return (
        {"attributes", "resource"} <= fields.keys()
        and not fields.keys().isdisjoint(_LOG_TIMES)
        and not fields.keys().isdisjoint(_ONLY_OF_LOGS)
    )


def _is_metric(fields: Mapping[str, Any]) -> bool:
    return "resource" in fields and not fields.keys().isdisjoint(_ONLY_OF_METRICS)


def _context(fields: dict[str, Any]) -> dict[str, Any]:
    """Where a record's ids stand: in its own fields, else in one of them."""
    inner = fields.get("spanContext", fields.get("context"))
    return _renamed(inner) if "traceId" not in fields and isinstance(inner, dict) else fields


def _span(fields: dict[str, Any]) -> SpanRecord:
    ids = _context(fields)
    trace_id, span_id = checked_ids(_id(ids, "traceId"), _id(ids, "spanId" if "spanId" in ids else "id"))
    start_ns, end_ns = _times(fields)
    status, message = _status(fields)
    return SpanRecord(
        trace_id,
        span_id,
        parent_of(_parent(fields)),
        text_of(fields, "name"),
        _attributes(fields),
        start_ns,
        end_ns,
        status,
        message,
        tuple(map(_event, objects_of(fields, "events"))),
        _kind(fields),
        _scope(fields),
        _resource(fields),
        integer_of(fields, "droppedAttributesCount", UINT32),
    )


def _log(fields: dict[str, Any]) -> LogRecord:
    ids = _context(fields)
    trace_id, span_id = log_ids(_id(ids, "traceId"), _id(ids, "spanId"))
    attributes = _attributes(fields)
    _refuse_depth(fields.get("body"), "body")
    times = (instant_of(fields, name) for name in _LOG_TIMES)
    return LogRecord(
        event_name(text_of(fields, "eventName"), attributes),
        attributes,
        fields.get("body"),
        trace_id,
        span_id,
        next(filter(None, times), None),
        _scope(fields),
        _resource(fields),
    )


def _id(parent: dict[str, Any], field: str) -> bytes:
    """An id in hexadecimal digits, with `0x` before them or without."""
    try:
        return bytes.fromhex(text_of(parent, field).removeprefix("0x"))
    except ValueError as error:
        raise DecodeError(f"{field} is not hexadecimal") from error


def _parent(fields: dict[str, Any]) -> bytes:
    context = _renamed(object_of(fields, "parentSpanContext"))
    return _id(context, "spanId") or _id(fields, "parentSpanId") or _id(fields, "parentId")


def _times(fields: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Start and end. What JavaScript's console exporter would print has a duration in place of the end."""
    began = "startTime" if "startTime" in fields else "timestamp"
    start, end = instant_of(fields, began), instant_of(fields, "endTime")
    if start is not None and end is None:
        duration = duration_of(fields, "duration", beside=fields[began])
        end = start + duration if duration is not None else None
    return start, end


def _status(fields: dict[str, Any]) -> tuple[Status, str]:
    status = _renamed(object_of(fields, "status"))
    message = text_of(status, "message") or text_of(status, "description")
    code = "code" if "code" in status else "statusCode"
    if isinstance(status.get(code), str):
        return _STATUSES.get(_member(status[code]), "unset"), message
    return STATUSES.get(integer_of(status, code, INT32), "unset"), message


def _kind(fields: dict[str, Any]) -> int:
    """OTLP's number. The SDKs have none for "unspecified", and begin with 0 for internal spans."""
    given = fields.get("kind")
    if isinstance(given, str):
        return _KINDS.get(_member(given), 0)
    number = integer_of(fields, "kind", INT32) + 1
    return number if given is not None and number in _KINDS.values() else 0


def _member(written: str) -> str:
    """The member of an enum out of how Python writes it: `SpanKind.CLIENT`."""
    return written.rpartition(".")[2].upper()


def _event(event: dict[str, Any]) -> SpanEvent:
    return SpanEvent(text_of(event, "name"), _attributes(event), instant_of(event, _event_time(event)))


def _event_time(event: Mapping[str, Any]) -> str:
    return "time" if "time" in event else "timestamp"


def _scope(fields: dict[str, Any]) -> str:
    """JavaScript's SDK called it a library until its version 2."""
    return text_of(object_of(fields, "instrumentationScope") or object_of(fields, "instrumentationLibrary"), "name")


def _resource(fields: dict[str, Any]) -> dict[str, Any]:
    """Its attributes; version 2 of JavaScript's SDK keeps them as pairs, of which the first of a key counts."""
    resource = _renamed(object_of(fields, "resource"))
    pairs = resource.get("rawAttributes")
    if "attributes" in resource or pairs is None:
        return _attributes(resource)
    try:
        return _attributes({"attributes": dict(reversed(pairs))})
    except (TypeError, ValueError) as error:
        raise DecodeError("the resource's attributes are no pairs") from error


def _attributes(parent: dict[str, Any]) -> dict[str, Any]:
    attributes = object_of(parent, "attributes")
    _refuse_depth(attributes, "attributes")
    return attributes


def _refuse_depth(value: Any, field: str) -> None:
    level = [value]
    for _ in range(_DEEPEST):
        level = [part for outer in level for part in _parts(outer) if isinstance(part, dict | list)]
        if not level:
            return
    raise DecodeError(f"{field} is nested too deeply")


def _parts(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
