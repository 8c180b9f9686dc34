"""Spans from Jaeger's trace JSON: what its query API answers and its page downloads.

Jaeger keeps what OpenTelemetry has and it has not as tags; they are put back where they came from. It counts in
microseconds, and lists and mappings are JSON text in it: they stay text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from goldspan.model import SpanEvent, SpanRecord, Status
from goldspan.otlp.decoding import Decoded, DecodeError, checked_ids, parent_of, readable
from goldspan.otlp.json_fields import (
    INT64,
    UINT32,
    UINT64,
    boolean_of,
    bytes_of,
    integer_of,
    number_of,
    object_of,
    objects_of,
    text_of,
)

_ANSWER = frozenset({"total", "limit", "offset", "errors"})
"""What stands beside the traces in an answer of the API."""
_NO_SERVICE = "OTLPResourceNoServiceName"
"""What the Collector writes where there is no service name: Jaeger needs one."""
_KINDS = {"internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}
_STATUSES: Mapping[str, Status] = {"OK": "ok", "ERROR": "error"}
_OF_NO_USE = ("otel.scope.version", "otel.library.version", "w3c.tracestate", "internal.span.format")
"""Tags that are no attributes in OpenTelemetry either, and that no record has a place for."""


def is_answer(document: Mapping[str, Any]) -> bool:
    """Whether it is what the query API answers: traces under `data`."""
    traces = document.get("data")
    if not isinstance(traces, list):
        return False
    return all(isinstance(trace, dict) and is_trace(trace) for trace in traces) if traces else set(document) >= _ANSWER


def is_trace(document: Mapping[str, Any]) -> bool:
    """Whether it is one trace, without anything around it."""
    spans = document.get("spans")
    return (
        isinstance(spans, list)
        and ("traceID" in document or "processes" in document)
        and all(isinstance(span, dict) and "spanID" in span for span in spans)
    )


def decode_traces(document: dict[str, Any]) -> Decoded:
    """All spans of an answer or of one trace. A span with a wrong value in it is rejected alone.

    Raises `DecodeError` where the outline is not Jaeger's.
    """
    spans: list[SpanRecord] = []
    rejected, reason = 0, ""
    for trace in objects_of(document, "data") if "data" in document else [document]:
        processes = object_of(trace, "processes")
        resources = {key: _resource(object_of(processes, key)) for key in processes}
        for span in objects_of(trace, "spans"):
            try:
                spans.append(_span({"traceID": trace.get("traceID"), **span}, resources))
            except DecodeError as error:
                rejected, reason = rejected + 1, reason or str(error)
    return Decoded(spans, rejected, reason)


def _resource(process: dict[str, Any]) -> dict[str, Any]:
    service = text_of(process, "serviceName")
    return {**({"service.name": service} if service not in ("", _NO_SERVICE) else {}), **_tags(process, "tags")}


def _span(span: dict[str, Any], resources: Mapping[str, dict[str, Any]]) -> SpanRecord:
    trace_id, span_id = checked_ids(_id(span, "traceID", 32), _id(span, "spanID", 16))
    attributes = _tags(span, "tags")
    kind = _KINDS.get(_taken(attributes, "span.kind").lower(), 0)
    scope = _taken(attributes, "otel.library.name")
    scope = _taken(attributes, "otel.scope.name") or scope
    status = _status(attributes)
    message = _taken(attributes, "otel.status_description")
    dropped = integer_of({"dropped": attributes.pop("otel.dropped_attributes_count", 0)}, "dropped", UINT32)
    for key in _OF_NO_USE:
        attributes.pop(key, None)
    start = integer_of(span, "startTime", UINT64) * 1000 or None
    end = start + integer_of(span, "duration", INT64) * 1000 if start is not None else None
    own = span.get("process")  # in some stores a span brings its process along
    resource = _resource(object_of(span, "process")) if own else resources.get(text_of(span, "processID"), {})
    return SpanRecord(
        trace_id,
        span_id,
        parent_of(_parent(span)),
        text_of(span, "operationName"),
        attributes,
        start,
        end,
        status,
        message,
        tuple(map(_event, objects_of(span, "logs"))),
        kind,
        scope,
        resource,
        dropped,
    )


def _status(attributes: dict[str, Any]) -> Status:
    """`error` comes first, and text in it is a message of the application's own, which stays an attribute."""
    status = _STATUSES.get(_taken(attributes, "otel.status_code").upper(), "unset")
    if attributes.get("error") in (True, "true"):
        del attributes["error"]
        return "error"
    return status


def _parent(span: dict[str, Any]) -> bytes:
    """The span it is a child of; else the one it follows from; else what the first versions of Jaeger wrote."""
    trace_id = _id(span, "traceID", 32)
    within = [each for each in objects_of(span, "references") if _id(each, "traceID", 32) == trace_id]
    for kind in ("CHILD_OF", "FOLLOWS_FROM"):
        for reference in within:
            if text_of(reference, "refType") == kind:
                return _id(reference, "spanID", 16)
    return _id(span, "parentSpanID", 16)


def _event(log: dict[str, Any]) -> SpanEvent:
    """An event's name is its field `event`; before 2022 the Collector called it `message`."""
    fields = _tags(log, "fields")
    name = _taken(fields, "event") or _taken(fields, "message")
    return SpanEvent(name, fields, integer_of(log, "timestamp", UINT64) * 1000 or None)


def _taken(tags: dict[str, Any], key: str) -> str:
    """The text of a tag that has a place of its own, and is no attribute then."""
    value = tags.pop(key, None)
    return "" if value is None else str(value)


def _id(parent: dict[str, Any], field: str, digits: int) -> bytes:
    """An id; leading zeros may be missing."""
    try:
        return bytes.fromhex(text_of(parent, field).zfill(digits))
    except ValueError as error:
        raise DecodeError(f"{field} is not hexadecimal") from error


def _tags(parent: dict[str, Any], field: str) -> dict[str, Any]:
    return {text_of(tag, "key"): _value(tag) for tag in objects_of(parent, field)}


def _value(tag: dict[str, Any]) -> Any:
    """A tag's value. Numbers and truth values may be text: some stores keep all values so."""
    given = tag.get("value")
    read = _TYPES.get(text_of(tag, "type"))
    return given if given is None or read is None else read(tag)


def _boolean(tag: dict[str, Any]) -> bool:
    return tag["value"] == "true" if tag["value"] in ("true", "false") else boolean_of(tag, "value")


_TYPES: Mapping[str, Callable[[dict[str, Any]], Any]] = {
    "string": lambda tag: text_of(tag, "value"),
    "bool": _boolean,
    "int64": lambda tag: integer_of(tag, "value", INT64),
    "float64": lambda tag: number_of(tag, "value"),
    "binary": lambda tag: readable(bytes_of(tag, "value")),
}
