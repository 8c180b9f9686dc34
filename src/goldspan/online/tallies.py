"""Outcomes counted by metric, over all time and over a ring of time buckets."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from goldspan.online.changes import ChangeDetector
from goldspan.online.intervals import wilson_interval

Outcome: TypeAlias = "tuple[str, bool | None, float | None]"
"""What one metric said of one run: its name, whether its threshold was met, its value."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How often one metric came out how."""

    passed: int = 0
    failed: int = 0
    not_evaluated: int = 0
    """There was no value: no golden, or nothing in it that the metric is about."""
    measured: int = 0
    """There was a value, with a threshold or without."""
    total: float = 0.0
    """The sum of the values."""

    @property
    def judged(self) -> int:
        """Passed or failed."""
        return self.passed + self.failed

    @property
    def pass_rate(self) -> float | None:
        """Of those judged the share that passed; `None` where none was."""
        return self.passed / self.judged if self.judged else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % Wilson interval of the pass rate."""
        return wilson_interval(self.passed, self.judged)

    @property
    def mean(self) -> float | None:
        """The mean value; `None` where none was measured."""
        return self.total / self.measured if self.measured else None


Row: TypeAlias = "list[float]"
"""The fields of `Counts` in their order; the first four are whole numbers."""
Rows: TypeAlias = "dict[str, Row]"


class Tally:
    """The counts of one series of runs, by metric. Times are numbers of buckets, given from outside."""

    __slots__ = ("_closed", "_closed_through", "_open", "detectors", "merged_into")

    def __init__(self) -> None:
        self._closed: Rows = {}
        """Every metric that was ever seen, with what is in no open bucket."""
        self._closed_through = -math.inf
        """The last bucket that is closed: whatever is of it, or older, is counted among the closed."""
        self._open: dict[int, Rows] = {}
        self.detectors: dict[str, ChangeDetector] = {}
        self.merged_into: Tally | None = None

    @property
    def metrics(self) -> Collection[str]:
        """Every metric that was ever counted."""
        return self._closed.keys()

    def __len__(self) -> int:
        return len(self._closed)

    def add(self, outcomes: Iterable[Outcome], bucket: int) -> None:
        """Count outcomes in a bucket."""
        rows = self._rows(bucket)
        for metric, passed, value in outcomes:
            row = rows.get(metric)
            if row is None:
                self._closed.setdefault(metric, [0, 0, 0, 0, 0.0])
                row = rows.setdefault(metric, [0, 0, 0, 0, 0.0])
            if value is None:
                row[2] += 1
                continue
            row[3] += 1
            row[4] += value
            if passed is not None:
                row[0 if passed else 1] += 1

    def subtract(self, outcomes: Iterable[Outcome], bucket: int) -> None:
        """Take back outcomes that were counted in that bucket."""
        rows = self._rows(bucket)
        for metric, passed, value in outcomes:
            row = rows[metric]
            if value is None:
                row[2] -= 1
                continue
            row[3] -= 1
            row[4] = row[4] - value if row[3] else 0.0  # where nothing is left, no rounding is left either
            if passed is not None:
                row[0 if passed else 1] -= 1

    def close(self, through: float) -> None:
        """Count the buckets up to and including that one among what is past."""
        if through <= self._closed_through:
            return
        self._closed_through = through
        for bucket in [bucket for bucket in self._open if bucket <= through]:
            _merge(self._open.pop(bucket), self._closed)

    def merge(self, other: Tally) -> None:
        """Take over everything that the other one counted. Later corrections of it are made here."""
        self.close(other._closed_through)
        _merge(other._closed, self._closed)
        for bucket, rows in other._open.items():
            _merge({metric: [0, 0, 0, 0, 0.0] for metric in rows}, self._closed)
            _merge(rows, self._rows(bucket))
        other._closed, other._open, other.detectors = {}, {}, {}  # runs that are remembered still point at it
        other.merged_into = self

    def counts(self, metric: str) -> Counts:
        """Everything that was counted of a metric."""
        return _summed([self._closed[metric], *self._of(metric, -math.inf)])

    def recent(self, metric: str, after: float) -> Counts:
        """What was counted of a metric in the buckets after that one."""
        return _summed(self._of(metric, after))

    def _rows(self, bucket: int) -> Rows:
        rows = self._closed if bucket <= self._closed_through else self._open.get(bucket)
        if rows is None:
            rows = self._open[bucket] = {}
        return rows

    def _of(self, metric: str, after: float) -> Iterator[Row]:
        return (rows[metric] for bucket, rows in self._open.items() if bucket > after and metric in rows)


def _merge(rows: Rows, into: Rows) -> None:
    for metric, row in rows.items():
        held = into.get(metric)
        into[metric] = list(row) if held is None else [a + b for a, b in zip(held, row, strict=True)]


def _summed(rows: Iterable[Row]) -> Counts:
    passed, failed, not_evaluated, measured, total = map(sum, zip([0, 0, 0, 0, 0.0], *rows, strict=True))
    return Counts(int(passed), int(failed), int(not_evaluated), int(measured), total)
