"""traceAI (Future AGI): `gen_ai.span.kind`, `input.value` and `output.value`, and messages flattened below `gen_ai.*`.

Its instrumentations began as those of OpenInference, and show each framework as those do: only the names of the
attributes are others.
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
"""How the first versions called it, when messages still stood below `llm.*`."""
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
    """Flattened messages, or the whole ones where flattening has lost calls or the ids of what answers them."""

    prefix: str
    whole: str

    def __call__(self, span: SpanRecord) -> Messages:
        """The messages of a span."""
        flat = messages.from_flat(span.attributes, self.prefix, "message")
        said = span.attributes.get(self.whole)
        if isinstance(said, str) and messages.may_contain_calls(said):
            found = messages.from_json(said)
            if _count_ids(found) > _count_ids(flat):
                return found
        return flat

    def __str__(self) -> str:
        """How the documentation names the place."""
        return f"`{self.prefix}.N.message.*`"


def _count_ids(found: Messages) -> int:
    """How many calls and answers have an id."""
    parts = [part.call_id for message in found for part in message.tool_calls]
    parts += [part.call_id for message in found for part in message.tool_results]
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
    """The tools offered to a model, each as the text of its definition."""
    items = flat_items(attributes, semconv.TOOL_DEFINITIONS)
    return tool_definitions([item[_SCHEMA] for item in items if _SCHEMA in item])


def _unwrap_arguments(value: Any) -> envelopes.CallArguments:
    given = value.get("input") if isinstance(value, Mapping) and len(value) == 1 else None
    # LangChain: the arguments as Python shows them, which no argument of that name would be.
    if isinstance(given, str) and (given == "{}" or given.startswith("{'")):
        return envelopes.unwrap_arguments(given)
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
        "A span is traceAI's only if it has a kind.",
        "What only one framework writes is read as with OpenInference, from which the instrumentations come.",
        "A span with a tool's name is a tool whatever its kind: of one called `..._agent`, LangChain's says `AGENT`.",
        "A `TOOL` span called `handoff to X` is a hand-off, a `RETRIEVER` span a retrieval.",
        "LangChain: a tool's arguments are a Python `repr` under `input`; flattened messages lack the ids of calls.",
    ),
    capture_setting="FI_HIDE_INPUTS=false FI_HIDE_OUTPUTS=false",
)
