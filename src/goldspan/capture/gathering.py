"""Ended spans put back into the order in which they happened, though their children come in earlier batches.

An exporter sees spans when they have ended, in batches, and never their start. So spans wait here until their local
root is there, and come out as whole trees. Time is passed in; nothing here locks or sleeps.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from opentelemetry.sdk.trace import ReadableSpan

from goldspan.online import Limits

Spans = list[ReadableSpan]


class Gathering:
    """Spans of one process that wait for their local root: one without a parent, or with a parent in another process.

    At most `max_spans` wait, and those of one trace for at most `idle` seconds after the last of them came: then they
    come out as they are. A span that comes after its tree has come out does not wait.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiting: OrderedDict[int, Spans] = OrderedDict()
        self._since: dict[int, float] = {}
        self._size = 0
        self._given: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        """The number of spans that wait."""
        return self._size

    def renewed(self) -> Gathering:
        """One with the same limits and nothing in it."""
        return Gathering(self._limits)

    def add(self, spans: Iterable[ReadableSpan], now: float) -> Iterator[Spans]:
        """Take in a batch; what is complete by it, or will wait no longer, a trace at a time and parents first."""
        touched: dict[int, None] = {}
        for span in spans:
            trace_id = span.context.trace_id
            self._waiting.setdefault(trace_id, []).append(span)
            self._waiting.move_to_end(trace_id)
            self._since[trace_id] = now
            self._size += 1
            touched[trace_id] = None
        for trace_id in touched:
            if rooted := self._rooted(self._waiting[trace_id]):
                yield self._give(trace_id, rooted)
        while self._waiting and self._overdue(next(iter(self._waiting)), now):
            yield self._give_all(next(iter(self._waiting)))

    def release(self) -> Iterator[Spans]:
        """Everything that still waits."""
        while self._waiting:
            yield self._give_all(next(iter(self._waiting)))

    def _overdue(self, trace_id: int, now: float) -> bool:
        return self._size > self._limits.max_spans or now - self._since[trace_id] >= self._limits.idle

    def _rooted(self, waiting: Spans) -> Spans:
        """The spans that hang, over however many others, from a local root or from one that has come out already."""
        children: dict[int, Spans] = {}
        found: Spans = []
        for span in waiting:
            if span.parent is None or span.parent.is_remote or span.parent.span_id in self._given:
                found.append(span)
            else:
                children.setdefault(span.parent.span_id, []).append(span)
        for span in found:  # grows while it is gone through
            found.extend(children.pop(span.context.span_id, ()))
        return found

    def _give_all(self, trace_id: int) -> Spans:
        waiting = self._waiting[trace_id]
        ids = {span.context.span_id for span in waiting}
        tops = [span for span in waiting if span.parent is None or span.parent.span_id not in ids]
        self._given.update(dict.fromkeys(span.parent.span_id for span in tops if span.parent is not None))
        return self._give(trace_id, self._rooted(waiting) or waiting)

    def _give(self, trace_id: int, given: Spans) -> Spans:
        ids = dict.fromkeys(span.context.span_id for span in given)
        left = [span for span in self._waiting[trace_id] if span.context.span_id not in ids]
        self._size -= len(self._waiting[trace_id]) - len(left)
        if left:
            self._waiting[trace_id] = left
        else:
            del self._waiting[trace_id], self._since[trace_id]
        self._given.update(ids)
        while len(self._given) > self._limits.max_spans:
            self._given.popitem(last=False)
        return given
