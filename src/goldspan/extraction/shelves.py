"""Calls by what tells them from others, so that a call is found at once, however many there are.

A name is looked for as it is, then without the server in front of it on either side; arguments are looked for by
their fingerprint.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from goldspan.extraction.calls import Call, fingerprint
from goldspan.extraction.names import fold, handoff_target, tails
from goldspan.extraction.reading import Written
from goldspan.extraction.spoken import RequestedCall
from goldspan.extraction.times import NEVER

_WHOLE, _END, _TO = "whole", "end", "to"
"""What of a name a key holds: all of it, what stands behind a separator, the agent that a hand-off goes to."""
_ANY = "any"
"""Instead of a fingerprint, which is never a bare text that a call has for arguments."""
_NOBODY = "unknown"
"""What OpenLLMetry calls the agent that a hand-off goes to, where it cannot tell."""


def same_tool(call: Call, request: RequestedCall) -> bool:
    """Whether a request names the tool of a call, or the agent that a hand-off goes to."""
    if call.name == request.name:
        return True
    names = set(_names_of(call))
    return any(not names.isdisjoint(group) for group in _wanted(request.name))


class Waiting:
    """Executions for which no request is known yet, by time of start."""

    def __init__(self, executions: Iterable[Call]) -> None:
        self._queues: dict[Hashable, _Queue] = {}
        for call in executions:
            if call.asked_at is None:
                for name in _names_of(call):
                    for form in ((_ANY,), (fingerprint(call.arguments),)):
                        self._queues.setdefault((name, bool(call.call_id), form), _Queue()).add(call)

    def first(
        self, request: RequestedCall, asked: Written | None, *, since: int | None, alike: bool, exactly: bool
    ) -> Call | None:
        """The first one of a request's name that is not excluded by its id and did not start before the model did.

        With `alike`, only one whose arguments are the same, or not known; with `exactly`, only one of that very name.
        """
        forms = [(fingerprint(asked),), (None,)] if alike and asked is not None else [(_ANY,)]
        with_ids = (False,) if request.call_id else (False, True)
        for names in _wanted(request.name)[: 1 if exactly else None]:
            keys = ((name, with_id, form) for name in names for with_id in with_ids for form in forms)
            heads = (self._queues[key].first(since) for key in keys if key in self._queues)
            found = min((call for call in heads if call is not None), key=lambda call: call.place, default=None)
            if found is not None:
                return found
        return None


@dataclass(slots=True)
class _Queue:
    """Calls by time of start. Those that were asked for meanwhile are stepped over, and only once."""

    calls: list[Call] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    following: list[int] = field(default_factory=list)
    """For each call its own place, or a later one before which all are gone."""

    def add(self, call: Call) -> None:
        self.following.append(len(self.calls))
        self.starts.append(NEVER if call.start_ns is None else call.start_ns)
        self.calls.append(call)

    def first(self, since: int | None) -> Call | None:
        begin = at = 0 if since is None else bisect_left(self.starts, since)
        while at < len(self.calls) and self.calls[at].asked_at is not None:
            if self.following[at] == at:
                self.following[at] = at + 1
            at = self.following[at]
        while begin < at:
            self.following[begin], begin = at, self.following[begin]
        return self.calls[at] if at < len(self.calls) else None


class Shelves:
    """All calls of a run, as a history would know them."""

    def __init__(self, calls: Iterable[Call]) -> None:
        self._shelves: dict[Hashable, list[Call]] = {}
        self._keys: dict[Call, set[Hashable]] = {}
        for call in calls:
            self.put(call)

    def put(self, call: Call) -> None:
        """Put a call where it can be found, again when more is known of it."""
        keys = set(_marks_of(call))
        for key in keys - self._keys.get(call, set()):
            self._shelves.setdefault(key, []).append(call)
        self._keys[call] = keys

    def equal(self, request: RequestedCall, asked: Written | None, history: Glance) -> Call | None:
        """A call of a request's name that the history has not named yet and that has the same arguments."""
        if asked is None:
            return None
        look = fingerprint(asked)
        return self._first(([(name, (look,)) for name in group] for group in _wanted(request.name)), history)

    def alike(self, request: RequestedCall, asked: Written | None, history: Glance) -> Call | None:
        """A call that the history has not named yet and that may be a request's where none is equal: one of its name
        that has no arguments, else one that was found under the name of its span only, else one of its name that
        nobody is known to have asked for.
        """
        names = _wanted(request.name)
        groups: list[list[Hashable]] = [
            [(name, (_ANY if asked is None else None,)) for name in group] for group in names
        ]
        if asked is not None:
            groups.append([(None, (fingerprint(asked),))])
        groups += [[(name, None) for name in group] for group in names]
        return self._first(groups, history)

    def _first(self, groups: Iterable[list[Hashable]], history: Glance) -> Call | None:
        for keys in groups:
            found = (self._next(key, history) for key in keys)
            call = next((call for call in found if call is not None), None)
            if call is not None:
                return call
        return None

    def _next(self, key: Hashable, history: Glance) -> Call | None:
        shelf = self._shelves.get(key, [])
        at = history.seen.get(key, 0)
        while at < len(shelf):
            if key not in self._keys[shelf[at]]:
                del shelf[at]  # more is known of it by now, and it stands elsewhere
            elif shelf[at] in history.taken:
                at += 1
            else:
                break
        history.seen[key] = at
        return shelf[at] if at < len(shelf) else None


@dataclass(slots=True)
class Glance:
    """How far one history has been laid beside what is known."""

    taken: set[Call] = field(default_factory=set)
    """The calls that it has named."""
    seen: dict[Hashable, int] = field(default_factory=dict)
    """For each shelf, how many of its calls it has named."""


def _names_of(call: Call) -> Iterator[Hashable]:
    whole, *ends = tails(call.name)
    yield _WHOLE, whole
    yield from ((_END, end) for end in ends)
    if call.kind == "handoff":
        yield _TO, fold(handoff_target(call.name) or call.name)


def _wanted(name: str) -> list[list[Hashable]]:
    """Under which names a tool may be found that a model called like this, the surest first."""
    whole, *ends = tails(name)
    target = handoff_target(name)
    passed_on: list[Hashable] = [] if target is None else [(_TO, fold(target)), (_TO, _NOBODY)]
    return [[(_WHOLE, whole)], [(_END, whole), *((_WHOLE, end) for end in ends), *passed_on]]


def _marks_of(call: Call) -> Iterator[Hashable]:
    look = fingerprint(call.arguments)
    for name in _names_of(call):
        yield name, (_ANY,)
        yield name, (look,)
        if call.node is not None and call.asked_at is None and not call.call_id:
            yield name, None
    if call.nameless and call.arguments is not None:
        yield None, (look,)
