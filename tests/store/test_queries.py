"""Tests of the counts of a store, compared with a count of the same runs in Python."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan import ConfigurationError, ExpectedTool, Golden, Run, ToolCall, evaluate
from goldspan.model import Evaluation
from goldspan.store import (
    GroupCounts,
    RunFilter,
    Store,
    StoredRun,
    Substitution,
    TimeBucket,
    ToolCounts,
    VerdictCounts,
    open_store,
)
from goldspan.store.store_protocol import ToolRole
from support.random_evaluations import Listed, evaluations, filters, utf8
from support.store_contents import NewStore

NOW = 1_800_000_000 * 10**9
GOLDEN = Golden("refund", tools=(ExpectedTool("find_order"), ExpectedTool("refund")))
SECOND = 10**9


def evaluated(
    number: int, *calls: str, golden: Golden | None = GOLDEN, start_ns: int = 1000, **said: Any
) -> Evaluation:
    run = Run(
        f"t{number}:s", trace_ids=(f"t{number}",), tool_calls=tuple(map(ToolCall, calls)), start_ns=start_ns, **said
    )
    return evaluate(run, golden)


def folded(name: str) -> str:
    return utf8(name).lower().replace("_", "").replace(" ", "")


def counts(runs: Iterable[StoredRun]) -> VerdictCounts:
    found = Counter(run.current.document["passed"] for run in runs)
    return VerdictCounts(found[True], found[False], found[None])


def grouped(runs: Sequence[StoredRun], by: str) -> set[GroupCounts]:
    key = {"golden": "golden_id"}.get(by, by)
    groups: dict[str | None, list[StoredRun]] = {}
    for run in runs:
        name = run.current.document[key]
        groups.setdefault(None if name is None else utf8(name), []).append(run)
    return {GroupCounts(name, counts(each), max(run.time_ns for run in each)) for name, each in groups.items()}


def bucketed(runs: Sequence[StoredRun], wanted: RunFilter, buckets: int) -> tuple[TimeBucket, ...]:
    if not runs:
        return ()
    times = [run.time_ns for run in runs]
    begin = min(times) if wanted.since_ns is None else wanted.since_ns
    end = max(times) + 1 if wanted.until_ns is None else min(wanted.until_ns, 2**63 - 1)
    width = -(-(end - begin) // buckets)
    starts = range(begin, end, width)
    return tuple(TimeBucket(at, counts(run for run in runs if at <= run.time_ns < at + width)) for at in starts)


def replaced(runs: Sequence[StoredRun]) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for run in runs:
        faults = [fault for fault in run.current.document["faults"] if fault["kind"] == "wrong_tool"]
        found.update({(folded(fault["tool"]), folded(fault["instead"])) for fault in faults})
    return found


def used(listed: Listed, meant: Iterable[str]) -> dict[str, Counter[str]]:
    """Returns the number of runs in which each tool has each role, from a list and one filter at a time."""
    found: dict[str, Counter[str]] = {}
    ids = set(meant)
    names = {"search", "book_hotel", "mail", "pay;drop", "\udc00tool"}
    for name in names:
        for role in get_args(ToolRole):
            if number := len(ids & set(listed.meant(RunFilter(tool=name, tool_role=role)))):
                found.setdefault(folded(name), Counter())[role] = number
    return found


@given(st.lists(evaluations(), max_size=12), st.lists(filters, min_size=1, max_size=4), st.sampled_from((1, 3, 40)))
def test_every_query_result_equals_a_count_of_the_runs_in_python(
    new_store: NewStore, stored: list[Evaluation], wanted: list[RunFilter], buckets: int
) -> None:
    listed = Listed(NOW)
    with new_store(clock=lambda: NOW) as store:
        for evaluation in stored:
            listed.submit(evaluation)
            store.submit(evaluation)
        for each in (RunFilter(), *wanted):
            runs = list(store.iter_runs(each))
            assert store.count(each) == counts(runs)
            for by in ("golden", "agent", "service", "environment", "unit"):
                tallies = store.count_by(by, each)
                assert set(tallies) == grouped(runs, by)
                totals = [tally.counts.total for tally in tallies]
                assert totals == sorted(totals, reverse=True)
            assert store.trend(each, buckets=buckets) == bucketed(runs, each, buckets)
            tools = {folded(tool.name): tool for tool in store.tool_counts(each)}
            found = used(listed, (run.run_id for run in runs))
            assert {name: roles_of(tool) for name, tool in tools.items()} == found
            pairs = store.substitutions(each)
            assert {(folded(pair.expected), folded(pair.called)): pair.runs for pair in pairs} == replaced(runs)
            assert len(pairs) == len(replaced(runs))
            for limit in (2, 50):
                assert store.page_with_counts(each, limit=limit) == (store.runs(each, limit=limit), counts(runs))


def roles_of(tool: ToolCounts) -> Mapping[str, int]:
    return Counter({role: number for role in get_args(ToolRole) if (number := getattr(tool, role))})


def test_groups_are_sorted_by_number_of_runs_and_then_by_name(store: Store) -> None:
    passed = ("find_order", "refund")
    store.submit_many(
        [
            evaluated(1, *passed, agent="b", start_ns=5),
            evaluated(2, agent="a", start_ns=7),
            evaluated(3, *passed, start_ns=3),
            evaluated(4, golden=None, start_ns=9),
        ]
    )
    assert store.count_by("agent") == (
        GroupCounts(None, VerdictCounts(passed=1, not_evaluated=1), 9),
        GroupCounts("a", VerdictCounts(failed=1), 7),
        GroupCounts("b", VerdictCounts(1), 5),
    )
    assert [tally.name for tally in store.count_by("golden")] == ["refund", None]


def test_an_unknown_group_and_an_invalid_number_of_buckets_are_refused(store: Store) -> None:
    with pytest.raises(ConfigurationError, match="`by` is golden, agent, service, environment or unit, not 'text'"):
        store.count_by("text")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="buckets must be at least 1, not 0"):
        store.trend(buckets=0)


def test_a_trend_spans_the_oldest_to_the_newest_run_with_empty_buckets_between(store: Store) -> None:
    store.submit_many(evaluated(at, start_ns=at * SECOND) for at in (100, 101, 140))
    trend = store.trend(buckets=4)
    assert [(bucket.start_ns // SECOND, bucket.counts.failed) for bucket in trend] == [
        (100, 2), (110, 0), (120, 0), (130, 1)
    ]  # fmt: skip
    spans = {later.start_ns - bucket.start_ns for bucket, later in itertools.pairwise(trend)}
    assert len(spans) == 1


def test_a_trend_with_a_time_filter_spans_the_whole_time(store: Store) -> None:
    store.submit(evaluated(1, start_ns=50 * SECOND))
    trend = store.trend(RunFilter(since_ns=0, until_ns=100 * SECOND), buckets=4)
    assert [(bucket.start_ns // SECOND, bucket.counts.total) for bucket in trend] == [(0, 0), (25, 0), (50, 1), (75, 0)]
    assert store.trend(RunFilter(since_ns=-5, until_ns=100 * SECOND), buckets=4) == trend  # no run is earlier than 1970


def test_a_trend_has_one_bucket_for_one_moment_none_without_runs_and_1000_at_most(store: Store) -> None:
    assert store.trend() == ()
    store.submit_many([evaluated(1), evaluated(2)])
    assert store.trend() == (TimeBucket(1000, VerdictCounts(failed=2)),)
    assert store.trend(RunFilter(since_ns=2000)) == ()
    assert len(store.trend(RunFilter(since_ns=0, until_ns=NOW), buckets=10**9)) == 1000


def test_tools_and_substitutions_have_their_original_spelling(store: Store) -> None:
    store.submit(evaluated(1, "FindOrder", "Web Search"))
    store.submit_many(evaluated(number, "find_order", "web-search") for number in (2, 3))
    store.submit(evaluated(4, "find_order", "refund"))
    assert store.tool_counts() == (
        ToolCounts("Web Search", called=3, expected=0, missing=0, unexpected=3, forbidden=0, failed=0),
        ToolCounts("refund", called=1, expected=4, missing=3, unexpected=0, forbidden=0, failed=0),
        ToolCounts("FindOrder", called=4, expected=4, missing=0, unexpected=0, forbidden=0, failed=0),
    )
    assert store.substitutions() == (Substitution("refund", "Web Search", 3),)
    assert store.substitutions(RunFilter(trace_id="t2")) == (Substitution("refund", "web-search", 1),)
    assert store.tool_counts()[1].problem_count == 3


def test_a_substitution_counts_once_per_run_whatever_its_spelling(store: Store) -> None:
    golden = Golden("two", tools=(ExpectedTool("mail"), ExpectedTool("find"), ExpectedTool("Mail")))
    store.submit(evaluated(1, "send_sms", "find", "sendSms", golden=golden))
    assert [fault["instead"] for fault in next(store.iter_runs()).current.document["faults"]] == ["send_sms", "sendSms"]
    assert [pair.runs for pair in store.substitutions()] == [1]


def test_counts_cover_only_the_latest_revision_of_a_run(store: Store) -> None:
    store.submit(evaluated(1, "find_order", "search"))
    assert store.substitutions() == (Substitution("refund", "search", 1),)
    store.submit(replace(evaluated(1, "find_order", "refund"), revision=2))
    assert store.substitutions() == ()
    assert [tool.name for tool in store.tool_counts()] == ["find_order", "refund"]
    assert store.count_by("golden") == (GroupCounts("refund", VerdictCounts(passed=1), 1000),)
    assert store.trend() == (TimeBucket(1000, VerdictCounts(passed=1)),)


def test_deleted_runs_are_not_counted_and_their_tool_names_are_removed_from_the_file(
    path: Path,
) -> None:
    store = open_store(path)
    store.submit_many([evaluated(1, "find_order", "SecretTool"), evaluated(2, "find_order", "search")])
    assert store.delete_trace("t1") == 1
    assert store.substitutions() == (Substitution("refund", "search", 1),)
    assert {tool.name for tool in store.tool_counts()} == {"find_order", "refund", "search"}
    content = b"".join(file.read_bytes() for file in path.parent.iterdir()).lower()
    assert b"search" in content
    assert b"secret" not in content
    assert store.delete_runs(["t2:s"]) == 1
    assert (store.tool_counts(), store.substitutions(), store.count_by("unit"), store.trend()) == ((), (), (), ())
    store.close()


def test_last_sequence_number_is_the_position_after_the_newest_evaluation(store: Store) -> None:
    assert store.last_sequence_number() == 0
    store.submit_many([evaluated(1), evaluated(2)])
    after = store.last_sequence_number()
    assert store.evaluations_after(after).items == ()
    store.delete_trace("t2")
    assert store.last_sequence_number() == after
    store.submit(evaluated(3))
    assert [each.run_id for each in store.evaluations_after(after).items] == ["t3:s"]
    assert store.evaluations_after(after).next_after == store.last_sequence_number()
