"""A judge at work while the application goes on: on a thread of its own, behind a queue that is bounded."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from goldspan import _guard
from goldspan.judge.judges import Judge
from goldspan.judge.threads import JudgeThread
from goldspan.model import Evaluation
from goldspan.sinks.forking import renew_in_forked_children

_LAST_S = 2.0


class BackgroundJudge:
    """Has evaluations judged by one daemon thread, several at once, and gives each verdict to `deliver`.

    `deliver` is called on that thread with the evaluation that now has the score `tool_selection`. What is submitted
    beyond `judge.max_queue`, or waits still when it is shut down, is dropped and counted. Nothing here raises, and
    nothing waits but `force_flush` and `shutdown`. A forked child begins anew.
    """

    def __init__(self, judge: Judge, deliver: Callable[[Evaluation], object]) -> None:
        self.judge = judge
        self._deliver = deliver
        self._begin_anew()
        renew_in_forked_children(self)

    def renew(self) -> None:
        """Begin with nothing: what waits belongs to the process that this one was forked from."""
        _of_parents.append(self._thread)
        self.judge.renew()
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._waiting = 0
        self._closed = False
        self._thread: JudgeThread | None = None

    def submit(self, evaluation: Evaluation) -> bool:
        """Have an evaluation judged; whether there was room for it."""
        with self._changed:
            taken = not self._closed and self._waiting < self.judge.max_queue
            if taken:
                if self._thread is None or not self._thread.is_alive:
                    self._thread = JudgeThread(self.judge)
                self._waiting += 1
                self._thread.evaluate(evaluation).add_done_callback(self._done)
        if not taken:
            self.judge.counting.dropped()
        return taken

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Wait until every verdict that is asked for was delivered; `False` where the time did not suffice."""
        with self._changed:
            if self._thread is not None and self._thread.is_current:  # it would wait for its own return
                return False
            return self._changed.wait_for(self._is_idle, timeout_millis / 1000)

    def shutdown(self, timeout: float) -> None:
        """Take nothing more, and wait so many seconds for what is asked already; the rest is dropped."""
        until = time.monotonic() + timeout
        with self._changed:
            self._closed = True
            thread = self._thread
            if thread is not None and not thread.is_current:
                self._changed.wait_for(self._is_idle, timeout)
        if thread is not None:
            thread.stop(max(0.0, until - time.monotonic()) + _LAST_S)
        self.judge.close()

    def _is_idle(self) -> bool:
        return not self._waiting

    def _done(self, asked: Future[Evaluation]) -> None:
        """On the judge's thread: hand on what came of it."""
        try:
            if asked.cancelled():
                self.judge.counting.dropped()
            else:
                self._deliver(asked.result())
        except Exception as error:  # noqa: BLE001 - what a sink raises costs this verdict alone
            _guard.report("deliver a verdict", error)
        finally:
            with self._changed:
                self._waiting -= 1
                self._changed.notify_all()


_of_parents: list[JudgeThread | None] = []
"""Threads of the parent process, of which a child has the loops. It must not even come to close them: both share what
they wait on."""
