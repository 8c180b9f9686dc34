"""Publishes what scoring dropped as counters."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from goldspan import semconv
from goldspan.gateway.scoring.trace_buffer import TraceBuffer
from goldspan.online.pipeline import Pipeline
from goldspan.sinks import DropCounters


class DropPublisher:
    """Adds the drops of a pipeline and of its trace buffers to the drop counters. The scoring thread calls it."""

    def __init__(self, pipeline: Pipeline, counters: DropCounters) -> None:
        self.counters = counters
        self._pipeline = pipeline
        self._pipeline_counts: dict[str, int] = {}
        self._buffer_counts: WeakKeyDictionary[TraceBuffer, dict[str, int]] = WeakKeyDictionary()

    def publish(self, buffer: TraceBuffer) -> None:
        """Add the drops of the pipeline and of a buffer since the last call."""
        pipeline = self._pipeline
        self._pipeline_counts = self._add(
            {
                semconv.SAMPLED_OUT_COUNTER: pipeline.sampled_out,
                semconv.OVER_BUDGET_COUNTER: pipeline.over_budget,
                semconv.INVISIBLE_RUNS_COUNTER: pipeline.invisible,
                semconv.RELOAD_FAILURES_COUNTER: pipeline.reload_failures,
            },
            self._pipeline_counts,
        )
        self._buffer_counts[buffer] = self._add(
            {semconv.EVICTED_COUNTER: buffer.evicted, semconv.UNSCORED_SPANS_COUNTER: buffer.unscored_spans},
            self._buffer_counts.get(buffer, {}),
        )

    def _add(self, counts: dict[str, int], published: dict[str, int]) -> dict[str, int]:
        for name, count in counts.items():
            self.counters.add(name, count - published.get(name, 0))
        return counts
