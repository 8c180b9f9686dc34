"""Records OpenAI's Agents SDK, whose spans Weave's integration converts to OpenTelemetry."""

from __future__ import annotations

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_trace_processors
from openai import AsyncOpenAI
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from truth import MODEL, MODEL_URL, TOOLS, answer_all
from weave.integrations.openai_agents.otel_processor import WeaveOtelTracingProcessor


@function_tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return str(TOOLS["get_weather"](city=city))


@function_tool
def look_up_order(order_id: str) -> str:
    """The status of an order."""
    return str(TOOLS["look_up_order"](order_id=order_id))


def main() -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    set_trace_processors([WeaveOtelTracingProcessor()])
    model = OpenAIChatCompletionsModel(MODEL, AsyncOpenAI(api_key="none", base_url=f"{MODEL_URL}/v1"))
    agent = Agent("assistant", "You are a shop's assistant.", model=model, tools=[get_weather, look_up_order])
    answer_all(lambda text: Runner.run_sync(agent, text).final_output)
    provider.shutdown()


main()
