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

from goldspan.extraction import messages, values
from goldspan.extraction.convention import Convention, Places
from goldspan.extraction.conventions.graphs import is_graph, said_in
from goldspan.extraction.reading import Message, Messages, Reading
from goldspan.model import SpanRecord

_TYPE = "langwatch.span.type"
_INPUT = "langwatch.input"
_OUTPUT = "langwatch.output"
_CONTEXTS = ("langwatch.rag_contexts", "langwatch.contexts")
_ORIGIN = "langwatch.origin"
_METADATA = "metadata"
_GRAPH = "LangGraph"
_SESSIONS = ("thread_id", "session_id", "conversation_id", "threadId", "sessionId", "conversationId")
"""Under which keys of `metadata` people put the conversation's id; LangWatch itself asks for the first."""
_TYPES = frozenset({"text", "json", "chat_messages", "list", "raw", "evaluation_result", "guardrail_result"})
_BY_MODEL = frozenset({"response_metadata", "usage_metadata", "tool_calls", "invalid_tool_calls"})
"""Fields of a message of LangChain that only a model fills in."""


def _opened(value: Any) -> Any:
    """What an envelope holds; a list of envelopes is opened item by item. Anything else is itself."""
    read = values.plain(value)
    if isinstance(read, Mapping) and read.keys() == {"type", "value"} and read["type"] in _TYPES:
        inner = read["value"]
        return list(map(_opened, inner)) if read["type"] == "list" and isinstance(inner, list) else inner
    return read


@dataclass(frozen=True, slots=True)
class _FromEnvelope:
    """The messages in an envelope; bare words are the model's or the user's."""

    attribute: str
    role: str

    def __call__(self, span: SpanRecord) -> Messages:
        """The messages of a span."""
        held = _opened(span.attributes.get(self.attribute))
        items = held if isinstance(held, list) else [held]
        return tuple(message for item in items for message in self._messages(item))

    def _messages(self, item: Any) -> Messages:
        if isinstance(item, str):
            return messages.conversation(values.plain(item)) or (Message(self.role, item),) if item else ()
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
        said = said_in(_opened(span.attributes.get(self.attribute)))
        return messages.from_json([_with_role(item) for item in said])


def _with_role(item: Any) -> Any:
    """A message that lost its class when it was written: its fields tell who speaks."""
    if isinstance(item, list) and len(item) == 2:
        return {"role": item[0], "content": item[1]}
    if not isinstance(item, Mapping) or "role" in item or "type" in item:
        return item
    role = "tool" if "tool_call_id" in item else "user" if _BY_MODEL.isdisjoint(item) else "assistant"
    return {**item, "role": role}


def _is_graph(span: SpanRecord) -> bool:
    written = span.attributes.get(_INPUT), span.attributes.get(_OUTPUT)
    if not all(isinstance(value, str) and '"messages"' in value for value in written):
        return False
    return is_graph(*map(_opened, written))


def _refine(span: SpanRecord, reading: Reading) -> Reading:
    attributes = span.attributes
    kind = str(attributes.get(_TYPE)).lower()
    if reading.role == "tool":
        reading.kind = "retrieval" if kind == "rag" else None
    elif reading.role == "agent" or (kind == "chain" and (span.name == _GRAPH or _is_graph(span))):
        reading.role, reading.name, reading.agent = "agent", span.name, span.name
    elif reading.role is None and _ORIGIN in attributes and _opened(reading.input):
        reading.role = "entry"
    if reading.role != "tool":
        _read_texts(span, reading)
    if reading.session_id is None and _METADATA in attributes and _TYPE in attributes:
        reading.session_id = _session_in(attributes[_METADATA])
    return reading


def _read_texts(span: SpanRecord, reading: Reading) -> None:
    given, returned = _opened(reading.input), _opened(reading.output)
    if reading.role == "agent" and said_in(given):
        reading.asked = (partial(_FromState(_INPUT), span),)
        reading.answered = (partial(_FromState(_OUTPUT), span),)
        reading.input, reading.output = None, None if said_in(returned) else returned
    else:
        reading.input, reading.output = _without_ids(given), returned


def _without_ids(given: Any) -> Any:
    """What a function was called with, without the ids among its arguments: they are nobody's words."""
    if not isinstance(given, Mapping):
        return given
    return {key: value for key, value in given.items() if not str(key).lower().endswith("id")}


def _session_in(metadata: Any) -> str | None:
    read = values.plain(metadata)
    found: Iterable[Any] = (read.get(key) for key in _SESSIONS) if isinstance(read, Mapping) else ()
    return next((str(value) for value in found if value), None)


def _arguments(value: Any) -> values.Request:
    return values.request(_opened(value))


def _result(value: Any) -> values.Result:
    held = _opened(value)
    if isinstance(held, list) and len(held) == 1 and isinstance(held[0], Mapping) and "role" in held[0]:
        held = held[0] if "tool_call_id" in held[0] else held[0].get("content")
    return values.result(held)


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
    signs=(_TYPE, _INPUT, "langwatch.thread.id"),
    of={
        "tool": Places(arguments=(_INPUT,), result=(_OUTPUT, *_CONTEXTS)),
        "model": Places(
            tools=("langwatch.params", "langwatch.langchain.run.extra_params.invocation_params"),
            asked=(_FromEnvelope(_INPUT, "user"),),
            answered=(_FromEnvelope(_OUTPUT, "assistant"),),
        ),
    },
    everywhere=Places(
        input=(_INPUT,),
        output=(_OUTPUT,),
        session_id=("langwatch.thread.id", "langwatch.session.id", "langwatch.langchain.run.metadata.thread_id"),
    ),
    open_arguments=_arguments,
    open_result=_result,
    span_names={"tool": ("{name}",)},
    refine=_refine,
    notes=(
        'Values stand in envelopes `{"type": "text", "value": ...}`, which are opened.',
        "A span of type `rag` is a retrieval.",
        "The outermost span of a trace, which has `langwatch.origin`, is a request if it has an input.",
        "LangGraph: a chain that returns the state it was given, with more messages, is an agent of the span's name.",
        "LangGraph: messages without a role are told apart by their fields.",
        "The `thread_id`, `session_id` or `conversation_id` in `metadata` is the session's.",
    ),
    content="capture_input=True, capture_output=True",
)
