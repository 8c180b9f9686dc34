"""Records Braintrust's span processor and exporter: what they add to and omit from another instrumentation's spans.

Braintrust's own spans for Python are sent to its service in a format of its own, so the spans here are those of
OpenTelemetry's instrumentation of Google's Gen AI SDK, below a span of the program.
"""

from __future__ import annotations

from braintrust.otel import BraintrustSpanProcessor
from google import genai
from google.genai import types
from opentelemetry.instrumentation.google_genai import GoogleGenAiSdkInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from truth import MODEL, MODEL_URL, RECEIVER_URL, TOOLS, answer_all


def main() -> None:
    provider = TracerProvider()
    processor = BraintrustSpanProcessor(
        api_key="none", parent="project_name:recording", api_url=RECEIVER_URL, filter_ai_spans=True
    )
    provider.add_span_processor(processor)
    GoogleGenAiSdkInstrumentor().instrument(tracer_provider=provider)
    client = genai.Client(api_key="none", http_options=types.HttpOptions(base_url=MODEL_URL))
    config = types.GenerateContentConfig(tools=list(TOOLS.values()))
    tracer = provider.get_tracer("program")

    def answer(text: str) -> str:
        with tracer.start_as_current_span("answer"), tracer.start_as_current_span("ask the model"):
            return client.models.generate_content(model=MODEL, contents=text, config=config).text

    answer_all(answer)
    provider.shutdown()


main()
