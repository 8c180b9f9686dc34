"""Matches tool names against a vocabulary, and combines declarations of files to one vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from goldspan.content.tools import server_prefix, undecorate
from goldspan.errors import GoldenError
from goldspan.model import NO_VOCABULARY, ExpectedTool, Tool, ToolCall, Vocabulary
from goldspan.model.name_folding import fold_name

NameKeys = frozenset[str]

# A folded name has no separators, so a key with a colon cannot collide with one.
_any_server_key = "any:{}".format
_server_key = "of:{}:{}".format
_declared_tool_key = "tool:{}".format


class ToolNameMatcher:
    """Matches the names of expected and called tools, given a vocabulary. Created by `tool_name_matcher`."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._tools = vocabulary.tools
        self._servers = declared_servers(vocabulary)
        self._names = [all_names_of_tool(tool) for tool in vocabulary.tools]
        self._tool_keys = [
            frozenset[str]().union(
                *(_expected_name_keys(name, tool.server, self._servers) for name in all_names_of_tool(tool))
            )
            for tool in vocabulary.tools
        ]
        self._indexes_by_key: dict[str, list[int]] = {}
        for index, keys in enumerate(self._tool_keys):
            for key in keys:
                self._indexes_by_key.setdefault(key, []).append(index)
        self._cached_expected_keys = lru_cache(maxsize=4096)(self._compute_expected_keys)
        self._cached_called_keys = lru_cache(maxsize=16384)(self._compute_called_keys)

    def expected_keys(self, tool: ExpectedTool) -> NameKeys:
        """Returns the name keys of an expected tool. It matches a call that shares a key."""
        return self._cached_expected_keys(tool.name, tool.server)

    def called_keys(self, call: ToolCall) -> NameKeys:
        """Returns the name keys of a call."""
        return self._cached_called_keys(call.name, call.raw_name, call.server)

    def is_server_known(self, tool: ExpectedTool, call: ToolCall) -> bool:
        """Whether the MCP server of a call is known: from the call, its name or the vocabulary."""
        declared = self._declared_indexes(call.name, call.raw_name, call.server)
        if len(declared) == 1 and explicit_server(self._tools[declared[0]]) is not None:
            return True
        called = _called_name_keys(call.name, call.raw_name, call.server, self._servers)
        if any(key.startswith("of:") for key in called):
            return True
        bare, _ = undecorate(tool.name, _candidate_servers(tool.server, self._servers))
        return not called & _expected_name_keys(tool.name, tool.server, self._servers) <= {fold_name(bare)}

    def tool_identity(self, call: ToolCall) -> Hashable:
        """Returns a value that is equal for two calls if and only if they call the same tool."""
        bare, owner = undecorate(call.name, _candidate_servers(call.server, self._servers))
        return self._declared_indexes(call.name, call.raw_name, call.server) or (
            fold_name(bare),
            fold_name(call.server or owner or ""),
        )

    def is_declared(self, call: ToolCall) -> bool:
        """Whether the vocabulary declares the called tool."""
        return bool(self._declared_indexes(call.name, call.raw_name, call.server))

    def declared_tool(self, call: ToolCall) -> Tool | None:
        """Returns the declaration of the called tool; `None` if there is none, or more than one fits."""
        declared = self._declared_indexes(call.name, call.raw_name, call.server)
        return self._tools[declared[0]] if len(declared) == 1 else None

    def matches_without_aliases(self, tool: ExpectedTool, call: ToolCall) -> bool:
        """Whether the names of an expected tool and a call match without the aliases of the vocabulary."""
        called = _called_name_keys(call.name, call.raw_name, call.server, self._servers)
        return not called.isdisjoint(_expected_name_keys(tool.name, tool.server, self._servers))

    def name_variants(self, call: ToolCall) -> set[str]:
        """Returns the spellings of the name of a call: without and with its server, and its declared names."""
        bare, owner = undecorate(call.name, _candidate_servers(call.server, self._servers))
        owner = call.server or owner
        composed = {f"{owner}_{bare}", f"mcp__{owner}__{bare}"} if owner else ()
        declared = self._declared_indexes(call.name, call.raw_name, call.server)
        declared_names = self._names[declared[0]] if len(declared) == 1 else ()
        return {call.name, call.raw_name, bare, *composed, *declared_names}

    def _compute_expected_keys(self, name: str, server: str | None) -> NameKeys:
        declared = frozenset(map(_declared_tool_key, self._declared_indexes(name, name, server)))
        return declared or _expected_name_keys(name, server, self._servers)

    def _compute_called_keys(self, name: str, raw_name: str, server: str | None) -> NameKeys:
        declared = frozenset(map(_declared_tool_key, self._declared_indexes(name, raw_name, server)))
        return declared or _called_name_keys(name, raw_name, server, self._servers)

    def _declared_indexes(self, name: str, raw_name: str, server: str | None) -> tuple[int, ...]:
        """Returns the indexes of the declared tools that the name fits best."""
        if not self._tool_keys:
            return ()
        keys = _called_name_keys(name, raw_name, server, self._servers)
        found = {index for key in keys for index in self._indexes_by_key.get(key, ())}
        ranks = {index: self._match_rank(index, keys, {name, raw_name}) for index in found}
        best = min(ranks.values(), default=0)
        return tuple(sorted(index for index, rank in ranks.items() if rank == best))

    def _match_rank(self, index: int, keys: NameKeys, names: set[str]) -> int:
        """Returns how well names fit a tool: 0 with its server, 1 identical, 2 identical when folded, 3 otherwise."""
        if any(key.startswith("of:") for key in keys & self._tool_keys[index]):
            return 0
        if not names.isdisjoint(self._names[index]):
            return 1
        return 3 - (not set(map(fold_name, names)).isdisjoint(map(fold_name, self._names[index])))


@lru_cache(maxsize=64)
def tool_name_matcher(vocabulary: Vocabulary) -> ToolNameMatcher:
    """Returns the name matcher of a vocabulary; cached."""
    return ToolNameMatcher(vocabulary)


def explicit_server(tool: ExpectedTool | Tool) -> str | None:
    """Returns the MCP server that a golden file states for a tool, as `server` or as `mcp__server__tool`."""
    return tool.server or undecorate(tool.name)[1]


def all_names_of_tool(tool: Tool) -> tuple[str, ...]:
    """Returns the name of a declared tool and its aliases."""
    return (tool.name, *tool.aliases)


def declared_servers(vocabulary: Vocabulary) -> tuple[str, ...]:
    """Returns the MCP servers of a vocabulary: from `servers`, and from the tools and their names."""
    tool_servers = map(explicit_server, vocabulary.tools)
    return tuple(dict.fromkeys([*vocabulary.servers, *filter(None, tool_servers)]))


def _expected_name_keys(name: str, server: str | None, servers: tuple[str, ...]) -> NameKeys:
    bare, owner = undecorate(name, _candidate_servers(server, servers))
    stated_server = undecorate(name)[1] or server
    owner = stated_server or owner
    keys = {fold_name(name), fold_name(bare)}
    if owner is None:
        return frozenset({*keys, *map(_any_server_key, keys)})
    keys |= {_server_key(fold_name(owner), fold_name(form)) for form in (name, bare)}
    keys |= _server_prefixed_keys(owner, bare)
    if stated_server is None:  # the start of the name may equal a server name by chance
        keys.add(_any_server_key(fold_name(name)))
    return frozenset(keys)


def _called_name_keys(name: str, raw_name: str, server: str | None, servers: tuple[str, ...]) -> NameKeys:
    known = _candidate_servers(server, servers)
    (bare, owner), (raw_bare, raw_owner) = undecorate(name, known), undecorate(raw_name, known)
    forms = {name, raw_name, bare, raw_bare}
    # The host may use another name for a server than the server itself.
    owners = set(filter(None, (server, owner, raw_owner, server_prefix(raw_name, tool_name=name))))
    if not owners:
        return frozenset(map(fold_name, forms))
    keys = {_server_key(fold_name(owner), fold_name(form)) for owner in owners for form in forms}
    composed = (_server_prefixed_keys(owner, bare) for owner in owners)
    return frozenset(keys.union(map(_any_server_key, set(map(fold_name, forms)).union(*composed))))


def _server_prefixed_keys(server: str, bare: str) -> set[str]:
    return {fold_name(f"{server}_{bare}"), fold_name(f"mcp_{server}_{bare}")}


def _candidate_servers(server: str | None, servers: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the servers whose names may prefix a tool name: its own server if known, else all servers."""
    return (server,) if server else servers


@dataclass(frozen=True, slots=True)
class FileDeclarations:
    """The tools and servers that one file declares."""

    file: str
    tools: tuple[Tool, ...] = ()
    servers: tuple[str, ...] = ()


def combine_declarations(declarations: Iterable[FileDeclarations]) -> Vocabulary:
    """Returns the vocabulary of files that are loaded together; it applies to all of them.

    Raises `GoldenError` for a name that stands for two tools, and for a tool that two files declare differently.
    """
    tools: dict[str, Tool] = {}
    file_of_tool: dict[str, str] = {}
    servers: dict[str, None] = {}  # an ordered set
    for declaration in declarations:
        servers.update(dict.fromkeys(declaration.servers))
        for tool in declaration.tools:
            first = tools.setdefault(tool.name, tool)
            first_file = file_of_tool.setdefault(tool.name, declaration.file)
            if first != tool:
                raise GoldenError(f"{declaration.file}, tool {tool.name!r}: {first_file} declares it differently.")
    if not tools and not servers:
        return NO_VOCABULARY
    vocabulary = Vocabulary(tuple(tools.values()), tuple(servers))
    _check_unique_names(vocabulary, file_of_tool)
    return vocabulary


def declaration_defaults(vocabulary: Vocabulary) -> Callable[[ExpectedTool], ExpectedTool]:
    """Returns a function that adds the declared `ignore` and `defaults` of a tool to an expected tool.

    The expected tool's own values take precedence. A name that fits several declared tools is left unchanged.
    """
    if not any(tool.ignore or tool.defaults for tool in vocabulary.tools):
        return lambda tool: tool
    names = tool_name_matcher(vocabulary)

    @lru_cache(maxsize=4096)
    def declared(name: str, server: str | None) -> Tool | None:
        return names.declared_tool(ToolCall(name, server=server))

    def complete(tool: ExpectedTool) -> ExpectedTool:
        known = declared(tool.name, tool.server)
        if known is None or not (known.ignore or known.defaults):
            return tool
        ignore = tuple(dict.fromkeys((*known.ignore, *tool.ignore)))
        return replace(tool, ignore=ignore, defaults={**known.defaults, **tool.defaults})

    return complete


def _check_unique_names(vocabulary: Vocabulary, file_of_tool: dict[str, str]) -> None:
    """Raises `GoldenError` for names of different tools that are equal when folded and without server prefix."""
    servers = declared_servers(vocabulary)
    first_use: dict[tuple[str, str], tuple[Tool, str]] = {}
    for tool in vocabulary.tools:
        for name in all_names_of_tool(tool):
            bare, prefix = undecorate(name, servers)
            key = (fold_name(prefix or tool.server or ""), fold_name(bare))
            first_tool, first_name = first_use.setdefault(key, (tool, name))
            if first_tool is not tool:
                problem = _name_conflict_message(tool, name, first_tool, first_name)
                raise GoldenError(f"{file_of_tool[tool.name]}, tool {tool.name!r}: {problem}")


def _name_conflict_message(tool: Tool, name: str, other_tool: Tool, other_name: str) -> str:
    subject = "the name" if name == tool.name else f"the alias {name!r}"
    other = (
        f"the name of {other_tool.name!r}"
        if other_name == other_tool.name
        else f"the alias {other_name!r} of {other_tool.name!r}"
    )
    return f"{subject} is equivalent to {other}; a name must not stand for two tools."
