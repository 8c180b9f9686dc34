"""One vocabulary out of what several golden files declare, in which no name means two tools."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from goldspan.content.tools import fold_name, server_prefix, undecorate
from goldspan.errors import GoldenError
from goldspan.model import NO_VOCABULARY, ExpectedTool, Tool, ToolCall, Vocabulary

NameKeys = frozenset[str]

# A folded name holds no separator, so a key with a colon and a letter in it cannot be one.
_any_server_key = "any:{}".format
_server_key = "of:{}:{}".format
_declared_tool_key = "tool:{}".format


class ToolNameMatcher:
    """How names are read beside one vocabulary. It remembers its answers, so ask `naming` for it."""

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
        for at, keys in enumerate(self._tool_keys):
            for key in keys:
                self._indexes_by_key.setdefault(key, []).append(at)
        self._cached_expected_keys = lru_cache(maxsize=4096)(self._compute_expected_keys)
        self._cached_called_keys = lru_cache(maxsize=16384)(self._compute_called_keys)

    def expected_keys(self, tool: ExpectedTool) -> NameKeys:
        """The keys of an expected tool."""
        return self._cached_expected_keys(tool.name, tool.server)

    def called_keys(self, call: ToolCall) -> NameKeys:
        """The keys of the tool that was called."""
        return self._cached_called_keys(call.name, call.raw_name, call.server)

    def is_server_known(self, tool: ExpectedTool, call: ToolCall) -> bool:
        """Whether the MCP server of a call is known: by itself, by its name, or as the vocabulary declares it."""
        meant = self._declared_indexes(call.name, call.raw_name, call.server)
        if len(meant) == 1 and explicit_server(self._tools[meant[0]]) is not None:
            return True
        called = _called_name_keys(call.name, call.raw_name, call.server, self._servers)
        if any(key.startswith("of:") for key in called):
            return True
        bare, _ = undecorate(tool.name, _candidate_servers(tool.server, self._servers))
        return not called & _expected_name_keys(tool.name, tool.server, self._servers) <= {fold_name(bare)}

    def tool_identity(self, call: ToolCall) -> Hashable:
        """What two calls of one tool have in common, and calls of different tools do not."""
        bare, owner = undecorate(call.name, _candidate_servers(call.server, self._servers))
        return self._declared_indexes(call.name, call.raw_name, call.server) or (
            fold_name(bare),
            fold_name(call.server or owner or ""),
        )

    def is_declared(self, call: ToolCall) -> bool:
        """Whether the tool that was called is one of the vocabulary."""
        return bool(self._declared_indexes(call.name, call.raw_name, call.server))

    def declared_tool(self, call: ToolCall) -> Tool | None:
        """What the vocabulary declares of the tool that was called; `None` where that is nothing, or not certain."""
        meant = self._declared_indexes(call.name, call.raw_name, call.server)
        return self._tools[meant[0]] if len(meant) == 1 else None

    def matches_without_aliases(self, tool: ExpectedTool, call: ToolCall) -> bool:
        """Whether an expected tool and a call mean the same even if there were no aliases."""
        called = _called_name_keys(call.name, call.raw_name, call.server, self._servers)
        return not called.isdisjoint(_expected_name_keys(tool.name, tool.server, self._servers))

    def name_variants(self, call: ToolCall) -> set[str]:
        """The ways to write the name of the tool that was called: bare, with its server, and by its other names."""
        bare, owner = undecorate(call.name, _candidate_servers(call.server, self._servers))
        owner = call.server or owner
        composed = {f"{owner}_{bare}", f"mcp__{owner}__{bare}"} if owner else ()
        meant = self._declared_indexes(call.name, call.raw_name, call.server)
        return {call.name, call.raw_name, bare, *composed, *(self._names[meant[0]] if len(meant) == 1 else ())}

    def _compute_expected_keys(self, name: str, server: str | None) -> NameKeys:
        declared = frozenset(map(_declared_tool_key, self._declared_indexes(name, name, server)))
        return declared or _expected_name_keys(name, server, self._servers)

    def _compute_called_keys(self, name: str, raw_name: str, server: str | None) -> NameKeys:
        declared = frozenset(map(_declared_tool_key, self._declared_indexes(name, raw_name, server)))
        return declared or _called_name_keys(name, raw_name, server, self._servers)

    def _declared_indexes(self, name: str, raw_name: str, server: str | None) -> tuple[int, ...]:
        """The declared tools that a name can mean, by position; of several only those it means most clearly."""
        if not self._tool_keys:
            return ()
        keys = _called_name_keys(name, raw_name, server, self._servers)
        found = {at for key in keys for at in self._indexes_by_key.get(key, ())}
        ranks = {at: self._match_rank(at, keys, {name, raw_name}) for at in found}
        clearest = min(ranks.values(), default=0)
        return tuple(sorted(at for at, rank in ranks.items() if rank == clearest))

    def _match_rank(self, at: int, keys: NameKeys, written: set[str]) -> int:
        """How clearly a name means that tool: 0 by its server, 1 written alike, 2 alike when folded, 3 otherwise."""
        if any(key.startswith("of:") for key in keys & self._tool_keys[at]):
            return 0
        if not written.isdisjoint(self._names[at]):
            return 1
        return 3 - (not set(map(fold_name, written)).isdisjoint(map(fold_name, self._names[at])))


@lru_cache(maxsize=64)
def tool_name_matcher(vocabulary: Vocabulary) -> ToolNameMatcher:
    """How names are read beside that vocabulary."""
    return ToolNameMatcher(vocabulary)


def explicit_server(tool: ExpectedTool | Tool) -> str | None:
    """The MCP server that a golden file says a tool is of, as `server` or as `mcp__server__tool`."""
    return tool.server or undecorate(tool.name)[1]


def all_names_of_tool(tool: Tool) -> tuple[str, ...]:
    """All names of a declared tool, its own first."""
    return (tool.name, *tool.aliases)


def declared_servers(vocabulary: Vocabulary) -> tuple[str, ...]:
    """Every MCP server that a vocabulary declares, on its own, as a tool's, or by writing `mcp__server__tool`."""
    said = map(explicit_server, vocabulary.tools)
    return tuple(dict.fromkeys([*vocabulary.servers, *filter(None, said)]))


def _expected_name_keys(name: str, server: str | None, servers: tuple[str, ...]) -> NameKeys:
    bare, owner = undecorate(name, _candidate_servers(server, servers))
    certain = undecorate(name)[1] or server
    owner = certain or owner
    keys = {fold_name(name), fold_name(bare)}
    if owner is None:
        return frozenset({*keys, *map(_any_server_key, keys)})
    keys |= {_server_key(fold_name(owner), fold_name(form)) for form in (name, bare)}
    keys |= _server_prefixed_keys(owner, bare)
    if certain is None:  # a name may begin like a server's and be another server's all the same
        keys.add(_any_server_key(fold_name(name)))
    return frozenset(keys)


def _called_name_keys(name: str, written: str, server: str | None, servers: tuple[str, ...]) -> NameKeys:
    known = _candidate_servers(server, servers)
    (bare, owner), (rest, prefix) = undecorate(name, known), undecorate(written, known)
    forms = {name, written, bare, rest}
    # The host's word for a server need not be the server's own.
    owners = set(filter(None, (server, owner, prefix, server_prefix(written, tool_name=name))))
    if not owners:
        return frozenset(map(fold_name, forms))
    keys = {_server_key(fold_name(owner), fold_name(form)) for owner in owners for form in forms}
    composed = (_server_prefixed_keys(owner, bare) for owner in owners)
    return frozenset(keys.union(map(_any_server_key, set(map(fold_name, forms)).union(*composed))))


def _server_prefixed_keys(server: str, bare: str) -> set[str]:
    return {fold_name(f"{server}_{bare}"), fold_name(f"mcp_{server}_{bare}")}


def _candidate_servers(server: str | None, servers: tuple[str, ...]) -> tuple[str, ...]:
    """Whose prefix a name may wear: that of its own server, where it is known, else that of any."""
    return (server,) if server else servers


@dataclass(frozen=True, slots=True)
class FileDeclarations:
    """What one file declares."""

    file: str
    tools: tuple[Tool, ...] = ()
    servers: tuple[str, ...] = ()


def combine_declarations(declarations: Iterable[FileDeclarations]) -> Vocabulary:
    """The vocabulary of files that are loaded together: each may use what another declares.

    Raises `GoldenError` for a name that means two tools, and for a tool that two files declare differently.
    """
    tools: dict[str, Tool] = {}
    home: dict[str, str] = {}
    servers: dict[str, None] = {}  # an ordered set
    for part in declarations:
        servers.update(dict.fromkeys(part.servers))
        for tool in part.tools:
            known = tools.setdefault(tool.name, tool)
            elsewhere = home.setdefault(tool.name, part.file)
            if known != tool:
                raise GoldenError(f"{part.file}, tool {tool.name!r}: {elsewhere} declares it differently.")
    if not tools and not servers:
        return NO_VOCABULARY
    vocabulary = Vocabulary(tuple(tools.values()), tuple(servers))
    _check_unique_names(vocabulary, home)
    return vocabulary


def declaration_defaults(vocabulary: Vocabulary) -> Callable[[ExpectedTool], ExpectedTool]:
    """Adds to an expected tool what the vocabulary says of its arguments; what it says itself comes first.

    A name that can mean several declared tools gets nothing from any of them.
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
    """Refuse names that are the same when folded and without decoration."""
    servers = declared_servers(vocabulary)
    taken: dict[tuple[str, str], tuple[Tool, str]] = {}
    for tool in vocabulary.tools:
        for name in all_names_of_tool(tool):
            bare, said = undecorate(name, servers)
            first, written = taken.setdefault((fold_name(said or tool.server or ""), fold_name(bare)), (tool, name))
            if first is not tool:
                raise GoldenError(
                    f"{file_of_tool[tool.name]}, tool {tool.name!r}: {_name_conflict_message(tool, name, first, written)}"
                )


def _name_conflict_message(tool: Tool, name: str, other_tool: Tool, other_name: str) -> str:
    what = "the name" if name == tool.name else f"the alias {name!r}"
    whose = (
        f"the name of {other_tool.name!r}"
        if other_name == other_tool.name
        else f"the alias {other_name!r} of {other_tool.name!r}"
    )
    return f"{what} means the same as {whose}; no name can mean two tools."
