"""Judges evaluations on a thread of its own, so that the application never waits for a model."""

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
"""Seconds that closing connections may take."""


class JudgeThread:
    """Begins at once. Daemons end with the program, so nobody waits for a model who did not want to."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._lock = threading.Lock()
        self._is_stopped = False
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._tasks: set[asyncio.Task[Any] | None] = set()
        """Tasks of evaluations. What the HTTP client does in tasks of its own is its own to cancel."""
        self._session_ready: asyncio.Future[JudgeSession] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="goldspan judge", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether this is that thread."""
        return threading.current_thread() is self._thread

    def submit(self, evaluation: Evaluation) -> Future[Evaluation]:
        """The evaluation with the score `tool_selection`, when it is there; cancelled where the thread was stopped."""
        with self._lock:
            if not self._is_stopped:
                return asyncio.run_coroutine_threadsafe(self._judge_evaluation(evaluation), self._loop)
        never: Future[Evaluation] = Future()
        never.cancel()
        never.set_running_or_notify_cancel()
        return never

    def stop(self, timeout: float | None = None) -> None:
        """Cancel what is under way, close the connections, and wait so many seconds for that."""
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
        for _ in range(len(asyncio.all_tasks(loop)) + 1):  # each of them may raise what ends a thread
            if self._run_reporting_errors(lambda: loop.run_until_complete(self._cancel_tasks(keeper))):
                break
        loop.close()

    def _run_reporting_errors(self, run: Callable[[], object]) -> bool:
        """Whether the loop ran until it was stopped; if not, that is reported."""
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - nobody is above this thread
            _guard.report_error("end the judge's thread", error)
            return False
        return True

    async def _hold_session(self) -> None:
        """Keep connections open until the end."""
        try:
            async with open_session(self._judge) as session:
                self._session_ready.set_result(session)
                await self._stopping.wait()
        except Exception as error:  # noqa: BLE001 - whoever asks is told
            if self._session_ready.done():
                _guard.report_error("close the judge's connections", error)
            else:
                self._session_ready.set_exception(error)
                self._session_ready.exception()  # it is known, even if nobody asks

    async def _cancel_tasks(self, keeper: asyncio.Task[None]) -> None:
        await asyncio.sleep(0)  # so that what was asked just before has begun, and is cancelled with the others
        for task in filter(None, self._tasks):
            task.cancel()
        await asyncio.sleep(0)
        if left := asyncio.all_tasks() - {keeper, asyncio.current_task()}:
            await asyncio.wait(left, timeout=_CLOSE_TIMEOUT_S)
        self._stopping.set()
        await asyncio.wait({keeper}, timeout=_CLOSE_TIMEOUT_S)
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.get_running_loop().shutdown_asyncgens(), _CLOSE_TIMEOUT_S)


_STOP_TIMEOUT_S = 5.0


def judge_evaluations(evaluations: Iterable[Evaluation], judge: Judge) -> Generator[Evaluation, None, None]:
    """Each evaluation with the score `tool_selection`, in their order, as soon as it is there.

    So many are asked about at once as the judge's `concurrency` says, and a few more are taken from `evaluations` ahead
    of that. Closed, or interrupted, it cancels what is under way.
    """
    thread = JudgeThread(judge)
    try:
        # One more than can be asked at once: while an answer is handed on, the next question is under way.
        yield from map_in_order(
            lambda each: thread.submit(each).result(), evaluations, concurrency=judge.concurrency + 1
        )
    finally:
        thread.stop(_STOP_TIMEOUT_S)


_STOP_GRACE_S = 2.0


class BackgroundJudge:
    """Has evaluations judged by one daemon thread, several at once, and gives each verdict to `deliver`.

    `deliver` is called on that thread with the evaluation that now has the score `tool_selection`. What is submitted
    beyond `judge.max_queue`, or waits still when it is shut down, is dropped and counted. Nothing here raises, and
    nothing waits but `force_flush` and `shutdown`. A forked child begins anew.
    """

    def __init__(self, judge: Judge, deliver: Callable[[Evaluation], object]) -> None:
        self.judge = judge
        self._deliver = deliver
        self._reset()
        renew_after_fork(self)

    def renew(self) -> None:
        """Begin with nothing: what waits belongs to the process that this one was forked from."""
        _parent_threads.append(self._thread)
        self.judge.renew()
        self._reset()

    def _reset(self) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._pending = 0
        self._closed = False
        self._thread: JudgeThread | None = None

    def submit(self, evaluation: Evaluation) -> bool:
        """Have an evaluation judged; whether there was room for it."""
        with self._changed:
            taken = not self._closed and self._pending < self.judge.max_queue
            if taken:
                if self._thread is None or not self._thread.is_alive:
                    self._thread = JudgeThread(self.judge)
                self._pending += 1
                self._thread.submit(evaluation).add_done_callback(self._on_done)
        if not taken:
            self.judge.counters.record_dropped()
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
            thread.stop(max(0.0, until - time.monotonic()) + _STOP_GRACE_S)
        self.judge.close()

    def _is_idle(self) -> bool:
        return not self._pending

    def _on_done(self, asked: Future[Evaluation]) -> None:
        """On the judge's thread: hand on what came of it."""
        try:
            if asked.cancelled():
                self.judge.counters.record_dropped()
            else:
                self._deliver(asked.result())
        except Exception as error:  # noqa: BLE001 - what a sink raises costs this verdict alone
            _guard.report_error("deliver a verdict", error)
        finally:
            with self._changed:
                self._pending -= 1
                self._changed.notify_all()


_parent_threads: list[JudgeThread | None] = []
"""Threads of the parent process, of which a child has the loops. It must not even come to close them: both share what
they wait on."""
