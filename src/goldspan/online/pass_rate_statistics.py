"""Outcomes counted by metric, over all time and over a ring of time buckets."""

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
    """The Wilson score interval of a pass rate, 95 % by default; `None` where nothing was judged.

    With p = passed/judged and n = judged: (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n). It stays within 0 and 1
    and is sensible where everything passed. E. B. Wilson, "Probable inference, the law of succession, and statistical
    inference", JASA 22 (1927); recommended for small n by Brown, Cai and DasGupta, Statistical Science 16 (2001).
    """
    if not trials:
        return None
    rate, square = passed / trials, z * z
    middle = rate + square / (2 * trials)
    half = z * math.sqrt(rate * (1 - rate) / trials + square / (4 * trials * trials))
    # The formula gives exactly 0 and 1 at the ends; floats only nearly.
    low = 0.0 if passed == 0 else (middle - half) / (1 + square / trials)
    high = 1.0 if passed == trials else (middle + half) / (1 + square / trials)
    return low, high


def confidence_sequence(passed: int, trials: int, error: float) -> tuple[float, float]:
    """Limits of a pass rate that may be looked at after every run: with probability 1 - `error` all of them hold.

    The rates p for which the Beta(1/2, 1/2) mixture of likelihoods is less than 1/`error` times the likelihood of p;
    by Ville's inequality the true rate is ever outside with probability `error` at most. H. Robbins, "Statistical
    methods related to the law of the iterated logarithm", Annals of Mathematical Statistics 41 (1970).
    """
    failed = trials - passed
    mixture = math.lgamma(passed + 0.5) + math.lgamma(failed + 0.5) - math.lgamma(trials + 1) - _LOG_PI
    least = mixture + math.log(error)

    def likely(rate: float) -> bool:
        return _log_likelihood_term(passed, rate) + _log_likelihood_term(failed, 1 - rate) > least

    rate = passed / trials if trials else 0.5
    low = 0.0 if likely(0.0) else _bisect_edge(likely, rate, 0.0)
    high = 1.0 if likely(1.0) else _bisect_edge(likely, rate, 1.0)
    return low, high


def _log_likelihood_term(count: int, rate: float) -> float:
    if not count:
        return 0.0
    return count * math.log(rate) if rate > 0 else -math.inf


def _bisect_edge(likely: Callable[[float], bool], inside: float, outside: float) -> float:
    """The last rate outside, between one that is likely and one that is not."""
    for _ in range(_BISECTION_STEPS):
        middle = (inside + outside) / 2
        if likely(middle):
            inside = middle
        else:
            outside = middle
    return outside


Direction = Literal["fall", "rise"]

AVERAGE_RUN_LENGTH = 10_000
"""How many runs pass on average, at least, between two false alarms of one series."""
MIN_BASELINE_RUNS = 50
"""Runs from which a baseline is learned before anything is called a change."""
RATE_TOLERANCE = 0.005
"""Changes of half a percentage point or less are not looked for: no single failure is an alarm, after however many
runs that passed."""

_LIMIT_ERROR = 0.05
"""How probable it may be that the limits of the baseline are ever wrong."""
_ODDS_RATIOS = (1.5, 3.0, 9.0, 30.0)
"""By how much the odds may have changed, from a small change to a break-down."""
_REFRESH_GROWTH = 1.1
"""The limits are computed anew when the baseline has grown by a tenth: rarely, and soon enough."""


@dataclass(frozen=True, slots=True)
class PassRateShift:
    """A change of a pass rate that was found."""

    direction: Direction
    before: float
    """The pass rate of the baseline, 0 to 1."""
    after: float
    """The pass rate since. It was looked at because it is unusual, so the true one is rather nearer to the baseline."""
    runs_before: int
    runs_after: int
    since: float
    """When the first of the runs was seen that are counted as after; in the unit of the times that were given."""


class ChangeDetector:
    """Watches passes and failures one by one, and says when their rate has changed. Nothing is stored but counts.

    It is the Bernoulli CUSUM (M. R. Reynolds and Z. G. Stoumbos, Journal of Quality Technology 31, 1999) in the form of
    an e-detector (J. Shin, A. Ramdas and A. Rinaldo, New England Journal of Statistics in Data Science 2, 2024), so
    that it holds where the baseline is learned and not known:

    - Against a pass rate p0, odds of failing that are r times as high are tested by the likelihood ratio
      e = r / (p0 + r(1 - p0)) for a failure and e = 1 / (p0 + r(1 - p0)) for a pass; the evidence is
      C = e · max(C, 1). Rises are tested the same way with the odds of passing.
    - p0 is no estimate but a limit: the lower one of the baseline for falls, the upper one for rises (`lasting_limits`,
      95 %), and at least `TOLERANCE` away from the baseline. The evidence then grows by chance no faster than it may,
      whatever the true rate is.
    - A change is found where the mean of the evidence over four r and both directions reaches the promised run length.
      Where the limits hold, the time to a false alarm is as long on average; within n runs one comes with a probability
      of at most n / run length + 5 %, and with far less in practice.
    - Runs join the baseline as soon as the evidence is below 1, where it began; those since then are the *after* of a
      change. After a change everything is learned anew, so that one change is told once.
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
        self._threshold = run_length * 2 * len(_ODDS_RATIOS)  # of the sum, where the promise is about the mean
        self._is_at_rest = False
        """A further pass leaves the evidence as it is: the usual case of an agent that never fails, and quick."""
        self._evidence: list[float] = []
        self._on_pass: list[float] = []
        self._on_fail: list[float] = []
        self._reset()

    def add(self, passed: bool, now: float) -> PassRateShift | None:
        """Take one outcome; the change where it completes the evidence for one."""
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
            held * factor if held > 1 else factor for held, factor in zip(self._evidence, factors, strict=True)
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
        """What came last looks like the baseline, and is part of it from now on."""
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
        self._on_pass = [usual for usual, _ in falls] + [likelier for _, likelier in rises]
        self._on_fail = [likelier for _, likelier in falls] + [usual for usual, _ in rises]
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
    """For each change of the odds of something with that share: the likelihood ratios where it did not and did happen.

    Nothing can be more frequent than always: there, no evidence is ever found.
    """
    if share >= 1:
        return [(0.0, 0.0)] * len(_ODDS_RATIOS)
    return [(1 / (1 - share + odds * share), odds / (1 - share + odds * share)) for odds in _ODDS_RATIOS]


Outcome: TypeAlias = "tuple[str, bool | None, float | None]"
"""What one metric said of one run: its name, whether its threshold was met, its value."""


@dataclass(frozen=True, slots=True)
class OutcomeCounts:
    """How often one metric came out how."""

    passed: int = 0
    failed: int = 0
    not_evaluated: int = 0
    """There was no value: no golden, or nothing in it that the metric is about."""
    measured: int = 0
    """There was a value, with a threshold or without."""
    value_sum: float = 0.0
    """The sum of the values."""

    @property
    def decided(self) -> int:
        """Passed or failed."""
        return self.passed + self.failed

    @property
    def pass_rate(self) -> float | None:
        """Of those judged the share that passed; `None` where none was."""
        return self.passed / self.decided if self.decided else None

    @property
    def pass_rate_interval(self) -> tuple[float, float] | None:
        """The 95 % Wilson interval of the pass rate."""
        return wilson_interval(self.passed, self.decided)

    @property
    def mean(self) -> float | None:
        """The mean value; `None` where none was measured."""
        return self.value_sum / self.measured if self.measured else None


CountRow: TypeAlias = "list[float]"
"""The fields of `Counts` in their order; the first four are whole numbers."""
CountRows: TypeAlias = "dict[str, CountRow]"


class OutcomeTally:
    """The counts of one series of runs, by metric. Times are numbers of buckets, given from outside."""

    __slots__ = ("_closed", "_closed_through", "_open", "detectors", "merged_into")

    def __init__(self) -> None:
        self._closed: CountRows = {}
        """Every metric that was ever seen, with what is in no open bucket."""
        self._closed_through = -math.inf
        """The last bucket that is closed: whatever is of it, or older, is counted among the closed."""
        self._open: dict[int, CountRows] = {}
        self.detectors: dict[str, ChangeDetector] = {}
        self.merged_into: OutcomeTally | None = None

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

    def close_buckets(self, through: float) -> None:
        """Count the buckets up to and including that one among what is past."""
        if through <= self._closed_through:
            return
        self._closed_through = through
        for bucket in [bucket for bucket in self._open if bucket <= through]:
            _merge_rows(self._open.pop(bucket), self._closed)

    def merge(self, other: OutcomeTally) -> None:
        """Take over everything that the other one counted. Later corrections of it are made here."""
        self.close_buckets(other._closed_through)
        _merge_rows(other._closed, self._closed)
        for bucket, rows in other._open.items():
            _merge_rows({metric: [0, 0, 0, 0, 0.0] for metric in rows}, self._closed)
            _merge_rows(rows, self._rows(bucket))
        other._closed, other._open, other.detectors = {}, {}, {}  # runs that are remembered still point at it
        other.merged_into = self

    def counts(self, metric: str) -> OutcomeCounts:
        """Everything that was counted of a metric."""
        return _sum_rows([self._closed[metric], *self._open_rows(metric, -math.inf)])

    def recent(self, metric: str, after: float) -> OutcomeCounts:
        """What was counted of a metric in the buckets after that one."""
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
        held = into.get(metric)
        into[metric] = list(row) if held is None else [a + b for a, b in zip(held, row, strict=True)]


def _sum_rows(rows: Iterable[CountRow]) -> OutcomeCounts:
    passed, failed, not_evaluated, measured, total = map(sum, zip([0, 0, 0, 0, 0.0], *rows, strict=True))
    return OutcomeCounts(int(passed), int(failed), int(not_evaluated), int(measured), total)
