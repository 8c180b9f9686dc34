"""Tests of the retention: excess runs are deleted in batches, and the file shrinks."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from goldspan import ConfigurationError, Evaluation, Run, ToolCall, evaluate
from goldspan.store import Retention, open_store

DAY = 86400 * 10**9
NOW = 1_800_000_000 * 10**9
RUN = Run("", input="Hello.", tool_calls=(ToolCall("search"),), start_ns=1)
EVALUATION = evaluate(RUN, None)


def of_days(number: int, *, ago: int = 0) -> Iterator[Evaluation]:
    """Returns evaluations of runs, each a day older than the previous one."""
    for day in range(number):
        start = NOW - (ago + day) * DAY
        yield replace(EVALUATION, run=replace(RUN, run_id=f"day {ago + day}", start_ns=start))


def test_prune_deletes_runs_older_than_the_maximum_age(path: Path, clock: object) -> None:
    with open_store(path, clock=lambda: NOW) as store:
        store.submit_many(of_days(30))
        assert store.prune() == 0
    with open_store(path, retention=Retention(max_age=timedelta(days=7)), clock=lambda: NOW) as store:
        assert store.prune() == 22
        assert [run.run_id for run in store.runs().items] == [f"day {day}" for day in range(8)]
        store.check()


def test_submitting_prunes_periodically_and_in_batches(path: Path) -> None:
    now_ns = NOW
    with open_store(path, clock=lambda: NOW) as store:
        store.submit_many(of_days(1200, ago=10))
    with open_store(path, retention=Retention(max_age=timedelta(days=7)), clock=lambda: now_ns) as store:
        left = []
        for evaluation in of_days(5):
            store.submit(evaluation)
            left.append(store.count().total)
        assert left == [701, 202, 3, 4, 5]
        now_ns = NOW + 30 * 10**9
        store.submit(next(of_days(1, ago=9)))
        assert store.count().total == 6  # the last check was a moment ago
        now_ns = NOW + 61 * 10**9
        store.submit(next(of_days(1)))
        assert store.count().total == 5  # the run of nine days ago was deleted


def test_a_file_stays_within_its_maximum_size_and_keeps_the_newest_runs(path: Path) -> None:
    limit = 400_000
    with open_store(path, retention=Retention(max_bytes=limit), clock=lambda: NOW) as store:
        for at in range(1000):
            store.submit(replace(EVALUATION, run=replace(RUN, run_id=str(at), start_ns=at + 1)))
        store.prune()
        kept = [int(run.run_id) for run in store.iter_runs()]
        assert kept == list(range(999, 999 - len(kept), -1))
        assert len(kept) > 20
    assert limit / 2 < path.stat().st_size <= limit


@pytest.mark.e2e
@pytest.mark.parametrize("at_once", [512, 1200])
def test_the_number_of_kept_runs_does_not_grow_with_large_batches(path: Path, at_once: int) -> None:
    limit = 400_000
    with open_store(path, retention=Retention(max_bytes=limit), clock=lambda: NOW) as store:
        stored = 0
        left: list[int] = []
        for _ in range(5):
            runs = (replace(RUN, run_id=str(at), start_ns=at + 1) for at in range(stored, stored + at_once))
            store.submit_many(replace(EVALUATION, run=run) for run in runs)
            stored += at_once
            left.append(store.count().total)
        assert max(left[1:]) <= left[0]


def test_pruning_shrinks_the_file_before_the_store_is_closed(path: Path) -> None:
    with open_store(path, clock=lambda: NOW) as store:
        store.submit_many(of_days(600))
    before = path.stat().st_size
    with open_store(path, retention=Retention(max_bytes=before // 4), clock=lambda: NOW) as store:
        store.prune()
        assert path.stat().st_size <= before // 4


def test_storing_a_run_leaves_no_free_pages_if_it_deletes_others(path: Path) -> None:
    with open_store(path, clock=lambda: NOW) as store:
        store.submit_many(of_days(400, ago=10))
    with open_store(path, retention=Retention(max_age=timedelta(days=7)), clock=lambda: NOW) as store:
        store.submit(next(of_days(1)))
        assert store.count().total == 1
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA freelist_count").fetchone() == (0,)


def test_a_smaller_maximum_size_shrinks_an_existing_file(path: Path) -> None:
    with open_store(path, clock=lambda: NOW) as store:
        store.submit_many(of_days(600))
    before = path.stat().st_size
    with open_store(path, retention=Retention(max_bytes=before // 4), clock=lambda: NOW) as store:
        assert store.prune() > 300
    assert path.stat().st_size <= before // 4


def test_a_maximum_size_that_fits_no_run_keeps_none_and_accepts_runs(path: Path) -> None:
    with open_store(path, retention=Retention(max_bytes=1), clock=lambda: NOW) as store:
        store.submit_many(of_days(3))
        assert store.prune() >= 0
        assert store.count().total == 0


@pytest.mark.parametrize(
    "wrong",
    [
        *({"max_age": timedelta(0)}, {"max_bytes": 0}, {"max_age": 30}, {"max_age": "30d"}, {"max_bytes": "2 GB"}),
        *({"deletion_memory": timedelta(0)}, {"deletion_memory": None}),
    ],
)
def test_an_invalid_retention_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=r"(max_age|max_bytes|deletion_memory) must be"):
        Retention(**wrong)  # type: ignore[arg-type]


def test_the_largest_maximum_age_keeps_every_run(path: Path) -> None:
    with open_store(path, retention=Retention(max_age=timedelta.max), clock=lambda: NOW) as store:
        store.submit_many(of_days(2))
        assert store.prune() == 0
