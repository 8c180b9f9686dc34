"""What an assembly gives out: spans in which runs came to their end, or changed; and what did not come as it should."""

from __future__ import annotations

import marshal
import struct
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from goldspan import semconv
from goldspan.model import Run, RunUnit, SpanEvent, SpanRecord, SpanStatus

_SHORT: Final = struct.Struct("<BQQQIHH")
"""Flags, span id, parent's id, start, duration, shape, length of what follows."""
_LONG: Final = struct.Struct("<BQQQQHI")
"""The same with room for more than four seconds or 64 KiB, and with the end in place of the duration."""
_NO_PARENT, _NO_START, _NO_END, _HAS_RARE, _IS_LONG = 1, 2, 4, 8, 16
_MAX_SHAPES = 10_000
"""Shapes that are shared. Names made of ids are as many as there are spans: those rows carry their own."""

_LABEL_ATTRIBUTES = frozenset({semconv.OPERATION, semconv.TOOL_NAME, semconv.TOOL_TYPE, semconv.AGENT_NAME})
"""Attributes with few values each."""

_SpanShape = tuple[str, str, int, tuple[str, ...], tuple[Any, ...], int]
"""Name, scope, kind, keys, values of labels (`None` for the others), place of the resource."""

SpanRows = bytes | bytearray


class SpanPacker:
    """Turns records into rows and back. Not for two threads at once.

    A row says everything but its trace, which the caller knows. Attributes that bytes cannot hold make a record
    unpackable.
    """

    def __init__(self) -> None:
        self._shapes: dict[_SpanShape, int] = {}
        self._shapes_by_number: list[_SpanShape] = []
        self._resources: list[Mapping[str, Any]] = []

    def pack(self, record: SpanRecord) -> bytes:
        """The row of a record. Raises `ValueError` or `struct.error` for values that telemetry cannot have."""
        attributes = record.attributes
        keys = tuple(attributes)
        labels = tuple(
            [attributes[key] if key in _LABEL_ATTRIBUTES and _is_short_text(attributes[key]) else None for key in keys]
        )
        shape = (record.name, record.scope, record.kind, keys, labels, self._resource_index(record.resource))
        number = self._shapes.get(shape)
        if number is None:
            number = self._shape_number(shape)
        # By key: attributes that are decoded as they are asked for keep no order.
        rest: tuple[Any, ...] = tuple(
            [attributes[key] for key, label in zip(keys, labels, strict=True) if label is None]
        )
        if number == _MAX_SHAPES or _has_rare_fields(record):
            events = tuple([(event.name, dict(event.attributes), event.time_ns) for event in record.events])
            seldom = (record.status, record.status_message, record.dropped_attributes, events)
            rest = (rest, seldom, shape if number == _MAX_SHAPES else None)
            flags = _HAS_RARE
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

    def try_pack(self, record: SpanRecord) -> bytes:
        """The row of a record; no bytes at all where its values are none that telemetry can have."""
        try:
            return self.pack(record)
        except (ValueError, struct.error):
            return b""

    def unpack(self, trace_id: str, rows: SpanRows) -> Iterator[SpanRecord]:
        """The records of some rows, equal to those that were packed."""
        for place, (flags, span_id, parent_id, start, end, number, length) in _row_headers(rows):
            rest = marshal.loads(rows[place : place + length])
            status: SpanStatus = "unset"
            message, dropped, own = "", 0, None
            events: tuple[Any, ...] = ()
            if flags & _HAS_RARE:
                rest, (status, message, dropped, events), own = rest
            name, scope, kind, keys, labels, resource = own or self._shapes_by_number[number]
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

    def _shape_number(self, shape: _SpanShape) -> int:
        if len(self._shapes_by_number) >= _MAX_SHAPES:
            return _MAX_SHAPES
        number = self._shapes[shape] = len(self._shapes_by_number)
        self._shapes_by_number.append(shape)
        return number

    def _resource_index(self, resource: Mapping[str, Any]) -> int:
        """Its place; a process has one or two."""
        for place, known in enumerate(self._resources):
            if known is resource or known == resource:
                return place
        self._resources.append(resource)
        return len(self._resources) - 1


def count_spans(rows: SpanRows) -> int:
    """How many spans there are."""
    return sum(1 for _ in iter_span_ids(rows))


def iter_span_ids(rows: SpanRows) -> Iterator[int]:
    """The ids of the spans, in the order of the rows."""
    return (head[1] for _, head in _row_headers(rows))


def contains_span(rows: SpanRows, span_id: int) -> bool:
    """Whether the span is among them."""
    # Searching bytes is a hundred times faster than going from row to row, and says yes by mistake next to never.
    return span_id.to_bytes(8, "little") in rows and span_id in iter_span_ids(rows)


def _row_headers(rows: SpanRows) -> Iterator[tuple[int, tuple[int, ...]]]:
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


def _is_short_text(value: object) -> bool:
    return type(value) is str and len(value) <= 100


def _has_rare_fields(record: SpanRecord) -> bool:
    """Whether it has what most spans have not."""
    told = record.status != "unset" or record.status_message
    return bool(told or record.events or record.dropped_attributes)


RunKey: TypeAlias = tuple[RunUnit, str]
"""Of what: the unit and the id of a run."""
RunRevision: TypeAlias = "tuple[int, str | None]"
"""The number of a revision and the digest of what it says."""


class RunRevisions(dict[RunKey, RunRevision]):
    """What was given out of one trace: the latest revision of each run.

    `None` for the digest: it is that of the run as the spans show it that were there before. Revision 0: nothing was
    given out of it yet, or it was not to be scored.
    """

    __slots__ = ("_lock", "latest_sequence")

    def __init__(self) -> None:
        super().__init__()
        self.latest_sequence = 0
        """The number of the latest portion that was concluded: what was seen earlier says less."""
        self._lock = threading.Lock()

    def compare_and_set(self, key: RunKey, expected: RunRevision | None, new: RunRevision) -> bool:
        """Put something new in the place of what was `known`; `False` where another thread has done so meanwhile.

        What was not noted is not given out. So no revision is given out twice, nor what was seen earlier after what was
        seen later, whoever takes longer to judge it.
        """
        with self._lock:
            if self.get(key) != expected:
                return False
            self[key] = new
            return True

    def set_first(self, key: RunKey, digest: str | None) -> bool:
        """Put the first revision; `False` where another thread has given out one meanwhile, of what was seen later."""
        with self._lock:
            if key in self and self[key][0] > 0:
                return False
            self[key] = (1, digest)
            return True


@dataclass(frozen=True, slots=True)
class CompletedSpans:
    """The spans in which something came to its end: extract them, and take the runs that it `holds`."""

    unit: RunUnit
    spans: tuple[SpanRecord, ...]
    span_id: str | None = None
    """The span the run stands on; `None`: take every run but those on spans `given` before."""
    released_span_ids: frozenset[str] = frozenset()
    unended: int = 0
    """Spans of it that have not ended."""
    revisions: RunRevisions = field(default_factory=RunRevisions)
    """What was given out of its trace and may change. To be kept up to date."""

    @property
    def may_change(self) -> bool:
        """Whether it is likely to change, so that what is given out of it is to be noted."""
        return self.unended > 0 or self.unit == "component"

    def contains_run(self, run: Run) -> bool:
        """Whether the run came to its end here, and not before or somewhere else."""
        return run.span_id not in self.released_span_ids if self.span_id is None else run.span_id == self.span_id


@dataclass(frozen=True, slots=True)
class RevisedSpans:
    """The spans of requests that were given out before, and with those that came late: some runs are others now."""

    before: tuple[SpanRecord, ...]
    after: tuple[SpanRecord, ...]
    ended_span_ids: frozenset[str]
    """The spans that have ended. Runs that stand on others are still in flight, unless they were given out before."""
    revisions: RunRevisions
    """What was given out of its trace and may change, or changed before. To be kept up to date."""
    sequence: int = 0
    """Grows with each of a process."""

    def is_outdated(self) -> bool:
        """Whether another thread has concluded meanwhile what was seen later."""
        return self.sequence < self.revisions.latest_sequence


AssembledSpans: TypeAlias = CompletedSpans | RevisedSpans


@dataclass(slots=True)
class AssemblyCounts:
    """What happened to spans and traces that did not come as they should, since the process began."""

    late: int = 0
    """Spans that ended after their run was scored. It is scored again, unless they come too late for that."""
    too_late: int = 0
    """Spans that ended when their run was no longer kept, or whose start was never seen."""
    duplicates: int = 0
    """Spans that ended twice."""
    evicted: int = 0
    """Traces that were taken as they were because too much was in flight."""
    unended: int = 0
    """Traces that were taken as they were because nothing had happened in them for long."""
    unscored: int = 0
    """Spans that were not taken in, and those in flight of the same traces: each counts once."""
