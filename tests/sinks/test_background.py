"""`BackgroundSink` runs a slow sink on its own thread."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from goldspan import ConfigurationError, Evaluation, _guard
from goldspan.sinks import BackgroundSink
from goldspan.sinks.background_sink import MAX_BATCH_SIZE
from support.evaluation_builders import evaluation
from support.metric_readers import Meter

ONE = evaluation()
PATIENCE = 60
"""Timeout in seconds that is reached only if a test fails."""


class Held:
    """A sink that blocks in `submit` until `go` is set."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.got: list[Evaluation] = []
        self.ended = 0

    def submit(self, evaluation: Evaluation) -> None:
        self.begun.set()
        assert self.go.wait(PATIENCE)
        self.got.append(evaluation)

    def shutdown(self) -> None:
        self.ended += 1


def test_evaluations_reach_the_wrapped_sink_in_order_on_another_thread() -> None:
    got: list[tuple[Evaluation, threading.Thread]] = []
    sink = BackgroundSink(lambda one: got.append((one, threading.current_thread())))
    sent = [evaluation(number) for number in range(1, 50)]
    for one in sent:
        sink.submit(one)
    assert sink.force_flush()
    assert [one for one, _ in got] == sent
    (thread,) = {thread for _, thread in got}
    assert thread is not threading.current_thread()
    assert thread.daemon
    sink.shutdown()
    assert not thread.is_alive()


def test_submit_never_blocks_and_a_full_queue_drops_and_counts_evaluations() -> None:
    meter, held = Meter(), Held()
    sink = BackgroundSink(held, max_queue=3, name="slow", meter_provider=meter.provider)
    sink.submit(evaluation(1))
    assert held.begun.wait(PATIENCE)
    for number in range(2, 8):
        sink.submit(evaluation(number))
    assert meter.counts("goldspan.sink.dropped", "goldspan.sink") == {("slow",): 3}
    held.go.set()
    assert sink.force_flush()
    assert [one.run.span_id for one in held.got] == [f"{number:016x}" for number in (1, 2, 3, 4)]  # newest dropped
    sink.shutdown()


def test_force_flush_returns_false_when_the_timeout_expires() -> None:
    held = Held()
    sink = BackgroundSink(held)
    assert sink.force_flush(0)
    sink.submit(ONE)
    assert held.begun.wait(PATIENCE)
    assert not sink.force_flush(1)
    held.go.set()
    assert sink.force_flush()
    sink.shutdown()


def test_the_wrapped_sink_is_flushed_and_shut_down() -> None:
    class Buffering(Held):
        def force_flush(self, timeout_millis: int) -> bool:
            return bool(self.ended)

    behind = Buffering()
    sink = BackgroundSink(behind)
    assert not sink.force_flush()
    sink.shutdown()
    assert behind.ended == 1
    assert sink.force_flush()


def test_a_shutdown_drains_the_queue_and_later_evaluations_are_dropped() -> None:
    meter, held = Meter(), Held()
    sink = BackgroundSink(held, meter_provider=meter.provider)
    for _ in range(5):
        sink.submit(ONE)
    held.go.set()
    sink.shutdown()
    sink.submit(ONE)
    assert (len(held.got), held.ended) == (5, 1)
    assert meter.counts("goldspan.sink.dropped", "goldspan.sink") == {("Held",): 1}


def test_a_shutdown_abandons_a_sink_that_hangs_after_the_timeout() -> None:
    meter, held = Meter(), Held()
    sink = BackgroundSink(held, meter_provider=meter.provider)
    for _ in range(3):
        sink.submit(ONE)
        assert held.begun.wait(PATIENCE)
    sink.shutdown(timeout_millis=1)
    assert meter.counts("goldspan.sink.dropped", "goldspan.sink") == {("Held",): 2}
    assert held.ended == 1
    held.go.set()


def test_a_sink_can_flush_and_shut_down_its_own_background_sink_without_a_deadlock() -> None:
    answers: list[object] = []
    done = threading.Event()

    def meddle(_: Evaluation) -> None:
        answers.append(sink.force_flush())
        sink.shutdown()
        done.set()

    sink = BackgroundSink(meddle)
    sink.submit(ONE)
    assert done.wait(PATIENCE)
    assert answers == [False]


@pytest.mark.parametrize("error", [OSError, SystemExit, asyncio.CancelledError])
def test_an_exception_in_the_sink_is_counted_and_the_thread_continues(error: type[BaseException]) -> None:
    got: list[Evaluation] = []

    def fail_first(one: Evaluation) -> None:
        got.append(one)
        if len(got) == 1:
            raise error

    sink = BackgroundSink(fail_first, name="failing")
    sink.submit(ONE)
    sink.submit(ONE)
    assert sink.force_flush()
    sink.shutdown()
    assert len(got) == 2
    assert _guard.failure_counts == {"submit to failing": 1}


def test_a_sink_with_submit_many_receives_lists_of_bounded_size() -> None:
    class Many(Held):
        def __init__(self) -> None:
            super().__init__()
            self.sizes: list[int] = []

        def submit_many(self, evaluations: list[Evaluation]) -> None:
            self.sizes.append(len(evaluations))
            for one in evaluations:
                self.submit(one)

    many = Many()
    sink = BackgroundSink(many)
    sent = [ONE] * (2 * MAX_BATCH_SIZE)
    sink.submit(ONE)
    assert many.begun.wait(PATIENCE)
    for one in sent:
        sink.submit(one)
    many.go.set()
    assert sink.force_flush()
    assert many.sizes == [1, MAX_BATCH_SIZE, MAX_BATCH_SIZE]
    sink.shutdown()


def test_a_coroutine_function_is_awaited_in_a_single_event_loop() -> None:
    loops, got = set(), []

    async def save(one: Evaluation) -> None:
        await asyncio.sleep(0)
        loops.add(asyncio.get_running_loop())
        got.append(one)

    sink = BackgroundSink(save)
    assert sink.name == "save"
    for _ in range(3):
        sink.submit(ONE)
    assert sink.force_flush()
    sink.shutdown()
    assert len(got) == 3
    assert len(loops) == 1
    assert loops.pop().is_closed()


def test_a_failing_coroutine_function_loses_only_its_evaluation_and_its_open_tasks_are_cancelled() -> None:
    left: list[asyncio.Task[None]] = []

    async def forever() -> None:
        await asyncio.Event().wait()

    async def save(one: Evaluation) -> None:
        left.append(asyncio.create_task(forever()))
        raise OSError

    sink = BackgroundSink(save)
    sink.submit(ONE)
    sink.submit(ONE)
    assert sink.force_flush()
    sink.shutdown()
    assert _guard.failure_counts == {"submit to save": 2}
    assert [task.cancelled() for task in left] == [True, True]


def test_a_sink_with_async_methods_is_awaited() -> None:
    class Asynchronous:
        def __init__(self) -> None:
            self.got: list[Evaluation] = []

        async def submit(self, one: Evaluation) -> None:
            self.got.append(one)

        async def submit_many(self, many: list[Evaluation]) -> None:
            self.got += many

    behind = Asynchronous()
    sink = BackgroundSink(behind)  # type: ignore[arg-type]
    sink.submit(ONE)
    assert sink.force_flush()
    sink.shutdown()
    assert behind.got == [ONE]


def test_concurrent_submits_from_many_threads_lose_no_evaluation() -> None:
    got: list[Evaluation] = []
    sink = BackgroundSink(got.append, max_queue=16 * 100)
    threads = [threading.Thread(target=_submit, args=(sink.submit, 100)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sink.force_flush()
    sink.shutdown()
    assert len(got) == 1_600


def _submit(submit: Callable[[Evaluation], None], times: int) -> None:
    for _ in range(times):
        submit(ONE)


def test_max_queue_of_zero_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="max_queue must be at least 1, not 0"):
        BackgroundSink(print, max_queue=0)


FORKING = """
import os, sys, threading, asyncio
from goldspan.sinks import BackgroundSink
from support.evaluation_builders import evaluation

begun, go, got = threading.Event(), threading.Event(), []

async def save(one):
    await asyncio.sleep(0)
    begun.set()
    go.wait(60)
    got.append(int(one.run.span_id, 16))

sink = BackgroundSink(save)
for number in (1, 2, 3):
    sink.submit(evaluation(number))
assert begun.wait(60)
child = os.fork()
go.set()
if not child:
    got.clear()
    sink.submit(evaluation(4))
    done = sink.force_flush(60_000) and got == [4]
    sink.shutdown()
    os._exit(0 if done else 1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0
sink.submit(evaluation(5))
assert sink.force_flush(60_000) and got == [1, 2, 3, 5], got
sink.shutdown()
print("both are well")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_after_a_fork_the_parent_keeps_the_queue_and_the_child_starts_its_own_thread() -> None:
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, env=_environment())
    assert done.stdout == "both are well\n", done.stderr


ENDING = """
from goldspan.sinks import BackgroundSink
from support.evaluation_builders import evaluation
import threading

sink = BackgroundSink(lambda one: threading.Event().wait())
sink.submit(evaluation())
print("over")
"""


def test_a_hanging_sink_does_not_prevent_the_process_from_exiting() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDING], capture_output=True, text=True, env=_environment(), timeout=PATIENCE
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "over\n", "")


def _environment() -> dict[str, str]:
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return {**os.environ, "PYTHONPATH": here}


class Connected:
    """An async sink with flush and shutdown that records its calls and their event loops."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.loops: set[asyncio.AbstractEventLoop] = set()
        self.answer: object = None

    async def submit(self, evaluation: Evaluation) -> None:
        await self._record("submit")

    async def force_flush(self, timeout_millis: int) -> object:
        await self._record("flush")
        return self.answer

    async def shutdown(self) -> None:
        await self._record("shutdown")

    async def _record(self, what: str) -> None:
        self.loops.add(asyncio.get_running_loop())
        await asyncio.sleep(0)
        self.calls.append(what)


def test_an_async_sink_is_flushed_and_shut_down_in_its_own_event_loop() -> None:
    connected = Connected()
    sink = BackgroundSink(connected)
    sink.submit(ONE)
    assert sink.force_flush()
    sink.submit(ONE)
    sink.shutdown()
    sink.shutdown()
    assert sink.force_flush()
    assert connected.calls == ["submit", "flush", "submit", "shutdown"]
    assert len(connected.loops) == 1
    assert _guard.failure_counts == {}


def test_an_async_sink_without_evaluations_is_still_flushed_and_shut_down() -> None:
    connected = Connected()
    sink = BackgroundSink(connected)
    assert sink.force_flush()
    sink.shutdown()
    assert connected.calls == ["flush", "shutdown"]


def test_force_flush_returns_false_when_an_async_flush_fails_or_is_incomplete() -> None:
    connected = Connected()
    connected.answer = False
    sink = BackgroundSink(connected, name="mine")
    assert not sink.force_flush()

    async def fail(timeout_millis: int) -> None:
        raise ConnectionError("gone")

    connected.force_flush = fail  # type: ignore[method-assign, assignment]
    assert not sink.force_flush()
    assert _guard.failure_counts == {"force_flush of mine": 1}
    sink.shutdown()
    assert connected.calls[-1] == "shutdown"
