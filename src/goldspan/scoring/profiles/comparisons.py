"""A profile as a metric: a peer's number for a run that was laid beside its golden."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any, TypeGuard

from goldspan.model import COUNTED_KINDS, AnyOf, Comparison, ExpectedTool, Golden, Item, Parallel, Score, ToolCall
from goldspan.model.matchers import MATCHERS
from goldspan.scoring.metrics import Metric
from goldspan.scoring.profiles.profile import Profile, prepare


def metric(peer: str, **options: Any) -> Metric:
    """A peer's number as a metric of that name: `evaluate(run, goldens, metrics=[metric("deepeval")])`.

    It reads the calls that were made and count, under the names that the instrumentation wrote, and the golden's list
    of calls; the golden's own rules are not the peer's. There is no number where the golden says what the peer has no
    word for (alternatives, optional calls, matchers), and where arguments that matter were not captured.

    Raises `ConfigurationError`, as `score` does.
    """
    profile = prepare(peer, **options)
    return Metric(
        profile.peer.name,
        lambda seen: _scored(profile, seen).value,
        threshold=profile.formula.threshold,
        unknown=lambda seen: (_scored(profile, seen).reason or "").rstrip("."),
    )


def _scored(profile: Profile, seen: Comparison) -> Score:
    calls = [row.called for row in seen.rows if row.called is not None and _counts(row.called, row.expected)]
    expected = list(_expected(seen.golden)) if seen.golden else []
    missing = _missing(profile, calls, expected)
    if missing is not None:
        return Score(profile.peer.name, reason=missing)
    return profile.score(calls, [tool for tool in expected if isinstance(tool, ExpectedTool)])


def _counts(call: ToolCall, expected: ExpectedTool | AnyOf | None) -> bool:
    return call.made and (call.kind in COUNTED_KINDS or expected is not None)


def _expected(golden: Golden) -> Iterator[Item]:
    """The golden's calls one by one; what is more than a call comes as it is."""
    for item in golden.tools:
        for tool in item.items if isinstance(item, Parallel) else (item,):
            yield from repeat(tool, tool.times.least if _is_so_many_calls(tool) else 1)


def _is_so_many_calls(item: Item) -> TypeGuard[ExpectedTool]:
    """Whether an item stands for a number of calls, and no choice of any kind."""
    return isinstance(item, ExpectedTool) and 0 < item.times.least == item.times.most and item.times.least <= _MOST


_MOST = 2_000
"""So many calls of one tool are still written out one by one."""


def _missing(profile: Profile, calls: Iterable[ToolCall], expected: Iterable[Item]) -> str | None:
    """Why the peer's number cannot be known, or `None`."""
    name = profile.peer.name
    stating = set()
    for tool in expected:
        if not _is_so_many_calls(tool):
            return f"{name} knows no alternative, optional or repeatable calls, and the golden has some"
        if tool.arguments:
            stating.add(tool.name)
        if profile.engine.looks_inside and _has_matcher(tool):
            return f"{name} knows no matchers, and the golden has some"
    if profile.engine.looks_inside and any(call.arguments is None and call.raw_name in stating for call in calls):
        return "the arguments of the calls were not captured"
    return None


def _has_matcher(tool: ExpectedTool) -> bool:
    waiting, seen = [tool.arguments, tool.result], set[int]()
    while waiting:
        value = waiting.pop()
        if isinstance(value, MATCHERS):
            return True
        if isinstance(value, Mapping | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            waiting.extend(value.values() if isinstance(value, Mapping) else value)
    return False
