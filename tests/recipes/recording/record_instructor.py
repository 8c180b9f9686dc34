"""Records Instructor and OpenAI's client below it with OpenInference.

Instructor has the model fill in a form, which it offers as a tool, and calls nothing itself: the program calls what the
form asks for, in functions that OpenInference decorates.
"""

from __future__ import annotations

from typing import Any

import instructor
from openai import OpenAI
from openinference.instrumentation import OITracer, TraceConfig
from openinference.instrumentation.instructor import InstructorInstrumentor
from openinference.instrumentation.openai import OpenAIInstrumentor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from pydantic import BaseModel
from truth import MODEL, MODEL_URL, TOOLS, answer_all


class Call(BaseModel):
    """A function to be called."""

    name: str
    arguments: dict[str, str]


class Step(BaseModel):
    """What is to be done next: call functions or, in the end, answer."""

    calls: list[Call]
    answer: str | None


def main() -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
    OpenAIInstrumentor().instrument(tracer_provider=provider)
    InstructorInstrumentor().instrument(tracer_provider=provider)
    tracer = OITracer(provider.get_tracer("program"), TraceConfig())
    client = instructor.from_openai(OpenAI(api_key="none", base_url=f"{MODEL_URL}/v1"))
    tools = {name: tracer.tool(tool) for name, tool in TOOLS.items()}

    @tracer.agent
    def assistant(text: str) -> str:
        messages: list[Any] = [{"role": "user", "content": text}]
        while True:
            step = client.create(model=MODEL, messages=messages, response_model=Step, max_retries=1)
            if step.answer is not None:
                return step.answer
            messages.append({"role": "assistant", "content": step.model_dump_json()})
            done = [_done(tools[call.name], call.arguments) for call in step.calls]
            messages.append({"role": "user", "content": f"Results: {done}"})

    answer_all(assistant)
    provider.shutdown()


def _done(tool: Any, arguments: dict[str, str]) -> Any:
    try:
        return tool(**arguments)
    except TimeoutError as error:
        return f"Error: {error}"


main()
