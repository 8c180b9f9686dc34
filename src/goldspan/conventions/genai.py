"""OpenTelemetry's GenAI conventions: `gen_ai.*` on spans, in span events and in log events.

Depending on the version and the settings, content is in one of five places: in attributes of the span as JSON text
or as structured values, in the event `gen_ai.client.inference.operation.details`, in one event per message
(`gen_ai.user.message`, `gen_ai.choice` ...), or in the events of the first version (`gen_ai.content.prompt`). Events
may be span events or log events written during the span.
"""

from __future__ import annotations

from goldspan import semconv
from goldspan.conventions.convention import AttributeMap, Convention, FromEvents, FromJson, MessageSource
from goldspan.conventions.span_facts import RawValue, SpanFacts
from goldspan.model import SpanRecord, ToolKind

_DETAILS = "gen_ai.client.inference.operation.details"
_CHOICE = "gen_ai.choice"
_MESSAGE_EVENTS = ("gen_ai.system.message", "gen_ai.user.message", "gen_ai.assistant.message", "gen_ai.tool.message")
_INPUT_MESSAGES: tuple[MessageSource, ...] = (
    FromJson(semconv.INPUT_MESSAGES),
    FromEvents((_DETAILS,), semconv.INPUT_MESSAGES),
    FromEvents(_MESSAGE_EVENTS),
    FromEvents(("gen_ai.content.prompt",), "gen_ai.prompt"),
)
_OUTPUT_MESSAGES: tuple[MessageSource, ...] = (
    FromJson(semconv.OUTPUT_MESSAGES),
    FromEvents((_DETAILS,), semconv.OUTPUT_MESSAGES),
    FromEvents((_CHOICE,)),
    FromEvents(("gen_ai.content.completion",), "gen_ai.completion"),
)
_QUERY_ATTRIBUTES = ("gen_ai.retrieval.query.text", "gen_ai.memory.query.text")
_HANDOFF_TARGET = "gen_ai.handoff.to_agent"
_KINDS: dict[str, ToolKind] = {
    "handoff": "handoff",
    "agent_handoff": "handoff",
    "retrieval": "retrieval",
    "search_memory": "retrieval",
}
"""Tool kinds of the operations that are calls, but not calls of ordinary tools."""
_CAPTURE_SETTING = (
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_AND_EVENT with "
    "OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental"
)
_GOLDSPAN_CAPTURE_SETTING = "GOLDSPAN_CAPTURE_ARGUMENTS=on"


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts:
    if facts.role != "tool":
        return facts
    attributes = span.attributes
    facts.kind = (
        "handoff" if _HANDOFF_TARGET in attributes else _KINDS.get(str(attributes.get(semconv.OPERATION)).lower())
    )
    if facts.kind is None and attributes.get(semconv.TOOL_TYPE) == "datastore":
        facts.kind = "retrieval"
    facts.span_name = facts.span_name or span.name
    if facts.arguments is None:
        query = next((attributes[key] for key in _QUERY_ATTRIBUTES if key in attributes), None)
        facts.arguments = None if query is None else RawValue({"query": query})
    return facts


CONVENTION = Convention(
    name="genai",
    title="OpenTelemetry GenAI semantic conventions",
    source="https://github.com/open-telemetry/semantic-conventions-genai",
    is_shared=True,
    versions="all published, 1.27 to 1.44; Microsoft Agent Framework, autogen-core and others follow them",
    roles={
        semconv.OPERATION: {
            "execute_tool": "tool",
            "handoff": "tool",
            "agent_handoff": "tool",
            "retrieval": "tool",
            "search_memory": "tool",
            "invoke_agent": "agent",
            "invoke_workflow": "entry",
            "conversation": "entry",
            "initiate_chats": "entry",
            "chat": "model",
            "call_llm": "model",
            "generate_content": "model",
            "text_completion": "model",
            "create_agent": "aside",
            "speaker_selection": "aside",
        },
        # For the span that goldspan creates if only the log events of a call arrived.
        "event.name": dict.fromkeys((_DETAILS, *_MESSAGE_EVENTS[:3], _CHOICE), "model"),
    },
    marker_attributes=(semconv.OPERATION, semconv.CONVERSATION_ID),
    attributes_by_role={
        "tool": AttributeMap(
            name=(semconv.TOOL_NAME, _HANDOFF_TARGET, "gen_ai.data_source.id", "gen_ai.memory.store.id"),
            call_id=(semconv.TOOL_CALL_ID,),
            arguments=(semconv.TOOL_CALL_ARGUMENTS,),
            result=(semconv.TOOL_CALL_RESULT, "gen_ai.retrieval.documents", "gen_ai.memory.records"),
        ),
        "agent": AttributeMap(
            name=(semconv.AGENT_NAME,), input_messages=_INPUT_MESSAGES, output_messages=_OUTPUT_MESSAGES
        ),
        "entry": AttributeMap(
            name=("gen_ai.workflow.name", semconv.AGENT_NAME),
            input_messages=_INPUT_MESSAGES,
            output_messages=_OUTPUT_MESSAGES,
        ),
        "model": AttributeMap(
            call_id=("gen_ai.response.id",),
            finish_reason=("gen_ai.response.finish_reasons",),
            input_messages=_INPUT_MESSAGES,
            output_messages=_OUTPUT_MESSAGES,
        ),
    },
    common_attributes=AttributeMap(
        agent=(semconv.AGENT_NAME,), session_id=(semconv.CONVERSATION_ID,), tool_definitions=(semconv.TOOL_DEFINITIONS,)
    ),
    span_name_templates={"tool": ("execute_tool {name}", "retrieval {name}", "search_memory {name}")},
    postprocess=_postprocess,
    scopes_with_span_per_call=frozenset({semconv.INSTRUMENTATION_SCOPE}),
    notes=(
        "The operations `handoff` and `agent_handoff`, and spans with `gen_ai.handoff.to_agent`, are hand-offs.",
        "The operations `retrieval` and `search_memory`, and tools of type `datastore`, are retrievals.",
        "`conversation`, `initiate_chats` and `speaker_selection` are operations of AG2, `call_llm` one of any-agent.",
        "Planning, embeddings and writing to a memory are not calls.",
        "If a tool has no name attribute, the name of its span contains the tool's name.",
    ),
    capture_setting=f"{_CAPTURE_SETTING}; with @goldspan.trace, {_GOLDSPAN_CAPTURE_SETTING}",
    capture_settings_by_scope={
        "opentelemetry.": _CAPTURE_SETTING,
        "io.opentelemetry.": "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true, and OTEL_LOGS_EXPORTER=otlp",
        semconv.INSTRUMENTATION_SCOPE: _GOLDSPAN_CAPTURE_SETTING,
        "agent_framework": "ENABLE_SENSITIVE_DATA=true",
        "semantic_kernel": "SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS_SENSITIVE=true",
        "azure.": "AZURE_TRACING_GEN_AI_CONTENT_RECORDING_ENABLED=true",
    },
)
