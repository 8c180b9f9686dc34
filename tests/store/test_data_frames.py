"""Tests of data frames that need neither pandas nor polars; tests/recipes/test_data_frames.py has the others."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

import goldspan
from goldspan import ConfigurationError, Evaluation, Golden, MissingExtraError, Run, ToolCall, evaluate
from goldspan.store import Store
from goldspan.store.data_frames import column_values, evaluation_table
from goldspan.testing.results import AgentResults, ResultsHeader
from support.random_evaluations import evaluations
from support.store_contents import NewStore


@given(st.lists(evaluations(), max_size=6))
def test_evaluations_have_the_cells_that_an_export_of_their_store_has(
    new_store: NewStore, drawn: list[Evaluation]
) -> None:
    named = [replace(each, run=replace(each.run, run_id=f"run {at}")) for at, each in enumerate(drawn)]
    rows, columns = evaluation_table(named)
    cells = column_values(rows, columns)
    with tempfile.TemporaryDirectory() as name, new_store() as store:
        store.submit_many(named)
        store.export(Path(name) / "out.parquet")
        table = parquet.read_table(Path(name) / "out.parquet")
    assert list(cells) == table.column_names
    exported = {row["run_id"]: row for row in table.to_pylist()}
    for at, evaluation in enumerate(named):
        row = {name: values[at] for name, values in cells.items()}
        expected = exported[row["run_id"]]
        start_ns = evaluation.run.start_ns or evaluation.run.end_ns
        if start_ns is None or start_ns > 2**63:  # the store has the time at which it was stored
            expected["time"] = None
        assert row == expected | {"evaluations": None}


def test_what_is_not_known_is_none() -> None:
    known = evaluate(Run("a", tool_calls=(ToolCall("x"),), start_ns=10**18), Golden("g", tools=()))
    unknown = evaluate(Run("b", tool_calls=(ToolCall("x"),)), None)
    cells = column_values(*evaluation_table([known, unknown]))
    assert cells["passed"] == [False, None]
    assert cells["time"] == [datetime(2001, 9, 9, 1, 46, 40, tzinfo=timezone.utc), None]
    assert cells["score.tool_recall"] == [None, None]
    assert cells["score.tool_precision"] == [0.0, None]
    assert cells["expected_tools"] == [[], None]
    assert cells["golden_match"] == ["given", None]


@pytest.mark.parametrize("time_ns", [-1, 2**63, 2**80])
def test_a_time_that_no_clock_shows_is_none(time_ns: int) -> None:
    rows, columns = evaluation_table([evaluate(Run("a", start_ns=time_ns), None)])
    assert column_values(rows, columns)["time"] == [None]


def test_no_evaluation_has_every_base_column_and_no_row() -> None:
    cells = column_values(*evaluation_table([]))
    assert list(cells)[:2] == ["run_id", "time"]
    assert len(cells) == 22
    assert set(map(len, cells.values())) == {0}


def test_the_columns_of_metrics_are_sorted_and_cover_every_evaluation() -> None:
    several = [evaluate(["a"], ["a"], metrics=[name]) for name in ("tool_recall", "call_budget", "tool_f1")]
    cells = column_values(*evaluation_table(several))
    assert [name for name in cells if name.startswith("score.")] == [
        "score.call_budget",
        "score.tool_f1",
        "score.tool_recall",
    ]
    assert cells["score.tool_recall"] == [1.0, None, None]


@pytest.mark.parametrize("extra", ["pandas", "polars"])
def test_without_the_extra_the_error_names_it_before_anything_is_evaluated(
    store: Store, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, extra, None)
    started: list[str] = []

    def slow() -> Iterator[Evaluation]:
        started.append("evaluated")
        yield evaluate(["a"], ["a"])

    results = AgentResults(ResultsHeader(1), ())
    calls: list[Callable[[], Any]] = [
        lambda: getattr(goldspan, f"to_{extra}")(slow()),
        getattr(store, f"to_{extra}"),
        getattr(results, f"to_{extra}"),
    ]
    for call in calls:
        with pytest.raises(MissingExtraError, match=rf"^a {extra} data frame needs .*'goldspan\[{extra}\]'$"):
            call()
    assert started == []


@pytest.mark.parametrize(
    ("given_value", "message"),
    [
        (evaluate(["a"], ["a"]), "not Evaluation.*; a store and the results of evaluate_agent have a method"),
        (AgentResults(ResultsHeader(1), ()), "not AgentResults.*; a store and the results of evaluate_agent have a"),
        (["tool"], "evaluations must be a list of Evaluation, not of 'tool'"),
        ("tool", "evaluations must be a list of Evaluation, not of 't'"),
    ],
    ids=["one evaluation", "agent results", "a list of texts", "a text"],
)
def test_anything_but_a_list_of_evaluations_is_refused(given_value: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        evaluation_table(given_value)
