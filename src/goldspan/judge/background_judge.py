"""Judges evaluations on a background thread, so that the application never waits for a model."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from goldspan import _guard
from goldspan.cases.case_evaluation import map_in_order
from goldspan.judge.judge import Judge
from goldspan.judge.judge_session import JudgeSession, open_session
from goldspan.model import Evaluation
from goldspan.sinks.fork_safety import renew_after_fork

_CLOSE_TIMEOUT_S = 1.0
"""Seconds that each step of closing the connections may take."""


class JudgeThread:
    """A daemon thread with an event loop and a session. It starts in the constructor and ends with the program."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._lock = threading.Lock()
        self._is_stopped = False
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._tasks: set[asyncio.Task[Any] | None] = set()
        """Tasks of evaluations. The HTTP client cancels its own tasks."""
        self._session_ready: asyncio.Future[JudgeSession] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="goldspan judge", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this thread."""
        return threading.current_thread() is self._thread

    def submit(self, evaluation: Evaluation) -> Future[Evaluation]:
        """Return a future of the evaluation with the score `tool_selection`; cancelled if the thread is stopped."""
        with self._lock:
            if not self._is_stopped:
                return asyncio.run_coroutine_threadsafe(self._judge_evaluation(evaluation), self._loop)
        cancelled: Future[Evaluation] = Future()
        cancelled.cancel()
        cancelled.set_running_or_notify_cancel()
        return cancelled

    def stop(self, timeout: float | None = None) -> None:
        """Cancel all evaluations, close the connections, and wait up to `timeout` seconds for the thread."""
        with self._lock:
            if not self._is_stopped:
                self._is_stopped = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        if not self.is_current:
            self._thread.join(timeout)

    # --- on the thread ------------------------------------------------------------------------------------------------

    async def _judge_evaluation(self, evaluation: Evaluation) -> Evaluation:
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            session = await asyncio.shield(self._session_ready)
            return await session.judge(evaluation)
        finally:
            self._tasks.discard(task)

    def _run(self) -> None:
        loop = self._loop
        keeper = loop.create_task(self._hold_session())
        self._run_reporting_errors(loop.run_forever)
        with self._lock:
            self._is_stopped = True
        for _ in range(len(asyncio.all_tasks(loop)) + 1):  # each task may raise an exception that stops the loop
            if self._run_reporting_errors(lambda: loop.run_until_complete(self._cancel_tasks(keeper))):
                break
        loop.close()

    def _run_reporting_errors(self, run: Callable[[], object]) -> bool:
        """Run a function of the loop and report its exception. Returns whether there was none."""
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - the thread has no caller
            _guard.report_error("end the judge's thread", error)
            return False
        return True

    async def _hold_session(self) -> None:
        """Keep the session open until the thread stops."""
        try:
            async with open_session(self._judge) as session:
                self._session_ready.set_result(session)
                await self._stopping.wait()
        except Exception as error:  # noqa: BLE001 - each evaluation gets it as its error
            if self._session_ready.done():
                _guard.report_error("close the judge's connections", error)
            else:
                self._session_ready.set_exception(error)
                self._session_ready.exception()  # so that asyncio does not log it if no evaluation waits

    async def _cancel_tasks(self, keeper: asyncio.Task[None]) -> None:
        await asyncio.sleep(0)  # lets tasks start that were submitted just before, so that they are cancelled too
        for task in filter(None, self._tasks):
            task.cancel()
        await asyncio.sleep(0)
        if remaining := asyncio.all_tasks() - {keeper, asyncio.current_task()}:
            await asyncio.wait(remaining, timeout=_CLOSE_TIMEOUT_S)
        self._stopping.set()
        await asyncio.wait({keeper}, timeout=_CLOSE_TIMEOUT_S)
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.get_running_loop().shutdown_asyncgens(), _CLOSE_TIMEOUT_S)


_STOP_TIMEOUT_S = 5.0


def judge_evaluations(evaluations: Iterable[Evaluation], judge: Judge) -> Generator[Evaluation, None, None]:
    """Yield each evaluation with the score `tool_selection`, in order.

    The judge's `concurrency` limits how many are judged at the same time; a few more are read from `evaluations` in
    advance. Closing or interrupting the generator cancels the pending ones.
    """
    thread = JudgeThread(judge)
    try:
        # One more than are judged at the same time, so that the next one starts while a result is yielded.
        yield from map_in_order(
            lambda evaluation: thread.submit(evaluation).result(), evaluations, concurrency=judge.concurrency + 1
        )
    finally:
        thread.stop(_STOP_TIMEOUT_S)


_STOP_GRACE_S = 2.0


class BackgroundJudge:
    """Judges evaluations on one daemon thread, several at the same time, and passes each result to `deliver`.

    `deliver` is called on that thread with the evaluation that has the score `tool_selection`. Evaluations beyond
    `judge.max_queue`, and those that are pending at shutdown, are dropped and counted. No method raises, and only
    `force_flush` and `shutdown` block. A forked child starts with an empty queue.
    """

    def __init__(self, judge: Judge, deliver: Callable[[Evaluation], object]) -> None:
        self.judge = judge
        self._deliver = deliver
        self._reset()
        renew_after_fork(self)

    def renew(self) -> None:
        """Start with an empty queue in a forked child: pending evaluations belong to the parent process."""
        _parent_threads.append(self._thread)
        self.judge.renew()
        self._reset()

    def _reset(self) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._pending = 0
        self._closed = False
        self._thread: JudgeThread | None = None

    def submit(self, evaluation: Evaluation) -> bool:
        """Queue an evaluation. Returns whether the queue accepted it."""
        with self._changed:
            accepted = not self._closed and self._pending < self.judge.max_queue
            if accepted:
                if self._thread is None or not self._thread.is_alive:
                    self._thread = JudgeThread(self.judge)
                self._pending += 1
                self._thread.submit(evaluation).add_done_callback(self._on_done)
        if not accepted:
            self.judge.counters.record_dropped()
        return accepted

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Wait until all results are delivered. Returns `False` on timeout."""
        with self._changed:
            if self._thread is not None and self._thread.is_current:  # a sink on this thread would wait for itself
                return False
            return self._changed.wait_for(self._is_idle, timeout_millis / 1000)

    def shutdown(self, timeout: float) -> None:
        """Accept no more evaluations, and wait up to `timeout` seconds for pending ones; the others are dropped."""
        until = time.monotonic() + timeout
        with self._changed:
            self._closed = True
            thread = self._thread
            if thread is not None and not thread.is_current:
                self._changed.wait_for(self._is_idle, timeout)
        if thread is not None:
            thread.stop(max(0.0, until - time.monotonic()) + _STOP_GRACE_S)
        self.judge.close()

    def _is_idle(self) -> bool:
        return not self._pending

    def _on_done(self, result: Future[Evaluation]) -> None:
        """Deliver the result, on the judge's thread."""
        try:
            if result.cancelled():
                self.judge.counters.record_dropped()
            else:
                self._deliver(result.result())
        except Exception as error:  # noqa: BLE001 - an error of a sink affects only this result
            _guard.report_error("deliver a verdict", error)
        finally:
            with self._changed:
                self._pending -= 1
                self._changed.notify_all()


_parent_threads: list[JudgeThread | None] = []
"""Threads of the parent process. A child must not close their event loops, not even by garbage collection, because both
processes share the file descriptors of the loops."""
