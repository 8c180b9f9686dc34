"""AgentOps: `agentops.span.kind` with `tool.*`, `agent.*` and flattened `gen_ai.prompt.N` messages.

Each instrumentation of AgentOps writes different attributes. The instrumentations of frameworks use attributes of their
own, the decorators write `agentops.{kind}.input` and `.output`, and hand-offs of the OpenAI Agents SDK have no kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from goldspan.content import envelopes, literals, values
from goldspan.content.flat_attributes import unflatten
from goldspan.content.tools import tool_definitions
from goldspan.conventions.convention import ANY, AttributeMap, Convention, FromFlattened, FromJson
from goldspan.conventions.langchain import is_graph_run
from goldspan.conventions.span_facts import Message, Messages, RawValue, RequestedCall, SpanFacts
from goldspan.model import ABSENT, SpanRecord, ToolDefinition

_KIND = "agentops.span.kind"
_HANDOFF_TARGET = "to_agent"
_STATUS = "tool.status"
_STEP = "workflow.step.type"
_INSTRUMENTATION = "instrumentation.name"
_CALL_TYPE = "tool.call.type"
_TOOL_NAME = "tool.name"
_PARAMETERS = "tool.parameters"
_CHAIN_INPUT = "chain.inputs"
_CHAIN_OUTPUT = "chain.outputs"
_GOAL = "crewai.agent.goal"
_DECORATED_KINDS = ("entity", "session", "workflow", "agent", "task", "operation")
_BUILD_STEPS = frozenset({"graph_initialization", "graph_compilation"})
_RUN_STEPS = frozenset({"langgraph_invoke", "langgraph_stream"})
_FAILED_STATUSES = frozenset({"failed", "failure", "error"})
_NAME_ATTRIBUTES = ("agent.name", "agent.role", "operation.name")


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts | None:
    attributes = span.attributes
    if not _is_agentops_span(span, facts):
        return None
    kind = str(attributes.get(_KIND)).lower()
    if facts.role == "tool":
        _postprocess_tool(span, facts)
    elif facts.role == "model":
        facts.tool_definitions = (partial(_offered_tools, attributes),)
        if _CALL_TYPE in attributes:
            facts.output_messages = (partial(_requested_call, attributes),)
    elif facts.role == "entry":
        _postprocess_entry(facts, kind, str(attributes.get("workflow.type")))
    if facts.role == "entry" and kind == "chain" and _is_langgraph_run(attributes):
        facts.role = "agent"
    if facts.role == "agent":
        names = (attributes.get(key) for key in _NAME_ATTRIBUTES)
        facts.name = facts.agent = next((name for name in names if name and isinstance(name, str)), None)
    if _GOAL in attributes:  # the recorded input is the agent's goal, not the request
        facts.input = None
    return facts


def _is_agentops_span(span: SpanRecord, facts: SpanFacts) -> bool:
    """Whether AgentOps wrote the span. Spans without a kind need a check: other tools use some of its attributes."""
    attributes = span.attributes
    if _KIND in attributes or attributes.get(_INSTRUMENTATION) == "agentops":
        return True
    if _CALL_TYPE in attributes:
        return span.name.startswith("tool_call.")
    if "agentops.entity.input" in attributes:
        return True
    return facts.role is not None and _HANDOFF_TARGET not in attributes and _STEP not in attributes


def _postprocess_tool(span: SpanRecord, facts: SpanFacts) -> None:
    attributes = span.attributes
    if _KIND not in attributes and _HANDOFF_TARGET in attributes:
        target = attributes[_HANDOFF_TARGET]
        facts.kind, facts.name = "handoff", target if isinstance(target, str) else None
        facts.arguments = RawValue({})
    elif facts.error is None and str(attributes.get(_STATUS)).lower() in _FAILED_STATUSES and span.status != "error":
        facts.error = values.message_text(facts.result.raw) if facts.result is not None else None
        facts.error = facts.error or "error"


def _postprocess_entry(facts: SpanFacts, kind: str, workflow: str) -> None:
    if kind == "session" and not envelopes.unwrap_arguments(facts.input).arguments:
        facts.role = None  # the session may last as long as the process
    elif workflow in _BUILD_STEPS:
        facts.role = "aside"
    elif workflow in _RUN_STEPS:
        facts.role = "agent"


def _is_langgraph_run(attributes: Mapping[str, Any]) -> bool:
    states = attributes.get(_CHAIN_INPUT), attributes.get(_CHAIN_OUTPUT)
    if not all(isinstance(state, str) and '"messages"' in state for state in states):
        return False
    return is_graph_run(*map(literals.plain_value, states))


def _requested_call(attributes: Mapping[str, Any]) -> Messages:
    """Return the call that the model requested; the span marks the request, not the execution."""
    name, call_id = attributes.get(_TOOL_NAME), attributes.get("tool.call.id")
    call = RequestedCall(str(name), attributes.get(_PARAMETERS, ABSENT), str(call_id) if call_id else None)
    return (Message("assistant", tool_calls=(call,)),) if name else ()


def _offered_tools(attributes: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    """Return the tools offered to a model. Each field is one attribute; `arguments` may hold the schema."""
    raw_tools = unflatten(attributes, "gen_ai.request.functions") or unflatten(attributes, "gen_ai.request.tools")
    tools = (tool for tool in raw_tools if isinstance(tool, Mapping))
    return tool_definitions([{"parameters": tool.get("arguments"), **tool} for tool in tools])


def _decorated_attributes(field: str) -> tuple[str, ...]:
    return tuple(f"agentops.{kind}.{field}" for kind in _DECORATED_KINDS)


_MESSAGES = AttributeMap(
    input_messages=(FromFlattened("gen_ai.prompt"),), output_messages=(FromFlattened("gen_ai.completion"),)
)
_CHAIN = AttributeMap(
    input_messages=(*_MESSAGES.input_messages, FromJson(_CHAIN_INPUT)),
    output_messages=(*_MESSAGES.output_messages, FromJson(_CHAIN_OUTPUT)),
)

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
        _HANDOFF_TARGET: {ANY: "tool"},
        _STEP: {"trace": "entry"},
        _CALL_TYPE: {ANY: "model"},
        _STATUS: {ANY: "tool"},
        "gen_ai.request.type": {"chat": "model", "completion": "model"},
    },
    marker_attributes=("agentops.entity.input", _INSTRUMENTATION),
    attributes_by_role={
        "tool": AttributeMap(
            name=(_TOOL_NAME, "langchain.tool.name", "operation.name"),
            call_id=("tool.call_id", "tool.call.id"),
            arguments=(_PARAMETERS, "langchain.tool.input", "agentops.tool.input"),
            result=("tool.result", "langchain.tool.output", "agentops.tool.output"),
            error=("tool.error", "tool.execution_error", "langchain.tool.error"),
            agent=("tool.calling_agent_name", "agent.calling_tool.name", "from_agent", "agent.name"),
        ),
        "agent": _CHAIN,
        "entry": _CHAIN,
        "model": _MESSAGES,
    },
    common_attributes=AttributeMap(
        input=(*_decorated_attributes("input"), "workflow.input", "agent.input", "agent.task", _CHAIN_INPUT),
        output=(
            *(*_decorated_attributes("output"), "workflow.output", "agent.output", _CHAIN_OUTPUT),
            *("langgraph.graph.final_response", "crewai.crew.final_output"),
        ),
        session_id=("group.id", "trace.metadata.session_id", "trace.metadata.thread_id", "workflow.session_id"),
    ),
    postprocess=_postprocess,
    notes=(
        "A span with `to_agent` and no kind is a hand-off. The model requests it as a tool `transfer_to_X`.",
        "A call failed if its span has an `error.type`, regardless of `tool.status`.",
        "A span with `tool.call.type` is a call that a model of the OpenAI client requested, not its execution.",
        "A session is a request only if it has arguments, because a session may last as long as the process.",
        "LangGraph: the execution of a graph is an agent. Its initialization and compilation belong to no request.",
        "LangChain: a chain that returns its input state with additional messages is an agent.",
        "CrewAI: `agentops.entity.input` of an agent is its goal, not its input.",
    ),
    capture_setting="TRACELOOP_TRACE_CONTENT=true",
)
