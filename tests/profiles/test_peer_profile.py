"""A profile computes the score of a peer for a run and its golden, as a metric."""

from __future__ import annotations

from typing import Any

import pytest

from goldspan import evaluate, profiles
from goldspan.model import AnyOf, Comparison, ComparisonRow, ExpectedTool, Golden, Parallel, Run, Score, Times, ToolCall
from goldspan.model.value_matchers import Approx, OneOf


def scored(calls: tuple[ToolCall, ...], golden: Golden | None, peer: str = "deepeval", **options: Any) -> Score:
    run = Run("1:2", tool_calls=calls)
    result = evaluate(run, golden, metrics=[profiles.metric(peer, **options)])
    score = result.score(peer)
    assert score is not None
    return score


def test_a_profile_is_a_metric_with_the_name_of_the_peer() -> None:
    golden = Golden("g", tools=(ExpectedTool("search"), ExpectedTool("search"), ExpectedTool("book")))
    score = scored((ToolCall("search"), ToolCall("search")), golden, threshold=0.25)
    assert (score.value, score.passed, score.threshold) == (pytest.approx(1 / 3), True, 0.25)
    sane = scored((ToolCall("search"), ToolCall("search")), golden, sane=True, threshold=0.25)
    assert sane.value == pytest.approx(2 / 3)


def test_a_peer_without_a_threshold_gives_no_verdict() -> None:
    assert scored((ToolCall("a"),), Golden("g", tools=(ExpectedTool("a"),)), "ragas").passed is None


def test_denied_calls_and_handoffs_are_not_passed_to_the_peer() -> None:
    calls = (
        ToolCall("a"),
        ToolCall("b", outcome="denied"),
        ToolCall("c", kind="handoff"),
        ToolCall("d", kind="agent"),
        ToolCall("e", kind="hosted"),
    )
    golden = Golden("g", tools=(ExpectedTool("a"), ExpectedTool("d"), ExpectedTool("e")))
    assert scored(calls, golden, "pydantic_evals").value == 1.0


def test_a_peer_compares_names_as_the_instrumentation_recorded_them() -> None:
    calls = (ToolCall("find", "mcp__orders__find"),)
    assert scored(calls, Golden("g", tools=(ExpectedTool("find"),))).value == 0.0
    assert scored(calls, Golden("g", tools=(ExpectedTool("mcp__orders__find"),))).value == 1.0


def test_parallel_and_repeated_expectations_are_expanded_to_single_calls() -> None:
    golden = Golden("g", tools=(Parallel((ExpectedTool("a"), ExpectedTool("b"))), ExpectedTool("c", times=Times(2, 2))))
    calls = tuple(map(ToolCall, "abcc"))
    assert scored(calls, golden, "langchain_benchmarks", order_matters=False).value == 1.0
    assert scored(calls[:3], golden, "langchain_benchmarks", order_matters=False).value == 0.0


@pytest.mark.parametrize(
    ("golden", "reason"),
    [
        pytest.param(
            Golden("g", tools=(AnyOf(((ExpectedTool("a"),), (ExpectedTool("b"),))),)), "alternative", id="alternatives"
        ),
        pytest.param(Golden("g", tools=(ExpectedTool("a", times=Times(0, 1)),)), "optional", id="an optional call"),
        pytest.param(Golden("g", tools=(ExpectedTool("a", times=Times(1, None)),)), "repeatable", id="any number"),
        pytest.param(Golden("g", tools=(ExpectedTool("a", {"k": [Approx(1)]}),)), "matchers", id="a matcher"),
        pytest.param(Golden("g", tools=(ExpectedTool("a", {}, result=OneOf((1,))),)), "matchers", id="of a result"),
        pytest.param(Golden("g", tools=(ExpectedTool("a", {"k": 1}),)), "not captured", id="no arguments seen"),
    ],
)
def test_expectations_that_the_peer_cannot_express_are_not_evaluated(golden: Golden, reason: str) -> None:
    score = scored((ToolCall("a"),), golden, "google_adk")
    assert (score.value, score.passed, score.label) == (None, None, "not_evaluated")
    assert reason in (score.reason or "")


def test_a_peer_that_compares_only_names_ignores_matchers_and_missing_arguments() -> None:
    golden = Golden("g", tools=(ExpectedTool("a", {"k": Approx(1)}), ExpectedTool("b", {"k": 1})))
    assert scored((ToolCall("a"), ToolCall("b")), golden, "eval_ai_library").value == 1.0


def test_a_call_without_captured_arguments_is_scored_where_none_are_expected() -> None:
    golden = Golden("g", tools=(ExpectedTool("a", {"k": (1, {"l": 2})}), ExpectedTool("b")))
    calls = (ToolCall("a", arguments={"k": [1, {"l": 2}]}), ToolCall("b"))
    assert scored(calls, golden, "ragas", metric="ToolCallF1").value == 1.0


def test_circular_arguments_and_huge_repeat_counts_are_handled_in_bounded_time() -> None:
    circle: dict[str, Any] = {}
    circle["k"] = [circle]
    rows = (ComparisonRow("unexpected", called=ToolCall("a", arguments={"k": 1})),)
    metric = profiles.metric("google_adk")
    assert metric.measure(Comparison(Golden("g", tools=(ExpectedTool("a", circle),)), rows)) == 0.0
    often = Comparison(Golden("g", tools=(ExpectedTool("a", times=Times(10**12, 10**12)),)), rows)
    assert metric.measure(often) is None
    assert "repeatable" in metric.why_missing(often)


def test_a_case_in_which_the_peer_raises_does_not_fail_the_evaluation() -> None:
    score = scored((ToolCall("a"),), Golden("g"), "azure")
    assert (score.value, score.error) == (None, None)
    assert score.reason == "azure raises EvaluationException where nothing is expected"


def test_a_run_without_a_golden_has_no_score() -> None:
    assert scored((ToolCall("a"),), None).value is None
