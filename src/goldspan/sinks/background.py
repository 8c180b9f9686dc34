"""A slow sink at work on a thread of its own, behind a queue that never grows beyond its bound."""

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
from goldspan.sinks import protocol
from goldspan.sinks.forking import renew_in_forked_children
from goldspan.sinks.losses import loss_counter
from goldspan.sinks.protocol import SinkLike

if TYPE_CHECKING:
    import asyncio  # slow to load, and most sinks have no use for it

BATCH = 512
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
        self._take = taker_of(sink)
        if max_queue < 1:
            raise ConfigurationError(f"max_queue is a number of at least 1, not {max_queue}")
        self._take_many: Callable[[list[Evaluation]], Any] | None = getattr(sink, "submit_many", None)
        self._sink = sink
        self._most = max_queue
        self.name = name or getattr(sink, "__name__", type(sink).__name__)
        """What it is called in counters and in the log."""
        self._drops = loss_counter(semconv.SINK_DROPPED_COUNTER, meter_provider)
        self._closed = False
        self.renew()
        renew_in_forked_children(self)

    def submit(self, evaluation: Evaluation) -> None:
        """Put an evaluation into the queue; never waits for the sink."""
        with self._lock:
            room = len(self._queue) < self._most and not self._closed
            if room:
                self._queue.append(evaluation)
                self._see_to_it()
        if not room:
            self._count_dropped(1)

    def adopt(self, goldens: Goldens) -> None:
        """Tell the sink at once, on the calling thread, by which goldens runs are judged from now on."""
        protocol.adopt((self._sink,), goldens)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Wait until the sink has everything, and flush it too; `False` where the time did not suffice."""
        until = time.monotonic() + timeout_millis / 1000
        with self._lock:
            if threading.current_thread() is self._thread:  # the sink itself asks: it would wait for its own return
                return False
            if self._queue:
                self._see_to_it()
            if not self._idle.wait_for(self._is_idle, timeout_millis / 1000):
                return False
        left_millis = max(0, int((until - time.monotonic()) * 1000))
        if not self._awaits("force_flush"):
            return protocol.flush((self._sink,), left_millis)
        with self._lock:
            errand = None if self._closed else self._send("force_flush", left_millis)
        return errand is None or (errand.done.wait(left_millis / 1000) and errand.answer is not False)

    def shutdown(self, timeout_millis: int = 30_000) -> None:
        """Take nothing more, wait until the sink has everything, and shut it down too; what is left over is dropped."""
        awaits = self._awaits("shutdown")
        with self._lock:
            if awaits and not self._closed:
                self._send("shutdown")
            self._closed = True
            thread = self._thread
            self._more.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_millis / 1000)
        with self._lock:
            left = len(self._queue)
            self._queue.clear()
        if left:
            self._count_dropped(left)
        if not awaits:
            protocol.shutdown((self._sink,))

    def renew(self) -> None:
        """Begin with nothing in the queue: what is in it belongs to the process that this one was forked from."""
        self._lock = threading.RLock()
        self._more = threading.Condition(self._lock)
        self._idle = threading.Condition(self._lock)
        self._queue: deque[Evaluation] = deque()
        self._errands: deque[_Errand] = deque()
        self._busy = False
        self._thread: threading.Thread | None = None

    def _see_to_it(self) -> None:
        """Have somebody look after the queue; the lock is held."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._work, name=f"goldspan {self.name}", daemon=True)
            self._thread.start()
        self._more.notify()

    def _send(self, method: str, *arguments: object) -> _Errand:
        """Have the thread call another method of the sink when the queue is empty; the lock is held."""
        errand = _Errand(f"{method} of {self.name}", partial(getattr(self._sink, method), *arguments))
        self._errands.append(errand)
        self._see_to_it()
        return errand

    def _awaits(self, method: str) -> bool:
        return inspect.iscoroutinefunction(getattr(self._sink, method, None))

    def _is_idle(self) -> bool:
        return not self._queue and not self._busy

    def _count_dropped(self, count: int) -> None:
        self._drops.add(count, {semconv.SINK_LABEL: self.name})

    # --- on the thread ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        # The loop lives in this frame alone. A forked child, which has no such frame, must never come to close it: the
        # two processes share what it waits on.
        waiter = _Waiter()
        while batch := self._next():
            if isinstance(batch, _Errand):
                self._attempt(waiter, batch, waiter, batch.name)
            elif self._take_many is not None:
                self._attempt(waiter, self._take_many, batch)
            else:
                for evaluation in batch:
                    self._attempt(waiter, self._take, evaluation)
        self._attempt(waiter, _Waiter.close, waiter)

    def _next(self) -> list[Evaluation] | _Errand:
        """What is to be done next; nothing after the end."""
        with self._lock:
            self._busy = False
            if not self._queue:
                self._idle.notify_all()
            while not (self._queue or self._errands or self._closed):
                self._more.wait()
            if self._errands and not self._queue:
                return self._errands.popleft()
            self._busy = bool(self._queue)
            return [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]

    def _attempt(self, waiter: _Waiter, take: Callable[..., Any], what: object, action: str | None = None) -> None:
        try:
            waiter.wait_for(take(what))
        except BaseException as error:  # noqa: BLE001 - nobody is above this thread, and nothing may end it
            _guard.report(action or f"submit to {self.name}", error)


class _Errand:
    """What the thread is to do besides, and what came of it; `answer` is `False` where it failed."""

    def __init__(self, name: str, do: Callable[[], Any]) -> None:
        self.name = name
        self._do = do
        self.answer: object = False
        self.done = threading.Event()

    def __call__(self, waiter: _Waiter) -> None:
        try:
            self.answer = waiter.wait_for(self._do())
        finally:
            self.done.set()


class _Waiter:
    """Waits for what asynchronous functions return, in one loop, so that connections they keep stay good."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def wait_for(self, returned: object) -> object:
        """What comes of it; what need not be awaited is that itself."""
        if not inspect.isawaitable(returned):
            return returned
        if self._loop is None:
            import asyncio

            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(_outcome(returned))

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


async def _outcome(awaitable: Any) -> object:
    return await awaitable


def taker_of(sink: SinkLike) -> Callable[[Evaluation], Any]:
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
