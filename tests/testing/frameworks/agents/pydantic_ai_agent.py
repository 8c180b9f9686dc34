"""An agent of pydantic-ai with a scripted model. Its own instrumentation makes the spans."""

from __future__ import annotations

import asyncio

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from script import HOURS, is_hanging, next_call

Agent.instrument_all()


async def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    parts = [part for message in messages for part in message.parts]
    request = next(str(part.content) for part in parts if isinstance(part, UserPromptPart))
    results = sum(isinstance(part, ToolReturnPart) for part in parts)
    if is_hanging(request, results):
        await asyncio.sleep(HOURS)
    call = next_call(request, results)
    return ModelResponse(parts=[TextPart("done") if call is None else ToolCallPart(*call)])


agent = Agent(FunctionModel(reply), name="travel")


@agent.tool_plain
def search_hotels(city: str) -> list[str]:
    return [f"{city} Inn"]


@agent.tool_plain
def book_hotel(hotel: str) -> str:
    return f"booked {hotel}"


def answer(request: str) -> str:
    return agent.run_sync(request).output


async def answer_async(request: str) -> str:
    return (await agent.run(request)).output
