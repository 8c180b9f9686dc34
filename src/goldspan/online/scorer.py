"""Connects the assembler, the pipeline and the drop counters of one process."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Generic

from goldspan import semconv
from goldspan.conventions.span_facts import REQUEST_ROLES
from goldspan.extraction import correlation_keys, role_of
from goldspan.extraction.segmentation.detached_tools import active_interval, has_only_tools, starts_during
from goldspan.model import Evaluation, Run, SpanRecord
from goldspan.online.assembled_spans import AssembledSpans, AssemblyCounts, CompletedSpans, RevisedSpans, RunRevisions
from goldspan.online.assembly import Assembly
from goldspan.online.limits import Limits
from goldspan.online.pipeline import Pipeline
from goldspan.online.span_forest import Live
from goldspan.online.worker import AwakeClock
from goldspan.sinks import DropCounters

_MAX_REQUESTS = 256
"""The number of requests with a session that are kept for detached tools that end later."""

_Spans = tuple[SpanRecord, ...]


@dataclass(frozen=True, slots=True)
class _RecentRequest:
    """A released request, its revisions and the time of its release."""

    spans: _Spans
    revisions: RunRevisions
    released_at: float


class DetachedTools:
    """Assigns traces that contain only tools to their requests, between assembly and pipeline.

    Not thread-safe; `now` is in seconds.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held: OrderedDict[int, tuple[CompletedSpans, float]] = OrderedDict()
        self._requests: OrderedDict[Hashable, _RecentRequest] = OrderedDict()
        self._claimed: OrderedDict[str, _Spans] = OrderedDict()
        self._next_number = 0

    @property
    def has_deadlines(self) -> bool:
        """Whether any stored trace has a deadline."""
        return bool(self._held or self._requests)

    def route(self, assembled_spans: Iterable[AssembledSpans], now: float) -> list[AssembledSpans]:
        """Adds detached tools to the spans that they belong to; holds tools whose request has not arrived."""
        routed: list[AssembledSpans] = []
        for assembled in assembled_spans:
            if isinstance(assembled, RevisedSpans):
                routed.append(self._with_claimed(assembled))
            elif assembled.unit != "request":
                routed.append(assembled)
            elif not _is_detached(assembled):
                routed.append(self._with_detached(assembled))
            elif (placed := self._attach_or_hold(assembled, now)) is not None:
                routed.append(placed)
        return routed

    def remember_request(self, assembled: AssembledSpans, runs: Iterable[Run], now: float) -> None:
        """Stores a request that has a session, for its tools that end later."""
        if isinstance(assembled, RevisedSpans):
            return
        for run in runs:
            if run.unit == "request" and run.session_id is not None:
                key = ("session", run.service, run.session_id)
                self._requests[key] = _RecentRequest(assembled.spans, assembled.revisions, now)
                self._requests.move_to_end(key)
                while len(self._requests) > _MAX_REQUESTS:
                    self._requests.popitem(last=False)

    def collect_due(self, now: float, *, everything: bool = False) -> list[AssembledSpans]:
        """Returns the detached tools whose request never arrived: they become separate requests."""
        late = [
            number
            for number, (_, since) in self._held.items()
            if everything or now - since >= self._limits.idle or len(self._held) > self._limits.max_traces
        ]
        for key in [key for key, each in self._requests.items() if now - each.released_at >= self._limits.late]:
            del self._requests[key]
        return [self._held.pop(number)[0] for number in late]

    def _attach_or_hold(self, stray: CompletedSpans, now: float) -> AssembledSpans | None:
        """Returns detached tools as a revision of their request if it was released, or unchanged without correlation
        ids.

        Otherwise it holds them and returns `None`.
        """
        keys = correlation_keys(stray.spans)
        if not keys:
            return stray
        for key in keys:
            request = self._requests.get(key)
            if request is not None and starts_during(stray.spans, active_interval(request.spans)):
                before = request.spans
                self._requests[key] = replace(request, spans=before + stray.spans, released_at=now)
                self._claim(before[0].trace_id, stray.spans)
                after = before + stray.spans
                there = frozenset(span.span_id for span in after)
                return RevisedSpans(before, after, there, request.revisions, request.revisions.latest_sequence)
        self._held[self._next_number] = (stray, now)
        self._next_number += 1
        return None

    def _with_detached(self, request: CompletedSpans) -> CompletedSpans:
        """Returns a request with the detached tools that started while it ran."""
        if not self._held:
            return request
        keys = frozenset(correlation_keys(request.spans))
        for number, (stray, _) in list(self._held.items()):
            if not keys.isdisjoint(correlation_keys(stray.spans)) and starts_during(
                stray.spans, active_interval(request.spans)
            ):
                del self._held[number]
                self._claim(request.spans[0].trace_id, stray.spans)
                request = replace(request, spans=request.spans + stray.spans)
        return request

    def _with_claimed(self, revised: RevisedSpans) -> RevisedSpans:
        """Returns a revision with the detached tools that were assigned to its request earlier."""
        claimed = self._claimed.get(revised.after[0].trace_id, ())
        if not claimed:
            return revised
        return replace(revised, before=revised.before + claimed, after=revised.after + claimed)

    def _claim(self, trace_id: str, spans: _Spans) -> None:
        self._claimed[trace_id] = self._claimed.get(trace_id, ()) + spans
        while len(self._claimed) > _MAX_REQUESTS:
            self._claimed.popitem(last=False)


def _is_detached(assembled: CompletedSpans) -> bool:
    """Whether only tools are at work in a trace."""
    if (
        assembled.span_id is not None or role_of(assembled.spans[0]) in REQUEST_ROLES
    ):  # the usual case, without iteration
        return False
    return has_only_tools(map(role_of, assembled.spans))


_COUNTERS = {
    "late": semconv.LATE_SPANS_COUNTER,
    "too_late": semconv.TOO_LATE_SPANS_COUNTER,
    "duplicates": semconv.DUPLICATE_SPANS_COUNTER,
    "evicted": semconv.EVICTED_COUNTER,
    "unended": semconv.UNENDED_RUNS_COUNTER,
    "unscored": semconv.UNSCORED_SPANS_COUNTER,
    "sampled_out": semconv.SAMPLED_OUT_COUNTER,
    "over_budget": semconv.OVER_BUDGET_COUNTER,
    "invisible": semconv.INVISIBLE_RUNS_COUNTER,
    "reload_failures": semconv.RELOAD_FAILURES_COUNTER,
}
_MAX_SHED_TRACES = 100_000
"""How many traces with dropped spans are recorded while one run is evaluated: the first, which can have other spans in
the queue, and as many of the last dropped spans, whose traces can have spans that are queued next."""


class Scorer(Generic[Live]):
    """Scores runs when they are complete. Thread-safe; runs are evaluated on the calling thread, outside the lock.

    `peek` returns the record of a live span in its current state.
    """

    def __init__(
        self, pipeline: Pipeline, peek: Callable[[Live], SpanRecord], limits: Limits, drop_counters: DropCounters
    ) -> None:
        self.pipeline = pipeline
        self._peek = peek
        self._limits = limits
        self._drop_counters = drop_counters
        self.reset()

    def reset(self) -> None:
        """Resets the state in a forked child: the spans are the parent's, and its threads may hold the lock."""
        self.pipeline.reset()
        self._lock = threading.Lock()
        self._clock = AwakeClock()
        self._assembly: Assembly[Live] = Assembly(
            self._peek, self._limits, is_requested_component=self.pipeline.is_requested_component
        )
        self._detached_tools = DetachedTools(self._limits)
        self._shed_lock = threading.RLock()  # a signal may come while it is held, and its handler may make spans
        self._shed_trace_ids: set[int] = set()
        self._latest_shed_trace_ids: deque[int] = deque(maxlen=_MAX_SHED_TRACES)
        self._shed_spans = 0
        self._published_counts = dict.fromkeys(_COUNTERS, 0)

    @property
    def counts(self) -> AssemblyCounts:
        """The spans and traces that were not processed regularly."""
        return self._assembly.counts

    def __len__(self) -> int:
        """Returns the number of spans in flight."""
        return len(self._assembly)

    def is_in_flight(self, trace_id: int, span_id: int) -> bool:
        """Returns whether the span is in flight."""
        with self._lock:
            return self._assembly.is_in_flight(trace_id, span_id)

    def start_span(
        self, trace_id: int, span_id: int, parent_id: int | None, live: Live, *, remote: bool = False
    ) -> None:
        """Adds a span that started. `remote` means that its parent is in another process, as far as is known."""
        with self._lock:
            self._apply_shed()
            self._assembly.start_span(trace_id, span_id, parent_id, live, self._clock.now(), remote=remote)

    def end_span(self, trace_id: int, span_id: int, record: SpanRecord) -> list[Evaluation]:
        """Scores the runs that a span completed."""
        with self._lock:
            self._apply_shed()
            done = self._assembly.end_span(trace_id, span_id, record, self._clock.now())
            if done:
                done = self._detached_tools.route(done, self._clock.now())
        return self._evaluate_all(done, trace_id) if done else []

    def record_shed(self, trace_id: int, *, spans: int = 1) -> None:
        """Records, without waiting for an evaluation, that spans of a trace were dropped.

        `spans` is the number of dropped starts; 0 if only an end was dropped.
        """
        with self._shed_lock:
            self._shed_spans += spans
            if len(self._shed_trace_ids) < _MAX_SHED_TRACES:
                self._shed_trace_ids.add(trace_id)
            else:
                self._latest_shed_trace_ids.append(trace_id)

    def check_deadlines(self, *, everything: bool = False) -> bool:
        """Scores the runs that are due; returns whether any deadline remains.

        `everything` includes runs that changed just now.
        """
        with self._lock:
            self._apply_shed()
            now = self._clock.now()
            due = self._detached_tools.route(
                self._assembly.collect_due(now, everything=everything), now
            ) + self._detached_tools.collect_due(now)
        self._evaluate_all(due)
        self._publish_counts()
        return self._assembly.has_deadlines or self._detached_tools.has_deadlines

    def release_all(self) -> None:
        """Scores everything in flight unfinished, because the process is about to exit."""
        with self._lock:
            now = self._clock.now()
            due = self._detached_tools.route(self._assembly.release_all(now), now) + self._detached_tools.collect_due(
                now, everything=True
            )
        self._evaluate_all(due)
        self._publish_counts()

    def _evaluate_all(self, assembled_spans: Iterable[AssembledSpans], trace_id: int | None = None) -> list[Evaluation]:
        evaluations: list[Evaluation] = []
        for assembled in assembled_spans:
            runs: list[Run] = []
            evaluations += self.pipeline.evaluate_spans(assembled, runs.append)
            hands_over = trace_id is not None and any(map(_has_handoff, runs))
            if hands_over or any(run.session_id is not None for run in runs):
                with self._lock:
                    self._detached_tools.remember_request(assembled, runs, self._clock.now())
                    if hands_over and trace_id is not None:
                        self._assembly.expect_successor(trace_id)
        return evaluations

    def _apply_shed(self) -> None:
        if not self._shed_trace_ids:
            return
        with self._shed_lock:
            shed = self._shed_trace_ids.union(self._latest_shed_trace_ids)
            self._shed_trace_ids = set()
            self._latest_shed_trace_ids.clear()
            refused, self._shed_spans = self._shed_spans, 0
        self._assembly.counts.unscored += refused
        for trace_id in shed:
            self._assembly.mark_incomplete(trace_id, self._clock.now())

    def _publish_counts(self) -> None:
        """Adds what was dropped since the last call to the counters."""
        with self._lock:
            counts, pipeline = self._assembly.counts, self.pipeline
            now = {name: getattr(counts, name, 0) or getattr(pipeline, name, 0) for name in _COUNTERS}
            new = {name: now[name] - self._published_counts[name] for name in _COUNTERS}
            self._published_counts = now
        for name, number in new.items():
            if number:
                self._drop_counters.add(_COUNTERS[name], number)


def _has_handoff(run: Run) -> bool:
    return any(call.kind == "handoff" for call in run.tool_calls)
