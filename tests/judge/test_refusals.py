"""After an endpoint has refused the key or the model several times, the judge stops sending requests."""

from __future__ import annotations

import asyncio

import pytest

from goldspan import Evaluation, Run, ToolCall, ToolDefinition, evaluate
from goldspan.judge import Judge, ModelEndpoint, judge_session, open_session
from support.model_endpoint import failure, opinion, serving


def evaluation(number: int, **thresholds: float) -> Evaluation:
    run = Run(str(number), input=f"find {number}", tool_calls=(ToolCall("a"),), available_tools=(ToolDefinition("a"),))
    return evaluate(run, ["a"], thresholds=thresholds)


def errors_of(judge: Judge, numbers: range, *, pause: float = 0.0) -> list[str | None]:
    """The errors of consecutive runs."""

    async def ask() -> list[str | None]:
        found = []
        async with open_session(judge) as session:
            for number in numbers:
                found.append((await session.score(evaluation(number))).error)
                await asyncio.sleep(pause)
        return found

    return asyncio.run(ask())


@pytest.mark.parametrize("status", [401, 403, 404])
def test_after_three_consecutive_refusals_no_more_requests_are_sent(status: int) -> None:
    with serving([failure(status, message="no such model")]) as model:
        judge = Judge(ModelEndpoint("tiny", base_url=model.url))
        errors = errors_of(judge, range(50))
    assert set(errors) == {f"EndpointRefused: the endpoint answered {status}: no such model"}
    assert len(model.requests) == 3
    assert (judge.usage.requests, judge.usage.failed) == (3, 50)
    assert judge.cache.path == ":memory:"


def test_requests_resume_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_session, "_CIRCUIT_OPEN_S", 0.05)
    with serving(lambda _, number: failure(401) if number < 3 else opinion(1)) as model:
        errors = errors_of(Judge(ModelEndpoint("tiny", base_url=model.url)), range(5), pause=0.1)
    assert [error is None for error in errors] == [False, False, False, True, True]


def test_refusals_of_single_prompts_do_not_stop_requests() -> None:
    """A prompt may be too long, or contain what the provider refuses; other prompts are not affected."""
    with serving([failure(400)]) as model:
        errors_of(Judge(ModelEndpoint("tiny", base_url=model.url)), range(6))
    assert len(model.requests) == 6
    replies = [failure(401), failure(401), opinion(1), failure(401), failure(401), opinion(1)]
    with serving(replies) as model:
        errors_of(Judge(ModelEndpoint("tiny", base_url=model.url)), range(6))
    assert len(model.requests) == 6


def test_a_threshold_passed_to_evaluate_takes_precedence_over_that_of_the_judge() -> None:
    async def half(_: object) -> dict[str, object]:
        return {"score": 0.5, "reason": ""}

    async def scored(judge: Judge, **thresholds: float) -> Evaluation:
        async with open_session(judge) as session:
            return await session.judge(evaluation(1, **thresholds))

    judged = asyncio.run(scored(Judge(half, threshold=0.2), tool_selection=0.9))
    score = judged.score("tool_selection")
    assert score is not None
    assert (score.threshold, score.passed, judged.passed) == (0.9, False, False)


def test_the_token_limit_has_the_parameter_name_that_the_endpoint_expects() -> None:
    from goldspan.judge.prompts import JudgePrompt

    question = JudgePrompt("<run>\n{}\n</run>", ("a",))
    assert "max_completion_tokens" in ModelEndpoint("m")._request_body(question)
    assert "max_tokens" in ModelEndpoint("m", base_url="http://127.0.0.1:1/v1")._request_body(question)
