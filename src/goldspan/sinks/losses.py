"""What was lost, as OpenTelemetry metrics: every counter's description says what to do about it."""

from __future__ import annotations

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter

from goldspan import _guard, semconv
from goldspan._version import __version__


class Losses:
    """Publishes the losses of one processor, and the failures of goldspan in the whole process."""

    def __init__(self, meter_provider: MeterProvider | None = None) -> None:
        meter = get_meter("goldspan", __version__, meter_provider=meter_provider)
        self._late = meter.create_counter(
            semconv.LATE_SPANS_COUNTER,
            unit="{span}",
            description="Spans that ended after their run was scored and are no part of it. "
            "Should be near zero: let the agent's span end after its tools have.",
        )
        self._evicted = meter.create_counter(
            semconv.EVICTED_COUNTER,
            unit="{trace}",
            description="Traces given up unscored because too many spans were in flight. Should be zero: "
            "raise GOLDSPAN_MAX_TRACES or GOLDSPAN_MAX_SPANS, or look for spans that are never ended.",
        )
        meter.create_observable_counter(
            semconv.ERRORS_COUNTER,
            [_failures],
            unit="{failure}",
            description="Failures inside goldspan that the application did not notice. Should be zero: "
            "the log of 'goldspan' has the first of each kind with its traceback; please report it.",
        )

    def add(self, *, late: int = 0, evicted: int = 0) -> None:
        """Count what was lost since the last time."""
        if late:
            self._late.add(late)
        if evicted:
            self._evicted.add(evicted)


def _failures(_: CallbackOptions) -> list[Observation]:
    return [Observation(count, {semconv.ACTION_LABEL: action}) for action, count in dict(_guard.failures).items()]
