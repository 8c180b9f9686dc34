"""Gates compare the results, or those of a tag or a golden, with the values that are required."""

from __future__ import annotations

from dataclasses import replace

import pytest

from goldspan import ConfigurationError
from goldspan.testing.gates import Gate, GateScope, check_gates, parse_gates
from goldspan.testing.results import AgentResults
from support.case_results import plain_case, results_of, verdict_cases


def check_one(results: AgentResults, gate: Gate, *, is_strict: bool = False) -> tuple[float | None, bool]:
    (result,) = check_gates(results, [gate], is_strict=is_strict)
    return result.value, result.is_met


@pytest.mark.parametrize(
    ("text", "scope", "gate"),
    [
        ("passed=0.95", "all", Gate("passed", 0.95)),
        ("pass^3=1", "all", Gate("pass^3", 1.0)),
        ("checkout:tool_recall=0", "tag", Gate("tool_recall", 0.0, "tag", "checkout")),
        ("a:b=c:passed=.5", "golden", Gate("passed", 0.5, "golden", "a:b=c")),
    ],
)
def test_a_gate_is_parsed(text: str, scope: GateScope, gate: Gate) -> None:
    assert parse_gates([text], "--fail-under", scope) == [gate]


@pytest.mark.parametrize("text", ["passed", "passed=", "=1", "passed=2", "passed=-1", "passed=nan", "passed=x"])
def test_a_gate_that_is_written_otherwise_is_an_error(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--fail-under takes METRIC=X, such as passed=0\.95"):
        parse_gates([text], "--fail-under")


@pytest.mark.parametrize("text", ["passed=1", ":passed=1", "refund:=1", "refund:passed"])
def test_a_gate_of_a_golden_needs_a_golden_and_a_metric(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--fail-under-golden takes GOLDEN:METRIC=X"):
        parse_gates([text], "--fail-under-golden", "golden")


def test_no_texts_are_no_gates() -> None:
    assert parse_gates(None, "--fail-under") == []


def test_the_pass_rate_counts_errors_as_failed_and_leaves_out_what_was_not_evaluated() -> None:
    cases = [plain_case("a"), plain_case("b"), plain_case("c", "error"), plain_case("d", "not_evaluated")]
    results = results_of(cases)
    assert check_one(results, Gate("passed", 0.66)) == (pytest.approx(2 / 3), True)
    assert check_one(results, Gate("passed", 0.67)) == (pytest.approx(2 / 3), False)
    assert check_one(results, Gate("passed", 0.6), is_strict=True) == (0.5, False)


def test_a_value_that_is_not_known_meets_no_gate() -> None:
    results = results_of([plain_case("a", "not_evaluated", tool_recall=None)])
    assert check_one(results, Gate("passed", 0.0)) == (None, False)
    assert check_one(results, Gate("tool_recall", 0.0)) == (None, False)


def test_a_metric_that_could_not_be_evaluated_in_a_case_has_no_value_if_the_check_is_strict() -> None:
    cases = [plain_case("a", tool_recall=1.0), plain_case("b", "not_evaluated", tool_recall=None)]
    assert check_one(results_of(cases), Gate("tool_recall", 0.9)) == (1.0, True)
    assert check_one(results_of(cases), Gate("tool_recall", 0.9), is_strict=True) == (None, False)
    evaluated = [cases[0], plain_case("b", "not_evaluated", tool_recall=0.8)]
    assert check_one(results_of(evaluated), Gate("tool_recall", 0.9), is_strict=True) == (0.9, True)


def test_a_metric_that_a_golden_does_not_ask_for_may_have_no_value() -> None:
    cases = [plain_case("a", tool_recall=1.0), plain_case("b", tool_recall=None)]
    assert check_one(results_of(cases), Gate("tool_recall", 0.9), is_strict=True) == (1.0, True)


def test_a_gate_measures_the_cases_of_its_tag_or_golden() -> None:
    cases = [
        replace(plain_case("a", tool_recall=1.0), tags=("fast",)),
        replace(plain_case("b", "failed", tool_recall=0.5), tags=("fast", "slow")),
        replace(plain_case("c", "failed", tool_recall=0.0), tags=("slow",)),
    ]
    results = results_of(cases)
    assert check_one(results, Gate("tool_recall", 0.75, "tag", "fast")) == (0.75, True)
    assert check_one(results, Gate("passed", 1.0, "golden", "a")) == (1.0, True)
    assert check_one(results, Gate("passed", 0.1, "tag", "slow")) == (0.0, False)
    assert check_gates(results, [Gate("passed", 0.1, "tag", "slow")])[0].cases == 2


def test_trial_statistics_are_gates() -> None:
    results = results_of(verdict_cases({"a": [True, True], "b": [True, False]}))
    assert check_one(results, Gate("pass^1", 0.75)) == (0.75, True)
    assert check_one(results, Gate("pass^2", 0.51)) == (0.5, False)
    assert check_one(results, Gate("pass@2", 1.0)) == (1.0, True)


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        (Gate("tool_recal", 1.0), "No case has the metric 'tool_recal'. Did you mean 'tool_recall'?"),
        (Gate("speed", 1.0), "No case has the metric 'speed'. There are passed, pass^K, pass@K, tool_recall."),
        (Gate("passed", 1.0, "tag", "fats"), "No case has the tag 'fats'. Did you mean 'fast'?"),
        (Gate("passed", 1.0, "golden", "zzz"), "No case has the golden 'zzz'. There are a."),
        (Gate("pass^3", 1.0), "pass^3 needs 3 trials of a golden; run the agent with --trials 3."),
    ],
)
def test_a_gate_that_measures_nothing_is_an_error(gate: Gate, message: str) -> None:
    results = results_of([replace(plain_case("a", tool_recall=1.0), tags=("fast",))])
    with pytest.raises(ConfigurationError) as caught:
        check_gates(results, [gate])
    assert str(caught.value) == message
