"""Converts records to rows of a table with the columns of the ClickHouse exporter, and back.

The tables are `otel_traces` and `otel_logs`; one table may hold the rows of both. Their maps hold text only: numbers,
booleans, lists and mappings become text, and remain text if nothing else is known. The column `TypedValues`, which is
goldspan's own, holds these values as JSON, so that a row that has it becomes the same record again.

A row is a mapping from columns to Python values. Nothing here imports an engine: Parquet files and data frames use the
same rows.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, Final, Literal

from goldspan.model import LogRecord, SpanEvent, SpanRecord, SpanStatus, TelemetryRecord
from goldspan.otlp.decode_results import (
    DecodeError,
    event_name,
    parent_span_id,
    validated_ids,
    validated_log_ids,
)

ColumnKind = Literal["text", "time", "integer", "map", "times", "texts", "maps"]
"""`time`: nanoseconds since the Unix epoch; `map`: text to text; the plurals are lists with one item for each event."""

SPAN_COLUMNS: Final[Mapping[str, ColumnKind]] = {
    "Timestamp": "time",
    "TraceId": "text",
    "SpanId": "text",
    "ParentSpanId": "text",
    "SpanName": "text",
    "SpanKind": "text",
    "ServiceName": "text",
    "ResourceAttributes": "map",
    "ScopeName": "text",
    "SpanAttributes": "map",
    "Duration": "integer",
    "StatusCode": "text",
    "StatusMessage": "text",
    "Events.Timestamp": "times",
    "Events.Name": "texts",
    "Events.Attributes": "maps",
}
"""The columns of a span, as the table `otel_traces` names them. `Duration` is in nanoseconds."""
LOG_COLUMNS: Final[Mapping[str, ColumnKind]] = {"EventName": "text", "Body": "text", "LogAttributes": "map"}
"""The columns that the table `otel_logs` has besides those of `otel_traces`. Spans have no value in them."""
TYPED_VALUES: Final = "TypedValues"
"""The column with the values that the other columns cannot hold, as JSON; `None` if there are none."""
COLUMNS: Final[Mapping[str, ColumnKind]] = {**SPAN_COLUMNS, **LOG_COLUMNS, TYPED_VALUES: "text"}
"""All columns that are written, in their order."""

_EVENTS: Final = "Events"
_OTHER_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "Timestamp": ("start_time_unix_nano", "time_unix_nano", "TimestampTime"),
    "TraceId": ("trace_id",),
    "SpanId": ("span_id",),
    "ParentSpanId": ("parent_span_id",),
    "SpanName": ("name",),
    "SpanKind": ("kind",),
    "ServiceName": ("service_name",),
    "ResourceAttributes": ("resource_attributes",),
    "ScopeName": ("scope_name",),
    "SpanAttributes": ("attributes",),
    "Duration": ("duration_time_unix_nano",),
    "StatusCode": ("status_code",),
    "StatusMessage": ("status_message", "status_status_message"),
    "EventName": ("event_name",),
    "Body": ("body",),
    "LogAttributes": ("log_attributes",),
}
"""The names of the same columns in OpenTelemetry Arrow."""
_KINDS: Final = ("Unspecified", "Internal", "Server", "Client", "Producer", "Consumer")
_KIND_NUMBERS: Final = {name.upper(): number for number, name in enumerate(_KINDS)}
_STATUS_TEXTS: Final[Mapping[SpanStatus, str]] = {"unset": "Unset", "ok": "Ok", "error": "Error"}
_STATUSES: Final[Mapping[str, SpanStatus]] = {
    "OK": "ok",
    "ERROR": "error",
    "1": "ok",
    "2": "error",
}
_MAX_INTEGER: Final = 2**63 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND: Final = timedelta(microseconds=1)

Row = dict[str, Any]


def record_to_row(record: TelemetryRecord) -> Row:
    """Returns the row of a record. `row_to_record` makes an equal record of it."""
    row: Row = dict.fromkeys(COLUMNS)
    typed: dict[str, Any] = {}
    row["TraceId"], row["SpanId"] = record.trace_id or "", record.span_id or ""
    row["ScopeName"] = record.scope
    row["ResourceAttributes"] = _text_map(record.resource, typed, "resource")
    row["ServiceName"] = _text_of(record.resource.get("service.name"))
    if isinstance(record, SpanRecord):
        _set_span_columns(row, record, typed)
    else:
        _set_time(row, record.time_ns, typed)
        row["EventName"] = record.name
        row["Body"] = _text_of(record.body)
        if not isinstance(record.body, str):
            typed["body"] = _json_value(record.body)
        row["LogAttributes"] = _text_map(record.attributes, typed, "attributes")
    row[TYPED_VALUES] = json.dumps(typed, ensure_ascii=False, separators=(",", ":")) if typed else None
    return row


def _set_span_columns(row: Row, record: SpanRecord, typed: dict[str, Any]) -> None:
    _set_time(row, record.start_ns, typed)
    row["ParentSpanId"] = record.parent_id or ""
    row["SpanName"] = record.name
    row["SpanKind"] = _KINDS[record.kind] if 0 <= record.kind < len(_KINDS) else str(record.kind)
    row["SpanAttributes"] = _text_map(record.attributes, typed, "attributes")
    if record.end_ns is not None:
        if row["Timestamp"] is not None and 0 <= record.end_ns - row["Timestamp"] <= _MAX_INTEGER:
            row["Duration"] = record.end_ns - row["Timestamp"]
        else:
            typed["end"] = record.end_ns
    row["StatusCode"] = _STATUS_TEXTS[record.status]
    row["StatusMessage"] = record.status_message
    times = [event.time_ns for event in record.events]
    row["Events.Timestamp"] = [None if time is None or time > _MAX_INTEGER else time for time in times]
    if row["Events.Timestamp"] != times:
        typed["times"] = times
    row["Events.Name"] = [event.name for event in record.events]
    events: dict[str, Any] = {}
    row["Events.Attributes"] = [
        _text_map(event.attributes, events, str(number)) for number, event in enumerate(record.events)
    ]
    if events:
        typed["events"] = events
    if record.dropped_attributes:
        typed["dropped"] = record.dropped_attributes


def _set_time(row: Row, time_ns: int | None, typed: dict[str, Any]) -> None:
    """Sets the time. A time after 2262 is outside the range of a column, and only in the typed values."""
    if time_ns is not None and time_ns > _MAX_INTEGER:
        typed["time"] = time_ns
    else:
        row["Timestamp"] = time_ns


def column_names(columns: Iterable[str]) -> dict[str, str]:
    """Returns the columns that a table has and records are made of: our name of each, and its name in the table.

    Raises `DecodeError` if the columns are those of no table of spans or logs, or two of them have the same name.
    """
    existing = Counter(columns)
    found = {}
    for name in (*COLUMNS, _EVENTS):
        for other in (name, *_OTHER_NAMES.get(name, ())):
            if other in existing:
                found[name] = other
                break
    is_span_table = {"TraceId", "SpanId", "SpanName"} <= found.keys()
    if not is_span_table and not ("TraceId" in found and "LogAttributes" in found):
        raise DecodeError(
            "no table of spans or logs: it needs the columns TraceId, SpanId and SpanName of otel_traces, or TraceId "
            "and LogAttributes of otel_logs"
        )
    if repeated := [name for name in found.values() if existing[name] > 1]:
        raise DecodeError(f"two columns have the name {repeated[0]}")
    return found


def row_to_record(row: Mapping[str, Any]) -> TelemetryRecord:
    """Returns the record of a row. A missing column counts as a column without a value.

    A time is an integer of nanoseconds or a `datetime`, an id is hexadecimal text or bytes, and a map is a mapping or a
    list of pairs. Raises `DecodeError` for a row with an invalid id or a value of the wrong type.
    """
    try:
        typed = _typed_values(row.get(TYPED_VALUES))
        resource = _restored(_map_of(row.get("ResourceAttributes")), typed.get("resource"))
        service = row.get("ServiceName")
        if service and "service.name" not in resource:
            resource["service.name"] = service
        if row.get("SpanName") is None and row.get("LogAttributes") is not None:
            return _log_record(row, typed, resource)
        return _span_record(row, typed, resource)
    except (TypeError, ValueError, AttributeError, LookupError, RecursionError) as error:
        raise DecodeError(f"a column has a value of the wrong type: {error}") from error


def _span_record(row: Mapping[str, Any], typed: Mapping[str, Any], resource: dict[str, Any]) -> SpanRecord:
    trace_id, span_id = validated_ids(_id_bytes(row.get("TraceId")), _id_bytes(row.get("SpanId")))
    start, duration = typed.get("time", _time_of(row.get("Timestamp"))), row.get("Duration")
    end = None if start is None or duration is None else start + _nanoseconds(duration)
    return SpanRecord(
        trace_id,
        span_id,
        parent_span_id(_id_bytes(row.get("ParentSpanId"))),
        row.get("SpanName") or "",
        _restored(_map_of(row.get("SpanAttributes")), typed.get("attributes")),
        start,
        typed.get("end", end),
        _status_of(row.get("StatusCode")),
        row.get("StatusMessage") or "",
        _events_of(row, typed),
        _kind_of(row.get("SpanKind")),
        row.get("ScopeName") or "",
        resource,
        typed.get("dropped", 0),
    )


def _log_record(row: Mapping[str, Any], typed: Mapping[str, Any], resource: dict[str, Any]) -> LogRecord:
    trace_id, span_id = validated_log_ids(_id_bytes(row.get("TraceId")), _id_bytes(row.get("SpanId")))
    attributes = _restored(_map_of(row.get("LogAttributes")), typed.get("attributes"))
    return LogRecord(
        event_name(row.get("EventName") or "", attributes),
        attributes,
        _plain_value(typed["body"]) if "body" in typed else row.get("Body"),
        trace_id,
        span_id,
        typed.get("time", _time_of(row.get("Timestamp"))),
        row.get("ScopeName") or "",
        resource,
    )


def _events_of(row: Mapping[str, Any], typed: Mapping[str, Any]) -> tuple[SpanEvent, ...]:
    together = row.get(_EVENTS)
    if together is not None:  # the nested table as one column
        rows: Sequence[tuple[Any, Any, Any]] = [
            (event.get("Name"), event.get("Attributes"), event.get("Timestamp")) for event in together
        ]
    else:
        names = row.get("Events.Name") or ()
        columns = (row.get("Events.Attributes"), row.get("Events.Timestamp"))
        attributes, times = (column or [None] * len(names) for column in columns)
        rows = list(zip(names, attributes, times, strict=True))
    values, times_ns = typed.get("events", {}), typed.get("times")
    return tuple(
        [
            SpanEvent(
                name or "",
                _restored(_map_of(attributes), values.get(str(number))),
                _time_of(time) if times_ns is None else times_ns[number],
            )
            for number, (name, attributes, time) in enumerate(rows)
        ]
    )


def _text_map(values: Mapping[str, Any], typed: dict[str, Any], key: str) -> dict[str, str]:
    """Returns a map with all values as text, and adds those that are no text to the typed values under a key."""
    texts = {name: value if type(value) is str else _text_of(value) for name, value in values.items()}
    others = {name: _json_value(value) for name, value in values.items() if type(value) is not str}
    if others:
        typed[key] = others
    return texts


def _text_of(value: Any) -> str:
    """Returns a value as the Collector writes it as text: lists and mappings as JSON, bytes as base64."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return json.dumps(_json_value(value), ensure_ascii=False, separators=(",", ":"))


_BYTES, _MAPPING = "bytesValue", "kvlistValue"
"""The only key of an object in `TypedValues` that stands for bytes, and for a mapping that would look like one."""


def _json_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return {_BYTES: base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        members = {str(name): _json_value(member) for name, member in value.items()}
        return {_MAPPING: members} if len(members) == 1 and members.keys() <= {_BYTES, _MAPPING} else members
    return [_json_value(item) for item in value] if isinstance(value, list | tuple) else value


def _plain_value(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain_value(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and _BYTES in value:
        return base64.b64decode(value[_BYTES], validate=True)
    members = value[_MAPPING] if len(value) == 1 and _MAPPING in value else value
    return {name: _plain_value(member) for name, member in members.items()}


def _typed_values(text: str | None) -> Mapping[str, Any]:
    typed = json.loads(text) if text else {}
    if not isinstance(typed, dict):
        raise DecodeError(f"{TYPED_VALUES} is not a JSON object")
    return typed


def _restored(attributes: dict[str, Any], typed: Mapping[str, Any] | None) -> dict[str, Any]:
    if typed:
        attributes.update((name, _plain_value(value)) for name, value in typed.items())
    return attributes


def _map_of(value: Any) -> dict[str, Any]:
    return {} if value is None else dict(value)


def _id_bytes(value: Any) -> bytes:
    if value is None:
        return b""
    return bytes.fromhex(value) if isinstance(value, str) else bytes(value)


def _time_of(value: Any) -> int | None:
    """Returns nanoseconds since the Unix epoch. A `datetime` without a zone is UTC."""
    if isinstance(value, datetime):
        return (value.replace(tzinfo=value.tzinfo or timezone.utc) - _EPOCH) // _MICROSECOND * 1000
    return None if value is None else int(value)


def _nanoseconds(duration: Any) -> int:
    return duration // _MICROSECOND * 1000 if isinstance(duration, timedelta) else int(duration)


def _kind_of(value: Any) -> int:
    """Returns the number of a kind: `Server`, `SPAN_KIND_SERVER`, or the number itself."""
    if isinstance(value, str) and not value.isdecimal():
        return _KIND_NUMBERS.get(value.upper().removeprefix("SPAN_KIND_"), 0)
    return int(value or 0)


def _status_of(value: Any) -> SpanStatus:
    """Returns a status: `Error`, `STATUS_CODE_ERROR` and 2 are the same."""
    return _STATUSES.get(str(value).upper().removeprefix("STATUS_CODE_"), "unset")
