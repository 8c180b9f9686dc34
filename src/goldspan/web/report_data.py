"""Collects the data of a report in one pass over the selected runs of a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from goldspan.extraction.capture_diagnostics import Hint, merge_hints
from goldspan.goldens import Goldens
from goldspan.model import NotEvaluatedRun
from goldspan.store import RunFilter, SqliteStore, StoredRun
from goldspan.store.store_protocol import ALL_RUNS
from goldspan.web.golden_status import GoldenTable, PassRateEstimate, golden_table, pass_rate
from goldspan.web.run_details import RunDetails, run_details
from goldspan.web.run_list import RunEntry, run_entry, stored_capture_hints
from goldspan.web.unmatched_requests import UnmatchedRequests, unmatched_requests

MAX_LISTED = 1000
"""So many failed runs, and so many others, have a line in a list."""
MAX_UNMATCHED_GOLDENS = 200
"""So many goldens that no run met are named."""

ReportObserver = Callable[[Iterable[StoredRun]], Iterable[StoredRun]]
"""Looks at the runs on their way into a report."""


@dataclass(frozen=True, slots=True)
class ReportHeader:
    """What a report is of, as its head says it."""

    title: str
    made_ns: int
    """When it was made, in nanoseconds since the Unix epoch."""
    sources: tuple[str, ...]
    """The names of what was read."""
    said: tuple[tuple[str, str], ...] = ()
    """The filters that narrow the runs down: what each is called, and what it says."""


@dataclass(slots=True)
class MetricSummary:
    """A metric over the runs that have a score of it."""

    metric: str
    runs: int = 0
    """In which it is known."""
    passed: int = 0
    judged: int = 0
    """For how many of them there was something to reach."""
    _sum: float = 0.0

    @property
    def mean(self) -> float | None:
        """`None`: not known of any run."""
        return self._sum / self.runs if self.runs else None

    def add(self, score: Mapping[str, Any]) -> None:
        """Count one run's score."""
        if score["value"] is not None:
            self.runs += 1
            self._sum += score["value"]
        if score["passed"] is not None:
            self.judged += 1
            self.passed += score["passed"]


@dataclass(slots=True)
class RunListing:
    """Runs in a list, and how many more are left out of it."""

    entries: list[RunEntry] = field(default_factory=list)
    left: int = 0

    def add(self, run: StoredRun) -> None:
        """Take a run in, as long as there is room."""
        if len(self.entries) < MAX_LISTED:
            self.entries.append(run_entry(run))
        else:
            self.left += 1


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that a report says."""

    about: ReportHeader
    rate: PassRateEstimate
    """How many passed, and how sure the share is."""
    metrics: tuple[MetricSummary, ...]
    board: GoldenTable
    """How the goldens stand, and the tools in their runs."""
    unmet: tuple[str, ...]
    """Goldens in use by which no run was judged."""
    failed: tuple[RunDetails, ...]
    """Those failed runs that are shown in full, the newest first."""
    further: RunListing
    """The failed runs after them."""
    others: RunListing
    """Runs that passed, or were not evaluated."""
    health: tuple[tuple[Hint, int], ...]
    """What is amiss with the capture, and in how many runs."""
    uncovered: UnmatchedRequests
    """Requests that no golden is for, in groups."""
    not_evaluated: tuple[NotEvaluatedRun, ...] = ()
    """The runs that a golden is for, and that could not be evaluated."""

    def mean(self, metric: str) -> float | None:
        """The mean of a metric, or the share that `passed`; `None`: not known of any run."""
        if metric == "passed":
            return self.rate.share
        return next((each.mean for each in self.metrics if each.metric == metric), None)


def build_report(
    store: SqliteStore,
    about: ReportHeader,
    *,
    goldens: Goldens | None = None,
    run_filter: RunFilter = ALL_RUNS,
    max_detailed: int = 50,
    observe: ReportObserver = iter,
) -> Report:
    """What there is to say of the runs that are meant. Of the failed ones so many are told `in_full`."""
    seen = _ReportBuilder(max_detailed)
    for run in observe(store.iter_runs(run_filter)):
        seen.add(run)
    return Report(
        about=about,
        rate=pass_rate(store.count(run_filter)),
        metrics=tuple(seen.metrics.values()),
        board=golden_table(store, goldens, run_filter),
        unmet=tuple(_unmatched_goldens(store, goldens)) if run_filter == ALL_RUNS else (),
        failed=tuple(seen.failed),
        further=seen.further,
        others=seen.others,
        health=tuple(merge_hints(seen.hints())),
        uncovered=unmatched_requests(store, run_filter),
        not_evaluated=tuple(seen.not_evaluated),
    )


class _ReportBuilder:
    """What is gathered from the runs one by one."""

    def __init__(self, in_full: int) -> None:
        self.metrics: dict[str, MetricSummary] = {}
        self.failed: list[RunDetails] = []
        self.further = RunListing()
        self.others = RunListing()
        self.not_evaluated: list[NotEvaluatedRun] = []
        self._hints: dict[tuple[Hint, ...], int] = {}
        self._in_full = in_full

    def add(self, run: StoredRun) -> None:
        document = run.current.document
        for score in document["scores"]:
            metric = score["metric"]
            self.metrics.setdefault(metric, MetricSummary(metric)).add(score)
        if hints := tuple(stored_capture_hints(document)):
            self._hints[hints] = self._hints.get(hints, 0) + 1
        if document["passed"] is None and document["golden_id"] is not None:
            unmeasured = frozenset(score["metric"] for score in document["scores"] if score["value"] is None)
            said = document["run_id"], document["golden_id"], document["reason"]
            self.not_evaluated.append(NotEvaluatedRun(*said, unmeasured))
        if document["passed"] is not False:
            self.others.add(run)
        elif len(self.failed) < self._in_full and (details := run_details(run, (run.current,))) is not None:
            self.failed.append(details)
        else:
            self.further.add(run)

    def hints(self) -> Iterator[Hint]:
        """Those of all runs. The same few come again and again."""
        for hints, runs in self._hints.items():
            for _ in range(runs):
                yield from hints


def _unmatched_goldens(store: SqliteStore, goldens: Goldens | None) -> Iterator[str]:
    met = {tally.name for tally in store.count_by("golden")}
    return (golden.id for golden in goldens or () if golden.id not in met)
