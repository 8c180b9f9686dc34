"""How the agent went about it: failures, repeats, tools it does not have, tools it must not use, calls it may make."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations, starmap

from goldspan.extraction.names import fold
from goldspan.goldens.naming import Keys, naming
from goldspan.model import NO_VOCABULARY, Comparison, ExpectedTool, ToolCall, Vocabulary
from goldspan.scoring.agreement.multisets import equality_keys, surely_differ
from goldspan.scoring.metrics.metric import Part, brief


def tool_success(seen: Comparison) -> float | None:
    """Of the calls that were made and are known to have failed or not, the share that did not. Needs no golden."""
    known = [call.succeeded for call in seen.calls if call.succeeded is not None]
    return sum(known) / len(known) if known else None


def bounds_of_success(seen: Comparison) -> tuple[float, float]:
    """The share of calls that did not fail if all of which it is not known failed, and if none of them did."""
    went = [call.succeeded for call in seen.calls]
    return (went.count(True) / len(went), 1 - went.count(False) / len(went)) if went else (1.0, 1.0)


def redundant_calls(seen: Comparison) -> float | None:
    """Of the calls that were made, the share that repeats no earlier successful one. Needs no golden.

    A repeat has the same tool and the same arguments. To try again what failed is no repeat; of what may have failed
    it is not known.
    """
    calls = seen.calls
    if not calls:
        return None
    if len({fold(call.name) for call in calls}) == len(calls):  # as in most runs
        return 1.0
    repeated = _repeats(calls)
    return None if repeated is None else 1 - len(repeated) / len(calls)


def unknown_tools(seen: Comparison) -> float | None:
    """Of the calls that were made, the share whose tool the agent was offered, or the golden's file declares.

    Needs no golden. What the model's provider runs is no tool of the agent's and does not count.
    """
    if not seen.run.available_tools:
        return None
    calls = _of_the_agent(seen)
    return 1 - len(_unknown(seen, calls)) / len(calls) if calls else None


def forbidden_tools(seen: Comparison) -> float | None:
    """1 if no forbidden tool was called, else 0."""
    forbids = seen.golden is not None and seen.golden.forbid
    return float(not seen.forbidden) if forbids else None


def call_budget(seen: Comparison) -> float | None:
    """1 if no more calls were made than the golden allows, else the share that it allows: 8 of 10 calls are 0.8."""
    allowed = seen.golden.max_calls if seen.golden else None
    if allowed is None:
        return None
    return 1.0 if len(seen.calls) <= allowed else allowed / len(seen.calls)


def has_calls(seen: Comparison) -> bool:
    """Whether any call was made."""
    return bool(seen.calls)


def why_no_success(seen: Comparison) -> str:
    """Why it cannot be told how many calls failed, or whether so few did."""
    unknown = [call for call in seen.calls if call.succeeded is None]
    return f"whether {brief([call.name for call in unknown])} failed is not known" if unknown else "no tool was called"


def why_no_repeats(seen: Comparison) -> str:
    """Why repeats cannot be counted."""
    if not seen.calls:
        return "no tool was called"
    ended = [replace(call, evidence="executed", error_guess=None) for call in seen.calls]
    if _repeats(ended) is None:
        return "the arguments of calls of one tool were not captured"
    return "whether a call that was made again had failed is not known"


def why_unknown_is_unknown(seen: Comparison) -> str:
    """Why it cannot be told which tools the agent has."""
    return "no tool was called" if seen.run.available_tools else "the tools the agent was offered were not captured"


# --- accounts ---------------------------------------------------------------------------------------------------------


def account_of_success(seen: Comparison) -> Iterator[Part]:
    """Which calls succeeded and which failed."""
    yield Part("succeeded", [call for call in seen.calls if call.succeeded])
    yield Part("failed", [call for call in seen.calls if call.succeeded is False], fault=True)
    if unknown := [call for call in seen.calls if call.succeeded is None]:
        yield Part("not known to have succeeded or failed", unknown)


def account_of_repeats(seen: Comparison) -> Iterator[Part]:
    """Which calls repeat an earlier one."""
    yield Part("called", seen.calls)
    yield Part("called again with the same arguments", _repeats(seen.calls) or (), fault=True)


def account_of_unknown(seen: Comparison) -> Iterator[Part]:
    """Which calls are of a tool that the agent has not."""
    calls = _of_the_agent(seen)
    yield Part("called", calls)
    yield Part("called but not among the agent's tools", _unknown(seen, calls), fault=True)


def account_of_forbidden(seen: Comparison) -> Iterator[Part]:
    """Which calls are forbidden."""
    yield Part("called but forbidden", seen.forbidden, fault=True)


def account_of_budget(seen: Comparison) -> Iterator[Part]:
    """How many calls were made, and how many are allowed."""
    allowed = seen.golden.max_calls if seen.golden else None
    yield Part(f"of {allowed} allowed calls were made", [str(len(seen.calls))], fault=True)


# --- helpers ----------------------------------------------------------------------------------------------------------


def _repeats(calls: Sequence[ToolCall]) -> list[ToolCall] | None:
    """The calls that repeat an earlier successful one; `None` where it is not known, because arguments that would tell
    were not captured or the earlier one may have failed."""
    of_tool: dict[str, list[ToolCall]] = {}
    for call in calls:
        of_tool.setdefault(fold(call.name), []).append(call)
    repeated: list[ToolCall] = []
    for alike in of_tool.values():
        again = _made_again(alike) if len(alike) > 1 else []
        if again is None:
            return None
        repeated += again
    return repeated


def _made_again(calls: Sequence[ToolCall]) -> list[ToolCall] | None:
    """The same of the calls of one tool."""
    if len(calls) <= _FEW and all(starmap(surely_differ, combinations([call.arguments for call in calls], 2))):
        return []  # as in most runs
    before: set[Hashable] = set()
    perhaps: set[Hashable] = set()
    again: list[ToolCall] = []
    for call, arguments in zip(calls, equality_keys([call.arguments for call in calls]), strict=True):
        if (before or perhaps) and (call.arguments is None or None in before or None in perhaps):
            return None
        # Arguments without a key, such as values of a program's own types, are like no others.
        key = None if call.arguments is None else (call.server, id(call) if arguments is None else arguments)
        if key in before:
            again.append(call)
        elif key in perhaps:
            return None
        elif call.succeeded is not False:
            (before if call.succeeded else perhaps).add(key)
    return again


_FEW = 6
"""So many calls are looked at two by two: fifteen pairs take half the time that the keys of six calls do."""


def _of_the_agent(seen: Comparison) -> list[ToolCall]:
    return [call for call in seen.calls if call.kind == "tool"]


def _unknown(seen: Comparison, calls: Sequence[ToolCall]) -> list[ToolCall]:
    vocabulary = seen.golden.vocabulary if seen.golden else NO_VOCABULARY
    known = _keys(tuple(tool.name for tool in seen.run.available_tools), vocabulary)
    read = naming(vocabulary)
    return [call for call in calls if known.isdisjoint(read.called(call)) and not read.declares(call)]


@lru_cache(maxsize=64)
def _keys(offered: tuple[str, ...], vocabulary: Vocabulary) -> Keys:
    """What the names of these tools have in common with those of their calls."""
    read = naming(vocabulary)
    return frozenset().union(*(read.wanted(ExpectedTool(name)) for name in offered))
