"""Which turn of a model asked for a tool, where the tool's span stands apart from the model's.

The id of the call tells it best, then the tool's name and arguments. A turn must have ended before the tool started,
and one call that it asked for is one execution, as long as there are others to choose from.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from goldspan.extraction.calls import Call, call_of, written
from goldspan.extraction.dialogues import Dialogue, calls_since_asked
from goldspan.extraction.names import tails
from goldspan.extraction.reading import Written
from goldspan.extraction.spoken import RequestedCall
from goldspan.extraction.times import JITTER_NS
from goldspan.extraction.tree import Node

_WHOLE, _END = True, False
"""How much of a tool's name a key holds."""
_CANDIDATES = 50
"""How many of those that are alike are tried, the nearest in time first."""


@dataclass(slots=True, eq=False)
class _Asked:
    """One call, and the turn of a model that shows it at a time."""

    turn: Dialogue
    at: int
    call_id: str | None
    arguments: Written | None
    taken: bool = False

    def can_be(self, made: Call) -> bool:
        """Whether ids, where both sides have one, allow that an execution is what was asked for."""
        return not (self.call_id and made.call_id) or self.call_id == made.call_id

    def surely_is(self, made: Call) -> bool:
        """Whether an execution has the id, or at least the arguments."""
        return (self.call_id is not None and self.call_id == made.call_id) or made.same_values(self.arguments)


@dataclass(slots=True)
class Requests:
    """The calls that some turns of models show, to be found from the spans that executed them."""

    _shown: dict[Hashable, list[_Asked]] = field(default_factory=dict)

    @classmethod
    def asked_by(cls, turns: Iterable[Dialogue]) -> Requests:
        """The calls that turns ask for, from the time when they had been asked for."""
        made = cls()
        for turn in sorted(turns, key=lambda turn: turn.ended):
            for call in turn.calls:
                made._add(turn, turn.ended, call)
        return made

    @classmethod
    def known_to(cls, turns: Iterable[Dialogue]) -> Requests:
        """The calls of the present request that turns repeat from a history, from the time when they repeat it.

        Those that one of the turns asks for itself, by their ids, are no news.
        """
        made = cls()
        given = list(turns)
        asked_ids = {call.call_id for turn in given for call in turn.calls if call.call_id}
        for turn in given:
            start = turn.node.span.start_ns
            if start is not None:
                for call in calls_since_asked(turn.asked):
                    if call.call_id not in asked_ids:
                        made._add(turn, start, call)
        return made

    def before_each(self, tools: Iterable[Node], *, again: bool = True, surely: bool = False) -> dict[Node, Dialogue]:
        """For the spans of tools, each the turn that asked for it: the last before it, of those that fit best.

        With `again`, what is left then is taken for a further attempt at a call that was found already; with `surely`,
        an id or the arguments must tell.
        """
        found: dict[Node, Dialogue] = {}
        made = sorted(map(call_of, tools), key=lambda call: call.place)
        # Those that an id tells come first: what is left then is for those without.
        for by_id, free in ((True, True), (False, True), *(((True, False), (False, False)) if again else ())):
            for call in made:
                if call.node is not None and call.node not in found and bool(call.call_id) == by_id:
                    turn = self._before(call, free=free, surely=surely)
                    if turn is not None:
                        found[call.node] = turn
        return found

    def after(self, tool: Node) -> Dialogue | None:
        """The first turn after the tool that a span executed that has its call, by id or by arguments, in its history.

        It tells whose call that was where the turn that asked for it is lost.
        """
        made = call_of(tool)
        earliest = (tool.span.end_ns or 0) - JITTER_NS
        for shown in self._like(made):
            begin = bisect_left(shown, earliest, key=_at)
            for asked in shown[begin : begin + _CANDIDATES]:
                if not asked.taken and asked.can_be(made) and asked.surely_is(made):
                    asked.taken = True
                    return asked.turn
        return None

    def _before(self, made: Call, *, free: bool, surely: bool) -> Dialogue | None:
        latest = (made.start_ns or 0) + JITTER_NS
        for shown in self._like(made):
            until = bisect_right(shown, latest, key=_at)
            nearest = reversed(shown[max(0, until - _CANDIDATES) : until])
            fitting = [asked for asked in nearest if asked.can_be(made) and asked.taken != free]
            best = next((asked for asked in fitting if made.same_values(asked.arguments)), None)
            if best is None:
                best = next((asked for asked in fitting if not surely or asked.surely_is(made)), None)
            if best is not None:
                best.taken = True
                return best.turn
        return None

    def _add(self, turn: Dialogue, at: int, call: RequestedCall) -> None:
        asked = _Asked(turn, at, call.call_id, written(call.arguments))
        whole, *ends = tails(call.name)
        keys: list[Hashable] = [(_WHOLE, whole), *((_END, end) for end in ends)]
        if call.call_id:
            keys.append(call.call_id)
        for key in keys:
            self._shown.setdefault(key, []).append(asked)

    def _like(self, made: Call) -> Iterable[list[_Asked]]:
        """Those of the call's id; else of its name; else those whose name ends like it, or the other way round."""
        keys: list[Hashable] = [made.call_id] if made.call_id else []
        whole, *ends = tails(made.name)
        keys += [(_WHOLE, whole), (_END, whole), *((_WHOLE, end) for end in ends)]
        return (self._shown[key] for key in keys if key in self._shown)


def _at(asked: _Asked) -> int:
    return asked.at
