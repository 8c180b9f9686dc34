"""Counters of dropped spans, runs and evaluations; each description says what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from opentelemetry.metrics import CallbackOptions, Counter, MeterProvider, Observation, get_meter

from goldspan import _guard, semconv
from goldspan._version import __version__


class DropCounterSpec(NamedTuple):
    """One counter of dropped data."""

    name: str
    unit: str
    description: str
    """The meaning, followed by what to do about it."""


DROP_COUNTERS = (
    DropCounterSpec(
        semconv.LATE_SPANS_COUNTER,
        "{span}",
        "Spans that ended after their run was scored; where the run is still remembered it is scored again with them. "
        "Should be near zero: let the agent's span end after its tools have.",
    ),
    DropCounterSpec(
        semconv.TOO_LATE_SPANS_COUNTER,
        "{span}",
        "Spans that ended when their run was no longer remembered, or whose start nobody saw; they change no score. "
        "Should be zero: raise GOLDSPAN_LATE above the time by which they are late, or end the agent's span later.",
    ),
    DropCounterSpec(
        semconv.DUPLICATE_SPANS_COUNTER,
        "{span}",
        "Spans that came a second time and were ignored. "
        "Should be zero: look for a processor that is added twice, or an exporter that sends again what had arrived.",
    ),
    DropCounterSpec(
        semconv.UNSCORED_SPANS_COUNTER,
        "{span}",
        "Spans of traces of which not all could be taken in: the queue before the scoring was full, or a trace had "
        "more spans than `max_spans_per_trace`. They were exported all the same. Should be zero: lower the rate of "
        "runs that are scored, measure fewer metrics, or raise that limit.",
    ),
    DropCounterSpec(
        semconv.EVICTED_COUNTER,
        "{trace}",
        "Traces scored as they were because too much was in flight, and let go. Should be zero: "
        "raise GOLDSPAN_MAX_TRACES or GOLDSPAN_MAX_SPANS, or look for spans that are never ended.",
    ),
    DropCounterSpec(
        semconv.UNENDED_RUNS_COUNTER,
        "{run}",
        "Runs scored with what was there because nothing of them had ended for too long, or they took too long in all. "
        "Should be near zero: look for spans that are never ended, or raise the deadlines above your longest request.",
    ),
    DropCounterSpec(
        semconv.SAMPLED_OUT_COUNTER,
        "{run}",
        "Runs that the sampling rules left unscored. "
        "As it was asked for: raise the rate, or change the rules, to score more of them.",
    ),
    DropCounterSpec(
        semconv.OVER_BUDGET_COUNTER,
        "{evaluation}",
        "Evaluations that took longer than their time budget, and lack the metrics for which none was left. "
        "Should be near zero: raise the budget, or leave out the slow metrics.",
    ),
    DropCounterSpec(
        semconv.INVISIBLE_RUNS_COUNTER,
        "{run}",
        "Runs without a tool call in whose telemetry none would show: whether they called tools is not known. "
        "Should be zero: let the instrumentation record what models say (the log of 'goldspan' names its switch), or "
        "put @goldspan.trace on the functions of the tools.",
    ),
    DropCounterSpec(
        semconv.RELOAD_FAILURES_COUNTER,
        "{failure}",
        "Changed golden files that could not be read; the goldens from before stay in force. Should be zero: "
        "run `goldspan goldens check` on the files, the log of 'goldspan' says what is wrong with them.",
    ),
    DropCounterSpec(
        semconv.SINK_DROPPED_COUNTER,
        "{evaluation}",
        "Evaluations that a sink never got because its queue was full, or because it had been shut down. "
        "Should be zero: look why the sink is slow, take evaluations in batches (submit_many), or raise max_queue.",
    ),
    DropCounterSpec(
        semconv.JUDGE_DROPPED_COUNTER,
        "{run}",
        "Runs that were to be judged by a model and are not, because too many waited or the process ended. "
        "Should be near zero: lower GOLDSPAN_JUDGE_SAMPLE, or raise GOLDSPAN_JUDGE_CONCURRENCY.",
    ),
    DropCounterSpec(
        semconv.JUDGE_FAILED_COUNTER,
        "{run}",
        "Runs that the judge's model failed to judge, whatever was tried; their other scores stand. "
        "Should be near zero: look at `error.type`, and at the errors of the scores, which say more.",
    ),
    DropCounterSpec(
        semconv.JUDGE_OVER_BUDGET_COUNTER,
        "{run}",
        "Runs that no model was asked about because the judge's budget of the last 24 hours was spent. "
        "As it was asked for: raise the budget, or lower GOLDSPAN_JUDGE_SAMPLE so that it lasts.",
    ),
    DropCounterSpec(
        semconv.JUDGE_OUTDATED_COUNTER,
        "{run}",
        "Verdicts of a model that were thrown away because the run had changed or was deleted meanwhile. "
        "Should be near zero: let the agent's span end after its tools have, or raise the grace period.",
    ),
)
"""All counters of dropped data."""

_SPEC_BY_NAME = {loss.name: loss for loss in DROP_COUNTERS}


class DropCounters:
    """Publishes the counters of dropped data, and the internal failures of the process."""

    def __init__(self, meter_provider: MeterProvider | None = None) -> None:
        meter = get_meter("goldspan", __version__, meter_provider=meter_provider)
        self._counters: dict[str, Counter] = {
            loss.name: meter.create_counter(loss.name, unit=loss.unit, description=loss.description)
            for loss in DROP_COUNTERS
        }
        meter.create_observable_counter(
            semconv.ERRORS_COUNTER,
            [_observe_failures],
            unit="{failure}",
            description="Failures inside goldspan that the application did not notice. Should be zero: "
            "the log of 'goldspan' has the first of each kind with its traceback; please report it.",
        )

    def add(self, name: str, count: int = 1, labels: Mapping[str, str] | None = None) -> None:
        """Adds to the counter of that name; adds nothing for 0."""
        counter = self._counters[name]
        if count:
            counter.add(count, labels)


def drop_counter(name: str, meter_provider: MeterProvider | None = None) -> Counter:
    """Returns one of the counters, for a component that drops only one kind of data."""
    loss = _SPEC_BY_NAME[name]
    meter = get_meter("goldspan", __version__, meter_provider=meter_provider)
    return meter.create_counter(loss.name, unit=loss.unit, description=loss.description)


def _observe_failures(_: CallbackOptions) -> list[Observation]:
    return [Observation(count, {semconv.ACTION_LABEL: action}) for action, count in dict(_guard.failure_counts).items()]
