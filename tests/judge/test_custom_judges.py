"""Custom judges: asynchronous functions, which may do anything."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from concurrent.futures import CancelledError

import pytest
from opentelemetry.instrumentation.utils import is_instrumentation_enabled

from goldspan.judge import (
    Assessment,
    Judge,
    JudgePrompt,
    ModelReply,
    ModelRequestError,
    judge_evaluations,
    open_session,
)
from support.judge_clients import evaluation, judging, score, verdict

OPINION = {"score": 0.25, "reason": "Because.", "better_tool": "faq"}


@pytest.mark.parametrize(
    "answer",
    [
        Assessment(0.25, "Because.", "faq"),
        OPINION,
        json.dumps(OPINION),
        ModelReply(json.dumps(OPINION)),
        ModelReply(json.dumps(OPINION), "mine", 5, 6),
    ],
)
def test_a_custom_judge_may_return_an_assessment_a_dict_json_or_a_model_reply(answer):
    seen = []

    async def mine(question: JudgePrompt):
        seen.append(question)
        return answer

    with judging(mine) as judge:
        found = score(judge)
    assert (found.value, found.judgement.better_tool, found.judgement.words) == (0.25, "faq", "Because.")
    assert found.judgement.model == "mine"
    assert found.judgement.input_tokens == (5 if isinstance(answer, ModelReply) and answer.model else None)
    assert (judge.usage.requests, judge.usage.judged) == (1, 1)
    (question,) = seen
    assert (question.tools, question.temperature, question.seed, question.max_tokens) == (("search", "faq"), 0, 0, 1000)
    assert question.evidence.startswith("<run>\n{")


async def returns(value):
    return value


@pytest.mark.parametrize(
    "answer",
    [
        None,
        5,
        [],
        "no",
        b"{}",
        object(),
        {},
        Assessment(2),
        Assessment(0.5, None),
        ModelReply("x"),
        Assessment("1"),
        Assessment,
    ],
)
def test_an_invalid_return_value_of_a_custom_judge_is_an_error_in_the_score(answer):
    with judging(lambda question: returns(answer), retries=0) as judge:
        assert score(judge).error.startswith("MalformedAnswer: the model's answer ")
    assert judge.usage.failed == 1


class RudeError(Exception):
    def __str__(self):
        raise self


def raising(error):
    async def mine(question):
        raise error

    return mine


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("a\nb\x00" + "c" * 9000), "ValueError: a b ccc"),
        (RudeError(), "RudeError: the error has no text"),
        (TimeoutError("slow"), "TimeoutError: slow"),
        (asyncio.CancelledError(), "CancelledError: the function of the judge cancelled itself"),
        (SystemExit(3), "SystemExit: 3"),
        (ModelRequestError("Mine", "not now"), "Mine: not now"),
        (StopAsyncIteration("x"), "StopAsyncIteration: x"),
        (KeyError("k"), "KeyError: 'k'"),
    ],
)
def test_an_exception_of_a_custom_judge_is_an_error_in_the_score(error, said):
    with judging(raising(error), threshold=0.5) as judge:
        after = verdict(judge)
    found = after.score("tool_selection")
    assert found.error.startswith(said)
    assert len(found.error) < 450
    assert (found.value, found.passed, after.passed) == (None, None, True)
    assert (judge.usage.requests, judge.usage.failed) == (1, 1)


def test_a_custom_judge_may_raise_a_retryable_error():
    attempts = []

    async def mine(question):
        attempts.append(question)
        if len(attempts) < 3:
            raise ModelRequestError("Busy", "wait", is_retryable=True, retry_after=0.05)
        return OPINION

    with judging(mine) as judge:
        assert score(judge).value == 0.25
    assert judge.usage.requests == 3


def test_a_function_that_is_not_asynchronous_is_an_error_in_the_score():
    with judging(lambda question: OPINION) as judge:
        assert score(judge).error == "TypeError: the judge is not an asynchronous function"


async def sleeping(question):
    await asyncio.sleep(60)


async def stubborn(question):
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if stopped.is_set():
                raise


stopped = threading.Event()


@pytest.mark.parametrize("mine", [sleeping, stubborn])
def test_a_hanging_custom_judge_is_abandoned_after_the_timeout(mine):
    stopped.clear()
    started = time.monotonic()
    with judging(mine, timeout=0.2, concurrency=2) as judge:
        threading.Timer(1.5, stopped.set).start()
        found = [
            each.score("tool_selection").error
            for each in judge_evaluations([evaluation(), evaluation(input="b")], judge)
        ]
    assert found == ["Timeout: no answer within 0.2 s"] * 2
    assert time.monotonic() - started < 15
    assert judge.usage.failed == 2
    stopped.set()


def test_a_session_calls_the_custom_judge_in_the_event_loop_of_the_caller():
    threads = set()

    async def mine(question):
        threads.add(threading.current_thread())
        return OPINION

    async def main(judge):
        async with open_session(judge) as session:
            return await asyncio.gather(*(session.judge(evaluation(input=str(number))) for number in range(9)))

    with judging(mine) as judge:
        left = asyncio.run(main(judge))
    assert [each.score("tool_selection").value for each in left] == [0.25] * 9
    assert threads == {threading.current_thread()}


def test_a_cancelled_caller_cancels_its_request_which_is_counted():
    async def main(judge):
        async with open_session(judge) as session:
            task = asyncio.ensure_future(session.judge(evaluation()))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(0)
            assert asyncio.all_tasks() == {asyncio.current_task()}

    with judging(sleeping) as judge:
        asyncio.run(main(judge))
        assert judge.cache.spending_last_day().tokens > 1000
    assert (judge.usage.requests, judge.usage.failed, judge.usage.judged) == (1, 0, 0)


def test_the_cache_distinguishes_custom_judges_of_the_same_name(tmp_path):
    def another():
        async def mine(question):
            return {"score": 1, "reason": ""}

        return mine

    async def mine(question):
        return OPINION

    for ask, value in ((mine, 0.25), (another(), 1.0), (mine, 0.25)):
        with judging(ask, cache=tmp_path / "judge.db") as judge:
            assert score(judge).value == value


def test_requests_of_a_judge_create_no_spans_which_would_be_judged_in_turn():
    instrumented = []

    async def mine(question):
        instrumented.append(is_instrumentation_enabled())
        return OPINION

    with judging(mine) as judge:
        assert score(judge).value == 0.25
    assert instrumented == [False]
    assert is_instrumentation_enabled()


@pytest.mark.parametrize(("length", "shown"), [(388, "x" * 388), (389, "x" * 387 + "…")])
def test_an_error_of_more_than_400_characters_is_shortened_to_400(length, shown):
    async def mine(question):
        raise ValueError("x" * length)

    with judging(mine) as judge:
        assert score(judge).error == f"ValueError: {shown}"


def test_a_redaction_that_exits_is_an_error_in_the_score():
    def redact(seen):
        sys.exit(1)

    with judging(lambda question: returns(OPINION), redact=redact) as judge:
        assert score(judge).error == "SystemExit: 1"
    assert judge.usage.failed == 1


def test_an_interrupted_judge_thread_leaves_no_caller_waiting(caplog):
    def redact(seen):
        raise KeyboardInterrupt

    for _ in range(2):
        judge = Judge(lambda question: returns(OPINION), redact=redact)
        with pytest.raises((KeyboardInterrupt, CancelledError)):
            list(judge_evaluations([evaluation(input=str(number)) for number in range(30)], judge))
        judge.close()
    assert "goldspan could not end the judge's thread" in caplog.text
