"""Decides whether a build is worse than its baseline, by paired tests on the same goldens.

Chance alone makes agents fail now and then. A build is worse only if the drop is larger than a tolerance and larger
than chance explains.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from goldspan.errors import ResultsError
from goldspan.testing.results import AgentResults, CaseResult
from goldspan.testing.statistics import Interval, TrialCount, paired_bootstrap

DEFAULT_TOLERANCE = 0.04
"""The drop of a rate or of a mean score that is accepted."""
DEFAULT_SIGNIFICANCE = 0.03
"""The chance at which a build that is as good as its baseline may be called worse: once by verdicts, once by scores.

With 200 goldens, each of which fails by chance in 2 % of the builds, both defaults together give a false alarm by
verdicts in 0.15 % of the builds and find a drop of the pass rate by 10 points in 98 %."""
_MIN_WORSE_GOLDENS = 7
"""The goldens that must have a lower score before a metric counts as worse. With fewer, the bootstrap only repeats the
few values that it has seen: seven lower scores and no higher one have the chance 1/128."""
_RESAMPLES = 4000
"""Enough to resolve a fortieth of a percent: the metrics share the significance."""


@dataclass(frozen=True, slots=True)
class VerdictDifference:
    """The verdicts of both builds on the goldens that they share."""

    baseline_rate: float
    current_rate: float
    worse: int
    """The number of goldens of which a smaller share of trials passes now."""
    better: int
    p_value: float
    """The chance of so few passed trials, or fewer, if the build is as good as the baseline."""
    is_regression: bool = False


@dataclass(frozen=True, slots=True)
class MetricDifference:
    """The scores of one metric in both builds, on the goldens for which both have a value."""

    metric: str
    baseline_mean: float
    current_mean: float
    goldens: int
    interval: Interval | None
    """The interval of the mean difference; `None`: not tested, because the drop is within the tolerance."""
    p_value: float | None
    is_regression: bool = False


class TrialCountChange(NamedTuple):
    """A golden of which the share of passed trials changed."""

    golden_id: str
    baseline: TrialCount
    current: TrialCount


@dataclass(frozen=True, slots=True)
class BaselineComparison:
    """A build beside its baseline."""

    goldens: int
    """The number of goldens that both builds ran, unchanged."""
    changed: tuple[str, ...]
    """The goldens whose expectations changed since the baseline. They are not compared."""
    added: tuple[str, ...]
    removed: tuple[str, ...]
    verdicts: VerdictDifference | None
    """`None`: no shared golden has a verdict in both builds."""
    metrics: tuple[MetricDifference, ...]
    worse: tuple[TrialCountChange, ...]
    better: tuple[TrialCountChange, ...]

    @property
    def is_regression(self) -> bool:
        """Whether the build is worse than the baseline."""
        found = [] if self.verdicts is None else [self.verdicts.is_regression]
        return any([*found, *(metric.is_regression for metric in self.metrics)])


def compare_with_baseline(
    baseline: AgentResults,
    current: AgentResults,
    *,
    tolerance: float = DEFAULT_TOLERANCE,
    significance: float = DEFAULT_SIGNIFICANCE,
) -> BaselineComparison:
    """Compare a build with its baseline, golden by golden.

    The pass rate is compared by an exact test (`worse_p_value`), the scores by a paired bootstrap of the means. The
    metrics share the significance (Holm, "A simple sequentially rejective multiple test procedure", 1979).

    Args:
        baseline: The results of a build that was accepted.
        current: The results of the build to check.
        tolerance: The accepted drop of the pass rate and of each mean score.
        significance: The accepted chance of a false alarm by the verdicts, and by the scores.

    Raises:
        ResultsError: The builds have no golden in common.
    """
    before, after = _cases_by_golden(baseline), _cases_by_golden(current)
    common = [golden_id for golden_id in after if golden_id in before]
    changed = [golden_id for golden_id in common if _is_changed(before[golden_id], after[golden_id])]
    shared = [golden_id for golden_id in common if golden_id not in set(changed)]
    if not shared:
        raise ResultsError(
            "The results and the baseline have no unchanged golden in common; make a new baseline from these results."
        )
    changes = [_trial_count_change(golden_id, before[golden_id], after[golden_id]) for golden_id in shared]
    judged = [change for change in changes if change.baseline.trials and change.current.trials]
    verdicts = _verdict_difference(judged) if judged else None
    metrics = [
        found
        for metric in current.metric_names
        if (found := _metric_difference(metric, [(before[each], after[each]) for each in shared], tolerance))
    ]
    p_values = {each.metric: each.p_value for each in metrics if each.p_value is not None}
    significant = significant_tests(p_values, significance)
    if verdicts is not None:
        dropped = verdicts.baseline_rate - verdicts.current_rate > tolerance
        verdicts = replace(verdicts, is_regression=dropped and verdicts.p_value <= significance)
    return BaselineComparison(
        goldens=len(shared),
        changed=tuple(changed),
        added=tuple(golden_id for golden_id in after if golden_id not in before),
        removed=tuple(golden_id for golden_id in before if golden_id not in after),
        verdicts=verdicts,
        metrics=tuple(replace(each, is_regression=each.metric in significant) for each in metrics),
        worse=tuple(change for change in judged if change.current.rate < change.baseline.rate),
        better=tuple(change for change in judged if change.current.rate > change.baseline.rate),
    )


def _cases_by_golden(results: AgentResults) -> dict[str, list[CaseResult]]:
    found: dict[str, list[CaseResult]] = {}
    for case in results.cases:
        found.setdefault(case.golden_id, []).append(case)
    return found


def _is_changed(before: Sequence[CaseResult], after: Sequence[CaseResult]) -> bool:
    """Whether the golden expects something else now. Files that do not know are taken as unchanged."""
    old, new = before[0].golden_digest, after[0].golden_digest
    return old is not None and new is not None and old != new


# --- verdicts ---------------------------------------------------------------------------------------------------------


def _trial_count_change(golden_id: str, before: Iterable[CaseResult], after: Iterable[CaseResult]) -> TrialCountChange:
    return TrialCountChange(golden_id, _trial_count(before), _trial_count(after))


def _trial_count(cases: Iterable[CaseResult]) -> TrialCount:
    verdicts = [case.passed for case in cases if case.passed is not None]
    return TrialCount(sum(verdicts), len(verdicts))


def _verdict_difference(changes: Sequence[TrialCountChange]) -> VerdictDifference:
    return VerdictDifference(
        baseline_rate=math.fsum(change.baseline.rate for change in changes) / len(changes),
        current_rate=math.fsum(change.current.rate for change in changes) / len(changes),
        worse=sum(change.current.rate < change.baseline.rate for change in changes),
        better=sum(change.current.rate > change.baseline.rate for change in changes),
        p_value=worse_p_value([(change.baseline, change.current) for change in changes]),
    )


def worse_p_value(pairs: Iterable[tuple[TrialCount, TrialCount]]) -> float:
    """Return the chance of as few passed trials as now, or fewer, if no golden got worse.

    If a golden is as good as before, any of its trials in both builds may be those that passed, so the number of passed
    trials of the current build is hypergeometric; the goldens are independent. This is the exact conditional test of
    several two by two tables (Mehta, Patel and Gray, "Computing an exact confidence interval for the common odds ratio
    in several 2 x 2 contingency tables", 1985). With one trial of each golden it is the exact McNemar test.
    """
    observed = 0
    chances = [1.0]  # of each number of passed trials, over the goldens so far
    for before, after in pairs:
        passed, trials = before.passed + after.passed, before.trials + after.trials
        observed += after.passed
        if 0 < passed < trials:
            chances = _sum_of(chances, _hypergeometric(passed, before.trials, after.trials))
        else:
            observed -= after.passed  # nothing about this golden is left to chance
    return min(1.0, math.fsum(chances[: observed + 1]))


def _hypergeometric(passed: int, before: int, after: int) -> list[float]:
    """Return the chance of each number of passed trials among those of the current build, from 0."""
    total = math.comb(before + after, passed)
    return [math.comb(after, now) * math.comb(before, passed - now) / total for now in range(min(passed, after) + 1)]


def _sum_of(first: Sequence[float], second: Sequence[float]) -> list[float]:
    """Return the distribution of the sum of two independent numbers."""
    chances = [0.0] * (len(first) + len(second) - 1)
    for left, chance in enumerate(first):
        for right, factor in enumerate(second):
            chances[left + right] += chance * factor
    return chances


# --- scores -----------------------------------------------------------------------------------------------------------


def _metric_difference(
    metric: str, goldens: Iterable[tuple[Sequence[CaseResult], Sequence[CaseResult]]], tolerance: float
) -> MetricDifference | None:
    pairs = [
        (old, new)
        for before, after in goldens
        if (old := _mean_score(before, metric)) is not None and (new := _mean_score(after, metric)) is not None
    ]
    if not pairs:
        return None
    baseline, current = [old for old, _ in pairs], [new for _, new in pairs]
    means = math.fsum(baseline) / len(pairs), math.fsum(current) / len(pairs)
    is_tested = means[0] - means[1] > tolerance and sum(new < old for old, new in pairs) >= _MIN_WORSE_GOLDENS
    tested = paired_bootstrap(baseline, current, resamples=_RESAMPLES) if is_tested else None
    return MetricDifference(
        metric, *means, len(pairs), tested.interval if tested else None, tested.worse_p if tested else None
    )


def _mean_score(cases: Iterable[CaseResult], metric: str) -> float | None:
    values = [value for case in cases if (value := case.score(metric)) is not None]
    return math.fsum(values) / len(values) if values else None


def significant_tests(p_values: Mapping[str, float], significance: float) -> frozenset[str]:
    """Return the tests that are significant if all of them share the significance, by Holm's method."""
    found = []
    for rank, (name, p_value) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        if p_value > significance / (len(p_values) - rank):
            break
        found.append(name)
    return frozenset(found)
