"""The results of an `Assembly` for the pipeline, and the compact rows in which it stores spans.

`CompletedSpans` and `RevisedSpans` carry the spans of runs that are complete or that changed; `RunRevisions` stores the
revision of each run of a trace. `SpanPacker` encodes the spans that are kept in memory.
"""

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
"""Flags, span id, parent id, start, duration, shape number, body length."""
_LONG: Final = struct.Struct("<BQQQQHI")
"""For durations above four seconds and bodies above 64 KiB: the end instead of the duration."""
_NO_PARENT, _NO_START, _NO_END, _HAS_RARE, _IS_LONG = 1, 2, 4, 8, 16
_MAX_SHAPES = 10_000
"""The number of shared shapes. Later rows store their own shape, since names that contain ids are unbounded."""

_LABEL_ATTRIBUTES = frozenset({semconv.OPERATION, semconv.TOOL_NAME, semconv.TOOL_TYPE, semconv.AGENT_NAME})
"""Attributes with few distinct values."""

_SpanShape = tuple[str, str, int, tuple[str, ...], tuple[Any, ...], int]
"""Name, scope, kind, attribute keys, label values (`None` for other attributes), index of the resource."""

SpanRows = bytes | bytearray


class SpanPacker:
    """Encodes records as rows and decodes them. Not thread-safe.

    A row stores everything except the trace id, which the caller knows. A record whose attributes cannot be encoded is
    rejected.
    """

    def __init__(self) -> None:
        self._shapes: dict[_SpanShape, int] = {}
        self._shapes_by_number: list[_SpanShape] = []
        self._resources: list[Mapping[str, Any]] = []

    def pack(self, record: SpanRecord) -> bytes:
        """Returns the row of a record. Raises `ValueError` or `struct.error` for values that it cannot encode."""
        attributes = record.attributes
        keys = tuple(attributes)
        labels = tuple(
            [attributes[key] if key in _LABEL_ATTRIBUTES and _is_short_text(attributes[key]) else None for key in keys]
        )
        shape = (record.name, record.scope, record.kind, keys, labels, self._resource_index(record.resource))
        number = self._shapes.get(shape)
        if number is None:
            number = self._shape_number(shape)
        # Looked up by key: lazily decoded attributes do not keep their order.
        values: tuple[Any, ...] = tuple(
            [attributes[key] for key, label in zip(keys, labels, strict=True) if label is None]
        )
        if number == _MAX_SHAPES or _has_rare_fields(record):
            events = tuple([(event.name, dict(event.attributes), event.time_ns) for event in record.events])
            rare = (record.status, record.status_message, record.dropped_attributes, events)
            values = (values, rare, shape if number == _MAX_SHAPES else None)
            flags = _HAS_RARE
        else:
            flags = 0
        body = marshal.dumps(values)
        flags |= _NO_PARENT * (record.parent_id is None)
        flags |= _NO_START * (record.start_ns is None) | _NO_END * (record.end_ns is None)
        start, end = record.start_ns or 0, record.end_ns or 0
        ids_and_start = int(record.span_id, 16), int(record.parent_id or "0", 16), start
        if 0 <= end - start < 2**32 and len(body) < 2**16:
            return _SHORT.pack(flags, *ids_and_start, end - start, number, len(body)) + body
        return _LONG.pack(flags | _IS_LONG, *ids_and_start, end, number, len(body)) + body

    def try_pack(self, record: SpanRecord) -> bytes:
        """Returns the row of a record, or no bytes if its values cannot be encoded."""
        try:
            return self.pack(record)
        except (ValueError, struct.error):
            return b""

    def unpack(self, trace_id: str, rows: SpanRows) -> Iterator[SpanRecord]:
        """Yields the records of the rows, equal to the records that were packed."""
        for position, (flags, span_id, parent_id, start, end, number, length) in _row_headers(rows):
            body = marshal.loads(rows[position : position + length])
            status: SpanStatus = "unset"
            message, dropped, own_shape = "", 0, None
            events: tuple[Any, ...] = ()
            if flags & _HAS_RARE:
                body, (status, message, dropped, events), own_shape = body
            name, scope, kind, keys, labels, resource = own_shape or self._shapes_by_number[number]
            values = iter(body)
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
        """Returns the resource's index by linear search; a process has one or two resources."""
        for index, known in enumerate(self._resources):
            if known is resource or known == resource:
                return index
        self._resources.append(resource)
        return len(self._resources) - 1


def count_spans(rows: SpanRows) -> int:
    """Returns the number of spans."""
    return sum(1 for _ in iter_span_ids(rows))


def iter_span_ids(rows: SpanRows) -> Iterator[int]:
    """Returns the ids of the spans, in the order of the rows."""
    return (header[1] for _, header in _row_headers(rows))


def contains_span(rows: SpanRows, span_id: int) -> bool:
    """Returns whether the rows contain the span."""
    # The byte search is a hundred times faster than the iteration, and has almost no false positives.
    return span_id.to_bytes(8, "little") in rows and span_id in iter_span_ids(rows)


def _row_headers(rows: SpanRows) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yields the position of each row's body and its header, with the span's end instead of its duration."""
    position = 0
    while position < len(rows):
        if rows[position] & _IS_LONG:
            header = _LONG.unpack_from(rows, position)
            position += _LONG.size
        else:
            flags, span_id, parent_id, start, duration, number, length = _SHORT.unpack_from(rows, position)
            header = flags, span_id, parent_id, start, start + duration, number, length
            position += _SHORT.size
        yield position, header
        position += header[-1]


def _is_short_text(value: object) -> bool:
    return type(value) is str and len(value) <= 100


def _has_rare_fields(record: SpanRecord) -> bool:
    """Returns whether the record has fields that most spans lack."""
    has_status = record.status != "unset" or record.status_message
    return bool(has_status or record.events or record.dropped_attributes)


RunKey: TypeAlias = tuple[RunUnit, str]
"""The unit and the id of a run."""
RunRevision: TypeAlias = "tuple[int, str | None]"
"""A revision number and the digest of that evaluation."""


class RunRevisions(dict[RunKey, RunRevision]):
    """The latest revision of each run of one trace that may change.

    A digest of `None` stands for the digest of the run in the spans before the change. Revision 0 marks a run that has
    not been submitted, or that the sampling excludes.
    """

    __slots__ = ("_lock", "latest_sequence")

    def __init__(self) -> None:
        super().__init__()
        self.latest_sequence = 0
        """The sequence number of the latest `RevisedSpans` that was evaluated; lower numbers are outdated."""
        self._lock = threading.Lock()

    def compare_and_set(self, key: RunKey, expected: RunRevision | None, new: RunRevision) -> bool:
        """Replaces the revision if it equals `expected`; returns `False` if another thread changed it.

        The caller submits a revision only after this returned `True`. So no revision number is submitted twice, and an
        older state is never submitted after a newer one, however long its evaluation takes.
        """
        with self._lock:
            if self.get(key) != expected:
                return False
            self[key] = new
            return True

    def set_first(self, key: RunKey, digest: str | None) -> bool:
        """Stores the first revision; returns `False` if another thread has submitted one from later spans."""
        with self._lock:
            if key in self and self[key][0] > 0:
                return False
            self[key] = (1, digest)
            return True


@dataclass(frozen=True, slots=True)
class CompletedSpans:
    """The spans of one or several complete runs: extract them, and use the runs for which `contains_run` is true."""

    unit: RunUnit
    spans: tuple[SpanRecord, ...]
    span_id: str | None = None
    """The span of the run; `None` for all runs except those on `released_span_ids`."""
    released_span_ids: frozenset[str] = frozenset()
    unended: int = 0
    """The number of its spans that have not ended."""
    revisions: RunRevisions = field(default_factory=RunRevisions)
    """The revisions of the trace, which the pipeline updates."""

    @property
    def may_change(self) -> bool:
        """Whether the run is likely to change, so that its revision must be stored."""
        return self.unended > 0 or self.unit == "component"

    def contains_run(self, run: Run) -> bool:
        """Returns whether the run was completed by these spans."""
        return run.span_id not in self.released_span_ids if self.span_id is None else run.span_id == self.span_id


@dataclass(frozen=True, slots=True)
class RevisedSpans:
    """The spans of released requests before and after late spans were added; some of their runs have changed."""

    before: tuple[SpanRecord, ...]
    after: tuple[SpanRecord, ...]
    ended_span_ids: frozenset[str]
    """The spans that have ended. A run on another span is still in flight unless it was released before."""
    revisions: RunRevisions
    """The revisions of the trace, which the pipeline updates."""
    sequence: int = 0
    """Increases with each revision of the process."""

    def is_outdated(self) -> bool:
        """Returns whether another thread has evaluated a later state."""
        return self.sequence < self.revisions.latest_sequence


AssembledSpans: TypeAlias = CompletedSpans | RevisedSpans


@dataclass(slots=True)
class AssemblyCounts:
    """The spans and traces that were not processed regularly, since the process started."""

    late: int = 0
    """Spans that ended after their run was scored. The run is scored again."""
    too_late: int = 0
    """Spans that ended when their run was no longer stored, or whose start was never seen."""
    duplicates: int = 0
    """Spans that ended twice."""
    evicted: int = 0
    """Traces that were scored early because a limit was reached."""
    unended: int = 0
    """Traces that were scored unfinished because they were idle or too old."""
    unscored: int = 0
    """Spans that were rejected, and the spans in flight of the same traces; each counts once."""
