"""Mastra: GenAI spans with `mastra.span.type`, and content in `mastra.{type}.input` and `.output`.

One turn of the model is three nested spans: `model_generation` (the whole answer), `model_step` (one call of the model)
and `model_inference`. The step holds the model's input and the calls that it requested.
"""

from __future__ import annotations

from functools import partial

from goldspan import semconv
from goldspan.content.literals import plain_value
from goldspan.conventions.convention import AttributeMap, Convention, FromJson
from goldspan.conventions.span_facts import SpanFacts
from goldspan.model import SpanRecord, ToolDefinition

_TYPE = "mastra.span.type"
_METADATA_PREFIX = "mastra.metadata."


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts:
    attributes = span.attributes
    kind = str(attributes.get(_TYPE)).lower()
    if kind == "provider_tool_call":
        facts.kind = "hosted"
    if kind == "mcp_tool_call":
        server = attributes.get("server.address")
        facts.server = server if isinstance(server, str) else None
    names = plain_value(attributes.get(semconv.TOOL_DEFINITIONS))
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        facts.tool_definitions = (partial(_definitions_from_names, tuple(names)),)
    return facts


def _definitions_from_names(names: tuple[str, ...]) -> tuple[ToolDefinition, ...]:
    return tuple(ToolDefinition(name) for name in names)


CONVENTION = Convention(
    name="mastra",
    title="Mastra",
    source="https://github.com/mastra-ai/mastra/tree/main/observability/otel-exporter",
    versions="@mastra/otel-exporter 1.0 to 1.4",
    roles={
        _TYPE: {
            "agent_run": "agent",
            "workflow_run": "entry",
            "model_step": "model",
            "tool_call": "tool",
            "mcp_tool_call": "tool",
            "provider_tool_call": "tool",
            "client_tool_call": "tool",
        }
    },
    attributes_by_role={
        "agent": AttributeMap(
            name=(semconv.AGENT_NAME, "gen_ai.agent.id"),
            input=("mastra.agent_run.input",),
            output=("mastra.agent_run.output",),
        ),
        "entry": AttributeMap(input=("mastra.workflow_run.input",), output=("mastra.workflow_run.output",)),
        "model": AttributeMap(
            input_messages=(FromJson("mastra.model_step.input"),),
            output_messages=(FromJson("mastra.model_step.output"),),
        ),
        "tool": AttributeMap(
            name=(semconv.TOOL_NAME,),
            arguments=(semconv.TOOL_CALL_ARGUMENTS, "mastra.tool_call.input", "mastra.mcp_tool_call.input"),
            result=(semconv.TOOL_CALL_RESULT, "mastra.tool_call.output", "mastra.mcp_tool_call.output"),
        ),
    },
    common_attributes=AttributeMap(
        session_id=(semconv.CONVERSATION_ID, f"{_METADATA_PREFIX}threadId", f"{_METADATA_PREFIX}sessionId")
    ),
    span_name_templates={"tool": ("execute_tool {name}", "tool_call {name}")},
    postprocess=_postprocess,
    notes=(
        "A `model_chunk` names a tool but is not a call. A `model_inference` repeats its `model_step`.",
        "The model's provider runs a `provider_tool_call`.",
        "`server.address` names the server of an `mcp_tool_call`.",
        "`gen_ai.tool.definitions` is a list of names.",
    ),
)
