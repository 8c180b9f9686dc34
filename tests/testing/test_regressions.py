"""A build is worse than its baseline if the drop exceeds the tolerance and chance does not explain it."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan import ResultsError
from goldspan.testing.regressions import compare_with_baseline, significant_tests, worse_p_value
from goldspan.testing.results import AgentResults
from goldspan.testing.statistics import TrialCount, mcnemar_test
from support.case_results import plain_case, results_of, verdict_cases


def build_of(passed: int, failed: int, *, metric: float = 1.0) -> AgentResults:
    cases = [plain_case(f"g{number}", tool_recall=1.0) for number in range(passed)]
    cases += [plain_case(f"g{passed + number}", "failed", tool_recall=metric) for number in range(failed)]
    return results_of(cases)


def random_build(source: random.Random, failure_rate: float, goldens: int = 200) -> AgentResults:
    return results_of(verdict_cases({f"g{each}": [source.random() >= failure_rate] for each in range(goldens)}))


# --- verdicts ---------------------------------------------------------------------------------------------------------


def test_flaky_goldens_fail_at_most_one_build_in_a_hundred() -> None:
    source = random.Random(20261125)
    found = [compare_with_baseline(random_build(source, 0.02), random_build(source, 0.02)) for _ in range(100)]
    assert sum(comparison.is_regression for comparison in found) <= 1


def test_a_drop_of_ten_points_fails_at_least_ninety_five_builds_in_a_hundred() -> None:
    source = random.Random(20261125)
    found = [compare_with_baseline(random_build(source, 0.02), random_build(source, 0.12)) for _ in range(100)]
    assert sum(comparison.is_regression for comparison in found) >= 95


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=30))
def test_with_one_trial_the_test_is_the_exact_mcnemar_test(pairs: list[tuple[bool, bool]]) -> None:
    worse, better = pairs.count((True, False)), pairs.count((False, True))
    counts = [(TrialCount(before, 1), TrialCount(after, 1)) for before, after in pairs]
    assert worse_p_value(counts) == pytest.approx(mcnemar_test(worse, better, alternative="worse"))


@given(
    st.lists(st.booleans(), min_size=1, max_size=5),
    st.lists(st.booleans(), min_size=1, max_size=5),
)
def test_with_trials_the_test_counts_every_assignment_of_the_passed_trials(
    before: list[bool], after: list[bool]
) -> None:
    trials, passed = len(before) + len(after), sum(before) + sum(after)
    assignments = [set(chosen) for chosen in combinations(range(trials), passed)]
    as_few = sum(len([each for each in chosen if each >= len(before)]) <= sum(after) for chosen in assignments)
    counts = (TrialCount(sum(before), len(before)), TrialCount(sum(after), len(after)))
    assert worse_p_value([counts]) == pytest.approx(as_few / len(assignments))


def test_one_golden_that_never_passes_any_more_is_found_with_enough_trials() -> None:
    steady = {f"g{number}": [True] * 8 for number in range(5)}
    baseline = results_of(verdict_cases({**steady, "refund": [True] * 8}))
    current = results_of(verdict_cases({**steady, "refund": [False] * 8}))
    comparison = compare_with_baseline(baseline, current)
    assert comparison.is_regression
    assert [change.golden_id for change in comparison.worse] == ["refund"]
    assert comparison.worse[0].baseline == TrialCount(8, 8)
    assert comparison.worse[0].current == TrialCount(0, 8)


def test_a_drop_within_the_tolerance_is_no_regression_however_certain() -> None:
    baseline, current = build_of(1000, 0), build_of(970, 30)
    comparison = compare_with_baseline(baseline, current)
    assert comparison.verdicts is not None
    assert comparison.verdicts.p_value < 1e-6
    assert not comparison.is_regression
    assert compare_with_baseline(baseline, current, tolerance=0.02).is_regression


def test_a_better_build_is_no_regression() -> None:
    comparison = compare_with_baseline(build_of(50, 50), build_of(100, 0))
    assert not comparison.is_regression
    assert len(comparison.better) == 50
    assert not comparison.worse


def test_a_golden_without_a_verdict_in_one_build_is_not_compared() -> None:
    baseline = results_of(verdict_cases({"a": [True], "b": [True]}))
    current = results_of(verdict_cases({"a": [True], "b": [None]}))
    comparison = compare_with_baseline(baseline, current)
    assert comparison.goldens == 2
    assert comparison.verdicts is not None
    assert comparison.verdicts.current_rate == 1.0


def test_without_any_verdict_only_scores_are_compared() -> None:
    results = results_of([plain_case("a", "not_evaluated", tool_recall=1.0)])
    comparison = compare_with_baseline(results, results)
    assert comparison.verdicts is None
    assert comparison.metrics[0].metric == "tool_recall"
    assert not comparison.is_regression


# --- scores -----------------------------------------------------------------------------------------------------------


def scored_build(values: list[float]) -> AgentResults:
    return results_of(plain_case(f"g{number}", tool_recall=value) for number, value in enumerate(values))


def test_a_mean_score_that_falls_is_a_regression_although_every_run_passes() -> None:
    comparison = compare_with_baseline(scored_build([1.0] * 40), scored_build([0.8] * 40))
    (metric,) = comparison.metrics
    assert metric.is_regression
    assert (metric.baseline_mean, metric.current_mean) == (1.0, pytest.approx(0.8))
    assert metric.p_value is not None
    assert metric.p_value < 0.001
    assert comparison.verdicts is not None
    assert not comparison.verdicts.is_regression


def test_few_lower_scores_are_no_regression() -> None:
    comparison = compare_with_baseline(scored_build([1.0] * 10), scored_build([0.0] * 6 + [1.0] * 4))
    (metric,) = comparison.metrics
    assert metric.current_mean == 0.4
    assert metric.p_value is None
    assert not metric.is_regression


def test_a_metric_that_one_build_lacks_is_left_out() -> None:
    baseline = results_of([plain_case("a", tool_recall=1.0)])
    current = results_of([plain_case("a", tool_precision=1.0)])
    assert compare_with_baseline(baseline, current).metrics == ()


def test_the_tests_share_the_significance() -> None:
    assert significant_tests({"a": 0.01, "b": 0.015, "c": 0.04}, 0.03) == {"a", "b"}
    assert significant_tests({"a": 0.011, "b": 0.011, "c": 0.011}, 0.03) == frozenset()
    assert significant_tests({}, 0.03) == frozenset()


# --- which goldens ----------------------------------------------------------------------------------------------------


def test_changed_goldens_are_named_and_not_compared() -> None:
    old = replace(plain_case("changed"), golden_digest="1")
    new = replace(plain_case("changed", "failed"), golden_digest="2")
    baseline, current = results_of([old, plain_case("a")]), results_of([new, plain_case("a")])
    comparison = compare_with_baseline(baseline, current)
    assert comparison.changed == ("changed",)
    assert comparison.goldens == 1
    assert comparison.worse == ()


def test_added_and_removed_goldens_are_named() -> None:
    baseline = results_of([plain_case("a"), plain_case("gone")])
    current = results_of([plain_case("new"), plain_case("a")])
    comparison = compare_with_baseline(baseline, current)
    assert (comparison.added, comparison.removed) == (("new",), ("gone",))


def test_builds_without_a_common_golden_cannot_be_compared() -> None:
    with pytest.raises(ResultsError, match="no unchanged golden in common"):
        compare_with_baseline(results_of([plain_case("a")]), results_of([plain_case("b")]))
