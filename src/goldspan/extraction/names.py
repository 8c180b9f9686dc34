"""Tool names: how they are compared, and the decoration that hosts put around them.

A name is never rewritten for display; folding only decides whether two names mean the same tool.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from functools import lru_cache
from itertools import islice

_SEPARATORS = re.compile(r"[\s_\-./:]+")
_WORD_STARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NAMESPACE = re.compile(r"(?:functions|default_api)[.:](?=.)", re.DOTALL)
_MCP = re.compile(r"mcp__(?P<server>.+?)__(?P<tool>.+)", re.DOTALL)
_GAPS = re.compile(r"[\W_]+")
_LONGEST_PREFIX = 16
"""Separators in what may stand before a tool's own name."""
_HANDOFFS = ("handoff to ", "handoff_to_", "transfer_to_")


@lru_cache(maxsize=16384)
def fold(name: str) -> str:
    """The form in which names are compared: no case, no separators.

    `web_search`, `WebSearch`, `Web Search` and `web-search` fold to the same text. A name made of separators alone
    folds to itself, so that it equals nothing else.
    """
    if name.isascii():
        return _SEPARATORS.sub("", name.lower()) or name
    folded = _SEPARATORS.sub("", unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())) or name
    # Letters that a separator kept apart may now compose.
    return folded if folded == name else fold(folded)


@lru_cache(maxsize=16384)
def words(name: str) -> tuple[str, ...]:
    """The words of a name, without case: `searchHotels`, `search_hotels` and `Search Hotels` have the same two."""
    return tuple(filter(None, _SEPARATORS.split(_WORD_STARTS.sub("_", name).casefold())))


def undecorate(raw: str, servers: Collection[str] = ()) -> tuple[str, str | None]:
    """Split a name as a host writes it into the tool's own name and its MCP server, if the name says one.

    Known decorations: the namespaces `functions.` and `default_api.` that models put before a tool's name, and
    `mcp__server__tool`, what most MCP hosts show the model. All other forms (`server_tool`, `server.tool`,
    `mcp-server-tool`, ...) may be names in their own right, so they are split only where the server is one of
    `servers`, those that are known to exist; the server comes back as it is written there.
    """
    if servers and (found := _of_known_server(raw, servers)):
        return found
    return _undecorated(raw)


def same_name(one: str, other: str) -> bool:
    """Whether two names can mean one tool; the longer may carry its server's name in front."""
    return tails(one)[0] in tails(other) or tails(other)[0] in tails(one)


@lru_cache(maxsize=16384)
def tails(name: str) -> tuple[str, ...]:
    """A name folded, then what is left of it behind each of its separators: one of them is the tool's own name.

    `orders_add` may be the tool `add` of the server `orders`; `research` is not the tool `search` of anybody.
    """
    own = undecorate(name)[0]
    ends = islice(_GAPS.finditer(own), _LONGEST_PREFIX)
    return tuple(dict.fromkeys(filter(None, (fold(own), *(fold(own[gap.end() :]) for gap in ends))))) or ("",)


@lru_cache(maxsize=16384)
def server_of(decorated: str, *, bare: str) -> str | None:
    """The server that a decorated name shows, where the tool's own name is known from elsewhere.

    `orders` for `orders_add` beside an MCP span of the tool `add`; `None` where the name is not built like that. A host
    may have put other separators into the bare name as well.
    """
    name = _without_namespace(decorated)
    if fold(name) == fold(bare):
        return None
    for gap in _SEPARATORS.finditer(name):
        if fold(name[gap.end() :]) == fold(bare):
            return _without_marker(name[: gap.start()])
    return None


@lru_cache(maxsize=16384)
def handoff_target(name: str) -> str | None:
    """The agent that a hand-off by this name goes to, or `None` where the name is not built like one.

    Frameworks expose a hand-off to the model as a tool `transfer_to_X`; a tool of one's own may be called like that
    too, so the form of the name alone never makes a call a hand-off.
    """
    return next((name[len(prefix) :] for prefix in _HANDOFFS if name.startswith(prefix)), None)


@lru_cache(maxsize=16384)
def _undecorated(raw: str) -> tuple[str, str | None]:
    name = _without_namespace(raw)
    hit = _MCP.fullmatch(name)
    return (hit["tool"], hit["server"]) if hit else (name, None)


def _without_namespace(raw: str) -> str:
    hit = _NAMESPACE.match(raw)
    return raw[hit.end() :] if hit else raw


def _of_known_server(raw: str, servers: Collection[str]) -> tuple[str, str] | None:
    splits = ((_tool_of(raw, server), server) for server in servers if server)
    found = [(tool, server) for tool, server in splits if tool]
    # Of the servers `orders` and `orders_eu`, `orders_eu_add` is of the second: the shortest rest is the tool.
    return min(found, key=lambda split: (len(split[0]), split), default=None)


@lru_cache(maxsize=16384)
def _tool_of(raw: str, server: str) -> str:
    """What follows the server in a decorated name; empty where the name does not begin with the server."""
    name = _without_namespace(raw)
    owners = (fold(server), fold(f"mcp_{server}"))
    rests = (name[gap.end() :] for gap in _SEPARATORS.finditer(name) if fold(name[: gap.start()]) in owners)
    return next(rests, "")


def _without_marker(prefix: str) -> str | None:
    """The server in what stands before a tool's name: `orders` of `orders`, `mcp__orders` and `mcp-orders`."""
    first, *rest = _SEPARATORS.split(prefix, maxsplit=1)
    server = (rest[0] if rest else "") if first == "mcp" else prefix
    return server or None
