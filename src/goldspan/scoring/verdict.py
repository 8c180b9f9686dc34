"""Determines the verdict: a run fails if it breaks a requirement of its golden.

The run is not evaluated if nothing is broken and a requirement cannot be evaluated; else it passes. A threshold below 1
accepts that share of a requirement. Metrics do not influence the verdict in any other way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from goldspan.model import (
    ABSENT,
    Comparison,
    ComparisonRow,
    ExpectedTool,
    Golden,
    RequirementResult,
    Score,
    UnknownPolicy,
)
from goldspan.scoring.metrics import METRICS, behaviour, call_correctness
from goldspan.scoring.metrics.metric import THRESHOLD_TOLERANCE, Metric
from goldspan.scoring.run_comparison import (
    MissingArgumentsAssumption,
    assuming_suspected_failures,
    compare_run,
    suspected_failure_statements,
)
from goldspan.scoring.violations import (
    CALLS_NOT_VISIBLE,
    find_unknowns,
    find_violations,
    tool_with_unknown_repeats,
    unknown_repeats_statement,
)

_METRICS_BY_STATEMENT: Mapping[str, tuple[str, ...]] = {
    "missing": ("tool_correctness", "tool_recall", "tool_f1"),
    "order": ("tool_correctness", "tool_order"),
    "unexpected": ("tool_correctness", "tool_precision", "tool_f1"),
    "times": ("tool_correctness", "tool_precision", "tool_f1"),
    "arguments": ("argument_correctness",),
    "result": ("result_correctness",),
    "forbidden": ("forbidden_tools",),
    "max_calls": ("call_budget",),
}
"""The metrics that measure each kind of requirement. Their thresholds set the share of it that is accepted."""

_USES_GOLDEN_THRESHOLD = frozenset({"tool_correctness", "argument_correctness", "result_correctness"})
"""The metrics that use the golden's `threshold` unless `thresholds` names them. A value below 1 always means that a
call, an argument or a result breaks a requirement."""


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """The requirements of a golden that are broken or undetermined, and the shares that are accepted."""

    broken: tuple[RequirementResult, ...] = ()
    undetermined: tuple[RequirementResult, ...] = ()
    accepted: tuple[str, ...] = ()
    """The shares below 1 that a threshold accepts: `0.8 of 0.8 wanted`."""


ALL_MET = RunVerdict()
"""The verdict if each row is an expected call that meets all requirements, as in most runs."""


def passes(
    broken: Sequence[RequirementResult], undetermined: Sequence[RequirementResult], unknown: UnknownPolicy
) -> bool | None:
    """Whether a run passes; `None`: it is not evaluated."""
    if broken:
        return False
    if not undetermined:
        return True
    if unknown == "ignore" and not any(each.about == ABOUT_CALLS for each in undetermined):
        return True
    return False if unknown == "fail" else None


ABOUT_CALLS = "calls"
"""`RequirementResult.about` if no call of the run could have been captured, so that nothing can be evaluated."""


def determine_verdict(
    comparison: Comparison, scores: Iterable[Score], stated: Mapping[str, float], *, strict: bool
) -> RunVerdict | None:
    """Returns the verdict on a comparison; `None`: the golden has no requirements.

    `stated` are the thresholds of single metrics; `strict` accepts no share below 1.
    """
    golden = comparison.golden
    if golden is None:
        return None
    if comparison.run.health.calls_invisible:
        certain = [each for each in find_violations(comparison, golden) if each.about != "missing"]
        return RunVerdict(tuple(certain), (RequirementResult(ABOUT_CALLS, CALLS_NOT_VISIBLE),))
    below = [
        score
        for score in scores
        if score.threshold is not None
        and score.passed is not True
        and (score.value is not None or _requires_value(score, comparison, stated))
    ]
    if not below and not stated and golden.max_calls is None and all(map(_is_fully_met, comparison.rows)):
        return None if golden.policy and not golden.forbid else ALL_MET
    if golden.policy and not (golden.forbid or golden.max_calls is not None or stated or below):
        return None
    limits = {} if strict else _partial_thresholds(golden, stated)
    broken, accepted = _find_unaccepted_violations(comparison, golden, limits)
    repeats = _unknown_repeats(comparison, golden, limits)
    decisive = [*([] if repeats is None else [repeats]), *_unknown_failures(comparison, golden, limits)]
    if decisive:
        broken = []
    undetermined = [each for each in find_unknowns(comparison, golden) if not _accepts_anything(each.about, limits)]
    undetermined += decisive
    undetermined += [_undecided_statement(score) for score in below if score.passed is None]
    unmeasured = _unmeasured_thresholds(golden, stated, scores, strict=strict)
    undetermined += _undecided_unmeasured_thresholds(unmeasured, comparison)
    broken += _missed_thresholds([score for score in below if score.passed is False], unmeasured, broken, comparison)
    return RunVerdict(tuple(broken), tuple(undetermined), tuple(accepted))


def _find_unaccepted_violations(
    comparison: Comparison, golden: Golden, limits: Mapping[str, float]
) -> tuple[list[RequirementResult], Iterable[str]]:
    """Returns the requirements that are broken, and the shares that thresholds accept of the others."""
    if not limits:
        return list(find_violations(comparison, golden)), ()
    broken: list[RequirementResult] = []
    accepted: dict[str, None] = {}
    for each in find_violations(comparison, golden):
        shares = _accepted_shares(each.about, comparison, limits)
        if shares is None:
            broken.append(each)
        else:
            accepted.update(dict.fromkeys(shares))
    return broken, accepted


def _unknown_repeats(comparison: Comparison, golden: Golden, limits: Mapping[str, float]) -> RequirementResult | None:
    """Returns the result for calls without captured arguments that may be repeats, if the verdict depends on them."""
    tool = tool_with_unknown_repeats(comparison, golden)
    if tool is None:
        return None
    readings = [compare_run(comparison.run, golden, each) for each in (_ASSUME_RETRIES, _ASSUME_REPEATS)]
    return unknown_repeats_statement(tool) if _is_outcome_open([comparison, *readings], golden, limits) else None


def _unknown_failures(
    comparison: Comparison, golden: Golden, limits: Mapping[str, float]
) -> Iterable[RequirementResult]:
    """Returns the results for calls that may have failed, if the verdict depends on them."""
    failed = None if golden.policy else assuming_suspected_failures(comparison)
    return (
        suspected_failure_statements(comparison)
        if failed is not None and _is_outcome_open([comparison, failed], golden, limits)
        else ()
    )


def _is_outcome_open(readings: Iterable[Comparison], golden: Golden, limits: Mapping[str, float]) -> bool:
    """Whether a run may pass or fail, given its comparisons under several assumptions.

    It certainly passes if none breaks a requirement, and certainly fails if all break one of the same kind. If one has
    too few calls and another has too many, a number of calls between them may be right.
    """
    broken = [{each.about for each in _find_unaccepted_violations(one, golden, limits)[0]} for one in readings]
    return any(broken) and not set.intersection(*broken)


_ASSUME_RETRIES, _ASSUME_REPEATS = (
    MissingArgumentsAssumption(are_retries=True, are_repeats=False),
    MissingArgumentsAssumption(are_retries=False, are_repeats=True),
)
"""The two assumptions about calls without captured arguments: a later call of the tool is a retry of a failed one, and
no repeat of a successful one; and the reverse."""


def _is_fully_met(row: ComparisonRow) -> bool:
    """Whether a row is an expected call without a broken or unknown requirement."""
    expected, called = row.expected, row.called
    return (
        row.verdict == "paired"
        and row.in_order is True
        and isinstance(expected, ExpectedTool)
        and called is not None
        and called.error is None
        and called.error_guess is None
        and (expected.agent is None or called.agent is not None)
        and ((expected.server is None and "mcp__" not in expected.name) or called.server is not None)
        and (expected.arguments is None or (row.agreement is not None and not row.agreement.differences))
        and (expected.result is ABSENT or (row.result_agreement is not None and not row.result_agreement.differences))
    )


def relaxes_tool_correctness(golden: Golden, stated: Mapping[str, float]) -> bool:
    """Whether the threshold of another metric accepts a share of what `tool_correctness` measures."""
    names = ("tool_recall", "tool_f1", "tool_order")
    is_default = golden.threshold == 1 and "tool_correctness" not in stated
    return is_default and any(stated.get(name, 1) < 1 for name in names)


# --- thresholds -------------------------------------------------------------------------------------------------------


def _partial_thresholds(golden: Golden, stated: Mapping[str, float]) -> Mapping[str, float]:
    """Returns the thresholds below 1."""
    if golden.threshold >= 1 and not stated:
        return {}
    limits = dict.fromkeys(_USES_GOLDEN_THRESHOLD, golden.threshold) | dict(stated)
    return {name: limit for name, limit in limits.items() if limit < 1}


def _accepted_shares(about: str, comparison: Comparison, limits: Mapping[str, float]) -> list[str] | None:
    """Returns the shares of a requirement that thresholds accept; `None`: it must be met completely."""
    shares = [
        (name, _measured_share(name, about, comparison), limits[name])
        for name in _METRICS_BY_STATEMENT[about]
        if name in limits
    ]
    known = [(name, share, limit) for name, share, limit in shares if share is not None]
    if not known or any(share < limit - THRESHOLD_TOLERANCE for _, share, limit in known):
        return None
    return [_share_text(*each) for each in known]


def _measured_share(name: str, about: str, comparison: Comparison) -> float | None:
    """Returns the number that is compared with a threshold."""
    golden = comparison.golden
    if name == "tool_correctness" and golden is not None and (comparison.pairs or comparison.missing):
        # If the golden's mode does not measure this kind of requirement, use the number of a mode that does.
        if about in ("missing", "order") and golden.mode in ("precision", "set"):
            return call_correctness.met_share(comparison)
        if about in ("unexpected", "times") and golden.mode in ("recall", "set") and golden.order != "exact":
            return call_correctness.tool_precision(comparison)
    return METRICS[name].measure(comparison)


def _accepts_anything(about: str, limits: Mapping[str, float]) -> bool:
    return any(limits.get(name) == 0 for name in _METRICS_BY_STATEMENT.get(about, ()))


def _unmeasured_thresholds(
    golden: Golden, stated: Mapping[str, float], scores: Iterable[Score], *, strict: bool
) -> Mapping[str, float]:
    """Returns the thresholds of metrics without a score: a threshold counts even if its metric was not measured."""
    limits = dict(stated)
    if behaviour.effect_threshold(golden) is not None:
        limits.setdefault(_EFFECT_METRIC, 1.0)
    if not limits:
        return limits
    measured = {score.metric for score in scores}
    return {name: 1.0 if strict else limit for name, limit in limits.items() if name in METRICS.keys() - measured}


def _missed_thresholds(
    below: Sequence[Score], unmeasured: Mapping[str, float], broken: Iterable[RequirementResult], comparison: Comparison
) -> list[RequirementResult]:
    """Returns the thresholds that are missed, except those that repeat a broken requirement."""
    if not below and not unmeasured:
        return []
    reported = {name for each in broken for name in _METRICS_BY_STATEMENT.get(each.about, ())}
    found = [(score.metric, score.value or 0.0, score.threshold or 0.0) for score in below]
    known = {name: limit for name, limit in unmeasured.items() if not METRICS[name].is_undecided(comparison, limit)}
    values = [(name, METRICS[name].measure(comparison), limit) for name, limit in known.items()]
    found += [
        (name, value, limit)
        for name, value, limit in values
        if value is not None and value < limit - THRESHOLD_TOLERANCE
    ]
    return [
        RequirementResult(name, _share_text(name, value, limit, missed=True))
        for name, value, limit in found
        if (limit < 1 or (name not in reported and name not in _USES_GOLDEN_THRESHOLD))
        and not (name == _EFFECT_METRIC and behaviour.declared_effect_share(comparison) in (None, 1.0))
    ]


_EFFECT_METRIC = "effect_correctness"
"""A metric that also uses effects from telemetry. The verdict uses only those that the golden or its file declares."""


def _requires_value(score: Score, comparison: Comparison, stated: Mapping[str, float]) -> bool:
    """Whether a score without a value leaves its threshold undetermined, because a value was not captured."""
    if score.metric not in METRICS:
        return True
    is_stated = score.metric in stated or score.metric == _EFFECT_METRIC
    return is_stated and _is_value_unknown(METRICS[score.metric], comparison, score.threshold or 0.0)


def _is_value_unknown(metric: Metric, comparison: Comparison, limit: float) -> bool:
    """Whether a metric has no value because something was not captured that decides if it reaches its threshold."""
    if metric.name == _EFFECT_METRIC:
        return behaviour.declared_effect_share(comparison) is None
    return metric.has_unknowns(comparison) and (metric.bounds is None or metric.is_undecided(comparison, limit))


def _undecided_unmeasured_thresholds(
    unmeasured: Mapping[str, float], comparison: Comparison
) -> Iterator[RequirementResult]:
    """Yield the undecided thresholds among those of metrics without a score."""
    for name, limit in unmeasured.items():
        metric = METRICS[name]
        value = metric.measure(comparison)
        if metric.is_undecided(comparison, limit) or (value is None and _is_value_unknown(metric, comparison, limit)):
            yield _undecided_statement(Score(name, value, threshold=limit, reason=metric.why_missing(comparison)))


def _undecided_statement(score: Score) -> RequirementResult:
    """Returns the result for a score of which it is not known whether it reaches its threshold."""
    why = score.error or score.reason or "no number"
    if score.value is None:
        return RequirementResult(score.metric, f"{score.metric} could not be measured: {why}")
    return RequirementResult(score.metric, f"{score.metric} may be below {score.threshold:g}: {why}")


def _share_text(name: str, value: float, limit: float, *, missed: bool = False) -> str:
    """Returns `0.8 of 0.8 wanted`, preceded by the metric's name unless it is an accepted `tool_correctness`."""
    text = f"{value:.4g} of {limit:g} wanted"
    return text if name == "tool_correctness" and not missed else f"{name} {text}"
