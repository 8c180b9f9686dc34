"""The one place where a decorated span ends, and where its results can still be put on it.

A span that has ended cannot be changed. A `ScoringProcessor` that exports by itself hands on a copy with the results
added; one that merely sits beside other processors cannot, so it asks to be told before a decorated span ends.
"""

from __future__ import annotations

from time import time_ns
from typing import Protocol

from opentelemetry.trace import Span

from goldspan._guard import guard
from goldspan._locks import ModuleLock

_CLOSING = guard("score a span before it ends")


class Closer(Protocol):
    """Is told of every decorated span just before it ends.

    Called once a span on the thread that ends it, in the order of registration; what it raises is logged and counted.
    """

    def closing(self, span: Span, end_ns: int) -> None:
        """Put results on a span that will end at `end_ns`."""
        ...


_closers: tuple[Closer, ...] = ()
_changing = ModuleLock()


def register(closer: Closer) -> None:
    """Tell it from now on."""
    global _closers
    with _changing:
        _closers = (*_closers, closer)


def unregister(closer: Closer) -> None:
    """Tell it no more. One that is not registered is fine."""
    global _closers
    with _changing:
        _closers = tuple(known for known in _closers if known is not closer)


def end(span: Span) -> None:
    """End a decorated span, with its results on it where somebody has some."""
    if not _closers:
        span.end()
        return
    end_ns = time_ns()
    for closer in _closers:
        with _CLOSING:
            closer.closing(span, end_ns)
    span.end(end_ns)
