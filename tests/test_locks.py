"""Tests of locks: no thread waits forever, neither in a forked child nor for a thread that never releases the lock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from goldspan import _guard
from goldspan._locks import ForkSafeLock
from goldspan.capture import threads
from goldspan.sinks.metric_sink import CardinalityLimit
from support.forked_children import fork, forking


@contextmanager
def held_elsewhere(lock: ForkSafeLock | threading.Lock) -> Iterator[None]:
    """Hold the lock in another thread until the block ends."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            done.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(60)
    yield
    done.set()
    holder.join()


def test_one_thread_at_a_time_holds_the_lock_and_can_acquire_it_again() -> None:
    lock, together, most = ForkSafeLock(), 0, 0

    def work() -> None:
        nonlocal together, most
        with lock, lock:
            together += 1
            time.sleep(0.01)
            most = max(most, together)
            together -= 1

    working = [threading.Thread(target=work) for _ in range(8)]
    for thread in working:
        thread.start()
    for thread in working:
        thread.join()
    assert most == 1


def test_a_thread_continues_without_the_lock_after_the_timeout() -> None:
    lock = ForkSafeLock(timeout=0.05)
    with held_elsewhere(lock):
        with lock:
            pass
        with lock:
            pass


def report_an_error() -> None:
    _guard.report_error("nothing", ValueError())


def carry_context() -> None:
    threads.carry_context_into_threads()
    threads.stop_carrying_context()


BOUNDED = CardinalityLimit(3)


@forking
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("lock", "use"),
    [(_guard._lock, report_an_error), (threads._lock, carry_context), (BOUNDED._lock, lambda: BOUNDED("new"))],
    ids=["guard", "threads", "labels"],
)
def test_a_forked_child_waits_for_no_thread_of_its_parent(
    lock: ForkSafeLock | threading.Lock, use: Callable[[], object]
) -> None:
    def is_free() -> bool:
        waiting = threading.Thread(target=use, daemon=True)
        waiting.start()
        waiting.join(20)
        return not waiting.is_alive()

    with held_elsewhere(lock):
        assert fork(is_free)()
