"""OpenLLMetry (Traceloop): `traceloop.span.kind` with `traceloop.entity.*`, and its older flattened messages.

Tools, agents and workflows carry their arguments and results in `traceloop.entity.input` and `.output`, inside the
envelope of whatever was instrumented: `args` and `kwargs` of a function, LangChain's callbacks, an MCP request. Model
spans before version 0.50 flatten messages into `gen_ai.prompt.N` and `gen_ai.completion.N`; newer ones follow the GenAI
conventions.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from goldspan import semconv
from goldspan.extraction import envelopes, messages, values
from goldspan.extraction.convention import ANY, Convention, FromFlat, FromJson, Places
from goldspan.extraction.flattened import unflattened
from goldspan.extraction.reading import Reading
from goldspan.model import SpanRecord, ToolDefinition

_KIND = "traceloop.span.kind"
_NAME = "traceloop.entity.name"
_WORKFLOW = "traceloop.workflow.name"
_INPUT = "traceloop.entity.input"
_OUTPUT = "traceloop.entity.output"
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
    if reading.role == "agent":
        reading.agent = reading.name
    return reading


def _functions(attributes: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    """The tools offered to a model, one attribute for each of their fields."""
    return messages.definitions(unflattened(attributes, "llm.request.functions"))


def _arguments(value: Any) -> values.Request:
    return values.request(value, envelopes.callback, envelopes.positional, envelopes.mcp_request)


def _result(value: Any) -> values.Result:
    return values.result(value, envelopes.flagged)


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
        "llm.request.type": {ANY: "model"},
    },
    signs=(_KIND, f"{_PROPERTIES}.session_id", f"{_PROPERTIES}.thread_id"),
    of={
        "tool": Places(name=(semconv.TOOL_NAME, "gen_ai.handoff.to_agent", _NAME), agent=(semconv.AGENT_NAME,)),
        "agent": _TASK,
        "entry": _TASK,
        "model": Places(asked=(FromFlat("gen_ai.prompt"),), answered=(FromFlat("gen_ai.completion"),)),
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
        "`mcp.client.session` spans only stand around tools and are no request.",
    ),
    content="TRACELOOP_TRACE_CONTENT=true",
)
