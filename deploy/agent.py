"""Simulates an agent for compose.yaml: a request every few seconds, one in four without the last tool."""

from __future__ import annotations

import itertools
import time

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

PAUSE_SECONDS = 3.0

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
tracer = provider.get_tracer("shop.agents")


def serve(number: int) -> None:
    """Handle one request."""
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "travel"}
    with tracer.start_as_current_span("invoke_agent travel", attributes=agent):
        for tool in ("search_hotels",) if number % 4 == 0 else ("search_hotels", "book_hotel"):
            call = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
            with tracer.start_as_current_span(f"execute_tool {tool}", attributes=call):
                time.sleep(0.05)


if __name__ == "__main__":
    for number in itertools.count(1):
        serve(number)
        time.sleep(PAUSE_SECONDS)
