"""One daemon thread that takes up what an application's threads leave for it, so that these need not wait."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from goldspan._guard import suppress_errors

_MAX_STEP_S = 5.0
"""Seconds. Whoever watches deadlines looks once a second or more often: a longer gap is one in which nothing ran."""


class AwakeClock:
    """Seconds since it was made, without those for which the process was frozen between two readings.

    Serverless platforms freeze a process when a request is answered: what was in flight then has not grown old when
    the next request thaws it.
    """

    __slots__ = ("_before", "_elapsed", "_monotonic")

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._before = monotonic()
        self._elapsed = 0.0

    def now(self) -> float:
        """The time in seconds; never less than before."""
        reading = self._monotonic()
        self._elapsed += max(0.0, min(reading - self._before, _MAX_STEP_S))
        self._before = reading
        return self._elapsed


T = TypeVar("T")

_BATCH_DELAY_S = 0.1
"""How long the first item waits for company: the thread then wakes once for many."""
_ALIVE_CHECK_S = 0.25
"""How often somebody who waits for the thread looks whether it still lives."""
_IDLE_ROUNDS = 5
"""After so many times without anything to do deadlines are looked at, and where nothing waits for one, it sleeps."""
_WORKING = suppress_errors("work in the background")


class BackgroundWorker(Generic[T]):
    """Works on what is `put`, in order and one at a time; and looks at deadlines, as long as there are any.

    `look` is called now and then and says whether it wants to be called again. The thread starts with the first item
    and, in a forked child, anew. Exceptions of both are counted and logged by the guard.
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
        """Whether nobody looks at deadlines, because nothing waited for one when somebody looked last."""

    def __len__(self) -> int:
        """How many items wait."""
        return len(self._queue)

    def put(self, item: T) -> bool:
        """Leave something to be done; `False` where too much waits already. Costs a fifth of a microsecond."""
        queue = self._queue
        if len(queue) >= self._max_queue or self._stopped:
            return False
        queue.append(item)
        if self.is_asleep:
            self.wake()
        return True

    def wake(self) -> None:
        """See to it that the thread runs and looks."""
        if self._thread is None:
            self._start()
        self.is_asleep = False
        self._wake.set()

    def flush(self, timeout: float) -> bool:
        """Wait until everything put before is done, at most so many seconds; whether it is."""
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
            if not thread.is_alive():  # it was stopped meanwhile
                self._drain()
            elif time.monotonic() >= until:
                return False
        return True

    def stop(self, timeout: float) -> None:
        """Do what was put before, on this thread where the other one is gone, and take nothing more."""
        thread = self._thread
        self._stopped = True
        self._flush_requested.set()
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)
        if thread is None or not thread.is_alive():
            self._drain()

    def reset(self) -> None:
        """Begin anew: in a forked child there is no thread, and what waits is the parent's."""
        self._initialize()

    def _start(self) -> None:
        with self._start_lock:
            if self._thread is None and not self._stopped:
                thread = threading.Thread(target=self._run, name="goldspan", daemon=True)
                self._thread = thread
                try:
                    thread.start()
                except RuntimeError:  # the interpreter is shutting down: `stop` does the work
                    self._thread = None

    def _run(self) -> None:
        rests = 0
        while not self._stopped:
            if self.is_asleep and not self._queue:  # whoever puts something from now on wakes us
                self._wake.wait()
            self._wake.clear()
            self.is_asleep = False
            self._flush_requested.wait(_BATCH_DELAY_S)
            self._flush_requested.clear()
            rests = 0 if self._queue else rests + 1
            self._drain()
            if rests == 0:
                with _WORKING:
                    self._check_deadlines()
            elif rests >= _IDLE_ROUNDS:
                rests = 0
                self._sleep_if_idle()

    def _sleep_if_idle(self) -> None:
        """Sleep, unless anything waits for its time; whoever adds something while we look will wake us."""
        self.is_asleep = waits = True
        with _WORKING:
            waits = self._check_deadlines()
        if waits:
            self.is_asleep = False

    def _drain(self) -> None:
        """Work until nothing waits. Between two items the application's threads have their turn."""
        queue = self._queue
        with self._process_lock:
            while queue:
                item = queue.popleft()
                if isinstance(item, threading.Event):
                    item.set()
                    continue
                with _WORKING:
                    self._process(item)
                time.sleep(0)
