"""Counts outcomes by metric, computes pass-rate intervals and detects changes of a pass rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

Z_95 = 1.959963984540054
"""The 0.975 quantile of the normal distribution."""
_BISECTION_STEPS = 40
_LOG_PI = math.log(math.pi)


def wilson_interval(passed: int, trials: int, z: float = Z_95) -> tuple[float, float] | None:
    """Return the Wilson score interval of a pass rate, 95 % by default, or `None` for no trials.

    With p = passed/trials and n = trials: (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n). The interval stays within
    0 and 1 and is also valid if all trials passed.
    E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927);
    recommended for small n by Brown, Cai and DasGupta, Statistical Science 16 (2001).
    """
    if not trials:
        return None
    rate, square = passed / trials, z * z
    middle = rate + square / (2 * trials)
    half = z * math.sqrt(rate * (1 - rate) / trials + square / (4 * trials * trials))
    # At the ends the formula gives exactly 0 and 1, but floating-point rounding does not.
    low = 0.0 if passed == 0 else (middle - half) / (1 + square / trials)
    high = 1.0 if passed == trials else (middle + half) / (1 + square / trials)
    return low, high


def confidence_sequence(passed: int, trials: int, error: float) -> tuple[float, float]:
    """Return limits of a pass rate; with probability 1 - `error` the limits after every run hold.

    The limits enclose the rates p for which the Beta(1/2, 1/2) mixture of likelihoods is less than 1/`error` times the
    likelihood of p. By Ville's inequality, the probability that the true rate is ever outside is at most `error`.
    H. Robbins, "Statistical methods related to the law of the iterated logarithm", Annals of Mathematical Statistics 41
    (1970).
    """
    failed = trials - passed
    mixture = math.lgamma(passed + 0.5) + math.lgamma(failed + 0.5) - math.lgamma(trials + 1) - _LOG_PI
    log_minimum = mixture + math.log(error)

    def is_plausible(rate: float) -> bool:
        return _log_likelihood_term(passed, rate) + _log_likelihood_term(failed, 1 - rate) > log_minimum

    rate = passed / trials if trials else 0.5
    low = 0.0 if is_plausible(0.0) else _bisect_edge(is_plausible, rate, 0.0)
    high = 1.0 if is_plausible(1.0) else _bisect_edge(is_plausible, rate, 1.0)
    return low, high


def _log_likelihood_term(count: int, rate: float) -> float:
    if not count:
        return 0.0
    return count * math.log(rate) if rate > 0 else -math.inf


def _bisect_edge(is_plausible: Callable[[float], bool], inside: float, outside: float) -> float:
    """Return the implausible rate closest to the edge between a plausible and an implausible rate."""
    for _ in range(_BISECTION_STEPS):
        middle = (inside + outside) / 2
        if is_plausible(middle):
            inside = middle
        else:
            outside = middle
    return outside


Direction = Literal["fall", "rise"]

AVERAGE_RUN_LENGTH = 10_000
"""Minimum average number of runs between two false alarms of one series."""
MIN_BASELINE_RUNS = 50
"""Number of runs from which the detector learns a baseline before it can report a change."""
RATE_TOLERANCE = 0.005
"""The detector ignores changes up to half a percentage point, so a single failure is never an alarm, after any number
of passes."""

_LIMIT_ERROR = 0.05
"""Maximum probability that the limits of the baseline are ever wrong."""
_ODDS_RATIOS = (1.5, 3.0, 9.0, 30.0)
"""Tested ratios of the odds after and before a change, from a small change to a complete failure."""
_REFRESH_GROWTH = 1.1
"""The detector recomputes the limits each time the baseline has grown by this factor."""


@dataclass(frozen=True, slots=True)
class PassRateShift:
    """A detected change of a pass rate."""

    direction: Direction
    before: float
    """The pass rate of the baseline, 0 to 1."""
    after: float
    """The pass rate since the change. The true rate tends to be closer to the baseline, because the detector selects
    unusual runs."""
    runs_before: int
    runs_after: int
    since: float
    """The time of the first run that counts as after the change, in the unit of `ChangeDetector.add`'s `now`."""


class ChangeDetector:
    """Detects a change of a pass rate from passes and failures added one by one. It stores only counts.

    It is the Bernoulli CUSUM (M. R. Reynolds and Z. G. Stoumbos, Journal of Quality Technology 31, 1999) in the form of
    an e-detector (J. Shin, A. Ramdas and A. Rinaldo, New England Journal of Statistics in Data Science 2, 2024), so
    that its guarantee also holds for a baseline that is learned from data:

    - Against a pass rate p0, the detector tests odds of failing that are r times as high with the likelihood ratio
      e = r / (p0 + r(1 - p0)) for a failure and e = 1 / (p0 + r(1 - p0)) for a pass; the evidence is
      C = e · max(C, 1). It tests rises in the same way with the odds of passing.
    - p0 is a limit, not an estimate: the lower limit of the baseline for falls, the upper limit for rises
      (`confidence_sequence`, 95 %), at least `RATE_TOLERANCE` away from the baseline. This bounds the growth of the
      evidence by chance for every true rate.
    - The detector reports a change when the mean of the evidence over four r and both directions reaches the run
      length. If the limits hold, the average time to a false alarm is at least that long; within n runs the probability
      of a false alarm is at most n / run length + 5 %, and far lower in practice.
    - Runs join the baseline when the evidence falls below 1, its starting value; the runs since then are the *after* of
      a change. After a change the detector learns a new baseline, so it reports one change once.
    """

    __slots__ = (
        "_evidence",
        "_is_at_rest",
        "_limits_set_at",
        "_on_fail",
        "_on_pass",
        "_passed",
        "_pending",
        "_pending_passed",
        "_since",
        "_threshold",
        "_trials",
    )

    def __init__(self, run_length: int = AVERAGE_RUN_LENGTH) -> None:
        self._threshold = (
            run_length * 2 * len(_ODDS_RATIOS)
        )  # for the sum of the evidence; `run_length` is for the mean
        self._is_at_rest = False
        """A further pass does not change the evidence: the fast path for an agent that never fails."""
        self._evidence: list[float] = []
        self._on_pass: list[float] = []
        self._on_fail: list[float] = []
        self._reset()

    def add(self, passed: bool, now: float) -> PassRateShift | None:
        """Add one outcome and return the change if the evidence for one is now sufficient."""
        if not self._evidence:
            self._learn_baseline(passed)
            return None
        if passed and self._is_at_rest:
            self._extend_baseline(1, 1)
            return None
        self._is_at_rest = False
        if not self._pending:
            self._since = now
        self._pending += 1
        self._pending_passed += passed
        factors = self._on_pass if passed else self._on_fail
        self._evidence = evidence = [
            value * factor if value > 1 else factor for value, factor in zip(self._evidence, factors, strict=True)
        ]
        total = sum(evidence)
        if total < len(evidence):
            self._extend_baseline(self._pending, self._pending_passed)
            self._is_at_rest = passed and evidence == self._on_pass and max(evidence) <= 1
        elif total >= self._threshold:
            return self._complete_change()
        return None

    def _reset(self) -> None:
        self._trials = self._passed = self._pending = self._pending_passed = self._limits_set_at = 0
        self._since = 0.0
        self._is_at_rest = False
        self._evidence = []

    def _learn_baseline(self, passed: bool) -> None:
        self._trials += 1
        self._passed += passed
        if self._trials == MIN_BASELINE_RUNS:
            self._set_limits()
            self._evidence = [0.0] * (2 * len(_ODDS_RATIOS))

    def _extend_baseline(self, trials: int, passed: int) -> None:
        """Add the latest outcomes to the baseline, because they do not differ from it."""
        self._trials += trials
        self._passed += passed
        self._pending = self._pending_passed = 0
        if self._trials > self._limits_set_at * _REFRESH_GROWTH:
            self._set_limits()

    def _set_limits(self) -> None:
        low, high = confidence_sequence(self._passed, self._trials, _LIMIT_ERROR)
        rate = self._passed / self._trials
        falls = _likelihood_ratios(1 - min(low, rate - RATE_TOLERANCE))
        rises = _likelihood_ratios(max(high, rate + RATE_TOLERANCE))
        self._on_pass = [absent for absent, _ in falls] + [present for _, present in rises]
        self._on_fail = [present for _, present in falls] + [absent for absent, _ in rises]
        self._limits_set_at = self._trials
        self._is_at_rest = False

    def _complete_change(self) -> PassRateShift:
        half = len(_ODDS_RATIOS)
        falls, rises = sum(self._evidence[:half]), sum(self._evidence[half:])
        shift = PassRateShift(
            "fall" if falls > rises else "rise",
            before=self._passed / self._trials,
            after=self._pending_passed / self._pending,
            runs_before=self._trials,
            runs_after=self._pending,
            since=self._since,
        )
        self._reset()
        return shift


def _likelihood_ratios(share: float) -> list[tuple[float, float]]:
    """Return, for each ratio of the odds of an event, the likelihood ratios of its absence and of its presence.

    `share` is the event's usual share. For a share of 1 all ratios are 0, because the event cannot be more frequent.
    """
    if share >= 1:
        return [(0.0, 0.0)] * len(_ODDS_RATIOS)
    return [(1 / (1 - share + odds * share), odds / (1 - share + odds * share)) for odds in _ODDS_RATIOS]


Outcome: TypeAlias = "tuple[str, bool | None, float | None]"
"""The result of one metric for one run: its name, whether it met its threshold, its value."""


@dataclass(frozen=True, slots=True)
class OutcomeCounts:
    """The counts of the results of one metric."""

    passed: int = 0
    failed: int = 0
    not_evaluated: int = 0
    """Runs without a value: no golden, or a golden without anything that the metric evaluates."""
    measured: int = 0
    """Runs with a value, with or without a threshold."""
    value_sum: float = 0.0
    """The sum of the values."""

    @property
    def decided(self) -> int:
        """Runs that passed or failed."""
        return self.passed + self.failed

    @property
    def pass_rate(self) -> float | None:
        """The share of the decided runs that passed; `None` if no run was decided."""
        return self.passed / self.decided if self.decided else None

    @property
    def pass_rate_interval(self) -> tuple[float, float] | None:
        """The 95 % Wilson interval of the pass rate."""
        return wilson_interval(self.passed, self.decided)

    @property
    def mean(self) -> float | None:
        """The mean value; `None` if no value was measured."""
        return self.value_sum / self.measured if self.measured else None


CountRow: TypeAlias = "list[float]"
"""The fields of `OutcomeCounts` in their order; the first four are whole numbers."""
CountRows: TypeAlias = "dict[str, CountRow]"


class OutcomeTally:
    """Counts the outcomes of one series of runs by metric, in total and in open time buckets.

    The caller numbers the buckets in order of time.
    """

    __slots__ = ("_closed", "_closed_through", "_open", "detectors", "merged_into")

    def __init__(self) -> None:
        self._closed: CountRows = {}
        """A row for every metric ever added, with its counts outside the open buckets."""
        self._closed_through = -math.inf
        """The last closed bucket: outcomes of this bucket or an older one go to `_closed`."""
        self._open: dict[int, CountRows] = {}
        self.detectors: dict[str, ChangeDetector] = {}
        self.merged_into: OutcomeTally | None = None

    @property
    def metrics(self) -> Collection[str]:
        """The names of all metrics ever counted."""
        return self._closed.keys()

    def __len__(self) -> int:
        return len(self._closed)

    def add(self, outcomes: Iterable[Outcome], bucket: int) -> None:
        """Add outcomes to a bucket."""
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
        """Remove outcomes that were added to that bucket."""
        rows = self._rows(bucket)
        for metric, passed, value in outcomes:
            row = rows[metric]
            if value is None:
                row[2] -= 1
                continue
            row[3] -= 1
            row[4] = row[4] - value if row[3] else 0.0  # no values left: discard the rounding error
            if passed is not None:
                row[0 if passed else 1] -= 1

    def close_buckets(self, through: float) -> None:
        """Close the buckets up to and including `through`."""
        if through <= self._closed_through:
            return
        self._closed_through = through
        for bucket in [bucket for bucket in self._open if bucket <= through]:
            _merge_rows(self._open.pop(bucket), self._closed)

    def merge(self, other: OutcomeTally) -> None:
        """Move all counts of `other` into this tally. Callers apply later corrections of `other` here."""
        self.close_buckets(other._closed_through)
        _merge_rows(other._closed, self._closed)
        for bucket, rows in other._open.items():
            _merge_rows({metric: [0, 0, 0, 0, 0.0] for metric in rows}, self._closed)
            _merge_rows(rows, self._rows(bucket))
        other._closed, other._open, other.detectors = {}, {}, {}  # tracked runs still refer to `other`
        other.merged_into = self

    def counts(self, metric: str) -> OutcomeCounts:
        """Return all counts of a metric."""
        return _sum_rows([self._closed[metric], *self._open_rows(metric, -math.inf)])

    def recent(self, metric: str, after: float) -> OutcomeCounts:
        """Return the counts of a metric in the open buckets after `after`."""
        return _sum_rows(self._open_rows(metric, after))

    def _rows(self, bucket: int) -> CountRows:
        rows = self._closed if bucket <= self._closed_through else self._open.get(bucket)
        if rows is None:
            rows = self._open[bucket] = {}
        return rows

    def _open_rows(self, metric: str, after: float) -> Iterator[CountRow]:
        return (rows[metric] for bucket, rows in self._open.items() if bucket > after and metric in rows)


def _merge_rows(rows: CountRows, into: CountRows) -> None:
    for metric, row in rows.items():
        present = into.get(metric)
        into[metric] = list(row) if present is None else [a + b for a, b in zip(present, row, strict=True)]


def _sum_rows(rows: Iterable[CountRow]) -> OutcomeCounts:
    passed, failed, not_evaluated, measured, total = map(sum, zip([0, 0, 0, 0, 0.0], *rows, strict=True))
    return OutcomeCounts(int(passed), int(failed), int(not_evaluated), int(measured), total)
