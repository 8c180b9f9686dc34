"""Requests divided by trace: the bytes of the spans stay as they came, and so does what they stand in.

A request is walked on the wire, and of a span no more is read than the ids at its front, where all serialisers write
them: they write fields in the order of their numbers. A span that looks otherwise is parsed. Source for the layout:
`trace.proto` and `logs.proto` of OTLP 1.x, and "Message Structure" in protobuf's description of its encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import TypeAlias

from google.protobuf.message import DecodeError as ProtobufError
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from goldspan.gateway.resource_limits import partition_of
from goldspan.otlp.decode_results import DecodeError, validated_ids, validated_log_ids
from goldspan.otlp.otlp_protobuf import trace_message
from goldspan.otlp.wire_format import REQUEST_TAG, encode_varint, read_varint

_IdsOnlySpan = trace_message("Span", raw_fields=["trace_state", "name", "attributes", "events", "links", "status"])
"""A span of which only numbers and ids are decoded."""

_ITEMS_TAG = 0x12
"""The tag of `scope_spans` in `ResourceSpans`, of `spans` in `ScopeSpans`, and of the same for logs."""
_MAX_GROUP_DEPTH = 100
"""How deep protobuf's own parsers go."""

# How serialisers begin a span. Its length takes two bytes from 128 bytes to 16 KiB; the bits of it are masked out.
_TRACE_ID_PREFIX = Struct("<I19sQ")  # tag, length and the trace id's tag; that id and what is around it; the span id
_SPAN_PREFIX = Struct("<I19sQHQ")  # and then the parent's tag, and the parent
_FRAMED_ID_BYTES = 19
_PREFIX_PATTERN, _PREFIX_MASK = 0x0A008012, 0xFF8080FF
_ID_LEAD, _ID_TRAIL = b"\x10", b"\x12\x08"  # read with the id, which makes one comparison of three
_TRACE_TAG, _SPAN_TAG, _PARENT_TAG = 0x100A, 0x0812, 0x0822  # with the lengths of the ids: 16, 8 and 8 bytes
_ID_FIELDS = Struct("<H16sHQHQ")  # tag and id three times over

_ItemLocation: TypeAlias = tuple[bytes, bool]
"""The trace that a span or log record belongs to, and whether it is a span without a parent."""
_ItemsByTrace: TypeAlias = dict[bytes, list[bytes]]
"""By trace, the spans or log records of one scope that were found, with tag and length. Some also know a trace by what
stands in the front of its spans."""


@dataclass(frozen=True, slots=True)
class TracePart:
    """What a request holds of one trace."""

    body: bytes
    """A `TracesData` or `LogsData` with nothing else, and all there is about its resources and scopes."""
    span_count: int
    """How many spans, or log records."""
    has_root: bool
    """Whether one of the spans has no parent."""


def split_traces(body: bytes) -> dict[bytes, TracePart]:
    """The pieces of a trace request in protobuf, by trace id. Spans with invalid ids are in none of them.

    Raises `DecodeError` for bytes that are no protobuf message. What else is in a span is not looked at: one that
    gives an id twice, which no serialiser does, may be filed under the first of them.
    """
    return _RequestSplitter(body, _locate_span, _scan_common_spans).split()


def split_logs(body: bytes) -> dict[bytes, TracePart]:
    """The pieces of a log request in protobuf, by trace id; records without one are under `b""`.

    Records with ids of another length are in none of them, nor are those that cannot be read. Raises `DecodeError`
    for bytes that are no protobuf message.
    """
    return _RequestSplitter(body, _locate_log_record, _scan_nothing).split()


def partition_mask(body: bytes) -> int:
    """The partitions of the traces in a trace request in protobuf, a bit for each. Raises the same as `split`.

    A span that is broken behind its ids may count, though it is in no piece.
    """
    fronts: set[bytes] = set()
    traces: set[bytes] = set()
    for _, resource, end_of_resource in _fields_with_tag(body, REQUEST_TAG, 0, len(body)):
        for _, scope, end_of_scope in _fields_with_tag(body, _ITEMS_TAG, resource, end_of_resource):
            position = _scan_common_prefixes(body, scope, end_of_scope, fronts)
            while position < end_of_scope:
                tag, content, end = _read_field(body, position, end_of_scope)
                place = _locate_span(body, content, end) if tag == _ITEMS_TAG else None
                if place:
                    traces.add(place[0])
                position = _scan_common_prefixes(body, end, end_of_scope, fronts)
    mask = 0
    for trace_id in traces.union(front[1:17] for front in fronts):
        mask |= 1 << partition_of(trace_id)
    return mask


@dataclass(slots=True)
class _MessageBuilder:
    """What a message holds of one trace: bytes that make the message when they are joined."""

    chunks: list[bytes]
    spans: int = 0

    def add(self, tag: int, chunks: list[bytes], spans: int) -> None:
        """Add a message that is made of these chunks."""
        self.chunks.append(bytes([tag]) + encode_varint(sum(map(len, chunks))))
        self.chunks += chunks
        self.spans += spans


class _RequestSplitter:
    """One pass over a request."""

    def __init__(
        self,
        body: bytes,
        place_of: Callable[[bytes, int, int], _ItemLocation | None],
        plain: Callable[[bytes, int, int, _ItemsByTrace], int],
    ) -> None:
        self._body = body
        self._locate = place_of
        self._scan_fast = plain
        self._traces_with_root: set[bytes] = set()
        self._has_invalid_items = False

    def split(self) -> dict[bytes, TracePart]:
        """All of them. What a request holds beside resources is in each."""
        body = self._body
        parts: dict[bytes, _MessageBuilder] = {}
        rest: list[bytes] = []
        for tag, start, content, end in _iterate_fields(body, 0, len(body)):
            if tag == REQUEST_TAG:
                self._split_resource(content, end, parts)
            else:
                rest.append(body[start:end])
        whole = len(parts) == 1 and not self._has_invalid_items
        return {
            trace_id: TracePart(
                body if whole else b"".join(rest + part.chunks), part.spans, trace_id in self._traces_with_root
            )
            for trace_id, part in parts.items()
        }

    def _split_resource(self, position: int, stop: int, parts: dict[bytes, _MessageBuilder]) -> None:
        """Add what is in `ResourceSpans` to the part of each trace."""
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
        """Add what is in `ScopeSpans` to the part of each trace, which begins with what is `common` to all."""
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
            elif place := self._locate(body, content, end):
                trace_id, rooted = place
                known.setdefault(trace_id, []).append(body[position:end])
                if rooted:
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
    """Take spans, as long as each begins as serialisers write one with a parent: where the first is that does not.

    This is where the time goes, half a microsecond a span: nothing is called in here that need not be.
    """
    front = _SPAN_PREFIX.unpack_from
    size = _SPAN_PREFIX.size
    last = stop - size
    while position <= last:
        head, around_id, span_id, parent_tag, parent = front(body, position)
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
    """The same, where all that is wanted is in which traces the spans are."""
    front = _TRACE_ID_PREFIX.unpack_from
    size = _TRACE_ID_PREFIX.size
    last = stop - size
    while position <= last:
        head, around_id, span_id = front(body, position)
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
    """Of any span; `None` where it has no valid ids or is none."""
    if (
        end - content >= _ID_FIELDS.size
    ):  # plain ones of another length, and those whose length is written in another way
        trace_tag, trace_id, span_tag, span_id, parent_tag, parent = _ID_FIELDS.unpack_from(body, content)
        if (trace_tag, span_tag, parent_tag) == (_TRACE_TAG, _SPAN_TAG, _PARENT_TAG) and span_id and parent:
            return (trace_id, False) if any(trace_id) else None
    try:
        span = _IdsOnlySpan.FromString(body[content:end])
        validated_ids(span.trace_id, span.span_id)
    except (ProtobufError, DecodeError):
        return None
    return span.trace_id, not any(span.parent_span_id)


def _locate_log_record(body: bytes, content: int, end: int) -> _ItemLocation | None:
    """Of a log record; `None` where ids of it are of the wrong length or it is none."""
    try:
        record = LogRecord.FromString(body[content:end])
        trace_id, _ = validated_log_ids(record.trace_id, record.span_id)
    except (ProtobufError, DecodeError):
        return None
    return record.trace_id if trace_id else b"", False


def _fields_with_tag(body: bytes, wanted_tag: int, position: int, stop: int) -> Iterator[tuple[int, int, int]]:
    return (
        (start, content, end) for tag, start, content, end in _iterate_fields(body, position, stop) if tag == wanted_tag
    )


def _iterate_fields(body: bytes, position: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
    """Tag, start, start of the content, and end of each field of a message."""
    while position < stop:
        tag, content, end = _read_field(body, position, stop)
        yield tag, position, content, end
        position = end


def _read_field(body: bytes, position: int, stop: int, depth: int = 0) -> tuple[int, int, int]:
    """Tag, start of the content, and end of one field. Raises `DecodeError` where there is none."""
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
        raise DecodeError("no OTLP request in protobuf")
    return tag, content, content + length


def _group_length(body: bytes, start: int, stop: int, last_tag: int, depth: int) -> int:
    """The length of a group, which protobuf had before messages, with the tag that ends it."""
    position = start
    while True:
        tag, content = read_varint(body, position)
        if tag == last_tag:
            return content - start
        _, _, position = _read_field(body, position, stop, depth)
