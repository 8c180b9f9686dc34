"""Figures over time as OpenTelemetry gauges, and an event for every change of a pass rate."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice

from opentelemetry._logs import LoggerProvider, SeverityNumber, get_logger
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter

from goldspan import semconv
from goldspan._guard import guard
from goldspan._version import __version__
from goldspan.model import Evaluation
from goldspan.online.changes import RUN_LENGTH
from goldspan.online.figures import Change, Figure, Figures, Series
from goldspan.sinks.correlation import context_of
from goldspan.sinks.forking import renew_in_forked_children

_CHANGES_KEPT = 100
_READ_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a page or a report shows: plain values of one moment."""

    figures: tuple[Figure, ...]
    changes: tuple[Change, ...]
    """The latest hundred, oldest first."""
    forgotten: int
    """Revisions that came so late that their run was no longer remembered; the earlier verdict is counted."""
    taken: float
    """Seconds since the epoch."""


class FigureSink:
    """Keeps pass rates over time and tells when one has changed, through the global providers by default.

    The gauges are about the window (`window` seconds, a day by default): a series in which nothing was judged within it
    is not reported. Everything is kept in memory and begins anew with the process, and in every forked child. The
    bounds are those of `Figures`; `run_length` is how many runs pass on average between two false alarms, at least.

    Raises `ConfigurationError` for a bound that is not positive.
    """

    def __init__(
        self,
        meter_provider: MeterProvider | None = None,
        logger_provider: LoggerProvider | None = None,
        *,
        max_series: int = 2_000,
        max_runs: int = 10_000,
        window: float = 86_400.0,
        run_length: int = RUN_LENGTH,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._make = partial(Figures, max_series=max_series, max_runs=max_runs, window=window, run_length=run_length)
        self.renew()
        self._logger = get_logger("goldspan", __version__, logger_provider=logger_provider)
        self._publish(meter_provider)
        renew_in_forked_children(self)

    def submit(self, evaluation: Evaluation) -> None:
        """Count an evaluation, and emit an event for every change that it brought to light."""
        with self._lock:
            changes = self._figures.add(evaluation, self._clock())
            self._changes.extend(changes)
        for change in changes:
            self._emit(change, evaluation)

    def snapshot(self) -> Snapshot:
        """All figures and the latest changes.

        Each figure is of one moment; where runs are counted meanwhile, they are not all of the same one.
        """
        now = self._clock()
        figures = tuple(self._read(now))
        with self._lock:
            return Snapshot(figures, tuple(self._changes), self._figures.forgotten, taken=now)

    def renew(self) -> None:
        """Forget everything."""
        self._lock = threading.Lock()
        self._figures = self._make()
        self._changes: deque[Change] = deque(maxlen=_CHANGES_KEPT)

    def _read(self, now: float) -> Iterator[Figure]:
        """All figures, a few at a time: whoever submits waits for a few only."""
        reading = self._figures.figures(now)
        while True:
            with self._lock:
                part = list(islice(reading, _READ_AT_ONCE))
            if not part:
                return
            yield from part

    def _publish(self, meter_provider: MeterProvider | None) -> None:
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
            with guard("observe the pass rates"):
                for figure in self._read(self._clock()):
                    rate, interval = figure.recent.pass_rate, figure.recent.interval
                    if rate is not None and interval is not None:
                        observations.append(Observation(read(rate, interval), _labels(figure.metric, figure.series)))
            return observations

        return observe

    def _emit(self, change: Change, evaluation: Evaluation) -> None:
        shift = change.shift
        fall = shift.direction == "fall"
        self._logger.emit(
            timestamp=int(change.found * 1e9),
            context=context_of(evaluation.run),
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


def _labels(metric: str, series: Series) -> dict[str, str]:
    """The labels of a series; what is not known is left out."""
    labels = {
        semconv.METRIC_LABEL: metric,
        semconv.UNIT_LABEL: series.unit,
        semconv.GOLDEN_ID: series.golden,
        semconv.AGENT_NAME: series.agent,
        semconv.ENVIRONMENT: series.environment,
    }
    return {name: value for name, value in labels.items() if value is not None}
