"""What a request waits for at a door: its body, in time; the commit of its entry; and counts, which wait for others."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, deque
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from goldspan.gateway.intake.answers import Answer, Refused

if TYPE_CHECKING:
    from goldspan.gateway.counting import Counting

FLUSH_SECONDS = 0.5
"""How long counts are kept before they are added to the counters: that costs as much as reading ten spans."""

_ROUND_SECONDS = 0.01
_ROUNDS = 4
"""When a body is late, the event loop may be: so many rounds without anything of it say that it is the body."""
_MOST_ROUNDS = 100


class Deadline:
    """Around what must come from a client in time: raises `Refused` 408 where it does not, or what it is ended with.

    `asyncio.timeout` does the same from Python 3.11 on. But a loop that lags sees the time before what has arrived:
    what has is taken first.
    """

    __slots__ = ("_answer", "_handle", "_rounds", "_seconds", "_still", "_task", "moved")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._answer: Answer | None = None
        self._rounds = self._still = 0
        self.moved = False
        """For whoever waits to say that something came."""

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._handle = asyncio.get_running_loop().call_later(self._seconds, self._expire)

    def _expire(self) -> None:
        self._rounds += 1
        self._still = 0 if self.moved else self._still + 1
        self.moved = False
        if self._still > _ROUNDS or self._rounds > _MOST_ROUNDS:
            message = f"the body did not arrive within {self._seconds:g} seconds (body_seconds)"
            self.end(Answer(408, message, limit="body_seconds"))
        else:
            self._handle = asyncio.get_running_loop().call_later(_ROUND_SECONDS, self._expire)

    def end(self, answer: Answer) -> None:
        """Wait no longer, and refuse."""
        if self._answer is None:
            self._answer = answer
            self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._handle.cancel()
        if self._answer is not None and kind is not None and issubclass(kind, asyncio.CancelledError):
            if sys.version_info >= (3, 11):  # a task counts who wants it cancelled
                self._task.uncancel()
            raise Refused(self._answer) from None


class Commits:
    """Waits for commits of the journal's thread: all that one transaction held wake the loop up once."""

    def __init__(self) -> None:
        self._settled: deque[tuple[asyncio.Future[None], BaseException | None]] = deque()
        self._woken = False

    def wait(self, commit: Future[int]) -> asyncio.Future[None]:
        """Done, or failed, when the commit is. To give up waiting for it does not cancel it."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        commit.add_done_callback(lambda done: self._settle(loop, waiter, done.exception()))
        return waiter

    def _settle(
        self, loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None], error: BaseException | None
    ) -> None:
        self._settled.append((waiter, error))
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):  # the loop is closed: nobody waits any longer
                loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._woken = False  # first, so that what is settled from here on wakes the loop up again
        while self._settled:
            waiter, error = self._settled.popleft()
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)


class Counts:
    """Counts of many requests, added to the counters together: a counter of OpenTelemetry costs microseconds."""

    def __init__(self, counting: Counting) -> None:
        self._counting = counting
        self._kept: Counter[tuple[str, tuple[tuple[str, str | int], ...]]] = Counter()

    def add(self, name: str, number: int, **labels: str | int) -> None:
        """Count so many more, soon."""
        if not self._kept:
            asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)
        self._kept[name, tuple(labels.items())] += number

    def flush(self) -> None:
        """Count what was kept, now."""
        kept, self._kept = self._kept, Counter()
        for (name, labels), number in kept.items():
            self._counting.add(name, number, **dict(labels))
