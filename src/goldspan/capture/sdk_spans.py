"""Converts spans of the OpenTelemetry SDK to records, and copies them with results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import StatusCode
from opentelemetry.util.types import AttributeValue

from goldspan import semconv
from goldspan.model import SpanEvent, SpanRecord, SpanStatus

_STATUS_BY_CODE: dict[StatusCode, SpanStatus] = {
    StatusCode.UNSET: "unset",
    StatusCode.OK: "ok",
    StatusCode.ERROR: "error",
}


def to_span_record(span: ReadableSpan, end_ns: int | None = None) -> SpanRecord:
    """Returns the record of an ended span, or of a live span in its current state with `end_ns` as its end time.

    The span limits of the SDK bound the size of a record. The attributes are copied once and not deeply, because the
    SDK stores immutable values.
    """
    context, parent, status = span.context, span.parent, span.status
    scope, events = span.instrumentation_scope, span.events
    return SpanRecord(
        trace_id=f"{context.trace_id:032x}",
        span_id=f"{context.span_id:016x}",
        parent_id=f"{parent.span_id:016x}" if parent is not None else None,
        name=span.name,
        attributes=copy_attributes(span.attributes),
        start_ns=span.start_time,
        end_ns=span.end_time if end_ns is None else end_ns,
        status=_STATUS_BY_CODE[status.status_code],
        status_message=status.description or "",
        events=tuple(map(_to_span_event, events)) if events else (),
        kind=span.kind.value + 1,
        scope=scope.name if scope is not None else "",
        resource=_resource_attributes(span.resource),
        dropped_attributes=span.dropped_attributes,
    )


def _resource_attributes(resource: Resource) -> Mapping[str, Any]:
    """Returns the attributes as a dictionary: conventions read them for each span, and the SDK's mapping is slow."""
    global _last_resource
    latest = _last_resource
    if latest is None or latest[0] is not resource:  # a process has one resource, or few
        latest = _last_resource = (resource, copy_attributes(resource.attributes))
    return latest[1]


_last_resource: tuple[Resource, Mapping[str, Any]] | None = None


def _to_span_event(event: Event) -> SpanEvent:
    return SpanEvent(event.name, copy_attributes(event.attributes), event.timestamp)


def copy_attributes(attributes: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Returns the attributes as a dictionary that the SDK does not change."""
    # The SDK's mapping has a `copy` that is seven times as fast as going through it key by key.
    if attributes is None:
        return {}
    copy = getattr(attributes, "copy", None)
    return copy() if copy is not None else dict(attributes)


def is_evaluation_span(span: ReadableSpan, attributes: Mapping[str, Any] | None = None) -> bool:
    """Returns whether a span is a `SpanSink`'s span for an evaluation; it belongs to no run.

    `attributes` are a copy of its attributes, if the caller has one.
    """
    scope = span.instrumentation_scope
    if scope is None or scope.name != "goldspan":
        return False
    return semconv.IS_EVALUATION in (copy_attributes(span.attributes) if attributes is None else attributes)


def copy_with_attributes(span: ReadableSpan, attributes: Mapping[str, AttributeValue]) -> ReadableSpan:
    """Returns a copy of an ended span with additional attributes, which the SDK's attribute limit no longer affects."""
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes={**(span.attributes or {}), **attributes},
        events=span.events,
        links=span.links,
        kind=span.kind,
        status=span.status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )
