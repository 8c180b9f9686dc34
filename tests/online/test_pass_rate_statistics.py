"""Change detection of pass rates: delay, single reports and false alarms. All draws have fixed seeds."""

from __future__ import annotations

import random
from itertools import repeat

import changes
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.online.pass_rate_statistics import MIN_BASELINE_RUNS, ChangeDetector, PassRateShift


def _detect(detector: ChangeDetector, *parts: tuple[float, int], seed: int = 1) -> list[PassRateShift]:
    """The changes detected in the given runs of each pass rate; the time is the number of the run."""
    draw = random.Random(seed).random
    outcomes = [draw() < rate for rate, runs in parts for _ in repeat(None, runs)]
    found = [detector.add(passed, float(at)) for at, passed in enumerate(outcomes)]
    return [shift for shift in found if shift]


@pytest.mark.parametrize("rate", changes.STEADY)
def test_false_alarms_are_rarer_than_run_length_guarantees(rate: float) -> None:
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
def test_a_change_is_detected_within_the_expected_number_of_runs(
    before: float, after: float, baseline: int, median: int
) -> None:
    rounds = 15
    found = changes.delays(before, after, baseline, rounds)
    assert len(found) == rounds
    assert found[rounds // 2] <= median


@pytest.mark.parametrize("before", [MIN_BASELINE_RUNS, 10_000, pytest.param(1_000_000, marks=pytest.mark.e2e)])
def test_a_single_failure_is_never_a_change_after_any_number_of_passes(before: int) -> None:
    detector = ChangeDetector()
    for _ in range(before):
        assert detector.add(True, 0.0) is None
    assert detector.add(False, 0.0) is None
    assert _detect(detector, (1.0, 10_000)) == []


def test_a_complete_outage_is_detected_within_five_failures() -> None:
    (shift,) = _detect(ChangeDetector(), (1.0, 1_000), (0.0, 10))
    assert (shift.direction, shift.before, shift.after) == ("fall", 1.0, 0.0)
    assert (shift.runs_before, shift.since) == (1_000, 1_000.0)
    assert shift.runs_after <= 5


def test_no_change_is_reported_before_the_baseline_is_complete() -> None:
    detector = ChangeDetector()
    assert not any(detector.add(at < MIN_BASELINE_RUNS // 2, 0.0) for at in range(MIN_BASELINE_RUNS))


def test_a_change_and_its_recovery_are_each_reported_once() -> None:
    found = _detect(ChangeDetector(), (0.99, 2_000), (0.6, 2_000), (0.99, 2_000))
    assert [shift.direction for shift in found] == ["fall", "rise"]
    fall, rise = found
    assert 0.98 <= fall.before <= 1
    assert fall.after < 0.95
    assert rise.before == pytest.approx(0.6, abs=0.05)
    assert 1_900 <= fall.since <= 2_010
    assert 3_900 <= rise.since <= 4_010


def test_a_series_that_always_fails_reports_no_change() -> None:
    assert _detect(ChangeDetector(), (0.0, 20_000)) == []
    (shift,) = _detect(ChangeDetector(), (0.0, 1_000), (1.0, 10))
    assert shift.direction == "rise"


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([1, 1, 2, 5, 60])), max_size=40), st.integers(10, 200))
def test_falls_and_rises_are_detected_symmetrically(stretches: list[tuple[bool, int]], run_length: int) -> None:
    """Passes without evidence take a fast path and failures do not; the results must be symmetric."""
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


def test_the_benchmark_returns_the_number_of_alarms_and_of_observed_runs() -> None:
    assert changes.steady(1.0, 1) == (0, changes.SPAN)
