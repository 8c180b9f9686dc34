"""Defines the facts that conventions read from one span; extraction uses nothing else of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from goldspan.content import literals, values
from goldspan.content.envelopes import CallArguments, CallResult
from goldspan.content.parts import Message as Message
from goldspan.content.parts import Messages as Messages
from goldspan.content.parts import RequestedCall as RequestedCall
from goldspan.model import ABSENT, CallOutcome, ToolDefinition, ToolKind

Role = Literal["tool", "agent", "entry", "model", "component", "aside"]
"""The role of a span in a run.

`tool`: the execution of one tool. `agent`: the work of an agent. `entry`: the start of a request by something other
than an agent, such as a workflow. `model`: one call of a language model. `component`: a part of the application that
is marked to be scored separately. `aside`: not part of any request, such as the construction of an agent.
"""


REQUEST_ROLES: frozenset[Role | None] = frozenset({"agent", "entry"})
"""The roles of spans that represent a request."""
WORK_ROLES: frozenset[Role | None] = frozenset({"tool", "model"})
"""The roles of spans that do the work of a request."""
TRANSPARENT_ROLES: frozenset[Role | None] = frozenset({None, "aside"})
"""The roles of spans that may contain the start of a request."""


class RawValue:
    """A value as an instrumentation wrote it. It is parsed on first access and then cached."""

    __slots__ = ("_open", "_opened", "_value", "raw")

    def __init__(self, raw: Any, open_envelope: Callable[[Any], Any] | None = None) -> None:
        """Store a value and the function that unwraps the parsed value from the envelope of its instrumentation.

        The function may return `CallArguments` or a `CallResult` if the envelope holds more facts about the call.
        """
        self.raw = raw
        self._open = open_envelope
        self._opened: Any = ABSENT
        self._value: Any = ABSENT

    @property
    def unwrapped(self) -> Any:
        """The content of the envelope."""
        if self._opened is ABSENT:
            read = literals.plain_value(self.raw)
            self._opened = read if self._open is None else self._open(read)
        return self._opened

    @property
    def value(self) -> Any:
        """The plain value. Text in no known notation stays text."""
        if self._value is ABSENT:
            opened = self.unwrapped
            is_request, is_result = isinstance(opened, CallArguments), isinstance(opened, CallResult)
            self._value = opened.arguments if is_request else opened.value if is_result else opened
        return self._value

    def named_arguments(self, parameters: Mapping[str, Any] | None) -> tuple[Any, str | None]:
        """Return the arguments by the names in the tool's schema, and their text if they cannot be parsed."""
        value = self.value
        if isinstance(value, dict):
            return value, None
        # The schema decides how a bare value is parsed, so it must be passed on unparsed.
        return values.decode_arguments(
            self.raw if value == literals.plain_value(self.raw) else value, parameters=parameters
        )

    def __repr__(self) -> str:
        return f"RawValue({self.raw!r})"


@dataclass(slots=True)
class SpanFacts:
    """The facts read from one span. A fact that the span does not state is `None`."""

    role: Role | None = None
    conventions: tuple[str, ...] = ()
    """The conventions that recognised the span."""
    name: str | None = None
    """The name of the tool, the agent or the component, as written."""
    span_name: str | None = None
    """The name parsed from the span's own name. Used only if no convention finds a name in an attribute."""
    kind: ToolKind | None = None
    """Set only if the call is not a plain tool call."""
    call_id: str | None = None
    """The id of a tool call, or of a model's response."""
    arguments: RawValue | None = None
    result: RawValue | None = None
    error: str | None = None
    """Set only if the convention has an attribute for it. The error status of spans applies to all conventions."""
    outcome: CallOutcome | None = None
    """Set only if the convention states that the call was denied or deferred, or that it failed without a reason."""
    server: str | None = None
    """The MCP server that owns the tool."""
    agent: str | None = None
    """The agent on whose behalf the span was made."""
    input: Any = None
    """The request's input, as written."""
    output: Any = None
    finish_reason: Any = None
    """Why the model stopped, as written."""
    session_id: str | None = None
    request_id: str | None = None
    """The id of the user's request, if the runtime assigns one. Several traces may share it."""
    input_messages: tuple[Callable[[], Messages], ...] = ()
    """The sources of the model's input, preferred source first. Read on demand: each span repeats the history."""
    output_messages: tuple[Callable[[], Messages], ...] = ()
    """The sources of the model's output."""
    tool_definitions: tuple[Callable[[], tuple[ToolDefinition, ...]], ...] = ()
    """The sources of the definitions of the tools offered to the model."""
    guessed_from: str | None = None
    """The attribute that gave the role, if no convention recognised the span and the fallback read it."""
    is_retracted: bool = False
    """Whether a convention recognised the span's role attribute and decided that the span does not have that role."""
    is_annotated: bool = False
    """Whether the span has one of the extra attributes of the `ConventionSet`."""

    def fill_missing_from(self, other: SpanFacts) -> None:
        """Add the facts that a later convention read from the same span and that are missing here."""
        # A loop with `getattr` and `setattr` takes ten times as long.
        if self.role is None:
            self.role = other.role
        if self.name is None:
            self.name = other.name
        if self.span_name is None:
            self.span_name = other.span_name
        if self.kind is None:
            self.kind = other.kind
        if self.call_id is None:
            self.call_id = other.call_id
        if self.arguments is None:
            self.arguments = other.arguments
        if self.result is None:
            self.result = other.result
        if self.error is None:
            self.error = other.error
        if self.outcome is None:
            self.outcome = other.outcome
        if self.server is None:
            self.server = other.server
        if self.agent is None:
            self.agent = other.agent
        if self.input is None:
            self.input = other.input
        if self.output is None:
            self.output = other.output
        if self.finish_reason is None:
            self.finish_reason = other.finish_reason
        if self.session_id is None:
            self.session_id = other.session_id
        if self.request_id is None:
            self.request_id = other.request_id
        self.conventions += other.conventions
        self.is_retracted = self.is_retracted or other.is_retracted
        self.input_messages += other.input_messages
        self.output_messages += other.output_messages
        self.tool_definitions += other.tool_definitions


def has_content(facts: SpanFacts) -> bool:
    """Whether a span holds an input or an output. Message sources are not parsed."""
    values = (facts.arguments, facts.result, facts.input, facts.output)
    return (
        any(value is not None for value in values)
        or is_any_present(facts.input_messages)
        or is_any_present(facts.output_messages)
    )


def is_any_present(sources: tuple[Callable[[], Messages], ...]) -> bool:
    """Whether one of the sources may have messages. A source without `is_present` may."""
    source: Any
    for source in sources:
        try:
            is_present = source.func.is_present
        except AttributeError:  # not a source of `attribute_map` that is bound to a span
            return True
        if is_present(*source.args):
            return True
    return False


def has_no_tool_calls(sources: tuple[Callable[[], Messages], ...]) -> bool:
    """Whether it is certain, without parsing, that no source has a tool call or a tool result."""
    source: Any
    for source in sources:
        try:
            is_free_of_calls = source.func.has_no_tool_calls
        except AttributeError:
            return False
        if not is_free_of_calls(*source.args):
            return False
    return True


def first_messages(sources: tuple[Callable[[], Messages], ...]) -> Messages:
    """Return the messages of the first source that has some."""
    for source in sources:
        if found := source():
            return found
    return ()
