"""OpenTelemetry's semantic conventions for generative AI: `gen_ai.*` on spans, in span events and in log events.

Content may stand in five places, depending on the version and on what was switched on: in attributes of the span as
JSON text or as structured values, in the event `gen_ai.client.inference.operation.details`, in one event a message
(`gen_ai.user.message`, `gen_ai.choice` ...), and in the events of the first version (`gen_ai.content.prompt`). Events
may be span events or log events written during the span.
"""

from __future__ import annotations

from goldspan import semconv
from goldspan.extraction.convention import Convention, FromEvents, FromJson, MessageSource, Places
from goldspan.extraction.reading import Reading, Written
from goldspan.model import SpanRecord, ToolKind

_DETAILS = "gen_ai.client.inference.operation.details"
_CHOICE = "gen_ai.choice"
_SPOKEN = ("gen_ai.system.message", "gen_ai.user.message", "gen_ai.assistant.message", "gen_ai.tool.message")
_ASKED: tuple[MessageSource, ...] = (
    FromJson(semconv.INPUT_MESSAGES),
    FromEvents((_DETAILS,), semconv.INPUT_MESSAGES),
    FromEvents(_SPOKEN),
    FromEvents(("gen_ai.content.prompt",), "gen_ai.prompt"),
)
_ANSWERED: tuple[MessageSource, ...] = (
    FromJson(semconv.OUTPUT_MESSAGES),
    FromEvents((_DETAILS,), semconv.OUTPUT_MESSAGES),
    FromEvents((_CHOICE,)),
    FromEvents(("gen_ai.content.completion",), "gen_ai.completion"),
)
_QUERIES = ("gen_ai.retrieval.query.text", "gen_ai.memory.query.text")
_TO_AGENT = "gen_ai.handoff.to_agent"
_KINDS: dict[str, ToolKind] = {
    "handoff": "handoff",
    "agent_handoff": "handoff",
    "retrieval": "retrieval",
    "search_memory": "retrieval",
}
"""Of the operations that are calls without being plain tools."""
_SWITCH = (
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_AND_EVENT with "
    "OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental"
)
_OURS = "GOLDSPAN_CAPTURE_ARGUMENTS=on"


def _refine(span: SpanRecord, reading: Reading) -> Reading:
    if reading.role != "tool":
        return reading
    attributes = span.attributes
    reading.kind = "handoff" if _TO_AGENT in attributes else _KINDS.get(str(attributes.get(semconv.OPERATION)).lower())
    if reading.kind is None and attributes.get(semconv.TOOL_TYPE) == "datastore":
        reading.kind = "retrieval"
    reading.span_name = reading.span_name or span.name
    if reading.arguments is None:
        query = next((attributes[key] for key in _QUERIES if key in attributes), None)
        reading.arguments = None if query is None else Written({"query": query})
    return reading


CONVENTION = Convention(
    name="genai",
    title="OpenTelemetry GenAI semantic conventions",
    source="https://github.com/open-telemetry/semantic-conventions-genai",
    shared=True,
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
        # Of the span that stands in where only its log events arrived.
        "event.name": dict.fromkeys((_DETAILS, *_SPOKEN[:3], _CHOICE), "model"),
    },
    signs=(semconv.OPERATION, semconv.CONVERSATION_ID),
    of={
        "tool": Places(
            name=(semconv.TOOL_NAME, _TO_AGENT, "gen_ai.data_source.id", "gen_ai.memory.store.id"),
            call_id=(semconv.TOOL_CALL_ID,),
            arguments=(semconv.TOOL_CALL_ARGUMENTS,),
            result=(semconv.TOOL_CALL_RESULT, "gen_ai.retrieval.documents", "gen_ai.memory.records"),
        ),
        "agent": Places(name=(semconv.AGENT_NAME,), asked=_ASKED, answered=_ANSWERED),
        "entry": Places(name=("gen_ai.workflow.name", semconv.AGENT_NAME), asked=_ASKED, answered=_ANSWERED),
        "model": Places(
            call_id=("gen_ai.response.id",),
            finish=("gen_ai.response.finish_reasons",),
            asked=_ASKED,
            answered=_ANSWERED,
        ),
    },
    everywhere=Places(
        agent=(semconv.AGENT_NAME,), session_id=(semconv.CONVERSATION_ID,), tools=(semconv.TOOL_DEFINITIONS,)
    ),
    span_names={"tool": ("execute_tool {name}", "retrieval {name}", "search_memory {name}")},
    refine=_refine,
    span_per_call=frozenset({semconv.SCOPE}),
    notes=(
        "The operations `handoff` and `agent_handoff`, and spans with `gen_ai.handoff.to_agent`, are hand-offs.",
        "The operations `retrieval` and `search_memory`, and tools of type `datastore`, are retrievals.",
        "`conversation`, `initiate_chats` and `speaker_selection` are operations of AG2, `call_llm` one of any-agent.",
        "Planning, embeddings and writing to a memory are no calls.",
        "A tool without any name attribute is named by its span.",
    ),
    content=f"{_SWITCH}; with @goldspan.trace, {_OURS}",
    switches={
        "opentelemetry.": _SWITCH,
        semconv.SCOPE: _OURS,
        "agent_framework": "ENABLE_SENSITIVE_DATA=true",
        "semantic_kernel": "SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS_SENSITIVE=true",
        "azure.": "AZURE_TRACING_GEN_AI_CONTENT_RECORDING_ENABLED=true",
    },
)
