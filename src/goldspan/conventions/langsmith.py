"""LangSmith's OpenTelemetry export: `langsmith.span.kind` with all inputs in `gen_ai.prompt`.

LangSmith exports every run as a span and writes its inputs and outputs as JSON into `gen_ai.prompt` and
`gen_ai.completion`: a tool's arguments and result, a model's messages, and a chain's state.
"""

from __future__ import annotations

from typing import Any

from goldspan import semconv
from goldspan.content import envelopes
from goldspan.conventions.convention import AttributeMap, Convention, FromJson
from goldspan.conventions.span_facts import SpanFacts
from goldspan.model import SpanRecord

_KIND = "langsmith.span.kind"
_NAME = "langsmith.trace.name"
_AGENT = "langsmith.metadata.lc_agent_name"
_NODE = "langsmith.metadata.langgraph_node"
_INPUT = "gen_ai.prompt"
_OUTPUT = "gen_ai.completion"


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts:
    kind = str(span.attributes.get(_KIND)).lower()
    if kind == "retriever":
        facts.kind = "retrieval"
    elif kind == "chain":
        facts.name = facts.name or span.name
        if facts.name == facts.agent:
            facts.role = "agent"
        elif _NODE in span.attributes:
            facts.role = None
    if facts.role == "tool" and span.status == "error":
        _postprocess_failed_tool(span, facts)
    return facts


def _postprocess_failed_tool(span: SpanRecord, facts: SpanFacts) -> None:
    """Drop the empty result of a failed run, and remove the traceback that follows the exception's `repr`."""
    if span.attributes.get(_OUTPUT) == "{}":
        facts.result = None
    error_message = next((event.attributes.get("exception.message") for event in span.events), None)
    if isinstance(error_message, str):
        facts.error = error_message.partition("Traceback (most recent call last)")[0] or error_message


def _unwrap_arguments(value: Any) -> envelopes.CallArguments:
    return envelopes.unwrap_arguments(value, envelopes.keyed_arguments("input"))


def _unwrap_result(value: Any) -> envelopes.CallResult:
    return envelopes.unwrap_result(value, envelopes.keyed_result("output"))


CONVENTION = Convention(
    name="langsmith",
    title="LangSmith",
    source="https://github.com/langchain-ai/langsmith-sdk (LANGSMITH_OTEL_ENABLED)",
    versions="0.4 to 0.14",
    roles={_KIND: {"tool": "tool", "retriever": "tool", "llm": "model", "chain": "entry"}},
    attributes_by_role={
        "tool": AttributeMap(
            name=(semconv.TOOL_NAME, _NAME),
            call_id=(semconv.TOOL_CALL_ID,),
            arguments=(semconv.TOOL_CALL_ARGUMENTS, _INPUT),
            result=(semconv.TOOL_CALL_RESULT, _OUTPUT),
        ),
        "model": AttributeMap(
            tool_definitions=(semconv.TOOL_DEFINITIONS,),
            input_messages=(FromJson(_INPUT),),
            output_messages=(FromJson(_OUTPUT),),
        ),
        "entry": AttributeMap(name=(_NAME,), input=(_INPUT,), output=(_OUTPUT,)),
    },
    common_attributes=AttributeMap(
        agent=(_AGENT,),
        session_id=(
            "langsmith.metadata.session_id",
            "langsmith.metadata.thread_id",
            "langsmith.metadata.conversation_id",
        ),
    ),
    unwrap_arguments=_unwrap_arguments,
    unwrap_result=_unwrap_result,
    postprocess=_postprocess,
    notes=(
        "A chain that has the name of its agent is that agent. A chain that is a node of a graph is part of an agent.",
        "`langsmith.trace.session_name` is the LangSmith project, not a session.",
    ),
    capture_setting="LANGSMITH_HIDE_INPUTS=false, LANGSMITH_HIDE_OUTPUTS=false",
)
