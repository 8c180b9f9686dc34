"""OpenLLMetry (Traceloop): `traceloop.span.kind` with `traceloop.entity.*`, and its older flattened messages.

Tools, agents and workflows carry their arguments and results in `traceloop.entity.input` and `.output`, inside the
envelope of whatever was instrumented: `args` and `kwargs` of a function, LangChain's callbacks, an MCP request. Model
spans before version 0.50 flatten messages into `gen_ai.prompt.N` and `gen_ai.completion.N`; newer ones follow the GenAI
conventions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from goldspan import semconv
from goldspan.extraction import envelopes, messages, values
from goldspan.extraction.convention import ANY, Convention, FromFlat, FromJson, Places
from goldspan.extraction.conventions import llama_index
from goldspan.extraction.envelopes import Result
from goldspan.extraction.flattened import unflattened
from goldspan.extraction.reading import Reading
from goldspan.model import SpanRecord, ToolDefinition

_KIND = "traceloop.span.kind"
_NAME = "traceloop.entity.name"
_WORKFLOW = "traceloop.workflow.name"
_INPUT = "traceloop.entity.input"
_OUTPUT = "traceloop.entity.output"
_ARGUMENTS = "tool.arguments"
"""Of a task of LlamaIndex that calls a tool."""
_AGENT_WORKFLOW = re.compile(r"(?P<name>\w*Agent(?:Workflow)?)\.workflow")
_PROPERTIES = "traceloop.association.properties"


def _refine(span: SpanRecord, reading: Reading) -> Reading:
    attributes = span.attributes
    if attributes.get(_KIND) == "handoff":
        # `A → B.handoff`; B is `unknown` where the instrumentation could not tell.
        reading.kind = "handoff"
        reading.span_name = span.name.rpartition(" → ")[2].removesuffix(".handoff")
    elif reading.role == "entry" and attributes.get(semconv.OPERATION) == semconv.INVOKE_AGENT:
        reading.role = "agent"
    elif reading.role == "model":
        reading.tools = (partial(_functions, attributes),)
    else:
        _refine_llama_index(span, reading)
    if reading.role == "agent":
        reading.agent = reading.name
    return reading


def _refine_llama_index(span: SpanRecord, reading: Reading) -> None:
    """LlamaIndex: everything is a task or a workflow, and the GenAI messages have lost their calls."""
    attributes = span.attributes
    if reading.role == "entry" and (hit := _AGENT_WORKFLOW.fullmatch(str(reading.name))):
        reading.role, reading.name = "agent", _agent_in(attributes.get(_OUTPUT)) or hit["name"]
    elif reading.role == "tool" and llama_index.is_handoff(reading.name, values.plain(attributes.get(_ARGUMENTS))):
        reading.kind = "handoff"
    elif reading.role is None and attributes.get(semconv.OPERATION) == "chat" and _OUTPUT in attributes:
        reading.asked, reading.answered = (partial(FromJson(_INPUT), span),), (partial(FromJson(_OUTPUT), span),)
        reading.tools = (partial(_passed, attributes.get(_INPUT)),)


def _agent_in(returned: Any) -> str | None:
    """The name of the agent that said so last."""
    read = values.plain(returned)
    result = read.get("result") if isinstance(read, Mapping) else None
    name = result.get("current_agent_name") if isinstance(result, Mapping) else None
    return name if isinstance(name, str) and name else None


def _passed(given: Any) -> tuple[ToolDefinition, ...]:
    """The tools that a model was called with."""
    read = values.plain(given)
    options = read.get("kwargs") if isinstance(read, Mapping) else None
    return messages.definitions(options.get("tools")) if isinstance(options, Mapping) else ()


def _functions(attributes: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    """The tools offered to a model, one attribute for each of their fields."""
    return messages.definitions(unflattened(attributes, "llm.request.functions"))


def _arguments(value: Any) -> values.Request:
    return values.request(value, envelopes.callback, envelopes.positional, envelopes.mcp_request)


def _result(value: Any) -> values.Result:
    return values.result(value, envelopes.flagged, _call_result)


def _call_result(value: Any) -> Result | None:
    """The event that LlamaIndex makes of a call: `{"tool_name", "tool_kwargs", "tool_id", "tool_output"}`."""
    if not isinstance(value, Mapping) or not {"tool_name", "tool_id", "tool_output"} <= set(value):
        return None
    inner, call_id = values.result(value["tool_output"]), value["tool_id"]
    return Result(inner.value, call_id if isinstance(call_id, str) else None, is_error=inner.is_error)


_TASK = Places(
    name=(_NAME, _WORKFLOW),
    input=(_INPUT,),
    output=(_OUTPUT,),
    asked=(FromJson(_INPUT),),
    answered=(FromJson(_OUTPUT),),
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
    signs=(_KIND, f"{_PROPERTIES}.session_id", f"{_PROPERTIES}.thread_id"),
    of={
        "tool": Places(
            name=(semconv.TOOL_NAME, "gen_ai.handoff.to_agent", "tool.name", _NAME),
            arguments=(_ARGUMENTS,),
            agent=(semconv.AGENT_NAME,),
        ),
        "agent": _TASK,
        "entry": _TASK,
        "model": Places(
            finish=("gen_ai.completion.0.finish_reason",),
            asked=(FromFlat("gen_ai.prompt"),),
            answered=(FromFlat("gen_ai.completion"),),
        ),
    },
    everywhere=Places(
        arguments=(_INPUT,),
        result=(_OUTPUT,),
        session_id=(f"{_PROPERTIES}.session_id", f"{_PROPERTIES}.thread_id"),
    ),
    open_arguments=_arguments,
    open_result=_result,
    refine=_refine,
    notes=(
        "A tool of LangChain.js is a task with the operation `execute_tool`; what it returned knows its own name.",
        "A hand-off is named by its span, `A → B.handoff`, unless `gen_ai.handoff.to_agent` tells the other agent.",
        "A workflow with the operation `invoke_agent` is an agent.",
        "LlamaIndex: a task with `tool.arguments` is a tool, the workflow of an agent class an agent.",
        "LlamaIndex: messages are those of `traceloop.entity.*`, since the GenAI ones have lost their calls.",
        "`mcp.client.session` spans only stand around tools and are no request.",
    ),
    content="TRACELOOP_TRACE_CONTENT=true",
)
