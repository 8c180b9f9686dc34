"""The traces in flight: spans hang in them, are folded where nobody asks any more where they stand, and go to the
archive when their run is given out.

What is done to spans is done here, and counted; what it means that one started or ended is for the assembly to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic

from goldspan.online.archive import Archive
from goldspan.online.forest import Given, Live, Node, Trace
from goldspan.online.packing import Packer, count
from goldspan.online.trees import Trees

_FEW = 4
"""A trace with no more nodes than this has a dictionary of them that is as small as can be."""


class Flight(Generic[Live]):
    """Traces in the order in which something happened last in each. Not for two threads at once; `now` in seconds."""

    def __init__(self, packer: Packer, trees: Trees[Live], archive: Archive) -> None:
        self._packer = packer
        self._trees = trees
        self._archive = archive
        self._traces: dict[int, Trace[Live]] = {}
        self.spans = 0
        """Those that have started and whose run has not been given out."""
        self.bytes = 0
        """Bytes of ended spans that are folded away."""

    def __len__(self) -> int:
        """The number of traces."""
        return len(self._traces)

    def __iter__(self) -> Iterator[Trace[Live]]:
        """The one idle for longest first. They may be closed meanwhile."""
        return iter(list(self._traces.values()))

    # --- traces ------------------------------------------------------------------------------------------------------

    def get(self, trace_id: int) -> Trace[Live] | None:
        """A trace, if it is in flight."""
        return self._traces.get(trace_id)

    def idle_longest(self) -> Trace[Live]:
        """The trace in which nothing has happened for longest. There has to be one."""
        return next(iter(self._traces.values()))

    def opened(self, trace_id: int, now: float) -> Trace[Live]:
        """A trace in which something happens, for the first time or again."""
        trace = self._traces.get(trace_id)
        if trace is None:
            trace = self._traces[trace_id] = self._archive.reopen(trace_id) or Trace(trace_id, now)
        return trace

    def touch(self, trace: Trace[Live], now: float) -> None:
        """Take note that something happened in a trace."""
        trace.active = now
        self._traces[trace.id] = self._traces.pop(trace.id)

    def close_if_done(self, trace: Trace[Live], now: float) -> None:
        """Hand a trace with nothing left in it to the archive."""
        if not trace.nodes and self._traces.pop(trace.id, None) is not None:
            self._archive.finish(trace, now)

    # --- spans -------------------------------------------------------------------------------------------------------

    def add(self, trace: Trace[Live], span_id: int, parent: Node[Live] | None, live: Live) -> None:
        """Hang a span that started under its parent; without one it is a root."""
        trace.nodes[span_id] = Node(span_id, parent, live)
        self.spans += 1

    def fold(self, trace: Trace[Live], node: Node[Live]) -> None:
        """Make a row of an ended span below an agent, a tool or the like: nobody will ask where it stands."""
        parent, record = node.parent, node.record
        if parent is None or record is None or self._trees.is_in_the_open(node):
            return
        row = self._packer.pack_if_possible(record)
        if not row:
            return
        parent.fold(row)
        if node.folded:
            parent.fold(node.folded)
        self.bytes += len(row)
        node.unhook()
        del trace.nodes[node.id]
        if len(trace.nodes) <= _FEW:
            # A dictionary never shrinks by itself, a copy of it is no smaller, and thousands of them are in flight.
            trace.nodes = {span_id: kept for span_id, kept in trace.nodes.items()}  # noqa: C416
        if parent.record is not None and not parent.children:
            self.fold(trace, parent)

    def give(
        self,
        trace: Trace[Live],
        node: Node[Live],
        now: float,
        *,
        keep_itself: bool = False,
        late: Given | None = None,
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
            if below.record is not None and not below.scored:
                kept += self._packer.pack_if_possible(below.record)
            kept += below.folded
        node.scored = True
        self.cut(trace, node, keep_itself=keep_itself)
        self._archive.put(trace, rows, unsettled, pending, now, late=late)

    def cut(self, trace: Trace[Live], node: Node[Live], *, keep_itself: bool = False) -> None:
        """Drop everything below a node, and the node."""
        folded = [below.folded for below in node.walk() if below.folded]
        before = len(trace.nodes)
        trace.cut(node, keep_itself=keep_itself)
        self.bytes -= sum(map(len, folded))
        self.spans -= before - len(trace.nodes) + sum(map(count, folded))
