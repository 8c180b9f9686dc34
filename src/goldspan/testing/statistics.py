"""Statistics of repeated trials and of two builds: pass^k, pass@k, intervals and paired tests.

Everything is computed with exact or seeded arithmetic, so the same results give the same numbers on every machine.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, NamedTuple

from goldspan.errors import ConfigurationError

DEFAULT_CONFIDENCE = 0.95
DEFAULT_RESAMPLES = 2000
"""The number of bootstrap samples: the ends of a 95 % interval then rest on 50 samples each."""


class TrialCount(NamedTuple):
    """The trials of one task."""

    passed: int
    trials: int

    @property
    def rate(self) -> float:
        """The share of passed trials; there must be one trial at least."""
        return self.passed / self.trials


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


Estimator = Callable[[TrialCount, int], float]


def pass_hat_k(counts: Iterable[TrialCount], k: int) -> float | None:
    """Return pass^k: the chance that k independent trials of a task all pass, as a mean over the tasks.

    The estimate C(c, k) / C(n, k) for a task with c of n trials passed is unbiased (Yao, Shinn, Razavi, Narasimhan,
    "tau-bench", 2024, section 3). Tasks with fewer than k trials are left out; `None` if no task has k trials.
    """
    return _mean(estimates(counts, k, task_pass_hat_k))


def pass_at_k(counts: Iterable[TrialCount], k: int) -> float | None:
    """Return pass@k: the chance that at least one of k independent trials of a task passes, as a mean over the tasks.

    The estimate 1 - C(n - c, k) / C(n, k) for a task with c of n trials passed is unbiased (Chen et al., "Evaluating
    Large Language Models Trained on Code", 2021, section 2.1). Tasks with fewer than k trials are left out; `None` if
    no task has k trials.
    """
    return _mean(estimates(counts, k, task_pass_at_k))


def task_pass_hat_k(count: TrialCount, k: int) -> float:
    """Return the estimate of pass^k for one task, which has at least k trials."""
    return math.comb(count.passed, k) / math.comb(count.trials, k)


def task_pass_at_k(count: TrialCount, k: int) -> float:
    """Return the estimate of pass@k for one task, which has at least k trials."""
    return 1 - math.comb(count.trials - count.passed, k) / math.comb(count.trials, k)


def estimates(counts: Iterable[TrialCount], k: int, estimator: Estimator) -> list[float]:
    """Return the estimate for each task that has at least k trials."""
    if k < 1:
        raise ConfigurationError(f"k must be 1 or more, not {k}")
    return [estimator(count, k) for count in counts if count.trials >= k]


def bootstrap_interval(
    values: Sequence[float],
    *,
    confidence: float = DEFAULT_CONFIDENCE,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = 0,
) -> Interval | None:
    """Return the percentile bootstrap interval of the mean of one value per task; `None` without values.

    Whole tasks are resampled, because the trials of one task are not independent of each other (Efron and Tibshirani,
    "An Introduction to the Bootstrap", 1993, chapters 8 and 13).
    """
    if not values:
        return None
    return _percentiles(_resampled_means(values, resamples, seed), confidence)


def wilson_interval(successes: int, total: int, *, confidence: float = DEFAULT_CONFIDENCE) -> Interval | None:
    """Return the score interval of a rate (Wilson, 1927), which holds for few trials and for 0 and 1; `None` of 0."""
    z = NormalDist().inv_cdf(0.5 + _checked_confidence(confidence) / 2)
    if total == 0:
        return None
    rate, share = successes / total, z * z / total
    center = (rate + share / 2) / (1 + share)
    margin = z / (1 + share) * math.sqrt(rate * (1 - rate) / total + share / (4 * total))
    low = 0.0 if successes == 0 else max(0.0, center - margin)
    return Interval(low, 1.0 if successes == total else min(1.0, center + margin))


Alternative = Literal["different", "worse", "better"]
"""What a test tries to show about the current build: that it differs from the baseline, is worse, or is better."""


def mcnemar_test(worse: int, better: int, *, alternative: Alternative = "different") -> float:
    """Return the p-value of the exact McNemar test for pairs of verdicts (McNemar, 1947).

    Only the pairs that changed count. If nothing changed but chance, each of them is worse or better with probability
    one half.

    Args:
        worse: The number of cases that passed in the baseline and fail now.
        better: The number of cases that failed in the baseline and pass now.
        alternative: What is tested.
    """
    changed = worse + better
    if alternative == "worse":
        return _binomial_tail(worse, changed)
    if alternative == "better":
        return _binomial_tail(better, changed)
    return min(1.0, 2 * _binomial_tail(max(worse, better), changed))


def _binomial_tail(least: int, trials: int) -> float:
    """Return the chance of at least that many heads in tosses of a fair coin."""
    # Integers are exact; their quotient is rounded once.
    favourable = sum(math.comb(trials, heads) for heads in range(least, trials + 1))
    return favourable / int(2**trials)


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The mean difference between two builds on the same cases."""

    mean: float
    """The mean of current minus baseline."""
    interval: Interval
    worse_p: float
    """The share of bootstrap samples in which the current build is not worse: a small one shows a regression."""


def paired_bootstrap(
    baseline: Sequence[float],
    current: Sequence[float],
    *,
    confidence: float = DEFAULT_CONFIDENCE,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = 0,
) -> PairedDifference | None:
    """Compare the scores of two builds case by case; `None` without cases.

    The differences of whole cases are resampled. The share `worse_p` counts the observed samples as one more sample, so
    it is never 0 (Davison and Hinkley, "Bootstrap Methods and their Application", 1997, section 4.4).
    """
    differences = [new - old for old, new in zip(baseline, current, strict=True)]
    if not differences:
        return None
    means = _resampled_means(differences, resamples, seed)
    not_worse = sum(mean >= 0 for mean in means)
    return PairedDifference(
        sum(differences) / len(differences), _percentiles(means, confidence), (not_worse + 1) / (resamples + 1)
    )


def _resampled_means(values: Sequence[float], resamples: int, seed: int) -> list[float]:
    if resamples < 1:
        raise ConfigurationError(f"resamples must be 1 or more, not {resamples}")
    choices, size = random.Random(seed).choices, len(values)
    # `fsum` does not depend on the order: samples with the same values have the same mean.
    return sorted(math.fsum(choices(values, k=size)) / size for _ in range(resamples))


def _percentiles(ordered: Sequence[float], confidence: float) -> Interval:
    """Return the middle share of sorted values."""
    outside = (1 - _checked_confidence(confidence)) / 2 * len(ordered)
    first = min(math.floor(outside), (len(ordered) - 1) // 2)
    return Interval(ordered[first], ordered[len(ordered) - 1 - first])


def _checked_confidence(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ConfigurationError(f"confidence must lie between 0 and 1, not {confidence}")
    return confidence


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
