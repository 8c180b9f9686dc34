"""What capturing and scoring cost the application, as ratios to bare OpenTelemetry spans.

    python benchmarks/overhead.py [--rounds N]

One request is an agent's span around ten tool calls. *Bare*: the same eleven spans made with the OpenTelemetry API,
with three attributes each, exported in batches to nowhere. The variants run in turn, round after round; medians are
shown.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

import goldspan
from goldspan.model import ExpectedTool, Golden

TOOLS = 10
REQUESTS = 100
QUESTION = "Find a hotel in Paris and book the cheapest one."
NAMES = ("search_hotels", "compare_prices", "check_dates", "book_hotel", "send_email")
GOLDEN = Golden("g", QUESTION, tuple(ExpectedTool(name) for name in NAMES))


class Nowhere(SpanExporter):
    """Takes spans and does nothing with them."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Say that they have arrived."""
        return SpanExportResult.SUCCESS


def tool(city: str, nights: int) -> dict[str, object]:
    return {"city": city, "nights": nights, "price": 90}


TRACED = [goldspan.trace(name=NAMES[number % len(NAMES)])(tool) for number in range(TOOLS)]


@goldspan.trace(kind="agent")
def agent(question: str) -> str:
    for traced in TRACED:
        traced("Paris", nights=2)
    return "booked"


def bare_agent(tracer: trace.Tracer, attributes: dict[str, str], tools: Sequence[tuple[str, dict[str, str]]]) -> None:
    with tracer.start_as_current_span("invoke_agent agent", attributes=attributes):
        for name, tool_attributes in tools:
            with tracer.start_as_current_span(name, attributes=tool_attributes):
                tool("Paris", nights=2)


def exporting() -> SpanProcessor:
    return BatchSpanProcessor(Nowhere(), max_queue_size=1_000_000)


def scoring() -> SpanProcessor:
    return goldspan.ScoringProcessor([GOLDEN], then=exporting())


def variants() -> dict[str, Callable[[], None]]:
    """Each runs one request."""
    found: dict[str, Callable[[], None]] = {}

    def add(name: str, processor: SpanProcessor, request: Callable[[TracerProvider], Callable[[], None]]) -> None:
        provider = TracerProvider()
        provider.add_span_processor(processor)
        found[name] = request(provider)

    add("bare spans", exporting(), _bare)
    add("@goldspan.trace", exporting(), _decorated)
    add("bare spans, scored", scoring(), _bare)
    add("@goldspan.trace, scored", scoring(), _decorated)
    return found


def _bare(provider: TracerProvider) -> Callable[[], None]:
    tracer = provider.get_tracer("bare")
    messages = f'[{{"role": "user", "parts": [{{"type": "text", "content": "{QUESTION}"}}]}}]'
    agent_attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "agent",
        "gen_ai.input.messages": messages,
    }
    tools = [
        (
            f"execute_tool {NAMES[number % len(NAMES)]}",
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": NAMES[number % len(NAMES)],
                "gen_ai.tool.call.arguments": '{"city": "Paris", "nights": 2}',
            },
        )
        for number in range(TOOLS)
    ]
    return lambda: bare_agent(tracer, agent_attributes, tools)


def _decorated(provider: TracerProvider) -> Callable[[], None]:
    def request() -> None:
        # The decorator takes the global provider, of which a process has one; here they take turns.
        trace._TRACER_PROVIDER = provider
        agent(QUESTION)

    return request


def measure(rounds: int) -> dict[str, float]:
    """Microseconds a span of each variant: medians over interleaved rounds."""
    requests = variants()
    taken: dict[str, list[float]] = {name: [] for name in requests}
    for round_number in range(rounds + 1):
        for name, request in requests.items():
            request()
            began = time.perf_counter()
            for _ in range(REQUESTS):
                request()
            if round_number:  # the first is to warm up
                taken[name].append((time.perf_counter() - began) / REQUESTS / (TOOLS + 1) * 1e6)
    return {name: statistics.median(times) for name, times in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    figures = measure(rounds)
    print(f"{TOOLS} tool calls a request, medians of {rounds} interleaved rounds of {REQUESTS} requests")
    for name, microseconds in figures.items():
        print(f"  {name:26} {microseconds:6.1f} us a span   {microseconds / figures['bare spans']:.2f}")


if __name__ == "__main__":
    main()
