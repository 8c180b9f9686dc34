"""One vocabulary out of what several golden files declare, in which no name means two tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from goldspan.errors import GoldenError
from goldspan.extraction.names import fold, undecorate
from goldspan.goldens.naming import names_of, naming, servers_of
from goldspan.model import NO_VOCABULARY, ExpectedTool, Tool, ToolCall, Vocabulary


@dataclass(frozen=True, slots=True)
class Declared:
    """What one file declares."""

    file: str
    tools: tuple[Tool, ...] = ()
    servers: tuple[str, ...] = ()


def combined(declared: Iterable[Declared]) -> Vocabulary:
    """The vocabulary of files that are loaded together: each may use what another declares.

    Raises `GoldenError` for a name that means two tools, and for a tool that two files declare differently.
    """
    tools: dict[str, Tool] = {}
    home: dict[str, str] = {}
    servers: dict[str, None] = {}  # an ordered set
    for part in declared:
        servers.update(dict.fromkeys(part.servers))
        for tool in part.tools:
            known = tools.setdefault(tool.name, tool)
            elsewhere = home.setdefault(tool.name, part.file)
            if known != tool:
                raise GoldenError(f"{part.file}, tool {tool.name!r}: {elsewhere} declares it differently.")
    if not tools and not servers:
        return NO_VOCABULARY
    vocabulary = Vocabulary(tuple(tools.values()), tuple(servers))
    _check_names(vocabulary, home)
    return vocabulary


def completing(vocabulary: Vocabulary) -> Callable[[ExpectedTool], ExpectedTool]:
    """Adds to an expected tool what the vocabulary says of its arguments; what it says itself comes first.

    A name that can mean several declared tools gets nothing from any of them.
    """
    if not any(tool.ignore or tool.defaults for tool in vocabulary.tools):
        return lambda tool: tool
    names = naming(vocabulary)

    @lru_cache(maxsize=4096)
    def declared(name: str, server: str | None) -> Tool | None:
        return names.declaration(ToolCall(name, server=server))

    def complete(tool: ExpectedTool) -> ExpectedTool:
        known = declared(tool.name, tool.server)
        if known is None or not (known.ignore or known.defaults):
            return tool
        ignore = tuple(dict.fromkeys((*known.ignore, *tool.ignore)))
        return replace(tool, ignore=ignore, defaults={**known.defaults, **tool.defaults})

    return complete


def _check_names(vocabulary: Vocabulary, home: dict[str, str]) -> None:
    """Refuse names that are the same when folded and without decoration."""
    servers = servers_of(vocabulary)
    taken: dict[tuple[str, str], tuple[Tool, str]] = {}
    for tool in vocabulary.tools:
        for name in names_of(tool):
            bare, said = undecorate(name, servers)
            first, written = taken.setdefault((fold(said or tool.server or ""), fold(bare)), (tool, name))
            if first is not tool:
                raise GoldenError(f"{home[tool.name]}, tool {tool.name!r}: {_clash(tool, name, first, written)}")


def _clash(tool: Tool, name: str, first: Tool, written: str) -> str:
    what = "the name" if name == tool.name else f"the alias {name!r}"
    whose = f"the name of {first.name!r}" if written == first.name else f"the alias {written!r} of {first.name!r}"
    return f"{what} means the same as {whose}; no name can mean two tools."
