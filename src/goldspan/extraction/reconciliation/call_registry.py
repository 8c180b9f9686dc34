"""The calls of a run while its witnesses come in: executions first, then what models asked for, then histories."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from goldspan.content.parts import RequestedCall
from goldspan.content.tools import fold_name, handoff_target, is_same_name, name_suffixes
from goldspan.conventions.span_facts import RawValue
from goldspan.extraction.model_turns import ModelTurn
from goldspan.extraction.observed_calls import ObservedCall, RequestOrder, argument_fingerprint, raw_value
from goldspan.extraction.span_tree import CLOCK_TOLERANCE_NS, UNKNOWN_TIME, SpanNode

_FULL_NAME, _NAME_SUFFIX, _HANDOFF_TARGET = "whole", "end", "to"
"""What of a name a key holds: all of it, what stands behind a separator, the agent that a hand-off goes to."""
_ANY_ARGUMENTS = "any"
"""Instead of a fingerprint, which is never a bare text that a call has for arguments."""
_UNKNOWN_AGENT = "unknown"
"""What OpenLLMetry calls the agent that a hand-off goes to, where it cannot tell."""


def is_same_tool(call: ObservedCall, request: RequestedCall) -> bool:
    """Whether a request names the tool of a call, or the agent that a hand-off goes to."""
    if call.name == request.name:
        return True
    names = set(_name_keys(call))
    return any(not names.isdisjoint(group) for group in _candidate_name_keys(request.name))


class UnmatchedCalls:
    """Executions for which no request is known yet, by time of start."""

    def __init__(self, executions: Iterable[ObservedCall]) -> None:
        self._queues: dict[Hashable, _CallQueue] = {}
        for call in executions:
            if call.request_order is None:
                for name in _name_keys(call):
                    for form in ((_ANY_ARGUMENTS,), (argument_fingerprint(call.arguments),)):
                        self._queues.setdefault((name, bool(call.call_id), form), _CallQueue()).add(call)

    def find(
        self,
        request: RequestedCall,
        asked: RawValue | None,
        *,
        since: int | None,
        same_arguments: bool,
        exact_name: bool,
    ) -> ObservedCall | None:
        """The first one of a request's name that is not excluded by its id and did not start before the model did.

        With `alike`, only one whose arguments are the same, or not known; with `exactly`, only one of that very name.
        """
        forms = (
            [(argument_fingerprint(asked),), (None,)] if same_arguments and asked is not None else [(_ANY_ARGUMENTS,)]
        )
        with_ids = (False,) if request.call_id else (False, True)
        for names in _candidate_name_keys(request.name)[: 1 if exact_name else None]:
            keys = ((name, with_id, form) for name in names for with_id in with_ids for form in forms)
            heads = (self._queues[key].first(since) for key in keys if key in self._queues)
            found = min((call for call in heads if call is not None), key=lambda call: call.sort_key, default=None)
            if found is not None:
                return found
        return None


@dataclass(slots=True)
class _CallQueue:
    """Calls by time of start. Those that were asked for meanwhile are stepped over, and only once."""

    calls: list[ObservedCall] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    following: list[int] = field(default_factory=list)
    """For each call its own place, or a later one before which all are gone."""

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
    """All calls of a run, as a history would know them."""

    def __init__(self, calls: Iterable[ObservedCall]) -> None:
        self._shelves: dict[Hashable, list[ObservedCall]] = {}
        self._keys: dict[ObservedCall, set[Hashable]] = {}
        for call in calls:
            self.add(call)

    def add(self, call: ObservedCall) -> None:
        """Put a call where it can be found, again when more is known of it."""
        keys = set(_index_keys(call))
        for key in keys - self._keys.get(call, set()):
            self._shelves.setdefault(key, []).append(call)
        self._keys[call] = keys

    def find_equal(self, request: RequestedCall, asked: RawValue | None, history: HistoryCursor) -> ObservedCall | None:
        """A call of a request's name that the history has not named yet and that has the same arguments."""
        if asked is None:
            return None
        look = argument_fingerprint(asked)
        return self._first(
            ([(name, (look,)) for name in group] for group in _candidate_name_keys(request.name)), history
        )

    def find_similar(
        self, request: RequestedCall, asked: RawValue | None, history: HistoryCursor
    ) -> ObservedCall | None:
        """A call that the history has not named yet and that may be a request's where none is equal: one of its name
        that has no arguments, else one that was found under the name of its span only, else one of its name that
        nobody is known to have asked for.
        """
        names = _candidate_name_keys(request.name)
        groups: list[list[Hashable]] = [
            [(name, (_ANY_ARGUMENTS if asked is None else None,)) for name in group] for group in names
        ]
        if asked is not None:
            groups.append([(None, (argument_fingerprint(asked),))])
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
        shelf = self._shelves.get(key, [])
        at = history.positions.get(key, 0)
        while at < len(shelf):
            if key not in self._keys[shelf[at]]:
                del shelf[at]  # more is known of it by now, and it stands elsewhere
            elif shelf[at] in history.matched:
                at += 1
            else:
                break
        history.positions[key] = at
        return shelf[at] if at < len(shelf) else None


@dataclass(slots=True)
class HistoryCursor:
    """How far one history has been laid beside what is known."""

    matched: set[ObservedCall] = field(default_factory=set)
    """The calls that it has named."""
    positions: dict[Hashable, int] = field(default_factory=dict)
    """For each shelf, how many of its calls it has named."""


def _name_keys(call: ObservedCall) -> Iterator[Hashable]:
    whole, *ends = name_suffixes(call.name)
    yield _FULL_NAME, whole
    yield from ((_NAME_SUFFIX, end) for end in ends)
    if call.kind == "handoff":
        yield _HANDOFF_TARGET, fold_name(handoff_target(call.name) or call.name)


def _candidate_name_keys(name: str) -> list[list[Hashable]]:
    """Under which names a tool may be found that a model called like this, the surest first."""
    whole, *ends = name_suffixes(name)
    target = handoff_target(name)
    passed_on: list[Hashable] = (
        [] if target is None else [(_HANDOFF_TARGET, fold_name(target)), (_HANDOFF_TARGET, _UNKNOWN_AGENT)]
    )
    return [[(_FULL_NAME, whole)], [(_NAME_SUFFIX, whole), *((_FULL_NAME, end) for end in ends), *passed_on]]


def _index_keys(call: ObservedCall) -> Iterator[Hashable]:
    look = argument_fingerprint(call.arguments)
    for name in _name_keys(call):
        yield name, (_ANY_ARGUMENTS,)
        yield name, (look,)
        if call.node is not None and call.request_order is None and not call.call_id:
            yield name, None
    if call.is_unnamed and call.arguments is not None:
        yield None, (look,)


_MAX_CANDIDATES = 50
"""Calls under one id that are looked at: some models number their calls anew in every turn."""


class CallRegistry:
    """The calls of a run: first those with a span, then those that only a message shows."""

    def __init__(
        self, calls: list[ObservedCall], nodes: Iterable[SpanNode], *, other_call_ids: Container[str] = ()
    ) -> None:
        """Begin with the calls that were executed among some spans.

        `elsewhere` are the ids of calls that other requests are known to have made: what a history says of those is no
        news here.
        """
        self.calls = calls
        self._elsewhere = other_call_ids
        self._agents = {fold_name(node.facts.name) for node in nodes if node.role == "agent" and node.facts.name}
        self._turns: list[ModelTurn] = []
        self._begun: list[int] | None = None
        self._answered: dict[str, int] | None = None
        self._waiting: UnmatchedCalls | None = None
        self._shelves: CallIndex | None = None
        self._of_id: dict[str, list[ObservedCall]] = {}
        self._indexed: dict[ObservedCall, str] = {}
        self._passed: dict[str, int] = {}
        for call in calls:
            self._index(call)

    def add_request(self, request: RequestedCall, turn: ModelTurn, position: int) -> ObservedCall | None:
        """Find the call that a model asked for, or add it as one that was only requested. `None`: it was known."""
        call = self._find_by_id_and_tool(request)
        if call is None:
            repeated = self._find_repeated(request)
            if repeated is not None:
                repeated.merged_count += 1
                return None
            call = self._execution(request, turn, alike=True, exactly=True)
            if call is not None and self._was_answered_before(call, request, turn):
                call = None
        if call is None:
            call = self._add_requested(request)
            call.agent = turn.node.agent
            call.start_ns = turn.node.span.end_ns
        else:
            call.absorb(_call_from_request(request))
        call.request_order, call.requesting_turn = RequestOrder(turn.end_time, turn.number, position), turn
        self._index(call)
        return call

    def add_turns(self, turns: Iterable[ModelTurn]) -> None:
        """Enter what models asked for, turn by turn. Only when all of it is there, executions whose name or arguments
        differ are given to requests: hosts show a server's name, and frameworks add defaults, drop keys, and write a
        single argument bare.
        """
        self._turns = list(turns)
        entered = [
            (request, turn, self.add_request(request, turn, position))
            for turn in self._turns
            for position, request in enumerate(turn.calls)
        ]
        left = [(request, turn, call) for request, turn, call in entered if call is not None and call.node is None]
        gone: set[ObservedCall] = set()
        for find in (
            self._execution_by_id,
            self._execution_by_arguments,
            self._execution_by_name,
            self._execution_by_similar_name,
        ):
            for request, turn, call in left:
                execution = None if call in gone else find(request, turn)
                if execution is not None:
                    execution.absorb(call)
                    execution.request_order, execution.requesting_turn = call.request_order, turn
                    gone.add(call)
                    self._index(execution)
        if gone:
            self.calls = [call for call in self.calls if call not in gone]
            self._of_id = {key: [call for call in calls if call not in gone] for key, calls in self._of_id.items()}
            self._passed.clear()

    def add_history(self, told: Iterable[RequestedCall], node: SpanNode) -> None:
        """Lay what a history repeats beside what is known. What nothing else shows, most often because the span of
        the model's turn is lost, is added after the call before it.
        """
        requests = list(told)
        history = HistoryCursor()
        found: dict[int, ObservedCall] = {}
        # What is sure comes first, wherever it stands: what is left then is for those that are less so.
        for find in (self._find_by_id, self._find_equal):
            for position, request in enumerate(requests):
                call = None if position in found else find(request, history)
                if call is not None:
                    found[position] = call
                    history.matched.add(call)
        before: ObservedCall | None = None
        for position, request in enumerate(requests):
            call = found.get(position) or self._find_repeated(request) or self._find_similar(request, history)
            if call is not None:
                call.complete_from_history(_call_from_request(request))
            elif request.call_id in self._elsewhere:
                continue
            else:
                call = self._add_requested(request)
                call.agent = node.agent
                call.start_ns = before.start_ns if before is not None else node.span.start_ns
                known = before.request_order if before is not None else None
                call.request_order = RequestOrder() if known is None else known
                call.request_order = call.request_order._replace(position=position)
            call.history_position = min(call.history_position, position)
            history.matched.add(call)
            self._index(call)
            before = call

    def _find_by_id_and_tool(self, request: RequestedCall) -> ObservedCall | None:
        """The first call under a request's id that is of its tool and that nobody has asked for yet."""
        return next(
            (call for call in self._unrequested_with_id(request) if call.is_unnamed or is_same_tool(call, request)),
            None,
        )

    def _execution_by_id(self, request: RequestedCall, turn: ModelTurn) -> ObservedCall | None:
        return next((call for call in self._unrequested_with_id(request) if call.node is not None), None)

    def _execution_by_arguments(self, request: RequestedCall, turn: ModelTurn) -> ObservedCall | None:
        return self._execution(request, turn, alike=True)

    def _execution_by_name(self, request: RequestedCall, turn: ModelTurn) -> ObservedCall | None:
        return self._execution(request, turn, exactly=True)

    def _execution_by_similar_name(self, request: RequestedCall, turn: ModelTurn) -> ObservedCall | None:
        return self._execution(request, turn)

    def _unrequested_with_id(self, request: RequestedCall) -> Iterator[ObservedCall]:
        """The first calls under a request's id that nobody has asked for yet."""
        if not request.call_id:
            return iter(())
        known = self._of_id.get(request.call_id, [])
        at = self._passed.get(request.call_id, 0)
        while at < len(known) and known[at].request_order is not None:
            at += 1
        self._passed[request.call_id] = at
        return (call for call in known[at : at + _MAX_CANDIDATES] if call.request_order is None)

    def _find_repeated(self, request: RequestedCall) -> ObservedCall | None:
        """The call that a request under a known id is once more; none where it is another one under a recycled id."""
        known = self._of_id.get(request.call_id or "", [])
        alike = (call for call in known[-_MAX_CANDIDATES:] if is_same_name(call.name, request.name))
        asked = raw_value(request.arguments)
        return next((call for call in alike if call.has_same_arguments(asked) or not call.has_named_arguments), None)

    def _find_by_id(self, request: RequestedCall, history: HistoryCursor) -> ObservedCall | None:
        """The call under an id in a history; where there are several, the one with the arguments, each in its turn."""
        known = self._of_id.get(request.call_id or "", [])
        if len(known) < 2:
            return known[0] if known else None
        asked = raw_value(request.arguments)
        free = [call for call in known[:_MAX_CANDIDATES] if call not in history.matched] or known
        return next((call for call in free if call.has_same_arguments(asked)), free[0])

    def _execution(
        self, request: RequestedCall, turn: ModelTurn, *, alike: bool = False, exactly: bool = False
    ) -> ObservedCall | None:
        """The execution that may be a request's where ids do not tell."""
        if self._waiting is None:
            self._waiting = UnmatchedCalls(call for call in self.calls if call.node is not None)
        asked, since = raw_value(request.arguments), turn.node.span.start_ns
        return self._waiting.find(request, asked, since=since, same_arguments=alike, exact_name=exactly)

    def _was_answered_before(self, call: ObservedCall, request: RequestedCall, turn: ModelTurn) -> bool:
        """Whether a model had the answer to a request before an execution began, which is then a later one's."""
        if call.start_ns is None or not request.call_id:
            return False
        start = call.start_ns - CLOCK_TOLERANCE_NS
        if self._begun is None:
            self._begun = sorted(turn.node.start for turn in self._turns)
        at = bisect_left(self._begun, turn.end_time)
        if at == len(self._begun) or self._begun[at] >= start:
            return False  # as mostly: no model was asked meanwhile
        if self._answered is None:
            self._answered = {}
            for call_id, told in _result_times(self._turns):
                self._answered.setdefault(call_id, told)
        return self._answered.get(request.call_id, UNKNOWN_TIME) < start

    def _find_equal(self, request: RequestedCall, history: HistoryCursor) -> ObservedCall | None:
        """The call that has the arguments of a request in a history, whatever its id."""
        return self._call_index().find_equal(request, raw_value(request.arguments), history)

    def _find_similar(self, request: RequestedCall, history: HistoryCursor) -> ObservedCall | None:
        """The call that a request in a history may be, whatever its id."""
        return self._call_index().find_similar(request, raw_value(request.arguments), history)

    def _call_index(self) -> CallIndex:
        if self._shelves is None:
            self._shelves = CallIndex(self.calls)
        return self._shelves

    def _add_requested(self, request: RequestedCall) -> ObservedCall:
        target = handoff_target(request.name)
        call = _call_from_request(request)
        if target is not None and fold_name(target) in self._agents:
            call.kind = "handoff"
        elif call.kind == "tool" and fold_name(request.name) in self._agents:
            call.kind = "agent"
        self.calls.append(call)
        return call

    def _index(self, call: ObservedCall) -> None:
        if call.call_id and self._indexed.get(call) != call.call_id:
            self._indexed[call] = call.call_id
            self._of_id.setdefault(call.call_id, []).append(call)
        if self._shelves is not None:
            self._shelves.add(call)


def _result_times(turns: Iterable[ModelTurn]) -> Iterator[tuple[str, int]]:
    """The ids of answers that models were given, each with when a model was asked with it."""
    for turn in turns:
        for message in turn.input_messages if turn.node.input_may_have_calls else ():
            for answer in message.tool_results:
                if answer.call_id:
                    yield answer.call_id, turn.node.start


def _call_from_request(request: RequestedCall) -> ObservedCall:
    return ObservedCall(
        request.name,
        kind=request.kind,
        call_id=request.call_id,
        arguments=raw_value(request.arguments),
        result=raw_value(request.result),
        error=request.error,
        server=request.server,
    )
