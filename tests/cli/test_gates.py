"""`--fail-under`, `--fail-on-unknown` and `--unknown` with runs that could not be evaluated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.test_commands import GOLDENS, TRACES
from support.command_line import Goldspan

BOOK = {"name": "book", "arguments": {"n": 1}}
PASSED: dict[str, Any] = {"tools_called": [BOOK], "expected_tools": [BOOK]}
FAILED: dict[str, Any] = {"tools_called": [], "expected_tools": [BOOK]}
UNKNOWN: dict[str, Any] = {"tools_called": ["book"], "expected_tools": [BOOK]}
"""The golden states arguments, and none were captured."""
WITHOUT_GOLDEN: dict[str, Any] = {"tools_called": ["book"]}


@pytest.fixture(params=["score", "report"])
def command(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return str(request.param)


def cases_in(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "cases.jsonl"
    path.write_text("".join(json.dumps({"id": f"case-{n}", **row}) + "\n" for n, row in enumerate(rows)))
    return path


@pytest.mark.parametrize(
    ("ci", "options", "status"),
    [
        pytest.param(None, ["--fail-under", "passed=1"], 0, id="they do not count"),
        pytest.param(None, ["--fail-under", "passed=1", "--fail-on-unknown"], 1, id="they count"),
        pytest.param(None, ["--fail-under", "passed=0.5", "--fail-on-unknown"], 0, id="half is enough"),
        pytest.param("true", ["--fail-under", "passed=1"], 1, id="they count in CI"),
        pytest.param("1", ["--fail-under", "passed=1"], 1, id="they count in another CI"),
        pytest.param("false", ["--fail-under", "passed=1"], 0, id="CI=false is none"),
        pytest.param("", ["--fail-under", "passed=1"], 0, id="an empty variable is none"),
        pytest.param("true", ["--fail-under", "passed=1", "--no-fail-on-unknown"], 0, id="unless it is said"),
        pytest.param("true", [], 0, id="CI alone is no gate"),
        pytest.param(None, ["--fail-on-unknown"], 1, id="without another gate"),
        pytest.param(None, ["--fail-under", "tool_recall=1", "--fail-on-unknown"], 0, id="a metric with a number"),
        pytest.param(None, ["--fail-under", "argument_correctness=1", "--fail-on-unknown"], 1, id="and without"),
        pytest.param(None, ["--fail-under", "argument_correctness=1"], 0, id="which does not count"),
    ],
)
def test_fail_on_unknown_and_ci_decide_whether_unevaluated_runs_count(
    command: str,
    goldspan: Goldspan,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ci: str | None,
    options: list[str],
    status: int,
) -> None:
    if ci is not None:
        monkeypatch.setenv("CI", ci)
    cases = cases_in(tmp_path, PASSED, UNKNOWN, WITHOUT_GOLDEN)
    result = goldspan(command, "--cases", cases, *options)
    named = "  case-1 (case-1): Expected book was called; not evaluated: the arguments of book were not captured."
    assert (result.status, named in result.err.replace("\n", " ")) == (status, bool(status)), result.err


def test_the_message_of_a_failed_gate_lists_the_unevaluated_runs(
    command: str, goldspan: Goldspan, tmp_path: Path
) -> None:
    cases = cases_in(tmp_path, PASSED, *[UNKNOWN] * 7)
    result = goldspan(command, "--cases", cases, "--fail-under", "passed=1", "--fail-on-unknown").err
    message = "gate failed: passed is 0.1250, counting 7 runs that could not be evaluated; required: 1"
    assert message in result.replace("\n", " ")
    assert sum(f"case-{n} (" in result for n in range(1, 8)) == 5
    assert "case-0" not in result
    assert "  and 2 more" in result
    result = goldspan(command, "--cases", cases, "--fail-under", "argument_correctness=1", "--fail-on-unknown").err
    message = "gate failed: argument_correctness could not be evaluated on 7 runs; required: 1"
    assert message in result.replace("\n", " ")
    result = goldspan(command, "--cases", cases, "--fail-on-unknown").err
    assert "gate failed: 7 runs could not be evaluated" in result


def test_a_gate_fails_when_no_run_could_be_evaluated(command: str, goldspan: Goldspan, tmp_path: Path) -> None:
    cases = cases_in(tmp_path, UNKNOWN, UNKNOWN)
    lenient = goldspan(command, "--cases", cases, "--fail-under", "passed=0", "--no-fail-on-unknown")
    assert (lenient.status, "passed could not be evaluated on any run" in lenient.err) == (1, True)
    strict = goldspan(command, "--cases", cases, "--fail-under", "passed=0.5", "--fail-on-unknown")
    assert (strict.status, "passed is 0.0000, counting 2 runs" in strict.err) == (1, True)
    metric = ("--fail-under", "call_budget=0", "--fail-on-unknown")
    assert "call_budget could not be evaluated on 2 runs" in goldspan(command, "--cases", cases, *metric).err
    only_passed = goldspan(command, "--cases", cases_in(tmp_path, PASSED), *metric)
    assert (only_passed.status, "could not be evaluated on any run" in only_passed.err) == (1, True)


def test_fail_on_unknown_changes_nothing_when_all_runs_could_be_evaluated(
    command: str, goldspan: Goldspan, tmp_path: Path
) -> None:
    cases = cases_in(tmp_path, PASSED, PASSED, FAILED, WITHOUT_GOLDEN)
    for gate, status in (("passed=0.6", 0), ("passed=0.7", 1)):
        for flag in ("--fail-on-unknown", "--no-fail-on-unknown"):
            assert goldspan(command, "--cases", cases, "--fail-under", gate, flag).status == status
    assert goldspan(command, "--cases", cases, "--fail-on-unknown").status == 0


@pytest.mark.parametrize(("unknown", "passed"), [("not_evaluated", None), ("ignore", True), ("fail", False)])
def test_unknown_sets_the_verdict_of_runs_that_could_not_be_evaluated(
    command: str, goldspan: Goldspan, tmp_path: Path, unknown: str, passed: bool | None
) -> None:
    cases = cases_in(tmp_path, UNKNOWN)
    if command == "score":
        (found,) = goldspan("score", "--cases", cases, "--unknown", unknown, "--json").documents
        assert found["passed"] is passed
        assert [each["about"] for each in found["unjudged"]] == ["arguments"]
        assert found["broken"] == []
    gated = goldspan(command, "--cases", cases, "--unknown", unknown, "--fail-under", "passed=1", "--fail-on-unknown")
    assert gated.status == (0 if passed else 1)


def test_an_invalid_value_of_unknown_is_refused(command: str, goldspan: Goldspan) -> None:
    result = goldspan(command, TRACES, "-g", GOLDENS, "--unknown", "pass")
    assert (result.status, "not_evaluated" in result.err) == (2, True)
