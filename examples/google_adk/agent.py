"""An agent of Google's Agent Development Kit, scored by goldspan: `python agent.py`."""

import asyncio
import os
from collections.abc import AsyncGenerator
from pathlib import Path

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai.types import Content, GenerateContentResponseUsageMetadata, Part
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import goldspan


def find_order(order_id: int) -> str:
    """Find an order."""
    return f"Order {order_id}: delivered, 30 euros."


def refund(order_id: int) -> str:
    """Refund an order."""
    return f"Order {order_id} is refunded."


replies = iter(
    [
        Part.from_function_call(name="find_order", args={"order_id": 8}),
        Part(text="It was delivered."),
        Part.from_function_call(name="find_order", args={"order_id": 7}),
        Part.from_function_call(name="refund", args={"order_id": 70}),
        Part(text="You will get 30 euros."),
    ]
)


class ScriptedModel(BaseLlm):
    """Replies from a script. In production: `model="gemini-..."`."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Yield the next reply."""
        usage = GenerateContentResponseUsageMetadata(prompt_token_count=1, candidates_token_count=1)
        yield LlmResponse(content=Content(role="model", parts=[next(replies)]), usage_metadata=usage)


agent = LlmAgent(name="support", model=ScriptedModel(model="scripted"), tools=[find_order, refund])


def show(evaluation: goldspan.Evaluation) -> None:
    verdict = {True: "passed", False: "FAILED", None: "not evaluated"}[evaluation.passed]
    print(f"{evaluation.run.input}\n  {evaluation.run.output}\n  {verdict}: {evaluation.reason}")


async def main() -> None:
    runner = InMemoryRunner(agent)
    session = await runner.session_service.create_session(app_name=runner.app_name, user_id="ada")
    for question in ("Where is order 8?", "I want my money back for order 7."):
        message = Content(role="user", parts=[Part(text=question)])
        async for _ in runner.run_async(user_id="ada", session_id=session.id, new_message=message):
            pass


os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "SPAN_ONLY"  # messages, arguments and results
trace.set_tracer_provider(TracerProvider())  # in production, with an exporter
# In production, without `sinks`. Without `units`, the agent inside ADK's workflow is also scored as a component.
goldspan.instrument(Path(__file__).with_name("goldens.yaml"), sinks=[show], units=["request"])
asyncio.run(main())
