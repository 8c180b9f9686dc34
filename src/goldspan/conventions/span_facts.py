"""What a convention understands of one span: the common language between conventions and the rest of extraction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from goldspan.content import literals, values
from goldspan.content.envelopes import CallArguments, CallResult
from goldspan.content.parts import Message as Message
from goldspan.content.parts import Messages as Messages
from goldspan.content.parts import RequestedCall as RequestedCall
from goldspan.model import ABSENT, CallOutcome, ToolDefinition, ToolKind

Role = Literal["tool", "agent", "entry", "model", "component", "aside"]
"""What a span is to a run.

`tool`: one tool being executed. `agent`: an agent at work. `entry`: where an application enters a request without
being an agent itself, such as a workflow. `model`: one call of a language model. `component`: a part that people
marked to be scored on its own. `aside`: not part of any request, such as the construction of an agent.
"""


REQUEST_ROLES: frozenset[Role | None] = frozenset({"agent", "entry"})
"""The roles of spans that stand for a request."""
WORK_ROLES: frozenset[Role | None] = frozenset({"tool", "model"})
"""The roles of spans that are work of a request."""
TRANSPARENT_ROLES: frozenset[Role | None] = frozenset({None, "aside"})
"""The roles of spans in which a request may begin."""


class RawValue:
    """A value as an instrumentation wrote it. It is read when somebody asks, and once."""

    __slots__ = ("_open", "_opened", "_value", "raw")

    def __init__(self, raw: Any, open_envelope: Callable[[Any], Any] | None = None) -> None:
        """Keep a value, and what takes it, once it is plain, out of the envelope its instrumentation put around it.

        What comes out may be a `Request` or a `Result`, where the envelope says more of the call than the value.
        """
        self.raw = raw
        self._open = open_envelope
        self._opened: Any = ABSENT
        self._value: Any = ABSENT

    @property
    def unwrapped(self) -> Any:
        """What came out of the envelope."""
        if self._opened is ABSENT:
            read = literals.plain_value(self.raw)
            self._opened = read if self._open is None else self._open(read)
        return self._opened

    @property
    def value(self) -> Any:
        """The plain value. Text that is in no known notation is itself."""
        if self._value is ABSENT:
            opened = self.unwrapped
            is_request, is_result = isinstance(opened, CallArguments), isinstance(opened, CallResult)
            self._value = opened.arguments if is_request else opened.value if is_result else opened
        return self._value

    def named_arguments(self, parameters: Mapping[str, Any] | None) -> tuple[Any, str | None]:
        """Arguments by the names in the tool's schema and, where they cannot be read, their text instead."""
        value = self.value
        if isinstance(value, dict):
            return value, None
        # A bare value is read by its type in the schema, for which it must be as it was written.
        return values.decode_arguments(
            self.raw if value == literals.plain_value(self.raw) else value, parameters=parameters
        )

    def __repr__(self) -> str:
        return f"Written({self.raw!r})"


@dataclass(slots=True)
class SpanFacts:
    """What was read off one span. `None` where the span says nothing.

    Every span has one and most of its fields stay as they are: these are the class's, and cost nothing.
    """

    role: Role | None = None
    conventions: tuple[str, ...] = ()
    """The conventions that knew the span."""
    name: str | None = None
    """Of the tool, the agent or the component, as written."""
    span_name: str | None = None
    """The name as the span's own name tells it: counts only where no convention finds one in an attribute."""
    kind: ToolKind | None = None
    """Only where it is something else than a plain tool."""
    call_id: str | None = None
    """Of a tool's call; of a model's response."""
    arguments: RawValue | None = None
    result: RawValue | None = None
    error: str | None = None
    """Only where the convention has a way of its own to say so; a span's error status is read for all of them."""
    outcome: CallOutcome | None = None
    """Only where the convention says that a call was denied or deferred, or that it failed without saying why."""
    server: str | None = None
    """The MCP server that owns the tool."""
    agent: str | None = None
    """The agent in whose name the span was made."""
    input: Any = None
    """Whatever stands for the request's input, as written."""
    output: Any = None
    finish_reason: Any = None
    """Why the model stopped, as written."""
    session_id: str | None = None
    request_id: str | None = None
    """Of the user's request that the span serves, where the runtime counts them: further traces may serve it, too."""
    input_messages: tuple[Callable[[], Messages], ...] = ()
    """The model's input, best place first. Read on demand: it repeats the whole history on every span."""
    output_messages: tuple[Callable[[], Messages], ...] = ()
    """The model's output."""
    tool_definitions: tuple[Callable[[], tuple[ToolDefinition, ...]], ...] = ()
    """The tools offered to the model."""
    guessed_from: str | None = None
    """The attribute that tells what the span is, where no convention knows it and the fallback read it."""
    is_retracted: bool = False
    """Whether a convention knows what the span says that it is, and that it is not."""
    is_annotated: bool = False
    """Whether the span has one of the attributes that were to be noted, whatever convention knows it."""

    def fill_missing_from(self, other: SpanFacts) -> None:
        """Take from a less trusted convention's reading of the same span what this one does not say."""
        if self.role is None:
            self.role = other.role
        for name in _SCALAR_FIELDS:
            if getattr(self, name) is None:
                setattr(self, name, getattr(other, name))
        self.conventions += other.conventions
        self.is_retracted = self.is_retracted or other.is_retracted
        self.input_messages += other.input_messages
        self.output_messages += other.output_messages
        self.tool_definitions += other.tool_definitions


_SCALAR_FIELDS = frozenset(
    {
        *("name", "span_name", "kind", "call_id", "arguments", "result", "error", "outcome", "server"),
        *("agent", "input", "output", "finish_reason", "session_id", "request_id"),
    }
)


def has_content(reading: SpanFacts) -> bool:
    """Whether a span tells what went into it or came out, as far as can be told without reading it."""
    told = (reading.arguments, reading.result, reading.input, reading.output)
    return (
        any(value is not None for value in told)
        or is_any_present(reading.input_messages)
        or is_any_present(reading.output_messages)
    )


def is_any_present(places: tuple[Callable[[], Messages], ...]) -> bool:
    """Whether one of the places has something, as far as can be told without reading it."""
    for place in places:
        source = place.func if isinstance(place, partial) else None
        told = getattr(source, "is_present", None)  # sources need not know
        if told is None or told(*place.args):  # type: ignore[attr-defined]
            return True
    return False


def has_no_tool_calls(places: tuple[Callable[[], Messages], ...]) -> bool:
    """Whether it takes no reading to see that no call, and no answer to one, is in any of the places."""
    for place in places:
        source = place.func if isinstance(place, partial) else None
        told = getattr(source, "has_no_tool_calls", None)
        if told is None or not told(*place.args):  # type: ignore[attr-defined]
            return False
    return True


def first_messages(places: tuple[Callable[[], Messages], ...]) -> Messages:
    """The messages of the first place that has some."""
    for place in places:
        if found := place():
            return found
    return ()
