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
        "Spans that ended after their run was scored. If the run is still in memory, it is scored again with them. "
        "Should be near zero: end the agent's span after its tools.",
    ),
    DropCounterSpec(
        semconv.TOO_LATE_SPANS_COUNTER,
        "{span}",
        "Spans that ended when their run was no longer in memory, or whose start was not received. They change "
        "no score. Should be zero: raise GOLDSPAN_LATE above the delay of the spans, or end the agent's span later.",
    ),
    DropCounterSpec(
        semconv.DUPLICATE_SPANS_COUNTER,
        "{span}",
        "Spans that were received a second time and ignored. "
        "Should be zero: check for a processor that is added twice, or an exporter that repeats successful exports.",
    ),
    DropCounterSpec(
        semconv.UNSCORED_SPANS_COUNTER,
        "{span}",
        "Spans of traces that are not scored, because the scoring queue was full or a trace had more spans "
        "than `max_spans_per_trace`. The spans are exported. Should be zero: lower the sampling rate, compute fewer "
        "metrics, or raise that limit.",
    ),
    DropCounterSpec(
        semconv.EVICTED_COUNTER,
        "{trace}",
        "Traces that were scored early and removed from memory, because too many were in flight. Should be zero: "
        "raise GOLDSPAN_MAX_TRACES or GOLDSPAN_MAX_SPANS, or check for spans that never end.",
    ),
    DropCounterSpec(
        semconv.UNENDED_RUNS_COUNTER,
        "{run}",
        "Runs that were scored incomplete, because none of their spans had ended for too long or the run took too "
        "long. Should be near zero: check for spans that never end, or raise the deadlines above your longest request.",
    ),
    DropCounterSpec(
        semconv.SAMPLED_OUT_COUNTER,
        "{run}",
        "Runs that the sampling rules left unscored. "
        "This is intended: raise the rate, or change the rules, to score more runs.",
    ),
    DropCounterSpec(
        semconv.OVER_BUDGET_COUNTER,
        "{evaluation}",
        "Evaluations that exceeded their time budget and therefore lack metrics. "
        "Should be near zero: raise the budget, or remove slow metrics.",
    ),
    DropCounterSpec(
        semconv.INVISIBLE_RUNS_COUNTER,
        "{run}",
        "Runs without a tool call whose telemetry would not show one: it is unknown whether they called tools. "
        "Should be zero: configure the instrumentation to record messages (the log of 'goldspan' names the setting), "
        "or put @goldspan.trace on the functions of the tools.",
    ),
    DropCounterSpec(
        semconv.RELOAD_FAILURES_COUNTER,
        "{failure}",
        "Changed golden files that could not be read; the previous goldens stay in effect. Should be zero: "
        "run `goldspan goldens check` on the files; the log of 'goldspan' contains the error.",
    ),
    DropCounterSpec(
        semconv.SINK_DROPPED_COUNTER,
        "{evaluation}",
        "Evaluations that a sink did not receive, because its queue was full or it was shut down; a product may also "
        "have refused them, or not have received their trace. Should be zero: check why the sink is slow, accept "
        "evaluations in batches (submit_many), or raise max_queue. For a product, see its replies in the log of "
        "'goldspan', and export the spans to the same product.",
    ),
    DropCounterSpec(
        semconv.JUDGE_DROPPED_COUNTER,
        "{run}",
        "Runs that were selected for the judge and not judged, because its queue was full or the process ended. "
        "Should be near zero: lower GOLDSPAN_JUDGE_SAMPLE, or raise GOLDSPAN_JUDGE_CONCURRENCY.",
    ),
    DropCounterSpec(
        semconv.JUDGE_FAILED_COUNTER,
        "{run}",
        "Runs that the judge's model failed to judge after all retries; their other scores are unchanged. "
        "Should be near zero: see `error.type`, and the errors of the scores for details.",
    ),
    DropCounterSpec(
        semconv.JUDGE_OVER_BUDGET_COUNTER,
        "{run}",
        "Runs that were not judged because the judge's budget of the last 24 hours was spent. "
        "This is intended: raise the budget, or lower GOLDSPAN_JUDGE_SAMPLE.",
    ),
    DropCounterSpec(
        semconv.JUDGE_OUTDATED_COUNTER,
        "{run}",
        "Verdicts of the judge that were dropped because the run had changed or was deleted in the meantime. "
        "Should be near zero: end the agent's span after its tools, or raise the grace period.",
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
            description="Failures inside goldspan that were hidden from the application. Should be zero: "
            "the log of 'goldspan' contains the first of each kind with its traceback; please report it.",
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
