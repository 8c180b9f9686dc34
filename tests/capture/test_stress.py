"""A long run with late and unended spans and failing tools, sinks and metrics; nothing grows or is lost."""

from __future__ import annotations

import os
import random
import resource
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Span, set_span_in_context

import goldspan
from capture.telemetry import Install
from goldspan import Comparison, Evaluation, Limits, _guard, semconv

REQUESTS = int(1_000_000 * float(os.environ.get("STRESS", "1")))
"""How many requests are served; `STRESS=0.01` shortens it."""
TOGETHER = 500
"""Requests between two flushes, so that the scoring queue does not overflow."""
LIMITS = Limits(idle=20.0, lifetime=60.0, late=10.0, settle=0.01)
"""Short deadlines, so that runs are released many times."""

GOLDENS = [goldspan.Golden("trip", "Paris, please.", (goldspan.ExpectedTool("search"), goldspan.ExpectedTool("book")))]


class Counting(SpanExporter):
    """Counts what is exported."""

    def __init__(self) -> None:
        self.spans: Counter[str] = Counter()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans.update(span.name for span in spans)
        return SpanExportResult.SUCCESS


class Unreliable:
    """A sink that counts evaluations and sometimes fails."""

    def __init__(self, chance: Callable[[float], bool]) -> None:
        self.counts: Counter[str] = Counter()
        self._chance = chance

    def submit(self, evaluation: Evaluation) -> None:
        if self._chance(0.01):
            self.counts["failed"] += 1
            raise OSError("disk full")
        self.counts[f"revision {evaluation.revision}"] += 1


@goldspan.trace
def search(city: str) -> str:
    return f"hotels in {city}"


@goldspan.trace
def book(hotel: str, fails: bool) -> str:
    if fails:
        raise ConnectionError(hotel)
    return hotel


class Application:
    """Serves requests with late spans, unended spans and errors."""

    def __init__(self, chance: Callable[[float], bool]) -> None:
        self.chance = chance
        self.done: Counter[str] = Counter()
        self.late: list[Span] = []
        self.never: list[Any] = []

    @goldspan.trace(kind="agent", name="travel")
    def serve(self, question: str) -> str:
        search("Paris")
        try:
            book("Ritz", fails=self.chance(0.01))
        except ConnectionError:
            self.done["tools that failed"] += 1
        tracer, here = trace.get_tracer("app"), trace.get_current_span()
        if self.chance(0.05):
            tracer.start_span("never")
            self.done["never ended"] += 1
        if self.chance(0.05):
            self.late.append(here)
        return "done"

    def finish_late(self) -> None:
        """Run the late tool of each request that has one."""
        tracer = trace.get_tracer("app")
        for agent in self.late:
            attributes = {semconv.OPERATION: semconv.EXECUTE_TOOL, semconv.TOOL_NAME: "notify"}
            tracer.start_span("late", set_span_in_context(agent), attributes=attributes).end()
            self.done["late"] += 1
        self.late.clear()


@pytest.mark.stress
@pytest.mark.skipif(sys.platform == "win32", reason="there is no resource module on Windows")
def test_memory_is_bounded_and_every_span_is_accounted_for(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOLDSPAN_STRICT", "0")
    draw = random.Random(7)

    def chance(share: float) -> bool:
        return draw.random() < share

    failed = Counter[str]()

    def shaky(seen: Comparison) -> float:
        if seen.run.run_id != "trial" and draw_metric.random() < 0.01:
            failed["metric"] += 1
            raise ZeroDivisionError
        return 1.0

    draw_metric, draw_sink = random.Random(8), random.Random(9)
    exporter, sink, reader = Counting(), Unreliable(lambda share: draw_sink.random() < share), InMemoryMetricReader()
    processor = goldspan.ScoringProcessor(
        GOLDENS,
        then=BatchSpanProcessor(exporter, max_queue_size=100_000),
        metrics=["tool_correctness", "argument_correctness", ("shaky", shaky)],
        sinks=[sink],
        meter_provider=MeterProvider([reader]),
        limits=LIMITS,
    )
    provider = install(processor)
    application = Application(chance)
    sizes: list[int] = []
    for number in range(1, REQUESTS + 1):
        assert application.serve("Paris, please.") == "done"
        if number % TOGETHER == 0:
            assert processor.force_flush()
            application.finish_late()
            assert processor.force_flush()
        if number % (REQUESTS // 20) == 0:
            sizes.append(_resident())
            print(f"{number:>9,} requests, {sizes[-1] / 1e6:.0f} MB resident", flush=True)
    assert processor.force_flush()
    provider.shutdown()

    done, counts = application.done, processor._scorer.counts
    assert exporter.spans == {
        "execute_tool search": REQUESTS, "execute_tool book": REQUESTS, "invoke_agent travel": REQUESTS,
        "late": done["late"],
    }  # fmt: skip
    assert sink.counts["revision 1"] + sink.counts["revision 2"] + sink.counts["failed"] == REQUESTS + done["late"]
    assert counts.late == done["late"]
    assert (counts.too_late, counts.duplicates, counts.evicted, counts.unscored) == (0, 0, 0, 0)
    assert _guard.failure_counts == {"submit to Unreliable": sink.counts["failed"]}
    assert _counted(reader) == {semconv.LATE_SPANS_COUNTER: done["late"]}
    assert failed["metric"] > 0
    assert done["never ended"] > 0
    print(f"{dict(done)}, {dict(sink.counts)}, metrics that failed: {failed['metric']}")
    first, last = max(sizes[: len(sizes) // 4]), max(sizes[-len(sizes) // 4 :])
    assert last <= first * 1.05 + 8e6, f"resident memory grew from {first / 1e6:.0f} to {last / 1e6:.0f} MB"


def _counted(reader: InMemoryMetricReader) -> dict[str, int]:
    """The drop counters that are not zero."""
    data = reader.get_metrics_data()
    found: dict[str, int] = {}
    scopes = [scope for process in data.resource_metrics for scope in process.scope_metrics] if data else []
    for metric in (metric for scope in scopes for metric in scope.metrics):
        total = sum(getattr(point, "value", 0) for point in metric.data.data_points)
        if total and metric.name != semconv.ERRORS_COUNTER:
            found[metric.name] = total
    return found


def _resident() -> int:
    """Bytes of memory in use."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
