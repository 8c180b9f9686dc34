"""Finds tool names that nearly match an expected one, and names that two servers share.

The suggestions are only shown. They do not change a verdict.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from goldspan.content.tools import name_words, server_prefix, undecorate
from goldspan.goldens.tool_names import ToolNameMatcher, tool_name_matcher
from goldspan.model import Comparison, ExpectedTool, Golden, ToolCall, ToolDefinition
from goldspan.model.name_folding import fold_name
from goldspan.scoring.matching.slot_plan import is_call_of
from goldspan.scoring.metrics.metric import alternative_calls

_MAX_COMPARED, _MAX_SHOWN = 30, 5
"""The number of names that are compared on each side, and the number of near misses that are shown."""
_MAX_NAME_CHARACTERS = 100
_VERSION = re.compile(r"v\d+")
_ENDINGS = ("s", "es", "d", "ed", "ing")


class NearMiss(NamedTuple):
    """A missing tool, and the similar name that probably means it."""

    expected: str
    name: str
    was_called: bool
    """Whether a tool of that name was called; else the agent was offered one."""
    prefix: str | None = None
    """The prefix of one name, if it is the only difference: probably the server."""
    server: str | None = None
    """The server of the call, if the names are equal and only the servers differ."""


class NameCollision(NamedTuple):
    """An expected name that matches called tools of several servers."""

    name: str
    servers: tuple[str, ...]


def find_near_misses(comparison: Comparison, available: Sequence[ToolDefinition] = ()) -> list[NearMiss]:
    """Returns, for each missing tool, a call or else an offered tool that probably has another name for it.

    A tool that the agent was offered under the expected name gets no suggestion. A tool that the golden or its
    vocabulary names itself is not suggested: it is known to be different.
    """
    if comparison.golden is None or not comparison.missing or not (comparison.unexpected or available):
        return []
    missing = {tool.name: tool for tool in islice(_missing_tools(comparison), _MAX_COMPARED)}
    called = {row.called.name: row.called for row in comparison.unexpected[:_MAX_COMPARED] if row.called}
    offered = {tool.name: ToolCall(tool.name) for tool in available[:_MAX_COMPARED]}
    found: dict[str, NearMiss] = {}
    for calls in (called, offered):
        for name, other in _near_names(tuple(missing), tuple(calls)):
            if name not in found and (
                near := _near_miss_or_none(missing[name], calls[other], comparison.golden, offered)
            ):
                found[name] = near
    return [found[name] for name in missing if name in found][:_MAX_SHOWN]


def _missing_tools(comparison: Comparison) -> Iterator[ExpectedTool]:
    """Yield the expected tools that were not called, including each alternative."""
    for row in comparison.missing:
        if isinstance(row.expected, ExpectedTool):
            yield row.expected
        elif row.expected is not None:
            yield from alternative_calls(row.expected)


def _near_miss_or_none(
    tool: ExpectedTool, call: ToolCall, golden: Golden, offered: Mapping[str, ToolCall]
) -> NearMiss | None:
    """Returns a near miss, unless the two are known to be different tools."""
    names = tool_name_matcher(golden.vocabulary)
    if _is_known_tool(call, golden, names):
        return None
    near = _make_near_miss(tool, call, called=offered.get(call.name) is not call)
    known = any(is_call_of(tool, same, names) for same in offered.values())
    return near if near.server or not known else None


def find_collisions(comparison: Comparison) -> list[NameCollision]:
    """Returns the expected names that match called tools of several servers."""
    calls = [row.called for row in (*comparison.pairs, *comparison.unexpected) if row.called and row.called.server]
    if len(calls) < 2 or comparison.golden is None or len({call.server for call in calls}) < 2:
        return []
    names = tool_name_matcher(comparison.golden.vocabulary)
    found = {}
    for tool in comparison.golden.expected_calls:
        servers = {
            fold_name(call.server): call.server for call in calls if call.server and is_call_of(tool, call, names)
        }
        if len(servers) > 1:
            found[tool.name] = NameCollision(tool.name, tuple(sorted(servers.values())))
    return list(found.values())


def _is_known_tool(call: ToolCall, golden: Golden, names: ToolNameMatcher) -> bool:
    """Whether the golden or its vocabulary names the tool of a call."""
    return names.is_declared(call) or any(is_call_of(tool, call, names) for tool in golden.expected_calls)


def _make_near_miss(tool: ExpectedTool, call: ToolCall, *, called: bool) -> NearMiss:
    if call.server and fold_name(call.name) == fold_name(undecorate(tool.name)[0]):
        return NearMiss(tool.name, call.name, called, server=call.server)
    prefix = server_prefix(call.name, tool_name=tool.name) or server_prefix(tool.name, tool_name=call.name)
    return NearMiss(tool.name, call.name, called, prefix)


# --- how much two names differ ----------------------------------------------------------------------------------------

_ORDER, _ENDING, _TYPO, _PREFIX = range(4)


@lru_cache(maxsize=4096)
def _near_names(names: tuple[str, ...], others: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Returns pairs of names that may mean the same tool, the nearest first."""
    near = (
        (distance, at, name, other)
        for name in names
        for at, other in enumerate(others)
        if (distance := name_difference(name, other)) is not None
    )
    return tuple((name, other) for *_, name, other in sorted(near))


def name_difference(one: str, other: str) -> int | None:
    """Returns how much two names differ that may mean the same tool; `None`: they probably do not.

    0: the order of the words, or a version; 1: an ending, such as a plural; 2: a typing mistake; 3: additional words
    before the whole other name. Names are compared word by word, because `get_user` and `set_user` differ in one letter
    and mean the opposite.
    """
    if max(len(one), len(other)) > _MAX_NAME_CHARACTERS:
        return None
    ours, theirs = _significant_words(one), _significant_words(other)
    shorter, longer = sorted((ours, theirs), key=len)
    if len(shorter) == len(longer):
        return _difference_of_words(sorted(ours), sorted(theirs))
    if longer[-len(shorter) :] == shorter:
        return _PREFIX
    # `searchhotels` may be two words without a separator.
    return _difference_of_word("".join(ours), "".join(theirs)) if len(shorter) == 1 else None


def _significant_words(name: str) -> tuple[str, ...]:
    found = name_words(name)
    return tuple(word for word in found if not _VERSION.fullmatch(word)) or found


def _difference_of_words(ours: list[str], theirs: list[str]) -> int | None:
    """Returns the greatest difference between a word and the nearest remaining one."""
    greatest = _ORDER
    for word in ours:
        differences = {at: _difference_of_word(word, other) for at, other in enumerate(theirs)}
        near = {at: found for at, found in differences.items() if found is not None}
        if not near:
            return None
        closest = min(near, key=lambda at: near[at])
        del theirs[closest]
        greatest = max(greatest, near[closest])
    return greatest


def _difference_of_word(one: str, other: str) -> int | None:
    if one == other:
        return _ORDER
    short, long = sorted((one, other), key=len)
    if not short.isalpha() or not long.isalpha() or len(short) < 3:
        return None
    if long in _inflected(short):
        return _ENDING
    max_edits = 1 if len(short) < 9 else 2
    # Typing mistakes rarely affect the first letter, and opposites do: `lock` and `unlock`, `import` and `export`.
    if len(short) < 5 or short[0] != long[0] or len(long) - len(short) > max_edits:
        return None
    # Imported here because rapidfuzz takes longer to load than goldspan's core, and only mistakes need it.
    from rapidfuzz.distance import OSA

    return _TYPO if OSA.distance(short, long, score_cutoff=max_edits) <= max_edits else None


def _inflected(word: str) -> set[str]:
    forms = {word + ending for ending in _ENDINGS}
    if word.endswith("y"):
        forms.add(f"{word[:-1]}ies")
    if word.endswith("e"):
        forms.add(f"{word[:-1]}ing")
    return forms
