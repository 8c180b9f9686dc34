"""The calls of a run while its witnesses come in: executions first, then what models asked for, then histories."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Any

from goldspan.extraction.calls import Call, same_name
from goldspan.extraction.dialogues import NEVER, Dialogue
from goldspan.extraction.names import fold, handoff_target
from goldspan.extraction.reading import Written
from goldspan.extraction.spoken import RequestedCall
from goldspan.extraction.tree import Node
from goldspan.model import ABSENT


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
        self._of_id: dict[str, list[Call]] = {}
        for call in calls:
            self._index(call)

    def enter(self, request: RequestedCall, dialogue: Dialogue, position: int) -> Call | None:
        """Find the call that a model asked for, or add it as one that was only requested. `None`: it was known."""
        known = self._of_id.get(request.call_id or "", [])
        call = next((call for call in known if call.asked_at is None), None)
        if call is None and any(_repeats(request, earlier) for earlier in known):
            known[0].merged += 1
            return None
        call = call or next(self._executions(request, dialogue, alike=True), None)
        if call is None:
            call = self._requested(request)
            call.agent = dialogue.node.agent
            call.start_ns = dialogue.node.span.end_ns
        else:
            call.absorb(_asked_for(request))
        call.asked_at = (dialogue.ended, position)
        self._index(call)
        return call

    def enter_all(self, turns: Iterable[Dialogue]) -> None:
        """Enter what models asked for, turn by turn. Only when all of it is there, executions whose arguments differ
        are given to requests: frameworks add defaults, drop keys, and write a single argument bare.
        """
        entered = [
            (request, turn, self.enter(request, turn, position))
            for turn in turns
            for position, request in enumerate(turn.calls)
        ]
        gone: set[int] = set()
        for request, turn, call in entered:
            if call is None or call.node is not None:
                continue
            execution = next(self._executions(request, turn, alike=False), None)
            if execution is not None:
                execution.absorb(call)
                execution.asked_at = call.asked_at
                gone.add(id(call))
                self._index(execution)
        self.calls = [call for call in self.calls if id(call) not in gone]
        self._of_id = {key: [call for call in calls if id(call) not in gone] for key, calls in self._of_id.items()}

    def confirm(self, told: Iterable[RequestedCall], node: Node) -> None:
        """Lay what a history repeats beside what is known. What nothing else shows, most often because the span of
        the model's turn is lost, is added after the call before it.
        """
        requests = list(told)
        found: dict[int, Call] = {}
        for position, request in enumerate(requests):
            known = self._of_id.get(request.call_id or "")
            if known:
                found[position] = known[0]
        taken = set(map(id, found.values()))
        before: Call | None = None
        for position, request in enumerate(requests):
            call = found.get(position) or self._alike(request, taken)
            if call is not None:
                call.confirm(_asked_for(request))
            elif request.call_id in self._elsewhere:
                continue
            else:
                call = self._requested(request)
                call.agent = node.agent
                call.start_ns = before.start_ns if before is not None else node.span.start_ns
                asked = before.asked_at[0] if before is not None and before.asked_at else NEVER
                call.asked_at = (asked, position)
            taken.add(id(call))
            self._index(call)
            before = call

    def _alike(self, request: RequestedCall, taken: set[int]) -> Call | None:
        """A call of that name and with those values that the history has not named yet, whatever its id."""
        asked = _written(request.arguments)
        free = [call for call in self.calls if id(call) not in taken]
        named = [call for call in free if _same_tool(call, request)]
        equal = (call for call in named if call.same_values(asked))
        silent = (call for call in named if call.arguments is None or asked is None)
        unnamed = (call for call in free if call.nameless and call.same_values(asked))
        unasked = (call for call in named if call.node and call.asked_at is None and not call.call_id)
        return next((call for found in (equal, silent, unnamed, unasked) for call in found), None)

    def _executions(self, request: RequestedCall, dialogue: Dialogue, *, alike: bool) -> Iterator[Call]:
        """Executions that may be a request's where ids do not tell: same name, not before it, perhaps same values."""
        asked = _written(request.arguments)
        for call in self.calls:
            if _may_execute(call, request, dialogue) and (
                not alike or asked is None or call.arguments is None or call.same_values(asked)
            ):
                yield call

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
        if call.call_id:
            under = self._of_id.setdefault(call.call_id, [])
            if call not in under:
                under.append(call)


def _asked_for(request: RequestedCall) -> Call:
    return Call(
        request.name,
        kind=request.kind,
        call_id=request.call_id,
        arguments=_written(request.arguments),
        result=_written(request.result),
        error=request.error,
        server=request.server,
    )


def _written(value: Any) -> Written | None:
    return None if value is ABSENT or value is None else Written(value)


def _may_execute(call: Call, request: RequestedCall, dialogue: Dialogue) -> bool:
    if call.node is None or call.asked_at is not None or (call.call_id and request.call_id):
        return False
    asked = dialogue.node.span.start_ns
    if call.start_ns is not None and asked is not None and call.start_ns < asked:
        return False
    return _same_tool(call, request)


def _same_tool(call: Call, request: RequestedCall) -> bool:
    """Whether a request names the tool of a call, or the agent that a hand-off goes to."""
    if same_name(call.name, request.name):
        return True
    target = handoff_target(request.name)
    if call.kind != "handoff" or target is None:
        return False
    return fold(handoff_target(call.name) or call.name) in (fold(target), _NOBODY)


_NOBODY = "unknown"
"""What OpenLLMetry calls the agent that a hand-off goes to, where it cannot tell."""


def _repeats(request: RequestedCall, known: Call) -> bool:
    """Whether a request under a known id is that same call again, not another one under a recycled id."""
    return same_name(known.name, request.name) and (known.same_values(_written(request.arguments)) or not known.named)
