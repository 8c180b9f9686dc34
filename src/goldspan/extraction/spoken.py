"""What is said in a model's input and output, in one language for all conventions.

Each turn of a model repeats the history, so these are made by the thousand: as named tuples, in half the time that
frozen dataclasses take.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from goldspan.model import ABSENT, ToolKind


class RequestedCall(NamedTuple):
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


class Answer(NamedTuple):
    """The result of a tool call as it was handed back to the model."""

    call_id: str | None
    result: Any = None
    is_error: bool = False


class Message(NamedTuple):
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
