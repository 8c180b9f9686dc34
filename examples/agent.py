"""Scores decorated tools, an agent and a component live: `python examples/agent.py`."""

from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import goldspan


@goldspan.trace
def search_policies(topic: str) -> list[str]:
    return [f"{topic}-2026"]


@goldspan.trace
def read_policy(policy: str) -> str:
    return f"{policy}: free until 24 hours before arrival"


@goldspan.trace
def cancel_booking(booking: str) -> str:
    return f"cancelled {booking}"


@goldspan.trace
def list_bookings(user: str) -> list[str]:
    return ["BK-1"]


@goldspan.trace(kind="component")
def look_up_policy(topic: str) -> str:
    return read_policy(search_policies(topic)[0])


@goldspan.trace(kind="agent")
def agent(question: str) -> str:
    (booking,) = list_bookings("ana")
    look_up_policy("cancellation")
    return cancel_booking(booking)


exporter = InMemorySpanExporter()  # in production: OTLPSpanExporter()
provider = TracerProvider()
provider.add_span_processor(
    goldspan.ScoringProcessor(Path(__file__).with_name("goldens.yaml"), then=SimpleSpanProcessor(exporter))
)
trace.set_tracer_provider(provider)

agent("Which bookings do I have?")

for span in exporter.get_finished_spans():
    attributes = span.attributes or {}
    if "goldspan.passed" in attributes:
        print(f"{span.name}: passed={attributes['goldspan.passed']}. {attributes['goldspan.reason']}")
