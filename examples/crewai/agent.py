"""A crew of CrewAI, scored by goldspan: `python agent.py`."""

import json
import os
from itertools import count
from pathlib import Path

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false"}  # nothing is sent to CrewAI

from crewai import Agent, BaseLLM, Crew, Task
from crewai.tools import tool
from openinference.instrumentation.crewai import CrewAIInstrumentor
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import goldspan


@tool("find_order")
def find_order(order_id: int) -> str:
    """Find an order."""
    return f"Order {order_id}: delivered, 30 euros."


@tool("refund")
def refund(order_id: int) -> str:
    """Refund an order."""
    return f"Order {order_id} is refunded."


ids = count(1)


def call(name: str, **arguments: object) -> list[dict]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return [{"id": f"call-{next(ids)}", "type": "function", "function": function}]


replies = iter(
    [
        *(call("find_order", order_id=8), "It was delivered."),
        *(call("refund", order_id=7), "You will get 30 euros."),
    ]
)


class ScriptedModel(BaseLLM):
    """Replies from a script. In production: `LLM(model=...)`."""

    def call(self, messages: list, tools: list | None = None, **options: object) -> list[dict] | str:
        """Return the next reply."""
        return next(replies)

    def supports_function_calling(self) -> bool:
        """State that replies may contain tool calls."""
        return True

    def get_input_tokens_count(self, *request: object, **options: object) -> int:
        """Count the tokens of a request, as a real model does."""
        return 1


agent = Agent(
    role="support",
    goal="Answer customers.",
    backstory="You work for a shop.",
    tools=[find_order, refund],
    llm=ScriptedModel(model="scripted"),
)
task = Task(description="{question}", expected_output="A short answer.", agent=agent)
crew = Crew(name="support", agents=[agent], tasks=[task])


def show(evaluation: goldspan.Evaluation) -> None:
    verdict = {True: "passed", False: "FAILED", None: "not evaluated"}[evaluation.passed]
    print(f"{evaluation.run.input}\n  {evaluation.run.output}\n  {verdict}: {evaluation.reason}")


trace.set_tracer_provider(TracerProvider())  # in production, with an exporter
CrewAIInstrumentor().instrument()
# In production, without `sinks`. Without `units`, the agent inside the crew is also scored as a component.
goldspan.instrument(Path(__file__).with_name("goldens.yaml"), sinks=[show], units=["request"])

for question in ("Where is order 8?", "I want my money back for order 7."):
    crew.kickoff(inputs={"question": question})
