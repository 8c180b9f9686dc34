"""An event loop in a thread of its own, in which a judge is asked from anywhere."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from goldspan import _guard
from goldspan.judge.judges import Judge
from goldspan.judge.sessions import Session, session_of
from goldspan.model import Evaluation

_LAST_S = 1.0
"""Seconds that closing connections may take."""


class JudgeThread:
    """Begins at once. Daemons end with the program, so nobody waits for a model who did not want to."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._lock = threading.Lock()
        self._is_stopped = False
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._asked: set[asyncio.Task[Any] | None] = set()
        """Tasks of evaluations. What the HTTP client does in tasks of its own is its own to cancel."""
        self._opened: asyncio.Future[Session] = self._loop.create_future()
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

    def evaluate(self, evaluation: Evaluation) -> Future[Evaluation]:
        """The evaluation with the score `tool_selection`, when it is there; cancelled where the thread was stopped."""
        with self._lock:
            if not self._is_stopped:
                return asyncio.run_coroutine_threadsafe(self._evaluate(evaluation), self._loop)
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

    async def _evaluate(self, evaluation: Evaluation) -> Evaluation:
        task = asyncio.current_task()
        self._asked.add(task)
        try:
            session = await asyncio.shield(self._opened)
            return await session.evaluate(evaluation)
        finally:
            self._asked.discard(task)

    def _run(self) -> None:
        loop = self._loop
        keeper = loop.create_task(self._keep_open())
        self._told_of(loop.run_forever)
        with self._lock:
            self._is_stopped = True
        for _ in range(len(asyncio.all_tasks(loop)) + 1):  # each of them may raise what ends a thread
            if self._told_of(lambda: loop.run_until_complete(self._finish(keeper))):
                break
        loop.close()

    def _told_of(self, run: Callable[[], object]) -> bool:
        """Whether the loop ran until it was stopped; if not, that is reported."""
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - nobody is above this thread
            _guard.report("end the judge's thread", error)
            return False
        return True

    async def _keep_open(self) -> None:
        """Keep connections open until the end."""
        try:
            async with session_of(self._judge) as session:
                self._opened.set_result(session)
                await self._ended.wait()
        except Exception as error:  # noqa: BLE001 - whoever asks is told
            if self._opened.done():
                _guard.report("close the judge's connections", error)
            else:
                self._opened.set_exception(error)
                self._opened.exception()  # it is known, even if nobody asks

    async def _finish(self, keeper: asyncio.Task[None]) -> None:
        await asyncio.sleep(0)  # so that what was asked just before has begun, and is cancelled with the others
        for task in filter(None, self._asked):
            task.cancel()
        await asyncio.sleep(0)
        if left := asyncio.all_tasks() - {keeper, asyncio.current_task()}:
            await asyncio.wait(left, timeout=_LAST_S)
        self._ended.set()
        await asyncio.wait({keeper}, timeout=_LAST_S)
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.get_running_loop().shutdown_asyncgens(), _LAST_S)
