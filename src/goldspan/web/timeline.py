"""The calls of a run on a line of time: when each began and ended, which overlap, and which happen inside others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from goldspan.model.rendering import short
from goldspan.web.entries import brief

WIDTH = 1000
"""The whole line, in units of the drawing."""
_LEAST = 4
"""So wide a bar is at least, or nobody would see it."""
DEEPEST = 6
"""So many levels are told apart."""
MOST_BARS = 150
"""So many calls are drawn."""
_MOST_AGENTS = 50


@dataclass(frozen=True, slots=True)
class Bar:
    """One call."""

    number: int
    """Its place among the calls of the run, from 1."""
    name: str
    kind: str
    agent: str | None
    failed: bool
    requested: bool
    """Only a model's message shows the call."""
    begins: int | None
    """Where it begins on the line, 0 to `WIDTH`; `None`: not known."""
    width: int
    after_ns: int | None
    """How long after the run it began."""
    duration_ns: int | None
    depth: int
    """Inside of how many other calls it happens."""
    beside: tuple[int, ...]
    """The numbers of the calls that it overlaps with, other than those it is inside of or that are inside of it."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """All calls of a run."""

    bars: tuple[Bar, ...]
    left: int
    """So many more calls are not drawn."""
    duration_ns: int | None
    agents: tuple[str, ...]
    """Those that made the calls, in the order of their first."""

    @property
    def timed(self) -> bool:
        """Whether the times of any call are known."""
        return any(bar.begins is not None for bar in self.bars)


def timeline_of(document: Mapping[str, Any]) -> Timeline:
    """The calls of a stored evaluation, in their order."""
    calls: Sequence[Mapping[str, Any]] = document["tool_calls"]
    shown = calls[:MOST_BARS]
    begin, end = _extent(document, calls)
    inside = list(map(list, _inside(shown)))
    bars = (_bar(at, call, begin, end, shown, inside) for at, call in enumerate(shown))
    return Timeline(
        bars=tuple(bars),
        left=len(calls) - len(shown),
        duration_ns=None if begin is None or end is None else end - begin,
        agents=tuple(dict.fromkeys(short(call["agent"]) for call in calls if call.get("agent")))[:_MOST_AGENTS],
    )


def _extent(document: Mapping[str, Any], calls: Sequence[Mapping[str, Any]]) -> tuple[int | None, int | None]:
    """From the first to the last moment that is known."""
    begins = [each.get("start_ns") for each in (document, *calls)]
    ends = [each.get("end_ns") for each in (document, *calls)]
    known = [moment for moment in (*begins, *ends) if moment is not None]
    return (min(known), max(known)) if known else (None, None)


def _inside(calls: Sequence[Mapping[str, Any]]) -> Iterator[Iterator[int]]:
    """For each call the others that it happens inside of: longer ones of other agents around it, or of agents as tools.

    Spans of calls tell no parents here; what is wholly inside the time of an agent's call, and was made by another
    agent than the one that called it, is taken for a part of it.
    """
    for at, call in enumerate(calls):
        yield (
            other
            for other in call.get("concurrent_with", ())
            if other < len(calls) and other != at and _holds(calls[other], call)
        )


def _holds(outer: Mapping[str, Any], inner: Mapping[str, Any]) -> bool:
    begin, end, first, last = (each.get(name) for each in (outer, inner) for name in ("start_ns", "end_ns"))
    if begin is None or end is None or first is None or last is None:
        return False
    within = begin <= first and last <= end and (end - begin) > (last - first)
    return within and (outer.get("kind") in ("agent", "handoff") or inner.get("agent") != outer.get("agent"))


def _bar(
    at: int,
    call: Mapping[str, Any],
    begin: int | None,
    end: int | None,
    calls: Sequence[Mapping[str, Any]],
    inside: Sequence[Sequence[int]],
) -> Bar:
    first, last = call.get("start_ns"), call.get("end_ns")
    place, width = None, 0
    if first is not None and begin is not None and end is not None:
        whole = max(1, end - begin)
        width = max(_LEAST, ((last if last is not None else first) - first) * WIDTH // whole)
        place = min((first - begin) * WIDTH // whole, WIDTH - width)
    beside = (
        other
        for other in call.get("concurrent_with", ())
        if other < len(calls) and other not in inside[at] and at not in inside[other]
    )
    return Bar(
        number=at + 1,
        name=short(call["name"]),
        kind=call.get("kind", "tool"),
        agent=brief(call.get("agent")),
        failed=call.get("error") is not None,
        requested=call.get("evidence") == "requested",
        begins=place,
        width=width,
        after_ns=None if first is None or begin is None else first - begin,
        duration_ns=None if first is None or last is None else last - first,
        depth=min(len(inside[at]), DEEPEST),
        beside=tuple(other + 1 for other in beside),
    )
