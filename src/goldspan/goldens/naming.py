"""Which tool a name means, whatever decoration it wears and whichever of its names it is.

Names become *keys*: an expected tool and a call mean the same tool if they share one. Where both sides know their
server, only a key that holds the server can be shared, so that two servers' tools of one name stay apart.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache

from goldspan.extraction.names import fold, server_of, undecorate
from goldspan.model import ExpectedTool, Tool, ToolCall, Vocabulary

Keys = frozenset[str]

# A folded name holds no separator, so a key with a colon and a letter in it cannot be one.
_OF_ANY_SERVER = "any:{}".format
_OF_SERVER = "of:{}:{}".format
_DECLARED = "tool:{}".format


class Naming:
    """How names are read beside one vocabulary. It remembers its answers, so ask `naming` for it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._tools = vocabulary.tools
        self._servers = servers_of(vocabulary)
        self._names = [names_of(tool) for tool in vocabulary.tools]
        self._keys = [
            frozenset[str]().union(*(_wanted(name, tool.server, self._servers) for name in names_of(tool)))
            for tool in vocabulary.tools
        ]
        self._having: dict[str, list[int]] = {}
        for at, keys in enumerate(self._keys):
            for key in keys:
                self._having.setdefault(key, []).append(at)
        self._keys_wanted = lru_cache(maxsize=4096)(self._find_keys_wanted)
        self._keys_called = lru_cache(maxsize=16384)(self._find_keys_called)

    def wanted(self, tool: ExpectedTool) -> Keys:
        """The keys of an expected tool."""
        return self._keys_wanted(tool.name, tool.server)

    def called(self, call: ToolCall) -> Keys:
        """The keys of the tool that was called."""
        return self._keys_called(call.name, call.raw_name, call.server)

    def tells_server(self, tool: ExpectedTool, call: ToolCall) -> bool:
        """Whether the MCP server of a call is known: by itself, by its name, or as the vocabulary declares it."""
        meant = self._meant(call.name, call.raw_name, call.server)
        if len(meant) == 1 and stated_server(self._tools[meant[0]]) is not None:
            return True
        called = _called(call.name, call.raw_name, call.server, self._servers)
        if any(key.startswith("of:") for key in called):
            return True
        bare, _ = undecorate(tool.name, _known(tool.server, self._servers))
        return not called & _wanted(tool.name, tool.server, self._servers) <= {fold(bare)}

    def tool(self, call: ToolCall) -> Hashable:
        """What two calls of one tool have in common, and calls of different tools do not."""
        bare, owner = undecorate(call.name, _known(call.server, self._servers))
        return self._meant(call.name, call.raw_name, call.server) or (fold(bare), fold(call.server or owner or ""))

    def declares(self, call: ToolCall) -> bool:
        """Whether the tool that was called is one of the vocabulary."""
        return bool(self._meant(call.name, call.raw_name, call.server))

    def declaration(self, call: ToolCall) -> Tool | None:
        """What the vocabulary declares of the tool that was called; `None` where that is nothing, or not certain."""
        meant = self._meant(call.name, call.raw_name, call.server)
        return self._tools[meant[0]] if len(meant) == 1 else None

    def alike(self, tool: ExpectedTool, call: ToolCall) -> bool:
        """Whether an expected tool and a call mean the same even if there were no aliases."""
        called = _called(call.name, call.raw_name, call.server, self._servers)
        return not called.isdisjoint(_wanted(tool.name, tool.server, self._servers))

    def forms(self, call: ToolCall) -> set[str]:
        """The ways to write the name of the tool that was called: bare, with its server, and by its other names."""
        bare, owner = undecorate(call.name, _known(call.server, self._servers))
        owner = call.server or owner
        composed = {f"{owner}_{bare}", f"mcp__{owner}__{bare}"} if owner else ()
        meant = self._meant(call.name, call.raw_name, call.server)
        return {call.name, call.raw_name, bare, *composed, *(self._names[meant[0]] if len(meant) == 1 else ())}

    def _find_keys_wanted(self, name: str, server: str | None) -> Keys:
        declared = frozenset(map(_DECLARED, self._meant(name, name, server)))
        return declared or _wanted(name, server, self._servers)

    def _find_keys_called(self, name: str, raw_name: str, server: str | None) -> Keys:
        declared = frozenset(map(_DECLARED, self._meant(name, raw_name, server)))
        return declared or _called(name, raw_name, server, self._servers)

    def _meant(self, name: str, raw_name: str, server: str | None) -> tuple[int, ...]:
        """The declared tools that a name can mean, by position; of several only those it means most clearly."""
        if not self._keys:
            return ()
        keys = _called(name, raw_name, server, self._servers)
        found = {at for key in keys for at in self._having.get(key, ())}
        ranks = {at: self._rank(at, keys, {name, raw_name}) for at in found}
        clearest = min(ranks.values(), default=0)
        return tuple(sorted(at for at, rank in ranks.items() if rank == clearest))

    def _rank(self, at: int, keys: Keys, written: set[str]) -> int:
        """How clearly a name means that tool: 0 by its server, 1 written alike, 2 alike when folded, 3 otherwise."""
        if any(key.startswith("of:") for key in keys & self._keys[at]):
            return 0
        if not written.isdisjoint(self._names[at]):
            return 1
        return 3 - (not set(map(fold, written)).isdisjoint(map(fold, self._names[at])))


@lru_cache(maxsize=64)
def naming(vocabulary: Vocabulary) -> Naming:
    """How names are read beside that vocabulary."""
    return Naming(vocabulary)


def stated_server(tool: ExpectedTool | Tool) -> str | None:
    """The MCP server that a golden file says a tool is of, as `server` or as `mcp__server__tool`."""
    return tool.server or undecorate(tool.name)[1]


def names_of(tool: Tool) -> tuple[str, ...]:
    """All names of a declared tool, its own first."""
    return (tool.name, *tool.aliases)


def servers_of(vocabulary: Vocabulary) -> tuple[str, ...]:
    """Every MCP server that a vocabulary declares, on its own, as a tool's, or by writing `mcp__server__tool`."""
    said = map(stated_server, vocabulary.tools)
    return tuple(dict.fromkeys([*vocabulary.servers, *filter(None, said)]))


def _wanted(name: str, server: str | None, servers: tuple[str, ...]) -> Keys:
    bare, owner = undecorate(name, _known(server, servers))
    certain = undecorate(name)[1] or server
    owner = certain or owner
    keys = {fold(name), fold(bare)}
    if owner is None:
        return frozenset({*keys, *map(_OF_ANY_SERVER, keys)})
    keys |= {_OF_SERVER(fold(owner), fold(form)) for form in (name, bare)}
    keys |= _with_server(owner, bare)
    if certain is None:  # a name may begin like a server's and be another server's all the same
        keys.add(_OF_ANY_SERVER(fold(name)))
    return frozenset(keys)


def _called(name: str, written: str, server: str | None, servers: tuple[str, ...]) -> Keys:
    known = _known(server, servers)
    (bare, owner), (rest, prefix) = undecorate(name, known), undecorate(written, known)
    forms = {name, written, bare, rest}
    # The host's word for a server need not be the server's own.
    owners = set(filter(None, (server, owner, prefix, server_of(written, bare=name))))
    if not owners:
        return frozenset(map(fold, forms))
    keys = {_OF_SERVER(fold(owner), fold(form)) for owner in owners for form in forms}
    composed = (_with_server(owner, bare) for owner in owners)
    return frozenset(keys.union(map(_OF_ANY_SERVER, set(map(fold, forms)).union(*composed))))


def _with_server(server: str, bare: str) -> set[str]:
    return {fold(f"{server}_{bare}"), fold(f"mcp_{server}_{bare}")}


def _known(server: str | None, servers: tuple[str, ...]) -> tuple[str, ...]:
    """Whose prefix a name may wear: that of its own server, where it is known, else that of any."""
    return (server,) if server else servers
