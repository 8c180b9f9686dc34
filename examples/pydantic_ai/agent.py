"""An agent of pydantic-ai, scored by goldspan: `python agent.py`."""

from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import goldspan

script = iter(
    [
        ToolCallPart("find_order", {"order_id": 8}),
        TextPart("It was delivered."),
        ToolCallPart("refund", {"order_id": 7}),
        TextPart("You will get 30 euros."),
    ]
)


def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse([next(script)])


agent = Agent(FunctionModel(reply), name="support")  # in production: Agent("openai:...")


@agent.tool_plain
def find_order(order_id: int) -> str:
    """Find an order."""
    return f"Order {order_id}: delivered, 30 euros."


@agent.tool_plain
def refund(order_id: int) -> str:
    """Refund an order."""
    return f"Order {order_id} is refunded."


def show(evaluation: goldspan.Evaluation) -> None:
    verdict = {True: "passed", False: "FAILED", None: "not evaluated"}[evaluation.passed]
    print(f"{evaluation.run.input}\n  {evaluation.run.output}\n  {verdict}: {evaluation.reason}")


trace.set_tracer_provider(TracerProvider())  # in production, with an exporter
Agent.instrument_all()
goldspan.instrument(Path(__file__).with_name("goldens.yaml"), sinks=[show])  # in production, without `sinks`

for question in ("Where is order 8?", "I want my money back for order 7."):
    agent.run_sync(question)
