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

from goldspan.conventions.span_facts import REQUEST_ROLES, TRANSPARENT_ROLES, WORK_ROLES
from goldspan.extraction import role_of
from goldspan.model import SpanRecord
from goldspan.online.assembled_spans import AssembledSpans, AssemblyCounts, CompletedSpans, RevisedSpans, SpanPacker
from goldspan.online.limits import Limits
from goldspan.online.live_traces import CompletedTraces, InFlightTraces
from goldspan.online.span_forest import InFlightSpan, Live, ReleasedSpans, SpanTreeReader, TraceState, count_unended

_MAX_SCORED_NODES = 32
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
        is_requested_component: Callable[[SpanRecord], bool] = lambda _: False,
    ) -> None:
        self._limits = limits or Limits()
        self._is_requested_component = is_requested_component
        self.counts = AssemblyCounts()
        packer = SpanPacker()
        self._reader = SpanTreeReader(peek, packer)
        self._completed = CompletedTraces(packer, self._limits, self.counts)
        self._in_flight = InFlightTraces(packer, self._reader, self._completed)
        self._due: list[AssembledSpans] = []
        self._next_lifetime_check = 0.0

    def __len__(self) -> int:
        """The number of spans in flight: those that have started and whose run has not been given out."""
        return self._in_flight.span_count

    @property
    def bytes_in_flight(self) -> int:
        """The bytes of ended spans that are folded away, and of runs that were given out lately."""
        return self._in_flight.folded_bytes + self._completed.byte_count

    @property
    def has_deadlines(self) -> bool:
        """Whether anything in here depends on the time."""
        return bool(self._in_flight or self._due or self._completed.has_deadlines)

    def is_in_flight(self, trace_id: int, span_id: int) -> bool:
        """Whether that span is in flight here."""
        trace = self._in_flight.get(trace_id)
        return trace is not None and span_id in trace.nodes

    # --- spans -------------------------------------------------------------------------------------------------------

    def start_span(
        self, trace_id: int, span_id: int, parent_id: int | None, live: Live, now: float = 0.0, *, remote: bool = False
    ) -> None:
        """Take note of a span that started. `remote`: its parent is in another process, as far as is known."""
        if not remote and parent_id is not None and self._completed.is_expired(trace_id):
            return
        trace = self._in_flight.get_or_open(trace_id, now)
        if trace.is_incomplete or span_id in trace.nodes:
            self.counts.unscored += trace.is_incomplete
            return
        self._in_flight.touch(trace, now)
        parent = None
        if parent_id is not None:
            parent = trace.find_holder(parent_id)
            gone = parent is None or parent.is_scored  # a request that was given out keeps its own span, and no others
            if gone and trace.released_spans and self._completed.accept_late_start(trace, span_id, parent_id):
                self._in_flight.close_if_empty(trace, now)
                return
        if parent is not None and (parent.id != parent_id or parent.record is not None):
            trace.has_late_children = True  # it starts inside of what has ended
        self._in_flight.add(trace, span_id, parent, live)
        self._keep_within_limits(trace, now)

    def end_span(self, trace_id: int, span_id: int, record: SpanRecord, now: float = 0.0) -> list[AssembledSpans]:
        """Take in a span that ended; what came to its end with it: nothing, mostly, else a component or requests."""
        trace = self._in_flight.get(trace_id)
        node = trace.nodes.get(span_id) if trace is not None else None
        if trace is None or node is None or node.record is not None:
            self._completed.end_late_span(trace, trace_id, span_id, record, now)
            return []
        self._in_flight.touch(trace, now)
        node.record, node.live, node.role = record, None, role_of(record)
        done: list[AssembledSpans] = []
        outermost = node.role in REQUEST_ROLES and self._reader.has_only_structural_ancestors(node)
        if node.role == "component" or (node.role == "agent" and not outermost) or self._is_requested_component(record):
            done.append(self._complete_component(trace, node, record))
        if node.parent is None:
            done += self._complete_root(trace, node, now)
            self._in_flight.close_if_empty(trace, now)
        elif outermost:
            done.append(self._complete_request(trace, node, record, now))
        elif not node.children:
            self._in_flight.fold_node(trace, node)
        return done

    def expect_successor(self, trace_id: int) -> None:
        """Take note that an agent handed over: the next one beside it continues the same request."""
        trace = self._in_flight.get(trace_id)
        if trace is not None and trace.released_spans:
            trace.released_spans[-1].awaits_successor = True

    def mark_incomplete(self, trace_id: int, now: float) -> None:
        """Take note that not all of a trace comes in here: none of its runs could be told rightly."""
        trace = self._in_flight.get_or_open(trace_id, now)
        if not trace.is_incomplete:
            self._discard_trace(trace)

    # --- time --------------------------------------------------------------------------------------------------------

    def collect_due(self, now: float, *, everything: bool = False) -> list[AssembledSpans]:
        """What the time has brought about: runs that changed, and runs in which nothing has happened for long.

        `everything`: also runs that changed just now. Spans in flight stay in flight.
        """
        limits = self._limits
        for trace, given in self._completed.due_revisions(now, everything=everything):
            if not trace.is_incomplete:
                self._due.append(self._build_revision(trace, given))
        while self._in_flight:
            trace = self._in_flight.longest_idle()
            if now - trace.last_active < limits.idle:
                break
            self.counts.unended += self._release_trace(trace, now)
        if now >= self._next_lifetime_check:
            self._next_lifetime_check = now + limits.lifetime / 60
            for trace in [trace for trace in self._in_flight if now - trace.opened_at >= limits.lifetime]:
                self.counts.unended += self._release_trace(trace, now)
        self._completed.expire_old(now)
        ripe, self._due = self._due, []
        return ripe

    def release_all(self, now: float) -> list[AssembledSpans]:
        """Take everything that is in flight as it is: the process is about to end."""
        for trace in self._in_flight:
            self.counts.unended += self._release_trace(trace, now)
        return self.collect_due(now, everything=True)

    # --- what came to its end ----------------------------------------------------------------------------------------

    def _complete_component(
        self, trace: TraceState[Live], node: InFlightSpan[Live], record: SpanRecord
    ) -> CompletedSpans:
        missing = count_unended(node)
        trace.has_late_children = trace.has_late_children or missing > 0
        return CompletedSpans(
            "component", self._with_ancestors(trace, node), record.span_id, unended=missing, revisions=trace.revisions
        )

    def _complete_root(self, trace: TraceState[Live], root: InFlightSpan[Live], now: float) -> list[AssembledSpans]:
        """A local root ended: everything that is left in its tree."""
        nodes = list(root.walk())
        done: list[AssembledSpans] = []
        if trace.is_incomplete or all(self._reader.role(node) in TRANSPARENT_ROLES or node.is_scored for node in nodes):
            self._in_flight.release_subtree(trace, root, now)
        elif (beside := self._related_release(trace, root)) is not None:
            live = self._reader.live_records(root)
            self._in_flight.release_subtree(trace, root, now, late_for=beside)
            done.append(self._build_revision(trace, beside, live))
        else:
            spans, missing = self._with_ancestors(trace, root), count_unended(root)
            self._in_flight.release_subtree(trace, root, now)
            done.append(CompletedSpans("request", spans, unended=missing, revisions=trace.revisions))
        return done

    def _complete_request(
        self, trace: TraceState[Live], ended: InFlightSpan[Live], record: SpanRecord, now: float
    ) -> AssembledSpans:
        """The outermost agent ended: its spans, and the work beside it that belongs to it."""
        surface = list(self._reader.top_level_nodes(ended.root))
        marks = self._reader.request_nodes(surface)
        own = self._reader.detached_work_of(ended, surface, marks)
        if (beside := self._related_release(trace, ended.root, continued=True)) is not None:
            live = self._reader.live_records(ended)
            for stray in own:
                self._in_flight.release_subtree(trace, stray, now, late_for=beside)
            self._in_flight.release_subtree(trace, ended, now, keep_node=True, late_for=beside)
            done: AssembledSpans = self._build_revision(trace, beside, live)
        else:
            spans = [
                *self._with_ancestors(trace, ended),
                *(span for stray in own for span in self._with_ancestors(trace, stray)),
            ]
            missing = count_unended(ended)
            for stray in own:
                self._in_flight.release_subtree(trace, stray, now)
            self._in_flight.release_subtree(trace, ended, now, keep_node=True)
            done = CompletedSpans("request", tuple(spans), record.span_id, unended=missing, revisions=trace.revisions)
        self._remove_unneeded(trace, surface, marks, now)
        return done

    def _related_release(
        self, trace: TraceState[Live], root: InFlightSpan[Live], *, continued: bool = False
    ) -> ReleasedSpans | None:
        """Requests given out of which a tree may be a part: those of the same tree, or of the one it hangs from.

        `continued`: of those of the same tree only one that was handed over, since agents beside each other are
        requests of their own otherwise.
        """
        if not trace.released_spans:
            return None
        parent_id = self._reader.read_record(root).parent_id
        around = trace.find_released(int(parent_id, 16)) if parent_id is not None else None
        if around is not None:
            return around
        latest = trace.released_spans[-1]
        same = latest.awaits_successor if continued else any(node.is_scored for node in root.walk())
        return latest if same or (trace.was_force_released and not continued) else None

    def _remove_unneeded(
        self, trace: TraceState[Live], surface: list[InFlightSpan[Live]], marks: list[InFlightSpan[Live]], now: float
    ) -> None:
        """Put away what no request to come can need, so that a tree that never ends does not grow.

        That is work of requests already given out, and all but some of the bare spans that have ended and hold nothing
        and of the requests themselves.
        """
        spent: list[InFlightSpan[Live]] = []
        for node in reversed(surface):  # children before their parents
            if node.record is None or node.parent is None or node.role in REQUEST_ROLES:
                continue
            if node.role in TRANSPARENT_ROLES:
                if not node.children:
                    spent.append(node)
            elif self._reader.owning_request(node, marks).is_scored:  # it came when its request had been given out
                self._release_late(trace, node, now)
        for node in spent[:-_MAX_SCORED_NODES]:  # work may still begin inside of what has ended just now
            self._in_flight.release_subtree(trace, node, now)
        for mark in [mark for mark in marks if mark.is_scored][:-_MAX_SCORED_NODES]:
            self._in_flight.remove_subtree(trace, mark)

    # --- spans kept as rows ------------------------------------------------------------------------------------------

    def _with_ancestors(self, trace: TraceState[Live], node: InFlightSpan[Live]) -> tuple[SpanRecord, ...]:
        """The spans of a subtree, and what stands around it."""
        path = self._reader.ancestor_records(node)
        top = path[-1] if path else self._reader.read_record(node)
        given = list(self._completed.released_ancestors(trace, top))
        beyond = self._reader.record_ancestors(trace, given[-1]) if given else ()
        return (*given, *beyond, *path, *self._reader.subtree_records(node))

    def _release_late(self, trace: TraceState[Live], node: InFlightSpan[Live], now: float) -> None:
        """Put work into the archive that belongs to a request already given out, which is looked at anew for it."""
        self._in_flight.release_subtree(trace, node, now, late_for=trace.released_spans[-1])
        self._completed.schedule_revision(trace, trace.released_spans[-1], now)

    def _build_revision(
        self, trace: TraceState[Live], given: ReleasedSpans, live: list[SpanRecord] | None = None
    ) -> RevisedSpans:
        """What was given out, with what came since, and what stands around both now."""
        revised = self._completed.build_revision(trace, given, live or ())
        around = {
            above.span_id: above for record in revised.after for above in self._reader.record_ancestors(trace, record)
        }
        path = tuple([record for span_id, record in around.items() if span_id not in revised.ended_span_ids])
        return replace(revised, before=path + revised.before, after=path + revised.after)

    # --- limits ------------------------------------------------------------------------------------------------------

    def _release_trace(self, trace: TraceState[Live], now: float) -> bool:
        """Take a trace as it is; whether anything was at work in it. Bare spans that are still live stay.

        A server's span, below which one request follows another, lives for as long as the server does.
        """
        roots = [node for node in trace.nodes.values() if node.parent is None]
        surface = [node for root in roots for node in self._reader.top_level_nodes(root)]
        working = [node for node in surface if self._reader.role(node) not in TRANSPARENT_ROLES and not node.is_scored]
        again = trace.released_spans[-1] if trace.was_force_released and trace.released_spans else None
        live = [record for root in roots for record in self._reader.live_records(root)]
        takes = bool(working) and not trace.is_incomplete
        taken = [self._complete_unended(trace, root) for root in roots] if takes and again is None else []
        marks = self._reader.request_nodes(surface)
        strays = [node for node in surface if node.role in WORK_ROLES and marks]
        late = {stray.id for stray in strays if self._reader.owning_request(stray, marks).is_scored}
        for node in reversed(surface):  # children before their parents
            if node.id in late:
                self._release_late(trace, node, now)
            elif (node.record is not None or node.role not in TRANSPARENT_ROLES) and not self._must_stay(node):
                self._in_flight.release_subtree(trace, node, now, late_for=again)
        self._due += taken
        if takes and again is not None:
            self._due.append(self._build_revision(trace, again, live))
        trace.was_force_released = trace.was_force_released or takes
        if not working and now - trace.opened_at >= self._limits.lifetime:
            for root in roots:
                self._in_flight.remove_subtree(trace, root)
        trace.last_active = now
        if working:
            trace.opened_at = now
        self._in_flight.touch(trace, now)
        self._in_flight.close_if_empty(trace, now)
        return takes

    def _must_stay(self, node: InFlightSpan[Live]) -> bool:
        """Whether it holds a request given out, and more work may begin beside that, below a root that stays."""
        stays = node.root.record is None and self._reader.role(node.root) in TRANSPARENT_ROLES
        return (
            stays and node.role in TRANSPARENT_ROLES | REQUEST_ROLES and any(below.is_scored for below in node.walk())
        )

    def _complete_unended(self, trace: TraceState[Live], root: InFlightSpan[Live]) -> CompletedSpans:
        """A tree that nobody waits for any more."""
        given = frozenset(node.record.span_id for node in root.walk() if node.is_scored and node.record)
        return CompletedSpans(
            "request",
            self._with_ancestors(trace, root),
            released_span_ids=given,
            unended=count_unended(root),
            revisions=trace.revisions,
        )

    def _keep_within_limits(self, trace: TraceState[Live], now: float) -> None:
        limits = self._limits
        if len(trace.nodes) > limits.max_spans_per_trace:
            self._discard_trace(trace)
        while self.bytes_in_flight > limits.max_bytes and self._completed.evict_oldest():
            pass
        flight = self._in_flight
        while len(flight) > 1 and (
            flight.span_count > limits.max_spans
            or len(flight) > limits.max_traces
            or self.bytes_in_flight > limits.max_bytes
        ):
            self._evict(flight.longest_idle(), now)

    def _evict(self, trace: TraceState[Live], now: float) -> None:
        """Take a trace as it is, and keep nothing of it in flight."""
        self.counts.evicted += bool(trace.nodes)  # there is nothing left of one that was lost before
        self._release_trace(trace, now)
        for root in [node for node in trace.nodes.values() if node.parent is None]:
            self._in_flight.remove_subtree(trace, root)
        self._in_flight.close_if_empty(trace, now)

    def _discard_trace(self, trace: TraceState[Live]) -> None:
        """Score nothing of a trace any more: not all of it was seen."""
        trace.is_incomplete = True
        for given in trace.released_spans:
            self.counts.unscored += len(given.pending_span_ids)
            given.pending_span_ids.clear()
        before = self._in_flight.span_count
        for root in [node for node in trace.nodes.values() if node.parent is None]:
            self._in_flight.remove_subtree(trace, root)
        self.counts.unscored += before - self._in_flight.span_count
