"""`goldspan check` prints the outcome, writes it for CI and exits with the verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from goldspan import ExpectedTool
from goldspan.scoring.evaluator import SCORING_VERSION
from goldspan.testing.results import CaseResult
from goldspan.testing.results_file import ResultsWriter
from support.case_results import evaluated_case, golden_of, plain_case, results_of
from support.command_line import Goldspan

BOOK = golden_of("book", "book", tags=("fast",))
REFUND = golden_of("refund", "refund", line=9)


@pytest.fixture(autouse=True)
def outside_of_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)


def write_results(path: Path, cases: Sequence[CaseResult], scoring_version: int = SCORING_VERSION) -> Path:
    with ResultsWriter(path, results_of([], scoring_version=scoring_version).header) as writer:
        for case in cases:
            writer.write(case)
    return path


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    return write_results(tmp_path / "results.jsonl", [evaluated_case(BOOK, ["book"]), evaluated_case(REFUND, [])])


def test_without_a_gate_every_case_must_pass(goldspan: Goldspan, mixed: Path, tmp_path: Path) -> None:
    failed = goldspan("check", mixed)
    assert failed.status == 1
    assert "refund      Expected refund was not called." in "\n".join(failed.lines)
    assert failed.lines[-2:] == [
        "2 cases: 1 passed, 1 failed.",
        "failed: passed is 0.5000, and at least 1 is required.",
    ]
    passed = goldspan("check", write_results(tmp_path / "good.jsonl", [evaluated_case(BOOK, ["book"])]))
    assert passed.status == 0
    assert passed.lines[-1] == "The check passed."


def test_gates_apply_to_all_cases_to_a_tag_and_to_a_golden(goldspan: Goldspan, mixed: Path) -> None:
    gates = ("--fail-under", "passed=0.5", "--fail-under-tag", "fast:tool_recall=1")
    assert goldspan("check", mixed, *gates).status == 0
    result = goldspan("check", mixed, *gates, "--fail-under-golden", "refund:passed=1", "--json")
    assert result.status == 1
    (document,) = result.documents
    assert document["failures"] == ["passed of golden refund is 0.0000, and at least 1 is required."]


def test_a_baseline_fails_a_build_that_is_worse(goldspan: Goldspan, tmp_path: Path) -> None:
    goldens = [golden_of(f"g{number}", "book") for number in range(20)]
    baseline = write_results(tmp_path / "main.jsonl", [evaluated_case(golden, ["book"]) for golden in goldens])
    worse = [evaluated_case(golden, ["book"] if number > 7 else []) for number, golden in enumerate(goldens)]
    current = write_results(tmp_path / "new.jsonl", worse)
    assert goldspan("check", baseline, "--baseline", baseline).status == 0
    result = goldspan("check", current, "--baseline", baseline)
    assert result.status == 1
    assert "20 goldens compared with the baseline" in result.out
    assert any(line.startswith("failed: The pass rate fell from 1.0000 to 0.6000") for line in result.lines)
    assert goldspan("check", current, "--baseline", baseline, "--tolerance", "0.5").status == 0
    assert goldspan("check", current, "--baseline", baseline, "--significance", "0.0001").status == 0


def test_junit_markdown_and_annotations_are_written(
    goldspan: Goldspan,
    mixed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    summary, junit = tmp_path / "summary.md", tmp_path / "junit.xml"
    summary.write_text("# before\n")
    result = goldspan("check", mixed, "--junit", junit, "--markdown", summary)
    assert "::error file=goldens.yaml,line=9,title=refund::Expected refund was not called." in result.err
    assert ElementTree.parse(junit).getroot().get("name") == "goldspan"
    assert summary.read_text().startswith("# before\n### goldspan check failed\n")
    assert "::error" not in goldspan("check", mixed, "--no-github").err
    assert goldspan("check", mixed, "--format", "markdown").out.startswith("### goldspan check failed\n")


def test_cases_that_were_not_evaluated_count_as_failed_in_ci(
    goldspan: Goldspan,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cases = [plain_case("a"), plain_case("b", "not_evaluated")]
    results = write_results(tmp_path / "results.jsonl", cases)
    outside = goldspan("check", results)
    assert outside.status == 0
    assert "cases that could not be evaluated: 1; they count in no pass rate" in outside.err
    monkeypatch.setenv("CI", "true")
    assert goldspan("check", results).status == 1
    assert goldspan("check", results, "--no-fail-on-unknown").status == 0


def test_a_build_that_could_not_be_evaluated_is_not_as_good_as_its_baseline(
    goldspan: Goldspan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"g{number}" for number in range(20)]
    baseline = write_results(tmp_path / "main.jsonl", [plain_case(name) for name in names])
    current = write_results(tmp_path / "new.jsonl", [plain_case(name, "not_evaluated") for name in names])
    unknown = goldspan("check", current, "--baseline", baseline)
    assert unknown.status == 1
    assert "No golden has a verdict in both builds" in unknown.out
    partly = [plain_case(name, "not_evaluated" if name < "g15" else "passed") for name in names]
    current = write_results(tmp_path / "partly.jsonl", partly)
    assert goldspan("check", current, "--baseline", baseline).status == 0
    monkeypatch.setenv("CI", "false")
    assert goldspan("check", current, "--baseline", baseline).status == 0
    monkeypatch.setenv("CI", "true")
    failed = goldspan("check", current, "--baseline", baseline)
    assert failed.status == 1
    assert "The pass rate fell from 1.0000" in failed.out


def test_errors_of_the_agent_fail_the_check_unless_they_are_allowed(goldspan: Goldspan, tmp_path: Path) -> None:
    results = write_results(tmp_path / "results.jsonl", [plain_case("a"), plain_case("b", "error")])
    assert goldspan("check", results, "--fail-under", "passed=0.5").status == 1
    assert goldspan("check", results, "--fail-under", "passed=0.5", "--allow-errors").status == 0


def test_results_of_another_scoring_version_are_refused_or_evaluated_again(goldspan: Goldspan, tmp_path: Path) -> None:
    hotel = golden_of("book", ExpectedTool("book", {"hotel": "Ritz"}))
    case = evaluated_case(hotel, [{"name": "book", "arguments": {"hotel": "Ritz"}}])
    results = write_results(tmp_path / "old.jsonl", [case], SCORING_VERSION - 1)
    refused = goldspan("check", results)
    assert refused.status == 2
    assert "--rescore evaluates its runs again" in refused.err
    goldens = tmp_path / "goldens.yaml"
    goldens.write_text("goldens: [{id: book, tools: [{name: book, arguments: {hotel: Roma}}]}]")
    rescored = goldspan("check", results, "--rescore", "--goldens", goldens)
    assert rescored.status == 1
    assert "book differs in hotel" in rescored.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.jsonl"], "nothing.jsonl: cannot be read: there is no such file"),
        (["{mixed}", "--goldens", "goldens.yaml"], "--goldens needs --rescore"),
        (["{mixed}", "--fail-under", "passed"], "--fail-under takes METRIC=X"),
        (["{mixed}", "--fail-under-tag", "slow:passed=1"], "No case has the tag 'slow'. There are fast."),
        (["{mixed}", "--junit", "{folder}"], "cannot be written"),
        (["{empty}"], "holds no cases"),
    ],
)
def test_wrong_use_is_one_sentence_and_status_2(
    goldspan: Goldspan,
    mixed: Path,
    tmp_path: Path,
    arguments: list[str],
    message: str,
) -> None:
    empty = write_results(tmp_path / "empty.jsonl", [])
    names = {"mixed": mixed, "folder": tmp_path, "empty": empty}
    result = goldspan("check", *(argument.format(**names) for argument in arguments))
    assert result.status == 2
    assert message in result.err
    assert "Traceback" not in result.err


def test_the_json_document_is_one_line(goldspan: Goldspan, mixed: Path) -> None:
    assert json.loads(goldspan("check", mixed, "--json").out)["passed"] is False
