"""Lint reports suspicious goldens, by themselves and compared with the runs that they apply to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from goldspan.goldens.golden_files.golden_loader import GoldenLibrary, read_golden_files
from goldspan.model import Run, ToolCall, ToolDefinition
from goldspan.scoring.golden_lint import LintFinding, RunCoverage, lint_goldens


def library(folder: Path, goldens: Sequence[dict[str, Any]], **head: Any) -> GoldenLibrary:
    path = folder / "g.json"
    path.write_text(json.dumps({**head, "goldens": [{"tools": [], **golden} for golden in goldens]}))
    return read_golden_files([path], lambda error: pytest.fail(str(error)))


def alone(folder: Path, goldens: Sequence[dict[str, Any]], **head: Any) -> list[LintFinding]:
    return list(lint_goldens(library(folder, goldens, **head).entries))


def beside(read: GoldenLibrary, *runs: Run) -> list[LintFinding]:
    coverage = RunCoverage(read.entries, read.vocabulary)
    for run in runs:
        coverage.add_run(run)
    return list(coverage.findings())


def called(*names: str, offered: Sequence[str] = (), golden_id: str | None = None, text: str | None = None) -> Run:
    calls = tuple(map(ToolCall, names))
    return Run(
        "r", tool_calls=calls, available_tools=tuple(map(ToolDefinition, offered)), golden_id=golden_id, input=text
    )


# --- without runs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("goldens", "kinds"),
    [
        pytest.param([{"id": "a"}, {"id": "b"}], [], id="goldens without input"),
        pytest.param([{"id": "a", "input": "x"}, {"id": "b", "input": "y"}], [], id="goldens of two inputs"),
        pytest.param([{"id": "a", "input": "x"}, {"id": "b", "input": " X"}], ["repetition"], id="the same twice"),
        pytest.param(
            [{"id": "a", "input": "x"}, {"id": "b", "input": "x", "tools": ["t"]}], ["disagreement"], id="disagreement"
        ),
        pytest.param(
            [{"id": "a", "input": "x"}, {"id": "b", "input": "x", "tools": ["t"], "component": "c"}], [], id="component"
        ),
        pytest.param(
            [{"id": "a", "when": {"agent": "x"}}, {"id": "b", "when": {"service": "x"}, "tools": ["t"]}], [], id="rules"
        ),
        pytest.param(
            [
                {"id": "a", "when": {"agent": "Sup*", "input": "Hi  you"}},
                {"id": "b", "when": {"agent": "sup*", "input": "hi you"}, "tools": ["t"]},
            ],
            ["disagreement"],
            id="rules that differ in case",
        ),
        pytest.param([{"id": "a", "tools": ["t"], "forbid": ["u*", "t*"]}], ["contradiction"], id="contradiction"),
        pytest.param([{"id": "a", "tools": ["t"], "forbid": ["u*"]}], [], id="forbidden and not expected"),
        pytest.param([{"id": "a", "metrics": ["tool_f2"]}], ["unknown_metric"], id="unknown metric"),
        pytest.param([{"id": "a", "thresholds": {"tool_f2": 1}}], ["unknown_metric"], id="threshold of an unknown one"),
        pytest.param([{"id": "a", "metrics": ["tool_f1"], "thresholds": {"tool_recall": 1}}], [], id="known metrics"),
    ],
)
def test_lint_reports_findings_in_goldens_without_runs(
    tmp_path: Path, goldens: list[dict[str, Any]], kinds: list[str]
) -> None:
    assert [finding.kind for finding in alone(tmp_path, goldens)] == kinds


@pytest.mark.parametrize(
    ("common", "sentence"),
    [
        pytest.param(
            {"when": {"attributes": {"a": 1, "b": {"regex": "x"}}}},
            "goldens 'a' and 'b' have the same when and disagree in tools: by when none is found.",
            id="when",
        ),
        pytest.param(
            {"component": "Doc Retriever", "input": "x"},
            "goldens 'a' and 'b' have the same input and component and disagree in tools: by input and component none "
            "is found.",
            id="input and component",
        ),
    ],
)
def test_lint_reports_goldens_that_select_the_same_runs_and_disagree(
    tmp_path: Path, common: dict[str, Any], sentence: str
) -> None:
    (finding,) = alone(tmp_path, [{"id": "a", **common}, {"id": "b", **common, "tools": ["t"]}])
    assert finding == LintFinding("disagreement", sentence, ("a", "b"))


def test_lint_reports_policies_for_the_same_runs_that_repeat_or_disagree(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(
        json.dumps([{"id": "a", "forbid": ["x"]}, {"id": "b", "forbid": ["x"]}, {"id": "c", "max_calls": 1}])
    )
    entries = read_golden_files([path], lambda error: pytest.fail(str(error))).entries
    (finding,) = lint_goldens(entries)
    sentence = (
        "goldens 'a', 'b' and 'c' are policies for all other runs and disagree in forbid and max_calls: none is found."
    )
    assert finding.sentence == sentence
    (finding,) = lint_goldens(entries[:2])
    assert finding.sentence == "goldens 'a' and 'b' are policies for all other runs and demand the same."


def test_coverage_reports_a_golden_whose_conditions_match_none_of_the_runs(tmp_path: Path) -> None:
    read = library(tmp_path, [{"id": "a", "when": {"agent": "x"}}, {"id": "b", "when": {"agent": "y"}}])
    (finding,) = beside(read, Run("r", agent="x"), Run("s"))
    assert finding == LintFinding("unmatched", "golden 'b' belongs to none of these runs.", ("b",))


def test_a_disagreement_names_the_goldens_and_the_keys_that_differ(tmp_path: Path) -> None:
    goldens = [{"id": n, "input": "x"} for n in "abcd"] + [{"id": "e", "input": "x", "tools": ["t"], "order": "exact"}]
    (finding,) = alone(tmp_path, goldens)
    assert finding == LintFinding(
        "disagreement",
        "goldens 'a', 'b', 'c' and 2 more have the same input and disagree in tools and order: by input none is found.",
        ("a", "b", "c", "d", "e"),
    )


def test_findings_name_the_contradicting_tool_and_the_unknown_metric(tmp_path: Path) -> None:
    goldens = [{"id": "a", "tools": ["delete_user"], "forbid": ["delete_*"], "metrics": ["tool_recal"]}]
    sentences = [finding.sentence for finding in alone(tmp_path, goldens)]
    assert sentences == [
        f"{tmp_path}/g.json, golden 'a': 'delete_user' is expected, and forbidden by 'delete_*'.",
        "golden 'a': unknown metric 'tool_recal'. Did you mean 'tool_recall'?",
    ]


# --- with runs --------------------------------------------------------------------------------------------------------


def test_coverage_reports_nothing_for_goldens_that_match_their_runs(tmp_path: Path) -> None:
    goldens = [
        {"id": "a", "tools": [{"any_of": ["search", "mcp__orders__add"]}], "forbid": ["delete_*"]},
        {"id": "b", "input": "Hi", "tools": ["book"]},
        {"id": "c", "input": "hi ", "tools": []},
    ]
    read = library(tmp_path, goldens, tools={"search": {"aliases": ["find"]}})
    runs = [called("Find", golden_id="a", offered=["deleteUser"]), called("book", text="hi")]
    assert [finding.sentence for finding in beside(read, *runs)] == [
        "golden 'a': the tool 'mcp__orders__add' was neither called nor offered in any run."
    ]
    shown = Run("r", tool_calls=(ToolCall("add", "mcp__orders__add", "orders"),))
    assert beside(read, *runs, shown) == []


@pytest.mark.parametrize(
    ("golden", "run", "sentence"),
    [
        pytest.param(
            {"tools": ["serch_hotels"]},
            called("search_hotels", golden_id="g"),
            "golden 'g': the tool 'serch_hotels' was neither called nor offered in any run. "
            "Did you mean 'search_hotels'?",
            id="a slip, and what was called",
        ),
        pytest.param(
            {"tools": ["hotels_search"]},
            called(offered=["book", "search_hotels"], golden_id="g"),
            "golden 'g': the tool 'hotels_search' was neither called nor offered in any run. "
            "Did you mean 'search_hotels'?",
            id="other words, and what was offered",
        ),
        pytest.param(
            {"forbid": ["delte_*"]},
            called("delete_user", golden_id="g"),
            "golden 'g': 'delte_*' is forbidden, and no known tool has a name like that.",
            id="a pattern like no tool",
        ),
        pytest.param(
            {},
            called(golden_id="h", text="Hello"),
            "golden 'g' belongs to none of these runs, neither by id nor by input.",
            id="no run",
        ),
        pytest.param(
            {"input": "Hello"},
            called(text="Good bye"),
            "golden 'g' belongs to none of these runs, neither by id nor by input.",
            id="no run with that input",
        ),
    ],
)
def test_coverage_reports_unknown_tools_and_goldens_without_a_run(
    tmp_path: Path, golden: dict[str, Any], run: Run, sentence: str
) -> None:
    (finding,) = beside(library(tmp_path, [{"id": "g", **golden}]), run)
    assert finding.sentence == sentence
    assert finding.goldens == ("g",)


def test_a_tool_name_misspelt_in_several_goldens_is_one_finding(tmp_path: Path) -> None:
    read = library(tmp_path, [{"id": n, "input": "x", "tools": ["serch"]} for n in "ab"])
    (finding,) = beside(read, called("search", text="x"))
    assert finding.goldens == ("a", "b")
    assert finding.sentence.startswith("goldens 'a' and 'b': the tool 'serch'")


def test_a_forbidden_pattern_that_matches_a_declared_tool_is_not_a_finding(tmp_path: Path) -> None:
    read = library(tmp_path, [{"id": "g", "forbid": ["delete_*"]}], tools={"delete_user": {}})
    assert beside(read, called(golden_id="g")) == []


@pytest.mark.parametrize(
    ("golden", "run"),
    [
        pytest.param({"tools": ["find_hotels"]}, called("search", golden_id="g"), id="in a golden"),
        pytest.param({"forbid": ["FindHotels"]}, called("search", golden_id="g"), id="among the forbidden"),
        pytest.param({}, called("find-hotels", golden_id="g"), id="in a run"),
        pytest.param({}, called(offered=["mcp__travel__find_hotels"], golden_id="g"), id="among the offers"),
    ],
)
def test_only_an_alias_that_no_golden_and_no_run_uses_is_a_finding(
    tmp_path: Path, golden: dict[str, Any], run: Run
) -> None:
    read = library(tmp_path, [{"id": "g", **golden}], tools={"search": {"aliases": ["find_hotels", "look_up"]}})
    assert [finding.sentence for finding in beside(read, run)] == [
        "tool 'search': the alias 'look_up' is used by nobody."
    ]


def test_all_matched_is_true_when_every_golden_has_a_run(tmp_path: Path) -> None:
    read = library(tmp_path, [{"id": "a"}, {"id": "b"}])
    coverage = RunCoverage(read.entries, read.vocabulary)
    coverage.add_run(called(golden_id="a"))
    assert not coverage.all_matched
    coverage.add_run(called(golden_id="b"))
    assert coverage.all_matched
