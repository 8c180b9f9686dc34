"""Spans from the bytes of an OTLP `ExportTraceServiceRequest`, the same on the wire as `TracesData`.

A request is parsed at once, and what is long in a span is read off it when somebody asks: most spans of a service are
no agent's work, and all that is ever asked of them is where they stand and whether they carry certain attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from google.protobuf.message import DecodeError as ProtobufError

from goldspan.model import SpanEvent, SpanRecord
from goldspan.otlp.attributes import Attributes
from goldspan.otlp.decoding import STATUSES, Decoded, DecodeError, checked_span_id, checked_trace_id, parent_of
from goldspan.otlp.schema import trace_message

_Request = trace_message("TracesData")
_Span = trace_message("Span")
_Envelopes = trace_message("TracesData", unread=["spans"])
"""A request whose spans are bytes, so that each can be parsed by itself."""


def decode_traces(data: bytes) -> Decoded:
    """All spans of one request. Raises `DecodeError` for bytes that are something else; no bytes are no spans.

    A span that is broken, or whose name or keys are not UTF-8, is rejected alone.
    """
    try:
        return _decoded(_Request.FromString(data), _record)
    except ProtobufError as error:
        fault = error
    with suppress(ProtobufError):
        decoded = _decoded(_Envelopes.FromString(data), _parsed_record)
        if decoded.spans:
            return decoded
    raise DecodeError("neither JSON nor an OTLP trace request in protobuf") from fault


class _TraceIds(dict[bytes, str]):
    """Trace ids in hexadecimal digits. The spans of a trace share one text, which makes grouping them quick."""

    def __missing__(self, trace_id: bytes) -> str:
        checked = self[trace_id] = checked_trace_id(trace_id)
        return checked


_Record = Callable[[Any, _TraceIds, str, Mapping[str, Any]], SpanRecord]


def _decoded(request: Any, record: _Record) -> Decoded:
    if not request.resource_spans and request.ByteSize():
        raise DecodeError("a protobuf message, but no OTLP trace request")  # every field of it is unknown to OTLP
    spans: list[SpanRecord] = []
    rejected, reason = 0, ""
    trace_ids = _TraceIds()
    for resource_spans in request.resource_spans:
        resource = Attributes(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            scope = scope_spans.scope.name
            for span in scope_spans.spans:
                try:
                    spans.append(record(span, trace_ids, scope, resource))
                except DecodeError as error:
                    rejected, reason = rejected + 1, reason or str(error)
    return Decoded(spans, rejected, reason)


def _parsed_record(data: bytes, trace_ids: _TraceIds, scope: str, resource: Mapping[str, Any]) -> SpanRecord:
    try:
        span = _Span.FromString(data)
    except ProtobufError as error:
        raise DecodeError("a span is broken, or text in it is not UTF-8") from error
    return _record(span, trace_ids, scope, resource)


def _record(span: Any, trace_ids: _TraceIds, scope: str, resource: Mapping[str, Any]) -> SpanRecord:
    record = _SpanOnTheWire.__new__(_SpanOnTheWire)
    record._span = span
    record.trace_id = trace_ids[span.trace_id]
    record.span_id = checked_span_id(span.span_id)
    record.parent_id = parent_of(span.parent_span_id)
    record.name = span.name
    record.start_ns = span.start_time_unix_nano or None
    record.end_ns = span.end_time_unix_nano or None
    record.dropped_attributes = span.dropped_attributes_count
    record.scope = scope
    record.resource = resource
    return record


class _SpanOnTheWire(SpanRecord):
    """A span of which attributes, events and status are read off its message when they are first asked for.

    The message is part of its request: while one span lives, the memory of all of them is taken. What `pickle` and
    `copy.deepcopy` make of it is a plain record that holds nothing else.
    """

    __slots__ = ("_span",)
    _span: Any

    def __getattr__(self, name: str) -> Any:
        """Fill the fields that are still empty: all at once, for whoever asks for one asks for others, too.

        Two threads that do so at once fill in the same.
        """
        if name not in _LATER:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        span = self._span
        status = span.status
        self.attributes = Attributes(span.attributes)
        self.status = STATUSES.get(status.code, "unset")
        self.status_message = status.message
        self.events = tuple(map(_event, span.events)) if span.events else ()
        self.kind = span.kind
        return object.__getattribute__(self, name)

    def keys(self) -> frozenset[str]:
        """The names of its attributes. None of its values is decoded to answer."""
        try:
            return frozenset(self._span.attributes)
        except AttributeError:  # `dataclasses.replace` made it, and all of its fields are filled
            return super().keys()

    def values_of(self, keys: Iterable[str]) -> Mapping[str, Any]:
        """Attributes among which are these, all of which it has. No others are decoded."""
        attributes = self.attributes
        return attributes.read(keys) if isinstance(attributes, Attributes) else attributes

    def __reduce__(self) -> tuple[type[SpanRecord], tuple[Any, ...]]:
        return SpanRecord, tuple(getattr(self, name) for name in SpanRecord.__dataclass_fields__)


_LATER = frozenset({"attributes", "status", "status_message", "events", "kind"})


def _event(event: Any) -> SpanEvent:
    return SpanEvent(event.name, Attributes(event.attributes), event.time_unix_nano or None)
