"""Gather the spans of one process until a run is complete. Nothing here locks, sleeps or knows the time by itself.

A run's results must be known when its span ends, or they cannot be put on it. So a component is complete when its span
ends, a request when the outermost agent span (or application entry) of its tree ends, and whatever else hung from a
local root when that ends. A local root has no parent, a parent in another process, or one that was never seen. A tree
in which nothing happens any more is taken as it is.

Spans that end later go to the archive, and the runs that they change are given out once more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Generic

from goldspan.extraction import role_of
from goldspan.extraction.reading import BARE, MARKS, WORK
from goldspan.model import SpanRecord
from goldspan.online.archive import Archive
from goldspan.online.flight import Flight
from goldspan.online.forest import Given, Live, Node, Trace
from goldspan.online.limits import Limits
from goldspan.online.packing import Packer
from goldspan.online.portions import Counts, Ended, Portion, Revised
from goldspan.online.trees import Trees, unended

_SCORED_KEPT = 32
"""Requests given out below one root whose spans are kept, to tell which work beside them is theirs."""


class Assembly(Generic[Live]):
    """Spans in flight, by trace. The caller takes care that one thread at a time is in here.

    `peek` reads a live span as it is now. `now` is in seconds, from any beginning, and never goes back. `watched` tells
    of an ended span that is no component by itself whether it stands for one that somebody asks for.
    """

    def __init__(
        self,
        peek: Callable[[Live], SpanRecord],
        limits: Limits | None = None,
        *,
        watched: Callable[[SpanRecord], bool] = lambda _: False,
    ) -> None:
        self._limits = limits or Limits()
        self._watched = watched
        self.counts = Counts()
        packer = Packer()
        self._trees = Trees(peek, packer)
        self._archive = Archive(packer, self._limits, self.counts)
        self._flight = Flight(packer, self._trees, self._archive)
        self._ripe: list[Portion] = []
        self._aged = 0.0

    def __len__(self) -> int:
        """The number of spans in flight: those that have started and whose run has not been given out."""
        return self._flight.spans

    @property
    def bytes_in_flight(self) -> int:
        """The bytes of ended spans that are folded away, and of runs that were given out lately."""
        return self._flight.bytes + self._archive.size

    @property
    def waits(self) -> bool:
        """Whether anything in here depends on the time."""
        return bool(self._flight or self._ripe or self._archive.waits)

    def knows(self, trace_id: int, span_id: int) -> bool:
        """Whether that span is in flight here."""
        trace = self._flight.get(trace_id)
        return trace is not None and span_id in trace.nodes

    # --- spans -------------------------------------------------------------------------------------------------------

    def started(
        self, trace_id: int, span_id: int, parent_id: int | None, live: Live, now: float = 0.0, *, remote: bool = False
    ) -> None:
        """Take note of a span that started. `remote`: its parent is in another process, as far as is known."""
        if not remote and parent_id is not None and self._archive.is_forgotten(trace_id):
            return
        trace = self._flight.opened(trace_id, now)
        if trace.lost or span_id in trace.nodes:
            self.counts.unscored += trace.lost
            return
        self._flight.touch(trace, now)
        parent = None
        if parent_id is not None:
            parent = trace.holder_of(parent_id)
            gone = parent is None or parent.scored  # a request that was given out keeps its own span, and no others
            if gone and trace.given and self._archive.starts_late(trace, span_id, parent_id):
                self._flight.close_if_done(trace, now)
                return
        if parent is not None and (parent.id != parent_id or parent.record is not None):
            trace.outgrown = True  # it starts inside of what has ended
        self._flight.add(trace, span_id, parent, live)
        self._keep_within_limits(trace, now)

    def ended(self, trace_id: int, span_id: int, record: SpanRecord, now: float = 0.0) -> list[Portion]:
        """Take in a span that ended; what came to its end with it: nothing, mostly, else a component or requests."""
        trace = self._flight.get(trace_id)
        node = trace.nodes.get(span_id) if trace is not None else None
        if trace is None or node is None or node.record is not None:
            self._archive.ended(trace, trace_id, span_id, record, now)
            return []
        self._flight.touch(trace, now)
        node.record, node.live, node.role = record, None, role_of(record)
        done: list[Portion] = []
        outermost = node.role in MARKS and self._trees.is_in_the_open(node)
        if node.role == "component" or (node.role == "agent" and not outermost) or self._watched(record):
            done.append(self._component(trace, node, record))
        if node.parent is None:
            done += self._whole(trace, node, now)
            self._flight.close_if_done(trace, now)
        elif outermost:
            done.append(self._request(trace, node, record, now))
        elif not node.children:
            self._flight.fold(trace, node)
        return done

    def expect_successor(self, trace_id: int) -> None:
        """Take note that an agent handed over: the next one beside it continues the same request."""
        trace = self._flight.get(trace_id)
        if trace is not None and trace.given:
            trace.given[-1].handed_over = True

    def lose(self, trace_id: int, now: float) -> None:
        """Take note that not all of a trace comes in here: none of its runs could be told rightly."""
        trace = self._flight.opened(trace_id, now)
        if not trace.lost:
            self._lose(trace)

    # --- time --------------------------------------------------------------------------------------------------------

    def due(self, now: float, *, everything: bool = False) -> list[Portion]:
        """What the time has brought about: runs that changed, and runs in which nothing has happened for long.

        `everything`: also runs that changed just now. Spans in flight stay in flight.
        """
        limits = self._limits
        for trace, given in self._archive.changed(now, everything=everything):
            if not trace.lost:
                self._ripe.append(self._revised(trace, given))
        while self._flight:
            trace = self._flight.idle_longest()
            if now - trace.active < limits.idle:
                break
            self.counts.unended += self._release(trace, now)
        if now >= self._aged:
            self._aged = now + limits.lifetime / 60
            for trace in [trace for trace in self._flight if now - trace.born >= limits.lifetime]:
                self.counts.unended += self._release(trace, now)
        self._archive.forget_old(now)
        ripe, self._ripe = self._ripe, []
        return ripe

    def release(self, now: float) -> list[Portion]:
        """Take everything that is in flight as it is: the process is about to end."""
        for trace in self._flight:
            self.counts.unended += self._release(trace, now)
        return self.due(now, everything=True)

    # --- what came to its end ----------------------------------------------------------------------------------------

    def _component(self, trace: Trace[Live], node: Node[Live], record: SpanRecord) -> Ended:
        missing = unended(node)
        trace.outgrown = trace.outgrown or missing > 0
        return Ended("component", self._with_path(trace, node), record.span_id, unended=missing, known=trace.known)

    def _whole(self, trace: Trace[Live], root: Node[Live], now: float) -> list[Portion]:
        """A local root ended: everything that is left in its tree."""
        nodes = list(root.walk())
        done: list[Portion] = []
        if trace.lost or all(self._trees.role(node) in BARE or node.scored for node in nodes):
            self._flight.give(trace, root, now)
        elif (beside := self._given_beside(trace, root)) is not None:
            live = self._trees.live_ones(root)
            self._flight.give(trace, root, now, late=beside)
            done.append(self._revised(trace, beside, live))
        else:
            spans, missing = self._with_path(trace, root), unended(root)
            self._flight.give(trace, root, now)
            done.append(Ended("request", spans, unended=missing, known=trace.known))
        return done

    def _request(self, trace: Trace[Live], ended: Node[Live], record: SpanRecord, now: float) -> Portion:
        """The outermost agent ended: its spans, and the work beside it that belongs to it."""
        surface = list(self._trees.surface(ended.root))
        marks = self._trees.marks(surface)
        own = self._trees.strays_of(ended, surface, marks)
        if (beside := self._given_beside(trace, ended.root, continued=True)) is not None:
            live = self._trees.live_ones(ended)
            for stray in own:
                self._flight.give(trace, stray, now, late=beside)
            self._flight.give(trace, ended, now, keep_itself=True, late=beside)
            done: Portion = self._revised(trace, beside, live)
        else:
            spans = [*self._with_path(trace, ended), *(span for stray in own for span in self._with_path(trace, stray))]
            missing = unended(ended)
            for stray in own:
                self._flight.give(trace, stray, now)
            self._flight.give(trace, ended, now, keep_itself=True)
            done = Ended("request", tuple(spans), record.span_id, unended=missing, known=trace.known)
        self._tidy(trace, surface, marks, now)
        return done

    def _given_beside(self, trace: Trace[Live], root: Node[Live], *, continued: bool = False) -> Given | None:
        """Requests given out of which a tree may be a part: those of the same tree, or of the one it hangs from.

        `continued`: of those of the same tree only one that was handed over, since agents beside each other are
        requests of their own otherwise.
        """
        if not trace.given:
            return None
        parent_id = self._trees.current(root).parent_id
        around = trace.given_with(int(parent_id, 16)) if parent_id is not None else None
        if around is not None:
            return around
        latest = trace.given[-1]
        same = latest.handed_over if continued else any(node.scored for node in root.walk())
        return latest if same or (trace.released and not continued) else None

    def _tidy(self, trace: Trace[Live], surface: list[Node[Live]], marks: list[Node[Live]], now: float) -> None:
        """Put away what no request to come can need, so that a tree that never ends does not grow.

        That is work of requests already given out, and all but some of the bare spans that have ended and hold nothing
        and of the requests themselves.
        """
        spent: list[Node[Live]] = []
        for node in reversed(surface):  # children before their parents
            if node.record is None or node.parent is None or node.role in MARKS:
                continue
            if node.role in BARE:
                if not node.children:
                    spent.append(node)
            elif self._trees.request_of(node, marks).scored:  # it came when its request had been given out
                self._give_late(trace, node, now)
        for node in spent[:-_SCORED_KEPT]:  # work may still begin inside of what has ended just now
            self._flight.give(trace, node, now)
        for mark in [mark for mark in marks if mark.scored][:-_SCORED_KEPT]:
            self._flight.cut(trace, mark)

    # --- spans kept as rows ------------------------------------------------------------------------------------------

    def _with_path(self, trace: Trace[Live], node: Node[Live]) -> tuple[SpanRecord, ...]:
        """The spans of a subtree, and what stands around it."""
        path = self._trees.path(node)
        top = path[-1] if path else self._trees.current(node)
        given = list(self._archive.above(trace, top))
        beyond = self._trees.around(trace, given[-1]) if given else ()
        return (*given, *beyond, *path, *self._trees.records(node))

    def _give_late(self, trace: Trace[Live], node: Node[Live], now: float) -> None:
        """Put work into the archive that belongs to a request already given out, which is looked at anew for it."""
        self._flight.give(trace, node, now, late=trace.given[-1])
        self._archive.await_more(trace, trace.given[-1], now)

    def _revised(self, trace: Trace[Live], given: Given, live: list[SpanRecord] | None = None) -> Revised:
        """What was given out, with what came since, and what stands around both now."""
        revised = self._archive.revised(trace, given, live or ())
        around = {above.span_id: above for record in revised.after for above in self._trees.around(trace, record)}
        path = tuple([record for span_id, record in around.items() if span_id not in revised.there])
        return replace(revised, before=path + revised.before, after=path + revised.after)

    # --- limits ------------------------------------------------------------------------------------------------------

    def _release(self, trace: Trace[Live], now: float) -> bool:
        """Take a trace as it is; whether anything was at work in it. Bare spans that are still live stay.

        A server's span, below which one request follows another, lives for as long as the server does.
        """
        roots = [node for node in trace.nodes.values() if node.parent is None]
        surface = [node for root in roots for node in self._trees.surface(root)]
        working = [node for node in surface if self._trees.role(node) not in BARE and not node.scored]
        again = trace.given[-1] if trace.released and trace.given else None
        live = [record for root in roots for record in self._trees.live_ones(root)]
        takes = bool(working) and not trace.lost
        taken = [self._as_it_is(trace, root) for root in roots] if takes and again is None else []
        marks = self._trees.marks(surface)
        strays = [node for node in surface if node.role in WORK and marks]
        late = {stray.id for stray in strays if self._trees.request_of(stray, marks).scored}
        for node in reversed(surface):  # children before their parents
            if node.id in late:
                self._give_late(trace, node, now)
            elif (node.record is not None or node.role not in BARE) and not self._tells(node):
                self._flight.give(trace, node, now, late=again)
        self._ripe += taken
        if takes and again is not None:
            self._ripe.append(self._revised(trace, again, live))
        trace.released = trace.released or takes
        if not working and now - trace.born >= self._limits.lifetime:
            for root in roots:
                self._flight.cut(trace, root)
        trace.active = now
        if working:
            trace.born = now
        self._flight.touch(trace, now)
        self._flight.close_if_done(trace, now)
        return takes

    def _tells(self, node: Node[Live]) -> bool:
        """Whether it holds a request given out, and more work may begin beside that, below a root that stays."""
        stays = node.root.record is None and self._trees.role(node.root) in BARE
        return stays and node.role in BARE | MARKS and any(below.scored for below in node.walk())

    def _as_it_is(self, trace: Trace[Live], root: Node[Live]) -> Ended:
        """A tree that nobody waits for any more."""
        given = frozenset(node.record.span_id for node in root.walk() if node.scored and node.record)
        return Ended("request", self._with_path(trace, root), given=given, unended=unended(root), known=trace.known)

    def _keep_within_limits(self, trace: Trace[Live], now: float) -> None:
        limits = self._limits
        if len(trace.nodes) > limits.max_spans_per_trace:
            self._lose(trace)
        while self.bytes_in_flight > limits.max_bytes and self._archive.make_room():
            pass
        flight = self._flight
        while len(flight) > 1 and (
            flight.spans > limits.max_spans
            or len(flight) > limits.max_traces
            or self.bytes_in_flight > limits.max_bytes
        ):
            self._evict(flight.idle_longest(), now)

    def _evict(self, trace: Trace[Live], now: float) -> None:
        """Take a trace as it is, and keep nothing of it in flight."""
        self.counts.evicted += bool(trace.nodes)  # there is nothing left of one that was lost before
        self._release(trace, now)
        for root in [node for node in trace.nodes.values() if node.parent is None]:
            self._flight.cut(trace, root)
        self._flight.close_if_done(trace, now)

    def _lose(self, trace: Trace[Live]) -> None:
        """Score nothing of a trace any more: not all of it was seen."""
        trace.lost = True
        for given in trace.given:
            self.counts.unscored += len(given.pending)
            given.pending.clear()
        before = self._flight.spans
        for root in [node for node in trace.nodes.values() if node.parent is None]:
            self._flight.cut(trace, root)
        self.counts.unscored += before - self._flight.spans
