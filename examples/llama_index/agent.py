"""An agent of LlamaIndex, scored by goldspan: `python agent.py`."""

import asyncio
from itertools import count
from pathlib import Path

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ToolCallBlock
from llama_index.core.llms import ChatMessage
from llama_index.core.llms.mock import MockFunctionCallingLLM
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import goldspan


def find_order(order_id: int) -> str:
    """Find an order."""
    return f"Order {order_id}: delivered, 30 euros."


def refund(order_id: int) -> str:
    """Refund an order."""
    return f"Order {order_id} is refunded."


ids = count(1)


def call(name: str, **arguments: object) -> ChatMessage:
    block = ToolCallBlock(tool_call_id=f"call-{next(ids)}", tool_name=name, tool_kwargs=arguments)
    return ChatMessage(role="assistant", blocks=[block])


def say(text: str) -> ChatMessage:
    return ChatMessage(role="assistant", content=text)


replies = iter(
    [
        *(call("find_order", order_id=8), say("It was delivered.")),
        *(call("find_order", order_id=7), call("refund", order_id=70), say("You will get 30 euros.")),
    ]
)


def reply(messages: list[ChatMessage], **options: object) -> ChatMessage:
    """Return the next reply of the script."""
    return next(replies)


model = MockFunctionCallingLLM(response_generator=reply, is_chat_model=True)  # in production: OpenAI(model=...)
agent = FunctionAgent(name="support", tools=[find_order, refund], llm=model)


def show(evaluation: goldspan.Evaluation) -> None:
    verdict = {True: "passed", False: "FAILED", None: "not evaluated"}[evaluation.passed]
    print(f"{evaluation.run.input}\n  {evaluation.run.output}\n  {verdict}: {evaluation.reason}")


async def main() -> None:
    for question in ("Where is order 8?", "I want my money back for order 7."):
        await agent.run(question)


trace.set_tracer_provider(TracerProvider())  # in production, with an exporter
LlamaIndexInstrumentor().instrument()
goldspan.instrument(Path(__file__).with_name("goldens.yaml"), sinks=[show])  # in production, without `sinks`
asyncio.run(main())
