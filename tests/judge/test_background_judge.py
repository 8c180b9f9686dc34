"""Judging many evaluations on a thread: in order, with limited concurrency, and with a clean shutdown."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.judge import judge_evaluations
from goldspan.judge.background_judge import JudgeThread
from support.gateway_process import eventually
from support.judge_clients import data, evaluation, judging
from support.laws import examples
from support.model_endpoint import after, failure, hang, opinion, serving


def runs(number):
    """Evaluations with different requests."""
    return (evaluation(input=str(each)) for each in range(number))


def by_request(request, number):
    """An assessment that names the request; earlier requests are answered later."""
    asked = int(data(request)["request"])
    return after(0.05 if asked % 5 == 0 else 0.0, opinion(asked / 1000, completion_tokens=asked))


def only_the_first(request, number):
    """Assesses the first run only; the others wait forever, in any order."""
    return opinion(0.5) if data(request)["request"] == "0" else hang()


def judge_threads():
    """The threads that belong to a judge."""
    return [each for each in threading.enumerate() if each.name.startswith(("goldspan judge", "goldspan-worker"))]


@pytest.fixture(autouse=True)
def _every_thread_ends():
    before = judge_threads()  # used by tests in which a judge answers late or never
    yield
    gc.collect()
    eventually(lambda: not {*judge_threads()} - {*before}, lambda: f"still there: {judge_threads()}")


@pytest.mark.parametrize("concurrency", [1, 3, 16])
def test_evaluations_are_returned_in_order_within_the_concurrency_limit(concurrency):
    with serving(by_request) as model, judging(model, concurrency=concurrency) as judge:
        left = [each.score("tool_selection").value for each in judge_evaluations(runs(60), judge)]
    assert left == [number / 1000 for number in range(60)]
    assert model.most_at_once <= concurrency
    assert model.most_at_once > 1 or concurrency == 1
    usage = judge.usage
    assert (usage.requests, usage.judged, usage.input_tokens, usage.output_tokens) == (60, 60, 6000, sum(range(60)))


@examples(0.15)
@given(
    st.lists(st.sampled_from([opinion(0.5), opinion(2), failure(400), failure(503)]), max_size=25), st.integers(1, 6)
)
def test_every_evaluation_is_returned_and_counted_whatever_the_endpoint_replies(replies, concurrency):
    def behaviour(request, number):
        return replies[int(data(request)["request"])]

    with serving(behaviour) as model, judging(model, retries=1, concurrency=concurrency) as judge:
        left = list(judge_evaluations(runs(len(replies)), judge))
    assert [each.run.input for each in left] == [str(number) for number in range(len(replies))]
    values = [each.score("tool_selection").value for each in left]
    assert values == [0.5 if reply == opinion(0.5) else None for reply in replies]
    usage = judge.usage
    again = sum(reply in (opinion(2), failure(503)) for reply in replies)
    assert usage.requests == len(model.requests) == len(replies) + again
    assert (usage.judged, usage.failed) == (values.count(0.5), values.count(None))
    assert model.most_at_once <= concurrency


def test_evaluations_are_returned_before_the_input_is_exhausted():
    taken = []

    def endless():
        while True:
            taken.append(len(taken))
            yield evaluation(input=str(len(taken)))

    with serving([opinion(0.5)]) as model, judging(model, concurrency=2) as judge:
        left = judge_evaluations(endless(), judge)
        for _ in range(10):
            assert next(left).score("tool_selection").value == 0.5
        left.close()
    assert len(taken) <= 10 + 4 * 3


def test_closing_the_iterator_cancels_pending_requests():
    with serving(only_the_first) as model, judging(model, concurrency=4) as judge:
        left = judge_evaluations(runs(50), judge)
        next(left)
        eventually(lambda: len(model.requests) == 5, "nothing is under way")
        started = time.monotonic()
        left.close()
        assert time.monotonic() - started < 10
        eventually(lambda: all(each.is_abandoned() for each in tuple(model._open)), "requests stay open")
    assert len(model.requests) == 5
    assert (judge.usage.requests, judge.usage.judged, judge.usage.failed) == (5, 1, 0)


def test_no_evaluations_yield_no_requests():
    with serving([opinion(0.5)]) as model, judging(model) as judge:
        assert list(judge_evaluations([], judge)) == []
    assert model.requests == []


def test_an_error_of_the_input_iterator_is_raised():
    def broken():
        yield evaluation()
        raise LookupError("no more")

    with serving([hang()]) as model, judging(model) as judge, pytest.raises(LookupError):
        list(judge_evaluations(broken(), judge))


INTERRUPTED = """
import sys
from goldspan.judge import Judge, ModelEndpoint, judge_evaluations
from support.judge_clients import evaluation
judge = Judge(ModelEndpoint("tiny", base_url=sys.argv[1]), timeout=60)
try:
    for each in judge_evaluations((evaluation(input=str(number)) for number in range(50)), judge):
        print(each.score("tool_selection").value, flush=True)
except KeyboardInterrupt:
    print("interrupted", judge.usage.requests)
"""


@pytest.mark.e2e
def test_an_interrupted_program_ends_promptly_and_without_output():
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path)), "PYTHONWARNINGS": "error"}
    with serving(only_the_first) as model:
        command = [sys.executable, "-c", INTERRUPTED, model.url]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
        with subprocess.Popen(command, **pipes) as process:
            assert process.stdout.readline() == "0.5\n"
            eventually(lambda: len(model.requests) == 5, "nothing is under way")
            os.kill(process.pid, signal.SIGINT)
            out, errors = process.communicate(timeout=30)
    assert (out, errors, process.returncode) == ("interrupted 5\n", "", 0)


@pytest.mark.e2e
def test_memory_does_not_grow_with_the_number_of_evaluations():
    def large():
        for number in range(300):
            yield evaluation(input=str(number), output="x" * 100_000)

    with serving([opinion(0.5)]) as model, judging(model, concurrency=2) as judge:
        model.requests = _DiscardingList()
        tracemalloc.start()
        for _ in judge_evaluations(large(), judge):
            pass
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert judge.usage.judged == 300
    assert peak < 12 << 20


class _DiscardingList(list):
    """A list that discards its items, so that the model's memory is not measured."""

    def append(self, item):
        pass

    def __len__(self):
        return 1


# --- the thread -------------------------------------------------------------------------------------------------------


def test_an_evaluation_submitted_to_a_stopped_judge_thread_is_cancelled():
    with serving([opinion(0.5)]) as model, judging(model) as judge:
        thread = JudgeThread(judge)
        assert thread.submit(evaluation()).result(30).score("tool_selection").value == 0.5
        thread.stop(30)
        thread.stop(30)
        assert not thread.is_alive
        assert thread.submit(evaluation()).cancelled()
    assert judge.usage.requests == 1


@pytest.mark.e2e
def test_stopping_a_judge_thread_completes_concurrent_submissions():
    with serving([opinion(0.5)]) as model, judging(model) as judge:
        for _ in range(20):
            thread = JudgeThread(judge)
            asked = []
            going = threading.Event()

            def ask(thread=thread, asked=asked, going=going):
                while not asked or not asked[-1].cancelled():
                    asked.append(thread.submit(evaluation()))
                    going.set()

            asking = threading.Thread(target=ask)
            asking.start()
            going.wait(30)
            thread.stop(30)
            asking.join(30)
            assert not asking.is_alive()
            eventually(lambda asked=asked: all(each.done() for each in asked), "somebody waits for ever")


def test_an_internal_error_is_an_error_in_the_score(monkeypatch):
    def broken(judge, question, number):
        raise ZeroDivisionError("no key")

    monkeypatch.setattr("goldspan.judge.judge_session._cache_key", broken)
    with serving([opinion(0.5)]) as model, judging(model) as judge:
        (left,) = judge_evaluations([evaluation()], judge)
    assert left.score("tool_selection").error == "ZeroDivisionError: no key"
    assert judge.usage.failed == 1
