"""Records Haystack's agent with OpenInference, which shows tools only in messages."""

from __future__ import annotations

from typing import Any

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import Tool
from haystack.utils import Secret
from openinference.instrumentation.haystack import HaystackInstrumentor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from truth import MODEL, MODEL_URL, TOOLS, answer_all

PARAMETERS = {"get_weather": "city", "look_up_order": "order_id"}


def main() -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
    HaystackInstrumentor().instrument(tracer_provider=provider)
    generator = OpenAIChatGenerator(model=MODEL, api_key=Secret.from_token("none"), api_base_url=f"{MODEL_URL}/v1")
    agent = Agent(chat_generator=generator, tools=[_tool(name) for name in TOOLS], system_prompt="Help people.")

    def answer(text: str) -> str:
        answered: dict[str, Any] = agent.run(messages=[ChatMessage.is_from_user(text)])
        return str(answered["last_message"].text)

    answer_all(answer)
    provider.shutdown()


def _tool(name: str) -> Tool:
    properties = {PARAMETERS[name]: {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return Tool(name=name, description=str(TOOLS[name].__doc__), parameters=schema, function=TOOLS[name])


main()
