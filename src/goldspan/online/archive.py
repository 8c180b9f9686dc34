"""What was given out, kept for a while as packed rows: late spans are added to it, and its runs looked at anew.

Traces in which nothing is in flight any more are kept here whole, until nothing can be expected of them; then their
ids, to know their late spans for what they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from goldspan.extraction import role_of
from goldspan.extraction.reading import BARE
from goldspan.model import SpanRecord
from goldspan.online.forest import Given, Trace
from goldspan.online.limits import Limits
from goldspan.online.packing import Packer, ids
from goldspan.online.portions import Counts, Revised

_FORGOTTEN_KEPT = 16_384
_GIVEN_BYTES = 65_536
"""Requests of one trace are kept together up to this many bytes: a late span is laid beside all of them."""

_Trace = Trace[Any]


class Archive:
    """The spans of runs that were given out. Not for two threads at once."""

    def __init__(self, packer: Packer, limits: Limits, counts: Counts) -> None:
        self._packer = packer
        self._limits = limits
        self._counts = counts
        self._finished: dict[int, _Trace] = {}
        self._forgotten: dict[int, None] = {}
        self._changed: dict[int, _Trace] = {}
        self._revised = 0
        self.size = 0
        """Bytes of all rows in here."""

    @property
    def waits(self) -> bool:
        """Whether anything in here depends on the time."""
        return bool(self._finished or self._changed)

    # --- traces ------------------------------------------------------------------------------------------------------

    def finish(self, trace: _Trace, now: float) -> None:
        """Take in a trace in which nothing is in flight any more."""
        trace.active = now
        self._finished[trace.id] = trace

    def reopen(self, trace_id: int) -> _Trace | None:
        """Hand a trace back, in which something happens again."""
        return self._finished.pop(trace_id, None)

    def is_forgotten(self, trace_id: int) -> bool:
        """Whether only the id of a trace is known any more."""
        return trace_id in self._forgotten

    def make_room(self) -> bool:
        """Forget the trace that has been finished for longest; whether there was one."""
        if self._finished:
            self._forget(next(iter(self._finished)))
            return True
        return False

    def forget_old(self, now: float) -> None:
        """Let go of traces for which no late span has come for long enough."""
        old = []
        for trace_id, trace in self._finished.items():
            age = now - trace.active
            if age < self._limits.late:
                break
            expected = trace_id in self._changed or any(given.pending for given in trace.given)
            if age >= self._limits.idle or not expected:
                old.append(trace_id)
        for trace_id in old:
            self._forget(trace_id)

    def _forget(self, trace_id: int) -> None:
        trace = self._finished.pop(trace_id)
        self._changed.pop(trace_id, None)
        self.size -= sum(map(len, trace.given))
        self._forgotten[trace_id] = None
        if len(self._forgotten) > _FORGOTTEN_KEPT:
            del self._forgotten[next(iter(self._forgotten))]

    # --- spans -------------------------------------------------------------------------------------------------------

    def put(
        self,
        trace: _Trace,
        rows: bytes | bytearray,
        unsettled: bytes | bytearray,
        pending: set[int],
        now: float,
        *,
        late: Given | None = None,
    ) -> None:
        """Keep the rows of spans that are given out, and the ids of those of them that have not ended.

        Rows are `unsettled` that stand inside of spans that have not ended. `late`: all of it may change what was given
        out before, and is laid beside it.
        """
        given = late or self._latest(trace, now)
        given.at = now
        if late is None:
            given.rows += rows
            given.late += unsettled
        else:
            given.late += rows + unsettled
        given.pending |= pending
        self.size += len(rows) + len(unsettled)
        if trace.outgrown and late is None:
            self.await_more(trace, given, now)

    def starts_late(self, trace: _Trace, span_id: int, parent_id: int) -> bool:
        """Whether a span started inside an agent, a tool or the like that was given out; if so, it is waited for."""
        given = trace.given_with(parent_id)
        if given is None:
            return trace.is_spent(parent_id) and trace.spend([span_id])
        if self._is_bare(given, parent_id):
            return False
        given.pending.add(span_id)
        return True

    def ended(self, trace: _Trace | None, trace_id: int, span_id: int, record: SpanRecord, now: float) -> None:
        """Take in a span that is not in flight: of a run that was given out, unless it is too late even for that."""
        trace = trace or self._finished.get(trace_id)
        given = trace.given_with(span_id) if trace is not None else None
        if trace is not None and trace.lost:
            return  # it was counted when it was cut, or never came in
        if trace is None or given is None:
            self._counts.too_late += 1
        elif span_id not in given.pending:
            self._counts.duplicates += 1
        else:
            given.pending.discard(span_id)
            self._counts.late += 1
            row = self._packer.pack_if_possible(record)
            given.late += row
            self.size += len(row)
            self.await_more(trace, given, now)

    def above(self, trace: _Trace, record: SpanRecord) -> Iterator[SpanRecord]:
        """What stands around a local root and was given out before it started, from its parent upwards."""
        parent_id = record.parent_id
        given = trace.given_with(int(parent_id, 16)) if parent_id is not None else None
        if given is None:
            return
        known = {each.span_id: each for each in self._packer.unpack(record.trace_id, given.rows)}
        while parent_id is not None and (around := known.pop(parent_id, None)) is not None:
            yield around
            parent_id = around.parent_id

    def _latest(self, trace: _Trace, now: float) -> Given:
        if not trace.given or len(trace.given[-1]) > _GIVEN_BYTES:
            for old in [given for given in trace.given if now - given.at >= self._limits.late]:
                self.size -= len(old)
                trace.spend([*ids(old.rows), *ids(old.late), *old.pending])
            lately = [given for given in trace.given if now - given.at < self._limits.late]
            trace.given = (*lately, Given(now))
        return trace.given[-1]

    def _is_bare(self, given: Given, span_id: int) -> bool:
        """Whether a span that was given out, and what stood around it, are of no run by themselves.

        What has not ended may be anything, and was taken for part of a run when it was given out.
        """
        known = {record.span_id: record for record in self._packer.unpack("", given.rows + given.late)}
        above: int | None = span_id
        while above is not None and above not in given.pending:
            record = known.pop(f"{above:016x}", None)
            if record is None:
                return True
            if role_of(record) not in BARE:
                return False
            above = int(record.parent_id, 16) if record.parent_id is not None else None
        return above is None

    # --- revisions ---------------------------------------------------------------------------------------------------

    def await_more(self, trace: _Trace, given: Given, now: float) -> None:
        """Have what was given out looked at anew, when nothing has been added to it for a while."""
        given.changed = now
        self._changed[trace.id] = trace

    def changed(self, now: float, *, everything: bool) -> Iterator[tuple[_Trace, Given]]:
        """What is to be looked at anew: no late span is on its way any more, or none has come for long."""
        limits = self._limits
        for trace_id, trace in list(self._changed.items()):
            waiting = False
            for given in trace.given:
                if given.changed is None:
                    continue
                quiet = now - given.changed
                if everything or (quiet >= limits.settle and not given.pending) or quiet >= limits.idle:
                    given.at = now
                    yield trace, given
                else:
                    waiting = True
            if not waiting:
                self._changed.pop(trace_id, None)

    def revised(self, trace: _Trace, given: Given, live: Sequence[SpanRecord] = ()) -> Revised:
        """Lay what came late beside what was there; from now on all of it was there. `live`: as they are now."""
        name = f"{trace.id:032x}"
        before, late = [*self._packer.unpack(name, given.rows)], [*self._packer.unpack(name, given.late)]
        given.rows += given.late
        given.late, given.changed = bytearray(), None
        there = frozenset(record.span_id for record in (*before, *late))
        self._revised += 1
        return Revised(tuple(before), (*before, *late, *live), there, trace.known, self._revised)
