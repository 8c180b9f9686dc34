"""Measures the memory of runs in flight, in addition to the live spans that the application holds anyway.

    python benchmarks/memory.py [--runs N] [--check]

N agents run at the same time. Each one has called ten tools, with arguments and results, and has not ended. The script
compares the allocated bytes that Python counts, with a `ScoringProcessor` and without one.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tracemalloc
from collections.abc import Sequence

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

import goldspan
from goldspan import semconv

BUDGET_BYTES = 2_048
"""The budget of a run with ten calls."""
TOOLS = 10
RESULT = '{"hotels": ["Ritz", "Crillon", "Meurice"], "nights": 2, "total": 1290}'


class Nowhere(SpanExporter):
    """Accepts spans, and discards them."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Report success."""
        return SpanExportResult.SUCCESS


def grown(processor: SpanProcessor, runs: int) -> int:
    """Return the bytes that are allocated for that many runs in flight."""
    provider = TracerProvider()
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("agents")
    _begin(tracer, 50)  # create what is allocated only once
    processor.force_flush()
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    live = _begin(tracer, runs)
    processor.force_flush()
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0] - before
    del live
    provider.shutdown()
    return taken


def _begin(tracer: trace.Tracer, runs: int) -> list[trace.Span]:
    """Start agents that have called their tools and have not ended."""
    agents = []
    for number in range(runs):
        question = {semconv.OPERATION: semconv.INVOKE_AGENT, semconv.AGENT_NAME: "travel"}
        agent = tracer.start_span("invoke_agent travel", attributes=question)
        here = trace.set_span_in_context(agent)
        for call in range(TOOLS):
            attributes = {
                semconv.OPERATION: semconv.EXECUTE_TOOL,
                semconv.TOOL_NAME: f"tool_{call}",
                semconv.TOOL_CALL_ARGUMENTS: f'{{"city": "Paris", "nights": {number}}}',
            }
            with tracer.start_as_current_span(f"execute_tool tool_{call}", here, attributes=attributes) as tool:
                tool.set_attribute(semconv.TOOL_CALL_RESULT, RESULT)
        agents.append(agent)
    return agents


def main() -> int:
    """Measure, print, and compare with the budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--check", action="store_true", help="exit with 1 if the budget is exceeded")
    options = parser.parse_args()
    tracemalloc.start()
    bare = grown(BatchSpanProcessor(Nowhere()), options.runs)
    scored = grown(goldspan.ScoringProcessor(then=Nowhere(), sinks=[]), options.runs)
    each = (scored - bare) / options.runs
    verdict = "OK" if each <= BUDGET_BYTES else "MISSED"
    print(f"{options.runs:,} runs in flight, {TOOLS} calls each")
    print(f"  live spans of the application   {bare / options.runs:7.0f} bytes a run")
    print(f"  goldspan                        {each:7.0f} bytes a run   (at most {BUDGET_BYTES})  {verdict}")
    return 1 if options.check and each > BUDGET_BYTES else 0


if __name__ == "__main__":
    sys.exit(main())
