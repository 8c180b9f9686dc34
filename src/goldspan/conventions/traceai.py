"""traceAI (Future AGI): `gen_ai.span.kind`, `input.value`, `output.value` and flattened messages.

The instrumentations derive from those of OpenInference and record each framework in the same way. Only the names of the
attributes differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from goldspan import semconv
from goldspan.content import envelopes, messages
from goldspan.content.flat_attributes import flat_items
from goldspan.content.tools import tool_definitions
from goldspan.conventions import openinference
from goldspan.conventions.convention import ANY, AttributeMap, Convention, FromFlattened, FromJson
from goldspan.conventions.openinference.specification import INPUT, OUTPUT, PlainText
from goldspan.conventions.span_facts import Messages, Role, SpanFacts
from goldspan.model import SpanRecord, ToolDefinition

_KIND = "gen_ai.span.kind"
_LEGACY_KIND = "fi.span.kind"
"""Kind attribute of the first versions, which wrote messages into `llm.*`."""
_SCHEMA = "tool.json_schema"
_ROLES: Mapping[str, Role] = {
    "tool": "tool",
    "retriever": "tool",
    "agent": "agent",
    "llm": "model",
    "conversation": "entry",
    "a2a_server": "entry",
    "evaluator": "aside",
}


@dataclass(frozen=True, slots=True)
class _FromMessages:
    """Reads flattened messages, or the complete messages if flattening lost calls or call ids."""

    prefix: str
    complete_attribute: str

    def __call__(self, span: SpanRecord) -> Messages:
        """Return the messages of a span."""
        flat = messages.from_flat(span.attributes, self.prefix, "message")
        text = span.attributes.get(self.complete_attribute)
        if isinstance(text, str) and messages.may_contain_calls(text):
            complete = messages.from_json(text)
            if _count_ids(complete) > _count_ids(flat):
                return complete
        return flat

    def __str__(self) -> str:
        """Return the description of the source for the documentation."""
        return f"`{self.prefix}.N.message.*`"


def _count_ids(decoded: Messages) -> int:
    """Return the number of calls and results that have an id."""
    parts = [part.call_id for message in decoded for part in message.tool_calls]
    parts += [part.call_id for message in decoded for part in message.tool_results]
    return len(parts) - parts.count(None)


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts:
    attributes = span.attributes
    kind = attributes.get(_KIND, attributes.get(_LEGACY_KIND))
    if facts.role == "tool":
        _postprocess_tool(span, facts, str(kind).lower())
    elif facts.role == "agent":
        facts.agent = facts.name
    elif facts.role == "model":
        facts.tool_definitions += (partial(_offered_tools, attributes),)
    openinference.apply_framework_rules(span, facts)
    return openinference.drop_redacted_values(facts)


def _postprocess_tool(span: SpanRecord, facts: SpanFacts, kind: str) -> None:
    facts.name, facts.span_name = facts.name or None, span.name
    if kind == "retriever":
        facts.kind = "retrieval"
    elif (facts.name or span.name).startswith(openinference.HANDOFF_PREFIXES):
        facts.kind = "handoff"


def _offered_tools(attributes: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    """Return the tools offered to a model; the definition of each tool is JSON text."""
    items = flat_items(attributes, semconv.TOOL_DEFINITIONS)
    return tool_definitions([item[_SCHEMA] for item in items if _SCHEMA in item])


def _unwrap_arguments(value: Any) -> envelopes.CallArguments:
    shown_arguments = value.get("input") if isinstance(value, Mapping) and len(value) == 1 else None
    # LangChain: the `repr` of the arguments. The value of an argument named `input` would not look like this.
    if isinstance(shown_arguments, str) and (shown_arguments == "{}" or shown_arguments.startswith("{'")):
        return envelopes.unwrap_arguments(shown_arguments)
    return openinference.unwrap_arguments(value)


_MESSAGES = AttributeMap(
    input_messages=(_FromMessages(semconv.INPUT_MESSAGES, INPUT), FromFlattened("llm.input_messages", "message")),
    output_messages=(_FromMessages(semconv.OUTPUT_MESSAGES, OUTPUT), FromFlattened("llm.output_messages", "message")),
)

CONVENTION = Convention(
    name="traceai",
    title="traceAI (Future AGI)",
    source="https://github.com/future-agi/traceAI",
    versions="instrumentations 0.1 and 0.2 (Python)",
    roles={semconv.TOOL_NAME: {ANY: "tool"}, "tool.name": {ANY: "tool"}, _KIND: _ROLES, _LEGACY_KIND: _ROLES},
    marker_attributes=(_KIND, _LEGACY_KIND),
    requires_any=(_KIND, _LEGACY_KIND),
    attributes_by_role={
        "tool": AttributeMap(
            name=(semconv.TOOL_NAME, "tool.name"),
            call_id=(semconv.TOOL_CALL_ID,),
            arguments=(semconv.TOOL_CALL_ARGUMENTS, INPUT),
            result=(semconv.TOOL_CALL_RESULT, OUTPUT),
        ),
        "agent": AttributeMap(
            name=(semconv.AGENT_NAME, "graph.node.id", "graph.node.name", "gen_ai.agent.graph.node_name"),
            input_messages=_MESSAGES.input_messages,
            output_messages=_MESSAGES.output_messages,
        ),
        "model": AttributeMap(
            tool_definitions=(semconv.TOOL_DEFINITIONS,),
            finish_reason=("gen_ai.response.finish_reasons",),
            input_messages=(
                *_MESSAGES.input_messages,
                FromJson(semconv.INPUT_MESSAGES),
                FromJson(INPUT),
                PlainText(INPUT, "user"),
            ),
            output_messages=(
                *_MESSAGES.output_messages,
                FromJson(semconv.OUTPUT_MESSAGES),
                FromJson(OUTPUT),
                PlainText(OUTPUT, "assistant"),
            ),
        ),
    },
    common_attributes=AttributeMap(
        session_id=("session.id", semconv.CONVERSATION_ID), input=(INPUT,), output=(OUTPUT,)
    ),
    unwrap_arguments=_unwrap_arguments,
    unwrap_result=openinference.unwrap_result,
    postprocess=_postprocess,
    notes=(
        "A span belongs to traceAI only if it has a kind.",
        "The framework rules of OpenInference apply, because the instrumentations derive from those of OpenInference.",
        "A span with a tool's name is a tool, whatever its kind: LangChain marks a tool named `..._agent` as `AGENT`.",
        "A `TOOL` span named `handoff to X` is a hand-off. A `RETRIEVER` span is a retrieval.",
        "LangChain: a tool's arguments are a Python `repr` under `input`. Flattened messages have no call ids.",
    ),
    capture_setting="FI_HIDE_INPUTS=false FI_HIDE_OUTPUTS=false",
)
