"""Mastra: GenAI spans beside `mastra.span.type`, with inputs and outputs in `mastra.{type}.input` and `.output`.

One turn of the model is three spans inside each other: `model_generation` (the whole answer), `model_step` (one call of
the model) and `model_inference`. The step is the one that holds what the model was asked and what it asked for.
"""

from __future__ import annotations

from functools import partial

from goldspan import semconv
from goldspan.extraction.convention import Convention, FromJson, Places
from goldspan.extraction.notation import plain
from goldspan.extraction.reading import Reading
from goldspan.model import SpanRecord, ToolDefinition

_TYPE = "mastra.span.type"
_METADATA = "mastra.metadata."


def _refine(span: SpanRecord, reading: Reading) -> Reading:
    attributes = span.attributes
    kind = str(attributes.get(_TYPE)).lower()
    if kind == "provider_tool_call":
        reading.kind = "hosted"
    if kind == "mcp_tool_call":
        server = attributes.get("server.address")
        reading.server = server if isinstance(server, str) else None
    listed = plain(attributes.get(semconv.TOOL_DEFINITIONS))
    if isinstance(listed, list) and all(isinstance(name, str) for name in listed):
        reading.tools = (partial(_named, tuple(listed)),)
    return reading


def _named(names: tuple[str, ...]) -> tuple[ToolDefinition, ...]:
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
    of={
        "agent": Places(
            name=(semconv.AGENT_NAME, "gen_ai.agent.id"),
            input=("mastra.agent_run.input",),
            output=("mastra.agent_run.output",),
        ),
        "entry": Places(input=("mastra.workflow_run.input",), output=("mastra.workflow_run.output",)),
        "model": Places(asked=(FromJson("mastra.model_step.input"),), answered=(FromJson("mastra.model_step.output"),)),
        "tool": Places(
            name=(semconv.TOOL_NAME,),
            arguments=(semconv.TOOL_CALL_ARGUMENTS, "mastra.tool_call.input", "mastra.mcp_tool_call.input"),
            result=(semconv.TOOL_CALL_RESULT, "mastra.tool_call.output", "mastra.mcp_tool_call.output"),
        ),
    },
    everywhere=Places(session_id=(semconv.CONVERSATION_ID, f"{_METADATA}threadId", f"{_METADATA}sessionId")),
    span_names={"tool": ("execute_tool {name}", "tool_call {name}")},
    refine=_refine,
    notes=(
        "A `model_chunk` names a tool without being a call of it; `model_inference` repeats its step.",
        "A `provider_tool_call` is run by the model's provider.",
        "The server of an `mcp_tool_call` stands in `server.address`.",
        "`gen_ai.tool.definitions` is a list of names.",
    ),
)
