"""Changes of pass rates: found soon, found once, and not found where there are none. All draws have fixed seeds."""

from __future__ import annotations

import random
from itertools import repeat

import changes
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.online.pass_rate_statistics import MIN_BASELINE_RUNS, ChangeDetector, PassRateShift


def _fed(detector: ChangeDetector, *parts: tuple[float, int], seed: int = 1) -> list[PassRateShift]:
    """What is found in so many runs of each pass rate; the time is the number of the run."""
    draw = random.Random(seed).random
    outcomes = [draw() < rate for rate, runs in parts for _ in repeat(None, runs)]
    found = [detector.add(passed, float(at)) for at, passed in enumerate(outcomes)]
    return [shift for shift in found if shift]


@pytest.mark.parametrize("rate", changes.STEADY)
def test_false_alarms_are_rarer_than_promised(rate: float) -> None:
    run_length, rounds = 500, 60
    watched = alarms = 0
    for seed in range(rounds):
        draw = random.Random(seed).random
        detector = ChangeDetector(run_length)
        for _ in range(2 * run_length):
            watched += 1
            if detector.add(draw() < rate, 0.0):
                alarms += 1
                break
    assert watched >= alarms * run_length


@pytest.mark.parametrize(
    ("before", "after", "baseline", "median"),
    [
        pytest.param(0.99, 0.9, 1_000, 250, id="0.99 to 0.9"),
        pytest.param(1.0, 0.8, 1_000, 40, id="1 to 0.8"),
        pytest.param(1.0, 0.8, 200, 80, id="1 to 0.8 soon after the start"),
        pytest.param(0.9, 0.6, 1_000, 80, id="0.9 to 0.6"),
        pytest.param(0.6, 0.9, 1_000, 100, id="a recovery"),
        pytest.param(0.9, 0.99, 1_000, 350, id="a small recovery"),
    ],
)
def test_a_change_is_found_soon_and_in_its_direction(before: float, after: float, baseline: int, median: int) -> None:
    rounds = 15
    found = changes.delays(before, after, baseline, rounds)
    assert len(found) == rounds
    assert found[rounds // 2] <= median


@pytest.mark.parametrize("before", [MIN_BASELINE_RUNS, 10_000, 1_000_000])
def test_one_failure_is_no_change_however_many_passed_before(before: int) -> None:
    detector = ChangeDetector()
    for _ in range(before):
        assert detector.add(True, 0.0) is None
    assert detector.add(False, 0.0) is None
    assert _fed(detector, (1.0, 10_000)) == []


def test_a_break_down_is_found_within_a_few_failures() -> None:
    (shift,) = _fed(ChangeDetector(), (1.0, 1_000), (0.0, 10))
    assert (shift.direction, shift.before, shift.after) == ("fall", 1.0, 0.0)
    assert (shift.runs_before, shift.since) == (1_000, 1_000.0)
    assert shift.runs_after <= 5


def test_nothing_is_called_a_change_before_the_baseline_is_learned() -> None:
    detector = ChangeDetector()
    assert not any(detector.add(at < MIN_BASELINE_RUNS // 2, 0.0) for at in range(MIN_BASELINE_RUNS))


def test_a_change_is_told_once_and_so_is_the_recovery() -> None:
    found = _fed(ChangeDetector(), (0.99, 2_000), (0.6, 2_000), (0.99, 2_000))
    assert [shift.direction for shift in found] == ["fall", "rise"]
    fall, rise = found
    assert 0.98 <= fall.before <= 1
    assert fall.after < 0.95
    assert rise.before == pytest.approx(0.6, abs=0.05)
    assert 1_900 <= fall.since <= 2_010
    assert 3_900 <= rise.since <= 4_010


def test_a_series_that_always_fails_is_steady_too() -> None:
    assert _fed(ChangeDetector(), (0.0, 20_000)) == []
    (shift,) = _fed(ChangeDetector(), (0.0, 1_000), (1.0, 10))
    assert shift.direction == "rise"


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([1, 1, 2, 5, 60])), max_size=40), st.integers(10, 200))
def test_falls_and_rises_are_mirror_images(stretches: list[tuple[bool, int]], run_length: int) -> None:
    """Passes that leave everything at rest are taken a short way; failures never are, so this holds them together."""
    outcomes = [passed for passed, times in stretches for _ in range(times)]
    one, other = ChangeDetector(run_length), ChangeDetector(run_length)
    for at, passed in enumerate(outcomes):
        seen, mirrored = one.add(passed, at), other.add(not passed, at)
        assert (seen is None) == (mirrored is None)
        if seen and mirrored:
            assert {seen.direction, mirrored.direction} == {"fall", "rise"}
            assert seen.before == pytest.approx(1 - mirrored.before)
            assert (seen.runs_before, seen.runs_after, seen.since) == (
                mirrored.runs_before,
                mirrored.runs_after,
                mirrored.since,
            )


def test_the_benchmark_counts_what_was_watched() -> None:
    assert changes.steady(1.0, 1) == (0, changes.SPAN)
