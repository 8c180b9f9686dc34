"""One daemon thread that takes up what an application's threads leave for it, so that these need not wait."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from goldspan._guard import guard

T = TypeVar("T")

_GATHER_S = 0.1
"""How long the first item waits for company: the thread then wakes once for many."""
_PULSE_S = 0.25
"""How often somebody who waits for the thread looks whether it still lives."""
_RESTS = 5
"""After so many times without anything to do deadlines are looked at, and where nothing waits for one, it sleeps."""
_WORKING = guard("work in the background")


class Worker(Generic[T]):
    """Works on what is `put`, in order and one at a time; and looks at deadlines, as long as there are any.

    `look` is called now and then and says whether it wants to be called again. The thread starts with the first item
    and, in a forked child, anew. Exceptions of both are counted and logged by the guard.
    """

    def __init__(self, work: Callable[[T], None], look: Callable[[], bool], *, max_queue: int = 50_000) -> None:
        self._work = work
        self._look = look
        self._max_queue = max_queue
        self._make()

    def _make(self) -> None:
        self._queue: deque[T | threading.Event] = deque()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._working = threading.Lock()
        self._wake = threading.Event()
        self._hurry = threading.Event()
        self._stopped = False
        self.asleep = True
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
        if self.asleep:
            self.wake()
        return True

    def wake(self) -> None:
        """See to it that the thread runs and looks."""
        if self._thread is None:
            self._start()
        self.asleep = False
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
        self._hurry.set()
        self._wake.set()
        until = time.monotonic() + timeout
        while not done.wait(max(0.0, min(_PULSE_S, until - time.monotonic()))):
            if not thread.is_alive():  # it was stopped meanwhile
                self._drain()
            elif time.monotonic() >= until:
                return False
        return True

    def stop(self, timeout: float) -> None:
        """Do what was put before, on this thread where the other one is gone, and take nothing more."""
        thread = self._thread
        self._stopped = True
        self._hurry.set()
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)
        if thread is None or not thread.is_alive():
            self._drain()

    def forget(self) -> None:
        """Begin anew: in a forked child there is no thread, and what waits is the parent's."""
        self._make()

    def _start(self) -> None:
        with self._starting:
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
            if self.asleep and not self._queue:  # whoever puts something from now on wakes us
                self._wake.wait()
            self._wake.clear()
            self.asleep = False
            self._hurry.wait(_GATHER_S)
            self._hurry.clear()
            rests = 0 if self._queue else rests + 1
            self._drain()
            if rests == 0:
                with _WORKING:
                    self._look()
            elif rests >= _RESTS:
                rests = 0
                self._fall_asleep()

    def _fall_asleep(self) -> None:
        """Sleep, unless anything waits for its time; whoever adds something while we look will wake us."""
        self.asleep = waits = True
        with _WORKING:
            waits = self._look()
        if waits:
            self.asleep = False

    def _drain(self) -> None:
        """Work until nothing waits. Between two items the application's threads have their turn."""
        queue = self._queue
        with self._working:
            while queue:
                item = queue.popleft()
                if isinstance(item, threading.Event):
                    item.set()
                    continue
                with _WORKING:
                    self._work(item)
                time.sleep(0)
