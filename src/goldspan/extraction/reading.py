"""What a convention understands of one span: the common language between conventions and the rest of extraction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal

from goldspan.model import ABSENT, ToolDefinition, ToolKind

Role = Literal["tool", "agent", "entry", "model", "component", "aside"]
"""What a span is to a run.

`tool`: one tool being executed. `agent`: an agent at work. `entry`: where an application enters a request without
being an agent itself, such as a workflow. `model`: one call of a language model. `component`: a part that people
marked to be scored on its own. `aside`: not part of any request, such as the construction of an agent.
"""


MARKS: frozenset[Role | None] = frozenset({"agent", "entry"})
"""The roles of spans that stand for a request."""
WORK: frozenset[Role | None] = frozenset({"tool", "model"})
"""The roles of spans that are work of a request."""
BARE: frozenset[Role | None] = frozenset({None, "aside"})
"""The roles of spans in which a request may begin."""


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A tool call as a model asked for it in a message."""

    name: str
    arguments: Any = ABSENT
    """As written: text, or structured values."""
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a tool call as it was handed back to the model."""

    call_id: str | None
    result: Any = None
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a model's input or output."""

    role: str
    """`system`, `user`, `assistant` or `tool`."""
    text: str | None = None
    calls: tuple[RequestedCall, ...] = ()
    answers: tuple[Answer, ...] = ()

    @property
    def from_user(self) -> bool:
        """Whether a person wrote it: some clients hand tool results back under the user's role."""
        return self.role == "user" and not self.answers and bool(self.text)


Messages = tuple[Message, ...]


def no_messages() -> Messages:
    """The messages of a span that has none."""
    return ()


@dataclass(slots=True)
class Reading:
    """What was read off one span. `None` (for values: `ABSENT`) where the span says nothing."""

    role: Role | None = None
    name: str | None = None
    """Of the tool, the agent or the component, as written."""
    kind: ToolKind = "tool"
    call_id: str | None = None
    arguments: Any = ABSENT
    result: Any = ABSENT
    error: str | None = None
    """Only where the convention has a way of its own to say so; a span's error status is read for all of them."""
    agent: str | None = None
    """The agent in whose name the span was made."""
    input: str | None = None
    output: str | None = None
    asked: Callable[[], Messages] = no_messages
    """The model's input. Read on demand: it repeats the whole history on every span."""
    answered: Callable[[], Messages] = no_messages
    """The model's output."""
    session_id: str | None = None
    tools: Callable[[], tuple[ToolDefinition, ...]] = tuple

    def complete_with(self, other: Reading) -> None:
        """Take from another convention's reading of the same span what this one does not say."""
        if self.role is None:
            self.kind = other.kind
        for name, unset in _UNSET:
            if getattr(self, name) == unset:
                setattr(self, name, getattr(other, name))


_UNSET = tuple((field.name, field.default) for field in fields(Reading) if field.name != "kind")
