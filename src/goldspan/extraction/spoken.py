"""What is said in a model's input and output, in one language for all conventions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from goldspan.model import ABSENT, ToolKind


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A tool call as a model asked for it in a message."""

    name: str
    arguments: Any = ABSENT
    """As written: text, or structured values."""
    call_id: str | None = None
    kind: ToolKind = "tool"
    """`hosted` where the message says that the provider runs the tool."""
    result: Any = ABSENT
    """Of a hosted call, whose result stands in the same message."""
    error: str | None = None
    """Of a hosted call: what went wrong."""
    server: str | None = None
    """The MCP server that owns the tool, where the message names it."""


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
        """Whether a person wrote it, recorded or not: some clients hand tool results back under the user's role."""
        return self.role == "user" and (bool(self.text) or not self.answers)


Messages = tuple[Message, ...]
