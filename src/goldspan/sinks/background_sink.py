"""`BackgroundSink` and `FunctionSink`, and the validation of sinks where they are declared."""

from __future__ import annotations

import inspect
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from opentelemetry.metrics import MeterProvider

from goldspan import _guard, semconv
from goldspan.errors import ConfigurationError
from goldspan.goldens import Goldens
from goldspan.model import Evaluation
from goldspan.sinks import sink_protocol
from goldspan.sinks.drop_counters import drop_counter
from goldspan.sinks.fork_safety import renew_after_fork
from goldspan.sinks.sink_protocol import Sink, SinkLike

if TYPE_CHECKING:
    import asyncio  # slow to load, and most sinks have no use for it

MAX_BATCH_SIZE = 512
"""The maximum number of evaluations that one call of `submit_many` receives."""


class BackgroundSink:
    """Submits evaluations to another sink or function on one daemon thread.

    `submit` only adds to a queue. If the queue is full, the new evaluation is dropped and counted in
    `goldspan.sink.dropped`. A sink with `submit_many(evaluations)` receives lists, any other sink one evaluation at a
    time, in order. Coroutine functions and `async def` methods run one after another in an event loop of the thread.

    An exception of the sink is counted and logged, and the thread continues. `force_flush` and `shutdown` wait for the
    queue; a process that exits without either loses its content. After a fork the queue stays with the parent, and the
    child starts its own thread with the first evaluation.

    Args:
        sink: The sink or function.
        max_queue: The maximum number of queued evaluations.
        name: The name in counters and logs. Default: the type of the sink, or the function's name.
        meter_provider: The meter provider of the counter. Default: the global one.

    Raises:
        ConfigurationError: If `sink` is not a sink, or `max_queue` is below 1.
    """

    def __init__(
        self,
        sink: SinkLike,
        *,
        max_queue: int = 10_000,
        name: str | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        self._submit_one = submit_function(sink)
        if max_queue < 1:
            raise ConfigurationError(f"max_queue must be at least 1, not {max_queue}")
        self._submit_many: Callable[[list[Evaluation]], Any] | None = getattr(sink, "submit_many", None)
        self._sink = sink
        self._max_queue = max_queue
        self.name = name or getattr(sink, "__name__", type(sink).__name__)
        """The name of the sink in counters and logs."""
        self._dropped = drop_counter(semconv.SINK_DROPPED_COUNTER, meter_provider)
        self._closed = False
        self.renew()
        renew_after_fork(self)

    def submit(self, evaluation: Evaluation) -> None:
        """Adds an evaluation to the queue without waiting for the sink."""
        with self._lock:
            is_accepted = len(self._queue) < self._max_queue and not self._closed
            if is_accepted:
                self._queue.append(evaluation)
                self._wake_thread()
        if not is_accepted:
            self._count_dropped(1)

    def adopt(self, goldens: Goldens) -> None:
        """Passes new goldens to the sink, on the calling thread."""
        sink_protocol.adopt((self._sink,), goldens)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Waits until the sink has processed the queue, and flushes it; returns `False` on timeout."""
        until = time.monotonic() + timeout_millis / 1000
        with self._lock:
            if threading.current_thread() is self._thread:  # called by the sink: it would wait for itself
                return False
            if self._queue:
                self._wake_thread()
            if not self._idle.wait_for(self._is_idle, timeout_millis / 1000):
                return False
        left_millis = max(0, int((until - time.monotonic()) * 1000))
        if not self._is_async_method("force_flush"):
            return sink_protocol.flush_all((self._sink,), left_millis)
        with self._lock:
            task = None if self._closed else self._schedule("force_flush", left_millis)
        return task is None or (task.done.wait(left_millis / 1000) and task.result is not False)

    def shutdown(self, timeout_millis: int = 30_000) -> None:
        """Accepts no more, waits for the queue, and shuts down the sink; what is left after the timeout is dropped."""
        awaits = self._is_async_method("shutdown")
        with self._lock:
            if awaits and not self._closed:
                self._schedule("shutdown")
            self._closed = True
            thread = self._thread
            self._has_work.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_millis / 1000)
        with self._lock:
            left = len(self._queue)
            self._queue.clear()
        if left:
            self._count_dropped(left)
        if not awaits:
            sink_protocol.shutdown_all((self._sink,))

    def renew(self) -> None:
        """Resets the state in a forked child: the queue belongs to the parent."""
        self._lock = threading.RLock()
        self._has_work = threading.Condition(self._lock)
        self._idle = threading.Condition(self._lock)
        self._queue: deque[Evaluation] = deque()
        self._tasks: deque[_SinkTask] = deque()
        self._busy = False
        self._thread: threading.Thread | None = None

    def _wake_thread(self) -> None:
        """Starts or wakes the thread. The caller holds the lock."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name=f"goldspan {self.name}", daemon=True)
            self._thread.start()
        self._has_work.notify()

    def _schedule(self, method: str, *arguments: object) -> _SinkTask:
        """Schedules a call of another method of the sink for when the queue is empty. The caller holds the lock."""
        task = _SinkTask(f"{method} of {self.name}", partial(getattr(self._sink, method), *arguments))
        self._tasks.append(task)
        self._wake_thread()
        return task

    def _is_async_method(self, method: str) -> bool:
        return inspect.iscoroutinefunction(getattr(self._sink, method, None))

    def _is_idle(self) -> bool:
        return not self._queue and not self._busy

    def _count_dropped(self, count: int) -> None:
        self._dropped.add(count, {semconv.SINK_LABEL: self.name})

    # --- on the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        # Only this frame refers to the loop. A forked child has no such frame and so never closes the loop, whose file
        # descriptors it shares with the parent.
        runner = _EventLoopRunner()
        while work := self._next_work():
            if isinstance(work, _SinkTask):
                self._call_guarded(runner, work, runner, work.name)
            elif self._submit_many is not None:
                self._call_guarded(runner, self._submit_many, work)
            else:
                for evaluation in work:
                    self._call_guarded(runner, self._submit_one, evaluation)
        self._call_guarded(runner, _EventLoopRunner.close, runner)

    def _next_work(self) -> list[Evaluation] | _SinkTask:
        """Waits for the next work; returns an empty list after shutdown."""
        with self._lock:
            self._busy = False
            if not self._queue:
                self._idle.notify_all()
            while not (self._queue or self._tasks or self._closed):
                self._has_work.wait()
            if self._tasks and not self._queue:
                return self._tasks.popleft()
            self._busy = bool(self._queue)
            return [self._queue.popleft() for _ in range(min(MAX_BATCH_SIZE, len(self._queue)))]

    def _call_guarded(
        self, runner: _EventLoopRunner, call: Callable[..., Any], argument: object, action: str | None = None
    ) -> None:
        try:
            runner.resolve(call(argument))
        except BaseException as error:  # noqa: BLE001 - an exception of a sink must not end the thread
            _guard.report_error(action or f"submit to {self.name}", error)


class _SinkTask:
    """A call for the thread, with its result; `result` is `False` if it failed."""

    def __init__(self, name: str, do: Callable[[], Any]) -> None:
        self.name = name
        self._do = do
        self.result: object = False
        self.done = threading.Event()

    def __call__(self, runner: _EventLoopRunner) -> None:
        try:
            self.result = runner.resolve(self._do())
        finally:
            self.done.set()


class _EventLoopRunner:
    """Runs awaitables in one event loop, so that connections stay usable between calls."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def resolve(self, returned: object) -> object:
        """Awaits the value if it is awaitable, and returns the result."""
        if not inspect.isawaitable(returned):
            return returned
        if self._loop is None:
            import asyncio

            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(_await_result(returned))

    def close(self) -> None:
        """Cancels the remaining tasks, as `asyncio.run` does."""
        if self._loop is None:
            return
        import asyncio

        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.wait(tasks) if tasks else asyncio.sleep(0))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


async def _await_result(awaitable: Any) -> object:
    return await awaitable


def submit_function(sink: SinkLike) -> Callable[[Evaluation], Any]:
    """Returns the function that receives evaluations: the `submit` method of a sink, or the function itself.

    Raises `ConfigurationError` for anything else, for a class instead of an instance, and for a function that cannot be
    called with exactly one argument.
    """
    if isinstance(sink, str):
        raise ConfigurationError(_sink_name_error(sink))
    if inspect.isclass(sink):
        raise ConfigurationError(f"the sink {sink.__name__} is a class; pass an instance: {sink.__name__}(...)")
    submit = getattr(sink, "submit", None)
    if callable(submit):
        _check_one_parameter(submit, f"{type(sink).__name__}.submit")
        return submit  # type: ignore[no-any-return]
    if callable(sink):
        _check_one_parameter(sink, getattr(sink, "__name__", type(sink).__name__))
        return sink
    raise ConfigurationError(_not_a_sink_error(sink))


def _check_one_parameter(function: Callable[..., Any], name: str) -> None:
    """Raises `ConfigurationError` unless the function can be called with one evaluation."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some builtins have no signature
        return
    try:
        signature.bind(None)
    except TypeError:
        raise ConfigurationError(
            f"the sink {name}{signature} cannot be called with one argument; write {name}(evaluation)"
        ) from None


def _not_a_sink_error(sink: object) -> str:
    from goldspan.goldens.spelling import nearest_word  # loads rapidfuzz, which only mistakes need

    methods = [name for name in dir(type(sink)) if not name.startswith("_")]
    nearest = nearest_word("submit", methods)
    hint = f" Its method {nearest!r} is probably meant: rename it to 'submit'." if nearest else ""
    return (
        f"the sink {type(sink).__name__} is neither a function of an evaluation nor an object with a method "
        f"submit(evaluation).{hint}"
    )


def _sink_name_error(name: str) -> str:
    from goldspan.goldens.spelling import nearest_word  # loads rapidfuzz, which only mistakes need

    nearest = nearest_word(name.partition(":")[0], _SINK_CLASSES)
    hint = f" Did you mean {_SINK_CLASSES[nearest]}?" if nearest else ""
    return (
        f"the sink {name!r} is a name, which only GOLDSPAN_SINKS and instrument() accept; pass a sink or a function "
        f"of an evaluation.{hint}"
    )


_SINK_CLASSES = {
    "events": "goldspan.sinks.EventSink()",
    "metrics": "goldspan.sinks.MetricSink()",
    "figures": "goldspan.online.pass_rate_sink.PassRateSink()",
    "spans": "goldspan.sinks.SpanSink()",
    "jsonl": "goldspan.sinks.JsonLinesSink(path)",
    "store": "goldspan.store.open_store(path)",
}
"""The names in `GOLDSPAN_SINKS`, and what to write in code instead."""


class FunctionSink:
    """Calls a function with each evaluation, on the thread that ended the run's span; it must be fast.

    Raises:
        ConfigurationError: If it is not callable, or is a coroutine function, which needs a `BackgroundSink`.
    """

    def __init__(self, function: Callable[[Evaluation], Any]) -> None:
        if not callable(function):
            raise ConfigurationError(f"FunctionSink needs a function of an evaluation, not {type(function).__name__}")
        if is_async_callable(function):
            raise ConfigurationError(_async_function_error(function))
        self._function = function

    def submit(self, evaluation: Evaluation) -> None:
        """Calls the function and ignores its return value. An exception is counted and logged by the caller.

        Raises `ConfigurationError` if the function returns a coroutine.
        """
        returned = self._function(evaluation)
        if inspect.iscoroutine(returned):
            returned.close()
            raise ConfigurationError(_async_function_error(self._function))


def _async_function_error(function: Callable[..., Any]) -> str:
    return (
        f"FunctionSink would never await {getattr(function, '__name__', 'that coroutine function')}: "
        "pass it to goldspan.sinks.BackgroundSink, which has an event loop"
    )


def as_sink(sink_like: SinkLike) -> Sink:
    """Returns a sink unchanged, a function as a `FunctionSink`, and anything asynchronous in a `BackgroundSink`.

    Raises `ConfigurationError` for a sink that is declared wrongly; see `submit_function`.
    """
    submit = submit_function(sink_like)
    if is_async_callable(submit):
        return BackgroundSink(sink_like)
    return FunctionSink(sink_like) if submit is sink_like else sink_like  # type: ignore[return-value]


def is_async_callable(function: Callable[..., Any]) -> bool:
    """Returns whether calling it returns a coroutine, as far as its type shows."""
    call_method = getattr(type(function), "__call__", None)  # noqa: B004 - its kind matters, not its existence
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call_method)
