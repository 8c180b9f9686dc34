"""Tool names: how they are compared, and the decoration that hosts put around them.

A name is never rewritten for display; folding only decides whether two names mean the same tool.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_SEPARATORS = re.compile(r"[\s_\-./:]+")
_MCP = re.compile(r"mcp__(?P<server>.+?)__(?P<tool>.+)", re.DOTALL)
_HANDOFFS = ("handoff to ", "handoff_to_", "transfer_to_")
_NAMESPACES = ("functions.", "default_api.")


@lru_cache(maxsize=16384)
def fold(name: str) -> str:
    """The form in which names are compared: no case, no separators.

    `web_search`, `WebSearch`, `Web Search` and `web-search` fold to the same text. A name made of separators alone
    folds to itself, so that it equals nothing else.
    """
    return _SEPARATORS.sub("", unicodedata.normalize("NFKC", name).casefold()) or name


@lru_cache(maxsize=16384)
def undecorate(raw: str) -> tuple[str, str | None]:
    """Split a name as a host writes it into the tool's own name and its MCP server, if the name says one.

    Known decorations: `mcp__server__tool` (what most MCP hosts show the model) and the namespaces `functions.` and
    `default_api.` that models put before a tool's name.
    """
    if hit := _MCP.fullmatch(raw):
        return hit["tool"], hit["server"]
    for namespace in _NAMESPACES:
        if raw.startswith(namespace) and len(raw) > len(namespace):
            return raw[len(namespace) :], None
    return raw, None


def handoff_target(name: str) -> str | None:
    """The agent that a hand-off by this name goes to, or `None` where the name is not built like one.

    Frameworks expose a hand-off to the model as a tool `transfer_to_X`; a tool of one's own may be called like that
    too, so the form of the name alone never makes a call a hand-off.
    """
    return next((name[len(prefix) :] for prefix in _HANDOFFS if name.startswith(prefix)), None)
