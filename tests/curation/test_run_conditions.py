"""Conditions select the good runs of a store and of trace files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from goldspan import ExpectedTool, Golden, Run, ToolCall, evaluate
from goldspan.curation.run_conditions import (
    RunResults,
    ValueCondition,
    parse_conditions,
    read_results,
    select_runs,
    stored_runs,
)
from goldspan.errors import ConfigurationError
from goldspan.store import SqliteStore, open_store


@pytest.mark.parametrize(
    ("condition", "values", "is_met"),
    [
        ("reward=1", {"reward": 1.0}, True),
        ("reward=1", {"reward": "1"}, True),
        ("reward=1", {"reward": True}, True),
        ("reward!=1", {"reward": 0}, True),
        ("reward>=0.8", {"reward": 0.8}, True),
        ("reward > 0.8", {"reward": 0.8}, False),
        ("reward<0.8", {"reward": "0.7"}, True),
        ("reward<=0.8", {"reward": None}, False),
        ("reward=1", {}, False),
        ("grade=good", {"grade": "good"}, True),
        ("grade=good", {"grade": "bad"}, False),
        ("grade!=good", {"grade": "bad"}, True),
        ("grade>good", {"grade": "great"}, False),
        ("ok=true", {"ok": True}, True),
        ("ok=false", {"ok": "false"}, True),
        ("user.rating>=4", {"user.rating": 5}, True),
    ],
)
def test_a_condition_compares_numbers_as_numbers_and_texts_as_texts(
    condition: str, values: dict[str, Any], is_met: bool
) -> None:
    (parsed,) = parse_conditions([condition]).values
    assert parsed.is_met(values) is is_met


def test_names_of_filter_parameters_become_the_filter() -> None:
    conditions = parse_conditions(
        ["verdict=pass", "agent = Support Bot", "metric=tool_recall", "below=0.5", "reward=1"]
    )
    run_filter = conditions.run_filter
    assert (run_filter.verdict, run_filter.agent, run_filter.metric, run_filter.below) == (
        *("pass", "Support Bot", "tool_recall"),
        0.5,
    )
    assert conditions.values == (ValueCondition("reward", "=", "1"),)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["reward"], "'reward' is not a condition; write it as"),
        (["verdict=good"], "verdict must be pass, fail or not_evaluated"),
        (["agent=a", "agent=b"], "the condition on 'agent' is given twice"),
        (["below=1"], "needs the `metric`"),
    ],
)
def test_a_wrong_condition_is_refused(texts: list[str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse_conditions(texts)


# --- stores -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    golden = Golden("g", tools=(ExpectedTool("a"), ExpectedTool("b")))
    with open_store(tmp_path / "goldspan.db", keep_arguments=True) as opened:
        for number, calls in enumerate(("ab", "a", "")):
            made = tuple(ToolCall(name, arguments={"n": number}) for name in calls)
            run = Run(f"run-{number}", input="x", tool_calls=made, metadata={"rating": number}, start_ns=number + 1)
            opened.submit(evaluate(run, golden))
        yield opened


@pytest.mark.parametrize(
    ("conditions", "selected"),
    [
        ([], ["run-2", "run-1", "run-0"]),
        (["verdict=pass"], ["run-0"]),
        (["tool_recall>=0.5"], ["run-1", "run-0"]),
        (["rating>=1"], ["run-2", "run-1"]),
        (["rating>=1", "tool=a"], ["run-1"]),
        (["nothing=1"], []),
    ],
)
def test_stored_runs_are_selected_by_filter_score_and_metadata(
    store: SqliteStore, conditions: list[str], selected: list[str]
) -> None:
    runs = list(stored_runs(store, parse_conditions(conditions)))
    assert [run.run_id for run in runs] == selected
    assert all(call.arguments for run in runs for call in run.tool_calls)


# --- trace files ------------------------------------------------------------------------------------------------------

RUNS = [
    Run("r1", agent="A", trace_ids=("t1",), input="Hello", start_ns=5, attributes={"reward": 1}),
    Run("r2", service="s", trace_ids=("t2",), tool_calls=(ToolCall("search_hotels"),), start_ns=10, golden_id="g"),
    Run("r3", environment="test", session_id="s1", unit="conversation", metadata={"reward": "0"}),
]


@pytest.mark.parametrize(
    ("conditions", "selected"),
    [
        ([], ["r1", "r2", "r3"]),
        (["reward=1"], ["r1"]),
        (["reward=0"], ["r3"]),
        (["agent=A"], ["r1"]),
        (["service=s"], ["r2"]),
        (["environment=test"], ["r3"]),
        (["session_id=s1"], ["r3"]),
        (["unit=request"], ["r1", "r2"]),
        (["golden=g"], ["r2"]),
        (["tool=Search-Hotels"], ["r2"]),
        (["text=HELL"], ["r1"]),
        (["since=1970-01-01T00:00:00.000000006"], ["r2"]),
        (["until=1970-01-01T00:00:00.000000006"], ["r1", "r3"]),
        (["trace_id=" + "0" * 32], []),
    ],
)
def test_runs_of_traces_are_selected_by_their_fields_and_attributes(conditions: list[str], selected: list[str]) -> None:
    assert [run.run_id for run in select_runs(RUNS, parse_conditions(conditions))] == selected


@pytest.mark.parametrize("condition", ["verdict=pass", "metric=tool_recall", "covered=true"])
def test_a_condition_that_needs_an_evaluation_is_refused_for_traces(condition: str) -> None:
    with pytest.raises(ConfigurationError, match="needs evaluations: name a store, or a results file with --results"):
        list(select_runs(RUNS, parse_conditions([condition])))


def test_results_are_read_by_run_and_by_trace(tmp_path: Path) -> None:
    (lines := tmp_path / "results.jsonl").write_text(
        json.dumps({"run_id": "r1", "passed": False, "scores": [{"metric": "tool_recall", "value": 0.5}]})
        + "\n\n"
        + json.dumps({"trace_id": "t2", "passed": True})
    )
    (table := tmp_path / "results.csv").write_text("run_id,passed,tool_recall\nr1,false,0.5\nr2,1,\n")
    (array := tmp_path / "results.json").write_text(json.dumps([{"run_id": "r2", "trace_ids": ["x"], "passed": True}]))
    for path in (lines, table, array):
        found = list(select_runs(RUNS, parse_conditions(["verdict=pass"]), read_results(path)))
        assert [run.run_id for run in found] == ["r2"]
    for path in (lines, table):
        assert [run.run_id for run in select_runs(RUNS, parse_conditions(["tool_recall<1"]), read_results(path))] == [
            "r1"
        ]


def test_a_run_without_a_result_has_no_verdict() -> None:
    assert [run.run_id for run in select_runs(RUNS, parse_conditions(["verdict=not_evaluated"]), RunResults())] == [
        *("r1", "r2", "r3")
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", "{", "not JSON Lines, a JSON list or a .csv file"),
        ("a.jsonl", "7", "each row must be an object, not 7"),
        ("a.jsonl", '{"x": 1}', "row 1: it has neither run_id nor trace_id"),
        ("missing.jsonl", None, "No such file"),
    ],
)
def test_a_results_file_that_cannot_be_used_is_refused(
    tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ConfigurationError, match=message):
        read_results(tmp_path / name)
