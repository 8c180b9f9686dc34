"""Tests of the rows that agent results have in data frames; tests/recipes/test_data_frames.py makes the frames."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import goldspan
from goldspan.store.data_frames import column_values, evaluation_table
from goldspan.testing.result_frames import _case_row, _columns
from goldspan.testing.results import AgentResults
from support.case_results import plain_case, results_of

GOLDENS = [
    goldspan.Golden("works", "a", tools=(goldspan.ExpectedTool("search"),), metadata={"tags": ["smoke"]}),
    goldspan.Golden("raises", "b", tools=(goldspan.ExpectedTool("search"),)),
]


@goldspan.trace
def search(query: str) -> str:
    return query


def answer(request: str) -> str:
    if request == "b":
        raise ValueError("no such hotel")
    return search(request)


def cells_of(results: AgentResults) -> dict[str, list[Any]]:
    return column_values(map(_case_row, results.cases), _columns(results))


def test_each_case_is_a_row_and_an_agent_that_raised_has_not_passed(tmp_path: Path) -> None:
    results = goldspan.evaluate_agent(answer, GOLDENS, trials=2, results=tmp_path / "results.jsonl")
    cells = cells_of(results)
    assert cells["golden_id"] == ["works", "works", "raises", "raises"]
    assert cells["trial"] == [1, 2, 1, 2]
    assert cells["outcome"] == ["passed", "passed", "error", "error"]
    assert cells["passed"] == [True, True, False, False]
    assert cells["reason"][2] == "ValueError: no such hotel"
    assert cells["tags"] == [["smoke"], ["smoke"], [], []]
    assert cells["tools_used"] == [["search"], ["search"], None, None]
    assert cells["score.tool_recall"] == [1.0, 1.0, None, None]
    assert [cells[name][2] for name in ("run_id", "time", "missing", "revision", "golden_match")] == [None] * 5
    assert all(value >= 0 for value in cells["duration_ms"])
    read = {case.key: case for case in goldspan.read_results(tmp_path / "results.jsonl").cases}  # as the cases ended
    assert cells_of(results_of(read[case.key] for case in results.cases)) == cells


def test_an_evaluated_case_has_the_cells_of_its_evaluation() -> None:
    results = goldspan.evaluate_agent(answer, GOLDENS[:1])
    cells = cells_of(results)
    for name, values in column_values(*evaluation_table(results.evaluations)).items():
        assert cells[name] == json.loads(json.dumps(values)) if name != "time" else cells[name] == values


def test_a_case_that_was_not_evaluated_has_neither_passed_nor_failed() -> None:
    cells = cells_of(results_of([plain_case("a", "not_evaluated", tool_recall=None), plain_case("b", "timeout")]))
    assert cells["passed"] == [None, False]
    assert cells["score.tool_recall"] == [None, None]


def test_results_without_a_case_have_every_column() -> None:
    cells = cells_of(results_of([]))
    assert list(cells)[:6] == ["trial", "outcome", "attempts", "duration_ms", "tags", "run_id"]
    assert set(map(len, cells.values())) == {0}
