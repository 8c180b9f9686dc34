"""A background thread with a queue, so that the application's threads need not wait for scoring."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from goldspan._guard import suppress_errors

_MAX_STEP_S = 5.0
"""Seconds. Deadlines are checked at least once a second; a longer gap means that the process was frozen."""


class AwakeClock:
    """Seconds since its creation, without the time for which the process was frozen between two readings.

    Serverless platforms freeze a process after a response: spans in flight must not age until the next request thaws
    it.
    """

    __slots__ = ("_before", "_elapsed", "_monotonic")

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._before = monotonic()
        self._elapsed = 0.0

    def now(self) -> float:
        """Returns the time in seconds; it never decreases."""
        reading = self._monotonic()
        self._elapsed += max(0.0, min(reading - self._before, _MAX_STEP_S))
        self._before = reading
        return self._elapsed


T = TypeVar("T")

_BATCH_DELAY_S = 0.1
"""Seconds for which the first item waits for others, so that the thread wakes up once for many items."""
_ALIVE_CHECK_S = 0.25
"""Seconds between two checks by `flush` whether the thread is alive."""
_IDLE_ROUNDS = 5
"""After this number of rounds without items the thread checks the deadlines, and sleeps if there are none."""
_YIELD_INTERVAL_S = 0.0005
"""Seconds of work after which the thread yields. A thread that waits for the interpreter would otherwise wait for
`sys.getswitchinterval()`, 5 ms. Yielding after every item takes 40 % of the time of scoring a request, and the other
threads wait as long: 0.8 ms in one case of ten."""
_WORKING = suppress_errors("work in the background")


class BackgroundWorker(Generic[T]):
    """Processes queued items in order on one daemon thread, and checks deadlines while there are any.

    `check_deadlines` is called from time to time and returns whether it needs to be called again. The thread starts
    with the first item, also in a forked child. Exceptions of both callbacks are counted and logged.
    """

    def __init__(
        self, process: Callable[[T], None], check_deadlines: Callable[[], bool], *, max_queue: int = 50_000
    ) -> None:
        self._process = process
        self._check_deadlines = check_deadlines
        self._max_queue = max_queue
        self._initialize()

    def _initialize(self) -> None:
        self._queue: deque[T | threading.Event] = deque()
        self._thread: threading.Thread | None = None
        self._start_lock = threading.Lock()
        self._process_lock = threading.Lock()
        self._wake = threading.Event()
        self._flush_requested = threading.Event()
        self._stopped = False
        self.is_asleep = True
        """Whether the thread sleeps, because no deadline was pending at its last check."""

    def __len__(self) -> int:
        """Returns the number of queued items."""
        return len(self._queue)

    def put(self, item: T) -> bool:
        """Adds an item to the queue; returns `False` if the queue is full. Takes a fifth of a microsecond."""
        queue = self._queue
        if len(queue) >= self._max_queue or self._stopped:
            return False
        queue.append(item)
        if self.is_asleep:
            self.wake()
        return True

    def wake(self) -> None:
        """Starts or wakes the thread."""
        if self._thread is None:
            self._start()
        self.is_asleep = False
        self._wake.set()

    def flush(self, timeout: float) -> bool:
        """Waits until all queued items are processed, up to `timeout` seconds. Returns `False` on timeout."""
        thread = self._thread
        if thread is None or not thread.is_alive():
            self._drain()
        if thread is None or not thread.is_alive() or thread is threading.current_thread():
            return True
        done = threading.Event()
        self._queue.append(done)
        self._flush_requested.set()
        self._wake.set()
        until = time.monotonic() + timeout
        while not done.wait(max(0.0, min(_ALIVE_CHECK_S, until - time.monotonic()))):
            if not thread.is_alive():  # it was stopped during the wait
                self._drain()
            elif time.monotonic() >= until:
                return False
        return True

    def stop(self, timeout: float) -> None:
        """Processes the queued items, on this thread if the worker thread is not alive, and accepts no more."""
        thread = self._thread
        self._stopped = True
        self._flush_requested.set()
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)
        if thread is None or not thread.is_alive():
            self._drain()

    def reset(self) -> None:
        """Resets the state: a forked child has no worker thread, and the queued items are the parent's."""
        self._initialize()

    def _start(self) -> None:
        with self._start_lock:
            if self._thread is None and not self._stopped:
                thread = threading.Thread(target=self._run, name="goldspan", daemon=True)
                self._thread = thread
                try:
                    thread.start()
                except RuntimeError:  # the interpreter is shutting down: `stop` processes the queue
                    self._thread = None

    def _run(self) -> None:
        idle_rounds = 0
        while not self._stopped:
            if self.is_asleep and not self._queue:  # `put` wakes the thread from now on
                self._wake.wait()
            self._wake.clear()
            self.is_asleep = False
            self._flush_requested.wait(_BATCH_DELAY_S)
            self._flush_requested.clear()
            idle_rounds = 0 if self._queue else idle_rounds + 1
            self._drain()
            if idle_rounds == 0:
                with _WORKING:
                    self._check_deadlines()
            elif idle_rounds >= _IDLE_ROUNDS:
                idle_rounds = 0
                self._sleep_if_idle()

    def _sleep_if_idle(self) -> None:
        """Sleeps unless a deadline is pending. An item added during the check wakes the thread."""
        self.is_asleep = has_deadlines = True
        with _WORKING:
            has_deadlines = self._check_deadlines()
        if has_deadlines:
            self.is_asleep = False

    def _drain(self) -> None:
        """Processes the queue until it is empty, and yields to the application's threads between items."""
        queue = self._queue
        with self._process_lock:
            yield_at = time.monotonic() + _YIELD_INTERVAL_S
            while queue:
                item = queue.popleft()
                if isinstance(item, threading.Event):
                    item.set()
                    continue
                with _WORKING:
                    self._process(item)
                if time.monotonic() >= yield_at:
                    time.sleep(0)
                    yield_at = time.monotonic() + _YIELD_INTERVAL_S
