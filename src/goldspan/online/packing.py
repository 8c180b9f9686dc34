"""Ended spans as bytes, for as long as nobody looks at them: a twentieth of what they take as objects.

What spans of one place in a program have in common (name, scope, resource, the keys of attributes, and the values of
those that are mere labels) is kept once, in a table; a row holds the rest. Rows stand one behind the other, so many
spans are one object, and which of them is there can be told by searching for its id.
"""

from __future__ import annotations

import marshal
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

from goldspan import semconv
from goldspan.model import SpanEvent, SpanRecord, Status

_SHORT: Final = struct.Struct("<BQQQIHH")
"""Flags, span id, parent's id, start, duration, shape, length of what follows."""
_LONG: Final = struct.Struct("<BQQQQHI")
"""The same with room for more than four seconds or 64 KiB, and with the end in place of the duration."""
_NO_PARENT, _NO_START, _NO_END, _SELDOM, _IS_LONG = 1, 2, 4, 8, 16
_MAX_SHAPES = 10_000
"""Shapes that are shared. Names made of ids are as many as there are spans: those rows carry their own."""

_LABELS = frozenset({semconv.OPERATION, semconv.TOOL_NAME, semconv.TOOL_TYPE, semconv.AGENT_NAME})
"""Attributes with few values each."""

_Shape = tuple[str, str, int, tuple[str, ...], tuple[Any, ...], int]
"""Name, scope, kind, keys, values of labels (`None` for the others), place of the resource."""

Rows = bytes | bytearray


class Packer:
    """Turns records into rows and back. Not for two threads at once.

    A row says everything but its trace, which the caller knows. Attributes that bytes cannot hold make a record
    unpackable.
    """

    def __init__(self) -> None:
        self._shapes: dict[_Shape, int] = {}
        self._by_number: list[_Shape] = []
        self._resources: list[Mapping[str, Any]] = []

    def pack(self, record: SpanRecord) -> bytes:
        """The row of a record. Raises `ValueError` or `struct.error` for values that telemetry cannot have."""
        attributes = record.attributes
        keys = tuple(attributes)
        labels = tuple([attributes[key] if key in _LABELS and _is_text(attributes[key]) else None for key in keys])
        shape = (record.name, record.scope, record.kind, keys, labels, self._resource(record.resource))
        number = self._shapes.get(shape)
        if number is None:
            number = self._enter(shape)
        # By key: attributes that are decoded as they are asked for keep no order.
        rest: tuple[Any, ...] = tuple(
            [attributes[key] for key, label in zip(keys, labels, strict=True) if label is None]
        )
        if number == _MAX_SHAPES or _says_more(record):
            events = tuple([(event.name, dict(event.attributes), event.time_ns) for event in record.events])
            seldom = (record.status, record.status_message, record.dropped_attributes, events)
            rest = (rest, seldom, shape if number == _MAX_SHAPES else None)
            flags = _SELDOM
        else:
            flags = 0
        body = marshal.dumps(rest)
        flags |= _NO_PARENT * (record.parent_id is None)
        flags |= _NO_START * (record.start_ns is None) | _NO_END * (record.end_ns is None)
        start, end = record.start_ns or 0, record.end_ns or 0
        named = int(record.span_id, 16), int(record.parent_id or "0", 16), start
        if 0 <= end - start < 2**32 and len(body) < 2**16:
            return _SHORT.pack(flags, *named, end - start, number, len(body)) + body
        return _LONG.pack(flags | _IS_LONG, *named, end, number, len(body)) + body

    def pack_if_possible(self, record: SpanRecord) -> bytes:
        """The row of a record; no bytes at all where its values are none that telemetry can have."""
        try:
            return self.pack(record)
        except (ValueError, struct.error):
            return b""

    def unpack(self, trace_id: str, rows: Rows) -> Iterator[SpanRecord]:
        """The records of some rows, equal to those that were packed."""
        for place, (flags, span_id, parent_id, start, end, number, length) in _heads(rows):
            rest = marshal.loads(rows[place : place + length])
            status: Status = "unset"
            message, dropped, own = "", 0, None
            events: tuple[Any, ...] = ()
            if flags & _SELDOM:
                rest, (status, message, dropped, events), own = rest
            name, scope, kind, keys, labels, resource = own or self._by_number[number]
            values = iter(rest)
            yield SpanRecord(
                trace_id=trace_id,
                span_id=f"{span_id:016x}",
                parent_id=None if flags & _NO_PARENT else f"{parent_id:016x}",
                name=name,
                attributes={
                    key: next(values) if label is None else label for key, label in zip(keys, labels, strict=True)
                },
                start_ns=None if flags & _NO_START else start,
                end_ns=None if flags & _NO_END else end,
                status=status,
                status_message=message,
                events=tuple([SpanEvent(*event) for event in events]),
                kind=kind,
                scope=scope,
                resource=self._resources[resource],
                dropped_attributes=dropped,
            )

    def _enter(self, shape: _Shape) -> int:
        if len(self._by_number) >= _MAX_SHAPES:
            return _MAX_SHAPES
        number = self._shapes[shape] = len(self._by_number)
        self._by_number.append(shape)
        return number

    def _resource(self, resource: Mapping[str, Any]) -> int:
        """Its place; a process has one or two."""
        for place, known in enumerate(self._resources):
            if known is resource or known == resource:
                return place
        self._resources.append(resource)
        return len(self._resources) - 1


def count(rows: Rows) -> int:
    """How many spans there are."""
    return sum(1 for _ in ids(rows))


def ids(rows: Rows) -> Iterator[int]:
    """The ids of the spans, in the order of the rows."""
    return (head[1] for _, head in _heads(rows))


def holds(rows: Rows, span_id: int) -> bool:
    """Whether the span is among them."""
    # Searching bytes is a hundred times faster than going from row to row, and says yes by mistake next to never.
    return span_id.to_bytes(8, "little") in rows and span_id in ids(rows)


def _heads(rows: Rows) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Where what follows each head begins, and the head, with the end of the span in place of its duration."""
    place = 0
    while place < len(rows):
        if rows[place] & _IS_LONG:
            head = _LONG.unpack_from(rows, place)
            place += _LONG.size
        else:
            flags, span_id, parent_id, start, duration, number, length = _SHORT.unpack_from(rows, place)
            head = flags, span_id, parent_id, start, start + duration, number, length
            place += _SHORT.size
        yield place, head
        place += head[-1]


def _is_text(value: object) -> bool:
    return type(value) is str and len(value) <= 100


def _says_more(record: SpanRecord) -> bool:
    """Whether it has what most spans have not."""
    told = record.status != "unset" or record.status_message
    return bool(told or record.events or record.dropped_attributes)
