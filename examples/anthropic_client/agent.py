"""A loop around the client of Anthropic, scored by goldspan: `python agent.py`."""

from itertools import count
from pathlib import Path

import httpx2
from anthropic import Anthropic
from openinference.instrumentation.anthropic import AnthropicInstrumentor
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import goldspan


@goldspan.trace
def find_order(order_id: int) -> str:
    return f"Order {order_id}: delivered, 30 euros."


@goldspan.trace
def refund(order_id: int) -> str:
    return f"Order {order_id} is refunded."


TOOLS = {"find_order": find_order, "refund": refund}
SCHEMA = {"type": "object", "properties": {"order_id": {"type": "integer"}}, "required": ["order_id"]}
DEFINITIONS = [{"name": name, "input_schema": SCHEMA} for name in TOOLS]


@goldspan.trace(kind="agent", name="support")
def answer(question: str) -> str:
    messages = [{"role": "user", "content": question}]
    while True:
        message = client.messages.create(model="claude", max_tokens=1000, messages=messages, tools=DEFINITIONS)
        messages.append({"role": "assistant", "content": message.content})
        if message.stop_reason != "tool_use":
            return message.content[0].text
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": TOOLS[block.name](**block.input)}
            for block in message.content
            if block.type == "tool_use"
        ]
        messages.append({"role": "user", "content": results})


ids = count(1)


def call(name: str, **arguments: object) -> dict:
    content = [{"type": "tool_use", "id": f"call-{next(ids)}", "name": name, "input": arguments}]
    return {"stop_reason": "tool_use", "content": content}


def say(text: str) -> dict:
    return {"stop_reason": "end_turn", "content": [{"type": "text", "text": text}]}


replies = iter(
    [
        *(call("find_order", order_id=8), say("It was delivered.")),
        *(call("find_order", order_id=7), say("Done. You will get 30 euros.")),
    ]
)


def respond(request: httpx2.Request) -> httpx2.Response:
    """Reply in the place of Anthropic's API."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    body = {"id": "message", "type": "message", "role": "assistant", "model": "scripted", "usage": usage}
    return httpx2.Response(200, json=body | next(replies))


scripted = httpx2.Client(transport=httpx2.MockTransport(respond))
client = Anthropic(api_key="none", http_client=scripted)  # in production: Anthropic()


def show(evaluation: goldspan.Evaluation) -> None:
    verdict = {True: "passed", False: "FAILED", None: "not evaluated"}[evaluation.passed]
    print(f"{evaluation.run.input}\n  {evaluation.run.output}\n  {verdict}: {evaluation.reason}")


trace.set_tracer_provider(TracerProvider())  # in production, with an exporter
AnthropicInstrumentor().instrument()
goldspan.instrument(Path(__file__).with_name("goldens.yaml"), sinks=[show])  # in production, without `sinks`

for question in ("Where is order 8?", "I want my money back for order 7."):
    answer(question)
