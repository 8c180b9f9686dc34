"""The traces in flight: spans hang in them, are folded where nobody asks any more where they stand, and go to the
archive when their run is given out.

What is done to spans is done here, and counted; what it means that one started or ended is for the assembly to say.
"""

from __future__ import annotations

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
"""Requests of one trace are kept together up to this many bytes: a late span is laid beside all of them."""

_Trace = TraceState[Any]


class CompletedTraces:
    """The spans of runs that were given out. Not for two threads at once."""

    def __init__(self, packer: SpanPacker, limits: Limits, counts: AssemblyCounts) -> None:
        self._packer = packer
        self._limits = limits
        self._counts = counts
        self._traces: dict[int, _Trace] = {}
        self._expired: dict[int, None] = {}
        self._changed: dict[int, _Trace] = {}
        self._revision_count = 0
        self.byte_count = 0
        """Bytes of all rows in here."""

    @property
    def has_deadlines(self) -> bool:
        """Whether anything in here depends on the time."""
        return bool(self._traces or self._changed)

    # --- traces ------------------------------------------------------------------------------------------------------

    def add(self, trace: _Trace, now: float) -> None:
        """Take in a trace in which nothing is in flight any more."""
        trace.last_active = now
        self._traces[trace.id] = trace

    def reopen(self, trace_id: int) -> _Trace | None:
        """Hand a trace back, in which something happens again."""
        return self._traces.pop(trace_id, None)

    def is_expired(self, trace_id: int) -> bool:
        """Whether only the id of a trace is known any more."""
        return trace_id in self._expired

    def evict_oldest(self) -> bool:
        """Forget the trace that has been finished for longest; whether there was one."""
        if self._traces:
            self._expire(next(iter(self._traces)))
            return True
        return False

    def expire_old(self, now: float) -> None:
        """Let go of traces for which no late span has come for long enough."""
        old = []
        for trace_id, trace in self._traces.items():
            age = now - trace.last_active
            if age < self._limits.late:
                break
            expected = trace_id in self._changed or any(given.pending_span_ids for given in trace.released_spans)
            if age >= self._limits.idle or not expected:
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
        """Keep the rows of spans that are given out, and the ids of those of them that have not ended.

        Rows are `unsettled` that stand inside of spans that have not ended. `late`: all of it may change what was given
        out before, and is laid beside it.
        """
        given = late_for or self._current_batch(trace, now)
        given.released_at = now
        if late_for is None:
            given.rows += rows
            given.late_rows += provisional_rows
        else:
            given.late_rows += rows + provisional_rows
        given.pending_span_ids |= pending
        self.byte_count += len(rows) + len(provisional_rows)
        if trace.has_late_children and late_for is None:
            self.schedule_revision(trace, given, now)

    def accept_late_start(self, trace: _Trace, span_id: int, parent_id: int) -> bool:
        """Whether a span started inside an agent, a tool or the like that was given out; if so, it is waited for."""
        given = trace.find_released(parent_id)
        if given is None:
            return trace.is_span_expired(parent_id) and trace.expire_spans([span_id])
        if self._is_structural(given, parent_id):
            return False
        given.pending_span_ids.add(span_id)
        return True

    def end_late_span(self, trace: _Trace | None, trace_id: int, span_id: int, record: SpanRecord, now: float) -> None:
        """Take in a span that is not in flight: of a run that was given out, unless it is too late even for that."""
        trace = trace or self._traces.get(trace_id)
        given = trace.find_released(span_id) if trace is not None else None
        if trace is not None and trace.is_incomplete:
            return  # it was counted when it was cut, or never came in
        if trace is None or given is None:
            self._counts.too_late += 1
        elif span_id not in given.pending_span_ids:
            self._counts.duplicates += 1
        else:
            given.pending_span_ids.discard(span_id)
            self._counts.late += 1
            row = self._packer.try_pack(record)
            given.late_rows += row
            self.byte_count += len(row)
            self.schedule_revision(trace, given, now)

    def released_ancestors(self, trace: _Trace, record: SpanRecord) -> Iterator[SpanRecord]:
        """What stands around a local root and was given out before it started, from its parent upwards."""
        parent_id = record.parent_id
        given = trace.find_released(int(parent_id, 16)) if parent_id is not None else None
        if given is None:
            return
        known = {each.span_id: each for each in self._packer.unpack(record.trace_id, given.rows)}
        while parent_id is not None and (around := known.pop(parent_id, None)) is not None:
            yield around
            parent_id = around.parent_id

    def _current_batch(self, trace: _Trace, now: float) -> ReleasedSpans:
        if not trace.released_spans or len(trace.released_spans[-1]) > _MAX_BATCH_BYTES:
            for old in [given for given in trace.released_spans if now - given.released_at >= self._limits.late]:
                self.byte_count -= len(old)
                trace.expire_spans([*iter_span_ids(old.rows), *iter_span_ids(old.late_rows), *old.pending_span_ids])
            lately = [given for given in trace.released_spans if now - given.released_at < self._limits.late]
            trace.released_spans = (*lately, ReleasedSpans(now))
        return trace.released_spans[-1]

    def _is_structural(self, given: ReleasedSpans, span_id: int) -> bool:
        """Whether a span that was given out, and what stood around it, are of no run by themselves.

        What has not ended may be anything, and was taken for part of a run when it was given out.
        """
        known = {record.span_id: record for record in self._packer.unpack("", given.rows + given.late_rows)}
        above: int | None = span_id
        while above is not None and above not in given.pending_span_ids:
            record = known.pop(f"{above:016x}", None)
            if record is None:
                return True
            if role_of(record) not in TRANSPARENT_ROLES:
                return False
            above = int(record.parent_id, 16) if record.parent_id is not None else None
        return above is None

    # --- revisions ---------------------------------------------------------------------------------------------------

    def schedule_revision(self, trace: _Trace, given: ReleasedSpans, now: float) -> None:
        """Have what was given out looked at anew, when nothing has been added to it for a while."""
        given.changed_at = now
        self._changed[trace.id] = trace

    def due_revisions(self, now: float, *, everything: bool) -> Iterator[tuple[_Trace, ReleasedSpans]]:
        """What is to be looked at anew: no late span is on its way any more, or none has come for long."""
        limits = self._limits
        for trace_id, trace in list(self._changed.items()):
            waiting = False
            for given in trace.released_spans:
                if given.changed_at is None:
                    continue
                quiet = now - given.changed_at
                if everything or (quiet >= limits.settle and not given.pending_span_ids) or quiet >= limits.idle:
                    given.released_at = now
                    yield trace, given
                else:
                    waiting = True
            if not waiting:
                self._changed.pop(trace_id, None)

    def build_revision(self, trace: _Trace, given: ReleasedSpans, live: Sequence[SpanRecord] = ()) -> RevisedSpans:
        """Lay what came late beside what was there; from now on all of it was there. `live`: as they are now."""
        name = f"{trace.id:032x}"
        before, late = [*self._packer.unpack(name, given.rows)], [*self._packer.unpack(name, given.late_rows)]
        given.rows += given.late_rows
        given.late_rows, given.changed_at = bytearray(), None
        there = frozenset(record.span_id for record in (*before, *late))
        self._revision_count += 1
        return RevisedSpans(tuple(before), (*before, *late, *live), there, trace.revisions, self._revision_count)


_SMALL_TRACE_NODES = 4
"""A trace with no more nodes than this has a dictionary of them that is as small as can be."""


class InFlightTraces(Generic[Live]):
    """Traces in the order in which something happened last in each. Not for two threads at once; `now` in seconds."""

    def __init__(self, packer: SpanPacker, trees: SpanTreeReader[Live], archive: CompletedTraces) -> None:
        self._packer = packer
        self._reader = trees
        self._completed = archive
        self._traces: dict[int, TraceState[Live]] = {}
        self.span_count = 0
        """Those that have started and whose run has not been given out."""
        self.folded_bytes = 0
        """Bytes of ended spans that are folded away."""

    def __len__(self) -> int:
        """The number of traces."""
        return len(self._traces)

    def __iter__(self) -> Iterator[TraceState[Live]]:
        """The one idle for longest first. They may be closed meanwhile."""
        return iter(list(self._traces.values()))

    # --- traces ------------------------------------------------------------------------------------------------------

    def get(self, trace_id: int) -> TraceState[Live] | None:
        """A trace, if it is in flight."""
        return self._traces.get(trace_id)

    def longest_idle(self) -> TraceState[Live]:
        """The trace in which nothing has happened for longest. There has to be one."""
        return next(iter(self._traces.values()))

    def get_or_open(self, trace_id: int, now: float) -> TraceState[Live]:
        """A trace in which something happens, for the first time or again."""
        trace = self._traces.get(trace_id)
        if trace is None:
            trace = self._traces[trace_id] = self._completed.reopen(trace_id) or TraceState(trace_id, now)
        return trace

    def touch(self, trace: TraceState[Live], now: float) -> None:
        """Take note that something happened in a trace."""
        trace.last_active = now
        self._traces[trace.id] = self._traces.pop(trace.id)

    def close_if_empty(self, trace: TraceState[Live], now: float) -> None:
        """Hand a trace with nothing left in it to the archive."""
        if not trace.nodes and self._traces.pop(trace.id, None) is not None:
            self._completed.add(trace, now)

    # --- spans -------------------------------------------------------------------------------------------------------

    def add(self, trace: TraceState[Live], span_id: int, parent: InFlightSpan[Live] | None, live: Live) -> None:
        """Hang a span that started under its parent; without one it is a root."""
        trace.nodes[span_id] = InFlightSpan(span_id, parent, live)
        self.span_count += 1

    def fold_node(self, trace: TraceState[Live], node: InFlightSpan[Live]) -> None:
        """Make a row of an ended span below an agent, a tool or the like: nobody will ask where it stands."""
        parent, record = node.parent, node.record
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
            # A dictionary never shrinks by itself, a copy of it is no smaller, and thousands of them are in flight.
            trace.nodes = {span_id: kept for span_id, kept in trace.nodes.items()}  # noqa: C416
        if parent.record is not None and not parent.children:
            self.fold_node(trace, parent)

    def release_subtree(
        self,
        trace: TraceState[Live],
        node: InFlightSpan[Live],
        now: float,
        *,
        keep_node: bool = False,
        late_for: ReleasedSpans | None = None,
    ) -> None:
        """Put a subtree into the archive; `late`: beside what was given out before, which it may change."""
        rows, unsettled, pending = bytearray(), bytearray(), set()
        live: set[int] = set()
        for below in node.walk():  # parents first
            if below.record is None:
                pending.add(below.id)
            if below.record is None or (below is not node and below.parent is not None and below.parent.id in live):
                live.add(below.id)
            kept = unsettled if below.id in live else rows
            if below.record is not None and not below.is_scored:
                kept += self._packer.try_pack(below.record)
            kept += below.folded_rows
        node.is_scored = True
        self.remove_subtree(trace, node, keep_node=keep_node)
        self._completed.put_spans(trace, rows, unsettled, pending, now, late_for=late_for)

    def remove_subtree(self, trace: TraceState[Live], node: InFlightSpan[Live], *, keep_node: bool = False) -> None:
        """Drop everything below a node, and the node."""
        folded = [below.folded_rows for below in node.walk() if below.folded_rows]
        before = len(trace.nodes)
        trace.remove_subtree(node, keep_itself=keep_node)
        self.folded_bytes -= sum(map(len, folded))
        self.span_count -= before - len(trace.nodes) + sum(map(count_spans, folded))
