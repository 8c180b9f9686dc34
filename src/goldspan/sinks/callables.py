"""Any function of an evaluation as a sink, and whatever people give for a sink as one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from goldspan.errors import ConfigurationError
from goldspan.model import Evaluation
from goldspan.sinks.background import BackgroundSink, taker_of
from goldspan.sinks.protocol import Sink, SinkLike


class CallableSink:
    """Calls a function with every evaluation, on the thread that ended the run's span: it should be quick.

    Raises `ConfigurationError` for what cannot be called, and for a coroutine function, which a `BackgroundSink` takes.
    """

    def __init__(self, function: Callable[[Evaluation], Any]) -> None:
        if not callable(function):
            raise ConfigurationError(f"CallableSink takes a function of an evaluation, not {type(function).__name__}")
        if is_asynchronous(function):
            raise ConfigurationError(_never_awaited(function))
        self._function = function

    def submit(self, evaluation: Evaluation) -> None:
        """Call the function; what it returns is of no interest, what it raises is counted and logged.

        Raises `ConfigurationError` where that turns out to be a coroutine.
        """
        returned = self._function(evaluation)
        if inspect.iscoroutine(returned):
            returned.close()
            raise ConfigurationError(_never_awaited(self._function))


def _never_awaited(function: Callable[..., Any]) -> str:
    return (
        f"CallableSink would never await {getattr(function, '__name__', 'that coroutine function')}: "
        "give it to goldspan.sinks.BackgroundSink, which has an event loop"
    )


def as_sink(thing: SinkLike) -> Sink:
    """A sink as it is, a function as a `CallableSink`, and what is asynchronous in a `BackgroundSink` of its own.

    Raises `ConfigurationError` for what is neither a sink nor a function, and for a class in place of an instance.
    """
    take = taker_of(thing)
    if is_asynchronous(take):
        return BackgroundSink(thing)
    return CallableSink(thing) if take is thing else thing  # type: ignore[return-value]


def is_asynchronous(function: Callable[..., Any]) -> bool:
    """Whether calling it makes a coroutine, as far as it shows."""
    called = getattr(type(function), "__call__", None)  # noqa: B004 - not whether it can be called, but how
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
