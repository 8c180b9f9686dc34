"""An agent of smolagents, scored by goldspan: `python agent.py`."""

from itertools import count
from pathlib import Path

from openinference.instrumentation.smolagents import SmolagentsInstrumentor
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from smolagents import ChatMessage, LogLevel, Model, ToolCallingAgent, tool
from smolagents.models import ChatMessageToolCall, ChatMessageToolCallFunction

import goldspan


@tool
def find_order(order_id: int) -> str:
    """Find an order.

    Args:
        order_id: The number of the order.
    """
    return f"Order {order_id}: delivered, 30 euros."


@tool
def refund(order_id: int) -> str:
    """Refund an order.

    Args:
        order_id: The number of the order.
    """
    return f"Order {order_id} is refunded."


ids = count(1)


def call(name: str, **arguments: object) -> ChatMessage:
    function = ChatMessageToolCallFunction(arguments, name)
    return ChatMessage("assistant", tool_calls=[ChatMessageToolCall(function, f"call-{next(ids)}", "function")])


class ScriptedModel(Model):
    """Replies from a script. In production: `InferenceClientModel()`."""

    replies = iter(
        [
            *(call("find_order", order_id=8), call("final_answer", answer="It was delivered.")),
            *(call("refund", order_id=7), call("final_answer", answer="You will get 30 euros.")),
        ]
    )

    def generate(self, messages: list[ChatMessage], **options: object) -> ChatMessage:
        """Return the next reply."""
        return next(self.replies)


agent = ToolCallingAgent([find_order, refund], ScriptedModel(), name="support", verbosity_level=LogLevel.OFF)


def show(evaluation: goldspan.Evaluation) -> None:
    verdict = {True: "passed", False: "FAILED", None: "not evaluated"}[evaluation.passed]
    print(f"{evaluation.run.input}\n  {evaluation.run.output}\n  {verdict}: {evaluation.reason}")


trace.set_tracer_provider(TracerProvider())  # in production, with an exporter
SmolagentsInstrumentor().instrument()
goldspan.instrument(Path(__file__).with_name("goldens.yaml"), sinks=[show])  # in production, without `sinks`

for question in ("Where is order 8?", "I want my money back for order 7."):
    agent.run(question)
