"""Finds the calls of a run by name, id and arguments, for the registry."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from goldspan.content.parts import RequestedCall
from goldspan.content.tools import handoff_target, name_suffixes
from goldspan.conventions.span_facts import RawValue
from goldspan.extraction.observed_calls import ObservedCall, argument_fingerprint
from goldspan.extraction.span_node import UNKNOWN_TIME
from goldspan.model.name_folding import fold_name

_FULL_NAME, _NAME_SUFFIX, _HANDOFF_TARGET = "whole", "end", "to"
"""What a key holds: the full name, the part after a separator, or the target agent of a hand-off."""
_ANY_ARGUMENTS = "any"
"""Replaces a fingerprint: no fingerprint is equal to it."""
_UNKNOWN_AGENT = "unknown"
"""The name that OpenLLMetry writes for an unknown target agent of a hand-off."""


def is_same_tool(call: ObservedCall, request: RequestedCall) -> bool:
    """Returns whether a request names the tool of a call, or the target agent of a hand-off."""
    if call.name == request.name:
        return True
    names = set(_name_keys(call))
    return any(not names.isdisjoint(group) for group in _candidate_name_keys(request.name))


class UnmatchedCalls:
    """Executions without a known request, by start time."""

    def __init__(self, executions: Iterable[ObservedCall]) -> None:
        self._executions = [call for call in executions if call.request_order is None]
        self._first_unmatched = 0
        self._queues: dict[Hashable, dict[Hashable, _CallQueue]] | None = None
        """By name and by whether the executions have an id, then by arguments. Built for the first request."""

    @property
    def is_empty(self) -> bool:
        """Whether every execution has a request by now."""
        executions, at = self._executions, self._first_unmatched
        while at < len(executions) and executions[at].request_order is not None:
            at += 1
        self._first_unmatched = at
        return at == len(executions)

    def find(
        self,
        request: RequestedCall,
        arguments: RawValue | None,
        *,
        since: int | None,
        same_arguments: bool,
        exact_name: bool,
    ) -> ObservedCall | None:
        """Returns the first execution with a request's name and a compatible id that started after `since`.

        With `same_arguments`, the arguments must be equal or unknown; with `exact_name`, the full name must be equal.
        """
        if self._queues is None:
            self._queues = self._index_executions()
        forms: list[Hashable] | None = None
        with_ids = (False,) if request.call_id else (False, True)
        for names in _candidate_name_keys(request.name)[: 1 if exact_name else None]:
            places = [(name, with_id) for name in names for with_id in with_ids]
            groups = [self._queues[place] for place in places if place in self._queues]
            if not groups:
                continue  # the usual case; the arguments need not be parsed
            if forms is None:
                is_same = same_arguments and arguments is not None
                forms = [argument_fingerprint(arguments), None] if is_same else [_ANY_ARGUMENTS]
            heads = (queues[form].first(since) for queues in groups for form in forms if form in queues)
            found = min((call for call in heads if call is not None), key=lambda call: call.sort_key, default=None)
            if found is not None:
                return found
        return None

    def _index_executions(self) -> dict[Hashable, dict[Hashable, _CallQueue]]:
        index: dict[Hashable, dict[Hashable, _CallQueue]] = {}
        for call in self._executions:
            if call.request_order is None:
                forms = (_ANY_ARGUMENTS, argument_fingerprint(call.arguments))
                for name in _name_keys(call):
                    queues = index.setdefault((name, bool(call.call_id)), {})
                    for form in forms:
                        queues.setdefault(form, _CallQueue()).add(call)
        return index


@dataclass(slots=True)
class _CallQueue:
    """Calls by start time. Calls that have been matched to a request are skipped, and only once."""

    calls: list[ObservedCall] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    following: list[int] = field(default_factory=list)
    """For each call its own position, or a later one before which all calls are matched."""

    def add(self, call: ObservedCall) -> None:
        self.following.append(len(self.calls))
        self.starts.append(UNKNOWN_TIME if call.start_ns is None else call.start_ns)
        self.calls.append(call)

    def first(self, since: int | None) -> ObservedCall | None:
        begin = at = 0 if since is None else bisect_left(self.starts, since)
        while at < len(self.calls) and self.calls[at].request_order is not None:
            if self.following[at] == at:
                self.following[at] = at + 1
            at = self.following[at]
        while begin < at:
            self.following[begin], begin = at, self.following[begin]
        return self.calls[at] if at < len(self.calls) else None


class CallIndex:
    """All calls of a run by the names and arguments that a history may contain."""

    def __init__(self, calls: Iterable[ObservedCall]) -> None:
        self._index_by_key: dict[Hashable, list[ObservedCall]] = {}
        self._keys: dict[ObservedCall, set[Hashable]] = {}
        for call in calls:
            self.add(call)

    def add(self, call: ObservedCall) -> None:
        """Index a call; called again when more facts about the call are known."""
        keys = set(_index_keys(call))
        for key in keys - self._keys.get(call, set()):
            self._index_by_key.setdefault(key, []).append(call)
        self._keys[call] = keys

    def find_equal(
        self, request: RequestedCall, arguments: RawValue | None, history: HistoryCursor
    ) -> ObservedCall | None:
        """Returns a call with a request's name and arguments that the history has not matched yet."""
        if arguments is None:
            return None
        fingerprint = argument_fingerprint(arguments)
        return self._first(
            ([(name, (fingerprint,)) for name in group] for group in _candidate_name_keys(request.name)), history
        )

    def find_similar(
        self, request: RequestedCall, arguments: RawValue | None, history: HistoryCursor
    ) -> ObservedCall | None:
        """Returns a call that may be a request's, and that the history has not matched yet, if none is equal.

        A call with the name and without arguments takes precedence, then a call that is known by its span name only,
        then a call with the name and without a known request.
        """
        names = _candidate_name_keys(request.name)
        groups: list[list[Hashable]] = [
            [(name, (_ANY_ARGUMENTS if arguments is None else None,)) for name in group] for group in names
        ]
        if arguments is not None:
            groups.append([(None, (argument_fingerprint(arguments),))])
        groups += [[(name, None) for name in group] for group in names]
        return self._first(groups, history)

    def _first(self, groups: Iterable[list[Hashable]], history: HistoryCursor) -> ObservedCall | None:
        for keys in groups:
            found = (self._next(key, history) for key in keys)
            call = next((call for call in found if call is not None), None)
            if call is not None:
                return call
        return None

    def _next(self, key: Hashable, history: HistoryCursor) -> ObservedCall | None:
        calls = self._index_by_key.get(key, [])
        at = history.positions.get(key, 0)
        while at < len(calls):
            if key not in self._keys[calls[at]]:
                del calls[at]  # more facts are known, and the call is indexed under another key
            elif calls[at] in history.matched:
                at += 1
            else:
                break
        history.positions[key] = at
        return calls[at] if at < len(calls) else None


@dataclass(slots=True)
class HistoryCursor:
    """The progress of matching one history with the known calls."""

    matched: set[ObservedCall] = field(default_factory=set)
    """The calls that the history has matched."""
    positions: dict[Hashable, int] = field(default_factory=dict)
    """For each key, how many of its calls the history has matched."""


def _name_keys(call: ObservedCall) -> Iterator[Hashable]:
    whole, *ends = name_suffixes(call.name)
    yield _FULL_NAME, whole
    yield from ((_NAME_SUFFIX, end) for end in ends)
    if call.kind == "handoff":
        yield _HANDOFF_TARGET, fold_name(handoff_target(call.name) or call.name)


@lru_cache(maxsize=16384)
def _candidate_name_keys(name: str) -> tuple[tuple[Hashable, ...], ...]:
    """The name keys under which a requested tool may be indexed, the most certain first."""
    whole, *ends = name_suffixes(name)
    target = handoff_target(name)
    handoff_keys: tuple[Hashable, ...] = (
        () if target is None else ((_HANDOFF_TARGET, fold_name(target)), (_HANDOFF_TARGET, _UNKNOWN_AGENT))
    )
    return ((_FULL_NAME, whole),), ((_NAME_SUFFIX, whole), *((_FULL_NAME, end) for end in ends), *handoff_keys)


def _index_keys(call: ObservedCall) -> Iterator[Hashable]:
    fingerprint = argument_fingerprint(call.arguments)
    for name in _name_keys(call):
        yield name, (_ANY_ARGUMENTS,)
        yield name, (fingerprint,)
        if call.node is not None and call.request_order is None and not call.call_id:
            yield name, None
    if call.is_unnamed and call.arguments is not None:
        yield None, (fingerprint,)
