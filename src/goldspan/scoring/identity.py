"""Whether a call is a call of the tool that a golden names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate
from functools import lru_cache

from goldspan.extraction.names import fold, words
from goldspan.goldens.naming import Naming
from goldspan.model import NO_VOCABULARY, ExpectedTool, ToolCall

_WILD = re.compile(r"[*?\[]")

PLAIN = Naming(NO_VOCABULARY)
"""How names are read where nothing is declared."""


MOST_STRANGE = 3


def strangeness(expected: ExpectedTool, call: ToolCall, naming: Naming = PLAIN) -> int:
    """How far the name of a call is from the expected one, where both mean the same tool.

    0: written alike; 1: alike when folded, as `WebSearch` and `web_search`; 2: alike without decoration or server;
    3: by an alias only.
    """
    if is_written(expected, call):
        return 0
    if fold(expected.name) in (fold(call.name), fold(call.raw_name)):
        return 1
    return 2 if naming.alike(expected, call) else MOST_STRANGE


def is_written(expected: ExpectedTool, call: ToolCall) -> bool:
    """Whether the name of a call is written as the expected one."""
    return expected.name in (call.name, call.raw_name)


def is_called(tool: ExpectedTool, call: ToolCall, naming: Naming = PLAIN) -> bool:
    """Whether a call is one of that tool."""
    return not naming.wanted(tool).isdisjoint(naming.called(call))


def is_by(tool: ExpectedTool, call: ToolCall) -> bool:
    """Whether the agent that is expected may have made a call. Who made it is not always known, and anybody may do."""
    return tool.agent is None or call.agent is None or fold(tool.agent) == fold(call.agent)


def is_forbidden(call: ToolCall, patterns: Iterable[str], naming: Naming = PLAIN) -> bool:
    """Whether the tool that was called has a name like one of these globs; case and separators do not matter."""
    return any(_is_like(pattern, call.name, call.raw_name, call.server, naming) for pattern in patterns)


@lru_cache(maxsize=16384)
def _is_like(pattern: str, name: str, raw_name: str, server: str | None, naming: Naming) -> bool:
    call = ToolCall(name, raw_name, server)
    if not _WILD.search(pattern):
        return is_called(ExpectedTool(pattern), call, naming)
    # Word by word and not folded: `delete_*` means deleteUser, but not deleted_items.
    by_letter, by_word = _glob(pattern.casefold()).match, _glob(_by_word(pattern)).match
    return any(by_letter(form.casefold()) or by_word(_by_word(form)) for form in naming.forms(call))


@lru_cache(maxsize=1024)
def _glob(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))


def _by_word(name: str) -> str:
    return "_".join(words(name))
