"""Whether a call is a call of the tool that a golden names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate
from functools import lru_cache

from goldspan.extraction.names import fold, undecorate
from goldspan.model import ToolCall

_WILD = re.compile(r"[*?\[]")
_WORD_STARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SEPARATORS = re.compile(r"[\s_\-./:]+")


@lru_cache(maxsize=16384)
def keys(name: str, raw_name: str = "", server: str | None = None) -> frozenset[str]:
    """The folded names by which a tool may be called: two names mean the same tool if they share one.

    Besides the name itself: without its decoration, and with its server, since some hosts show `orders_add` for the
    tool `add` of the server `orders`.
    """
    found = {fold(name)}
    for written in (name, raw_name):
        if written:
            bare, owner = undecorate(written)
            found |= {fold(written), fold(bare)}
            if owner:
                found.add(fold(owner + bare))
    if server:
        found.add(fold(server + name))
    return frozenset(found)


def call_keys(call: ToolCall) -> frozenset[str]:
    """The keys of the tool that was called."""
    return keys(call.name, call.raw_name, call.server)


def strangeness(expected: str, call: ToolCall) -> int:
    """How far the name of a call is from the expected one, where both mean the same tool.

    0: written alike; 1: alike when folded, as `WebSearch` and `web_search`; 2: alike without decoration or server.
    """
    if expected in (call.name, call.raw_name):
        return 0
    return 1 if fold(expected) in (fold(call.name), fold(call.raw_name)) else 2


def is_forbidden(call: ToolCall, patterns: Iterable[str]) -> bool:
    """Whether the tool that was called has a name like one of these globs; case and separators do not matter."""
    return any(_is_like(pattern, call.name, call.raw_name, call.server) for pattern in patterns)


@lru_cache(maxsize=16384)
def _is_like(pattern: str, name: str, raw_name: str, server: str | None) -> bool:
    if not _WILD.search(pattern):
        return not keys(pattern).isdisjoint(keys(name, raw_name, server))
    # Word by word and not folded: `delete_*` means deleteUser, but not deleted_items.
    by_letter, by_word = _glob(pattern.casefold()).match, _glob(_words(pattern)).match
    return any(by_letter(form.casefold()) or by_word(_words(form)) for form in (name, raw_name))


@lru_cache(maxsize=1024)
def _glob(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))


def _words(name: str) -> str:
    return _SEPARATORS.sub("_", _WORD_STARTS.sub("_", name)).casefold()
