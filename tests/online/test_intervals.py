"""Confidence intervals of pass rates."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.online.pass_rate_statistics import confidence_sequence, wilson_interval


@pytest.mark.parametrize(
    ("passed", "judged", "low", "high"),
    [
        # R: prop.test(x, n, correct = FALSE)$conf.int
        pytest.param(81, 263, 0.2553, 0.3662, id="the example of Newcombe 1998"),
        pytest.param(0, 20, 0.0, 0.1611, id="none passed"),
        pytest.param(29, 29, 0.8830, 1.0, id="all passed"),
    ],
)
def test_the_wilson_interval_matches_published_values(passed: int, judged: int, low: float, high: float) -> None:
    assert wilson_interval(passed, judged) == pytest.approx((low, high), abs=5e-5)


def test_intervals_without_decided_runs_are_undefined_or_trivial() -> None:
    assert wilson_interval(0, 0) is None
    assert confidence_sequence(0, 0, 0.05) == (0.0, 1.0)


@given(st.integers(1, 10**6), st.floats(0, 1))
def test_both_intervals_contain_the_rate_and_the_confidence_sequence_is_wider(judged: int, share: float) -> None:
    passed = round(judged * share)
    low, high = wilson_interval(passed, judged) or (1.0, 0.0)
    lowest, highest = confidence_sequence(passed, judged, 0.05)
    assert 0 <= low <= passed / judged <= high <= 1
    assert 0 <= lowest <= passed / judged <= highest <= 1
    assert highest - lowest > high - low


@pytest.mark.parametrize("rate", [0.5, 0.9, 0.99, 1.0])
def test_the_confidence_sequence_covers_the_rate_at_all_times_with_its_probability(rate: float) -> None:
    draw = random.Random(7).random
    broken = 0
    for _ in range(100):
        passed = 0
        for judged in range(1, 301):
            passed += draw() < rate
            low, high = confidence_sequence(passed, judged, 0.05) if judged % 10 == 0 else (0.0, 1.0)
            if not low <= rate <= high:
                broken += 1
                break
    assert broken <= 5
