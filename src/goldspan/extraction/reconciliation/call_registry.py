"""Registers the calls of a run: executions first, then model requests, then histories."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Container, Iterable, Iterator

from goldspan.content.parts import RequestedCall
from goldspan.content.tools import handoff_target, is_same_name
from goldspan.extraction.model_turns import ModelTurn
from goldspan.extraction.observed_calls import ObservedCall, RequestOrder, raw_value
from goldspan.extraction.reconciliation.call_index import CallIndex, HistoryCursor, UnmatchedCalls, is_same_tool
from goldspan.extraction.span_node import CLOCK_TOLERANCE_NS, UNKNOWN_TIME, SpanNode
from goldspan.model.name_folding import fold_name

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
