"""`BackgroundWorker` processes items once and in order, even if some fail."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator

import pytest

from goldspan import _guard
from goldspan.online import BackgroundWorker
from goldspan.online.worker import AwakeClock
from support.forked_children import fork, forking


class Work:
    """Records processed items, and blocks until `go` is set."""

    def __init__(self, max_queue: int = 1_000) -> None:
        self.done: list[int] = []
        self.looked = 0
        self.wants_more = False
        self.go = threading.Event()
        self.go.set()
        self.worker: BackgroundWorker[int] = BackgroundWorker(self.work, self.look, max_queue=max_queue)

    def work(self, item: int) -> None:
        self.go.wait(30)
        if item < 0:
            raise ValueError(item)
        self.done.append(item)

    def look(self) -> bool:
        self.looked += 1
        return self.wants_more


@pytest.fixture
def work() -> Iterator[Work]:
    made = Work()
    yield made
    made.go.set()
    made.worker.stop(30)


def until(condition: object) -> None:
    """Wait until a condition holds that another thread fulfils."""
    for _ in range(3_000):
        if condition():  # type: ignore[operator]
            return
        time.sleep(0.01)
    raise AssertionError("it never came to be")


def test_items_are_processed_in_order_without_a_flush(work: Work) -> None:
    for number in range(100):
        assert work.worker.put(number)
    until(lambda: len(work.done) == 100)
    assert work.done == list(range(100))
    until(lambda: work.looked)
    until(lambda: work.worker.is_asleep)


def test_a_flush_waits_for_all_earlier_items(work: Work) -> None:
    for number in range(10):
        work.worker.put(number)
    assert work.worker.flush(30)
    assert work.done == list(range(10))
    assert len(work.worker) == 0


def test_a_flush_returns_false_when_the_timeout_expires(work: Work) -> None:
    work.go.clear()
    work.worker.put(1)
    assert not work.worker.flush(0.01)
    work.go.set()
    assert work.worker.flush(30)


def test_a_full_queue_rejects_further_items() -> None:
    work = Work(max_queue=2)
    work.go.clear()
    taken = [work.worker.put(number) for number in range(10)]
    assert taken[:2] == [True, True]
    assert not all(taken)
    work.go.set()
    work.worker.stop(30)
    assert work.done == [number for number, was_taken in enumerate(taken) if was_taken]


def test_a_failing_item_is_counted_and_the_others_are_processed(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOLDSPAN_STRICT", "0")
    for number in (1, -1, 2):
        work.worker.put(number)
    assert work.worker.flush(30)
    assert work.done == [1, 2]
    assert _guard.failure_counts["work in the background"] == 1


def test_deadlines_are_checked_until_none_are_pending(work: Work) -> None:
    work.wants_more = True
    work.worker.wake()
    until(lambda: work.looked >= 3)
    assert not work.worker.is_asleep
    work.wants_more = False
    until(lambda: work.worker.is_asleep)
    seen = work.looked
    time.sleep(1.2)
    assert work.looked == seen


def test_the_thread_yields_after_half_a_millisecond_of_work_not_after_every_item(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()

    def work(microseconds: int) -> None:
        clock.seconds += microseconds / 1e6
        clock.events.append(microseconds)

    worker: BackgroundWorker[int] = BackgroundWorker(work, lambda: False)
    monkeypatch.setattr(threading.Thread, "start", refuse)  # so that the flush works on this thread
    for microseconds in (200, 200, 200, 200, 200, 900, 100):
        worker.put(microseconds)
    monkeypatch.setattr("goldspan.online.worker.time", clock)
    assert worker.flush(30)
    assert clock.events == [200, 200, 200, "yield", 200, 200, 900, "yield", 100]


class Clock:
    """Replaces the module `time`."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.events: list[int | str] = []

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        assert seconds == 0
        self.events.append("yield")


def test_stop_processes_the_remaining_items_and_rejects_new_ones(work: Work) -> None:
    work.go.clear()
    for number in range(5):
        work.worker.put(number)
    work.go.set()
    work.worker.stop(30)
    assert work.done == list(range(5))
    assert not work.worker.put(5)
    work.worker.wake()
    assert work.worker.flush(30)
    assert work.done == list(range(5))


def test_a_flush_processes_the_items_itself_if_no_thread_is_running(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert work.worker.flush(0)  # no item was put
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert work.worker.put(1)
    assert work.worker.flush(0)
    assert work.done == [1]


def refuse(thread: threading.Thread) -> None:
    """Raises as Python does at interpreter shutdown."""
    raise RuntimeError("can't create new thread at interpreter shutdown")


def test_stop_processes_the_items_itself_if_no_thread_can_start(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert work.worker.put(1)
    work.worker.stop(30)
    assert work.done == [1]


def test_a_flush_on_the_worker_thread_does_not_deadlock() -> None:
    flushed: list[bool] = []

    def work(item: int) -> None:
        flushed.append(True)

    worker: BackgroundWorker[int] = BackgroundWorker(work, lambda: False)

    def look() -> bool:
        flushed.append(worker.flush(30))
        return False

    worker._check_deadlines = look
    worker.put(1)
    until(lambda: len(flushed) == 2)
    worker.stop(30)


@forking
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_starts_with_an_empty_queue_and_its_own_thread(work: Work) -> None:
    def begins_anew() -> bool:
        work.worker.reset()
        work.go = threading.Event()
        work.go.set()
        work.worker.put(2)
        return work.worker.flush(30) and work.done == [2]

    work.go.clear()
    work.worker.put(1)
    child_did = fork(begins_anew)
    work.go.set()
    assert child_did()
    assert work.worker.flush(30)
    assert work.done == [1]


def test_the_clock_does_not_advance_while_the_process_is_suspended() -> None:
    readings = iter([100.0, 100.5, 101.0, 4_000.0, 4_000.5, 4_000.0])
    clock = AwakeClock(lambda: next(readings))
    assert [clock.now() for _ in range(5)] == [0.5, 1.0, 6.0, 6.5, 6.5]


def test_a_flush_returns_if_the_worker_is_stopped_meanwhile(work: Work) -> None:
    class Stopping(deque[object]):
        """Stops the worker after `flush` checked its thread and before it queues its event."""

        def append(self, item: object) -> None:
            if isinstance(item, threading.Event):
                work.worker.stop(30)
            super().append(item)

    work.worker.put(1)
    until(lambda: work.done == [1])
    work.worker._queue = Stopping()  # type: ignore[assignment]
    began = time.monotonic()
    assert work.worker.flush(60)
    assert time.monotonic() - began < 30


def test_a_flush_longer_than_half_a_second_returns_false_at_its_timeout(work: Work) -> None:
    work.go.clear()
    work.worker.put(1)
    assert not work.worker.flush(0.6)
