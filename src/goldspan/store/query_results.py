"""Converts the rows of queries to the values that a store returns, in their order."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, cast

from goldspan.errors import ConfigurationError
from goldspan.store.run_records import tool_key
from goldspan.store.store_protocol import (
    GROUP_BY_FIELDS,
    MAX_PAGE_SIZE,
    GroupCounts,
    StoredEvaluation,
    StoredRun,
    Substitution,
    TimeBucket,
    ToolCounts,
    VerdictCounts,
)

SELECT_METRICS = """
    WITH RECURSIVE found(metric) AS (
        SELECT min(metric) FROM scores
        UNION ALL SELECT (SELECT min(metric) FROM scores WHERE metric > found.metric) FROM found
        WHERE metric IS NOT NULL
    ) SELECT metric FROM found WHERE metric IS NOT NULL
"""
"""Skips from name to name in the index (loose index scan), because there are few names with many scores each."""


def require_group_field(by: str) -> None:
    """Raise `ConfigurationError` for a field by which runs are not counted."""
    if by not in GROUP_BY_FIELDS:
        raise ConfigurationError(f"`by` is {', '.join(GROUP_BY_FIELDS[:-1])} or {GROUP_BY_FIELDS[-1]}, not {by!r}")


def bucket_limit(buckets: int) -> int:
    """Return the maximum number of time intervals of a trend."""
    if buckets < 1:
        raise ConfigurationError(f"buckets must be at least 1, not {buckets}")
    return min(buckets, MAX_PAGE_SIZE)


def stored_run(row: Sequence[Any]) -> StoredRun:
    """Return a run from its id, time, key and number of evaluations, and the columns of its current evaluation."""
    run_id, time_ns, _, evaluations, *current = row
    return StoredRun(run_id, time_ns, evaluations, stored_evaluation(run_id, *current))


def stored_evaluation(run_id: str, revision: int, digest: str, stored_ns: int, document: str) -> StoredEvaluation:
    """Return an evaluation from its columns."""
    return StoredEvaluation(run_id, revision, digest, stored_ns, json.loads(document))


def verdict_counts(total: int, evaluated: int | None, passed: int | None) -> VerdictCounts:
    """Return the counts from the number of all runs, of those with a verdict and of those that passed.

    The sum of no rows is NULL in SQL.
    """
    evaluated, passed = evaluated or 0, passed or 0
    return VerdictCounts(passed=passed, failed=evaluated - passed, not_evaluated=total - evaluated)


def count_verdicts(runs: Iterable[StoredRun]) -> VerdictCounts:
    """Return the counts of runs that were read."""
    verdicts = Counter(run.current.document["passed"] for run in runs)
    return VerdictCounts(passed=verdicts[True], failed=verdicts[False], not_evaluated=verdicts[None])


def group_counts(rows: Iterable[Sequence[Any]]) -> tuple[GroupCounts, ...]:
    """Return the groups from name, time of the newest run, and counts; most runs first."""
    groups = (GroupCounts(name, verdict_counts(*counts), last_ns) for name, last_ns, *counts in rows)
    return tuple(sorted(groups, key=lambda group: (-group.counts.total, group.name or "")))


def time_buckets(began: int, ended: int, width: int, rows: Iterable[Sequence[Any]]) -> tuple[TimeBucket, ...]:
    """Return the intervals of `width` nanoseconds, empty ones included, from the number of each and its counts."""
    counted = {number: verdict_counts(*counts) for number, *counts in rows}
    numbers = range((ended - began - 1) // width + 1)
    return tuple(TimeBucket(began + number * width, counted.get(number, VerdictCounts())) for number in numbers)


def tool_counts(rows: Iterable[Sequence[Any]]) -> tuple[ToolCounts, ...]:
    """Return the tools from tool, role, number of runs, first run and name, in the order of the first run."""
    roles: dict[str, dict[str, int]] = {}
    names: dict[str, str] = {}
    for tool, role, runs, _, name in rows:
        roles.setdefault(tool, {})[role] = runs
        names.setdefault(tool, name)
    tools = (
        ToolCounts(name, **{role: roles[tool].get(role, 0) for role in ToolCounts.__slots__ if role != "name"})
        for tool, name in names.items()
    )
    return tuple(sorted(tools, key=lambda tool: (-tool.problem_count, -tool.called, -tool.expected, tool.name)))


def substitution_counts(rows: Iterable[Sequence[Any]]) -> tuple[Substitution, ...]:
    """Return the pairs from expected and called tool, number of runs and first run, in the order of the first run.

    A run has one row for each pair, whatever the spelling of the tools.
    """
    runs: dict[tuple[str, str], int] = {}
    names: dict[tuple[str, str], tuple[str, str]] = {}
    for expected, called, number, _ in rows:
        pair = (tool_key(expected), tool_key(called))
        runs[pair] = runs.get(pair, 0) + number
        names.setdefault(pair, (expected, called))
    substitutions = (Substitution(*names[pair], number) for pair, number in runs.items())
    return tuple(sorted(substitutions, key=lambda pair: (-pair.runs, pair.expected, pair.called)))


def revision_of(row: Sequence[Any] | None) -> tuple[int, str] | None:
    """Return revision and digest of a run's current evaluation, or `None` without one."""
    return None if row is None else cast("tuple[int, str]", (row[0], row[1]))
