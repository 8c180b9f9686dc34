"""Several things done at once, and their results handed on in the order in which the things were given."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

_AHEAD = 4
"""So many items a worker are taken before the first of them is done."""

_PATIENCE_S = 0.5
"""How long the program waits before it looks whether it was interrupted. On Windows waiting cannot be interrupted."""


def in_order(work: Callable[[T], R], items: Iterable[T], *, concurrency: int = 1) -> Generator[R, None, None]:
    """What `work` makes of each item. What it raises is raised here, in the item's turn.

    Once it is closed, what was not begun is dropped. What was begun runs on in its thread, but keeps nobody
    waiting: the threads are daemons, so that a program that is interrupted ends at once.
    """
    if concurrency == 1:
        yield from map(work, items)
        return
    tasks: SimpleQueue[tuple[Future[R], T] | None] = SimpleQueue()
    for number in range(concurrency):
        Thread(target=_labour, args=(work, tasks), daemon=True, name=f"goldspan-worker-{number}").start()
    begun: deque[Future[R]] = deque()
    try:
        for item in items:
            begun.append(Future())
            tasks.put((begun[-1], item))
            if len(begun) >= concurrency * _AHEAD:
                yield _result(begun.popleft())
        while begun:
            yield _result(begun.popleft())
    finally:
        for future in begun:
            future.cancel()
        for _ in range(concurrency):
            tasks.put(None)


def _result(future: Future[R]) -> R:
    """What a worker made, or raised. An interrupt that comes just before the waiting would else not be heard."""
    while not future.done():
        wait([future], timeout=_PATIENCE_S)
    return future.result()


def _labour(work: Callable[[T], R], tasks: SimpleQueue[tuple[Future[R], T] | None]) -> None:
    while (task := tasks.get()) is not None:
        future, item = task
        if not future.set_running_or_notify_cancel():
            continue
        try:
            future.set_result(work(item))
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
            future.set_exception(error)
