"""Finds the model turn that requested a tool span.

The call id is the best evidence, then the tool's name and arguments. The turn must have ended before the tool started.
A requested call matches one execution, as long as there are other requests to choose from.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from goldspan.content.parts import RequestedCall
from goldspan.content.tools import name_suffixes
from goldspan.conventions.span_facts import RawValue
from goldspan.extraction.model_turns import ModelTurn, calls_since_user
from goldspan.extraction.observed_calls import ObservedCall, call_from_span, raw_value
from goldspan.extraction.span_node import CLOCK_TOLERANCE_NS, SpanNode

_FULL_NAME, _NAME_SUFFIX = True, False
"""Whether a key holds the full tool name or a suffix of it."""
_MAX_CANDIDATES = 50
"""How many requests with one key are tried, the nearest in time first."""


@dataclass(slots=True, eq=False)
class _IndexedRequest:
    """A requested call, and the model turn that contains it, with the time from which it is known."""

    turn: ModelTurn
    time_ns: int
    call_id: str | None
    arguments: RawValue | None
    is_matched: bool = False

    def is_compatible(self, call: ObservedCall) -> bool:
        """Whether the call ids are equal, or one of them is missing."""
        return not (self.call_id and call.call_id) or self.call_id == call.call_id

    def is_certain(self, call: ObservedCall) -> bool:
        """Whether an execution has the same call id or the same arguments."""
        return (self.call_id is not None and self.call_id == call.call_id) or call.has_same_arguments(self.arguments)


@dataclass(slots=True)
class RequestedCallIndex:
    """An index of the calls that model turns contain, searched by the spans that executed them."""

    _requests_by_key: dict[Hashable, list[_IndexedRequest]] = field(default_factory=dict)

    @classmethod
    def from_turns(cls, turns: Iterable[ModelTurn]) -> RequestedCallIndex:
        """Indexes the calls that turns request, by the time when the turn ended."""
        index = cls()
        for turn in sorted(turns, key=lambda turn: turn.end_time):
            for call in turn.calls:
                index._add(turn, turn.end_time, call)
        return index

    @classmethod
    def from_histories(cls, turns: Iterable[ModelTurn]) -> RequestedCallIndex:
        """Indexes the calls of the current request that turns repeat in their history, by the start of the turn.

        Calls that one of the turns requests, by their ids, are left out.
        """
        index = cls()
        turns = list(turns)
        requested_ids = {call.call_id for turn in turns for call in turn.calls if call.call_id}
        for turn in turns:
            start = turn.node.span.start_ns
            if start is not None:
                for call in calls_since_user(turn.input_messages):
                    if call.call_id not in requested_ids:
                        index._add(turn, start, call)
        return index

    def match_tools(
        self, tools: Iterable[SpanNode], *, allow_retries: bool = True, require_certain: bool = False
    ) -> dict[SpanNode, ModelTurn]:
        """Maps tool spans to the turn that requested them: of the best matches, the last one before the tool.

        With `allow_retries`, an unmatched tool counts as a further attempt at a call that is already matched. With
        `require_certain`, the call id or the arguments must be equal.
        """
        found: dict[SpanNode, ModelTurn] = {}
        calls = sorted(map(call_from_span, tools), key=lambda call: call.sort_key)
        # Calls with an id are matched first: the remaining requests are for calls without one.
        for by_id, free in ((True, True), (False, True), *(((True, False), (False, False)) if allow_retries else ())):
            for call in calls:
                if call.node is not None and call.node not in found and bool(call.call_id) == by_id:
                    turn = self._match_earlier(call, free=free, require_certain=require_certain)
                    if turn is not None:
                        found[call.node] = turn
        return found

    def match_later_turn(self, tool: SpanNode) -> ModelTurn | None:
        """Returns the first turn after a tool that has the tool's call, by id or arguments, in its history.

        This attributes the call if the turn that requested it is missing.
        """
        call = call_from_span(tool)
        earliest = (tool.span.end_ns or 0) - CLOCK_TOLERANCE_NS
        for requests in self._candidates(call):
            begin = bisect_left(requests, earliest, key=_time_of)
            for request in requests[begin : begin + _MAX_CANDIDATES]:
                if not request.is_matched and request.is_compatible(call) and request.is_certain(call):
                    request.is_matched = True
                    return request.turn
        return None

    def _match_earlier(self, call: ObservedCall, *, free: bool, require_certain: bool) -> ModelTurn | None:
        latest = (call.start_ns or 0) + CLOCK_TOLERANCE_NS
        for requests in self._candidates(call):
            until = bisect_right(requests, latest, key=_time_of)
            nearest = reversed(requests[max(0, until - _MAX_CANDIDATES) : until])
            compatible = [r for r in nearest if r.is_compatible(call) and r.is_matched != free]
            best = next((request for request in compatible if call.has_same_arguments(request.arguments)), None)
            if best is None:
                best = next((r for r in compatible if not require_certain or r.is_certain(call)), None)
            if best is not None:
                best.is_matched = True
                return best.turn
        return None

    def _add(self, turn: ModelTurn, time_ns: int, call: RequestedCall) -> None:
        request = _IndexedRequest(turn, time_ns, call.call_id, raw_value(call.arguments))
        full_name, *suffixes = name_suffixes(call.name)
        keys: list[Hashable] = [(_FULL_NAME, full_name), *((_NAME_SUFFIX, suffix) for suffix in suffixes)]
        if call.call_id:
            keys.append(call.call_id)
        for key in keys:
            self._requests_by_key.setdefault(key, []).append(request)

    def _candidates(self, call: ObservedCall) -> Iterable[list[_IndexedRequest]]:
        """The requests with the call's id; then with its name; then those where one name is a suffix of the other."""
        keys: list[Hashable] = [call.call_id] if call.call_id else []
        full_name, *suffixes = name_suffixes(call.name)
        keys += [(_FULL_NAME, full_name), (_NAME_SUFFIX, full_name), *((_FULL_NAME, suffix) for suffix in suffixes)]
        return (self._requests_by_key[key] for key in keys if key in self._requests_by_key)


def _time_of(request: _IndexedRequest) -> int:
    return request.time_ns
