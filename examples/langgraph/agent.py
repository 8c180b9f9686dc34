"""An agent of LangGraph, scored by goldspan: `python agent.py`."""

from itertools import count
from pathlib import Path

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import goldspan


@tool
def find_order(order_id: int) -> str:
    """Find an order."""
    return f"Order {order_id}: delivered, 30 euros."


@tool
def refund(order_id: int) -> str:
    """Refund an order."""
    return f"Order {order_id} is refunded."


class ScriptedModel(GenericFakeChatModel):
    """Replies from a script. In production: `ChatOpenAI(model=...)`."""

    def bind_tools(self, tools, **kwargs):
        """Accept tools, as a real model does."""
        return self


ids = count(1)


def call(name: str, **arguments: object) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": f"call-{next(ids)}"}])


script = [
    *(call("find_order", order_id=8), AIMessage("It was delivered.")),
    *(call("find_order", order_id=7), call("refund", order_id=70), AIMessage("You will get 30 euros.")),
]
tools = [find_order, refund]
model = ScriptedModel(messages=iter(script)).bind_tools(tools)


def call_model(state: MessagesState) -> dict:
    return {"messages": [model.invoke(state["messages"])]}


graph = StateGraph(MessagesState)
graph.add_node("model", call_model)
graph.add_node("tools", ToolNode(tools))
graph.add_edge(START, "model")
graph.add_conditional_edges("model", tools_condition)
graph.add_edge("tools", "model")
agent = graph.compile(name="support")


def show(evaluation: goldspan.Evaluation) -> None:
    verdict = {True: "passed", False: "FAILED", None: "not evaluated"}[evaluation.passed]
    print(f"{evaluation.run.input}\n  {evaluation.run.output}\n  {verdict}: {evaluation.reason}")


trace.set_tracer_provider(TracerProvider())  # in production, with an exporter
LangChainInstrumentor().instrument()
goldspan.instrument(Path(__file__).with_name("goldens.yaml"), sinks=[show])  # in production, without `sinks`

for question in ("Where is order 8?", "I want my money back for order 7."):
    agent.invoke({"messages": [("user", question)]})
