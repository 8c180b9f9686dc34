"""Every metric with its gate, and why it may say nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from goldspan.model import Comparison, Golden
from goldspan.scoring.metrics import conduct, effects, tools, values
from goldspan.scoring.metrics.metric import Metric


def correctness(*, idle: float | None = 1.0, uncalled_for: float | None = 0.0) -> Metric:
    """`tool_correctness` that says something else where nothing is expected.

    `idle` is its value where nothing was called, `uncalled_for` where something was; `None` makes no score of it.
    """

    def measure(seen: Comparison) -> float | None:
        if seen.pairs or seen.missing:
            return tools.tool_correctness(seen)
        return uncalled_for if seen.unexpected or seen.forbidden else idle

    return replace(METRICS["tool_correctness"], measure=measure, unknown=_saying("nothing was expected"))


def _saying(why: str) -> Callable[[Comparison], str]:
    return lambda seen: why


def _golden_threshold(golden: Golden) -> float:
    return golden.threshold


def _nothing(seen: Comparison) -> bool:
    """That a metric has no value because there is nothing to measure."""
    return False


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            "tool_correctness",
            tools.tool_correctness,
            threshold=_golden_threshold,
            account=tools.account_of_correctness,
            needs_expectations=True,
        ),
        Metric(
            "tool_recall",
            tools.tool_recall,
            lacks=_nothing,
            unknown=_saying("no tool was expected"),
            account=tools.account_of_recall,
            needs_expectations=True,
        ),
        Metric(
            "tool_precision",
            tools.tool_precision,
            lacks=_nothing,
            unknown=_saying("no tool was called"),
            account=tools.account_of_precision,
            needs_expectations=True,
        ),
        Metric(
            "tool_f1",
            tools.tool_f1,
            lacks=_nothing,
            unknown=_saying("no tool was expected and none was called"),
            account=tools.account_of_f1,
            needs_expectations=True,
        ),
        Metric(
            "tool_order",
            tools.tool_order,
            lacks=_nothing,
            unknown=_saying("no expected tool was called"),
            account=tools.account_of_order,
            needs_expectations=True,
        ),
        Metric(
            "argument_correctness",
            values.argument_correctness,
            threshold=_golden_threshold,
            unknown=values.why_no_arguments,
            lacks=_nothing,  # what was not captured is known of each call by itself
            account=values.account_of_arguments,
            needs_expectations=True,
        ),
        Metric(
            "result_correctness",
            values.result_correctness,
            threshold=_golden_threshold,
            unknown=values.why_no_results,
            lacks=_nothing,
            account=values.account_of_results,
            needs_expectations=True,
        ),
        Metric(
            "effect_correctness",
            effects.effect_correctness,
            threshold=effects.threshold_of,
            unknown=effects.why_no_share,
            account=effects.account_of_effects,
            needs_expectations=True,
        ),
        Metric(
            "tool_success",
            conduct.tool_success,
            lacks=conduct.has_calls,
            bounds=conduct.bounds_of_success,
            needs_golden=False,
            unknown=conduct.why_no_success,
            account=conduct.account_of_success,
        ),
        Metric(
            "redundant_calls",
            conduct.redundant_calls,
            lacks=conduct.has_calls,
            needs_golden=False,
            unknown=conduct.why_no_repeats,
            account=conduct.account_of_repeats,
        ),
        Metric(
            "unknown_tools",
            conduct.unknown_tools,
            lacks=conduct.has_calls,
            needs_golden=False,
            unknown=conduct.why_unknown_is_unknown,
            account=conduct.account_of_unknown,
        ),
        Metric(
            "forbidden_tools",
            conduct.forbidden_tools,
            lacks=_nothing,
            threshold=1.0,
            unknown=_saying("the golden forbids nothing"),
            account=conduct.account_of_forbidden,
        ),
        Metric(
            "call_budget",
            conduct.call_budget,
            lacks=_nothing,
            threshold=1.0,
            unknown=_saying("the golden limits no calls"),
            account=conduct.account_of_budget,
        ),
    )
}
"""Every metric of goldspan by its name."""

DEFAULT_METRICS: tuple[str, ...] = tuple(METRICS)
"""What is measured where nothing else is asked for."""

ASKED_METRICS: Mapping[str, Metric] = {
    "tool_selection": Metric(
        "tool_selection", lambda _: None, needs_golden=False, unknown=_saying("no judge was asked about it")
    )
}
"""Metrics that a model is asked for, so that their number comes later, and only where a judge is set up."""
