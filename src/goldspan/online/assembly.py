"""Collects the spans of one process until a run is complete, for `Scorer`.

The results of a run must be known when its span ends; otherwise they cannot be written on it. Therefore a component is
complete when its span ends; a request when the outermost agent span (or application entry) of its tree ends; and
everything else below a local root when that root ends. A local root has no parent, a parent in another process, or a
parent that was never seen. A tree without activity is scored unfinished.

Spans that end later are added to the stored spans of their run, and the changed runs are released again. The module
does not lock, sleep or read a clock: the caller passes the time.
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
"""The number of released requests below one root whose spans are kept, to attribute the work next to them."""


class Assembly(Generic[Live]):
    """The spans in flight, by trace. Not thread-safe.

    Args:
        peek: Returns the record of a live span in its current state.
        limits: The bounds of the spans in flight.
        is_requested_component: Returns whether an ended span that is not marked as a component is one that a golden
            refers to.

    Its methods receive `now` in seconds from an arbitrary start; it must never decrease.
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
        self._in_flight = InFlightTraces(packer, self._reader, self._completed, self._limits)
        self._due: list[AssembledSpans] = []
        self._next_lifetime_check = 0.0

    def __len__(self) -> int:
        """Returns the number of spans in flight: those that have started and whose run has not been released."""
        return self._in_flight.span_count

    @property
    def bytes_in_flight(self) -> int:
        """The bytes of the folded spans and of the recently released runs."""
        return self._in_flight.folded_bytes + self._completed.byte_count

    @property
    def has_deadlines(self) -> bool:
        """Whether any stored span has a deadline."""
        return bool(self._in_flight or self._due or self._completed.has_deadlines)

    def is_in_flight(self, trace_id: int, span_id: int) -> bool:
        """Returns whether the span has started and not ended."""
        trace = self._in_flight.get(trace_id)
        node = trace.nodes.get(span_id) if trace is not None else None
        return node is not None and node.record is None

    # --- spans -------------------------------------------------------------------------------------------------------

    def start_span(
        self, trace_id: int, span_id: int, parent_id: int | None, live: Live, now: float = 0.0, *, remote: bool = False
    ) -> None:
        """Adds a span that started. `remote` means that its parent is in another process, as far as is known."""
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
            is_released = parent is None or parent.is_scored  # a released request keeps only its own span in flight
            if is_released and trace.released_spans and self._completed.accept_late_start(trace, span_id, parent_id):
                self._in_flight.close_if_empty(trace, now)
                return
        if parent is not None and (parent.id != parent_id or parent.record is not None):
            trace.has_late_children = True  # the span starts inside an ended span
        self._in_flight.add(trace, span_id, parent, live)
        self._keep_within_limits(trace, now)

    def end_span(self, trace_id: int, span_id: int, record: SpanRecord, now: float = 0.0) -> list[AssembledSpans]:
        """Records that a span ended. Returns what this completed: usually nothing, else a component or requests."""
        trace = self._in_flight.get(trace_id)
        node = trace.nodes.get(span_id) if trace is not None else None
        if trace is None or node is None or node.record is not None:
            self._completed.end_late_span(trace, trace_id, span_id, record, now)
            return []
        self._in_flight.touch(trace, now)
        node.record, node.live, node.role = record, None, role_of(record)
        done: list[AssembledSpans] = []
        is_outermost = node.role in REQUEST_ROLES and self._reader.has_only_structural_ancestors(node)
        is_inner_agent = node.role == "agent" and not is_outermost
        if node.role == "component" or is_inner_agent or self._is_requested_component(record):
            done.append(self._complete_component(trace, node, record))
        if node.parent is None:
            done += self._complete_root(trace, node, now)
            self._in_flight.close_if_empty(trace, now)
        elif is_outermost:
            done.append(self._complete_request(trace, node, record, now))
        elif not node.children:
            self._in_flight.fold_later(trace, node)
        return done

    def expect_successor(self, trace_id: int) -> None:
        """Records that an agent handed over: the next agent next to it continues the same request."""
        trace = self._in_flight.get(trace_id)
        if trace is not None and trace.released_spans:
            trace.released_spans[-1].awaits_successor = True

    def mark_incomplete(self, trace_id: int, now: float) -> None:
        """Records that spans of a trace were dropped, so that none of its runs can be scored."""
        trace = self._in_flight.get_or_open(trace_id, now)
        if not trace.is_incomplete:
            self._discard_trace(trace)

    # --- time --------------------------------------------------------------------------------------------------------

    def collect_due(self, now: float, *, everything: bool = False) -> list[AssembledSpans]:
        """Returns the runs that are due: runs that changed, and runs that were idle or lived for too long.

        `everything` includes runs that changed just now. Spans in flight stay in flight.
        """
        limits = self._limits
        for trace, released in self._completed.due_revisions(now, everything=everything):
            if not trace.is_incomplete:
                self._due.append(self._build_revision(trace, released))
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
        due, self._due = self._due, []
        return due

    def release_all(self, now: float) -> list[AssembledSpans]:
        """Releases everything in flight unfinished, because the process is about to exit."""
        for trace in self._in_flight:
            self.counts.unended += self._release_trace(trace, now)
        return self.collect_due(now, everything=True)

    # --- complete runs -----------------------------------------------------------------------------------------------

    def _complete_component(
        self, trace: TraceState[Live], node: InFlightSpan[Live], record: SpanRecord
    ) -> CompletedSpans:
        unended = count_unended(node)
        trace.has_late_children = trace.has_late_children or unended > 0
        return CompletedSpans(
            "component", self._with_ancestors(trace, node), record.span_id, unended=unended, revisions=trace.revisions
        )

    def _complete_root(self, trace: TraceState[Live], root: InFlightSpan[Live], now: float) -> list[AssembledSpans]:
        """Releases what is left in the tree of a local root that ended."""
        has_work = any(self._reader.role(node) not in TRANSPARENT_ROLES and not node.is_scored for node in root.walk())
        # The root of a trace that was released unfinished can be a run by itself, which is not scored before it ends.
        is_pending = has_work or (trace.was_force_released and bool(trace.released_spans))
        done: list[AssembledSpans] = []
        if trace.is_incomplete or not is_pending:
            self._in_flight.release_subtree(trace, root, now)
        elif (related := self._related_release(trace, root)) is not None:
            live = self._reader.live_records(root)
            self._in_flight.release_subtree(trace, root, now, late_for=related)
            done.append(self._build_revision(trace, related, live))
        else:
            spans, unended = self._with_ancestors(trace, root), count_unended(root)
            self._in_flight.release_subtree(trace, root, now)
            done.append(CompletedSpans("request", spans, unended=unended, revisions=trace.revisions))
        return done

    def _complete_request(
        self, trace: TraceState[Live], ended: InFlightSpan[Live], record: SpanRecord, now: float
    ) -> AssembledSpans:
        """Releases the spans of an outermost agent that ended, and the work next to it that belongs to it."""
        top_level = list(self._reader.top_level_nodes(ended.root))
        requests = self._reader.request_nodes(top_level)
        detached = self._reader.detached_work_of(ended, top_level, requests)
        if (related := self._related_release(trace, ended.root, continued=True)) is not None:
            live = self._reader.live_records(ended)
            for node in detached:
                self._in_flight.release_subtree(trace, node, now, late_for=related)
            self._in_flight.release_subtree(trace, ended, now, keep_node=True, late_for=related)
            done: AssembledSpans = self._build_revision(trace, related, live)
        else:
            spans = [
                *self._with_ancestors(trace, ended),
                *(span for node in detached for span in self._with_ancestors(trace, node)),
            ]
            unended = count_unended(ended)
            for node in detached:
                self._in_flight.release_subtree(trace, node, now)
            self._in_flight.release_subtree(trace, ended, now, keep_node=True)
            done = CompletedSpans("request", tuple(spans), record.span_id, unended=unended, revisions=trace.revisions)
        self._remove_unneeded(trace, top_level, requests, now)
        return done

    def _related_release(
        self, trace: TraceState[Live], root: InFlightSpan[Live], *, continued: bool = False
    ) -> ReleasedSpans | None:
        """Returns the released requests that a tree belongs to: those of the same tree, or of the tree that contains
        its parent.

        With `continued`, a request of the same tree counts only if it was handed over; otherwise agents next to each
        other are separate requests.
        """
        if not trace.released_spans:
            return None
        parent_id = self._reader.read_record(root).parent_id
        containing = trace.find_released(int(parent_id, 16)) if parent_id is not None else None
        if containing is not None:
            return containing
        latest = trace.released_spans[-1]
        is_same_request = latest.awaits_successor if continued else any(node.is_scored for node in root.walk())
        return latest if is_same_request or (trace.was_force_released and not continued) else None

    def _remove_unneeded(
        self,
        trace: TraceState[Live],
        top_level: list[InFlightSpan[Live]],
        requests: list[InFlightSpan[Live]],
        now: float,
    ) -> None:
        """Removes the spans that no later request can need, so that a tree that never ends does not grow.

        These are the work of released requests, and all but the latest ended structural spans without children and
        released request spans.
        """
        childless: list[InFlightSpan[Live]] = []
        for node in reversed(top_level):  # children before their parents
            if node.record is None or node.parent is None or node.role in REQUEST_ROLES:
                continue
            if node.role in TRANSPARENT_ROLES:
                if not node.children:
                    childless.append(node)
            elif self._reader.owning_request(node, requests).is_scored:  # the work ended after its request's release
                self._release_late(trace, node, now)
        for node in childless[:-_MAX_SCORED_NODES]:  # keep the latest: work may still start inside them
            self._in_flight.release_subtree(trace, node, now)
        for request in [request for request in requests if request.is_scored][:-_MAX_SCORED_NODES]:
            self._in_flight.remove_subtree(trace, request)

    # --- released spans ----------------------------------------------------------------------------------------------

    def _with_ancestors(self, trace: TraceState[Live], node: InFlightSpan[Live]) -> tuple[SpanRecord, ...]:
        """Returns the spans of a subtree and its ancestors."""
        path = self._reader.ancestor_records(node)
        top = path[-1] if path else self._reader.read_record(node)
        released = list(self._completed.released_ancestors(trace, top))
        above_released = self._reader.record_ancestors(trace, released[-1]) if released else ()
        return (*released, *above_released, *path, *self._reader.subtree_records(node))

    def _release_late(self, trace: TraceState[Live], node: InFlightSpan[Live], now: float) -> None:
        """Releases work that belongs to a released request, and schedules a revision of that request."""
        self._in_flight.release_subtree(trace, node, now, late_for=trace.released_spans[-1])
        self._completed.schedule_revision(trace, trace.released_spans[-1], now)

    def _build_revision(
        self, trace: TraceState[Live], released: ReleasedSpans, live: list[SpanRecord] | None = None
    ) -> RevisedSpans:
        """Returns the released spans with the late spans, each with their current ancestors."""
        revised = self._completed.build_revision(trace, released, live or ())
        ancestors = {
            above.span_id: above for record in revised.after for above in self._reader.record_ancestors(trace, record)
        }
        path = tuple([record for span_id, record in ancestors.items() if span_id not in revised.ended_span_ids])
        return replace(revised, before=path + revised.before, after=path + revised.after)

    # --- limits ------------------------------------------------------------------------------------------------------

    def _release_trace(self, trace: TraceState[Live], now: float) -> bool:
        """Releases a trace unfinished. Returns whether it contained work. Live structural spans stay.

        The span of a server, below which one request follows another, lives as long as the server.
        """
        roots = [node for node in trace.nodes.values() if node.parent is None]
        top_level = [node for root in roots for node in self._reader.top_level_nodes(root)]
        work = [node for node in top_level if self._reader.role(node) not in TRANSPARENT_ROLES and not node.is_scored]
        earlier = trace.released_spans[-1] if trace.was_force_released and trace.released_spans else None
        live = [record for root in roots for record in self._reader.live_records(root)]
        has_work = bool(work) and not trace.is_incomplete
        completed = [self._complete_unended(trace, root) for root in roots] if has_work and earlier is None else []
        requests = self._reader.request_nodes(top_level)
        detached = [node for node in top_level if node.role in WORK_ROLES and requests]
        late = {node.id for node in detached if self._reader.owning_request(node, requests).is_scored}
        for node in reversed(top_level):  # children before their parents
            if node.id in late:
                self._release_late(trace, node, now)
            elif (node.record is not None or node.role not in TRANSPARENT_ROLES) and not self._must_stay(node):
                self._in_flight.release_subtree(trace, node, now, late_for=earlier)
        self._due += completed
        if has_work and earlier is not None:
            self._due.append(self._build_revision(trace, earlier, live))
        trace.was_force_released = trace.was_force_released or has_work
        if not work and now - trace.opened_at >= self._limits.lifetime:
            for root in roots:
                self._in_flight.remove_subtree(trace, root)
        trace.last_active = now
        if work:
            trace.opened_at = now
        self._in_flight.touch(trace, now)
        self._in_flight.close_if_empty(trace, now)
        return has_work

    def _must_stay(self, node: InFlightSpan[Live]) -> bool:
        """Returns whether the node holds a released request next to which more work may start, below a live structural
        root.
        """
        root_stays = node.root.record is None and self._reader.role(node.root) in TRANSPARENT_ROLES
        can_hold_request = node.role in TRANSPARENT_ROLES | REQUEST_ROLES
        return root_stays and can_hold_request and any(below.is_scored for below in node.walk())

    def _complete_unended(self, trace: TraceState[Live], root: InFlightSpan[Live]) -> CompletedSpans:
        """Returns the spans of a tree that has not ended."""
        released = frozenset(node.record.span_id for node in root.walk() if node.is_scored and node.record)
        return CompletedSpans(
            "request",
            self._with_ancestors(trace, root),
            released_span_ids=released,
            unended=count_unended(root),
            revisions=trace.revisions,
        )

    def _keep_within_limits(self, trace: TraceState[Live], now: float) -> None:
        limits = self._limits
        if len(trace.nodes) > limits.max_spans_per_trace:
            self._in_flight.fold_all()
            if len(trace.nodes) > limits.max_spans_per_trace:
                self._discard_trace(trace)
        while self.bytes_in_flight > limits.max_bytes and self._completed.evict_oldest():
            pass
        traces = self._in_flight
        while len(traces) > 1 and (
            traces.span_count > limits.max_spans
            or len(traces) > limits.max_traces
            or self.bytes_in_flight > limits.max_bytes
        ):
            self._evict(traces.longest_idle(), now)

    def _evict(self, trace: TraceState[Live], now: float) -> None:
        """Releases a trace unfinished, and keeps none of its spans in flight."""
        self.counts.evicted += bool(trace.nodes)  # a discarded trace is empty and was counted before
        self._release_trace(trace, now)
        for root in [node for node in trace.nodes.values() if node.parent is None]:
            self._in_flight.remove_subtree(trace, root)
        self._in_flight.close_if_empty(trace, now)

    def _discard_trace(self, trace: TraceState[Live]) -> None:
        """Excludes a trace from scoring, because some of its spans were dropped."""
        trace.is_incomplete = True
        for released in trace.released_spans:
            self.counts.unscored += len(released.pending_span_ids)
            released.pending_span_ids.clear()
        previous_count = self._in_flight.span_count
        for root in [node for node in trace.nodes.values() if node.parent is None]:
            self._in_flight.remove_subtree(trace, root)
        self.counts.unscored += previous_count - self._in_flight.span_count
