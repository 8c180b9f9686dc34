"""Gather the spans of one process until a run is complete. Nothing here locks, sleeps or knows the time.

A run's results must be known when its span ends, or they cannot be put on it. So a component is complete when its span
ends, a request when the outermost agent span (or application entry) of its tree ends, and whatever else hung from a
local root when that ends. A local root has no parent, a parent in another process, or one that was never seen.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic

from goldspan.extraction import Role, role_of
from goldspan.extraction.reading import BARE, MARKS, WORK
from goldspan.model import Run, SpanRecord, Unit
from goldspan.online.forest import Live, Node, Trace

DEFAULT_MAX_TRACES = 10_000
DEFAULT_MAX_SPANS = 100_000

_FINISHED_KEPT = 16_384
_SCORED_KEPT = 32


@dataclass(frozen=True, slots=True)
class Ended:
    """The spans in which something came to its end: extract them, and take the runs that it `holds`."""

    unit: Unit
    spans: tuple[SpanRecord, ...]
    span_id: str | None = None
    """The span the run stands on; `None`: take every run but those on spans `given` before."""
    given: frozenset[str] = frozenset()

    def holds(self, run: Run) -> bool:
        """Whether the run came to its end here, and not before or somewhere else."""
        return run.span_id not in self.given if self.span_id is None else run.span_id == self.span_id


class Assembly(Generic[Live]):
    """Spans in flight, by trace. The caller takes care that one thread at a time is in here.

    `peek` reads a live span as it is now. At the limits the trace that has been idle for longest is given up, a single
    trace that is too large by itself first.
    """

    def __init__(
        self,
        peek: Callable[[Live], SpanRecord],
        *,
        max_traces: int = DEFAULT_MAX_TRACES,
        max_spans: int = DEFAULT_MAX_SPANS,
        max_spans_per_trace: int = 10_000,
    ) -> None:
        self._peek = peek
        self._max_traces = max_traces
        self._max_spans = max_spans
        self._max_spans_per_trace = max_spans_per_trace
        self._traces: OrderedDict[int, Trace[Live]] = OrderedDict()
        self._finished: OrderedDict[int, None] = OrderedDict()
        self._spans = 0
        self.late = 0
        """Spans that ended after their run was scored or given up, or whose start was never seen."""
        self.evicted = 0
        """Traces that were given up before they were complete."""

    def __len__(self) -> int:
        """The number of spans kept."""
        return self._spans

    def knows(self, trace_id: int, span_id: int) -> bool:
        """Whether that span is in flight here."""
        trace = self._traces.get(trace_id)
        return trace is not None and span_id in trace.nodes

    def started(self, trace_id: int, span_id: int, parent_id: int | None, live: Live, *, remote: bool = False) -> None:
        """Take note of a span that started. `remote`: its parent is in another process, as far as is known."""
        trace = self._traces.get(trace_id)
        if trace is None:
            if trace_id in self._finished:
                if parent_id is not None and not remote:
                    return
                del self._finished[trace_id]
            trace = self._traces[trace_id] = Trace()
        else:
            self._traces.move_to_end(trace_id)
        before = len(trace.nodes)
        trace.add(span_id, parent_id, live)
        self._spans += len(trace.nodes) - before
        self._keep_within_limits(trace_id, trace)

    def ended(self, trace_id: int, span_id: int, record: SpanRecord) -> list[Ended]:
        """Take in a span that ended; what came to its end with it: nothing, mostly, else a component or requests."""
        trace = self._traces.get(trace_id)
        node = trace.nodes.get(span_id) if trace is not None else None
        if trace is None or node is None:
            self.late += 1
            return []
        self._traces.move_to_end(trace_id)
        node.record, node.live, node.role = record, None, role_of(record)
        done = []
        if node.role == "component":
            done.append(Ended("component", self._with_path(node), record.span_id))
        if node.parent is None:
            done.append(self._whole(trace, node))
            self._close_if_done(trace_id, trace)
        elif node.role in MARKS and all(self._role(above) in BARE for above in node.ancestors()):
            done.append(self._request(trace, node, record))
        return done

    def _with_path(self, node: Node[Live]) -> tuple[SpanRecord, ...]:
        path = [self._current(above) for above in node.ancestors()]
        return (*path, *_records(node))

    def _whole(self, trace: Trace[Live], root: Node[Live]) -> Ended:
        """A local root ended: everything that is left in its tree."""
        spans = tuple(_records(root))
        given = frozenset(node.record.span_id for node in root.walk() if node.scored and node.record)
        self._forget(trace, root)
        return Ended("request", spans, given=given)

    def _request(self, trace: Trace[Live], ended: Node[Live], record: SpanRecord) -> Ended:
        """The outermost agent ended: its spans, and the work beside it that belongs to it."""
        around = list(self._surface(ended.root))
        marks = sorted((node for node in around if self._role(node) in MARKS), key=self._start)
        strays = [node for node in around if node.record is not None and node.role in WORK]
        spans = self._with_path(ended)
        for stray in strays:
            if self._request_of(stray, marks) is ended:
                spans += self._with_path(stray)
        ended.scored = True
        self._forget(trace, ended, keep_itself=True)
        self._tidy(trace, around, marks)
        return Ended("request", spans, record.span_id)

    def _surface(self, root: Node[Live]) -> Iterator[Node[Live]]:
        """The bare spans of a tree, and the first span with a role on each way down."""
        pending = [root]
        while pending:
            node = pending.pop()
            yield node
            if self._role(node) in BARE:
                pending.extend(node.children.values())

    def _request_of(self, stray: Node[Live], marks: list[Node[Live]]) -> Node[Live]:
        """Whose work a span beside the agents is, as extraction has it: of the one begun last before it."""
        begun = bisect_right(marks, self._start(stray), key=self._start)
        return marks[max(begun - 1, 0)]

    def _tidy(self, trace: Trace[Live], around: list[Node[Live]], marks: list[Node[Live]]) -> None:
        """Forget what no request to come can need, so that a tree that never ends does not grow.

        That is work of requests already given out, bare spans that have ended and hold nothing, and all but the latest
        of the requests themselves.
        """
        for node in reversed(around):  # children before their parents
            if node.record is None or node.parent is None or node.role in MARKS:
                continue
            needed = node.children if node.role in BARE else not self._request_of(node, marks).scored
            if not needed:
                self._forget(trace, node)
        for mark in [mark for mark in marks if mark.scored][:-_SCORED_KEPT]:
            self._forget(trace, mark)

    def _role(self, node: Node[Live]) -> Role | None:
        if node.role is None and node.record is None:
            node.role = role_of(self._current(node))
        return node.role

    def _start(self, node: Node[Live]) -> int:
        if node.start is None:
            node.start = self._current(node).start_ns or 0
        return node.start

    def _current(self, node: Node[Live]) -> SpanRecord:
        if node.record is not None:
            return node.record
        assert node.live is not None  # a node holds one or the other
        return self._peek(node.live)

    def _forget(self, trace: Trace[Live], node: Node[Live], *, keep_itself: bool = False) -> None:
        before = len(trace.nodes)
        trace.forget(node, keep_itself=keep_itself)
        self._spans -= before - len(trace.nodes)

    def _close_if_done(self, trace_id: int, trace: Trace[Live]) -> None:
        if not trace.nodes:
            del self._traces[trace_id]
            self._finish(trace_id)

    def _keep_within_limits(self, trace_id: int, trace: Trace[Live]) -> None:
        if len(trace.nodes) > self._max_spans_per_trace:
            self._evict(trace_id)
        while self._spans > self._max_spans or len(self._traces) > self._max_traces:
            self._evict(next(iter(self._traces)))

    def _evict(self, trace_id: int) -> None:
        self._spans -= len(self._traces.pop(trace_id).nodes)
        self.evicted += 1
        self._finish(trace_id)

    def _finish(self, trace_id: int) -> None:
        """Remember a trace by its id alone, to know its late spans for what they are."""
        self._finished[trace_id] = None
        if len(self._finished) > _FINISHED_KEPT:
            self._finished.popitem(last=False)


def _records(node: Node[Live]) -> Iterator[SpanRecord]:
    """The ended spans of a subtree."""
    return (below.record for below in node.walk() if below.record is not None)
