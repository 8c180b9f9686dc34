"""Spans of a live process in, evaluations out: the assembly, the pipeline and the counters put together."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Generic

from goldspan import semconv
from goldspan.conventions.span_facts import REQUEST_ROLES
from goldspan.extraction import correlation_ids, role_of
from goldspan.model import Evaluation, Run, SpanRecord
from goldspan.online.assembled_spans import AssembledSpans, AssemblyCounts, CompletedSpans, RevisedSpans, RunRevisions
from goldspan.online.assembly import Assembly
from goldspan.online.limits import Limits
from goldspan.online.pipeline import Pipeline
from goldspan.online.span_forest import Live
from goldspan.online.worker import AwakeClock
from goldspan.sinks import DropCounters

_MAX_REQUESTS = 256
"""Requests with a session that are kept for the tools that come after their end."""

_Spans = tuple[SpanRecord, ...]


@dataclass(frozen=True, slots=True)
class _RecentRequest:
    """A request that was given out, and the ids of its spans."""

    spans: _Spans
    revisions: RunRevisions
    released_at: float


class DetachedTools:
    """Portions on their way from the assembly to the pipeline. Not for two threads at once; `now` is in seconds."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held: OrderedDict[int, tuple[CompletedSpans, float]] = OrderedDict()
        self._requests: OrderedDict[Hashable, _RecentRequest] = OrderedDict()
        self._claimed: OrderedDict[str, _Spans] = OrderedDict()
        self._next_number = 0

    @property
    def has_deadlines(self) -> bool:
        """Whether anything in here depends on the time."""
        return bool(self._held or self._requests)

    def route(self, portions: Iterable[AssembledSpans], now: float) -> list[AssembledSpans]:
        """The portions with the strays that belong to them; strays whose request is not there yet are held back."""
        routed: list[AssembledSpans] = []
        for portion in portions:
            if isinstance(portion, RevisedSpans):
                routed.append(self._with_claimed(portion))
            elif portion.unit != "request":
                routed.append(portion)
            elif not _has_only_tools(portion):
                routed.append(self._with_detached(portion))
            elif (placed := self._attach_or_hold(portion, now)) is not None:
                routed.append(placed)
        return routed

    def remember_request(self, portion: AssembledSpans, runs: Iterable[Run], now: float) -> None:
        """Keep a request that has a session, for tools of it that end later."""
        if isinstance(portion, RevisedSpans):
            return
        for run in runs:
            if run.unit == "request" and run.session_id is not None:
                key = ("session", run.service, run.session_id)
                self._requests[key] = _RecentRequest(portion.spans, portion.revisions, now)
                self._requests.move_to_end(key)
                while len(self._requests) > _MAX_REQUESTS:
                    self._requests.popitem(last=False)

    def collect_due(self, now: float, *, everything: bool = False) -> list[AssembledSpans]:
        """Strays whose request never came: they are requests of their own."""
        late = [
            number
            for number, (_, since) in self._held.items()
            if everything or now - since >= self._limits.idle or len(self._held) > self._limits.max_traces
        ]
        for key in [key for key, each in self._requests.items() if now - each.released_at >= self._limits.late]:
            del self._requests[key]
        return [self._held.pop(number)[0] for number in late]

    def _attach_or_hold(self, stray: CompletedSpans, now: float) -> AssembledSpans | None:
        """A stray as a change of its request, where that was given out before; by itself, where nothing tells whose.

        `None`: it waits.
        """
        keys = list(_correlation_keys(stray.spans))
        if not keys:
            return stray
        for key in keys:
            request = self._requests.get(key)
            if request is not None and _started_during(stray.spans, request.spans):
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
        """A request with the strays that began while it was at work."""
        if not self._held:
            return request
        keys = frozenset(_correlation_keys(request.spans))
        for number, (stray, _) in list(self._held.items()):
            if not keys.isdisjoint(_correlation_keys(stray.spans)) and _started_during(stray.spans, request.spans):
                del self._held[number]
                self._claim(request.spans[0].trace_id, stray.spans)
                request = replace(request, spans=request.spans + stray.spans)
        return request

    def _with_claimed(self, revised: RevisedSpans) -> RevisedSpans:
        """What changed, with the strays that were claimed before."""
        claimed = self._claimed.get(revised.after[0].trace_id, ())
        if not claimed:
            return revised
        return replace(revised, before=revised.before + claimed, after=revised.after + claimed)

    def _claim(self, trace_id: str, spans: _Spans) -> None:
        self._claimed[trace_id] = self._claimed.get(trace_id, ()) + spans
        while len(self._claimed) > _MAX_REQUESTS:
            self._claimed.popitem(last=False)


def _has_only_tools(portion: CompletedSpans) -> bool:
    """Whether nobody is at work in a trace but tools."""
    if portion.span_id is not None:
        return False
    tools = False
    for span in portion.spans:  # what stands for a request comes first, and most often settles it
        role = role_of(span)
        if role in REQUEST_ROLES or role == "model":
            return False
        tools = tools or role == "tool"
    return tools


def _correlation_keys(spans: Iterable[SpanRecord]) -> Iterator[Hashable]:
    """The ids by which the spans of one service may know each other."""
    return (key for span in spans for key in correlation_ids(span))


def _started_during(stray: _Spans, request: _Spans) -> bool:
    start = min((span.start_ns for span in stray if span.start_ns is not None), default=None)
    starts = [span.start_ns for span in request if span.start_ns is not None]
    ends = [span.end_ns for span in request if span.end_ns is not None]
    return start is not None and bool(starts and ends) and min(starts) <= start <= max(ends)


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
"""Traces of which something was shed while one run was judged. Beyond it nothing is noted of further ones."""


class Scorer(Generic[Live]):
    """Scores what ends. Any thread may call it; runs are judged on the calling thread, outside of the lock.

    `peek` reads a live span as it is now.
    """

    def __init__(
        self, pipeline: Pipeline, peek: Callable[[Live], SpanRecord], limits: Limits, losses: DropCounters
    ) -> None:
        self.pipeline = pipeline
        self._peek = peek
        self._limits = limits
        self._losses = losses
        self.reset()

    def reset(self) -> None:
        """Begin anew: in a forked child, what is in flight is the parent's, and so is perhaps the lock."""
        self.pipeline.reset()
        self._lock = threading.Lock()
        self._clock = AwakeClock()
        self._assembly: Assembly[Live] = Assembly(
            self._peek, self._limits, is_requested_component=self.pipeline.is_requested_component
        )
        self._detached_tools = DetachedTools(self._limits)
        self._shed_lock = threading.RLock()  # a signal may come while it is held, and its handler may make spans
        self._shed_trace_ids: set[int] = set()
        self._shed_spans = 0
        self._published_counts = dict.fromkeys(_COUNTERS, 0)

    @property
    def counts(self) -> AssemblyCounts:
        """What did not come as it should."""
        return self._assembly.counts

    def __len__(self) -> int:
        """The number of spans in flight."""
        return len(self._assembly)

    def is_in_flight(self, trace_id: int, span_id: int) -> bool:
        """Whether that span is in flight."""
        with self._lock:
            return self._assembly.is_in_flight(trace_id, span_id)

    def start_span(
        self, trace_id: int, span_id: int, parent_id: int | None, live: Live, *, remote: bool = False
    ) -> None:
        """Take note of a span that started. `remote`: its parent is in another process, as far as is known."""
        with self._lock:
            self._apply_shed()
            self._assembly.start_span(trace_id, span_id, parent_id, live, self._clock.now(), remote=remote)

    def end_span(self, trace_id: int, span_id: int, record: SpanRecord) -> list[Evaluation]:
        """Score what ended with a span."""
        with self._lock:
            self._apply_shed()
            done = self._assembly.end_span(trace_id, span_id, record, self._clock.now())
            if done:
                done = self._detached_tools.route(done, self._clock.now())
        return self._evaluate_all(done, trace_id) if done else []

    def record_shed(self, trace_id: int, *, spans: int = 1) -> None:
        """Take note, without waiting for what is under way, that not all of a trace will be taken in.

        `spans`: how many of it start and are not taken in; none where one will only be missed as it ends.
        """
        with self._shed_lock:
            self._shed_spans += spans
            if len(self._shed_trace_ids) < _MAX_SHED_TRACES:
                self._shed_trace_ids.add(trace_id)

    def check_deadlines(self, *, everything: bool = False) -> bool:
        """Score what the time has brought about; whether anything still waits for its time.

        `everything`: also runs that changed just now.
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
        """Score everything that is in flight as it is: the process is about to end."""
        with self._lock:
            now = self._clock.now()
            due = self._detached_tools.route(self._assembly.release_all(now), now) + self._detached_tools.collect_due(
                now, everything=True
            )
        self._evaluate_all(due)
        self._publish_counts()

    def _evaluate_all(self, portions: Iterable[AssembledSpans], trace_id: int | None = None) -> list[Evaluation]:
        evaluations: list[Evaluation] = []
        for portion in portions:
            runs: list[Run] = []
            evaluations += self.pipeline.evaluate_spans(portion, runs.append)
            hands_over = trace_id is not None and any(map(_has_handoff, runs))
            if hands_over or any(run.session_id is not None for run in runs):
                with self._lock:
                    self._detached_tools.remember_request(portion, runs, self._clock.now())
                    if hands_over and trace_id is not None:
                        self._assembly.expect_successor(trace_id)
        return evaluations

    def _apply_shed(self) -> None:
        if not self._shed_trace_ids:
            return
        with self._shed_lock:
            shed, self._shed_trace_ids = self._shed_trace_ids, set()
            refused, self._shed_spans = self._shed_spans, 0
        self._assembly.counts.unscored += refused
        for trace_id in shed:
            self._assembly.mark_incomplete(trace_id, self._clock.now())

    def _publish_counts(self) -> None:
        """Count what was lost since the last time."""
        with self._lock:
            counts, pipeline = self._assembly.counts, self.pipeline
            now = {name: getattr(counts, name, 0) or getattr(pipeline, name, 0) for name in _COUNTERS}
            new = {name: now[name] - self._published_counts[name] for name in _COUNTERS}
            self._published_counts = now
        for name, number in new.items():
            if number:
                self._losses.add(_COUNTERS[name], number)


def _has_handoff(run: Run) -> bool:
    return any(call.kind == "handoff" for call in run.tool_calls)
