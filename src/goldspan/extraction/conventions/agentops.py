"""AgentOps: `agentops.span.kind` with `tool.*` and `agent.*`; messages in `gen_ai.prompt.N` and `gen_ai.completion.N`.

Each of its instrumentations fills in what it finds: those of frameworks write the attributes of their own, its
decorators `agentops.{kind}.input` and `.output`, and the hand-offs of the OpenAI Agents SDK have no kind at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from goldspan.extraction import messages, values
from goldspan.extraction.convention import ANY, Convention, FromFlat, FromJson, Places
from goldspan.extraction.conventions.graphs import is_graph
from goldspan.extraction.flattened import unflattened
from goldspan.extraction.reading import Message, Messages, Reading, RequestedCall, Written
from goldspan.model import ABSENT, SpanRecord, ToolDefinition

_KIND = "agentops.span.kind"
_TO = "to_agent"
_STATUS = "tool.status"
_STEP = "workflow.step.type"
_WRITER = "instrumentation.name"
_REQUESTED = "tool.call.type"
_TOOL_NAME = "tool.name"
_PARAMETERS = "tool.parameters"
_CHAIN_INPUT = "chain.inputs"
_CHAIN_OUTPUT = "chain.outputs"
_GOAL = "crewai.agent.goal"
_DECORATED = ("entity", "session", "workflow", "agent", "task", "operation")
_BUILDING = frozenset({"graph_initialization", "graph_compilation"})
_RUNNING = frozenset({"langgraph_invoke", "langgraph_stream"})
_FAILED = frozenset({"failed", "failure", "error"})
_NAMES = ("agent.name", "agent.role", "operation.name")


def _refine(span: SpanRecord, reading: Reading) -> Reading | None:
    attributes = span.attributes
    if not _is_ours(span, reading):
        return None
    kind = str(attributes.get(_KIND)).lower()
    if reading.role == "tool":
        _refine_tool(span, reading)
    elif reading.role == "model":
        reading.tools = (partial(_offered, attributes),)
        if _REQUESTED in attributes:
            reading.answered = (partial(_requested, attributes),)
    elif reading.role == "entry":
        _refine_entry(reading, kind, str(attributes.get("workflow.type")))
    if reading.role == "entry" and kind == "chain" and _is_graph(attributes):
        reading.role = "agent"
    if reading.role == "agent":
        named = (attributes.get(key) for key in _NAMES)
        reading.name = reading.agent = next((name for name in named if name and isinstance(name, str)), None)
    if _GOAL in attributes:  # what the agent is for, and not what it was asked
        reading.input = None
    return reading


def _is_ours(span: SpanRecord, reading: Reading) -> bool:
    """Whether AgentOps wrote a span that has no kind: others use some of its attributes, too."""
    attributes = span.attributes
    if _KIND in attributes or attributes.get(_WRITER) == "agentops":
        return True
    if _REQUESTED in attributes:
        return span.name.startswith("tool_call.")
    if "agentops.entity.input" in attributes:
        return True
    return reading.role is not None and _TO not in attributes and _STEP not in attributes


def _refine_tool(span: SpanRecord, reading: Reading) -> None:
    attributes = span.attributes
    if _KIND not in attributes and _TO in attributes:
        target = attributes[_TO]
        reading.kind, reading.name = "handoff", target if isinstance(target, str) else None
        reading.arguments = Written({})
    elif reading.error is None and str(attributes.get(_STATUS)).lower() in _FAILED and span.status != "error":
        reading.error = values.text(reading.result.raw) if reading.result is not None else None
        reading.error = reading.error or "error"


def _refine_entry(reading: Reading, kind: str, workflow: str) -> None:
    if kind == "session" and not values.request(reading.input).arguments:
        reading.role = None  # it may last as long as the process
    elif workflow in _BUILDING:
        reading.role = "aside"
    elif workflow in _RUNNING:
        reading.role = "agent"


def _is_graph(attributes: Mapping[str, Any]) -> bool:
    written = attributes.get(_CHAIN_INPUT), attributes.get(_CHAIN_OUTPUT)
    if not all(isinstance(value, str) and '"messages"' in value for value in written):
        return False
    return is_graph(*map(values.plain, written))


def _requested(attributes: Mapping[str, Any]) -> Messages:
    """The call for which a span stands that was made when the model asked for it."""
    name, call_id = attributes.get(_TOOL_NAME), attributes.get("tool.call.id")
    call = RequestedCall(str(name), attributes.get(_PARAMETERS, ABSENT), str(call_id) if call_id else None)
    return (Message("assistant", calls=(call,)),) if name else ()


def _offered(attributes: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    """The tools offered to a model, one attribute for each of their fields; `arguments` may be their schema."""
    listed = unflattened(attributes, "gen_ai.request.functions") or unflattened(attributes, "gen_ai.request.tools")
    tools = (tool for tool in listed if isinstance(tool, Mapping))
    return messages.definitions([{"parameters": tool.get("arguments"), **tool} for tool in tools])


def _of(what: str) -> tuple[str, ...]:
    return tuple(f"agentops.{kind}.{what}" for kind in _DECORATED)


_SPOKEN = Places(asked=(FromFlat("gen_ai.prompt"),), answered=(FromFlat("gen_ai.completion"),))
_CHAIN = Places(asked=(*_SPOKEN.asked, FromJson(_CHAIN_INPUT)), answered=(*_SPOKEN.answered, FromJson(_CHAIN_OUTPUT)))

CONVENTION = Convention(
    name="agentops",
    title="AgentOps",
    source="https://github.com/AgentOps-AI/agentops",
    versions="0.4",
    roles={
        _KIND: {
            "tool": "tool",
            "tool.usage": "tool",
            "agent": "agent",
            "llm": "model",
            "llm.call": "model",
            "request": "model",
            "workflow": "entry",
            "chain": "entry",
            "session": "entry",
        },
        _TO: {ANY: "tool"},
        _STEP: {"trace": "entry"},
        _REQUESTED: {ANY: "model"},
        _STATUS: {ANY: "tool"},
        "gen_ai.request.type": {"chat": "model", "completion": "model"},
    },
    signs=("agentops.entity.input", _WRITER),
    of={
        "tool": Places(
            name=(_TOOL_NAME, "langchain.tool.name", "operation.name"),
            call_id=("tool.call_id", "tool.call.id"),
            arguments=(_PARAMETERS, "langchain.tool.input", "agentops.tool.input"),
            result=("tool.result", "langchain.tool.output", "agentops.tool.output"),
            error=("tool.error", "tool.execution_error", "langchain.tool.error"),
            agent=("tool.calling_agent_name", "agent.calling_tool.name", "from_agent", "agent.name"),
        ),
        "agent": _CHAIN,
        "entry": _CHAIN,
        "model": _SPOKEN,
    },
    everywhere=Places(
        input=(*_of("input"), "workflow.input", "agent.input", "agent.task", _CHAIN_INPUT),
        output=(
            *(*_of("output"), "workflow.output", "agent.output", _CHAIN_OUTPUT),
            *("langgraph.graph.final_response", "crewai.crew.final_output"),
        ),
        session_id=("group.id", "trace.metadata.session_id", "trace.metadata.thread_id", "workflow.session_id"),
    ),
    refine=_refine,
    notes=(
        "A span with `to_agent` and no kind is a hand-off; as a tool `transfer_to_X`, the model asks for the same.",
        "A call failed if its span has an `error.type`, whatever `tool.status` says.",
        "A span with `tool.call.type` is no execution: it shows what a model of the OpenAI client asked for.",
        "A session is a request if it was given arguments: it may also last as long as the process.",
        "LangGraph: an executed graph is an agent; its initialization and compilation are no part of a request.",
        "LangChain: a chain that returns the state it was given, with more messages, is an agent.",
        "CrewAI: `agentops.entity.input` of an agent is its goal, and not what it was asked.",
    ),
    content="TRACELOOP_TRACE_CONTENT=true",
)
