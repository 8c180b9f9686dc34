"""Tests of deleted traces: late evaluations of them are dropped for a day."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from goldspan import Run, ToolCall, evaluate
from goldspan.store import Retention, Store, open_store
from support.store_contents import select

OLD = Path(__file__).with_name("version-1.sql")
DAY = 86400 * 10**9
RUN = Run("t:s", trace_ids=("t",), input="Hello.", tool_calls=(ToolCall("search"),), start_ns=1)
EVALUATION = evaluate(RUN, None)
OTHER = replace(EVALUATION, run=replace(RUN, run_id="u:s", trace_ids=("u",)))
JOINED = replace(EVALUATION, run=replace(RUN, run_id="v:s", trace_ids=("v", "t")))


def stored(store: Store) -> set[str]:
    return {run.run_id for run in store.iter_runs()}


def test_late_evaluations_of_a_deleted_trace_are_dropped_and_others_are_stored(store: Store) -> None:
    store.submit_many([EVALUATION, JOINED])
    assert store.delete_trace("t") == 2
    store.submit_many([replace(EVALUATION, revision=2), OTHER, JOINED])
    store.submit(EVALUATION)
    assert stored(store) == {"u:s"}


def test_a_trace_can_be_deleted_before_it_is_stored(store: Store) -> None:
    assert store.delete_trace("t") == 0
    store.submit_many([EVALUATION, OTHER])
    assert stored(store) == {"u:s"}


def test_every_opened_store_remembers_a_deletion_for_a_day(location: str | Path, clock: Any) -> None:
    with open_store(location, clock=clock) as one, open_store(location, clock=clock) as other:
        one.delete_trace("t")
        clock.now_ns += DAY
        other.submit(EVALUATION)
        assert stored(other) == set()
        clock.now_ns += 1000
        other.submit(EVALUATION)
        assert stored(other) == {"t:s"}


def test_a_repeated_deletion_is_remembered_from_the_last_time(store: Store, clock: Any) -> None:
    store.delete_trace("t")
    clock.now_ns += DAY
    store.delete_trace("t")
    clock.now_ns += DAY
    store.submit(EVALUATION)
    assert stored(store) == set()


def test_deletion_memory_sets_how_long_a_deletion_is_stored(location: str | Path, clock: Any) -> None:
    with open_store(location, retention=Retention(deletion_memory=timedelta(minutes=1)), clock=clock) as store:
        store.delete_trace("t")
        clock.now_ns += 61 * 10**9
        store.submit(EVALUATION)
        assert stored(store) == {"t:s"}
        assert select(store.location, "SELECT * FROM deletions") == []


def test_a_migrated_store_keeps_its_runs_and_remembers_deletions(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.executescript(OLD.read_text(encoding="utf-8"))
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    with open_store(path) as store:
        store.check()
        (run,) = store.iter_runs()
        assert (run.evaluation_count, run.current.revision, run.current.document["passed"]) == (2, 2, True)
        assert [each.revision for each in store.evaluations_after().items] == [1, 2]
        again = replace(EVALUATION, run=replace(RUN, run_id=run.run_id, trace_ids=(trace_id,)), revision=3)
        assert store.delete_trace(trace_id) == 1
        store.submit(again)
        assert stored(store) == set()


def test_a_deleted_trace_takes_no_space_in_the_file(path: Path, clock: Any) -> None:
    with open_store(path, clock=clock) as store:
        store.submit(OTHER)
        runs = [replace(RUN, run_id=f"t:{number}", input="Hello." * 1000) for number in range(50)]
        store.submit_many(evaluate(run, None) for run in runs)
        assert store.delete_trace("t") == 50
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA freelist_count").fetchone() == (0,)
        assert stored(store) == {"u:s"}
