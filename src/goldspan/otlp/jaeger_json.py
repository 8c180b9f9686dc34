"""Decodes spans from Jaeger's trace JSON: responses of its query API and downloads of its UI.

Jaeger stores OpenTelemetry fields that it does not have as tags; the decoder restores the fields. Times are in
microseconds. Lists and mappings are JSON text in Jaeger and remain text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from goldspan.model import SpanEvent, SpanRecord, SpanStatus
from goldspan.otlp.decode_results import DecodedSpans, DecodeError, parent_span_id, text_or_bytes, validated_ids
from goldspan.otlp.json_fields import (
    INT64,
    UINT32,
    UINT64,
    boolean_field,
    bytes_field,
    integer_field,
    number_field,
    object_field,
    objects_field,
    text_field,
)

_RESPONSE_KEYS = frozenset({"total", "limit", "offset", "errors"})
"""The keys besides `data` in an API response."""
MISSING_SERVICE_NAMES = frozenset({"OTLPResourceNoServiceName", "missing-service-name", "empty-service-name"})
"""The names that the Collector and Jaeger write if there is no service name, which Jaeger requires."""
_KINDS = {"internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}
_STATUSES: Mapping[str, SpanStatus] = {"OK": "ok", "ERROR": "error"}
_IGNORED_TAGS = ("otel.scope.version", "otel.library.version", "w3c.tracestate", "internal.span.format")
"""Tags that are not attributes in OpenTelemetry and have no field in a record."""


def is_api_response(document: Mapping[str, Any]) -> bool:
    """Returns whether a document is a response of the query API, with traces in `data`."""
    traces = document.get("data")
    if not isinstance(traces, list):
        return False
    return (
        all(isinstance(trace, dict) and is_trace_document(trace) for trace in traces)
        if traces
        else set(document) >= _RESPONSE_KEYS
    )


def is_trace_document(document: Mapping[str, Any]) -> bool:
    """Returns whether a document is a single trace."""
    spans = document.get("spans")
    return (
        isinstance(spans, list)
        and ("traceID" in document or "processes" in document)
        and all(isinstance(span, dict) and "spanID" in span for span in spans)
    )


def decode_traces(document: dict[str, Any]) -> DecodedSpans:
    """Decodes all spans of a response or of one trace. A span with an invalid value is rejected alone.

    Raises `DecodeError` if the structure is not Jaeger's.
    """
    spans: list[SpanRecord] = []
    rejected, reason = 0, ""
    for trace in objects_field(document, "data") if "data" in document else [document]:
        processes = object_field(trace, "processes")
        resources = {key: _resource_attributes(object_field(processes, key)) for key in processes}
        for span in objects_field(trace, "spans"):
            try:
                spans.append(_decode_span({"traceID": trace.get("traceID"), **span}, resources))
            except DecodeError as error:
                rejected, reason = rejected + 1, reason or str(error)
    return DecodedSpans(spans, rejected, reason)


def _resource_attributes(process: dict[str, Any]) -> dict[str, Any]:
    service = text_field(process, "serviceName")
    return {
        **({"service.name": service} if service and service not in MISSING_SERVICE_NAMES else {}),
        **_tag_attributes(process, "tags"),
    }


def _decode_span(span: dict[str, Any], resources: Mapping[str, dict[str, Any]]) -> SpanRecord:
    trace_id, span_id = validated_ids(_id_field(span, "traceID", 32), _id_field(span, "spanID", 16))
    attributes = _tag_attributes(span, "tags")
    kind = _KINDS.get(_pop_text(attributes, "span.kind").lower(), 0)
    scope = _pop_text(attributes, "otel.library.name")
    scope = _pop_text(attributes, "otel.scope.name") or scope
    status = _pop_status(attributes)
    message = _pop_text(attributes, "otel.status_description")
    dropped = integer_field({"dropped": attributes.pop("otel.dropped_attributes_count", 0)}, "dropped", UINT32)
    for key in _IGNORED_TAGS:
        attributes.pop(key, None)
    start = integer_field(span, "startTime", UINT64) * 1000 or None
    end = start + integer_field(span, "duration", INT64) * 1000 if start is not None else None
    own = span.get("process")  # in some stores a span contains its process
    resource = (
        _resource_attributes(object_field(span, "process")) if own else resources.get(text_field(span, "processID"), {})
    )
    return SpanRecord(
        trace_id,
        span_id,
        parent_span_id(_parent_id(span)),
        text_field(span, "operationName"),
        attributes,
        start,
        end,
        status,
        message,
        tuple(map(_decode_event, objects_field(span, "logs"))),
        kind,
        scope,
        resource,
        dropped,
    )


def _pop_status(attributes: dict[str, Any]) -> SpanStatus:
    """`error` takes precedence; text in it is an application message and remains an attribute."""
    status = _STATUSES.get(_pop_text(attributes, "otel.status_code").upper(), "unset")
    if attributes.get("error") in (True, "true"):
        del attributes["error"]
        return "error"
    return status


def _parent_id(span: dict[str, Any]) -> bytes:
    """The span in `CHILD_OF`, else in `FOLLOWS_FROM`, else in `parentSpanID` of early versions of Jaeger."""
    trace_id = _id_field(span, "traceID", 32)
    references = [ref for ref in objects_field(span, "references") if _id_field(ref, "traceID", 32) == trace_id]
    for kind in ("CHILD_OF", "FOLLOWS_FROM"):
        for reference in references:
            if text_field(reference, "refType") == kind:
                return _id_field(reference, "spanID", 16)
    return _id_field(span, "parentSpanID", 16)


def _decode_event(log: dict[str, Any]) -> SpanEvent:
    """An event's name is its field `event`; before 2022 the Collector called it `message`."""
    fields = _tag_attributes(log, "fields")
    name = _pop_text(fields, "event") or _pop_text(fields, "message")
    return SpanEvent(name, fields, integer_field(log, "timestamp", UINT64) * 1000 or None)


def _pop_text(tags: dict[str, Any], key: str) -> str:
    """Removes a tag that has a separate field, and returns its text."""
    value = tags.pop(key, None)
    return "" if value is None else str(value)


def _id_field(parent: dict[str, Any], field: str, digits: int) -> bytes:
    """Reads an id; leading zeros may be missing."""
    try:
        return bytes.fromhex(text_field(parent, field).zfill(digits))
    except ValueError as error:
        raise DecodeError(f"{field} is not hexadecimal") from error


def _tag_attributes(parent: dict[str, Any], field: str) -> dict[str, Any]:
    return {text_field(tag, "key"): _tag_value(tag) for tag in objects_field(parent, field)}


def _tag_value(tag: dict[str, Any]) -> Any:
    """A tag's value. Numbers and booleans may be text, because some stores convert all values."""
    value = tag.get("value")
    decode = _VALUE_DECODERS.get(text_field(tag, "type"))
    return value if value is None or decode is None else decode(tag)


def _boolean_value(tag: dict[str, Any]) -> bool:
    return tag["value"] == "true" if tag["value"] in ("true", "false") else boolean_field(tag, "value")


_VALUE_DECODERS: Mapping[str, Callable[[dict[str, Any]], Any]] = {
    "string": lambda tag: text_field(tag, "value"),
    "bool": _boolean_value,
    "int64": lambda tag: integer_field(tag, "value", INT64),
    "float64": lambda tag: number_field(tag, "value"),
    "binary": lambda tag: text_or_bytes(bytes_field(tag, "value")),
}
