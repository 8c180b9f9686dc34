"""An agent of LangGraph with a scripted chat model. OpenInference makes the spans."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from openinference.instrumentation.langchain import LangChainInstrumentor
from script import HOURS, is_hanging, next_call

LangChainInstrumentor().instrument()


class ScriptedModel(BaseChatModel):
    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        request, results = self._progress(messages)
        if is_hanging(request, results):
            time.sleep(HOURS)
        return self._reply(request, results)

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        request, results = self._progress(messages)
        if is_hanging(request, results):
            await asyncio.sleep(HOURS)
        return self._reply(request, results)

    @staticmethod
    def _progress(messages: list[BaseMessage]) -> tuple[str, int]:
        request = next(str(message.content) for message in messages if isinstance(message, HumanMessage))
        return request, sum(isinstance(message, ToolMessage) for message in messages)

    @staticmethod
    def _reply(request: str, results: int) -> ChatResult:
        call = next_call(request, results)
        calls = [] if call is None else [{"name": call[0], "args": call[1], "id": f"call-{results}"}]
        message = AIMessage("done" if call is None else "", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])

    @property
    def _llm_type(self) -> str:
        return "scripted"


@tool
def search_hotels(city: str) -> list[str]:
    """Search hotels in a city."""
    return [f"{city} Inn"]


@tool
def book_hotel(hotel: str) -> str:
    """Book a hotel."""
    return f"booked {hotel}"


model = ScriptedModel()


def call_model(state: MessagesState) -> dict[str, list[BaseMessage]]:
    return {"messages": [model.invoke(state["messages"])]}


async def call_model_async(state: MessagesState) -> dict[str, list[BaseMessage]]:
    return {"messages": [await model.ainvoke(state["messages"])]}


graph = StateGraph(MessagesState)
graph.add_node("model", RunnableLambda(call_model, call_model_async))
graph.add_node("tools", ToolNode([search_hotels, book_hotel]))
graph.add_edge(START, "model")
graph.add_conditional_edges("model", tools_condition)
graph.add_edge("tools", "model")
agent = graph.compile(name="travel")


def answer(request: str) -> str:
    return agent.invoke({"messages": [HumanMessage(request)]})["messages"][-1].content


async def answer_async(request: str) -> str:
    return (await agent.ainvoke({"messages": [HumanMessage(request)]}))["messages"][-1].content
