"""Tools that lost the context of their request while it goes on: they end as traces of their own, and wait for it here.

The id of a conversation, or the one that a runtime gives to a request, tells whose they were; whether they really were
is for extraction to say, which sees both together in the end, as it does in files.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace

from goldspan.extraction import ids_of, role_of
from goldspan.extraction.reading import MARKS
from goldspan.model import Run, SpanRecord
from goldspan.online.limits import Limits
from goldspan.online.portions import Ended, Known, Portion, Revised

_MAX_REQUESTS = 256
"""Requests with a session that are kept for the tools that come after their end."""

_Spans = tuple[SpanRecord, ...]


@dataclass(frozen=True, slots=True)
class _Request:
    """A request that was given out, and the ids of its spans."""

    spans: _Spans
    known: Known
    at: float


class Strays:
    """Portions on their way from the assembly to the pipeline. Not for two threads at once; `now` is in seconds."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiting: OrderedDict[int, tuple[Ended, float]] = OrderedDict()
        self._requests: OrderedDict[Hashable, _Request] = OrderedDict()
        self._claimed: OrderedDict[str, _Spans] = OrderedDict()
        self._number = 0

    @property
    def waits(self) -> bool:
        """Whether anything in here depends on the time."""
        return bool(self._waiting or self._requests)

    def route(self, portions: Iterable[Portion], now: float) -> list[Portion]:
        """The portions with the strays that belong to them; strays whose request is not there yet are held back."""
        routed: list[Portion] = []
        for portion in portions:
            if isinstance(portion, Revised):
                routed.append(self._again(portion))
            elif portion.unit != "request":
                routed.append(portion)
            elif not _strayed(portion):
                routed.append(self._joined(portion))
            elif (placed := self._placed(portion, now)) is not None:
                routed.append(placed)
        return routed

    def remember(self, portion: Portion, runs: Iterable[Run], now: float) -> None:
        """Keep a request that has a session, for tools of it that end later."""
        if isinstance(portion, Revised):
            return
        for run in runs:
            if run.unit == "request" and run.session_id is not None:
                key = ("session", run.service, run.session_id)
                self._requests[key] = _Request(portion.spans, portion.known, now)
                self._requests.move_to_end(key)
                while len(self._requests) > _MAX_REQUESTS:
                    self._requests.popitem(last=False)

    def due(self, now: float, *, everything: bool = False) -> list[Portion]:
        """Strays whose request never came: they are requests of their own."""
        late = [
            number
            for number, (_, since) in self._waiting.items()
            if everything or now - since >= self._limits.idle or len(self._waiting) > self._limits.max_traces
        ]
        for key in [key for key, each in self._requests.items() if now - each.at >= self._limits.late]:
            del self._requests[key]
        return [self._waiting.pop(number)[0] for number in late]

    def _placed(self, stray: Ended, now: float) -> Portion | None:
        """A stray as a change of its request, where that was given out before; by itself, where nothing tells whose.

        `None`: it waits.
        """
        keys = list(_keys(stray.spans))
        if not keys:
            return stray
        for key in keys:
            request = self._requests.get(key)
            if request is not None and _began_during(stray.spans, request.spans):
                before = request.spans
                self._requests[key] = replace(request, spans=before + stray.spans, at=now)
                self._claim(before[0].trace_id, stray.spans)
                after = before + stray.spans
                there = frozenset(span.span_id for span in after)
                return Revised(before, after, there, request.known, request.known.latest)
        self._waiting[self._number] = (stray, now)
        self._number += 1
        return None

    def _joined(self, request: Ended) -> Ended:
        """A request with the strays that began while it was at work."""
        if not self._waiting:
            return request
        keys = frozenset(_keys(request.spans))
        for number, (stray, _) in list(self._waiting.items()):
            if not keys.isdisjoint(_keys(stray.spans)) and _began_during(stray.spans, request.spans):
                del self._waiting[number]
                self._claim(request.spans[0].trace_id, stray.spans)
                request = replace(request, spans=request.spans + stray.spans)
        return request

    def _again(self, revised: Revised) -> Revised:
        """What changed, with the strays that were claimed before."""
        claimed = self._claimed.get(revised.after[0].trace_id, ())
        if not claimed:
            return revised
        return replace(revised, before=revised.before + claimed, after=revised.after + claimed)

    def _claim(self, trace_id: str, spans: _Spans) -> None:
        self._claimed[trace_id] = self._claimed.get(trace_id, ()) + spans
        while len(self._claimed) > _MAX_REQUESTS:
            self._claimed.popitem(last=False)


def _strayed(portion: Ended) -> bool:
    """Whether nobody is at work in a trace but tools."""
    if portion.span_id is not None:
        return False
    tools = False
    for span in portion.spans:  # what stands for a request comes first, and most often settles it
        role = role_of(span)
        if role in MARKS or role == "model":
            return False
        tools = tools or role == "tool"
    return tools


def _keys(spans: Iterable[SpanRecord]) -> Iterator[Hashable]:
    """The ids by which the spans of one service may know each other."""
    return (key for span in spans for key in ids_of(span))


def _began_during(stray: _Spans, request: _Spans) -> bool:
    start = min((span.start_ns for span in stray if span.start_ns is not None), default=None)
    starts = [span.start_ns for span in request if span.start_ns is not None]
    ends = [span.end_ns for span in request if span.end_ns is not None]
    return start is not None and bool(starts and ends) and min(starts) <= start <= max(ends)
