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
from goldspan.extraction import messages, values
from goldspan.extraction.convention import ANY, Convention, FromFlat, FromJson, Places
from goldspan.extraction.conventions import openinference
from goldspan.extraction.conventions.openinference.attributes import INPUT, OUTPUT
from goldspan.extraction.conventions.openinference.words import Words
from goldspan.extraction.flattened import flat_items
from goldspan.extraction.reading import Messages, Reading, Role
from goldspan.model import SpanRecord, ToolDefinition

_KIND = "gen_ai.span.kind"
_FIRST_KIND = "fi.span.kind"
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
class _Spoken:
    """Flattened messages, or the whole ones where flattening has lost calls or the ids of what answers them."""

    prefix: str
    whole: str

    def __call__(self, span: SpanRecord) -> Messages:
        """The messages of a span."""
        flat = messages.from_flat(span.attributes, self.prefix, "message")
        said = span.attributes.get(self.whole)
        if isinstance(said, str) and messages.may_call(said):
            found = messages.from_json(said)
            if _identified(found) > _identified(flat):
                return found
        return flat

    def __str__(self) -> str:
        """How the documentation names the place."""
        return f"`{self.prefix}.N.message.*`"


def _identified(found: Messages) -> int:
    """How many calls and answers have an id."""
    parts = [part.call_id for message in found for part in message.calls]
    parts += [part.call_id for message in found for part in message.answers]
    return len(parts) - parts.count(None)


def _refine(span: SpanRecord, reading: Reading) -> Reading:
    attributes = span.attributes
    kind = attributes.get(_KIND, attributes.get(_FIRST_KIND))
    if reading.role == "tool":
        _refine_tool(span, reading, str(kind).lower())
    elif reading.role == "agent":
        reading.agent = reading.name
    elif reading.role == "model":
        reading.tools += (partial(_offered, attributes),)
    openinference.refine_by_framework(span, reading)
    return openinference.without_redacted(reading)


def _refine_tool(span: SpanRecord, reading: Reading, kind: str) -> None:
    reading.name, reading.span_name = reading.name or None, span.name
    if kind == "retriever":
        reading.kind = "retrieval"
    elif (reading.name or span.name).startswith(openinference.HANDOFFS):
        reading.kind = "handoff"


def _offered(attributes: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    """The tools offered to a model, each as the text of its definition."""
    items = flat_items(attributes, semconv.TOOL_DEFINITIONS)
    return messages.definitions([item[_SCHEMA] for item in items if _SCHEMA in item])


def _arguments(value: Any) -> values.Request:
    given = value.get("input") if isinstance(value, Mapping) and len(value) == 1 else None
    # LangChain: the arguments as Python shows them, which no argument of that name would be.
    if isinstance(given, str) and (given == "{}" or given.startswith("{'")):
        return values.request(given)
    return openinference.open_arguments(value)


_SPOKEN = Places(
    asked=(_Spoken(semconv.INPUT_MESSAGES, INPUT), FromFlat("llm.input_messages", "message")),
    answered=(_Spoken(semconv.OUTPUT_MESSAGES, OUTPUT), FromFlat("llm.output_messages", "message")),
)

CONVENTION = Convention(
    name="traceai",
    title="traceAI (Future AGI)",
    source="https://github.com/future-agi/traceAI",
    versions="instrumentations 0.1 and 0.2 (Python)",
    roles={semconv.TOOL_NAME: {ANY: "tool"}, "tool.name": {ANY: "tool"}, _KIND: _ROLES, _FIRST_KIND: _ROLES},
    signs=(_KIND, _FIRST_KIND),
    only_with=(_KIND, _FIRST_KIND),
    of={
        "tool": Places(
            name=(semconv.TOOL_NAME, "tool.name"),
            call_id=(semconv.TOOL_CALL_ID,),
            arguments=(semconv.TOOL_CALL_ARGUMENTS, INPUT),
            result=(semconv.TOOL_CALL_RESULT, OUTPUT),
        ),
        "agent": Places(
            name=(semconv.AGENT_NAME, "graph.node.id", "graph.node.name", "gen_ai.agent.graph.node_name"),
            asked=_SPOKEN.asked,
            answered=_SPOKEN.answered,
        ),
        "model": Places(
            tools=(semconv.TOOL_DEFINITIONS,),
            finish=("gen_ai.response.finish_reasons",),
            asked=(*_SPOKEN.asked, FromJson(semconv.INPUT_MESSAGES), FromJson(INPUT), Words(INPUT, "user")),
            answered=(
                *_SPOKEN.answered,
                FromJson(semconv.OUTPUT_MESSAGES),
                FromJson(OUTPUT),
                Words(OUTPUT, "assistant"),
            ),
        ),
    },
    everywhere=Places(session_id=("session.id", semconv.CONVERSATION_ID), input=(INPUT,), output=(OUTPUT,)),
    open_arguments=_arguments,
    open_result=openinference.open_result,
    refine=_refine,
    notes=(
        "A span is traceAI's only if it has a kind.",
        "What only one framework writes is read as with OpenInference, from which the instrumentations come.",
        "A span with a tool's name is a tool whatever its kind: of one called `..._agent`, LangChain's says `AGENT`.",
        "A `TOOL` span called `handoff to X` is a hand-off, a `RETRIEVER` span a retrieval.",
        "LangChain: a tool's arguments are a Python `repr` under `input`; flattened messages lack the ids of calls.",
    ),
    content="FI_HIDE_INPUTS=false FI_HIDE_OUTPUTS=false",
)
