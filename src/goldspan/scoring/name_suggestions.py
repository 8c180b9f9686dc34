"""What a person may have meant: names that nearly match, and names that two servers share.

Only told, never applied: nothing here changes a verdict.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from goldspan.content.tools import fold_name, name_words, server_prefix, undecorate
from goldspan.goldens.tool_names import ToolNameMatcher, tool_name_matcher
from goldspan.model import Comparison, ExpectedTool, Golden, ToolCall, ToolDefinition
from goldspan.scoring.matching.slot_plan import is_call_of
from goldspan.scoring.metrics.metric import alternative_calls

_MAX_COMPARED, _MAX_SHOWN = 30, 5
"""So many names are compared with so many, and so many near misses told: enough for people, and bounded."""
_MAX_NAME_CHARACTERS = 100
_VERSION = re.compile(r"v\d+")
_ENDINGS = ("s", "es", "d", "ed", "ing")


class NearMiss(NamedTuple):
    """A missing tool and the name it may go by."""

    expected: str
    name: str
    was_called: bool
    """Whether it was called; else it is a tool that the agent was offered."""
    prefix: str | None = None
    """What one of the names has before the other, where that is all that differs: perhaps its server."""
    server: str | None = None
    """The server of the call, where both have the same name and only their servers differ."""


class NameCollision(NamedTuple):
    """An expected name by which tools of several servers were called."""

    name: str
    servers: tuple[str, ...]


def find_near_misses(seen: Comparison, available: Sequence[ToolDefinition] = ()) -> list[NearMiss]:
    """For each missing tool the call that is probably the same by another name; where there is none, the offered tool.

    Nothing is suggested for a tool that the agent was offered under the expected name, nor a tool that the golden or
    its vocabulary names besides: those are known to be different.
    """
    if seen.golden is None or not seen.missing or not (seen.unexpected or available):
        return []
    missing = {tool.name: tool for tool in islice(_missing_tools(seen), _MAX_COMPARED)}
    called = {row.called.name: row.called for row in seen.unexpected[:_MAX_COMPARED] if row.called}
    offered = {tool.name: ToolCall(tool.name) for tool in available[:_MAX_COMPARED]}
    found: dict[str, NearMiss] = {}
    for calls in (called, offered):
        for name, other in _near_names(tuple(missing), tuple(calls)):
            if name not in found and (near := _near_miss_or_none(missing[name], calls[other], seen.golden, offered)):
                found[name] = near
    return [found[name] for name in missing if name in found][:_MAX_SHOWN]


def _missing_tools(seen: Comparison) -> Iterator[ExpectedTool]:
    """The tools that were expected and not called; of alternatives each."""
    for row in seen.missing:
        if isinstance(row.expected, ExpectedTool):
            yield row.expected
        elif row.expected is not None:
            yield from alternative_calls(row.expected)


def _near_miss_or_none(
    tool: ExpectedTool, call: ToolCall, golden: Golden, offered: Mapping[str, ToolCall]
) -> NearMiss | None:
    """A near miss, unless the two are known to be different tools."""
    names = tool_name_matcher(golden.vocabulary)
    if _is_known_tool(call, golden, names):
        return None
    near = _make_near_miss(tool, call, called=offered.get(call.name) is not call)
    known = any(is_call_of(tool, same, names) for same in offered.values())
    return near if near.server or not known else None


def find_collisions(seen: Comparison) -> list[NameCollision]:
    """The expected names that do not say which of the called tools is meant, because several servers have one."""
    calls = [row.called for row in (*seen.pairs, *seen.unexpected) if row.called and row.called.server]
    if len(calls) < 2 or seen.golden is None or len({call.server for call in calls}) < 2:
        return []
    names = tool_name_matcher(seen.golden.vocabulary)
    found = {}
    for tool in seen.golden.expected_calls:
        servers = {
            fold_name(call.server): call.server for call in calls if call.server and is_call_of(tool, call, names)
        }
        if len(servers) > 1:
            found[tool.name] = NameCollision(tool.name, tuple(sorted(servers.values())))
    return list(found.values())


def _is_known_tool(call: ToolCall, golden: Golden, names: ToolNameMatcher) -> bool:
    """Whether a call is known as one of a tool of its own."""
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
    """Each name with each of the others that may mean the same tool, the nearest first."""
    near = (
        (distance, at, name, other)
        for name in names
        for at, other in enumerate(others)
        if (distance := name_difference(name, other)) is not None
    )
    return tuple((name, other) for *_, name, other in sorted(near))


def name_difference(one: str, other: str) -> int | None:
    """How much two names differ that may mean the same tool; `None` where they hardly can.

    0: the order of the words, or a version; 1: an ending, as of a plural; 2: a slip of the pen; 3: words before the
    whole other name. Names are compared word by word, because `get_user` and `set_user` are alike in all letters but
    one, and do the opposite.
    """
    if max(len(one), len(other)) > _MAX_NAME_CHARACTERS:
        return None
    ours, theirs = _significant_words(one), _significant_words(other)
    shorter, longer = sorted((ours, theirs), key=len)
    if len(shorter) == len(longer):
        return _difference_of_words(sorted(ours), sorted(theirs))
    if longer[-len(shorter) :] == shorter:
        return _PREFIX
    # `searchhotels` may be two words written as one.
    return _difference_of_word("".join(ours), "".join(theirs)) if len(shorter) == 1 else None


def _significant_words(name: str) -> tuple[str, ...]:
    found = name_words(name)
    return tuple(word for word in found if not _VERSION.fullmatch(word)) or found


def _difference_of_words(ours: list[str], theirs: list[str]) -> int | None:
    """The greatest difference of a word and the one left that is most like it."""
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
    slips = 1 if len(short) < 9 else 2
    # Who mistypes a word hardly does so in its first letter, where `lock` and `unlock`, `import` and `export` differ.
    if len(short) < 5 or short[0] != long[0] or len(long) - len(short) > slips:
        return None
    # Only mistakes come here, and loading rapidfuzz takes longer than all of goldspan's core.
    from rapidfuzz.distance import OSA

    return _TYPO if OSA.distance(short, long, score_cutoff=slips) <= slips else None


def _inflected(word: str) -> set[str]:
    forms = {word + ending for ending in _ENDINGS}
    if word.endswith("y"):
        forms.add(f"{word[:-1]}ies")
    if word.endswith("e"):
        forms.add(f"{word[:-1]}ing")
    return forms
