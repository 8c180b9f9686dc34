"""What a place for evaluations must be able to do, and what it may."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias

from goldspan._guard import suppress_errors
from goldspan.goldens import Goldens
from goldspan.model import Evaluation


class Sink(Protocol):
    """Receives every evaluation, in no promised order.

    Called on the thread that ended the run's span, possibly on several threads at once, while the application waits:
    be quick, or be wrapped in a `BackgroundSink`. If it raises, the error is counted and logged, and the other sinks
    still receive the evaluation.

    It may also have `force_flush(timeout_millis)`, which returns `False` where something is still under way,
    `shutdown()`, after which nothing is submitted any more, and `adopt(goldens)`, which is called with what runs are
    judged by: before the first evaluation, and each time that other goldens were read.
    """

    def submit(self, evaluation: Evaluation) -> None:
        """Take one evaluation."""
        ...


SinkLike: TypeAlias = "Sink | Callable[[Evaluation], Any]"
"""A sink, or a function of an evaluation; either may be asynchronous."""


def adopt(sinks: Iterable[Any], goldens: Goldens) -> None:
    """Tell the sinks that want to know it by which goldens runs are judged from now on. Never raises."""
    for sink in sinks:
        adopt_one = getattr(sink, "adopt", None)
        if adopt_one is not None:
            with suppress_errors(f"tell {type(sink).__name__} of goldens"):
                adopt_one(goldens)


def flush_all(sinks: Iterable[Any], timeout_millis: int = 30_000) -> bool:
    """Flush the sinks that hold anything back, all within the time given; whether all of them did. Never raises."""
    until = time.monotonic() + timeout_millis / 1000
    done = True
    for sink in sinks:
        flush_one = getattr(sink, "force_flush", None)
        if flush_one is None:
            continue
        flushed: object = False
        with suppress_errors(f"flush {type(sink).__name__}"):
            flushed = flush_one(max(0, int((until - time.monotonic()) * 1000)))
        done = done and flushed is not False
    return done


def shutdown_all(sinks: Iterable[Any]) -> None:
    """Shut down the sinks that want it, each whatever the others do. Never raises."""
    for sink in sinks:
        shut_down_one = getattr(sink, "shutdown", None)
        if shut_down_one is not None:
            with suppress_errors(f"shut down {type(sink).__name__}"):
                shut_down_one()
