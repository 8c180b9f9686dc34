"""Spans of a live process in, evaluations out: the assembly, the pipeline and the counters put together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Generic

from goldspan import semconv
from goldspan.model import Evaluation, Run, SpanRecord
from goldspan.online.assembly import Assembly
from goldspan.online.clock import AwakeClock
from goldspan.online.forest import Live
from goldspan.online.limits import Limits
from goldspan.online.pipeline import Pipeline
from goldspan.online.portions import Counts, Portion
from goldspan.online.strays import Strays
from goldspan.sinks import Losses

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
_SHED_KEPT = 100_000
"""Traces of which something was shed while one run was judged. Beyond it nothing is noted of further ones."""


class Scorer(Generic[Live]):
    """Scores what ends. Any thread may call it; runs are judged on the calling thread, outside of the lock.

    `peek` reads a live span as it is now.
    """

    def __init__(self, pipeline: Pipeline, peek: Callable[[Live], SpanRecord], limits: Limits, losses: Losses) -> None:
        self.pipeline = pipeline
        self._peek = peek
        self._limits = limits
        self._losses = losses
        self.forget()

    def forget(self) -> None:
        """Begin anew: in a forked child, what is in flight is the parent's, and so is perhaps the lock."""
        self.pipeline.forget()
        self._lock = threading.Lock()
        self._clock = AwakeClock()
        self._assembly: Assembly[Live] = Assembly(self._peek, self._limits, watched=self.pipeline.watches)
        self._strays = Strays(self._limits)
        self._shedding = threading.RLock()  # a signal may come while it is held, and its handler may make spans
        self._shed: set[int] = set()
        self._refused = 0
        self._told = dict.fromkeys(_COUNTERS, 0)

    @property
    def counts(self) -> Counts:
        """What did not come as it should."""
        return self._assembly.counts

    def __len__(self) -> int:
        """The number of spans in flight."""
        return len(self._assembly)

    def knows(self, trace_id: int, span_id: int) -> bool:
        """Whether that span is in flight."""
        with self._lock:
            return self._assembly.knows(trace_id, span_id)

    def started(self, trace_id: int, span_id: int, parent_id: int | None, live: Live, *, remote: bool = False) -> None:
        """Take note of a span that started. `remote`: its parent is in another process, as far as is known."""
        with self._lock:
            self._take_losses()
            self._assembly.started(trace_id, span_id, parent_id, live, self._clock.now(), remote=remote)

    def ended(self, trace_id: int, span_id: int, record: SpanRecord) -> list[Evaluation]:
        """Score what ended with a span."""
        with self._lock:
            self._take_losses()
            done = self._assembly.ended(trace_id, span_id, record, self._clock.now())
            if done:
                done = self._strays.route(done, self._clock.now())
        return self._concluded(done, trace_id) if done else []

    def shed(self, trace_id: int, *, spans: int = 1) -> None:
        """Take note, without waiting for what is under way, that not all of a trace will be taken in.

        `spans`: how many of it start and are not taken in; none where one will only be missed as it ends.
        """
        with self._shedding:
            self._refused += spans
            if len(self._shed) < _SHED_KEPT:
                self._shed.add(trace_id)

    def look(self, *, everything: bool = False) -> bool:
        """Score what the time has brought about; whether anything still waits for its time.

        `everything`: also runs that changed just now.
        """
        with self._lock:
            self._take_losses()
            now = self._clock.now()
            due = self._strays.route(self._assembly.due(now, everything=everything), now) + self._strays.due(now)
        self._concluded(due)
        self._publish()
        return self._assembly.waits or self._strays.waits

    def release(self) -> None:
        """Score everything that is in flight as it is: the process is about to end."""
        with self._lock:
            now = self._clock.now()
            due = self._strays.route(self._assembly.release(now), now) + self._strays.due(now, everything=True)
        self._concluded(due)
        self._publish()

    def _concluded(self, portions: Iterable[Portion], trace_id: int | None = None) -> list[Evaluation]:
        evaluations: list[Evaluation] = []
        for portion in portions:
            runs: list[Run] = []
            evaluations += self.pipeline.conclude(portion, runs.append)
            hands_over = trace_id is not None and any(map(_hands_over, runs))
            if hands_over or any(run.session_id is not None for run in runs):
                with self._lock:
                    self._strays.remember(portion, runs, self._clock.now())
                    if hands_over and trace_id is not None:
                        self._assembly.expect_successor(trace_id)
        return evaluations

    def _take_losses(self) -> None:
        if not self._shed:
            return
        with self._shedding:
            shed, self._shed = self._shed, set()
            refused, self._refused = self._refused, 0
        self._assembly.counts.unscored += refused
        for trace_id in shed:
            self._assembly.lose(trace_id, self._clock.now())

    def _publish(self) -> None:
        """Count what was lost since the last time."""
        with self._lock:
            counts, pipeline = self._assembly.counts, self.pipeline
            now = {name: getattr(counts, name, 0) or getattr(pipeline, name, 0) for name in _COUNTERS}
            new = {name: now[name] - self._told[name] for name in _COUNTERS}
            self._told = now
        for name, number in new.items():
            if number:
                self._losses.add(_COUNTERS[name], number)


def _hands_over(run: Run) -> bool:
    return any(call.kind == "handoff" for call in run.tool_calls)
