"""LangWatch: `langwatch.span.type`, with input and output in envelopes with `type` and `value`.

The name of a tool is the name of its span. The callback for LangChain loses the calls that a model requests and the
roles of the messages in a graph's state. This module restores the roles from the fields of each message.
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
"""Keys of `metadata` under which applications write the conversation's id; LangWatch documents the first one."""
_ENVELOPE_TYPES = frozenset({"text", "json", "chat_messages", "list", "raw", "evaluation_result", "guardrail_result"})
_MODEL_ONLY_KEYS = frozenset({"response_metadata", "usage_metadata", "tool_calls", "invalid_tool_calls"})
"""Fields of a LangChain message that only a model sets."""


def _unwrap_envelope(value: Any) -> Any:
    """Return the value in an envelope, unwrapping lists item by item. Return any other value unchanged."""
    decoded = literals.plain_value(value)
    if isinstance(decoded, Mapping) and decoded.keys() == {"type", "value"} and decoded["type"] in _ENVELOPE_TYPES:
        inner = decoded["value"]
        return list(map(_unwrap_envelope, inner)) if decoded["type"] == "list" and isinstance(inner, list) else inner
    return decoded


@dataclass(frozen=True, slots=True)
class _FromEnvelope:
    """Reads the messages in an envelope. Plain text gets the role `role`."""

    attribute: str
    role: str

    def __call__(self, span: SpanRecord) -> Messages:
        """Return the messages of a span."""
        content = _unwrap_envelope(span.attributes.get(self.attribute))
        items = content if isinstance(content, list) else [content]
        return tuple(message for item in items for message in self._messages(item))

    def _messages(self, item: Any) -> Messages:
        if isinstance(item, str):
            return messages.certain_messages(literals.plain_value(item)) or (Message(self.role, item),) if item else ()
        return messages.from_json(item)

    def __str__(self) -> str:
        """Return the description of the source for the documentation."""
        return f"`{self.attribute}`"


@dataclass(frozen=True, slots=True)
class _FromState:
    """Reads the messages in the input state or the output state of a graph."""

    attribute: str

    def __call__(self, span: SpanRecord) -> Messages:
        """Return the messages of a span."""
        history = messages_in_state(_unwrap_envelope(span.attributes.get(self.attribute)))
        return messages.from_json([_restore_role(item) for item in history])


def _restore_role(item: Any) -> Any:
    """Restore the role of a message that lost its class during serialization, from its fields."""
    if isinstance(item, list) and len(item) == 2:
        return {"role": item[0], "content": item[1]}
    if not isinstance(item, Mapping) or "role" in item or "type" in item:
        return item
    role = "tool" if "tool_call_id" in item else "user" if _MODEL_ONLY_KEYS.isdisjoint(item) else "assistant"
    return {**item, "role": role}


def _is_langgraph_run(span: SpanRecord) -> bool:
    states = span.attributes.get(_INPUT), span.attributes.get(_OUTPUT)
    if not all(isinstance(state, str) and '"messages"' in state for state in states):
        return False
    return is_graph_run(*map(_unwrap_envelope, states))


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
    input_value, output_value = _unwrap_envelope(facts.input), _unwrap_envelope(facts.output)
    if facts.role == "agent" and messages_in_state(input_value):
        facts.input_messages = (partial(_FromState(_INPUT), span),)
        facts.output_messages = (partial(_FromState(_OUTPUT), span),)
        facts.input, facts.output = None, None if messages_in_state(output_value) else output_value
    else:
        facts.input, facts.output = _drop_id_arguments(input_value), output_value


def _drop_id_arguments(inputs: Any) -> Any:
    """Return the arguments of a function without ids, because ids are not part of the request text."""
    if not isinstance(inputs, Mapping):
        return inputs
    return {key: value for key, value in inputs.items() if not str(key).lower().endswith("id")}


def _session_id_in(metadata: Any) -> str | None:
    decoded = literals.plain_value(metadata)
    values: Iterable[Any] = (decoded.get(key) for key in _SESSION_KEYS) if isinstance(decoded, Mapping) else ()
    return next((str(value) for value in values if value), None)


def _unwrap_arguments(value: Any) -> envelopes.CallArguments:
    return envelopes.unwrap_arguments(_unwrap_envelope(value))


def _unwrap_result(value: Any) -> envelopes.CallResult:
    result = _unwrap_envelope(value)
    if isinstance(result, list) and len(result) == 1 and isinstance(result[0], Mapping) and "role" in result[0]:
        result = result[0] if "tool_call_id" in result[0] else result[0].get("content")
    return envelopes.unwrap_result(result)


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
        'goldspan unwraps values from envelopes such as `{"type": "text", "value": ...}`.',
        "A span of type `rag` is a retrieval.",
        "The outermost span of a trace, which has `langwatch.origin`, is a request if it has an input.",
        "LangGraph: a chain that returns its input state with additional messages is an agent with the span's name.",
        "LangGraph: the fields of a message without a role determine its role.",
        "The `thread_id`, `session_id` or `conversation_id` in `metadata` is the session id.",
    ),
    capture_setting="capture_input=True, capture_output=True",
)
