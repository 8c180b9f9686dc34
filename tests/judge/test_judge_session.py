"""The effects of an assessment: score, judgement, threshold, and with `min` a lower `tool_correctness`."""

from __future__ import annotations

from dataclasses import replace

import pytest

import goldspan
from goldspan import Golden, Judgement, Run, ToolCall, ToolDefinition
from goldspan.errors import ConfigurationError
from goldspan.judge import Budget, Judge, Prices, judge_evaluations
from goldspan.scoring.coercion import as_golden
from support.judge_clients import evaluation, judging, score, verdict
from support.model_endpoint import content, failure, opinion, serving


def judged_with(value, of=None, reply=None, **options):
    """The evaluation after the model answers with that score."""
    with serving([reply or opinion(value, "T2", "FAQ answers this.")]) as model, judging(model, **options) as judge:
        return verdict(judge, of)


def golden(**thresholds):
    """A golden that expects a search, with thresholds."""
    return replace(as_golden(["search"]), thresholds=thresholds)


def test_a_score_contains_the_answer_and_the_settings_of_the_judge():
    found = judged_with(0.25, prices=Prices(1, 10), seed=3, temperature=0.5).score("tool_selection")
    assert found == goldspan.Score(
        "tool_selection",
        0.25,
        reason="tiny-judge rates the choice of tools 0.25; faq would have been better.",
        judgement=Judgement(
            "tiny-judge",
            votes=(0.25,),
            better_tool="faq",
            words="FAQ answers this.",
            temperature=0.5,
            seed=3,
            rubric=1,
            input_tokens=100,
            output_tokens=20,
            cost=pytest.approx(0.0003),
        ),
    )


@pytest.mark.parametrize(
    ("own", "thresholds", "expected"),
    [
        (None, {}, (None, None, None)),
        (0.5, {}, (0.5, True, "pass")),
        (0.7, {}, (0.7, False, "fail")),
        (0.6 + 1e-12, {}, (0.6 + 1e-12, True, "pass")),
        (0.5, {"tool_selection": 0.7}, (0.7, False, "fail")),
        (None, {"tool_selection": 0.6}, (0.6, True, "pass")),
    ],
)
def test_a_threshold_decides_the_verdict_and_that_of_the_golden_takes_precedence(own, thresholds, expected):
    before = goldspan.evaluate(evaluation().run, golden(**thresholds))
    after = judged_with(0.6, before, threshold=own)
    found = after.score("tool_selection")
    assert (found.threshold, found.passed, found.label) == expected
    # The judge's metric in a golden has no value before the judge has answered.
    assert before.passed is (None if thresholds else True)
    assert after.passed is (expected[1] is not False)
    assert ("rates the choice of tools 0.6" in after.reason) == (after.passed is False)
    assert "not evaluated" not in after.reason


def test_a_golden_file_may_state_a_threshold_for_tool_selection(tmp_path):
    file = tmp_path / "goldens.yaml"
    file.write_text(
        "goldens:\n- id: shoes\n  input: What if these shoes don't fit?\n  tools: [search]\n"
        "  thresholds: {tool_selection: 0.7}\n"
    )
    before = goldspan.evaluate(evaluation().run, goldspan.load_goldens(file))
    assert before.golden.id == "shoes"
    after = judged_with(0.6, before)
    assert (after.passed, after.score("tool_selection").threshold) == (False, 0.7)
    assert (before.passed, judged_with(None, before, reply=failure(400)).passed) == (None, None)
    assert before.reason.endswith("not evaluated: tool_selection could not be measured: no judge was asked about it.")


def test_the_combination_apart_changes_no_other_score():
    before = evaluation()
    after = judged_with(0.1, before)
    assert after.scores[:-1] == before.scores
    assert (after.passed, after.reason, after.digest) == (before.passed, before.reason, before.digest)
    assert (after.revision, after.changes) == (before.revision, ("tool_selection",))
    assert (after.run, after.golden, after.comparison) == (before.run, before.golden, before.comparison)


def test_the_combination_min_lowers_tool_correctness():
    before = evaluation()
    after = judged_with(0.1, before, combination="min", threshold=0.5)
    found = after.score("tool_correctness")
    assert (found.value, found.passed, found.threshold, found.label) == (0.1, False, 0.5, "fail")
    assert found.reason == (
        "The comparison gives 1; tool_selection is lower. tiny-judge rates the choice of tools 0.1; "
        "faq would have been better."
    )
    assert (after.passed, after.changes, after.digest) == (False, ("tool_selection", "tool_correctness"), before.digest)
    assert after.reason.endswith("tiny-judge rates the choice of tools 0.1; faq would have been better.")
    assert [each.metric for each in after.scores] == [*(each.metric for each in before.scores), "tool_selection"]


def test_the_combination_min_does_not_change_the_verdict_without_a_threshold():
    before = evaluation()
    after = judged_with(0.1, before, combination="min")
    found = after.score("tool_correctness")
    assert (found.value, found.passed, found.threshold, found.label) == (0.1, None, None, None)
    assert (after.passed, after.reason) == (before.passed, before.reason)


def test_the_combination_min_keeps_a_score_that_is_already_lower():
    before = goldspan.evaluate(evaluation().run, ["search", "book", "pay"])
    after = judged_with(0.9, before, combination="min")
    assert after.scores[:-1] == before.scores
    assert after.changes == ("tool_selection",)


def test_the_combination_min_keeps_an_unknown_score_unknown():
    before = goldspan.evaluate(evaluation().run, None)
    assert before.score("tool_correctness").value is None
    after = judged_with(0.1, before, combination="min", threshold=0.5)
    assert after.scores[:-1] == before.scores
    assert (after.passed, after.score("tool_selection").passed) == (None, False)


def test_combined_with_selects_another_score_to_lower():
    before = goldspan.evaluate(evaluation().run, ["search"], metrics=["tool_precision", "tool_correctness"])
    after = judged_with(0.1, before, combination="min", combined_with="tool_precision")
    assert after.score("tool_precision").value == 0.1
    assert after.score("tool_correctness") == before.score("tool_correctness")


@pytest.mark.parametrize("combination", ["apart", "min"])
def test_a_failing_judge_does_not_fail_the_run(combination):
    before = evaluation()
    after = judged_with(None, before, reply=failure(500), retries=0, threshold=0.9, combination=combination)
    assert after.scores[:-1] == before.scores
    assert (after.passed, after.reason, after.digest) == (before.passed, before.reason, before.digest)
    found = after.score("tool_selection")
    assert (found.value, found.passed, found.threshold, found.label) == (None, None, 0.9, "not_evaluated")
    assert found.error == "EndpointError: the endpoint answered 500: The model has failed."


def test_a_new_assessment_replaces_the_previous_one():
    first = judged_with(0.1)
    second = judged_with(0.9, first)
    assert [each.value for each in second.scores if each.metric == "tool_selection"] == [0.9]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"available_tools": ()}, "the tools the agent was offered were not captured"),
        ({"input": None}, "the request was not captured"),
        ({"input": " \n"}, "the request was not captured"),
        (
            {"available_tools": tuple(ToolDefinition("\u202e" * 200 + str(number)) for number in range(200))},
            "the run is too long for a prompt",
        ),
    ],
)
def test_a_run_with_insufficient_data_is_not_judged(said, why):
    before = evaluation(**said)
    with serving([opinion(0.1)]) as model, judging(model, threshold=0.5, combination="min") as judge:
        after = verdict(judge, before)
    found = after.score("tool_selection")
    assert (found.value, found.passed, found.reason, found.error) == (None, None, why, None)
    assert (after.passed, after.scores[:-1]) == (before.passed, before.scores)
    assert (len(model.requests), judge.usage.requests, judge.usage.not_asked) == (0, 0, 1)


def test_available_tools_are_used_for_runs_that_do_not_state_them():
    tools = ["search", {"name": "faq", "description": "Answers."}, ToolDefinition("book")]
    with serving([opinion(0.5, "T3")]) as model, judging(model, available_tools=tools) as judge:
        assert score(judge, evaluation(available_tools=())).judgement.better_tool == "book"
    with pytest.raises(ConfigurationError, match="available_tools"):
        Judge(_never_called, available_tools="search")


async def _never_called(question):
    raise AssertionError


# --- votes ------------------------------------------------------------------------------------------------------------


def test_the_score_is_the_median_of_votes_with_different_seeds():
    replies = [opinion(0.9, None, "Fine."), opinion(0.2, "T2", "Bad."), opinion(0.6, "T2", "So so.")]
    with serving(replies) as model, judging(model, votes=3, seed=10, threshold=0.5, prices=Prices(1, 1)) as judge:
        found = score(judge)
    assert [request.body["seed"] for request in model.requests] == [10, 11, 12]
    judgement = found.judgement
    assert (found.value, found.passed, judgement.votes) == (0.6, True, (0.9, 0.2, 0.6))
    assert (judgement.agreement, judgement.words, judgement.better_tool) == (pytest.approx(2 / 3), "So so.", "faq")
    assert (judgement.seed, judgement.input_tokens, judgement.output_tokens) == (10, 300, 60)
    assert "the median of 3 votes of which 67% agree with it" in found.reason
    assert (judge.usage.requests, judge.usage.judged, judge.usage.input_tokens) == (3, 1, 300)


def test_votes_are_requested_without_seeds_too():
    with serving([opinion(0.2), opinion(0.4)]) as model, judging(model, votes=2, seed=None) as judge:
        found = score(judge)
    assert (found.value, found.judgement.votes, found.judgement.seed) == (pytest.approx(0.3), (0.2, 0.4), None)
    assert len(model.requests) == 2


def test_a_failed_vote_is_omitted():
    replies = [opinion(0.2), content("{"), opinion(0.6)]
    with serving(replies) as model, judging(model, votes=3, retries=0) as judge:
        found = score(judge)
    assert (found.value, found.judgement.votes, found.error) == (pytest.approx(0.4), (0.2, 0.6), None)
    assert (judge.usage.requests, judge.usage.judged, judge.usage.failed) == (3, 1, 0)


def test_if_half_of_the_votes_fail_the_score_is_an_error_and_no_more_are_requested():
    replies = [content("{"), opinion(0.2), content("{"), opinion(0.6)]
    with serving(replies) as model, judging(model, votes=4, retries=0) as judge:
        assert score(judge).error == "MalformedAnswer: the model's answer is not JSON"
    assert (len(model.requests), judge.usage.requests, judge.usage.failed, judge.usage.judged) == (3, 3, 1, 0)


# --- the example of deepeval's documentation --------------------------------------------------------------------------

SHOES = {
    "input": "What if these shoes don't fit?",
    "actual_output": "We offer a 30-day full refund at no extra cost.",
    "tools_called": ["WebSearch", "ToolQuery"],
    "expected_tools": ["WebSearch"],
}
OFFERED = [{"name": "WebSearch", "description": "Searches the web."}, {"name": "FAQ", "description": "Known answers."}]


@pytest.mark.parametrize("metric", ["tool_correctness", goldspan.profiles.metric("deepeval")])
@pytest.mark.parametrize(("said", "expected"), [(0.4, 0.4), (1.0, 1.0)])
def test_the_deepeval_example_has_the_lower_of_both_scores(metric, said, expected):
    rows = [SHOES, SHOES | {"available_tools": OFFERED}]
    name = metric if isinstance(metric, str) else metric.name
    evaluations = goldspan.evaluate_cases(rows, metrics=[metric])
    with serving([opinion(said)]) as model, judging(model, combination="min", combined_with=name) as judge:
        without, with_tools = judge_evaluations(evaluations, judge)
    assert (without.score(name).value, with_tools.score(name).value) == (1.0, expected)
    assert (without.score("tool_selection").value, with_tools.score("tool_selection").value) == (None, said)
    assert (judge.usage.requests, judge.usage.judged, judge.usage.not_asked) == (1, 1, 1)
    run = Run(
        "r",
        input=SHOES["input"],
        tool_calls=(ToolCall("WebSearch"), ToolCall("ToolQuery")),
        available_tools=(ToolDefinition("WebSearch"),),
    )
    assert judged_with(said, goldspan.evaluate(run, Golden("g", tools=as_golden(["WebSearch"]).tools))).passed is True


# --- invalid arguments ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        *({"votes": value} for value in (0, -1, 1.5, True, None)),
        *({"threshold": value} for value in (-0.1, 1.1, float("nan"), "0.5", True)),
        *({"timeout": value} for value in (0, -1, float("inf"), None)),
        *({"temperature": value} for value in (-1, "0")),
        *({"seed": value} for value in (-1, 0.5)),
        *({name: -1} for name in ("retries", "retry_after_budget", "concurrency", "max_queue", "max_tokens")),
        *({"show": "everything"}, {"combination": "max"}, {"budget": Budget(cost=1.0)}),
        *({"available_tools": value} for value in ("search", 5, [5])),
    ],
)
def test_invalid_options_of_a_judge_are_refused_at_construction(options):
    with pytest.raises(ConfigurationError) as cause:
        Judge(_never_called, **options)
    assert next(iter(options)).split("_")[0] in str(cause.value)


@pytest.mark.parametrize("make", [lambda: Judge(None), lambda: Judge("gpt"), lambda: Judge(Run)])
def test_a_judge_needs_an_endpoint_or_an_async_function(make):
    with pytest.raises(ConfigurationError, match="a judge is a ModelEndpoint or an async function"):
        make()


@pytest.mark.parametrize("amounts", [{"tokens": -1}, {"tokens": "5"}, {"cost": float("nan")}, {"cost": True}])
def test_a_budget_must_be_a_non_negative_number(amounts):
    with pytest.raises(ConfigurationError, match="the judge's budget of"):
        Budget(**amounts)


@pytest.mark.parametrize("prices", [(-1, 0), (0, None), (float("inf"), 1)])
def test_prices_must_be_non_negative_numbers(prices):
    with pytest.raises(ConfigurationError, match="the price of"):
        Prices(*prices)
