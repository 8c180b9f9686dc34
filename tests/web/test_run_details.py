"""The data of the view of one run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from goldspan import ExpectedTool, Golden, Goldens, Run, ToolCall, evaluate
from goldspan.store import SqliteStore, open_store
from goldspan.web.run_details import RunDetails, run_details
from support.page_server import evaluation, goldens_in, trip_run


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with open_store(tmp_path / "goldspan.db", keep_arguments=True) as store:
        yield store


def details(store: SqliteStore, run_id: str, revision: int | None = None) -> RunDetails | None:
    run = store.run(run_id)
    assert run is not None
    return run_details(run, store.evaluations(run_id), revision)


def existing_details(store: SqliteStore, run_id: str, revision: int | None = None) -> RunDetails:
    found = details(store, run_id, revision)
    assert found is not None
    return found


def test_run_details_show_the_newest_revision_unless_another_is_selected(store: SqliteStore, tmp_path: Path) -> None:
    goldens, _ = goldens_in(tmp_path)
    run = trip_run(0)
    store.submit(evaluation(run, goldens))
    store.submit(replace(evaluation(replace(run, tool_calls=run.tool_calls[:3]), goldens), revision=2))
    newest, first = existing_details(store, run.run_id), existing_details(store, run.run_id, 1)
    assert (newest.evaluation.revision, newest.is_current) == (2, True)
    assert (first.evaluation.revision, first.is_current) == (1, False)
    assert "forbidden" in [mark.meaning for mark in first.legend]
    assert "forbidden" not in [mark.meaning for mark in newest.legend]
    assert [each.number for each in newest.revisions] == [2, 1]
    assert [each.shown for each in newest.revisions] == [True, False]
    assert [each.shown for each in first.revisions] == [False, True]
    assert "calls" in newest.revisions[0].changed
    assert newest.revisions[1].changed == ()
    assert details(store, run.run_id, 3) is None


def test_each_revision_lists_what_changed_since_the_previous_one(store: SqliteStore) -> None:
    run = Run("r", tool_calls=(ToolCall("pay"),))
    golden = Golden("g", tools=(ExpectedTool("pay"),))
    store.submit(evaluate(run, Goldens([])))
    store.submit(replace(evaluate(run, golden), revision=2))
    store.submit(replace(evaluate(run, golden), revision=3))
    third, second, first = existing_details(store, "r").revisions
    assert {"verdict", "golden", "scores"} <= {*second.changed}
    assert (third.changed, first.changed) == ((), ())
    assert (first.mark.meaning, second.mark.meaning) == ("not evaluated", "passed")


def test_arguments_results_and_errors_are_shown_if_the_store_keeps_them(store: SqliteStore) -> None:
    calls = (
        ToolCall("pay", raw_name="Pay", server="bank", arguments={"sum": 1}, result="done"),
        ToolCall("look", raw_arguments="{cut", result={"a": "ü"}),
        ToolCall("fail", arguments={}, error="ValueError: no"),
        ToolCall("silent"),
    )
    store.submit(evaluate(Run("r", tool_calls=calls), Goldens([])))
    shown = existing_details(store, "r")
    assert shown.values_kept
    assert [call.number for call in shown.calls] == [1, 2, 3]
    pay, look, fail = shown.calls
    assert (pay.name, pay.raw_name, pay.server, pay.result, pay.error) == ("pay", "Pay", "bank", "done", None)
    assert pay.arguments == '{\n  "sum": 1\n}'
    assert (look.arguments, look.result) == ("{cut", '{\n  "a": "ü"\n}')
    assert (fail.arguments, fail.result, fail.error) == ("{}", None, "ValueError: no")


def test_calls_are_not_shown_if_the_store_does_not_keep_values(tmp_path: Path) -> None:
    with open_store(tmp_path / "names.db") as names_only:
        calls = (ToolCall("pay", arguments={"sum": 1}, result="done"),)
        names_only.submit(evaluate(Run("r", tool_calls=calls), Goldens([])))
        shown = existing_details(names_only, "r")
    assert (shown.calls, shown.values_kept) == ((), False)


def test_long_values_and_many_rows_are_bounded(store: SqliteStore) -> None:
    calls = tuple(ToolCall(f"tool-{at}", arguments={"text": "x" * 20_000}) for at in range(600))
    store.submit(evaluate(Run("r", tool_calls=calls), Goldens([])))
    shown = existing_details(store, "r")
    assert len(shown.rows) + shown.omitted == len(shown.timeline.bars) + shown.timeline.omitted == 600
    assert 100 <= len(shown.rows) <= 500
    assert sum(len(call.arguments or "") for call in shown.calls) < 200_000
    assert all((call.arguments or "").endswith("more characters)") for call in shown.calls)


def test_scores_with_and_without_a_value_are_listed_separately(store: SqliteStore) -> None:
    store.submit(evaluate(Run("r", tool_calls=(ToolCall("pay"),)), Golden("g", tools=(ExpectedTool("pay"),))))
    shown = existing_details(store, "r")
    measured = {score["metric"] for score in shown.valued_scores}
    unmeasured = {metric for _, metrics in shown.unavailable_metrics for metric in metrics}
    assert "tool_recall" in measured
    assert unmeasured
    assert not measured & unmeasured
    assert len(measured) + len(unmeasured) == len(shown.document["scores"])


def test_capture_hints_of_a_run_count_one_run_each(store: SqliteStore, tmp_path: Path) -> None:
    goldens, _ = goldens_in(tmp_path)
    run = trip_run(0)
    store.submit(evaluation(replace(run, health=replace(run.health, missing_root=True, orphan_spans=2)), goldens))
    shown = existing_details(store, run.run_id)
    assert shown.hints
    assert [number for _, number in shown.health] == [1] * len(shown.hints)
