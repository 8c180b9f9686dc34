"""Runs tasks in one process or several, and keeps results so that a batch can continue."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Generic, TypeVar

from goldspan.errors import BatchError

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")

_RESULT_SUFFIX = ".result"


class TaskRunner:
    """Calls functions with tasks, in `jobs` processes if there are several.

    The functions are those of a module, and tasks and results can be pickled: the processes are started anew, as on
    Windows. With a `folder`, each result is kept in a file there, and a task that has one is not run again.
    """

    def __init__(self, jobs: int = 1, *, folder: Path | None = None) -> None:
        """Start no process yet."""
        self._jobs, self._folder = jobs, folder
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> TaskRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the processes; at once if the block was left by an exception."""
        if self._pool is None:
            return
        processes = list((self._pool._processes or {}).values())
        if kind is not None:
            for process in processes:
                process.kill()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def map(
        self, function: Callable[[TaskT], ResultT], tasks: Iterable[tuple[str, TaskT]]
    ) -> Generator[ResultT, None, None]:
        """Yield the result of each named task, in their order.

        Raises what the function raises, and `BatchError` if a process was killed.
        """
        if self._jobs == 1:
            for name, task in tasks:
                yield self.run(function, name, task)
            return
        pool = self._pool = self._pool or ProcessPoolExecutor(
            self._jobs, multiprocessing.get_context("spawn"), initializer=_ignore_interrupts
        )
        pending: deque[Future[ResultT]] = deque()
        remaining = iter(tasks)
        try:
            while True:
                # A few tasks ahead keep the processes busy, and bound the results that wait.
                for name, task in islice(remaining, 2 * self._jobs - len(pending)):
                    with _blocked_interrupts():  # the first task starts the processes
                        pending.append(pool.submit(_KeptTask(function, self._result_file(name)), task))
                if not pending:
                    return
                yield pending.popleft().result()
        except BrokenProcessPool as error:
            raise BatchError(
                "a process of --jobs ended before its work was done; it may have been killed because memory ran out. "
                "Lower --jobs or --memory"
            ) from error

    def run(self, function: Callable[[TaskT], ResultT], name: str, task: TaskT) -> ResultT:
        """Return the result of one task, which this process runs."""
        return _KeptTask(function, self._result_file(name))(task)

    def _result_file(self, name: str) -> Path | None:
        return None if self._folder is None else self._folder / f"{name}{_RESULT_SUFFIX}"


class _KeptTask(Generic[TaskT, ResultT]):
    """Calls a function, and keeps its result in a file."""

    def __init__(self, function: Callable[[TaskT], ResultT], file: Path | None) -> None:
        self._function, self._file = function, file

    def __call__(self, task: TaskT) -> ResultT:
        file = self._file
        if file is None:
            return self._function(task)
        if file.exists():
            kept: ResultT = pickle.loads(file.read_bytes())
            return kept
        result = self._function(task)
        write_atomically(file, pickle.dumps(result, protocol=5))
        return result


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file that is complete whenever it exists."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _ignore_interrupts() -> None:
    """Leaves Ctrl-C, which reaches all processes of a terminal, to the process that started this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _blocked_interrupts() -> Iterator[None]:
    """Blocks Ctrl-C in processes that are started in the block, which inherit this; in this process it only waits.

    On Windows, a process can be interrupted until it ignores Ctrl-C itself.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
