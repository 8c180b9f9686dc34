"""What was expected: goldens, and the vocabulary of tools that they are written in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from goldspan.model.digests import content_digest

Order = Literal["any", "in_order", "exact"]
Attempts = Literal["effective", "all", "succeeded"]
Effect = Literal["read", "write"]
MatchedBy = Literal["id", "input", "given"]


@dataclass(frozen=True, slots=True)
class Tool:
    """What a golden file declares of a tool, once for all its goldens."""

    name: str
    """As written; it may wear any decoration, as `mcp__orders__add` does."""
    aliases: tuple[str, ...] = ()
    """Other names by which it is called."""
    server: str | None = None
    """The MCP server that owns it."""
    effect: Effect | None = None
    """Whether a successful call of it changes the world."""
    description: str | None = None
    parameters: Mapping[str, Any] | None = None
    """The JSON schema of the arguments."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the golden file that are not goldspan's, kept as they were."""


@dataclass(frozen=True)
class Vocabulary:
    """The tools and MCP servers that golden files declare. No name means two of its tools."""

    tools: tuple[Tool, ...] = ()
    servers: tuple[str, ...] = ()
    """Servers that may stand before the name of any tool, as in `orders_add`, in addition to those of the tools."""

    def __hash__(self) -> int:
        return hash(self.digest)

    @cached_property
    def digest(self) -> str:
        """A hash of everything that can change which names mean the same tool."""
        return content_digest([[[tool.name, tool.aliases, tool.server] for tool in self.tools], self.servers])


NO_VOCABULARY = Vocabulary()
"""Nothing is declared."""


@dataclass(frozen=True, slots=True)
class ExpectedTool:
    """One call that a golden expects."""

    name: str
    arguments: Mapping[str, Any] | None = None
    """The arguments it must have; `None`: any arguments will do."""
    server: str | None = None
    """The MCP server whose tool it must be; `None`: the one that the name says, else any."""


@dataclass(frozen=True)
class Golden:
    """What was expected for a request."""

    id: str
    input: str | None = None
    tools: tuple[ExpectedTool, ...] = ()
    order: Order = "any"
    forbid: tuple[str, ...] = ()
    """Glob patterns of tool names that must not be called."""
    attempts: Attempts = "effective"
    threshold: float = 0.5
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the golden file that are not goldspan's, kept as they were."""
    vocabulary: Vocabulary = NO_VOCABULARY
    """What names mean here."""

    @cached_property
    def digest(self) -> str:
        """A hash of everything that can change a verdict: not the id, not the input, not the metadata."""
        judged = [
            [[tool.name, tool.arguments, tool.server] for tool in self.tools],
            [self.order, self.forbid, self.attempts, self.threshold, self.vocabulary.digest],
        ]
        return content_digest(judged)


@dataclass(frozen=True, slots=True)
class Match:
    """The golden found for a run, and how."""

    golden: Golden
    how: MatchedBy
    similarity: float = 1.0
    """1.0 for an exact match."""
