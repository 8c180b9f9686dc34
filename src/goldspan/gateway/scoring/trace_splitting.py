"""Splits OTLP requests by trace without decoding the spans.

The bytes of spans, scopes and resources do not change.

The splitter walks the wire format and reads only the ids at the start of each span, where all serialisers write them,
because they write fields in the order of their numbers. It parses a span with another layout. Source for the layout:
`trace.proto` and `logs.proto` of OTLP 1.x, and "Message Structure" in protobuf's description of its encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import TypeAlias

from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from goldspan.gateway.resource_limits import partition_of
from goldspan.otlp.decode_results import DecodeError, validated_ids, validated_log_ids
from goldspan.otlp.otlp_protobuf import trace_message
from goldspan.otlp.protobuf_errors import PROTOBUF_ERRORS
from goldspan.otlp.wire_format import REQUEST_TAG, encode_varint, read_varint

_IdsOnlySpan = trace_message("Span", raw_fields=["trace_state", "name", "attributes", "events", "links", "status"])
"""A span message that decodes only numbers and ids."""

_ITEMS_TAG = 0x12
"""The tag of `scope_spans` in `ResourceSpans`, of `spans` in `ScopeSpans`, and of the same for logs."""
_MAX_GROUP_DEPTH = 100
"""The nesting limit of protobuf's own parsers."""

# How serialisers begin a span. Its length takes two bytes from 128 bytes to 16 KiB; the bits of it are masked out.
_TRACE_ID_PREFIX = Struct("<I19sQ")  # tag, length and the trace id's tag; that id with the bytes around it; the span id
_SPAN_PREFIX = Struct("<I19sQHQ")  # the same, then the parent's tag and the parent
_FRAMED_ID_BYTES = 19
_PREFIX_PATTERN, _PREFIX_MASK = 0x0A008012, 0xFF8080FF
_ID_LEAD, _ID_TRAIL = b"\x10", b"\x12\x08"  # unpacked with the id, so that one comparison replaces three
_TRACE_TAG, _SPAN_TAG, _PARENT_TAG = 0x100A, 0x0812, 0x0822  # with the lengths of the ids: 16, 8 and 8 bytes
_ID_FIELDS = Struct("<H16sHQHQ")  # tag and id, three times

_ItemLocation: TypeAlias = tuple[bytes, bool]
"""The trace id of a span or log record, and whether it is a span without a parent."""
_ItemsByTrace: TypeAlias = dict[bytes, list[bytes]]
"""The spans or log records of one scope, with tag and length, by trace. `_scan_common_spans` adds a second key per
trace: the trace id with the bytes around it."""


@dataclass(frozen=True, slots=True)
class TracePart:
    """The part of a request that belongs to one trace."""

    body: bytes
    """A `TracesData` or `LogsData` with only this trace, and with its complete resources and scopes."""
    span_count: int
    """Number of spans or log records."""
    has_root: bool
    """Whether one of the spans has no parent."""


def split_traces(body: bytes) -> dict[bytes, TracePart]:
    """Splits a protobuf trace request by trace id. Spans with invalid ids are omitted.

    Raises `DecodeError` for bytes that are not a protobuf message. The rest of a span is not checked: a span that
    contains an id twice, which no serialiser writes, may be assigned to the first one.
    """
    return _RequestSplitter(body, _locate_span, _scan_common_spans).split()


def split_logs(body: bytes) -> dict[bytes, TracePart]:
    """Splits a protobuf log request by trace id; records without a trace id have the key `b""`.

    Records that are invalid or have ids of another length are omitted. Raises `DecodeError` for bytes that are not a
    protobuf message.
    """
    return _RequestSplitter(body, _locate_log_record, _scan_nothing).split()


def partition_mask(body: bytes) -> int:
    """Returns a bit mask of the partitions in a protobuf trace request. Raises the same errors as `split_traces`.

    A span that is invalid after its ids may count, although `split_traces` omits it.
    """
    prefixes: set[bytes] = set()
    traces: set[bytes] = set()
    for _, resource, end_of_resource in _fields_with_tag(body, REQUEST_TAG, 0, len(body)):
        for _, scope, end_of_scope in _fields_with_tag(body, _ITEMS_TAG, resource, end_of_resource):
            position = _scan_common_prefixes(body, scope, end_of_scope, prefixes)
            while position < end_of_scope:
                tag, content, end = _read_field(body, position, end_of_scope)
                location = _locate_span(body, content, end) if tag == _ITEMS_TAG else None
                if location:
                    traces.add(location[0])
                position = _scan_common_prefixes(body, end, end_of_scope, prefixes)
    mask = 0
    for trace_id in traces.union(prefix[1:17] for prefix in prefixes):
        mask |= 1 << partition_of(trace_id)
    return mask


@dataclass(slots=True)
class _MessageBuilder:
    """Collects the chunks of a message for one trace; joined, they are the message."""

    chunks: list[bytes]
    spans: int = 0

    def add(self, tag: int, chunks: list[bytes], spans: int) -> None:
        """Add a nested message made of these chunks."""
        self.chunks.append(bytes([tag]) + encode_varint(sum(map(len, chunks))))
        self.chunks += chunks
        self.spans += spans


class _RequestSplitter:
    """Splits one request in a single pass."""

    def __init__(
        self,
        body: bytes,
        locate: Callable[[bytes, int, int], _ItemLocation | None],
        scan_fast: Callable[[bytes, int, int, _ItemsByTrace], int],
    ) -> None:
        self._body = body
        self._locate = locate
        self._scan_fast = scan_fast
        self._traces_with_root: set[bytes] = set()
        self._has_invalid_items = False

    def split(self) -> dict[bytes, TracePart]:
        """Returns the part of each trace. Fields of the request other than resources are in every part."""
        body = self._body
        parts: dict[bytes, _MessageBuilder] = {}
        rest: list[bytes] = []
        for tag, start, content, end in _iterate_fields(body, 0, len(body)):
            if tag == REQUEST_TAG:
                self._split_resource(content, end, parts)
            else:
                rest.append(body[start:end])
        is_unchanged = len(parts) == 1 and not self._has_invalid_items
        return {
            trace_id: TracePart(
                body if is_unchanged else b"".join(rest + part.chunks), part.spans, trace_id in self._traces_with_root
            )
            for trace_id, part in parts.items()
        }

    def _split_resource(self, position: int, stop: int, parts: dict[bytes, _MessageBuilder]) -> None:
        """Add the content of a `ResourceSpans` to the part of each trace."""
        scopes: list[tuple[int, int]] = []
        rest: list[bytes] = []
        for tag, start, content, end in _iterate_fields(self._body, position, stop):
            if tag == _ITEMS_TAG:
                scopes.append((content, end))
            else:
                rest.append(self._body[start:end])
        inner: dict[bytes, _MessageBuilder] = {}
        for content, end in scopes:
            self._split_scope(content, end, inner, rest)
        for trace_id, part in inner.items():
            parts.setdefault(trace_id, _MessageBuilder([])).add(REQUEST_TAG, part.chunks, part.spans)

    def _split_scope(self, position: int, stop: int, parts: dict[bytes, _MessageBuilder], common: list[bytes]) -> None:
        """Add the content of a `ScopeSpans` to the part of each trace; new parts start with the chunks in `common`."""
        body = self._body
        known: _ItemsByTrace = {}
        rest: list[bytes] = []
        while True:
            position = self._scan_fast(body, position, stop, known)
            if position >= stop:
                break
            tag, content, end = _read_field(body, position, stop)
            if tag != _ITEMS_TAG:
                rest.append(body[position:end])
            elif location := self._locate(body, content, end):
                trace_id, is_root = location
                known.setdefault(trace_id, []).append(body[position:end])
                if is_root:
                    self._traces_with_root.add(trace_id)
            else:
                self._has_invalid_items = True
            position = end
        for trace_id, spans in known.items():
            if len(trace_id) != _FRAMED_ID_BYTES:
                part = parts.get(trace_id)
                if part is None:
                    part = parts[trace_id] = _MessageBuilder([*common])
                part.add(_ITEMS_TAG, [*rest, *spans], len(spans))


def _scan_common_spans(body: bytes, position: int, stop: int, known: _ItemsByTrace) -> int:
    """Collect spans with a parent in the common layout. Returns the position of the first span in another layout.

    This loop dominates the run time, at half a microsecond per span, so it makes no unnecessary calls.
    """
    unpack = _SPAN_PREFIX.unpack_from
    size = _SPAN_PREFIX.size
    last = stop - size
    while position <= last:
        head, around_id, span_id, parent_tag, parent = unpack(body, position)
        end = position + 3 + (head >> 8 & 0x7F) + (head >> 9 & 0x3F80)
        if (
            head & _PREFIX_MASK != _PREFIX_PATTERN
            or parent_tag != _PARENT_TAG
            or not span_id
            or not parent
            or not position + size <= end <= stop
        ):
            break
        spans = known.get(around_id)
        if spans is None:
            if not _is_valid_prefix(around_id):
                break
            spans = known[around_id] = known.setdefault(around_id[1:17], [])
        spans.append(body[position:end])
        position = end
    return position


def _scan_common_prefixes(body: bytes, position: int, stop: int, prefixes: set[bytes]) -> int:
    """Like `_scan_common_spans`, but collects only the bytes with the trace ids."""
    unpack = _TRACE_ID_PREFIX.unpack_from
    size = _TRACE_ID_PREFIX.size
    last = stop - size
    while position <= last:
        head, around_id, span_id = unpack(body, position)
        end = position + 3 + (head >> 8 & 0x7F) + (head >> 9 & 0x3F80)
        if head & _PREFIX_MASK != _PREFIX_PATTERN or not span_id or not position + size <= end <= stop:
            break
        if around_id not in prefixes:
            if not _is_valid_prefix(around_id):
                break
            prefixes.add(around_id)
        position = end
    return position


def _scan_nothing(body: bytes, position: int, stop: int, known: _ItemsByTrace) -> int:
    return position


def _is_valid_prefix(around_id: bytes) -> bool:
    return around_id[:1] == _ID_LEAD and around_id[17:] == _ID_TRAIL and any(around_id[1:17])


def _locate_span(body: bytes, content: int, end: int) -> _ItemLocation | None:
    """Returns the location of any span; `None` if it is invalid or has invalid ids."""
    if end - content >= _ID_FIELDS.size:  # the common layout, whatever the length of the span
        trace_tag, trace_id, span_tag, span_id, parent_tag, parent = _ID_FIELDS.unpack_from(body, content)
        if (trace_tag, span_tag, parent_tag) == (_TRACE_TAG, _SPAN_TAG, _PARENT_TAG) and span_id and parent:
            return (trace_id, False) if any(trace_id) else None
    try:
        span = _IdsOnlySpan.FromString(body[content:end])
        validated_ids(span.trace_id, span.span_id)
    except (*PROTOBUF_ERRORS, DecodeError):
        return None
    return span.trace_id, not any(span.parent_span_id)


def _locate_log_record(body: bytes, content: int, end: int) -> _ItemLocation | None:
    """Returns the location of a log record; `None` if it is invalid or has ids of the wrong length."""
    try:
        record = LogRecord.FromString(body[content:end])
        trace_id, _ = validated_log_ids(record.trace_id, record.span_id)
    except (*PROTOBUF_ERRORS, DecodeError):
        return None
    return record.trace_id if trace_id else b"", False


def _fields_with_tag(body: bytes, wanted_tag: int, position: int, stop: int) -> Iterator[tuple[int, int, int]]:
    return (
        (start, content, end) for tag, start, content, end in _iterate_fields(body, position, stop) if tag == wanted_tag
    )


def _iterate_fields(body: bytes, position: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
    """Yields tag, start, start of the content, and end of each field of a message."""
    while position < stop:
        tag, content, end = _read_field(body, position, stop)
        yield tag, position, content, end
        position = end


def _read_field(body: bytes, position: int, stop: int, depth: int = 0) -> tuple[int, int, int]:
    """Returns tag, start of the content, and end of a field. Raises `DecodeError` if there is no valid field."""
    tag, content = read_varint(body, position)
    length = 0
    match tag & 7:
        case 0:
            _, content = read_varint(body, content)
        case 1:
            length = 8
        case 2:
            length, content = read_varint(body, content)
        case 3 if depth < _MAX_GROUP_DEPTH:
            length = _group_length(body, content, stop, tag + 1, depth + 1)
        case 5:
            length = 4
        case _:
            length = stop
    if content + length > stop or not 8 <= tag < 2**32:
        raise DecodeError("not a protobuf OTLP request")
    return tag, content, content + length


def _group_length(body: bytes, start: int, stop: int, last_tag: int, depth: int) -> int:
    """Returns the length of a group, a deprecated protobuf encoding, including its end tag."""
    position = start
    while True:
        tag, content = read_varint(body, position)
        if tag == last_tag:
            return content - start
        _, _, position = _read_field(body, position, stop, depth)
