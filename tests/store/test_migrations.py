"""Tests of migrations: an upgraded store returns the same results as a new one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from goldspan import StoreError, evaluate
from goldspan.store import GroupCounts, RunFilter, Substitution, VerdictCounts, open_store
from goldspan.store.run_records import run_from_document

HERE = Path(__file__).parent


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


@pytest.mark.parametrize("version", [1, 2])
def test_an_older_store_opened_read_only_is_refused_and_not_changed(path: Path, version: int) -> None:
    create_store_of_version(path, version)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=rf"an older goldspan wrote it \(version {version}, this one reads 3\); open"):
        open_store(path, read_only=True)
    assert path.read_bytes() == before
