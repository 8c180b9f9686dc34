"""The `Sink` protocol, and functions that call the optional methods of all sinks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias

from goldspan._guard import suppress_errors
from goldspan.goldens import Goldens
from goldspan.model import Evaluation


class Sink(Protocol):
    """Receives every evaluation; the order is not guaranteed.

    The thread that ended the run's span calls it, possibly several threads at once, while the application waits: a slow
    sink needs a `BackgroundSink`. An exception is counted and logged, and the other sinks still receive the evaluation.

    A sink may also have `submit_many(evaluations)`, which is called instead of `submit` when several evaluations are
    submitted at once; `force_flush(timeout_millis)`, which returns `False` if something is still
    pending; `shutdown()`, after which nothing is submitted; and `adopt(goldens)`, which is called with the goldens
    before the first evaluation and each time golden files were reloaded. A sink with the attribute
    `needs_exported_spans` is flushed and shut down after the spans were exported.
    """

    def submit(self, evaluation: Evaluation) -> None:
        """Receives one evaluation."""
        ...


SinkLike: TypeAlias = "Sink | Callable[[Evaluation], Any]"
"""A sink, or a function of an evaluation; either may be asynchronous."""


def adopt(sinks: Iterable[Any], goldens: Goldens) -> None:
    """Passes new goldens to the sinks that have `adopt`. Never raises."""
    for sink in sinks:
        adopt_one = getattr(sink, "adopt", None)
        if adopt_one is not None:
            with suppress_errors(f"pass goldens to {type(sink).__name__}"):
                adopt_one(goldens)


def flush_all(sinks: Iterable[Any], timeout_millis: int = 30_000) -> bool:
    """Flushes the sinks that have `force_flush` within the timeout. Returns whether all succeeded. Never raises."""
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


def split_by_export(sinks: Iterable[Sink]) -> tuple[list[Sink], list[Sink]]:
    """Returns the sinks to flush before the spans are exported, and those to flush afterwards."""
    before: list[Sink] = []
    after: list[Sink] = []
    for sink in sinks:
        (after if getattr(sink, "needs_exported_spans", False) else before).append(sink)
    return before, after


def shutdown_all(sinks: Iterable[Any]) -> None:
    """Shuts down the sinks that have `shutdown`, each independently of the others. Never raises."""
    for sink in sinks:
        shut_down_one = getattr(sink, "shutdown", None)
        if shut_down_one is not None:
            with suppress_errors(f"shut down {type(sink).__name__}"):
                shut_down_one()
