"""Agents of the OpenAI Agents SDK that hand over to each other, scored by goldspan: `python agent.py`."""

import json
from itertools import count
from pathlib import Path

import httpx2
from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool
from openai import AsyncOpenAI
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import goldspan


@function_tool
def find_order(order_id: int) -> str:
    """Find an order."""
    return f"Order {order_id}: on its way, 30 euros."


@function_tool
def refund(order_id: int) -> str:
    """Refund an order."""
    return f"Order {order_id} is refunded."


@function_tool
def change_address(order_id: int, address: str) -> str:
    """Change the address of an order."""
    return f"Order {order_id} goes to {address}."


ids = count(1)


def call(name: str, **arguments: object) -> dict:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "tool_calls": [{"id": f"call-{next(ids)}", "type": "function", "function": function}]}


def say(text: str) -> dict:
    return {"role": "assistant", "content": text}


replies = iter(
    [
        *(call("find_order", order_id=7), call("transfer_to_refunds")),  # triage
        *(call("refund", order_id=7), say("You will get 30 euros.")),  # refunds
        *(call("find_order", order_id=8), call("transfer_to_refunds")),  # triage
        *(call("refund", order_id=8), say("Order 8 is refunded. Please order again.")),  # refunds
    ]
)


def respond(request: httpx2.Request) -> httpx2.Response:
    """Reply in the place of the OpenAI API."""
    choice = {"index": 0, "finish_reason": "stop", "message": next(replies)}
    body = {"id": "chat", "object": "chat.completion", "created": 0, "model": "scripted", "choices": [choice]}
    return httpx2.Response(200, json=body)


scripted = AsyncOpenAI(api_key="none", http_client=httpx2.AsyncClient(transport=httpx2.MockTransport(respond)))
model = OpenAIChatCompletionsModel("scripted", scripted)  # in production: "gpt-..."
refunds = Agent(name="refunds", model=model, tools=[refund])
shipping = Agent(name="shipping", model=model, tools=[change_address])
triage = Agent(name="triage", model=model, tools=[find_order], handoffs=[refunds, shipping])


def show(evaluation: goldspan.Evaluation) -> None:
    verdict = {True: "passed", False: "FAILED", None: "not evaluated"}[evaluation.passed]
    print(f"{evaluation.run.input}\n  {evaluation.run.output}\n  {verdict}: {evaluation.reason}")
    for call in evaluation.run.tool_calls:
        print(f"    {call.agent} called {call.name}")


trace.set_tracer_provider(TracerProvider())  # in production, with an exporter
OpenAIAgentsInstrumentor().instrument()
# In production, without `sinks`. Without `units`, each agent is also scored as a component.
goldspan.instrument(Path(__file__).with_name("goldens.yaml"), sinks=[show], units=["request"])

for question in ("I want my money back for order 7.", "Please send order 8 to my office."):
    Runner.run_sync(triage, question)
