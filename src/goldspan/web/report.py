"""What a report says of the runs that are meant in a store, gathered in one pass; HTML and Markdown are made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from goldspan.extraction.hints import Hint, gathered
from goldspan.goldens import Goldens
from goldspan.model import NotEvaluated
from goldspan.store import RunFilter, SqliteStore, StoredRun
from goldspan.store.protocol import EVERY_RUN
from goldspan.web.entries import Entry, entry_of, hints_of
from goldspan.web.goldens import Board, Rate, rate_of, standings
from goldspan.web.runs import Details, details_of
from goldspan.web.uncovered import Uncovered, uncovered

MOST_LISTED = 1000
"""So many failed runs, and so many others, have a line in a list."""
MOST_UNMET = 200
"""So many goldens that no run met are named."""

Watch = Callable[[Iterable[StoredRun]], Iterable[StoredRun]]
"""Looks at the runs on their way into a report."""


@dataclass(frozen=True, slots=True)
class About:
    """What a report is of, as its head says it."""

    title: str
    made_ns: int
    """When it was made, in nanoseconds since the Unix epoch."""
    sources: tuple[str, ...]
    """The names of what was read."""
    said: tuple[tuple[str, str], ...] = ()
    """The filters that narrow the runs down: what each is called, and what it says."""


@dataclass(slots=True)
class Measured:
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
class Listed:
    """Runs in a list, and how many more are left out of it."""

    entries: list[Entry] = field(default_factory=list)
    left: int = 0

    def add(self, run: StoredRun) -> None:
        """Take a run in, as long as there is room."""
        if len(self.entries) < MOST_LISTED:
            self.entries.append(entry_of(run))
        else:
            self.left += 1


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that a report says."""

    about: About
    rate: Rate
    """How many passed, and how sure the share is."""
    metrics: tuple[Measured, ...]
    board: Board
    """How the goldens stand, and the tools in their runs."""
    unmet: tuple[str, ...]
    """Goldens in use by which no run was judged."""
    failed: tuple[Details, ...]
    """Those failed runs that are shown in full, the newest first."""
    further: Listed
    """The failed runs after them."""
    others: Listed
    """Runs that passed, or were not evaluated."""
    health: tuple[tuple[Hint, int], ...]
    """What is amiss with the capture, and in how many runs."""
    uncovered: Uncovered
    """Requests that no golden is for, in groups."""
    not_evaluated: tuple[NotEvaluated, ...] = ()
    """The runs that a golden is for, and that could not be evaluated."""

    def mean(self, metric: str) -> float | None:
        """The mean of a metric, or the share that `passed`; `None`: not known of any run."""
        if metric == "passed":
            return self.rate.share
        return next((each.mean for each in self.metrics if each.metric == metric), None)


def report_of(
    store: SqliteStore,
    about: About,
    *,
    goldens: Goldens | None = None,
    wanted: RunFilter = EVERY_RUN,
    in_full: int = 50,
    watch: Watch = iter,
) -> Report:
    """What there is to say of the runs that are meant. Of the failed ones so many are told `in_full`."""
    seen = _Seen(in_full)
    for run in watch(store.every(wanted)):
        seen.add(run)
    return Report(
        about=about,
        rate=rate_of(store.count(wanted)),
        metrics=tuple(seen.metrics.values()),
        board=standings(store, goldens, wanted),
        unmet=tuple(_unmet(store, goldens)) if wanted == EVERY_RUN else (),
        failed=tuple(seen.failed),
        further=seen.further,
        others=seen.others,
        health=tuple(gathered(seen.hints())),
        uncovered=uncovered(store, wanted),
        not_evaluated=tuple(seen.not_evaluated),
    )


class _Seen:
    """What is gathered from the runs one by one."""

    def __init__(self, in_full: int) -> None:
        self.metrics: dict[str, Measured] = {}
        self.failed: list[Details] = []
        self.further = Listed()
        self.others = Listed()
        self.not_evaluated: list[NotEvaluated] = []
        self._hints: dict[tuple[Hint, ...], int] = {}
        self._in_full = in_full

    def add(self, run: StoredRun) -> None:
        document = run.current.document
        for score in document["scores"]:
            metric = score["metric"]
            self.metrics.setdefault(metric, Measured(metric)).add(score)
        if hints := tuple(hints_of(document)):
            self._hints[hints] = self._hints.get(hints, 0) + 1
        if document["passed"] is None and document["golden_id"] is not None:
            unmeasured = frozenset(score["metric"] for score in document["scores"] if score["value"] is None)
            said = document["run_id"], document["golden_id"], document["reason"]
            self.not_evaluated.append(NotEvaluated(*said, unmeasured))
        if document["passed"] is not False:
            self.others.add(run)
        elif len(self.failed) < self._in_full and (details := details_of(run, (run.current,))) is not None:
            self.failed.append(details)
        else:
            self.further.add(run)

    def hints(self) -> Iterator[Hint]:
        """Those of all runs. The same few come again and again."""
        for hints, runs in self._hints.items():
            for _ in range(runs):
                yield from hints


def _unmet(store: SqliteStore, goldens: Goldens | None) -> Iterator[str]:
    met = {tally.name for tally in store.tallies("golden")}
    return (golden.id for golden in goldens or () if golden.id not in met)
