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

from goldspan.gateway.signals import partition_of
from goldspan.otlp.decoding import DecodeError, checked_ids
from goldspan.otlp.lengths import REQUEST_TAG, as_varint, varint
from goldspan.otlp.records import log_ids
from goldspan.otlp.schema import trace_message

_Span = trace_message("Span", unread=["trace_state", "name", "attributes", "events", "links", "status"])
"""A span of which only numbers and ids are decoded."""

_ITEMS = 0x12
"""The tag of `scope_spans` in `ResourceSpans`, of `spans` in `ScopeSpans`, and of the same for logs."""
_DEEPEST = 100
"""How deep protobuf's own parsers go."""

# How serialisers begin a span. Its length takes two bytes from 128 bytes to 16 KiB; the bits of it are masked out.
_FRONT_OF_TRACE = Struct("<I19sQ")  # tag, length and the trace id's tag; that id and what is around it; the span id
_FRONT = Struct("<I19sQHQ")  # and then the parent's tag, and the parent
_AROUND_ID = 19
_HEAD, _HEAD_MASK = 0x0A008012, 0xFF8080FF
_BEFORE_ID, _BEHIND_ID = b"\x10", b"\x12\x08"  # read with the id, which makes one comparison of three
_TRACE_TAG, _SPAN_TAG, _PARENT_TAG = 0x100A, 0x0812, 0x0822  # with the lengths of the ids: 16, 8 and 8 bytes
_IDS = Struct("<H16sHQHQ")  # tag and id three times over

_Place: TypeAlias = tuple[bytes, bool]
"""The trace that a span or log record belongs to, and whether it is a span without a parent."""
_Known: TypeAlias = dict[bytes, list[bytes]]
"""By trace, the spans or log records of one scope that were found, with tag and length. Some also know a trace by what
stands in the front of its spans."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What a request holds of one trace."""

    body: bytes
    """A `TracesData` or `LogsData` with nothing else, and all there is about its resources and scopes."""
    spans: int
    """How many spans, or log records."""
    rooted: bool
    """Whether one of the spans has no parent."""


def split(body: bytes) -> dict[bytes, Piece]:
    """The pieces of a trace request in protobuf, by trace id. Spans with invalid ids are in none of them.

    Raises `DecodeError` for bytes that are no protobuf message. What else is in a span is not looked at: one that
    gives an id twice, which no serialiser does, may be filed under the first of them.
    """
    return _Splitting(body, _place_of_span, _plain_spans).pieces()


def split_logs(body: bytes) -> dict[bytes, Piece]:
    """The pieces of a log request in protobuf, by trace id; records without one are under `b""`.

    Records with ids of another length are in none of them, nor are those that cannot be read. Raises `DecodeError`
    for bytes that are no protobuf message.
    """
    return _Splitting(body, _place_of_record, _no_plain_ones).pieces()


def partitions(body: bytes) -> int:
    """The partitions of the traces in a trace request in protobuf, a bit for each. Raises the same as `split`.

    A span that is broken behind its ids may count, though it is in no piece.
    """
    fronts: set[bytes] = set()
    traces: set[bytes] = set()
    for _, resource, end_of_resource in _those(body, REQUEST_TAG, 0, len(body)):
        for _, scope, end_of_scope in _those(body, _ITEMS, resource, end_of_resource):
            position = _plain_fronts(body, scope, end_of_scope, fronts)
            while position < end_of_scope:
                tag, content, end = _field(body, position, end_of_scope)
                place = _place_of_span(body, content, end) if tag == _ITEMS else None
                if place:
                    traces.add(place[0])
                position = _plain_fronts(body, end, end_of_scope, fronts)
    mask = 0
    for trace_id in traces.union(front[1:17] for front in fronts):
        mask |= 1 << partition_of(trace_id)
    return mask


@dataclass(slots=True)
class _Part:
    """What a message holds of one trace: bytes that make the message when they are joined."""

    chunks: list[bytes]
    spans: int = 0

    def add(self, tag: int, chunks: list[bytes], spans: int) -> None:
        """Add a message that is made of these chunks."""
        self.chunks.append(bytes([tag]) + as_varint(sum(map(len, chunks))))
        self.chunks += chunks
        self.spans += spans


class _Splitting:
    """One pass over a request."""

    def __init__(
        self,
        body: bytes,
        place_of: Callable[[bytes, int, int], _Place | None],
        plain: Callable[[bytes, int, int, _Known], int],
    ) -> None:
        self._body = body
        self._place_of = place_of
        self._plain = plain
        self._rooted: set[bytes] = set()
        self._left_out = False

    def pieces(self) -> dict[bytes, Piece]:
        """All of them. What a request holds beside resources is in each."""
        body = self._body
        parts: dict[bytes, _Part] = {}
        rest: list[bytes] = []
        for tag, start, content, end in _fields(body, 0, len(body)):
            if tag == REQUEST_TAG:
                self._resource(content, end, parts)
            else:
                rest.append(body[start:end])
        whole = len(parts) == 1 and not self._left_out
        return {
            trace_id: Piece(body if whole else b"".join(rest + part.chunks), part.spans, trace_id in self._rooted)
            for trace_id, part in parts.items()
        }

    def _resource(self, position: int, stop: int, parts: dict[bytes, _Part]) -> None:
        """Add what is in `ResourceSpans` to the part of each trace."""
        scopes: list[tuple[int, int]] = []
        rest: list[bytes] = []
        for tag, start, content, end in _fields(self._body, position, stop):
            if tag == _ITEMS:
                scopes.append((content, end))
            else:
                rest.append(self._body[start:end])
        inner: dict[bytes, _Part] = {}
        for content, end in scopes:
            self._scope(content, end, inner, rest)
        for trace_id, part in inner.items():
            parts.setdefault(trace_id, _Part([])).add(REQUEST_TAG, part.chunks, part.spans)

    def _scope(self, position: int, stop: int, parts: dict[bytes, _Part], common: list[bytes]) -> None:
        """Add what is in `ScopeSpans` to the part of each trace, which begins with what is `common` to all."""
        body = self._body
        known: _Known = {}
        rest: list[bytes] = []
        while True:
            position = self._plain(body, position, stop, known)
            if position >= stop:
                break
            tag, content, end = _field(body, position, stop)
            if tag != _ITEMS:
                rest.append(body[position:end])
            elif place := self._place_of(body, content, end):
                trace_id, rooted = place
                known.setdefault(trace_id, []).append(body[position:end])
                if rooted:
                    self._rooted.add(trace_id)
            else:
                self._left_out = True
            position = end
        for trace_id, spans in known.items():
            if len(trace_id) != _AROUND_ID:
                part = parts.get(trace_id)
                if part is None:
                    part = parts[trace_id] = _Part([*common])
                part.add(_ITEMS, [*rest, *spans], len(spans))


def _plain_spans(body: bytes, position: int, stop: int, known: _Known) -> int:
    """Take spans, as long as each begins as serialisers write one with a parent: where the first is that does not.

    This is where the time goes, half a microsecond a span: nothing is called in here that need not be.
    """
    front = _FRONT.unpack_from
    size = _FRONT.size
    last = stop - size
    while position <= last:
        head, around_id, span_id, parent_tag, parent = front(body, position)
        end = position + 3 + (head >> 8 & 0x7F) + (head >> 9 & 0x3F80)
        if (
            head & _HEAD_MASK != _HEAD
            or parent_tag != _PARENT_TAG
            or not span_id
            or not parent
            or not position + size <= end <= stop
        ):
            break
        spans = known.get(around_id)
        if spans is None:
            if not _is_valid(around_id):
                break
            spans = known[around_id] = known.setdefault(around_id[1:17], [])
        spans.append(body[position:end])
        position = end
    return position


def _plain_fronts(body: bytes, position: int, stop: int, fronts: set[bytes]) -> int:
    """The same, where all that is wanted is in which traces the spans are."""
    front = _FRONT_OF_TRACE.unpack_from
    size = _FRONT_OF_TRACE.size
    last = stop - size
    while position <= last:
        head, around_id, span_id = front(body, position)
        end = position + 3 + (head >> 8 & 0x7F) + (head >> 9 & 0x3F80)
        if head & _HEAD_MASK != _HEAD or not span_id or not position + size <= end <= stop:
            break
        if around_id not in fronts:
            if not _is_valid(around_id):
                break
            fronts.add(around_id)
        position = end
    return position


def _no_plain_ones(body: bytes, position: int, stop: int, known: _Known) -> int:
    return position


def _is_valid(around_id: bytes) -> bool:
    return around_id[:1] == _BEFORE_ID and around_id[17:] == _BEHIND_ID and any(around_id[1:17])


def _place_of_span(body: bytes, content: int, end: int) -> _Place | None:
    """Of any span; `None` where it has no valid ids or is none."""
    if end - content >= _IDS.size:  # plain ones of another length, and those whose length is written in another way
        trace_tag, trace_id, span_tag, span_id, parent_tag, parent = _IDS.unpack_from(body, content)
        if (trace_tag, span_tag, parent_tag) == (_TRACE_TAG, _SPAN_TAG, _PARENT_TAG) and span_id and parent:
            return (trace_id, False) if any(trace_id) else None
    try:
        span = _Span.FromString(body[content:end])
        checked_ids(span.trace_id, span.span_id)
    except (ProtobufError, DecodeError):
        return None
    return span.trace_id, not any(span.parent_span_id)


def _place_of_record(body: bytes, content: int, end: int) -> _Place | None:
    """Of a log record; `None` where ids of it are of the wrong length or it is none."""
    try:
        record = LogRecord.FromString(body[content:end])
        trace_id, _ = log_ids(record.trace_id, record.span_id)
    except (ProtobufError, DecodeError):
        return None
    return record.trace_id if trace_id else b"", False


def _those(body: bytes, wanted: int, position: int, stop: int) -> Iterator[tuple[int, int, int]]:
    return ((start, content, end) for tag, start, content, end in _fields(body, position, stop) if tag == wanted)


def _fields(body: bytes, position: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
    """Tag, start, start of the content, and end of each field of a message."""
    while position < stop:
        tag, content, end = _field(body, position, stop)
        yield tag, position, content, end
        position = end


def _field(body: bytes, position: int, stop: int, depth: int = 0) -> tuple[int, int, int]:
    """Tag, start of the content, and end of one field. Raises `DecodeError` where there is none."""
    tag, content = varint(body, position)
    length = 0
    match tag & 7:
        case 0:
            _, content = varint(body, content)
        case 1:
            length = 8
        case 2:
            length, content = varint(body, content)
        case 3 if depth < _DEEPEST:
            length = _group(body, content, stop, tag + 1, depth + 1)
        case 5:
            length = 4
        case _:
            length = stop
    if content + length > stop or not 8 <= tag < 2**32:
        raise DecodeError("no OTLP request in protobuf")
    return tag, content, content + length


def _group(body: bytes, start: int, stop: int, last_tag: int, depth: int) -> int:
    """The length of a group, which protobuf had before messages, with the tag that ends it."""
    position = start
    while True:
        tag, content = varint(body, position)
        if tag == last_tag:
            return content - start
        _, _, position = _field(body, position, stop, depth)
