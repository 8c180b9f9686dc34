"""Records a loop around OpenAI's client that describes its turns with Weave's Conversation SDK."""

from __future__ import annotations

import json
from typing import Any

from openai import OpenAI
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from truth import MODEL, MODEL_URL, TOOLS, answer_all
from weave.conversation import Message, TextPart, ToolCallPart, Turn, start_conversation

CLIENT = OpenAI(api_key="none", base_url=f"{MODEL_URL}/v1")
OFFERED: list[Any] = [{"type": "function", "function": {"name": name}} for name in TOOLS]


def main() -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    with start_conversation(agent_name="assistant", model=MODEL) as conversation:

        def answer(text: str) -> str:
            with conversation.start_turn(user_message=text) as turn:
                said = _answer(turn, text)
                turn.record(output_messages=[Message(role="assistant", content=said)])
                return said

        answer_all(answer)
    provider.shutdown()


def _answer(turn: Turn, text: str) -> str:
    messages: list[Any] = [{"role": "user", "content": text}]
    shown = [Message(role="user", content=text)]
    while True:
        with turn.start_llm(provider_name="openai") as llm:
            message = CLIENT.chat.completions.create(model=MODEL, messages=messages, tools=OFFERED).choices[0].message
            calls = message.tool_calls or []
            asked = [
                ToolCallPart(id=call.id, name=call.function.name, arguments=call.function.arguments) for call in calls
            ]
            said = [TextPart(content=message.content)] if message.content else []
            answered = Message(role="assistant", parts=[*said, *asked])
            llm.record(input_messages=list(shown), output_messages=[answered])
        if not calls:
            return message.content
        messages.append(message.model_dump(include={"role", "content", "tool_calls"}))
        shown.append(answered)
        for call in calls:
            result = _done(turn, call)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
            shown.append(Message(role="tool", content=result, tool_call_id=call.id))


def _done(turn: Turn, call: Any) -> str:
    try:
        with turn.start_tool(name=call.function.name, arguments=call.function.arguments, tool_call_id=call.id) as tool:
            tool.result = TOOLS[call.function.name](**json.loads(call.function.arguments))
            return tool.result
    except TimeoutError as error:
        return f"Error: {error}"


main()
