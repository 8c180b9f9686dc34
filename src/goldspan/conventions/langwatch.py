"""LangWatch: `langwatch.span.type`, with input and output each in an envelope `{"type": ..., "value": ...}`.

The name of a tool is the name of its span. The callback for LangChain loses much of what the model says: the tools it
asks for, and who speaks in the messages of a graph's state. What is missing there is put together again from what the
fields of a message tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from goldspan.content import envelopes, literals, messages
from goldspan.conventions.convention import AttributeMap, Convention
from goldspan.conventions.langchain import is_graph_run, messages_in_state
from goldspan.conventions.span_facts import Message, Messages, SpanFacts
from goldspan.model import SpanRecord

_TYPE = "langwatch.span.type"
_INPUT = "langwatch.input"
_OUTPUT = "langwatch.output"
_CONTEXTS = ("langwatch.rag_contexts", "langwatch.contexts")
_ORIGIN = "langwatch.origin"
_METADATA = "metadata"
_GRAPH_SPAN_NAME = "LangGraph"
_SESSION_KEYS = ("thread_id", "session_id", "conversation_id", "threadId", "sessionId", "conversationId")
"""Under which keys of `metadata` people put the conversation's id; LangWatch itself asks for the first."""
_ENVELOPE_TYPES = frozenset({"text", "json", "chat_messages", "list", "raw", "evaluation_result", "guardrail_result"})
_MODEL_ONLY_KEYS = frozenset({"response_metadata", "usage_metadata", "tool_calls", "invalid_tool_calls"})
"""Fields of a message of LangChain that only a model fills in."""


def _unwrap_envelope(value: Any) -> Any:
    """What an envelope holds; a list of envelopes is opened item by item. Anything else is itself."""
    read = literals.plain_value(value)
    if isinstance(read, Mapping) and read.keys() == {"type", "value"} and read["type"] in _ENVELOPE_TYPES:
        inner = read["value"]
        return list(map(_unwrap_envelope, inner)) if read["type"] == "list" and isinstance(inner, list) else inner
    return read


@dataclass(frozen=True, slots=True)
class _FromEnvelope:
    """The messages in an envelope; bare words are the model's or the user's."""

    attribute: str
    role: str

    def __call__(self, span: SpanRecord) -> Messages:
        """The messages of a span."""
        held = _unwrap_envelope(span.attributes.get(self.attribute))
        items = held if isinstance(held, list) else [held]
        return tuple(message for item in items for message in self._messages(item))

    def _messages(self, item: Any) -> Messages:
        if isinstance(item, str):
            return messages.certain_messages(literals.plain_value(item)) or (Message(self.role, item),) if item else ()
        return messages.from_json(item)

    def __str__(self) -> str:
        """How the documentation names the place."""
        return f"`{self.attribute}`"


@dataclass(frozen=True, slots=True)
class _FromState:
    """The messages in the state that a graph was given, or returned."""

    attribute: str

    def __call__(self, span: SpanRecord) -> Messages:
        """The messages of a span."""
        said = messages_in_state(_unwrap_envelope(span.attributes.get(self.attribute)))
        return messages.from_json([_restore_role(item) for item in said])


def _restore_role(item: Any) -> Any:
    """A message that lost its class when it was written: its fields tell who speaks."""
    if isinstance(item, list) and len(item) == 2:
        return {"role": item[0], "content": item[1]}
    if not isinstance(item, Mapping) or "role" in item or "type" in item:
        return item
    role = "tool" if "tool_call_id" in item else "user" if _MODEL_ONLY_KEYS.isdisjoint(item) else "assistant"
    return {**item, "role": role}


def _is_langgraph_run(span: SpanRecord) -> bool:
    written = span.attributes.get(_INPUT), span.attributes.get(_OUTPUT)
    if not all(isinstance(value, str) and '"messages"' in value for value in written):
        return False
    return is_graph_run(*map(_unwrap_envelope, written))


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts:
    attributes = span.attributes
    kind = str(attributes.get(_TYPE)).lower()
    if facts.role == "tool":
        facts.kind = "retrieval" if kind == "rag" else None
    elif facts.role == "agent" or (kind == "chain" and (span.name == _GRAPH_SPAN_NAME or _is_langgraph_run(span))):
        facts.role, facts.name, facts.agent = "agent", span.name, span.name
    elif facts.role is None and _ORIGIN in attributes and _unwrap_envelope(facts.input):
        facts.role = "entry"
    if facts.role != "tool":
        _set_messages(span, facts)
    if facts.session_id is None and _METADATA in attributes and _TYPE in attributes:
        facts.session_id = _session_id_in(attributes[_METADATA])
    return facts


def _set_messages(span: SpanRecord, facts: SpanFacts) -> None:
    given, returned = _unwrap_envelope(facts.input), _unwrap_envelope(facts.output)
    if facts.role == "agent" and messages_in_state(given):
        facts.input_messages = (partial(_FromState(_INPUT), span),)
        facts.output_messages = (partial(_FromState(_OUTPUT), span),)
        facts.input, facts.output = None, None if messages_in_state(returned) else returned
    else:
        facts.input, facts.output = _drop_id_arguments(given), returned


def _drop_id_arguments(inputs: Any) -> Any:
    """What a function was called with, without the ids among its arguments: they are nobody's words."""
    if not isinstance(inputs, Mapping):
        return inputs
    return {key: value for key, value in inputs.items() if not str(key).lower().endswith("id")}


def _session_id_in(metadata: Any) -> str | None:
    read = literals.plain_value(metadata)
    found: Iterable[Any] = (read.get(key) for key in _SESSION_KEYS) if isinstance(read, Mapping) else ()
    return next((str(value) for value in found if value), None)


def _unwrap_arguments(value: Any) -> envelopes.CallArguments:
    return envelopes.unwrap_arguments(_unwrap_envelope(value))


def _unwrap_result(value: Any) -> envelopes.CallResult:
    held = _unwrap_envelope(value)
    if isinstance(held, list) and len(held) == 1 and isinstance(held[0], Mapping) and "role" in held[0]:
        held = held[0] if "tool_call_id" in held[0] else held[0].get("content")
    return envelopes.unwrap_result(held)


CONVENTION = Convention(
    name="langwatch",
    title="LangWatch",
    source="https://github.com/langwatch/langwatch",
    versions="SDK 1.4 (Python)",
    roles={
        _TYPE: {
            "tool": "tool",
            "rag": "tool",
            "agent": "agent",
            "llm": "model",
            "evaluation": "aside",
            "guardrail": "aside",
        }
    },
    marker_attributes=(_TYPE, _INPUT, "langwatch.thread.id"),
    attributes_by_role={
        "tool": AttributeMap(arguments=(_INPUT,), result=(_OUTPUT, *_CONTEXTS)),
        "model": AttributeMap(
            tool_definitions=("langwatch.params", "langwatch.langchain.run.extra_params.invocation_params"),
            input_messages=(_FromEnvelope(_INPUT, "user"),),
            output_messages=(_FromEnvelope(_OUTPUT, "assistant"),),
        ),
    },
    common_attributes=AttributeMap(
        input=(_INPUT,),
        output=(_OUTPUT,),
        session_id=("langwatch.thread.id", "langwatch.session.id", "langwatch.langchain.run.metadata.thread_id"),
    ),
    unwrap_arguments=_unwrap_arguments,
    unwrap_result=_unwrap_result,
    span_name_templates={"tool": ("{name}",)},
    postprocess=_postprocess,
    notes=(
        'Values stand in envelopes `{"type": "text", "value": ...}`, which are opened.',
        "A span of type `rag` is a retrieval.",
        "The outermost span of a trace, which has `langwatch.origin`, is a request if it has an input.",
        "LangGraph: a chain that returns the state it was given, with more messages, is an agent of the span's name.",
        "LangGraph: messages without a role are told apart by their fields.",
        "The `thread_id`, `session_id` or `conversation_id` in `metadata` is the session's.",
    ),
    capture_setting="capture_input=True, capture_output=True",
)
