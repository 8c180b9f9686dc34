"""An agent of the OpenAI Agents SDK with a scripted model. OpenInference makes the spans."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor
from script import HOURS, is_hanging, next_call

OpenAIAgentsInstrumentor().instrument()


class ScriptedModel(Model):
    async def get_response(
        self,
        system_instructions: Any,
        input: Any,  # noqa: A002 - the name is the SDK's
        *args: Any,
        **kwargs: Any,
    ) -> ModelResponse:
        items = [{"role": "user", "content": input}] if isinstance(input, str) else input
        request = next(item["content"] for item in items if item.get("role") == "user")
        results = sum(item.get("type") == "function_call_output" for item in items)
        if is_hanging(request, results):
            await asyncio.sleep(HOURS)
        call = next_call(request, results)
        if call is None:
            text = ResponseOutputText(text="done", type="output_text", annotations=[])
            output: Any = ResponseOutputMessage(
                id="message", content=[text], role="assistant", status="completed", type="message"
            )
        else:
            name, arguments = call
            output = ResponseFunctionToolCall(
                call_id=f"call-{results}", name=name, arguments=json.dumps(arguments), type="function_call"
            )
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


@function_tool
def search_hotels(city: str) -> list[str]:
    return [f"{city} Inn"]


@function_tool
def book_hotel(hotel: str) -> str:
    return f"booked {hotel}"


agent = Agent(name="travel", model=ScriptedModel(), tools=[search_hotels, book_hotel])


def answer(request: str) -> str:
    return Runner.run_sync(agent, request).final_output


async def answer_async(request: str) -> str:
    return (await Runner.run(agent, request)).final_output
