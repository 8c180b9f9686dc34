"""Registers the calls of a run: executions first, then model requests, then histories."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Container, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from goldspan.content.parts import RequestedCall
from goldspan.content.tools import fold_name, handoff_target, is_same_name, name_suffixes
from goldspan.conventions.span_facts import RawValue
from goldspan.extraction.model_turns import ModelTurn
from goldspan.extraction.observed_calls import ObservedCall, RequestOrder, argument_fingerprint, raw_value
from goldspan.extraction.span_tree import CLOCK_TOLERANCE_NS, UNKNOWN_TIME, SpanNode

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


_MAX_CANDIDATES = 50
"""How many calls with one id are checked: some models restart their call ids in every turn."""


class CallRegistry:
    """The calls of a run: first the executed ones, then those that are only in messages."""

    def __init__(
        self, calls: list[ObservedCall], nodes: Collection[SpanNode], *, other_call_ids: Container[str] = ()
    ) -> None:
        """Start with the executed calls.

        `other_call_ids` are the ids of calls that other requests made: they are ignored in histories.
        """
        self.calls = calls
        self._nodes = nodes
        self._other_call_ids = other_call_ids
        self._agent_names: frozenset[str] | None = None
        self._turns: list[ModelTurn] = []
        self._turn_starts: list[int] | None = None
        self._first_result_times: dict[str, int] | None = None
        self._unmatched: UnmatchedCalls | None = None
        self._index_by_key: CallIndex | None = None
        self._calls_by_id: dict[str, list[ObservedCall]] = {}
        self._indexed_ids: dict[ObservedCall, str] = {}
        self._requested_counts: dict[str, int] = {}
        for call in calls:
            self._index(call)

    def add_request(self, request: RequestedCall, turn: ModelTurn, position: int) -> ObservedCall | None:
        """Find the call that a model requested, or add it as only requested. Returns `None` for a repeated request."""
        call = self._find_by_id_and_tool(request)
        if call is None:
            repeated = self._find_repeated(request)
            if repeated is not None:
                repeated.merged_count += 1
                return None
            call = self._execution(request, turn, same_arguments=True, exact_name=True)
            if call is not None and self._was_answered_before(call, request, turn):
                call = None
        if call is None:
            call = self._add_requested(request)
            call.agent = turn.node.agent
            call.start_ns = turn.node.span.end_ns
        else:
            call.absorb_request(request)
        call.request_order, call.requesting_turn = RequestOrder(turn.end_time, turn.number, position), turn
        self._index(call)
        return call

    def add_turns(self, turns: Iterable[ModelTurn]) -> None:
        """Add the requests of all turns, then match the remaining requests to executions with other names or arguments.

        Names and arguments differ because hosts add a server's name, and frameworks add defaults, drop keys and write a
        single argument without its name.
        """
        self._turns = list(turns)
        added = [
            (request, turn, self.add_request(request, turn, position))
            for turn in self._turns
            for position, request in enumerate(turn.calls)
        ]
        unmatched = [(request, turn, call) for request, turn, call in added if call is not None and call.node is None]
        if not unmatched or self._unmatched_executions().is_empty:
            return
        merged: set[ObservedCall] = set()
        for find in (
            self._execution_by_id,
            self._execution_by_arguments,
            self._execution_by_name,
            self._execution_by_similar_name,
        ):
            for request, turn, call in unmatched:
                execution = None if call in merged else find(request, turn)
                if execution is not None:
                    execution.absorb(call)
                    execution.request_order, execution.requesting_turn = call.request_order, turn
                    merged.add(call)
                    self._index(execution)
        if merged:
            self.calls = [call for call in self.calls if call not in merged]
            self._calls_by_id = {
                key: [call for call in calls if call not in merged] for key, calls in self._calls_by_id.items()
            }
            self._requested_counts.clear()

    def add_history(self, requests: Iterable[RequestedCall], node: SpanNode) -> None:
        """Match the requests in a history to the known calls.

        A request without a match, usually because the span of the model turn is missing, is added after the preceding
        call.
        """
        requests = list(requests)
        history = HistoryCursor()
        found: dict[int, ObservedCall] = {}
        # Certain matches come first, wherever they are in the history.
        for find in (self._find_by_id, self._find_equal):
            for position, request in enumerate(requests):
                call = None if position in found else find(request, history)
                if call is not None:
                    found[position] = call
                    history.matched.add(call)
        previous: ObservedCall | None = None
        for position, request in enumerate(requests):
            call = found.get(position) or self._find_repeated(request) or self._find_similar(request, history)
            if call is not None:
                call.complete_from_history(request)
            elif request.call_id in self._other_call_ids:
                continue
            else:
                call = self._add_requested(request)
                call.agent = node.agent
                call.start_ns = previous.start_ns if previous is not None else node.span.start_ns
                known = previous.request_order if previous is not None else None
                call.request_order = RequestOrder() if known is None else known
                call.request_order = call.request_order._replace(position=position)
            call.history_position = min(call.history_position, position)
            history.matched.add(call)
            self._index(call)
            previous = call

    def _find_by_id_and_tool(self, request: RequestedCall) -> ObservedCall | None:
        """The first call with a request's id and tool that has no request yet."""
        for call in self._unrequested_with_id(request):
            if call.is_unnamed or is_same_tool(call, request):
                return call
        return None

    def _execution_by_id(self, request: RequestedCall, turn: ModelTurn) -> ObservedCall | None:
        return next((call for call in self._unrequested_with_id(request) if call.node is not None), None)

    def _execution_by_arguments(self, request: RequestedCall, turn: ModelTurn) -> ObservedCall | None:
        return self._execution(request, turn, same_arguments=True)

    def _execution_by_name(self, request: RequestedCall, turn: ModelTurn) -> ObservedCall | None:
        return self._execution(request, turn, exact_name=True)

    def _execution_by_similar_name(self, request: RequestedCall, turn: ModelTurn) -> ObservedCall | None:
        return self._execution(request, turn)

    def _unrequested_with_id(self, request: RequestedCall) -> Iterable[ObservedCall]:
        """The first calls with a request's id that have no request yet."""
        known = self._calls_by_id.get(request.call_id) if request.call_id else None
        if not request.call_id or not known:
            return ()
        if len(known) == 1:
            return known if known[0].request_order is None else ()
        at = self._requested_counts.get(request.call_id, 0)
        while at < len(known) and known[at].request_order is not None:
            at += 1
        self._requested_counts[request.call_id] = at
        return (call for call in known[at : at + _MAX_CANDIDATES] if call.request_order is None)

    def _find_repeated(self, request: RequestedCall) -> ObservedCall | None:
        """The known call that a request repeats; `None` if it is another call with a reused id."""
        known = self._calls_by_id.get(request.call_id or "")
        if not known:
            return None
        same_name = (call for call in known[-_MAX_CANDIDATES:] if is_same_name(call.name, request.name))
        arguments = raw_value(request.arguments)
        return next((c for c in same_name if c.has_same_arguments(arguments) or not c.has_named_arguments), None)

    def _find_by_id(self, request: RequestedCall, history: HistoryCursor) -> ObservedCall | None:
        """The call with an id in a history; of several, the one with the same arguments, each once."""
        known = self._calls_by_id.get(request.call_id or "", [])
        if len(known) < 2:
            return known[0] if known else None
        arguments = raw_value(request.arguments)
        free = [call for call in known[:_MAX_CANDIDATES] if call not in history.matched] or known
        return next((call for call in free if call.has_same_arguments(arguments)), free[0])

    def _execution(
        self, request: RequestedCall, turn: ModelTurn, *, same_arguments: bool = False, exact_name: bool = False
    ) -> ObservedCall | None:
        """The execution that may be a request's, without using the id."""
        executions = self._unmatched_executions()
        if executions.is_empty:
            return None
        arguments, since = raw_value(request.arguments), turn.node.span.start_ns
        return executions.find(request, arguments, since=since, same_arguments=same_arguments, exact_name=exact_name)

    def _unmatched_executions(self) -> UnmatchedCalls:
        if self._unmatched is None:
            self._unmatched = UnmatchedCalls(call for call in self.calls if call.node is not None)
        return self._unmatched

    def _was_answered_before(self, call: ObservedCall, request: RequestedCall, turn: ModelTurn) -> bool:
        """Whether a model received the result of a request before an execution started."""
        if call.start_ns is None or not request.call_id:
            return False
        start = call.start_ns - CLOCK_TOLERANCE_NS
        if self._turn_starts is None:
            self._turn_starts = sorted(turn.node.start for turn in self._turns)
        at = bisect_left(self._turn_starts, turn.end_time)
        if at == len(self._turn_starts) or self._turn_starts[at] >= start:
            return False  # the usual case: no model was called in between
        if self._first_result_times is None:
            self._first_result_times = {}
            for call_id, time_ns in _result_times(self._turns):
                self._first_result_times.setdefault(call_id, time_ns)
        return self._first_result_times.get(request.call_id, UNKNOWN_TIME) < start

    def _find_equal(self, request: RequestedCall, history: HistoryCursor) -> ObservedCall | None:
        """The call with the arguments of a request in a history, with any id."""
        return self._call_index().find_equal(request, raw_value(request.arguments), history)

    def _find_similar(self, request: RequestedCall, history: HistoryCursor) -> ObservedCall | None:
        """The call that a request in a history may be, with any id."""
        return self._call_index().find_similar(request, raw_value(request.arguments), history)

    def _call_index(self) -> CallIndex:
        if self._index_by_key is None:
            self._index_by_key = CallIndex(self.calls)
        return self._index_by_key

    def _add_requested(self, request: RequestedCall) -> ObservedCall:
        target = handoff_target(request.name)
        call = _call_from_request(request)
        if self._agent_names is None:
            agents = (node.facts.name for node in self._nodes if node.role == "agent")
            self._agent_names = frozenset(fold_name(name) for name in agents if name)
        if target is not None and fold_name(target) in self._agent_names:
            call.kind = "handoff"
        elif call.kind == "tool" and fold_name(request.name) in self._agent_names:
            call.kind = "agent"
        self.calls.append(call)
        return call

    def _index(self, call: ObservedCall) -> None:
        if call.call_id and self._indexed_ids.get(call) != call.call_id:
            self._indexed_ids[call] = call.call_id
            self._calls_by_id.setdefault(call.call_id, []).append(call)
        if self._index_by_key is not None:
            self._index_by_key.add(call)


def _result_times(turns: Iterable[ModelTurn]) -> Iterator[tuple[str, int]]:
    """The call ids of the results in model inputs, each with the start time of the turn."""
    for turn in turns:
        for message in turn.input_messages if turn.node.input_may_have_calls else ():
            for result in message.tool_results:
                if result.call_id:
                    yield result.call_id, turn.node.start


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
