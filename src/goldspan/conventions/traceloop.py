"""OpenLLMetry (Traceloop): `traceloop.span.kind` with `traceloop.entity.*`, and flattened messages.

Spans of tools, agents and workflows hold arguments and results in `traceloop.entity.input` and `.output`, inside the
envelope of the instrumented code: `args` and `kwargs` of a function, LangChain's callbacks, or an MCP request. Model
spans before version 0.50 flatten messages into `gen_ai.prompt.N` and `gen_ai.completion.N`; newer spans follow the
GenAI conventions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from goldspan import semconv
from goldspan.content import envelopes, literals
from goldspan.content.envelopes import CallResult
from goldspan.content.flat_attributes import FlatRows, flat_rows, nest_row
from goldspan.content.tools import cache_by_rows, tool_definitions
from goldspan.conventions import llama_index
from goldspan.conventions.convention import ANY, AttributeMap, Convention, FromFlattened, FromJson
from goldspan.conventions.span_facts import SpanFacts
from goldspan.model import SpanRecord, ToolDefinition

_KIND = "traceloop.span.kind"
_NAME = "traceloop.entity.name"
_WORKFLOW = "traceloop.workflow.name"
_INPUT = "traceloop.entity.input"
_OUTPUT = "traceloop.entity.output"
_ARGUMENTS = "tool.arguments"
"""Arguments on a LlamaIndex task that calls a tool."""
_AGENT_WORKFLOW = re.compile(r"(?P<name>\w*Agent(?:Workflow)?)\.workflow")
_PROPERTIES = "traceloop.association.properties"


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts:
    attributes = span.attributes
    if attributes.get(_KIND) == "handoff":
        # The span is named `A → B.handoff`; B is `unknown` if the instrumentation could not determine it.
        facts.kind = "handoff"
        facts.span_name = span.name.rpartition(" → ")[2].removesuffix(".handoff")
    elif facts.role == "entry" and attributes.get(semconv.OPERATION) == semconv.INVOKE_AGENT:
        facts.role = "agent"
    elif facts.role == "model":
        facts.tool_definitions = (partial(_offered_tools, attributes),)
    else:
        _postprocess_llama_index(span, facts)
    if facts.role == "agent":
        facts.agent = facts.name
    return facts


def _postprocess_llama_index(span: SpanRecord, facts: SpanFacts) -> None:
    """Read spans of LlamaIndex, which are all tasks or workflows; their GenAI messages have lost the calls."""
    attributes = span.attributes
    if facts.role == "entry" and (match := _AGENT_WORKFLOW.fullmatch(str(facts.name))):
        facts.role, facts.name = "agent", _last_agent_name(attributes.get(_OUTPUT)) or match["name"]
    elif facts.role == "tool" and llama_index.is_handoff(facts.name, literals.plain_value(attributes.get(_ARGUMENTS))):
        facts.kind = "handoff"
    elif facts.role is None and attributes.get(semconv.OPERATION) == "chat" and _OUTPUT in attributes:
        facts.input_messages, facts.output_messages = (
            (partial(FromJson(_INPUT), span),),
            (partial(FromJson(_OUTPUT), span),),
        )
        facts.tool_definitions = (partial(_bound_tools, attributes.get(_INPUT)),)


def _last_agent_name(output: Any) -> str | None:
    """Return the name of the agent that produced the output."""
    decoded = literals.plain_value(output)
    result = decoded.get("result") if isinstance(decoded, Mapping) else None
    name = result.get("current_agent_name") if isinstance(result, Mapping) else None
    return name if isinstance(name, str) and name else None


def _bound_tools(inputs: Any) -> tuple[ToolDefinition, ...]:
    """Return the tools in the keyword arguments of a model call."""
    decoded = literals.plain_value(inputs)
    options = decoded.get("kwargs") if isinstance(decoded, Mapping) else None
    return tool_definitions(options.get("tools")) if isinstance(options, Mapping) else ()


def _offered_tools(attributes: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    """Return the tools offered to a model, which have one attribute per field."""
    return _definitions_in_rows(flat_rows(attributes, "llm.request.functions"))


@cache_by_rows
def _definitions_in_rows(rows: FlatRows) -> tuple[ToolDefinition, ...]:
    return tool_definitions([nest_row(paths, values) for paths, values in rows])


def _unwrap_arguments(value: Any) -> envelopes.CallArguments:
    return envelopes.unwrap_arguments(
        value, envelopes.langchain_callback, envelopes.positional_arguments, envelopes.mcp_request
    )


def _unwrap_result(value: Any) -> envelopes.CallResult:
    return envelopes.unwrap_result(value, envelopes.flagged_result, _unwrap_call_result)


def _unwrap_call_result(value: Any) -> CallResult | None:
    """Unwrap LlamaIndex's event of a call: `{"tool_name", "tool_kwargs", "tool_id", "tool_output"}`."""
    if not isinstance(value, Mapping) or not {"tool_name", "tool_id", "tool_output"} <= set(value):
        return None
    inner, call_id = envelopes.unwrap_result(value["tool_output"]), value["tool_id"]
    return CallResult(inner.value, call_id if isinstance(call_id, str) else None, is_error=inner.is_error)


_TASK = AttributeMap(
    name=(_NAME, _WORKFLOW),
    input=(_INPUT,),
    output=(_OUTPUT,),
    input_messages=(FromJson(_INPUT),),
    output_messages=(FromJson(_OUTPUT),),
)

CONVENTION = Convention(
    name="traceloop",
    title="OpenLLMetry (Traceloop)",
    source="https://github.com/traceloop/openllmetry, https://github.com/traceloop/openllmetry-js",
    versions="0.47 to 0.62 (Python), 0.27 (JavaScript)",
    roles={
        _KIND: {"tool": "tool", "agent": "agent", "handoff": "tool", "workflow": "entry", "session": "aside"},
        _ARGUMENTS: {ANY: "tool"},
        "llm.request.type": {ANY: "model"},
    },
    marker_attributes=(_KIND, f"{_PROPERTIES}.session_id", f"{_PROPERTIES}.thread_id"),
    attributes_by_role={
        "tool": AttributeMap(
            name=(semconv.TOOL_NAME, "gen_ai.handoff.to_agent", "tool.name", _NAME),
            arguments=(_ARGUMENTS,),
            agent=(semconv.AGENT_NAME,),
        ),
        "agent": _TASK,
        "entry": _TASK,
        "model": AttributeMap(
            finish_reason=("gen_ai.completion.0.finish_reason",),
            input_messages=(FromFlattened("gen_ai.prompt"),),
            output_messages=(FromFlattened("gen_ai.completion"),),
        ),
    },
    common_attributes=AttributeMap(
        arguments=(_INPUT,),
        result=(_OUTPUT,),
        session_id=(f"{_PROPERTIES}.session_id", f"{_PROPERTIES}.thread_id"),
    ),
    unwrap_arguments=_unwrap_arguments,
    unwrap_result=_unwrap_result,
    postprocess=_postprocess,
    notes=(
        "A tool of LangChain.js is a task with the operation `execute_tool`. Its result contains the tool's name.",
        "`gen_ai.handoff.to_agent`, or else the span's name `A → B.handoff`, names the target agent of a hand-off.",
        "A workflow with the operation `invoke_agent` is an agent.",
        "LlamaIndex: a task with `tool.arguments` is a tool. The workflow of an agent class is an agent.",
        "LlamaIndex: messages come from `traceloop.entity.*`, because the GenAI messages have lost their calls.",
        "`mcp.client.session` spans contain tools but are not requests.",
    ),
    capture_setting="TRACELOOP_TRACE_CONTENT=true",
)
