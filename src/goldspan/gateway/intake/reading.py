"""Is a request what it says it is? Read once at the door, so that nobody has to doubt it behind.

Spans, log records and metrics are parsed with OTLP's own messages, as strictly as back ends do it: one that they would
refuse, and all that came with it, is left out here alone, and the client is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError as ProtobufError
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData

from goldspan import semconv
from goldspan.gateway.intake import documents
from goldspan.gateway.intake.receptions import Reception, Sieve, check_attributes, check_items, unreadable
from goldspan.gateway.intake.weighing import Scales, Table, check_outline, table_of
from goldspan.gateway.limits import MIB, Limits
from goldspan.gateway.signals import ALL_PARTITIONS, Media, Signal, partition_of
from goldspan.otlp.decoding import DecodeError, checked_span_id, checked_trace_id
from goldspan.otlp.lengths import REQUEST_TAG, as_varint
from goldspan.otlp.records import log_ids
from goldspan.otlp.schema import trace_message

__all__ = ["Reception", "read"]

_Envelopes = trace_message("TracesData", unread=["resource", "scope", "spans"])
"""A request of any signal, for their outlines are the same. What is in it is bytes, to be parsed one by one."""
_TO_RESOURCE = (REQUEST_TAG, 0x0A)
_TO_SCOPE = (REQUEST_TAG, 0x12, 0x0A)
_TO_ITEM = (REQUEST_TAG, 0x12, 0x12)
"""The tags that lead to what is in a request, in all signals."""

_SMALL = 3 * MIB // 2
"""Up to here a request is parsed as it is: even if all its messages are empty, that takes no more than 100 MiB."""
_PORTION = MIB // 4
_OWN_SCOPE = semconv.GATEWAY_SCOPE.encode()
_NO_SPAN_ID = bytes(8)


def read(signal: Signal, media: Media, body: bytes, limits: Limits, *, partitioned: bool) -> Reception:
    """Check the body of a request, after inflating. Items that cannot be read are left out and counted.

    What the gateway itself made is left out, too, and not counted: results that come back would be handed on for ever.
    Raises `Refused`: 400 for what is no request of that signal or has nothing readable in it, 413 at a limit. With
    `partitioned` the partitions of traces in protobuf are told, else all of them.
    """
    if media == "json":
        return documents.read(signal, body, limits)
    wire = _WIRES[signal]
    try:
        body, sieve, trace_ids = _read(wire, body, limits)
    except (ProtobufError, DecodeError) as error:
        raise unreadable(f"the body is no OTLP {signal} request in protobuf") from error
    return sieve.reception(body, _partitions(trace_ids) if partitioned and wire.partitioned else ALL_PARTITIONS)


@dataclass(frozen=True, slots=True)
class _Wire:
    """What is particular to a signal."""

    item: str
    request: type[Any]
    table: Table
    trace_ids: Callable[[Any, Limits], set[bytes]]
    """The traces that items of a request are of, `b""` for none. Raises `DecodeError` for an item that is not valid,
    `Refused` for one with too many attributes."""
    partitioned: bool = True


def _read(wire: _Wire, body: bytes, limits: Limits) -> tuple[bytes, Sieve, set[bytes]]:
    if len(body) > _SMALL:
        check_outline(body, limits)
    envelope = _Envelopes.FromString(body)
    if body and not envelope.resource_spans:
        raise DecodeError("every field of it is unknown to OTLP")
    items, has_own = _survey(envelope, limits)
    if len(body) > min(_SMALL, limits.max_value_bytes):
        _weigh(envelope, wire, limits)
    sieve = Sieve(limits)
    trace_ids = None if has_own or len(body) > _SMALL else _traces_if_good(wire, body, limits)
    if trace_ids is not None:
        sieve.keep(items)
        return body, sieve, trace_ids
    trace_ids = _sift(wire, envelope, sieve, limits)
    return envelope.SerializeToString() if sieve.changed else body, sieve, trace_ids


def _survey(envelope: Any, limits: Limits) -> tuple[int, bool]:
    """How many items there are, and whether the gateway's own may be among them."""
    items, has_own = 0, False
    for resource in envelope.resource_spans:
        for scope in resource.scope_spans:
            items += len(scope.spans)
            has_own = has_own or _OWN_SCOPE in b"".join(scope.scope)
    check_items(items, limits)
    return items, has_own


def _weigh(envelope: Any, wire: _Wire, limits: Limits) -> None:
    scales = Scales(limits)
    for resource in envelope.resource_spans:
        scales.weigh(b"".join(resource.resource), _RESOURCE)
        for scope in resource.scope_spans:
            scales.weigh(b"".join(scope.scope), _SCOPE)
            for item in scope.spans:
                scales.weigh(item, wire.table)


def _traces_if_good(wire: _Wire, body: bytes, limits: Limits) -> set[bytes] | None:
    """The traces in a request; `None` if not everything in it is good."""
    try:
        return wire.trace_ids(wire.request.FromString(body), limits)
    except (ProtobufError, DecodeError):
        return None


def _partitions(trace_ids: Iterable[bytes]) -> int:
    mask = 0
    for trace_id in trace_ids:
        mask |= 1 << partition_of(trace_id)
    return mask


def _sift(wire: _Wire, envelope: Any, sieve: Sieve, limits: Limits) -> set[bytes]:
    """Leave out of a request what is not good, and the gateway's own. The traces in what is left."""
    trace_ids: set[bytes] = set()
    for resource in envelope.resource_spans:
        broken = _is_broken(wire, b"".join(resource.resource), *_TO_RESOURCE)
        for scope in resource.scope_spans:
            described = b"".join(scope.scope)
            if broken or _is_broken(wire, described, *_TO_SCOPE):
                reason = f"the resource or scope of a {wire.item} is broken, or text in it is not UTF-8"
                sieve.reject(reason, len(scope.spans))
                scope.Clear()
            elif InstrumentationScope.FromString(described).name == semconv.GATEWAY_SCOPE:
                sieve.changed = True
                scope.Clear()
            else:
                trace_ids |= _sift_scope(wire, scope, sieve, limits)
        if broken:
            resource.Clear()
    return trace_ids


def _is_broken(wire: _Wire, content: bytes, *path: int) -> bool:
    try:
        wire.request.FromString(_nested(content, *path))
    except ProtobufError:
        return True
    return False


def _sift_scope(wire: _Wire, scope: Any, sieve: Sieve, limits: Limits) -> set[bytes]:
    """Leave out of one scope the items that are not good. The traces in what is left."""
    trace_ids: set[bytes] = set()
    bad: set[int] = set()
    for start, items in _portions(scope.spans):
        found = _traces_if_good(wire, _request_of(items), limits)
        if found is not None:
            trace_ids |= found
            sieve.keep(len(items))
            continue
        for position, item in enumerate(items, start):
            try:
                trace_ids |= wire.trace_ids(wire.request.FromString(_nested(item, *_TO_ITEM)), limits)
                sieve.keep()
            except (ProtobufError, DecodeError) as error:
                bad.add(position)
                broken = f"a {wire.item} is broken or nests too deeply, or text in it is not UTF-8"
                sieve.reject(broken if isinstance(error, ProtobufError) else str(error))
    if bad:
        kept = [item for position, item in enumerate(scope.spans) if position not in bad]
        del scope.spans[:]
        scope.spans.extend(kept)
    return trace_ids


def _portions(items: Iterable[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Items that are parsed together, which takes little memory at once, and the position of the first of them."""
    start, size = 0, 0
    portion: list[bytes] = []
    for item in items:
        if portion and size + len(item) > _PORTION:
            yield start, portion
            start, size, portion = start + len(portion), 0, []
        portion.append(item)
        size += len(item)
    if portion:
        yield start, portion


def _request_of(items: list[bytes]) -> bytes:
    envelope = _Envelopes()
    envelope.resource_spans.add().scope_spans.add().spans.extend(items)
    return bytes(envelope.SerializeToString())


def _nested(content: bytes, *path: int) -> bytes:
    """A request with nothing else in it: how deep something may nest depends on how deep it stands itself."""
    for tag in reversed(path):
        content = b"".join((bytes((tag,)), as_varint(len(content)), content))
    return content


def _traces_of_spans(request: Any, limits: Limits) -> set[bytes]:
    trace_ids: set[bytes] = set()
    most = limits.max_attributes
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:  # of each at a time there is but one object, and the loop is what this costs
                trace_id = span.trace_id
                if trace_id not in trace_ids:
                    checked_trace_id(trace_id)
                    trace_ids.add(trace_id)
                span_id = span.span_id
                if len(span_id) != 8 or span_id == _NO_SPAN_ID:
                    checked_span_id(span_id)
                if len(span.attributes) > most:
                    check_attributes(len(span.attributes), limits)
    return trace_ids


def _traces_of_logs(request: Any, limits: Limits) -> set[bytes]:
    trace_ids: set[bytes] = set()
    for resource in request.resource_logs:
        for scope in resource.scope_logs:
            for log in scope.log_records:
                trace_id, span_id = log.trace_id, log.span_id
                if trace_id not in trace_ids or len(span_id) not in (0, 8):
                    log_ids(trace_id, span_id)
                    trace_ids.add(trace_id)
                check_attributes(len(log.attributes), limits)
    return {trace_id if any(trace_id) else b"" for trace_id in trace_ids}


def _traces_of_metrics(_request: Any, _limits: Limits) -> set[bytes]:
    """None: all that matters of metrics is that they can be parsed."""
    return set()


_RESOURCE, _SCOPE = table_of(Resource.DESCRIPTOR), table_of(InstrumentationScope.DESCRIPTOR)
_WIRES: dict[Signal, _Wire] = {
    "traces": _Wire("span", TracesData, table_of(Span.DESCRIPTOR), _traces_of_spans),
    # Which worker has to do with logs may be decided by the session that they name.
    "logs": _Wire("log record", LogsData, table_of(LogRecord.DESCRIPTOR), _traces_of_logs, partitioned=False),
    "metrics": _Wire("metric", MetricsData, table_of(Metric.DESCRIPTOR), _traces_of_metrics, partitioned=False),
}
