"""Any function of an evaluation as a sink, and whatever people give for a sink as one."""

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
"""So many evaluations at most are handed to `submit_many` at once."""


class BackgroundSink:
    """Hands evaluations to another sink, or to a function, on one daemon thread.

    `submit` only puts them in a queue. When that holds `max_queue` of them, the newest is dropped and counted in
    `goldspan.sink.dropped` under `name`, by default the type of the sink: what is under way is not disturbed. A sink
    that has `submit_many(evaluations)` gets lists, any other one evaluation at a time, in the order of submission.
    Coroutine functions, and `submit`, `submit_many`, `force_flush` and `shutdown` where they are such, run one after
    another in an event loop of the thread's.

    What the sink raises is counted and logged; the thread goes on. `force_flush` and `shutdown` wait for what is in
    the queue; what is there when the process ends without either is lost. After a fork the parent's queue stays with
    the parent, and the child's thread begins with the first evaluation submitted there.

    Raises `ConfigurationError` for what is neither a sink nor a function, and for a queue without room.
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
            raise ConfigurationError(f"max_queue is a number of at least 1, not {max_queue}")
        self._submit_many: Callable[[list[Evaluation]], Any] | None = getattr(sink, "submit_many", None)
        self._sink = sink
        self._max_queue = max_queue
        self.name = name or getattr(sink, "__name__", type(sink).__name__)
        """What it is called in counters and in the log."""
        self._dropped = drop_counter(semconv.SINK_DROPPED_COUNTER, meter_provider)
        self._closed = False
        self.renew()
        renew_after_fork(self)

    def submit(self, evaluation: Evaluation) -> None:
        """Put an evaluation into the queue; never waits for the sink."""
        with self._lock:
            room = len(self._queue) < self._max_queue and not self._closed
            if room:
                self._queue.append(evaluation)
                self._wake_thread()
        if not room:
            self._count_dropped(1)

    def adopt(self, goldens: Goldens) -> None:
        """Tell the sink at once, on the calling thread, by which goldens runs are judged from now on."""
        sink_protocol.adopt((self._sink,), goldens)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Wait until the sink has everything, and flush it too; `False` where the time did not suffice."""
        until = time.monotonic() + timeout_millis / 1000
        with self._lock:
            if threading.current_thread() is self._thread:  # the sink itself asks: it would wait for its own return
                return False
            if self._queue:
                self._wake_thread()
            if not self._idle.wait_for(self._is_idle, timeout_millis / 1000):
                return False
        left_millis = max(0, int((until - time.monotonic()) * 1000))
        if not self._is_async_method("force_flush"):
            return sink_protocol.flush_all((self._sink,), left_millis)
        with self._lock:
            errand = None if self._closed else self._schedule("force_flush", left_millis)
        return errand is None or (errand.done.wait(left_millis / 1000) and errand.result is not False)

    def shutdown(self, timeout_millis: int = 30_000) -> None:
        """Take nothing more, wait until the sink has everything, and shut it down too; what is left over is dropped."""
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
        """Begin with nothing in the queue: what is in it belongs to the process that this one was forked from."""
        self._lock = threading.RLock()
        self._has_work = threading.Condition(self._lock)
        self._idle = threading.Condition(self._lock)
        self._queue: deque[Evaluation] = deque()
        self._tasks: deque[_SinkTask] = deque()
        self._busy = False
        self._thread: threading.Thread | None = None

    def _wake_thread(self) -> None:
        """Have somebody look after the queue; the lock is held."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name=f"goldspan {self.name}", daemon=True)
            self._thread.start()
        self._has_work.notify()

    def _schedule(self, method: str, *arguments: object) -> _SinkTask:
        """Have the thread call another method of the sink when the queue is empty; the lock is held."""
        errand = _SinkTask(f"{method} of {self.name}", partial(getattr(self._sink, method), *arguments))
        self._tasks.append(errand)
        self._wake_thread()
        return errand

    def _is_async_method(self, method: str) -> bool:
        return inspect.iscoroutinefunction(getattr(self._sink, method, None))

    def _is_idle(self) -> bool:
        return not self._queue and not self._busy

    def _count_dropped(self, count: int) -> None:
        self._dropped.add(count, {semconv.SINK_LABEL: self.name})

    # --- on the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        # The loop lives in this frame alone. A forked child, which has no such frame, must never come to close it: the
        # two processes share what it waits on.
        waiter = _EventLoopRunner()
        while batch := self._next_work():
            if isinstance(batch, _SinkTask):
                self._call_guarded(waiter, batch, waiter, batch.name)
            elif self._submit_many is not None:
                self._call_guarded(waiter, self._submit_many, batch)
            else:
                for evaluation in batch:
                    self._call_guarded(waiter, self._submit_one, evaluation)
        self._call_guarded(waiter, _EventLoopRunner.close, waiter)

    def _next_work(self) -> list[Evaluation] | _SinkTask:
        """What is to be done next; nothing after the end."""
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
        self, waiter: _EventLoopRunner, take: Callable[..., Any], what: object, action: str | None = None
    ) -> None:
        try:
            waiter.resolve(take(what))
        except BaseException as error:  # noqa: BLE001 - nobody is above this thread, and nothing may end it
            _guard.report_error(action or f"submit to {self.name}", error)


class _SinkTask:
    """What the thread is to do besides, and what came of it; `answer` is `False` where it failed."""

    def __init__(self, name: str, do: Callable[[], Any]) -> None:
        self.name = name
        self._do = do
        self.result: object = False
        self.done = threading.Event()

    def __call__(self, waiter: _EventLoopRunner) -> None:
        try:
            self.result = waiter.resolve(self._do())
        finally:
            self.done.set()


class _EventLoopRunner:
    """Waits for what asynchronous functions return, in one loop, so that connections they keep stay good."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def resolve(self, returned: object) -> object:
        """What comes of it; what need not be awaited is that itself."""
        if not inspect.isawaitable(returned):
            return returned
        if self._loop is None:
            import asyncio

            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(_await_result(returned))

    def close(self) -> None:
        """Cancel what they left running, as `asyncio.run` does."""
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
    """What takes an evaluation: the method of a sink, or the function itself.

    Raises `ConfigurationError` for what is neither, and for a class in place of an instance.
    """
    if inspect.isclass(sink):
        raise ConfigurationError(f"{sink.__name__} is a class and no sink yet; write {sink.__name__}(...)")
    submit = getattr(sink, "submit", None)
    if callable(submit):
        return submit  # type: ignore[no-any-return]
    if callable(sink):
        return sink
    raise ConfigurationError(
        f"a sink is a function of an evaluation or has a method submit(evaluation), unlike {type(sink).__name__}"
    )


class FunctionSink:
    """Calls a function with every evaluation, on the thread that ended the run's span: it should be quick.

    Raises `ConfigurationError` for what cannot be called, and for a coroutine function, which a `BackgroundSink` takes.
    """

    def __init__(self, function: Callable[[Evaluation], Any]) -> None:
        if not callable(function):
            raise ConfigurationError(f"CallableSink takes a function of an evaluation, not {type(function).__name__}")
        if is_async_callable(function):
            raise ConfigurationError(_async_function_error(function))
        self._function = function

    def submit(self, evaluation: Evaluation) -> None:
        """Call the function; what it returns is of no interest, what it raises is counted and logged.

        Raises `ConfigurationError` where that turns out to be a coroutine.
        """
        returned = self._function(evaluation)
        if inspect.iscoroutine(returned):
            returned.close()
            raise ConfigurationError(_async_function_error(self._function))


def _async_function_error(function: Callable[..., Any]) -> str:
    return (
        f"CallableSink would never await {getattr(function, '__name__', 'that coroutine function')}: "
        "give it to goldspan.sinks.BackgroundSink, which has an event loop"
    )


def as_sink(sink_like: SinkLike) -> Sink:
    """A sink as it is, a function as a `CallableSink`, and what is asynchronous in a `BackgroundSink` of its own.

    Raises `ConfigurationError` for what is neither a sink nor a function, and for a class in place of an instance.
    """
    take = submit_function(sink_like)
    if is_async_callable(take):
        return BackgroundSink(sink_like)
    return FunctionSink(sink_like) if take is sink_like else sink_like  # type: ignore[return-value]


def is_async_callable(function: Callable[..., Any]) -> bool:
    """Whether calling it makes a coroutine, as far as it shows."""
    called = getattr(type(function), "__call__", None)  # noqa: B004 - not whether it can be called, but how
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
