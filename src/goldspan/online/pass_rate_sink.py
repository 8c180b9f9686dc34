"""Pass rates over time as OpenTelemetry gauges, and an event for each change of a pass rate."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple

from opentelemetry._logs import LoggerProvider, SeverityNumber, get_logger
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter

from goldspan import semconv
from goldspan._guard import suppress_errors
from goldspan._version import __version__
from goldspan.errors import ConfigurationError
from goldspan.model import Evaluation
from goldspan.online.pass_rate_statistics import (
    AVERAGE_RUN_LENGTH,
    ChangeDetector,
    Outcome,
    OutcomeCounts,
    OutcomeTally,
    PassRateShift,
)
from goldspan.sinks.fork_safety import renew_after_fork
from goldspan.sinks.metric_sink import short_label
from goldspan.sinks.otel_sinks import run_context

RUN_VERDICT = "verdict"
"""The name under which the verdict of a whole run is counted, next to the metrics."""

_MAX_PATTERNS = 1_024


class PassRateSeries(NamedTuple):
    """The attributes by which runs are grouped. Test runs are never grouped with production runs."""

    golden: str | None
    """`None` if no golden was found."""
    agent: str | None
    unit: str
    environment: str | None

    @property
    def coarser(self) -> PassRateSeries:
        """The series into which this one is merged when there are too many."""
        other = PassRateSeries(semconv.OTHER_LABEL_VALUE, semconv.OTHER_LABEL_VALUE, self.unit, self.environment)
        return other if other != self else _OTHER_SERIES


_OTHER_SERIES = PassRateSeries(
    semconv.OTHER_LABEL_VALUE, semconv.OTHER_LABEL_VALUE, semconv.OTHER_LABEL_VALUE, semconv.OTHER_LABEL_VALUE
)


@dataclass(frozen=True, slots=True)
class PassRate:
    """The counts of one metric in one series."""

    metric: str
    series: PassRateSeries
    counts: OutcomeCounts
    """Since the process started."""
    recent: OutcomeCounts
    """Within the window."""


@dataclass(frozen=True, slots=True)
class PassRateChange:
    """A changed pass rate with its metric and series."""

    metric: str
    series: PassRateSeries
    shift: PassRateShift
    found_at: float
    """When it was detected, in seconds since the epoch, like `shift.since`."""


class _CountedRun(NamedTuple):
    """What is needed to count a run again."""

    revision: int
    bucket: int
    tally: OutcomeTally
    outcomes: tuple[Outcome, ...]


class PassRates:
    """Counts evaluations. A later revision of a run replaces the earlier one while the run is remembered.

    Args:
        max_series: The maximum number of pass rates. Above it, the longest idle series is merged into `other` (per unit
            and environment while there are few of those), so that all counts still add up.
        max_runs: The number of runs that are remembered by id.
        window: The length of the recent period in seconds.
        buckets: The number of buckets into which the window is divided.
        run_length: The minimum average number of runs between two false alarms.

    Raises:
        ConfigurationError: If a bound is not positive.
    """

    def __init__(
        self,
        *,
        max_series: int = 2_000,
        max_runs: int = 10_000,
        window: float = 86_400.0,
        buckets: int = 24,
        run_length: int = AVERAGE_RUN_LENGTH,
    ) -> None:
        bounds = {"max_series": max_series, "max_runs": max_runs, "buckets": buckets, "run_length": run_length}
        for name, value in {**bounds, "window": window}.items():
            if not value > 0:
                raise ConfigurationError(f"{name} is a number of more than 0, not {value!r}")
        self.untracked_revisions = 0
        """Revisions of runs that are no longer remembered; their earlier outcome remains counted."""
        self._max_series = max_series
        self._max_runs = max_runs
        self._width = window / buckets
        self._buckets = buckets
        self._run_length = run_length
        self._tallies: OrderedDict[PassRateSeries, OutcomeTally] = OrderedDict()
        self._size = 0
        self._others = OutcomeTally()
        self._runs: OrderedDict[str, _CountedRun] = OrderedDict()
        self._patterns: dict[tuple[Outcome, ...], tuple[Outcome, ...]] = {}

    def __len__(self) -> int:
        """Returns the number of pass rates."""
        return self._size + len(self._others)

    def add(self, evaluation: Evaluation, now: float) -> list[PassRateChange]:
        """Counts an evaluation at a time in seconds since the epoch; returns the changes that it revealed.

        Only first evaluations are used to detect changes, since an outcome cannot be withdrawn there.
        """
        run_id, revision = evaluation.run.run_id, evaluation.revision
        earlier = self._runs.get(run_id)
        if earlier is None and revision > 1:
            self.untracked_revisions += 1
            return []
        if earlier is not None and earlier.revision > revision:
            return []
        series = _series_of(evaluation)
        tally = self._tally(series)
        outcomes = self._intern_outcomes(_outcomes_of(evaluation))
        if earlier is None:
            bucket = int(now // self._width)
        else:
            bucket = earlier.bucket
            _merge_target(earlier.tally).subtract(earlier.outcomes, bucket)
        self._count(tally, outcomes, bucket)
        self._remember(run_id, _CountedRun(revision, bucket, tally, outcomes))
        found = self._detect_changes(series, tally, outcomes, now) if earlier is None else []
        self._keep_within_limits()
        return found

    def pass_rates(self, now: float) -> Iterator[PassRate]:
        """Yields every pass rate, the most recently updated series last. Counting may continue during the iteration."""
        after = int(now // self._width) - self._buckets
        for series, tally in ((_OTHER_SERIES, self._others), *self._tallies.items()):
            for metric in tuple(tally.metrics):
                if metric in tally.metrics:  # else it was folded meanwhile
                    yield PassRate(metric, series, tally.counts(metric), tally.recent(metric, after))

    def _tally(self, series: PassRateSeries) -> OutcomeTally:
        if series == _OTHER_SERIES:
            return self._others
        tally = self._tallies.get(series)
        if tally is None:
            tally = self._tallies[series] = OutcomeTally()
        else:
            self._tallies.move_to_end(series)
        return tally

    def _count(self, tally: OutcomeTally, outcomes: tuple[Outcome, ...], bucket: int) -> None:
        before = len(tally)
        tally.close_buckets(bucket - self._buckets)
        tally.add(outcomes, bucket)
        if tally is not self._others:
            self._size += len(tally) - before

    def _remember(self, run_id: str, counted: _CountedRun) -> None:
        self._runs[run_id] = counted
        if len(self._runs) > self._max_runs:
            self._runs.popitem(last=False)

    def _intern_outcomes(self, outcomes: tuple[Outcome, ...]) -> tuple[Outcome, ...]:
        """Returns a shared tuple of equal outcomes: most runs have the same outcomes as earlier ones."""
        if len(self._patterns) >= _MAX_PATTERNS:
            self._patterns.clear()
        return self._patterns.setdefault(outcomes, outcomes)

    def _detect_changes(
        self, series: PassRateSeries, tally: OutcomeTally, outcomes: tuple[Outcome, ...], now: float
    ) -> list[PassRateChange]:
        found = []
        for metric, passed, _ in outcomes:
            if passed is None:
                continue
            detector = tally.detectors.get(metric)
            if detector is None:
                detector = tally.detectors[metric] = ChangeDetector(self._run_length)
            if shift := detector.add(passed, now):
                found.append(PassRateChange(metric, series, shift, now))
        return found

    def _keep_within_limits(self) -> None:
        while self._size > self._max_series:
            series, tally = self._tallies.popitem(last=False)
            self._size -= len(tally)
            coarser = self._tally(series.coarser)
            before = len(coarser)
            coarser.merge(tally)
            if coarser is not self._others:
                self._size += len(coarser) - before


def _merge_target(tally: OutcomeTally) -> OutcomeTally:
    """Returns the tally that now holds the counts of a tally."""
    while tally.merged_into is not None:
        tally = tally.merged_into
    return tally


def _series_of(evaluation: Evaluation) -> PassRateSeries:
    run, match = evaluation.run, evaluation.match
    golden, agent, environment = match.golden.id if match else None, run.agent, run.environment
    return PassRateSeries(
        golden and short_label(golden), agent and short_label(agent), run.unit, environment and short_label(environment)
    )


def _outcomes_of(evaluation: Evaluation) -> tuple[Outcome, ...]:
    passed = evaluation.passed
    verdict = (RUN_VERDICT, passed, None if passed is None else float(passed))
    return (verdict, *[(score.metric, score.passed, score.value) for score in evaluation.scores])


_MAX_CHANGES = 100
_READ_BATCH = 50


@dataclass(frozen=True, slots=True)
class PassRateSnapshot:
    """The pass rates and changes at one moment, as plain values."""

    pass_rates: tuple[PassRate, ...]
    changes: tuple[PassRateChange, ...]
    """The latest hundred changes, oldest first."""
    untracked_revisions: int
    """Revisions of runs that are no longer remembered; their earlier outcome remains counted."""
    taken_at: float
    """Seconds since the epoch."""


class PassRateSink:
    """Exports pass rates over time and detects changes, through the global providers by default.

    The gauges cover the window; a series without an evaluated run in it is not reported. Everything is kept in memory
    and starts empty in each process and forked child.

    Args:
        meter_provider: The meter provider of the gauges.
        logger_provider: The logger provider of the change events.
        max_series: The maximum number of pass rates; see `PassRates`.
        max_runs: The number of runs that are remembered by id.
        window: The length of the window in seconds. Default: one day.
        run_length: The minimum average number of runs between two false alarms.
        clock: Returns the time in seconds since the epoch.

    Raises:
        ConfigurationError: If a bound is not positive.
    """

    def __init__(
        self,
        meter_provider: MeterProvider | None = None,
        logger_provider: LoggerProvider | None = None,
        *,
        max_series: int = 2_000,
        max_runs: int = 10_000,
        window: float = 86_400.0,
        run_length: int = AVERAGE_RUN_LENGTH,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._new_pass_rates = partial(
            PassRates, max_series=max_series, max_runs=max_runs, window=window, run_length=run_length
        )
        self.renew()
        self._logger = get_logger("goldspan", __version__, logger_provider=logger_provider)
        self._create_gauges(meter_provider)
        renew_after_fork(self)

    def submit(self, evaluation: Evaluation) -> None:
        """Counts an evaluation, and emits an event for each change that it revealed."""
        with self._lock:
            changes = self._pass_rates.add(evaluation, self._clock())
            self._changes.extend(changes)
        for change in changes:
            self._emit(change, evaluation)

    def snapshot(self) -> PassRateSnapshot:
        """Returns all pass rates and the latest changes.

        Each pass rate is consistent; while runs are being counted, they may be of slightly different moments.
        """
        now = self._clock()
        figures = tuple(self._read(now))
        with self._lock:
            return PassRateSnapshot(figures, tuple(self._changes), self._pass_rates.untracked_revisions, taken_at=now)

    def renew(self) -> None:
        """Discards all counts."""
        self._lock = threading.Lock()
        self._pass_rates = self._new_pass_rates()
        self._changes: deque[PassRateChange] = deque(maxlen=_MAX_CHANGES)

    def _read(self, now: float) -> Iterator[PassRate]:
        """Yields all pass rates in small batches, so that `submit` waits only briefly for the lock."""
        reading = self._pass_rates.pass_rates(now)
        while True:
            with self._lock:
                part = list(islice(reading, _READ_BATCH))
            if not part:
                return
            yield from part

    def _create_gauges(self, meter_provider: MeterProvider | None) -> None:
        meter = get_meter("goldspan", __version__, meter_provider=meter_provider)
        meter.create_observable_gauge(
            semconv.PASS_RATE_GAUGE,
            [self._observer(lambda rate, _: rate)],
            unit="1",
            description="Of the runs judged within the window, the share that passed.",
        )
        meter.create_observable_gauge(
            semconv.PASS_RATE_LOW_GAUGE,
            [self._observer(lambda _, interval: interval[0])],
            unit="1",
            description="The lower end of the 95 % interval of the pass rate.",
        )
        meter.create_observable_gauge(
            semconv.PASS_RATE_HIGH_GAUGE,
            [self._observer(lambda _, interval: interval[1])],
            unit="1",
            description="The upper end of its 95 % interval. Alert where this is low: few runs prove little.",
        )

    def _observer(
        self, read: Callable[[float, tuple[float, float]], float]
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> list[Observation]:
            observations: list[Observation] = []
            with suppress_errors("observe the pass rates"):
                for figure in self._read(self._clock()):
                    rate, interval = figure.recent.pass_rate, figure.recent.pass_rate_interval
                    if rate is not None and interval is not None:
                        observations.append(Observation(read(rate, interval), _labels(figure.metric, figure.series)))
            return observations

        return observe

    def _emit(self, change: PassRateChange, evaluation: Evaluation) -> None:
        shift = change.shift
        fall = shift.direction == "fall"
        self._logger.emit(
            timestamp=int(change.found_at * 1e9),
            context=run_context(evaluation.run),
            event_name=semconv.CHANGE_EVENT,
            severity_number=SeverityNumber.WARN if fall else SeverityNumber.INFO,
            body=f"The pass rate of {change.metric} {'fell' if fall else 'rose'} from {shift.before:.1%} "
            f"({shift.runs_before} runs) to {shift.after:.1%} ({shift.runs_after} runs)",
            attributes={
                **_labels(change.metric, change.series),
                semconv.CHANGE_DIRECTION: shift.direction,
                semconv.CHANGE_BEFORE: shift.before,
                semconv.CHANGE_AFTER: shift.after,
                semconv.CHANGE_RUNS_BEFORE: shift.runs_before,
                semconv.CHANGE_RUNS_AFTER: shift.runs_after,
                semconv.CHANGE_SINCE: shift.since,
            },
        )


def _labels(metric: str, series: PassRateSeries) -> dict[str, str]:
    """Returns the labels of a series without unknown values."""
    labels = {
        semconv.METRIC_LABEL: metric,
        semconv.UNIT_LABEL: series.unit,
        semconv.GOLDEN_ID: series.golden,
        semconv.AGENT_NAME: series.agent,
        semconv.ENVIRONMENT: series.environment,
    }
    return {name: value for name, value in labels.items() if value is not None}
