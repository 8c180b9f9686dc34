"""Records Google's Gen AI SDK, which calls Python functions itself, with two instrumentations."""

from __future__ import annotations

import os

from google import genai
from google.genai import types
from openinference.instrumentation.google_genai import GoogleGenAIInstrumentor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.google_genai import GoogleGenAiSdkInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from truth import MODEL, MODEL_URL, TOOLS, answer_all

INSTRUMENTORS = {"opentelemetry": GoogleGenAiSdkInstrumentor, "openinference": GoogleGenAIInstrumentor}


def main() -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
    INSTRUMENTORS[os.environ["INSTRUMENTATION"]]().instrument(tracer_provider=provider)
    client = genai.Client(api_key="none", http_options=types.HttpOptions(base_url=MODEL_URL))
    config = types.GenerateContentConfig(tools=list(TOOLS.values()), system_instruction="You are a shop's assistant.")
    answer_all(lambda text: client.models.generate_content(model=MODEL, contents=text, config=config).text)
    provider.shutdown()


main()
