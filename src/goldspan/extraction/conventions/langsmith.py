"""LangSmith's OpenTelemetry export: `langsmith.span.kind` with all inputs in `gen_ai.prompt`.

Every run becomes a span, whatever its kind, and its inputs and outputs are JSON in `gen_ai.prompt` and
`gen_ai.completion`: a tool's arguments and result as well as a model's messages and a chain's state.
"""

from __future__ import annotations

from typing import Any

from goldspan import semconv
from goldspan.extraction import envelopes, values
from goldspan.extraction.convention import Convention, FromJson, Places
from goldspan.extraction.reading import Reading
from goldspan.model import SpanRecord

_KIND = "langsmith.span.kind"
_NAME = "langsmith.trace.name"
_AGENT = "langsmith.metadata.lc_agent_name"
_NODE = "langsmith.metadata.langgraph_node"
_INPUT = "gen_ai.prompt"
_OUTPUT = "gen_ai.completion"


def _refine(span: SpanRecord, reading: Reading) -> Reading:
    kind = str(span.attributes.get(_KIND)).lower()
    if kind == "retriever":
        reading.kind = "retrieval"
    elif kind == "chain":
        reading.name = reading.name or span.name
        if reading.name == reading.agent:
            reading.role = "agent"
        elif _NODE in span.attributes:
            reading.role = None
    if reading.role == "tool" and span.status == "error":
        _refine_failed(span, reading)
    return reading


def _refine_failed(span: SpanRecord, reading: Reading) -> None:
    """A failed run has empty outputs, and its error is the exception's `repr` with the traceback right behind it."""
    if span.attributes.get(_OUTPUT) == "{}":
        reading.result = None
    told = next((event.attributes.get("exception.message") for event in span.events), None)
    if isinstance(told, str):
        reading.error = told.partition("Traceback (most recent call last)")[0] or told


def _arguments(value: Any) -> values.Request:
    return values.request(value, envelopes.under("input"))


def _result(value: Any) -> values.Result:
    return values.result(value, envelopes.inside("output"))


CONVENTION = Convention(
    name="langsmith",
    title="LangSmith",
    source="https://github.com/langchain-ai/langsmith-sdk (LANGSMITH_OTEL_ENABLED)",
    versions="0.4 to 0.14",
    roles={_KIND: {"tool": "tool", "retriever": "tool", "llm": "model", "chain": "entry"}},
    of={
        "tool": Places(
            name=(semconv.TOOL_NAME, _NAME),
            call_id=(semconv.TOOL_CALL_ID,),
            arguments=(semconv.TOOL_CALL_ARGUMENTS, _INPUT),
            result=(semconv.TOOL_CALL_RESULT, _OUTPUT),
        ),
        "model": Places(tools=(semconv.TOOL_DEFINITIONS,), asked=(FromJson(_INPUT),), answered=(FromJson(_OUTPUT),)),
        "entry": Places(name=(_NAME,), input=(_INPUT,), output=(_OUTPUT,)),
    },
    everywhere=Places(
        agent=(_AGENT,),
        session_id=(
            "langsmith.metadata.session_id",
            "langsmith.metadata.thread_id",
            "langsmith.metadata.conversation_id",
        ),
    ),
    open_arguments=_arguments,
    open_result=_result,
    refine=_refine,
    notes=(
        "A chain that bears the name of its agent is that agent; a chain that is a node of a graph is part of one.",
        "`langsmith.trace.session_name` is the LangSmith project, not a session.",
    ),
    content="LANGSMITH_HIDE_INPUTS=false, LANGSMITH_HIDE_OUTPUTS=false",
)
