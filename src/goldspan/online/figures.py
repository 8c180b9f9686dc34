"""Pass rates over time, by metric, golden, agent, unit and environment. Time is passed in; nothing here locks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from goldspan import semconv
from goldspan.errors import ConfigurationError
from goldspan.model import Evaluation
from goldspan.online.changes import RUN_LENGTH, ChangeDetector, Shift
from goldspan.online.tallies import Counts, Outcome, Tally
from goldspan.sinks.labels import short

VERDICT = "verdict"
"""The name under which the verdict on a whole run is counted, beside the metrics."""

_PATTERNS_KEPT = 1_024


class Series(NamedTuple):
    """Which runs are counted together. Runs of a test are never counted with those of production."""

    golden: str | None
    """`None`: no golden was found."""
    agent: str | None
    unit: str
    environment: str | None

    @property
    def coarser(self) -> Series:
        """The series into which this one is folded where there are too many."""
        other = Series(semconv.OTHER, semconv.OTHER, self.unit, self.environment)
        return other if other != self else _OTHERS


_OTHERS = Series(semconv.OTHER, semconv.OTHER, semconv.OTHER, semconv.OTHER)


@dataclass(frozen=True, slots=True)
class Figure:
    """What is known of one metric in one series."""

    metric: str
    series: Series
    counts: Counts
    """Since the process started."""
    recent: Counts
    """Within the window."""


@dataclass(frozen=True, slots=True)
class Change:
    """A pass rate that has changed, and of what."""

    metric: str
    series: Series
    shift: Shift
    found: float
    """When it was found, in seconds since the epoch, as `shift.since` is."""


class _Counted(NamedTuple):
    """What must be known of a run that was counted, to count it anew."""

    revision: int
    bucket: int
    tally: Tally
    outcomes: tuple[Outcome, ...]


class Figures:
    """Counts evaluations. A later revision of a run takes the place of the earlier one as long as that is remembered.

    `max_series` bounds the number of figures. Beyond it the series that was idle for longest is folded into `other`
    (per unit and environment as long as there are few of those), so that all counts still add up. `window` is the span
    of the recent figures in seconds, cut into `buckets`. `max_runs` is how many runs are remembered by their id.

    Raises `ConfigurationError` for a bound that is not positive.
    """

    def __init__(
        self,
        *,
        max_series: int = 2_000,
        max_runs: int = 10_000,
        window: float = 86_400.0,
        buckets: int = 24,
        run_length: int = RUN_LENGTH,
    ) -> None:
        bounds = {"max_series": max_series, "max_runs": max_runs, "buckets": buckets, "run_length": run_length}
        for name, value in {**bounds, "window": window}.items():
            if not value > 0:
                raise ConfigurationError(f"{name} is a number of more than 0, not {value!r}")
        self.forgotten = 0
        """Revisions of runs that are no longer remembered: the earlier verdict on them stands."""
        self._max_series = max_series
        self._max_runs = max_runs
        self._width = window / buckets
        self._buckets = buckets
        self._run_length = run_length
        self._tallies: OrderedDict[Series, Tally] = OrderedDict()
        self._size = 0
        self._others = Tally()
        self._runs: OrderedDict[str, _Counted] = OrderedDict()
        self._patterns: dict[tuple[Outcome, ...], tuple[Outcome, ...]] = {}

    def __len__(self) -> int:
        """How many figures there are."""
        return self._size + len(self._others)

    def add(self, evaluation: Evaluation, now: float) -> list[Change]:
        """Count an evaluation at that time, in seconds since the epoch; the changes that it brought to light.

        Only first evaluations are looked at for changes: what was said once cannot be taken back there.
        """
        run_id, revision = evaluation.run.run_id, evaluation.revision
        earlier = self._runs.get(run_id)
        if earlier is None and revision > 1:
            self.forgotten += 1
            return []
        if earlier is not None and earlier.revision > revision:
            return []
        series = _series_of(evaluation)
        tally = self._tally(series)
        outcomes = self._shared(_outcomes_of(evaluation))
        if earlier is None:
            bucket = int(now // self._width)
        else:
            bucket = earlier.bucket
            _current(earlier.tally).subtract(earlier.outcomes, bucket)
        self._count(tally, outcomes, bucket)
        self._remember(run_id, _Counted(revision, bucket, tally, outcomes))
        found = self._watch(series, tally, outcomes, now) if earlier is None else []
        self._keep_within_limits()
        return found

    def figures(self, now: float) -> Iterator[Figure]:
        """Every figure, the series that was updated last at the end. More may be counted while it is read."""
        after = int(now // self._width) - self._buckets
        for series, tally in ((_OTHERS, self._others), *self._tallies.items()):
            for metric in tuple(tally.metrics):
                if metric in tally.metrics:  # else it was folded meanwhile
                    yield Figure(metric, series, tally.counts(metric), tally.recent(metric, after))

    def _tally(self, series: Series) -> Tally:
        if series == _OTHERS:
            return self._others
        tally = self._tallies.get(series)
        if tally is None:
            tally = self._tallies[series] = Tally()
        else:
            self._tallies.move_to_end(series)
        return tally

    def _count(self, tally: Tally, outcomes: tuple[Outcome, ...], bucket: int) -> None:
        before = len(tally)
        tally.close(bucket - self._buckets)
        tally.add(outcomes, bucket)
        if tally is not self._others:
            self._size += len(tally) - before

    def _remember(self, run_id: str, counted: _Counted) -> None:
        self._runs[run_id] = counted
        if len(self._runs) > self._max_runs:
            self._runs.popitem(last=False)

    def _shared(self, outcomes: tuple[Outcome, ...]) -> tuple[Outcome, ...]:
        """The same outcomes, kept once: most runs come out like many before them."""
        if len(self._patterns) >= _PATTERNS_KEPT:
            self._patterns.clear()
        return self._patterns.setdefault(outcomes, outcomes)

    def _watch(self, series: Series, tally: Tally, outcomes: tuple[Outcome, ...], now: float) -> list[Change]:
        found = []
        for metric, passed, _ in outcomes:
            if passed is None:
                continue
            detector = tally.detectors.get(metric)
            if detector is None:
                detector = tally.detectors[metric] = ChangeDetector(self._run_length)
            if shift := detector.add(passed, now):
                found.append(Change(metric, series, shift, now))
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


def _current(tally: Tally) -> Tally:
    """Where the counts of a tally are now."""
    while tally.merged_into is not None:
        tally = tally.merged_into
    return tally


def _series_of(evaluation: Evaluation) -> Series:
    run, match = evaluation.run, evaluation.match
    golden, agent, environment = match.golden.id if match else None, run.agent, run.environment
    return Series(golden and short(golden), agent and short(agent), run.unit, environment and short(environment))


def _outcomes_of(evaluation: Evaluation) -> tuple[Outcome, ...]:
    passed = evaluation.passed
    verdict = (VERDICT, passed, None if passed is None else float(passed))
    return (verdict, *[(score.metric, score.passed, score.value) for score in evaluation.scores])
