"""Stores the traces in flight and the traces whose runs were released, for `Assembly`.

`InFlightTraces` keeps the span trees, and folds ended spans into rows of their parent. `CompletedTraces` keeps the rows
of released runs, so that late spans can change them. This module stores and counts spans; `Assembly` decides when a run
is complete.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Generic

from goldspan.conventions.span_facts import TRANSPARENT_ROLES
from goldspan.extraction import role_of
from goldspan.model import SpanRecord
from goldspan.online.assembled_spans import AssemblyCounts, RevisedSpans, SpanPacker, count_spans, iter_span_ids
from goldspan.online.limits import Limits
from goldspan.online.span_forest import InFlightSpan, Live, ReleasedSpans, SpanTreeReader, TraceState

_MAX_EXPIRED_TRACES = 16_384
_MAX_BATCH_BYTES = 65_536
"""Requests of one trace are stored together up to this size; a late span causes a revision of all of them."""

_Trace = TraceState[Any]


class CompletedTraces:
    """The spans of released runs. Not thread-safe."""

    def __init__(self, packer: SpanPacker, limits: Limits, counts: AssemblyCounts) -> None:
        self._packer = packer
        self._limits = limits
        self._counts = counts
        self._traces: dict[int, _Trace] = {}
        self._expired: dict[int, None] = {}
        self._changed: dict[int, _Trace] = {}
        self._revision_count = 0
        self.byte_count = 0
        """The bytes of all stored rows."""

    @property
    def has_deadlines(self) -> bool:
        """Whether any stored trace has a deadline."""
        return bool(self._traces or self._changed)

    # --- traces ------------------------------------------------------------------------------------------------------

    def add(self, trace: _Trace, now: float) -> None:
        """Adds a trace without spans in flight."""
        trace.last_active = now
        self._traces[trace.id] = trace

    def reopen(self, trace_id: int) -> _Trace | None:
        """Removes and returns a trace in which a new span started."""
        return self._traces.pop(trace_id, None)

    def is_expired(self, trace_id: int) -> bool:
        """Returns whether only the id of the trace is still stored."""
        return trace_id in self._expired

    def evict_oldest(self) -> bool:
        """Removes the trace that was completed first; returns whether there was one."""
        if self._traces:
            self._expire(next(iter(self._traces)))
            return True
        return False

    def expire_old(self, now: float) -> None:
        """Removes the traces that were completed before the configured time, except those with a revision to come."""
        old = []
        for trace_id, trace in self._traces.items():
            age = now - trace.last_active
            if age < self._limits.late:
                break
            if trace_id in self._changed:
                continue  # its late spans were accepted; its revision is due within the idle time
            has_pending = any(released.pending_span_ids for released in trace.released_spans)
            if age >= self._limits.idle or not has_pending:
                old.append(trace_id)
        for trace_id in old:
            self._expire(trace_id)

    def _expire(self, trace_id: int) -> None:
        trace = self._traces.pop(trace_id)
        self._changed.pop(trace_id, None)
        self.byte_count -= sum(map(len, trace.released_spans))
        self._expired[trace_id] = None
        if len(self._expired) > _MAX_EXPIRED_TRACES:
            del self._expired[next(iter(self._expired))]

    # --- spans -------------------------------------------------------------------------------------------------------

    def put_spans(
        self,
        trace: _Trace,
        rows: bytes | bytearray,
        provisional_rows: bytes | bytearray,
        pending: set[int],
        now: float,
        *,
        late_for: ReleasedSpans | None = None,
    ) -> None:
        """Stores the rows of released spans, and the ids of those that have not ended (`pending`).

        `provisional_rows` are inside spans that have not ended. With `late_for`, all rows are late spans of an earlier
        release.
        """
        released = late_for or self._current_batch(trace, now)
        released.released_at = now
        if late_for is None:
            released.rows += rows
            released.late_rows += provisional_rows
        else:
            released.late_rows += rows + provisional_rows
        released.pending_span_ids |= pending
        self.byte_count += len(rows) + len(provisional_rows)
        if trace.has_late_children and late_for is None:
            self.schedule_revision(trace, released, now)

    def accept_late_start(self, trace: _Trace, span_id: int, parent_id: int) -> bool:
        """Returns whether a span started inside a released agent, tool or similar span; if so, its end is awaited."""
        released = trace.find_released(parent_id)
        if released is None:
            return trace.is_span_expired(parent_id) and trace.expire_spans([span_id])
        if self._is_structural(released, parent_id):
            return False
        released.pending_span_ids.add(span_id)
        return True

    def end_late_span(self, trace: _Trace | None, trace_id: int, span_id: int, record: SpanRecord, now: float) -> None:
        """Adds a span that is not in flight to its released run, or counts it as too late."""
        trace = trace or self._traces.get(trace_id)
        released = trace.find_released(span_id) if trace is not None else None
        if trace is not None and trace.is_incomplete:
            return  # the span was counted as unscored
        if trace is None or released is None:
            self._counts.too_late += 1
        elif span_id not in released.pending_span_ids:
            self._counts.duplicates += 1
        else:
            released.pending_span_ids.discard(span_id)
            self._counts.late += 1
            row = self._packer.try_pack(record)
            released.late_rows += row
            self.byte_count += len(row)
            self.schedule_revision(trace, released, now)

    def released_ancestors(self, trace: _Trace, record: SpanRecord) -> Iterator[SpanRecord]:
        """Yields the released ancestors of a local root, from its parent upwards."""
        parent_id = record.parent_id
        released = trace.find_released(int(parent_id, 16)) if parent_id is not None else None
        if released is None:
            return
        records = {found.span_id: found for found in self._packer.unpack(record.trace_id, released.rows)}
        while parent_id is not None and (parent := records.pop(parent_id, None)) is not None:
            yield parent
            parent_id = parent.parent_id

    def _current_batch(self, trace: _Trace, now: float) -> ReleasedSpans:
        if not trace.released_spans or len(trace.released_spans[-1]) > _MAX_BATCH_BYTES:
            expires_before = now - self._limits.late
            for old in [batch for batch in trace.released_spans if batch.released_at <= expires_before]:
                self.byte_count -= len(old)
                trace.expire_spans([*iter_span_ids(old.rows), *iter_span_ids(old.late_rows), *old.pending_span_ids])
            recent = [batch for batch in trace.released_spans if batch.released_at > expires_before]
            trace.released_spans = (*recent, ReleasedSpans(now))
        return trace.released_spans[-1]

    def _is_structural(self, released: ReleasedSpans, span_id: int) -> bool:
        """Returns whether a released span and all its ancestors are structural, so that they belong to no run.

        A span that has not ended may have any role, and was treated as part of a run when it was released.
        """
        records = {record.span_id: record for record in self._packer.unpack("", released.rows + released.late_rows)}
        ancestor_id: int | None = span_id
        while ancestor_id is not None and ancestor_id not in released.pending_span_ids:
            record = records.pop(f"{ancestor_id:016x}", None)
            if record is None:
                return True
            if role_of(record) not in TRANSPARENT_ROLES:
                return False
            ancestor_id = int(record.parent_id, 16) if record.parent_id is not None else None
        return ancestor_id is None

    # --- revisions ---------------------------------------------------------------------------------------------------

    def schedule_revision(self, trace: _Trace, released: ReleasedSpans, now: float) -> None:
        """Schedules a revision of released spans, once no further late span has arrived for a while."""
        released.changed_at = now
        self._changed[trace.id] = trace

    def due_revisions(self, now: float, *, everything: bool) -> Iterator[tuple[_Trace, ReleasedSpans]]:
        """Yields the revisions that are due: no late span is pending, or none has arrived for the idle time."""
        limits = self._limits
        for trace_id, trace in list(self._changed.items()):
            is_waiting = False
            for released in trace.released_spans:
                if released.changed_at is None:
                    continue
                age = now - released.changed_at
                is_settled = age >= limits.settle and not released.pending_span_ids
                if everything or is_settled or age >= limits.idle:
                    released.released_at = now
                    yield trace, released
                else:
                    is_waiting = True
            if not is_waiting:
                self._changed.pop(trace_id, None)

    def build_revision(self, trace: _Trace, released: ReleasedSpans, live: Sequence[SpanRecord] = ()) -> RevisedSpans:
        """Merges the late spans into the released spans, and returns the states before and after. `live` are current
        spans.
        """
        trace_id = f"{trace.id:032x}"
        before = [*self._packer.unpack(trace_id, released.rows)]
        late = [*self._packer.unpack(trace_id, released.late_rows)]
        released.rows += released.late_rows
        released.late_rows, released.changed_at = bytearray(), None
        ended = frozenset(record.span_id for record in (*before, *late))
        self._revision_count += 1
        return RevisedSpans(tuple(before), (*before, *late, *live), ended, trace.revisions, self._revision_count)


_MAX_UNFOLDED = 64
"""The number of ended spans that wait to be folded. Most requests are complete before that: their spans need neither be
encoded in between nor decoded again, which took an eighth of the time of scoring a request with ten calls."""
_UNFOLDED_BYTES = 65_536
"""What one of them may take of `Limits.max_bytes`."""
_SMALL_TRACE_NODES = 4
"""A trace with at most this number of nodes gets a dictionary of minimal size."""


class InFlightTraces(Generic[Live]):
    """The traces in flight, ordered by their last activity. Not thread-safe; `now` is in seconds."""

    def __init__(
        self, packer: SpanPacker, reader: SpanTreeReader[Live], completed: CompletedTraces, limits: Limits
    ) -> None:
        self._packer = packer
        self._reader = reader
        self._completed = completed
        self._max_unfolded = min(_MAX_UNFOLDED, limits.max_bytes // _UNFOLDED_BYTES)
        self._traces: dict[int, TraceState[Live]] = {}
        self._unfolded: deque[tuple[TraceState[Live], InFlightSpan[Live]]] = deque()
        self.span_count = 0
        """Spans that have started and whose run has not been released."""
        self.folded_bytes = 0
        """The bytes of the folded spans."""

    def __len__(self) -> int:
        """Returns the number of traces."""
        return len(self._traces)

    def __iter__(self) -> Iterator[TraceState[Live]]:
        """Iterates over the traces, longest idle first. Traces may be closed during the iteration."""
        return iter(list(self._traces.values()))

    # --- traces ------------------------------------------------------------------------------------------------------

    def get(self, trace_id: int) -> TraceState[Live] | None:
        """Returns a trace in flight, or `None`."""
        return self._traces.get(trace_id)

    def longest_idle(self) -> TraceState[Live]:
        """Returns the trace that has been idle for longest. There must be one."""
        return next(iter(self._traces.values()))

    def get_or_open(self, trace_id: int, now: float) -> TraceState[Live]:
        """Returns the trace, opened or reopened if it is not in flight."""
        trace = self._traces.get(trace_id)
        if trace is None:
            trace = self._traces[trace_id] = self._completed.reopen(trace_id) or TraceState(trace_id, now)
        return trace

    def touch(self, trace: TraceState[Live], now: float) -> None:
        """Records activity in a trace."""
        trace.last_active = now
        self._traces[trace.id] = self._traces.pop(trace.id)

    def close_if_empty(self, trace: TraceState[Live], now: float) -> None:
        """Moves a trace without nodes to the completed traces."""
        if not trace.nodes and self._traces.pop(trace.id, None) is not None:
            self._completed.add(trace, now)

    # --- spans -------------------------------------------------------------------------------------------------------

    def add(self, trace: TraceState[Live], span_id: int, parent: InFlightSpan[Live] | None, live: Live) -> None:
        """Adds a span that started below its parent; without a parent it is a root."""
        trace.nodes[span_id] = InFlightSpan(span_id, parent, live)
        self.span_count += 1

    def fold_later(self, trace: TraceState[Live], node: InFlightSpan[Live]) -> None:
        """Folds the node of an ended span after others have ended, unless it is released before."""
        self._unfolded.append((trace, node))
        if len(self._unfolded) > self._max_unfolded:
            self._fold_node(*self._unfolded.popleft())

    def fold_all(self) -> None:
        """Folds all nodes that wait for it."""
        while self._unfolded:
            self._fold_node(*self._unfolded.popleft())

    def _fold_node(self, trace: TraceState[Live], node: InFlightSpan[Live]) -> None:
        """Replaces the node of an ended span inside an agent, tool or similar span by a row of its parent."""
        parent, record = node.parent, node.record
        if node.children or trace.nodes.get(node.id) is not node:
            return  # a span started inside it, or it was released
        if parent is None or record is None or self._reader.has_only_structural_ancestors(node):
            return
        row = self._packer.try_pack(record)
        if not row:
            return
        parent.append_rows(row)
        if node.folded_rows:
            parent.append_rows(node.folded_rows)
        self.folded_bytes += len(row)
        node.detach()
        del trace.nodes[node.id]
        if len(trace.nodes) <= _SMALL_TRACE_NODES:
            # A dictionary never shrinks, and neither does its copy; thousands of them are in flight.
            trace.nodes = {span_id: kept for span_id, kept in trace.nodes.items()}  # noqa: C416
        if parent.record is not None and not parent.children:
            self._fold_node(trace, parent)

    def release_subtree(
        self,
        trace: TraceState[Live],
        node: InFlightSpan[Live],
        now: float,
        *,
        keep_node: bool = False,
        late_for: ReleasedSpans | None = None,
    ) -> None:
        """Moves a subtree to the completed traces; with `late_for`, as late spans of an earlier release."""
        rows, provisional_rows, pending = bytearray(), bytearray(), set()
        live: set[int] = set()
        for below in node.walk():  # parents first
            if below.record is None:
                pending.add(below.id)
            if below.record is None or (below is not node and below.parent is not None and below.parent.id in live):
                live.add(below.id)
            target = provisional_rows if below.id in live else rows
            if below.record is not None and not below.is_scored:
                target += self._packer.try_pack(below.record)
            target += below.folded_rows
        node.is_scored = True
        self.remove_subtree(trace, node, keep_node=keep_node)
        self._completed.put_spans(trace, rows, provisional_rows, pending, now, late_for=late_for)

    def remove_subtree(self, trace: TraceState[Live], node: InFlightSpan[Live], *, keep_node: bool = False) -> None:
        """Removes everything below a node, and the node unless `keep_node`."""
        for below in list(node.walk()):
            if below.folded_rows:
                self.folded_bytes -= len(below.folded_rows)
                self.span_count -= count_spans(below.folded_rows)
            if (below is not node or not keep_node) and trace.nodes.pop(below.id, None) is not None:
                self.span_count -= 1
        node.children, node.folded_rows = None, b""
        if not keep_node:
            node.detach()
