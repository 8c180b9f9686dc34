"""A loop around the client of OpenAI, scored by goldspan: `python agent.py`."""

import json
from itertools import count
from pathlib import Path

import httpx2
from openai import OpenAI
from openinference.instrumentation.openai import OpenAIInstrumentor
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
PARAMETERS = {"type": "object", "properties": {"order_id": {"type": "integer"}}, "required": ["order_id"]}
DEFINITIONS = [{"type": "function", "function": {"name": name, "parameters": PARAMETERS}} for name in TOOLS]


@goldspan.trace(kind="agent", name="support")
def answer(question: str) -> str:
    messages = [{"role": "user", "content": question}]
    while True:
        completion = client.chat.completions.create(model="gpt-5", messages=messages, tools=DEFINITIONS)
        message = completion.choices[0].message
        messages.append(message.to_dict())
        if not message.tool_calls:
            return message.content or ""
        for call in message.tool_calls:
            result = TOOLS[call.function.name](**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


ids = count(1)


def call(name: str, **arguments: object) -> dict:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "tool_calls": [{"id": f"call-{next(ids)}", "type": "function", "function": function}]}


def say(text: str) -> dict:
    return {"role": "assistant", "content": text}


replies = iter(
    [
        *(call("find_order", order_id=8), say("It was delivered.")),
        *(call("find_order", order_id=7), call("refund", order_id=7), call("refund", order_id=7)),
        say("You will get 30 euros."),
    ]
)


def respond(request: httpx2.Request) -> httpx2.Response:
    """Reply in the place of the OpenAI API."""
    choice = {"index": 0, "finish_reason": "stop", "message": next(replies)}
    body = {"id": "chat", "object": "chat.completion", "created": 0, "model": "scripted", "choices": [choice]}
    return httpx2.Response(200, json=body)


client = OpenAI(api_key="none", http_client=httpx2.Client(transport=httpx2.MockTransport(respond)))  # or: OpenAI()


def show(evaluation: goldspan.Evaluation) -> None:
    verdict = {True: "passed", False: "FAILED", None: "not evaluated"}[evaluation.passed]
    print(f"{evaluation.run.input}\n  {evaluation.run.output}\n  {verdict}: {evaluation.reason}")


trace.set_tracer_provider(TracerProvider())  # in production, with an exporter
OpenAIInstrumentor().instrument()
goldspan.instrument(Path(__file__).with_name("goldens.yaml"), sinks=[show])  # in production, without `sinks`

for question in ("Where is order 8?", "I want my money back for order 7."):
    answer(question)
