"""The outcome of a check is written in the forms that CI systems read."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

from goldspan.model import GoldenSource
from goldspan.testing.check_reports import (
    CheckOutcome,
    check_document,
    github_annotations,
    junit_xml,
    markdown_summary,
)
from goldspan.testing.gates import Gate, check_gates
from goldspan.testing.regressions import compare_with_baseline
from goldspan.testing.results import CaseResult
from support.case_results import evaluated_case, golden_of, plain_case, results_of

PASSED = plain_case("greet", tool_recall=1.0)
FAILED = plain_case("refund", "failed", tool_recall=0.5)
RAISED = plain_case("raise", "error")
LATE = plain_case("late", "timeout")
UNKNOWN = plain_case("unknown", "not_evaluated", tool_recall=None)


def outcome_of_cases(*cases: CaseResult, gate: Gate | None = None, allow_errors: bool = True) -> CheckOutcome:
    results = results_of(cases)
    gates = check_gates(results, [gate] if gate else [])
    return CheckOutcome(results, gates, fails_on_errors=not allow_errors)


# --- the verdict ------------------------------------------------------------------------------------------------------


def test_a_check_without_requirements_passes() -> None:
    assert outcome_of_cases(FAILED).passed


def test_an_unmet_gate_fails_the_check() -> None:
    outcome = outcome_of_cases(PASSED, FAILED, gate=Gate("passed", 0.9))
    assert outcome.failures == ["passed is 0.5000, and at least 0.9 is required."]
    assert outcome_of_cases(PASSED, FAILED, gate=Gate("passed", 0.5)).passed


def test_a_gate_without_a_value_fails_the_check() -> None:
    outcome = outcome_of_cases(UNKNOWN, gate=Gate("tool_recall", 0.0, "golden", "unknown"))
    assert outcome.failures == ["tool_recall of golden unknown has no value, and at least 0 is required."]


def test_errors_of_the_agent_fail_the_check_unless_they_are_allowed() -> None:
    assert outcome_of_cases(RAISED, LATE, allow_errors=False).failures == ["The agent raised or timed out in 2 cases."]
    assert outcome_of_cases(RAISED, allow_errors=False).failures == ["The agent raised or timed out in 1 case."]
    assert outcome_of_cases(RAISED).passed


def test_a_regression_fails_the_check_and_names_what_fell() -> None:
    baseline = results_of(plain_case(f"g{number}", tool_recall=1.0) for number in range(40))
    current = results_of(
        plain_case(f"g{number}", "failed" if number < 10 else "passed", tool_recall=float(number >= 10))
        for number in range(40)
    )
    outcome = CheckOutcome(current, baseline=compare_with_baseline(baseline, current))
    assert outcome.failures == [
        "The pass rate fell from 1.0000 to 0.7500 (10 goldens worse, 0 better; p = 0.00098).",
        "tool_recall fell from 1.0000 to 0.7500 (p = 0.00025).",
    ]
    assert [golden.is_worse for golden in outcome.faulty_goldens] == [True] * 10
    summary = markdown_summary(outcome)
    assert "40 goldens compared with the baseline." in summary
    assert "| pass rate | 1.0000 | 0.7500 | 0.00098 | worse |" in summary
    assert "| g0 | worse | g0 failed. |" in summary
    assert check_document(outcome)["baseline"]["is_regression"] is True


def test_a_golden_with_several_trials_says_how_many_passed() -> None:
    cases = [PASSED, plain_case("greet", "failed", trial=2), plain_case("greet", trial=3)]
    (golden,) = outcome_of_cases(*cases).faulty_goldens
    assert golden.sentence == "2 of 3 trials passed. greet failed."


# --- JSON -------------------------------------------------------------------------------------------------------------


def test_the_document_holds_the_verdict_the_gates_and_the_goldens() -> None:
    outcome = outcome_of_cases(PASSED, FAILED, LATE, gate=Gate("tool_recall", 0.9))
    assert check_document(outcome) == {
        "passed": False,
        "failures": ["tool_recall is 0.7500, and at least 0.9 is required."],
        "cases": {"passed": 1, "failed": 1, "not_evaluated": 0, "error": 0, "timeout": 1},
        "pass_rate": 1 / 3,
        "metrics": {"tool_recall": 0.75},
        "gates": [
            {
                "metric": "tool_recall",
                "minimum": 0.9,
                "scope": "all",
                "name": "",
                "value": 0.75,
                "cases": 3,
                "met": False,
            }
        ],
        "baseline": None,
        "goldens": [
            {
                "golden_id": "refund",
                "source": {"file": "goldens.yaml", "line": 7},
                "outcomes": ["failed"],
                "worse": False,
                "reason": "refund failed.",
            },
            {
                "golden_id": "late",
                "source": {"file": "goldens.yaml", "line": 7},
                "outcomes": ["timeout"],
                "worse": False,
                "reason": "The agent did not return in time.",
            },
        ],
    }


# --- JUnit XML --------------------------------------------------------------------------------------------------------


def test_junit_has_a_test_for_each_case_and_each_gate() -> None:
    gate = Gate("passed", 0.9)
    text = junit_xml(outcome_of_cases(PASSED, FAILED, RAISED, LATE, UNKNOWN, gate=gate))
    goldens, checks = ElementTree.fromstring(text)
    assert {name: goldens.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "5",
        "failures": "1",
        "errors": "2",
        "skipped": "1",
    }
    tests = {test.get("name"): test for test in goldens}
    assert (tests["refund"].get("file"), tests["refund"].get("line"), tests["refund"].get("time")) == (
        "goldens.yaml",
        "7",
        "1.500",
    )
    messages = {name: None if test[-1].tag == "properties" else test[-1].get("message") for name, test in tests.items()}
    assert messages == {
        "greet": None,
        "refund": "refund failed.",
        "raise": "The agent raised ValueError: no such hotel",
        "late": "The agent did not return in time.",
        "unknown": "unknown not_evaluated.",
    }
    (score,) = tests["refund"].iter("property")
    assert (score.get("name"), score.get("value")) == ("goldspan.score.tool_recall", "0.5")
    assert [(test.get("name"), test[0].get("message")) for test in checks] == [
        ("passed >= 0.9", "passed is 0.2500, and at least 0.9 is required.")
    ]


def test_junit_numbers_the_trials_and_states_the_comparison_with_the_baseline() -> None:
    results = results_of([PASSED, plain_case("greet", trial=2)])
    text = junit_xml(CheckOutcome(results, baseline=compare_with_baseline(results, results)))
    goldens, checks = ElementTree.fromstring(text)
    assert [test.get("name") for test in goldens] == ["greet", "greet (trial 2)"]
    assert [(test.get("name"), len(test)) for test in checks] == [("not worse than the baseline", 0)]


def test_junit_replaces_characters_that_xml_excludes() -> None:
    case = replace(plain_case("a\x00b\ud800<&>", "failed"), source=None)
    goldens, _ = ElementTree.fromstring(junit_xml(outcome_of_cases(case)))
    assert goldens[0].get("name") == "a\ufffdb\ufffd<&>"
    assert goldens[0].get("classname") == "goldens"
    assert goldens[0].get("file") is None


# --- GitHub -----------------------------------------------------------------------------------------------------------


def test_annotations_stand_at_the_lines_of_the_goldens() -> None:
    golden = golden_of("refund", "find_order", line=12)
    outcome = outcome_of_cases(evaluated_case(golden, []), gate=Gate("passed", 1.0))
    assert list(github_annotations(outcome)) == [
        "::error title=goldspan check::passed is 0.0000, and at least 1 is required.",
        "::error file=goldens.yaml,line=12,title=refund::Expected find_order was not called.",
    ]


def test_goldens_that_did_not_pass_are_warnings_if_the_check_passed() -> None:
    case = replace(FAILED, source=GoldenSource("goldens\\refunds.yaml"))
    assert list(github_annotations(outcome_of_cases(PASSED, case))) == [
        "::warning file=goldens/refunds.yaml,title=refund::refund failed."
    ]


def test_annotations_escape_what_would_end_them() -> None:
    case = replace(plain_case("a:b,c\n::error::", "failed"), source=None)
    (annotation,) = github_annotations(outcome_of_cases(case))
    assert annotation == "::warning title=a%3Ab%2Cc%0A%3A%3Aerror%3A%3A::a:b,c%0A::error:: failed."


def test_at_most_fifty_annotations_are_written() -> None:
    annotations = list(github_annotations(outcome_of_cases(*(plain_case(f"g{n}", "failed") for n in range(60)))))
    assert len(annotations) == 51
    assert annotations[-1] == "::notice title=goldspan check::10 more are in the summary and in the results file."


# --- Markdown ---------------------------------------------------------------------------------------------------------


def test_the_summary_names_the_verdict_the_gates_and_the_goldens() -> None:
    outcome = outcome_of_cases(PASSED, FAILED, gate=Gate("passed", 0.9))
    assert markdown_summary(outcome).split("\n\n") == [
        "### goldspan check failed",
        "2 cases: 1 passed, 1 failed.",
        "passed is 0.5000, and at least 0.9 is required.",
        "| required | at least | is |  |\n| --- | --- | --- | --- |\n| passed | 0.9 | 0.5000 | not met |",
        "| golden |  | reason |\n| --- | --- | --- |\n| refund |  | refund failed. |\n",
    ]


def test_the_summary_of_a_check_that_passed_is_short() -> None:
    assert markdown_summary(outcome_of_cases(PASSED)) == "### goldspan check passed\n\n1 case: 1 passed.\n"


def test_the_summary_lists_at_most_fifty_goldens() -> None:
    summary = markdown_summary(outcome_of_cases(*(plain_case(f"g{number}", "failed") for number in range(60))))
    assert summary.count("failed. |") == 50
    assert summary.endswith("10 more goldens did not pass.\n")
