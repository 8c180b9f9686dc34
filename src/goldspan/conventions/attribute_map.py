"""Defines where spans of one role keep their facts: attribute names and sources of model messages.

A source of messages is any callable that takes a span and returns its messages. `FromJson`, `FromFlattened` and
`FromEvents` are the three common ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from goldspan.content import messages
from goldspan.conventions.declaration import (
    Check,
    check_optional_text,
    check_text,
    check_texts,
    message_sources,
    reject_unknown_fields,
)
from goldspan.conventions.span_facts import Messages
from goldspan.model import SpanEvent, SpanRecord

AttributeNames = tuple[str, ...]
"""Attributes that may hold one fact, in descending order of preference."""
MessageSource = Callable[[SpanRecord], Messages]
"""Returns the messages of a span. The documentation prints its `str()`."""


@dataclass(frozen=True, slots=True)
class FromJson:
    """Reads messages from one attribute that holds JSON text or a structured value."""

    attribute: str

    def __call__(self, span: SpanRecord) -> Messages:
        """Return the messages of a span."""
        return messages.from_json(span.attributes.get(self.attribute))

    def is_present(self, span: SpanRecord) -> bool:
        """Whether the span has the attribute."""
        return self.attribute in span.attributes

    def has_no_tool_calls(self, span: SpanRecord) -> bool:
        """Whether it is certain, without parsing, that the messages contain no tool call and no tool result."""
        raw = span.attributes.get(self.attribute)
        return raw is None or (isinstance(raw, str) and not messages.may_contain_calls(raw))

    def __str__(self) -> str:
        """Return the description of the source for the documentation."""
        return f"`{self.attribute}`"


@lru_cache(maxsize=1024)
def _has_prefix(names: frozenset[str], prefix: str) -> bool:
    """Whether one of the names has the prefix. Cached, because attribute names repeat from span to span."""
    return any(name.startswith(prefix) for name in names)


@dataclass(frozen=True, slots=True)
class FromFlattened:
    """Reads messages that are flattened into numbered attributes: `{prefix}.{number}.{message_key}.{field}`."""

    prefix: str
    message_key: str = ""

    def __call__(self, span: SpanRecord) -> Messages:
        """Return the messages of a span."""
        return messages.from_flat(span.attributes, self.prefix, self.message_key)

    def is_present(self, span: SpanRecord) -> bool:
        """Whether the span has an attribute with the prefix."""
        return _has_prefix(span.attribute_names(), self.prefix)

    def has_no_tool_calls(self, span: SpanRecord) -> bool:
        """Whether it is certain, without parsing, that the messages contain no tool call and no tool result."""
        return not self.is_present(span)

    def __str__(self) -> str:
        """Return the description of the source for the documentation."""
        return f"`{self.prefix}.N.{self.message_key + '.' if self.message_key else ''}*`"


@dataclass(frozen=True, slots=True)
class FromEvents:
    """Reads messages from span events, or from log events written during the span, in the order of their times."""

    event_names: tuple[str, ...]
    """The names of the events. The name gives the role of a message whose event does not state one."""
    attribute: str | None = None
    """The event attribute that holds a list of messages. `None`: each event is one message."""

    def is_present(self, span: SpanRecord) -> bool:
        """Whether the span has one of the events."""
        return any(event.name in self.event_names for event in span.events)

    def has_no_tool_calls(self, span: SpanRecord) -> bool:
        """Whether it is certain, without parsing, that the messages contain no tool call and no tool result."""
        return not self.is_present(span)

    def __call__(self, span: SpanRecord) -> Messages:
        """Return the messages of a span."""
        events = [event for event in span.events if event.name in self.event_names]
        if self.attribute is not None:
            return tuple(
                message for event in events for message in messages.from_json(event.attributes.get(self.attribute))
            )
        return tuple(message for event in events for message in _message_of_event(event))

    def __str__(self) -> str:
        """Return the description of the source for the documentation."""
        names = ", ".join(f"`{name}`" for name in self.event_names)
        return f"`{self.attribute}` of the events {names}" if self.attribute else f"the events {names}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeMap:
    """The attributes and message sources in which spans of one role keep their facts.

    Raises `ConfigurationError` for an unknown field. `Convention` checks the values.
    """

    name: AttributeNames = ()
    """The name of the tool, the agent or the component."""
    call_id: AttributeNames = ()
    arguments: AttributeNames = ()
    result: AttributeNames = ()
    error: AttributeNames = ()
    """A text that the span has only if the call failed."""
    agent: AttributeNames = ()
    """The agent on whose behalf the span was made."""
    server: AttributeNames = ()
    """The MCP server that owns the tool."""
    input: AttributeNames = ()
    output: AttributeNames = ()
    session_id: AttributeNames = ()
    request_id: AttributeNames = ()
    """The id of the user's request. All traces that a runtime writes for the request share it."""
    tool_definitions: AttributeNames = ()
    """The definitions of the tools offered to a model."""
    finish_reason: AttributeNames = ()
    """Why the model stopped. In most notations one of the values means that the model requested tools."""
    input_messages: tuple[MessageSource, ...] = ()
    """The sources of the model's input."""
    output_messages: tuple[MessageSource, ...] = ()
    """The sources of the model's output."""

    def __new__(cls, **values: Any) -> AttributeMap:
        """Reject field names that do not exist, and name the nearest one that does."""
        reject_unknown_fields(cls.__name__, cls, values)
        return object.__new__(cls)


_CHECK_SOURCES = message_sources(
    {
        FromJson: {"attribute": check_text},
        FromFlattened: {"prefix": check_text, "message_key": check_text},
        FromEvents: {"event_names": check_texts, "attribute": check_optional_text},
    }
)
ATTRIBUTE_MAP_CHECKS: Mapping[str, Check] = {
    field.name: _CHECK_SOURCES if field.name in ("input_messages", "output_messages") else check_texts
    for field in fields(AttributeMap)
}


def _message_of_event(event: SpanEvent) -> Messages:
    """Return the message of an event; none if the instrumentation elided the content.

    Azure's SDKs write the body as one text. Google's write `<elided>` in place of content that they do not record.
    """
    body = event.attributes.get("gen_ai.event.content", event.attributes)
    return () if event.attributes.get("content") == "<elided>" else messages.from_event(event.name, body)
