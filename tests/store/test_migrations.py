"""Tests of migrations: an upgraded store returns the same results as a new one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from goldspan import ExpectedTool, Golden, Run, StoreError, ToolCall, evaluate
from goldspan.store import GroupCounts, RunFilter, SqliteStore, Substitution, VerdictCounts, open_store
from goldspan.store.run_records import run_from_document

HERE = Path(__file__).parent
GOLDEN_OF_VERSION_3 = Golden(
    "refund", tools=(ExpectedTool("find_order"), ExpectedTool("refund"), ExpectedTool("Send_Mail"))
)
RUN_LIKE_THE_FIRST = Run(
    "1:1", agent="support", tool_calls=(ToolCall("find_order"), ToolCall("refund"), ToolCall("send_mail"))
)


def create_store_of_version(path: Path, version: int) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.executescript((HERE / f"version-{version}.sql").read_text(encoding="utf-8"))


@pytest.fixture
def old(path: Path) -> Path:
    """Creates a store of version 2."""
    create_store_of_version(path, 2)
    return path


def test_a_migration_derives_tool_counts_and_substitutions_from_the_documents(old: Path) -> None:
    with open_store(old) as store:
        store.check()
        tools = {tool.name: (tool.called, tool.expected, tool.problem_count) for tool in store.tool_counts()}
        assert tools == {
            "Find_Order": (4, 4, 1),
            "refund": (3, 4, 1),
            "send_mail": (3, 4, 1),
            "call-customer": (0, 1, 1),
            "exchangeItem": (1, 0, 1),
            "Web Search": (2, 0, 1),
            "delete_order": (1, 0, 1),
        }
        assert store.substitutions() == (
            Substitution("refund", "exchangeItem", 1), Substitution("send_mail or call-customer", "Web Search", 1)
        )  # fmt: skip
        assert store.count_by("golden") == (
            GroupCounts("refund", VerdictCounts(passed=3, failed=1), 1790000004 * 10**9),
            GroupCounts(None, VerdictCounts(not_evaluated=1), 1790000005 * 10**9),
        )
        assert [bucket.counts.total for bucket in store.trend(buckets=5)] == [1] * 5
        assert store.last_sequence_number() == 6


def test_a_migrated_run_that_is_evaluated_again_counts_with_its_latest_result(old: Path) -> None:
    with open_store(old) as store:
        (run,) = store.iter_runs(RunFilter(tool="exchange_item"))
        again = replace(evaluate(run_from_document(run.current.document), None), revision=3)
        assert store.replace_if_current(again, (run.current.revision, run.current.digest))
        assert store.substitutions() == (Substitution("send_mail or call-customer", "Web Search", 1),)
        assert store.delete_runs([each.run_id for each in store.iter_runs(RunFilter(tool="web search"))]) == 2
        assert store.substitutions() == ()


def test_a_migration_processes_all_runs_in_batches(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goldspan.store.migrations._BATCH_SIZE", 2)
    with open_store(old) as store:
        assert {tool.name for tool in store.tool_counts(RunFilter(trace_id=f"{5:032x}"))} == {"Web Search"}
        assert [pair.called for pair in store.substitutions()] == ["exchangeItem", "Web Search"]


def test_a_tool_that_no_document_contains_is_shown_by_its_normalized_name(old: Path) -> None:
    with closing(sqlite3.connect(old)) as other:
        other.execute("UPDATE tools SET tool = 'othertool' WHERE tool = 'deleteorder'")
        other.commit()
    with open_store(old) as store:
        assert "othertool" in {tool.name for tool in store.tool_counts()}


def test_a_store_of_version_1_is_migrated(path: Path) -> None:
    create_store_of_version(path, 1)
    with open_store(path) as store:
        assert [(tool.name, tool.called, tool.problem_count) for tool in store.tool_counts()] == [
            ("find_order", 1, 0), ("refund", 1, 0)
        ]  # fmt: skip
        assert store.substitutions() == ()
        assert store.count() == VerdictCounts(passed=1)


def test_a_store_of_version_3_answers_every_filter_as_its_documents_do(path: Path) -> None:
    create_store_of_version(path, 3)
    with open_store(path) as store:
        store.check()
        runs = store.runs().items
        scores = {
            run.run_id: {score["metric"]: score["value"] for score in run.current.document["scores"]} for run in runs
        }
        assert set(store.metrics()) == {metric for values in scores.values() for metric in values}
        for metric in store.metrics():
            assert found(store, RunFilter(metric=metric)) == {run for run, values in scores.items() if metric in values}
            for limit in (0.4, 0.9, 1.5):
                below = {
                    run for run, values in scores.items() if (value := values.get(metric)) is not None and value < limit
                }
                assert found(store, RunFilter(metric=metric, below=limit)) == below
        for tool in ("find_order", "refund", "send_mail", "cancel_order", "web_search"):
            called = {run.run_id for run in runs if tool in run.current.document["tools_used"]}
            assert found(store, RunFilter(tool=tool)) == called
        assert {(tool.name, tool.expected, tool.called, tool.missing) for tool in store.tool_counts()} == {
            ("find_order", 4, 4, 0),
            ("refund", 4, 3, 1),
            ("send_mail", 4, 4, 0),
            ("cancel_order", 0, 1, 0),
            ("web_search", 0, 1, 0),
        }
        assert store.substitutions() == (Substitution("refund", "cancel_order", 1),)


def test_runs_of_equal_shape_share_their_rows_after_a_migration(path: Path) -> None:
    create_store_of_version(path, 3)
    with open_store(path) as store:
        all_good = [f"{number:032x}:00f067aa0ba902b7" for number in (1, 2, 3)]
        (metrics,) = {len(run.current.document["scores"]) for run in store.iter_runs(RunFilter(covered=True))}
        assert score_rows(path) == 3 * metrics  # of five runs, three are alike
        again = evaluate(replace(RUN_LIKE_THE_FIRST, run_id="6:6"), GOLDEN_OF_VERSION_3)
        store.submit(again)
        assert score_rows(path) == 3 * metrics
        store.delete_runs(all_good)
        assert score_rows(path) == 3 * metrics
        store.delete_runs(["6:6"])
        assert score_rows(path) == 2 * metrics


def found(store: SqliteStore, wanted: RunFilter) -> set[str]:
    assert store.count(wanted).total == len(store.runs(wanted).items)
    return {run.run_id for run in store.runs(wanted).items}


def score_rows(path: Path) -> int:
    with closing(sqlite3.connect(path)) as other:
        return int(other.execute("SELECT count(*) FROM scores").fetchone()[0])


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_older_store_opened_read_only_is_refused_and_not_changed(path: Path, version: int) -> None:
    create_store_of_version(path, version)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=rf"an older goldspan wrote it \(version {version}, this one reads 4\); open"):
        open_store(path, read_only=True)
    assert path.read_bytes() == before
