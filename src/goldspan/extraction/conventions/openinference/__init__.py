"""OpenInference: `openinference.span.kind`, `input.value` and `output.value`, and flattened `llm.*` messages.

Source: the OpenInference semantic conventions. They leave much open, and every framework fills it in its own way: what
only one framework writes stands in the module of its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from goldspan.extraction import messages, values
from goldspan.extraction.convention import ANY, Convention, FromFlat, Places
from goldspan.extraction.conventions.openinference import (
    agno,
    autogen,
    beeai,
    crewai,
    dspy,
    google_adk,
    haystack,
    instructor,
    langchain,
    llama_index,
    smolagents,
)
from goldspan.extraction.conventions.openinference.attributes import (
    INPUT,
    KIND,
    METADATA,
    OUTPUT,
    REDACTED,
    TOOL_NAME,
    TOOL_PARAMETERS,
    TOOL_SCHEMA,
)
from goldspan.extraction.conventions.openinference.words import ANSWERED, ASKED
from goldspan.extraction.flattened import flat_items, nested
from goldspan.extraction.reading import Reading, Role, Written
from goldspan.model import SpanRecord, ToolDefinition

HANDOFFS = ("handoff to ", "handoff_to_")
"""How the OpenAI Agents instrumentations, Python and JavaScript, name the span of a hand-off."""
_SESSIONS = ("session_id", "thread_id", "conversation_id", "sessionId", "threadId", "conversationId")
"""Under which keys of `metadata` people put the conversation's id."""


def _refine(span: SpanRecord, reading: Reading) -> Reading | None:
    attributes = span.attributes
    if reading.role == "tool":
        _refine_tool(span, reading)
    elif reading.role == "agent":
        reading.agent = reading.name
    elif reading.role == "model":
        reading.tools = (partial(_offered, attributes),)
    refine_by_framework(span, reading)
    return without_redacted(reading)


def refine_by_framework(span: SpanRecord, reading: Reading) -> None:
    """Correct what only one framework writes its own way, and find the session in what it says of the span."""
    for refine in _DIALECTS.get(reading.role, ()):
        refine(span, reading)
    if reading.session_id is None and (metadata := span.attributes.get(METADATA)) is not None:
        reading.session_id = _session_in(metadata)


def _refine_tool(span: SpanRecord, reading: Reading) -> None:
    attributes = span.attributes
    reading.name, reading.span_name = reading.name or None, span.name
    if str(attributes.get(KIND)).lower() == "retriever":
        reading.kind = "retrieval"
    elif (reading.name or span.name).startswith(HANDOFFS):
        reading.kind = "handoff"
    described = next((attributes[key] for key in (TOOL_PARAMETERS, TOOL_SCHEMA) if key in attributes), None)
    if described is None or described == REDACTED:
        return
    reading.tools = (partial(_definition, reading.name or span.name, described),)
    if reading.arguments is None and not _is_schema(values.plain(described)):
        reading.arguments = Written(described, open_arguments)


def _is_schema(described: Any) -> bool:
    """Whether a value describes parameters, in JSON schema or one by one, and does not give them."""
    if not isinstance(described, Mapping):
        return False
    if "properties" in described or described.get("type") == "object" or "parameters" in described:
        return True
    return bool(described) and all(isinstance(item, Mapping) and "type" in item for item in described.values())


def _definition(name: str, described: Any) -> tuple[ToolDefinition, ...]:
    """The definition of the tool itself, which names what was passed to it by position."""
    read = values.plain(described)
    if not _is_schema(read):
        return ()
    return messages.definitions(read if "function" in read else {"name": name, "parameters": read})


def _offered(attributes: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    """The tools offered: `llm.tools.N.tool.json_schema`, or all of them in one `llm.tools`."""
    schemas = [
        item[_SCHEMA] if _SCHEMA in item else _schema_in(nested(item)) for item in flat_items(attributes, _TOOLS)
    ]
    return messages.definitions(schemas or attributes.get(_TOOLS))


_TOOLS, _SCHEMA = "llm.tools", "tool.json_schema"


def _schema_in(item: Any) -> Any:
    tool = item.get("tool") if isinstance(item, Mapping) else None
    return tool.get("json_schema") if isinstance(tool, Mapping) else None


def _session_in(metadata: Any) -> str | None:
    read = values.plain(metadata)
    if not isinstance(read, Mapping):
        return None
    found = next((read[key] for key in _SESSIONS if read.get(key)), None)
    return None if found is None else str(found)


def without_redacted(reading: Reading) -> Reading:
    """Forget what the instrumentation was told to hide: it writes a fixed word in its place."""
    if reading.arguments is not None and reading.arguments.raw == REDACTED:
        reading.arguments = None
    if reading.result is not None and reading.result.raw == REDACTED:
        reading.result = None
    reading.input = None if reading.input == REDACTED else reading.input
    reading.output = None if reading.output == REDACTED else reading.output
    return reading


_DIALECTS: Mapping[Role | None, tuple[Callable[[SpanRecord, Reading], None], ...]] = {
    "tool": (
        dspy.refine_tool,
        smolagents.refine_tool,
        llama_index.refine_tool,
        crewai.refine_tool,
        beeai.refine_tool,
        instructor.refine_tool,
        beeai.refine,
    ),
    "agent": (
        smolagents.refine_agent,
        langchain.refine_agent,
        google_adk.refine_agent,
        haystack.refine_chain,
        beeai.refine,
    ),
    "model": (llama_index.refine_model, haystack.refine_model, beeai.refine),
    None: (
        dspy.refine_chain,
        llama_index.refine_chain,
        langchain.refine_chain,
        crewai.refine_chain,
        google_adk.refine_chain,
        haystack.refine_chain,
        instructor.refine_chain,
        agno.refine_chain,
        beeai.refine_chain,
    ),
}
"""What each framework's module corrects, by the role that the specification gives the span."""


def open_arguments(value: Any) -> values.Request:
    """Take arguments out of the envelope that a framework put around them."""
    return values.request(value, crewai.tool_usage)


def open_result(value: Any) -> values.Result:
    """The same for results."""
    return values.result(value, google_adk.function_response)


CONVENTION = Convention(
    name="openinference",
    title="OpenInference",
    source="https://github.com/Arize-ai/openinference/tree/main/spec",
    versions="instrumentations 0.1 to 4.6 (Python), 0.2 to 4.2 (JavaScript)",
    roles={
        TOOL_NAME: {ANY: "tool"},
        KIND: {"tool": "tool", "retriever": "tool", "agent": "agent", "llm": "model", "evaluator": "aside"},
    },
    signs=(KIND, "session.id", INPUT),
    of={
        "tool": Places(name=(TOOL_NAME,), call_id=("tool_call.id", "tool.id"), arguments=(INPUT,), result=(OUTPUT,)),
        "agent": Places(
            name=("agent.name", "graph.node.name", "graph.node.id"),
            asked=(FromFlat("llm.input_messages", "message"),),
            answered=(FromFlat("llm.output_messages", "message"),),
        ),
        "model": Places(finish=("llm.finish_reason",), asked=ASKED, answered=ANSWERED),
    },
    everywhere=Places(session_id=("session.id",), input=(INPUT,), output=(OUTPUT,)),
    open_arguments=open_arguments,
    open_result=open_result,
    refine=_refine,
    notes=(
        "`tool.parameters` is a tool's schema by the specification; several instrumentations write arguments there.",
        "`tool.parameters` that are no schema are read as arguments where `input.value` is missing.",
        "A `TOOL` span called `handoff to X` is a hand-off, a `RETRIEVER` span a retrieval.",
        "A span with a `tool.name` is a tool whatever its kind: of one called `..._agent`, LangChain's says `AGENT`.",
        "A `CHAIN` span is no request by itself; as a trace's root it knows the input and the output of the run.",
        "Without `session.id`, the `session_id`, `thread_id` or `conversation_id` in `metadata` is the session's.",
        "`__REDACTED__` counts as not recorded.",
        "What Google's SDK called by itself stands in `automatic_function_calling_history`, in `output.value`.",
        *langchain.NOTES,
        *llama_index.NOTES,
        *dspy.NOTES,
        *smolagents.NOTES,
        *autogen.NOTES,
        *crewai.NOTES,
        *google_adk.NOTES,
        *haystack.NOTES,
        *instructor.NOTES,
        *agno.NOTES,
        *beeai.NOTES,
    ),
    content="OPENINFERENCE_HIDE_INPUTS=false OPENINFERENCE_HIDE_OUTPUTS=false",
)
