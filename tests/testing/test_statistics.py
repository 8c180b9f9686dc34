"""Statistics of trials equal what counting all possibilities gives, and published values."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import combinations, product

import pytest

from goldspan.errors import ConfigurationError
from goldspan.testing.statistics import (
    TrialCount,
    bootstrap_interval,
    mcnemar_test,
    paired_bootstrap,
    pass_at_k,
    pass_hat_k,
    wilson_interval,
)


def small_counts() -> Iterator[tuple[int, int, int]]:
    for trials in range(1, 7):
        for passed, k in product(range(trials + 1), range(1, trials + 1)):
            yield passed, trials, k


def test_pass_hat_k_and_pass_at_k_are_shares_of_all_samples_of_k_trials() -> None:
    for passed, trials, k in small_counts():
        verdicts = [True] * passed + [False] * (trials - passed)
        samples = list(combinations(verdicts, k))
        count = [TrialCount(passed, trials)]
        assert pass_hat_k(count, k) == pytest.approx(sum(map(all, samples)) / len(samples))
        assert pass_at_k(count, k) == pytest.approx(sum(map(any, samples)) / len(samples))


def test_pass_hat_k_is_unbiased() -> None:
    """Its expectation over all outcomes of n trials is the k-th power of the chance that one trial passes."""
    chance, trials = 0.7, 5
    for k in (1, 2, 3, 4, 5):
        expected = math.fsum(
            math.comb(trials, passed)
            * chance**passed
            * (1 - chance) ** (trials - passed)
            * (pass_hat_k([TrialCount(passed, trials)], k) or 0)
            for passed in range(trials + 1)
        )
        assert expected == pytest.approx(chance**k)


def test_tasks_with_fewer_than_k_trials_are_left_out() -> None:
    counts = [TrialCount(2, 2), TrialCount(1, 4), TrialCount(0, 0)]
    assert pass_hat_k(counts, 1) == (1 + 1 / 4) / 2
    assert pass_hat_k(counts, 2) == 0.5
    assert pass_at_k(counts, 4) == 1
    assert pass_hat_k(counts, 5) is None
    assert pass_at_k([], 1) is None


def test_k_is_at_least_1() -> None:
    for estimate in (pass_hat_k, pass_at_k):
        with pytest.raises(ConfigurationError, match="k must be 1 or more, not 0"):
            estimate([TrialCount(1, 1)], 0)


@pytest.mark.parametrize(
    ("successes", "total", "low", "high"),
    [  # Newcombe, "Two-sided confidence intervals for the single proportion", 1998, table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_intervals_equal_published_ones(successes: int, total: int, low: float, high: float) -> None:
    interval = wilson_interval(successes, total)
    assert interval is not None
    assert interval == pytest.approx((low, high), abs=5e-5)
    mirrored = wilson_interval(total - successes, total)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=5e-5)


def test_a_rate_of_nothing_has_no_interval() -> None:
    assert wilson_interval(0, 0) is None


@pytest.mark.parametrize("confidence", [0, 1, -0.5, 95])
def test_a_confidence_lies_between_0_and_1(confidence: float) -> None:
    with pytest.raises(ConfigurationError, match="confidence must lie between 0 and 1"):
        wilson_interval(1, 2, confidence=confidence)
    with pytest.raises(ConfigurationError, match="confidence must lie between 0 and 1"):
        bootstrap_interval([1, 2], confidence=confidence)


def test_mcnemar_counts_all_outcomes_of_fair_tosses() -> None:
    for worse, better in product(range(6), repeat=2):
        tosses = [sum(toss) for toss in product((0, 1), repeat=worse + better)]
        at_least = sum(heads >= worse for heads in tosses) / len(tosses)
        extreme = sum(abs(heads - (worse + better) / 2) >= abs(worse - better) / 2 for heads in tosses) / len(tosses)
        assert mcnemar_test(worse, better, alternative="worse") == pytest.approx(at_least)
        assert mcnemar_test(better, worse, alternative="better") == pytest.approx(at_least)
        assert mcnemar_test(worse, better) == pytest.approx(extreme)


def test_mcnemar_equals_a_published_value() -> None:
    # Fagerland, Lydersen, Laake, "The McNemar test for binary matched-pairs data", 2013: 7 and 1 discordant pairs
    assert mcnemar_test(1, 7) == pytest.approx(0.0703, abs=5e-5)


def test_mcnemar_of_many_pairs_is_exact() -> None:
    assert mcnemar_test(2000, 2000) == 1
    assert 0 < mcnemar_test(700, 500) < 1e-7


def test_a_bootstrap_interval_is_deterministic_and_contains_the_mean() -> None:
    generator = random.Random(7)
    values = [generator.random() for _ in range(40)]
    interval = bootstrap_interval(values)
    assert interval is not None
    assert interval == bootstrap_interval(values)
    assert interval != bootstrap_interval(values, seed=1)
    assert interval.low < math.fsum(values) / 40 < interval.high
    assert min(values) <= interval.low
    wider = bootstrap_interval(values, confidence=0.99)
    assert wider is not None
    assert wider.low <= interval.low
    assert interval.high <= wider.high


def test_a_bootstrap_interval_agrees_with_the_enumeration_of_all_samples() -> None:
    values = [0.0, 0.0, 1.0, 1.0, 1.0]
    means = sorted(math.fsum(sample) / 5 for sample in product(values, repeat=5))
    interval = bootstrap_interval(values, confidence=0.8, resamples=20_000)
    assert interval == (means[len(means) // 10], means[-1 - len(means) // 10])


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.8])
def test_a_95_percent_bootstrap_interval_covers_the_truth_in_about_95_of_100_samples(rate: float) -> None:
    generator = random.Random(11)
    covered = 0
    for _ in range(200):
        values = [sum(generator.random() < rate for _ in range(4)) / 4 for _ in range(60)]
        interval = bootstrap_interval(values, resamples=200)
        assert interval is not None
        covered += interval.low <= rate <= interval.high
    assert 180 <= covered <= 200


def test_equal_values_have_an_interval_of_no_width_and_no_values_have_none() -> None:
    assert bootstrap_interval([0.5]) == (0.5, 0.5)
    assert bootstrap_interval([0.5] * 9, resamples=1) == (0.5, 0.5)
    assert bootstrap_interval([]) is None
    with pytest.raises(ConfigurationError, match="resamples must be 1 or more"):
        bootstrap_interval([1.0], resamples=0)


def test_a_paired_bootstrap_sees_a_drop_that_the_spread_of_cases_would_hide() -> None:
    baseline = [n / 20 for n in range(20)]
    worse = paired_bootstrap(baseline, [value - 0.05 for value in baseline])
    assert worse is not None
    assert worse.mean == pytest.approx(-0.05)
    assert worse.interval.high < 0
    assert worse.worse_p == 1 / 2001
    same = paired_bootstrap(baseline, baseline)
    assert same is not None
    assert (same.mean, same.interval, same.worse_p) == (0, (0, 0), 1)
    assert paired_bootstrap([], []) is None


def test_builds_with_different_numbers_of_cases_cannot_be_paired() -> None:
    with pytest.raises(ValueError, match="zip"):
        paired_bootstrap([1.0], [])
