"""LiveKit Agents: voice agents, with `lk.*` attributes.

A request is the agent's turn that answers the user's input. In older versions the agent's reply after its tool calls is
a second turn, which has no user input and belongs to the same request. Newer versions write one turn, mark content with
a segment `pii`, and also follow the GenAI conventions, in which the whole session is a workflow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from goldspan.content import messages
from goldspan.content.literals import plain_value
from goldspan.conventions.convention import ANY, AttributeMap, Convention
from goldspan.conventions.span_facts import Messages, SpanFacts
from goldspan.model import SpanRecord

_USER_INPUT = ("lk.user_input", "lk.pii.user_input")
_NAME = "lk.function_tool.name"
_TEXT = ("lk.response.text", "lk.pii.response.text")
_CALLS = ("lk.response.function_calls", "lk.pii.response.function_calls")
_CONTEXT = ("lk.chat_ctx", "lk.pii.chat_ctx")


@dataclass(frozen=True, slots=True)
class _FromContext:
    """Reads the items of a chat context: messages, calls and their results."""

    def __call__(self, span: SpanRecord) -> Messages:
        """Return the messages of a span."""
        context = plain_value(_first_value(span.attributes, _CONTEXT))
        return messages.from_json(context.get("items")) if isinstance(context, Mapping) else ()

    def __str__(self) -> str:
        """Return the description of the source for the documentation."""
        return " or ".join(f"`{key}`" for key in _CONTEXT)


@dataclass(frozen=True, slots=True)
class _FromResponse:
    """Reads the model's text and the calls that it requested."""

    def __call__(self, span: SpanRecord) -> Messages:
        """Return the messages of a span."""
        text, calls = _first_value(span.attributes, _TEXT), plain_value(_first_value(span.attributes, _CALLS))
        return messages.from_json([{"role": "assistant", "content": text, "tool_calls": calls}])

    def __str__(self) -> str:
        """Return the description of the source for the documentation."""
        return " or ".join(f"`{key}`" for key in (*_TEXT, *_CALLS))


def _first_value(attributes: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    return next((attributes[key] for key in keys if key in attributes), None)


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts | None:
    if span.attributes.get("gen_ai.workflow.name") == "agent_session":
        facts.role = "aside"
    if facts.role == "tool" and str(span.attributes.get("lk.function_tool.is_error")).lower() == "true":
        result = facts.result.value if facts.result is not None else None
        facts.error = result if isinstance(result, str) and result else "error"
    return facts if facts.role is not None else None


CONVENTION = Convention(
    name="livekit",
    title="LiveKit Agents",
    source="https://github.com/livekit/agents",
    versions="1.0 to 1.8 (Python, Node.js)",
    roles={
        _NAME: {ANY: "tool"},
        **{key: {ANY: "agent"} for key in _USER_INPUT},
        "lk.generation_id": {ANY: "aside"},
        **{key: {ANY: "model"} for key in _TEXT},
    },
    marker_attributes=("lk.agent_label",),
    attributes_by_role={
        "tool": AttributeMap(
            name=(_NAME,),
            call_id=("lk.function_tool.id",),
            arguments=("lk.function_tool.arguments", "lk.pii.function_tool.arguments"),
            result=("lk.function_tool.output", "lk.pii.function_tool.output"),
        ),
        "agent": AttributeMap(name=("gen_ai.agent.name", "lk.agent_label"), input=_USER_INPUT, output=_TEXT),
        "model": AttributeMap(input_messages=(_FromContext(),), output_messages=(_FromResponse(),)),
    },
    postprocess=_postprocess,
    notes=(
        "A session has many requests. A turn with user input starts a request; a turn without user input continues it.",
        "`lk.function_tool.is_error` reports that a tool failed. The tool's output is then the error.",
    ),
)
