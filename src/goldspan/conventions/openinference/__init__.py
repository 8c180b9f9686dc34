"""OpenInference: `openinference.span.kind`, `input.value`, `output.value`, flattened `llm.*` messages.

The OpenInference specification leaves many details to the instrumentation of each framework.

`specification`: defines the attribute names, and the sources of messages that are not flattened.

Each other module holds the rules of one framework: `beeai`, `crewai`, `dspy`, `google_adk`, `haystack`, `langchain`,
`llama_index`, `smolagents`. `minor_frameworks` holds the rules of Agno, AutoGen and Instructor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from goldspan.content import envelopes, literals
from goldspan.content.flat_attributes import FlatRows, flat_rows, nest_row
from goldspan.content.tools import cache_by_rows, tool_definitions
from goldspan.conventions.convention import ANY, AttributeMap, Convention, FromFlattened
from goldspan.conventions.openinference import (
    beeai,
    crewai,
    dspy,
    google_adk,
    haystack,
    langchain,
    llama_index,
    minor_frameworks,
    smolagents,
)
from goldspan.conventions.openinference.specification import (
    INPUT,
    INPUT_MESSAGES,
    KIND,
    METADATA,
    OUTPUT,
    OUTPUT_MESSAGES,
    REDACTED,
    TOOL_NAME,
    TOOL_PARAMETERS,
    TOOL_SCHEMA,
)
from goldspan.conventions.span_facts import RawValue, Role, SpanFacts
from goldspan.model import SpanRecord, ToolDefinition

HANDOFF_PREFIXES = ("handoff to ", "handoff_to_")
"""Prefixes of hand-off span names in the OpenAI Agents instrumentations for Python and JavaScript."""
_SESSION_KEYS = ("session_id", "thread_id", "conversation_id", "sessionId", "threadId", "conversationId")
"""Keys of `metadata` that hold the conversation's id."""


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts | None:
    attributes = span.attributes
    if facts.role == "tool":
        _postprocess_tool(span, facts)
    elif facts.role == "agent":
        facts.agent = facts.name
    elif facts.role == "model":
        facts.tool_definitions = (partial(_offered_tools, attributes),)
    apply_framework_rules(span, facts)
    return drop_redacted_values(facts)


def apply_framework_rules(span: SpanRecord, facts: SpanFacts) -> None:
    """Apply the rules of the framework and read the session id from `metadata`."""
    for apply_rule in _FRAMEWORK_RULES.get(facts.role, ()):
        apply_rule(span, facts)
    if facts.session_id is None and (metadata := span.attributes.get(METADATA)) is not None:
        facts.session_id = _session_id_in(metadata)


def _postprocess_tool(span: SpanRecord, facts: SpanFacts) -> None:
    attributes = span.attributes
    facts.name, facts.span_name = facts.name or None, span.name
    if str(attributes.get(KIND)).lower() == "retriever":
        facts.kind = "retrieval"
    elif (facts.name or span.name).startswith(HANDOFF_PREFIXES):
        facts.kind = "handoff"
    parameters = next((attributes[key] for key in (TOOL_PARAMETERS, TOOL_SCHEMA) if key in attributes), None)
    if parameters is None or parameters == REDACTED:
        return
    facts.tool_definitions = (partial(_tool_definition, facts.name or span.name, parameters),)
    if facts.arguments is None and not _is_schema(literals.plain_value(parameters)):
        facts.arguments = RawValue(parameters, unwrap_arguments)


def _is_schema(value: Any) -> bool:
    """Whether the value is a description of parameters, as JSON schema or per parameter, and not their values."""
    if not isinstance(value, Mapping):
        return False
    if "properties" in value or value.get("type") == "object" or "parameters" in value:
        return True
    return bool(value) and all(isinstance(item, Mapping) and "type" in item for item in value.values())


def _tool_definition(name: str, value: Any) -> tuple[ToolDefinition, ...]:
    """Return the tool's own definition, which names the arguments that were passed by position."""
    schema = literals.plain_value(value)
    if not _is_schema(schema):
        return ()
    return tool_definitions(schema if "function" in schema else {"name": name, "parameters": schema})


def _offered_tools(attributes: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    """Return the tools offered to a model, from `llm.tools.N.tool.json_schema` or from one attribute `llm.tools`."""
    rows = flat_rows(attributes, _TOOLS)
    return _definitions_in_rows(rows) if rows else tool_definitions(attributes.get(_TOOLS))


@cache_by_rows
def _definitions_in_rows(rows: FlatRows) -> tuple[ToolDefinition, ...]:
    return tool_definitions(
        [
            values[paths.index(_SCHEMA)] if _SCHEMA in paths else _schema_in(nest_row(paths, values))
            for paths, values in rows
        ]
    )


_TOOLS, _SCHEMA = "llm.tools", "tool.json_schema"


def _schema_in(item: Any) -> Any:
    tool = item.get("tool") if isinstance(item, Mapping) else None
    return tool.get("json_schema") if isinstance(tool, Mapping) else None


def _session_id_in(metadata: Any) -> str | None:
    decoded = literals.plain_value(metadata)
    if not isinstance(decoded, Mapping):
        return None
    session_id = next((decoded[key] for key in _SESSION_KEYS if decoded.get(key)), None)
    return None if session_id is None else str(session_id)


def drop_redacted_values(facts: SpanFacts) -> SpanFacts:
    """Drop values that the instrumentation replaced by the redaction marker."""
    if facts.arguments is not None and facts.arguments.raw == REDACTED:
        facts.arguments = None
    if facts.result is not None and facts.result.raw == REDACTED:
        facts.result = None
    facts.input = None if facts.input == REDACTED else facts.input
    facts.output = None if facts.output == REDACTED else facts.output
    return facts


_FRAMEWORK_RULES: Mapping[Role | None, tuple[Callable[[SpanRecord, SpanFacts], None], ...]] = {
    "tool": (
        dspy.postprocess_tool,
        smolagents.postprocess_tool,
        llama_index.postprocess_tool,
        crewai.postprocess_tool,
        beeai.postprocess_tool,
        minor_frameworks.postprocess_instructor_tool,
        beeai.postprocess_event,
    ),
    "agent": (
        smolagents.postprocess_agent,
        langchain.postprocess_agent,
        google_adk.postprocess_agent,
        haystack.postprocess_chain,
        beeai.postprocess_event,
    ),
    "model": (llama_index.postprocess_model, haystack.postprocess_model, beeai.postprocess_event),
    None: (
        dspy.postprocess_chain,
        llama_index.postprocess_chain,
        langchain.postprocess_chain,
        crewai.postprocess_chain,
        google_adk.postprocess_chain,
        haystack.postprocess_chain,
        minor_frameworks.postprocess_instructor_chain,
        minor_frameworks.postprocess_agno_chain,
        beeai.postprocess_chain,
    ),
}
"""Rules of the frameworks, by the role of the span in the specification."""


def unwrap_arguments(value: Any) -> envelopes.CallArguments:
    """Unwrap arguments from the envelope of a framework."""
    return envelopes.unwrap_arguments(value, crewai.unwrap_tool_usage)


def unwrap_result(value: Any) -> envelopes.CallResult:
    """Unwrap a result from the envelope of a framework."""
    return envelopes.unwrap_result(value, google_adk.unwrap_function_response)


CONVENTION = Convention(
    name="openinference",
    title="OpenInference",
    source="https://github.com/Arize-ai/openinference/tree/main/spec",
    versions="instrumentations 0.1 to 4.6 (Python), 0.2 to 4.2 (JavaScript)",
    roles={
        TOOL_NAME: {ANY: "tool"},
        KIND: {"tool": "tool", "retriever": "tool", "agent": "agent", "llm": "model", "evaluator": "aside"},
    },
    marker_attributes=(KIND, "session.id", INPUT),
    attributes_by_role={
        "tool": AttributeMap(
            name=(TOOL_NAME,), call_id=("tool_call.id", "tool.id"), arguments=(INPUT,), result=(OUTPUT,)
        ),
        "agent": AttributeMap(
            name=("agent.name", "graph.node.name", "graph.node.id"),
            input_messages=(FromFlattened("llm.input_messages", "message"),),
            output_messages=(FromFlattened("llm.output_messages", "message"),),
        ),
        "model": AttributeMap(
            finish_reason=("llm.finish_reason",), input_messages=INPUT_MESSAGES, output_messages=OUTPUT_MESSAGES
        ),
    },
    common_attributes=AttributeMap(session_id=("session.id",), input=(INPUT,), output=(OUTPUT,)),
    unwrap_arguments=unwrap_arguments,
    unwrap_result=unwrap_result,
    postprocess=_postprocess,
    notes=(
        "`tool.parameters` is a tool's schema in the specification. Several instrumentations write arguments into it.",
        "If `input.value` is missing, `tool.parameters` holds the arguments, unless it is a schema.",
        "A `TOOL` span named `handoff to X` is a hand-off. A `RETRIEVER` span is a retrieval.",
        "A span with a `tool.name` is a tool, whatever its kind: LangChain marks a tool named `..._agent` as `AGENT`.",
        "A `CHAIN` span alone is not a request. At the root of a trace it holds the input and the output of the run.",
        "Without `session.id`, the `session_id`, `thread_id` or `conversation_id` in `metadata` is the session id.",
        "`__REDACTED__` replaces a value that was not recorded.",
        "`automatic_function_calling_history` in `output.value` holds the calls that Google's SDK made automatically.",
        *langchain.NOTES,
        *llama_index.NOTES,
        *dspy.NOTES,
        *smolagents.NOTES,
        *minor_frameworks.AUTOGEN_NOTES,
        *crewai.NOTES,
        *google_adk.NOTES,
        *haystack.NOTES,
        *minor_frameworks.INSTRUCTOR_NOTES,
        *minor_frameworks.AGNO_NOTES,
        *beeai.NOTES,
    ),
    capture_setting="OPENINFERENCE_HIDE_INPUTS=false OPENINFERENCE_HIDE_OUTPUTS=false",
)
