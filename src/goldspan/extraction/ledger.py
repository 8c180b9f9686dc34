"""The calls of a run while its witnesses come in: executions first, then what models asked for, then histories."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator

from goldspan.extraction.calls import Asking, Call, written
from goldspan.extraction.dialogues import Dialogue
from goldspan.extraction.names import fold, handoff_target, same_name
from goldspan.extraction.shelves import Glance, Shelves, Waiting, same_tool
from goldspan.extraction.spoken import RequestedCall
from goldspan.extraction.times import JITTER_NS, NEVER
from goldspan.extraction.tree import Node

_CANDIDATES = 50
"""Calls under one id that are looked at: some models number their calls anew in every turn."""


class Ledger:
    """The calls of a run: first those with a span, then those that only a message shows."""

    def __init__(self, calls: list[Call], nodes: Iterable[Node], *, elsewhere: Container[str] = ()) -> None:
        """Begin with the calls that were executed among some spans.

        `elsewhere` are the ids of calls that other requests are known to have made: what a history says of those is no
        news here.
        """
        self.calls = calls
        self._elsewhere = elsewhere
        self._agents = {fold(node.reading.name) for node in nodes if node.role == "agent" and node.reading.name}
        self._turns: list[Dialogue] = []
        self._begun: list[int] | None = None
        self._answered: dict[str, int] | None = None
        self._waiting: Waiting | None = None
        self._shelves: Shelves | None = None
        self._of_id: dict[str, list[Call]] = {}
        self._indexed: dict[Call, str] = {}
        self._passed: dict[str, int] = {}
        for call in calls:
            self._index(call)

    def enter(self, request: RequestedCall, turn: Dialogue, position: int) -> Call | None:
        """Find the call that a model asked for, or add it as one that was only requested. `None`: it was known."""
        call = self._certain(request)
        if call is None:
            repeated = self._repeated(request)
            if repeated is not None:
                repeated.merged += 1
                return None
            call = self._execution(request, turn, alike=True, exactly=True)
            if call is not None and self._was_answered_before(call, request, turn):
                call = None
        if call is None:
            call = self._requested(request)
            call.agent = turn.node.agent
            call.start_ns = turn.node.span.end_ns
        else:
            call.absorb(_asked_for(request))
        call.asked_at, call.asker = Asking(turn.ended, turn.number, position), turn
        self._index(call)
        return call

    def enter_all(self, turns: Iterable[Dialogue]) -> None:
        """Enter what models asked for, turn by turn. Only when all of it is there, executions whose name or arguments
        differ are given to requests: hosts show a server's name, and frameworks add defaults, drop keys, and write a
        single argument bare.
        """
        self._turns = list(turns)
        entered = [
            (request, turn, self.enter(request, turn, position))
            for turn in self._turns
            for position, request in enumerate(turn.calls)
        ]
        left = [(request, turn, call) for request, turn, call in entered if call is not None and call.node is None]
        gone: set[Call] = set()
        for find in (self._of_same_id, self._of_same_arguments, self._of_same_name, self._of_like_name):
            for request, turn, call in left:
                execution = None if call in gone else find(request, turn)
                if execution is not None:
                    execution.absorb(call)
                    execution.asked_at, execution.asker = call.asked_at, turn
                    gone.add(call)
                    self._index(execution)
        if gone:
            self.calls = [call for call in self.calls if call not in gone]
            self._of_id = {key: [call for call in calls if call not in gone] for key, calls in self._of_id.items()}
            self._passed.clear()

    def confirm(self, told: Iterable[RequestedCall], node: Node) -> None:
        """Lay what a history repeats beside what is known. What nothing else shows, most often because the span of
        the model's turn is lost, is added after the call before it.
        """
        requests = list(told)
        history = Glance()
        found: dict[int, Call] = {}
        # What is sure comes first, wherever it stands: what is left then is for those that are less so.
        for find in (self._known_by_id, self._equal):
            for position, request in enumerate(requests):
                call = None if position in found else find(request, history)
                if call is not None:
                    found[position] = call
                    history.taken.add(call)
        before: Call | None = None
        for position, request in enumerate(requests):
            call = found.get(position) or self._repeated(request) or self._alike(request, history)
            if call is not None:
                call.confirm(_asked_for(request))
            elif request.call_id in self._elsewhere:
                continue
            else:
                call = self._requested(request)
                call.agent = node.agent
                call.start_ns = before.start_ns if before is not None else node.span.start_ns
                known = before.asked_at if before is not None else None
                call.asked_at = Asking() if known is None else known
                call.asked_at = call.asked_at._replace(position=position)
            call.recalled = min(call.recalled, position)
            history.taken.add(call)
            self._index(call)
            before = call

    def _certain(self, request: RequestedCall) -> Call | None:
        """The first call under a request's id that is of its tool and that nobody has asked for yet."""
        return next((call for call in self._under_id(request) if call.nameless or same_tool(call, request)), None)

    def _of_same_id(self, request: RequestedCall, turn: Dialogue) -> Call | None:
        return next((call for call in self._under_id(request) if call.node is not None), None)

    def _of_same_arguments(self, request: RequestedCall, turn: Dialogue) -> Call | None:
        return self._execution(request, turn, alike=True)

    def _of_same_name(self, request: RequestedCall, turn: Dialogue) -> Call | None:
        return self._execution(request, turn, exactly=True)

    def _of_like_name(self, request: RequestedCall, turn: Dialogue) -> Call | None:
        return self._execution(request, turn)

    def _under_id(self, request: RequestedCall) -> Iterator[Call]:
        """The first calls under a request's id that nobody has asked for yet."""
        if not request.call_id:
            return iter(())
        known = self._of_id.get(request.call_id, [])
        at = self._passed.get(request.call_id, 0)
        while at < len(known) and known[at].asked_at is not None:
            at += 1
        self._passed[request.call_id] = at
        return (call for call in known[at : at + _CANDIDATES] if call.asked_at is None)

    def _repeated(self, request: RequestedCall) -> Call | None:
        """The call that a request under a known id is once more; none where it is another one under a recycled id."""
        known = self._of_id.get(request.call_id or "", [])
        alike = (call for call in known[-_CANDIDATES:] if same_name(call.name, request.name))
        asked = written(request.arguments)
        return next((call for call in alike if call.same_values(asked) or not call.named), None)

    def _known_by_id(self, request: RequestedCall, history: Glance) -> Call | None:
        """The call under an id in a history; where there are several, the one with the arguments, each in its turn."""
        known = self._of_id.get(request.call_id or "", [])
        if len(known) < 2:
            return known[0] if known else None
        asked = written(request.arguments)
        free = [call for call in known[:_CANDIDATES] if call not in history.taken] or known
        return next((call for call in free if call.same_values(asked)), free[0])

    def _execution(
        self, request: RequestedCall, turn: Dialogue, *, alike: bool = False, exactly: bool = False
    ) -> Call | None:
        """The execution that may be a request's where ids do not tell."""
        if self._waiting is None:
            self._waiting = Waiting(call for call in self.calls if call.node is not None)
        asked, since = written(request.arguments), turn.node.span.start_ns
        return self._waiting.first(request, asked, since=since, alike=alike, exactly=exactly)

    def _was_answered_before(self, call: Call, request: RequestedCall, turn: Dialogue) -> bool:
        """Whether a model had the answer to a request before an execution began, which is then a later one's."""
        if call.start_ns is None or not request.call_id:
            return False
        start = call.start_ns - JITTER_NS
        if self._begun is None:
            self._begun = sorted(turn.node.start for turn in self._turns)
        at = bisect_left(self._begun, turn.ended)
        if at == len(self._begun) or self._begun[at] >= start:
            return False  # as mostly: no model was asked meanwhile
        if self._answered is None:
            self._answered = {}
            for call_id, told in _answers(self._turns):
                self._answered.setdefault(call_id, told)
        return self._answered.get(request.call_id, NEVER) < start

    def _equal(self, request: RequestedCall, history: Glance) -> Call | None:
        """The call that has the arguments of a request in a history, whatever its id."""
        return self._on_shelves().equal(request, written(request.arguments), history)

    def _alike(self, request: RequestedCall, history: Glance) -> Call | None:
        """The call that a request in a history may be, whatever its id."""
        return self._on_shelves().alike(request, written(request.arguments), history)

    def _on_shelves(self) -> Shelves:
        if self._shelves is None:
            self._shelves = Shelves(self.calls)
        return self._shelves

    def _requested(self, request: RequestedCall) -> Call:
        target = handoff_target(request.name)
        call = _asked_for(request)
        if target is not None and fold(target) in self._agents:
            call.kind = "handoff"
        elif call.kind == "tool" and fold(request.name) in self._agents:
            call.kind = "agent"
        self.calls.append(call)
        return call

    def _index(self, call: Call) -> None:
        if call.call_id and self._indexed.get(call) != call.call_id:
            self._indexed[call] = call.call_id
            self._of_id.setdefault(call.call_id, []).append(call)
        if self._shelves is not None:
            self._shelves.put(call)


def _answers(turns: Iterable[Dialogue]) -> Iterator[tuple[str, int]]:
    """The ids of answers that models were given, each with when a model was asked with it."""
    for turn in turns:
        for message in turn.asked if turn.node.hears_calls else ():
            for answer in message.answers:
                if answer.call_id:
                    yield answer.call_id, turn.node.start


def _asked_for(request: RequestedCall) -> Call:
    return Call(
        request.name,
        kind=request.kind,
        call_id=request.call_id,
        arguments=written(request.arguments),
        result=written(request.result),
        error=request.error,
        server=request.server,
    )
