"""Which turn of a model asked for a tool, where the tool's span stands apart from the model's.

The id of the call tells it best, then the tool's name and arguments. A turn must have ended before the tool started,
and one call that it asked for is one execution, as long as there are others to choose from.
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
from goldspan.extraction.span_tree import CLOCK_TOLERANCE_NS, SpanNode

_FULL_NAME, _NAME_SUFFIX = True, False
"""How much of a tool's name a key holds."""
_MAX_CANDIDATES = 50
"""How many of those that are alike are tried, the nearest in time first."""


@dataclass(slots=True, eq=False)
class _IndexedRequest:
    """One call, and the turn of a model that shows it at a time."""

    turn: ModelTurn
    time_ns: int
    call_id: str | None
    arguments: RawValue | None
    is_matched: bool = False

    def is_compatible(self, made: ObservedCall) -> bool:
        """Whether ids, where both sides have one, allow that an execution is what was asked for."""
        return not (self.call_id and made.call_id) or self.call_id == made.call_id

    def is_certain(self, made: ObservedCall) -> bool:
        """Whether an execution has the id, or at least the arguments."""
        return (self.call_id is not None and self.call_id == made.call_id) or made.has_same_arguments(self.arguments)


@dataclass(slots=True)
class RequestedCallIndex:
    """The calls that some turns of models show, to be found from the spans that executed them."""

    _shown: dict[Hashable, list[_IndexedRequest]] = field(default_factory=dict)

    @classmethod
    def from_turns(cls, turns: Iterable[ModelTurn]) -> RequestedCallIndex:
        """The calls that turns ask for, from the time when they had been asked for."""
        made = cls()
        for turn in sorted(turns, key=lambda turn: turn.end_time):
            for call in turn.calls:
                made._add(turn, turn.end_time, call)
        return made

    @classmethod
    def from_histories(cls, turns: Iterable[ModelTurn]) -> RequestedCallIndex:
        """The calls of the present request that turns repeat from a history, from the time when they repeat it.

        Those that one of the turns asks for itself, by their ids, are no news.
        """
        made = cls()
        given = list(turns)
        asked_ids = {call.call_id for turn in given for call in turn.calls if call.call_id}
        for turn in given:
            start = turn.node.span.start_ns
            if start is not None:
                for call in calls_since_user(turn.input_messages):
                    if call.call_id not in asked_ids:
                        made._add(turn, start, call)
        return made

    def match_tools(
        self, tools: Iterable[SpanNode], *, allow_retries: bool = True, require_certain: bool = False
    ) -> dict[SpanNode, ModelTurn]:
        """For the spans of tools, each the turn that asked for it: the last before it, of those that fit best.

        With `again`, what is left then is taken for a further attempt at a call that was found already; with `surely`,
        an id or the arguments must tell.
        """
        found: dict[SpanNode, ModelTurn] = {}
        made = sorted(map(call_from_span, tools), key=lambda call: call.sort_key)
        # Those that an id tells come first: what is left then is for those without.
        for by_id, free in ((True, True), (False, True), *(((True, False), (False, False)) if allow_retries else ())):
            for call in made:
                if call.node is not None and call.node not in found and bool(call.call_id) == by_id:
                    turn = self._before(call, free=free, surely=require_certain)
                    if turn is not None:
                        found[call.node] = turn
        return found

    def match_later_turn(self, tool: SpanNode) -> ModelTurn | None:
        """The first turn after the tool that a span executed that has its call, by id or by arguments, in its history.

        It tells whose call that was where the turn that asked for it is lost.
        """
        made = call_from_span(tool)
        earliest = (tool.span.end_ns or 0) - CLOCK_TOLERANCE_NS
        for shown in self._like(made):
            begin = bisect_left(shown, earliest, key=_time_of)
            for asked in shown[begin : begin + _MAX_CANDIDATES]:
                if not asked.is_matched and asked.is_compatible(made) and asked.is_certain(made):
                    asked.is_matched = True
                    return asked.turn
        return None

    def _before(self, made: ObservedCall, *, free: bool, surely: bool) -> ModelTurn | None:
        latest = (made.start_ns or 0) + CLOCK_TOLERANCE_NS
        for shown in self._like(made):
            until = bisect_right(shown, latest, key=_time_of)
            nearest = reversed(shown[max(0, until - _MAX_CANDIDATES) : until])
            fitting = [asked for asked in nearest if asked.is_compatible(made) and asked.is_matched != free]
            best = next((asked for asked in fitting if made.has_same_arguments(asked.arguments)), None)
            if best is None:
                best = next((asked for asked in fitting if not surely or asked.is_certain(made)), None)
            if best is not None:
                best.is_matched = True
                return best.turn
        return None

    def _add(self, turn: ModelTurn, at: int, call: RequestedCall) -> None:
        asked = _IndexedRequest(turn, at, call.call_id, raw_value(call.arguments))
        whole, *ends = name_suffixes(call.name)
        keys: list[Hashable] = [(_FULL_NAME, whole), *((_NAME_SUFFIX, end) for end in ends)]
        if call.call_id:
            keys.append(call.call_id)
        for key in keys:
            self._shown.setdefault(key, []).append(asked)

    def _like(self, made: ObservedCall) -> Iterable[list[_IndexedRequest]]:
        """Those of the call's id; else of its name; else those whose name ends like it, or the other way round."""
        keys: list[Hashable] = [made.call_id] if made.call_id else []
        whole, *ends = name_suffixes(made.name)
        keys += [(_FULL_NAME, whole), (_NAME_SUFFIX, whole), *((_FULL_NAME, end) for end in ends)]
        return (self._shown[key] for key in keys if key in self._shown)


def _time_of(asked: _IndexedRequest) -> int:
    return asked.time_ns
