"""Tasks in one process or several, with results that are kept."""

from __future__ import annotations

import os
import signal

import pytest

from goldspan.batch.task_runner import TaskRunner
from goldspan.errors import BatchError, TraceFileError


def double(number):
    return 2 * number


def process_of(_):
    return os.getpid()


def fail(text):
    raise TraceFileError(text)


def kill_itself(_):
    os.kill(os.getpid(), signal.SIGKILL)


TASKS = [(f"task-{number}", number) for number in range(10)]


def test_results_are_in_the_order_of_the_tasks():
    with TaskRunner() as runner:
        assert list(runner.map(double, TASKS)) == list(range(0, 20, 2))


def test_a_kept_result_is_not_computed_again(tmp_path):
    with TaskRunner(folder=tmp_path) as runner:
        assert list(runner.map(double, TASKS)) == list(range(0, 20, 2))
        assert list(runner.map(fail, TASKS)) == list(range(0, 20, 2))
        assert runner.run(fail, "task-3", "x") == 6
        with pytest.raises(TraceFileError):
            runner.run(fail, "task-11", "x")
    assert len(list(tmp_path.iterdir())) == 10


@pytest.mark.e2e
class TestSeveralProcesses:
    def test_do_the_work_in_the_order_of_the_tasks(self):
        with TaskRunner(2) as runner:
            assert list(runner.map(double, TASKS)) == list(range(0, 20, 2))
            assert os.getpid() not in set(runner.map(process_of, TASKS))

    def test_raise_what_a_task_raises(self):
        with TaskRunner(2) as runner, pytest.raises(TraceFileError, match="no such file"):
            list(runner.map(fail, [("a", "no such file"), ("b", "other")]))

    def test_that_are_killed_are_an_error(self):
        with TaskRunner(2) as runner, pytest.raises(BatchError, match="may have been killed"):
            list(runner.map(kill_itself, TASKS))

    def test_end_at_once_when_the_work_is_interrupted(self):
        def interrupt():
            with TaskRunner(2) as runner:
                next(runner.map(double, TASKS))
                processes = list(runner._pool._processes.values())
                try:
                    raise KeyboardInterrupt
                finally:
                    seen.extend(processes)

        seen = []
        with pytest.raises(KeyboardInterrupt):
            interrupt()
        assert len(seen) == 2
        assert not any(process.is_alive() for process in seen)
