"""Measures how soon a change of a pass rate is detected, and how often a false alarm occurs.

    python benchmarks/changes.py [--rounds 200]

Outcomes are drawn with fixed seeds, so the figures are the same on every machine. Delays are in runs after the change.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator

from goldspan.online.pass_rate_statistics import AVERAGE_RUN_LENGTH, ChangeDetector, PassRateShift

STEADY = (0.5, 0.9, 0.99, 0.999, 1.0)
"""Pass rates that do not change."""
CHANGES = ((0.99, 0.9), (1.0, 0.8), (0.9, 0.6), (0.9, 0.99), (0.6, 0.9))
"""Pass rates before and after."""
BASELINES = (200, 1_000, 10_000)
"""Runs before the change."""
SPAN = 2 * AVERAGE_RUN_LENGTH
"""The number of observed runs of a constant rate, and the maximum after a change."""


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    print(f"no change: false alarms, and runs per alarm, in {rounds} times {SPAN} runs; target {AVERAGE_RUN_LENGTH}")
    for rate in STEADY:
        alarms, watched = steady(rate, rounds)
        length = f"{watched // alarms}" if alarms else f"over {watched}"
        print(f"  {rate:5.3f} {alarms:4} {length:>12}")
    print("a change: median delay in runs, 90th percentile, and the share that was detected correctly")
    for before, after in CHANGES:
        for baseline in BASELINES:
            found = delays(before, after, baseline, rounds)
            late = found + [SPAN] * (rounds - len(found))
            print(
                f"  {before:.2f} -> {after:.2f} after {baseline:5} runs: {late[len(late) // 2]:5} "
                f"{late[len(late) * 9 // 10]:6}   {len(found) / rounds:.0%}"
            )


def steady(rate: float, rounds: int) -> tuple[int, int]:
    """Return the number of false alarms at that rate, and of the runs observed until then."""
    alarms = watched = 0
    for seed in range(rounds):
        detector, outcomes = ChangeDetector(), _outcomes(rate, seed)
        for _ in range(SPAN):
            watched += 1
            if detector.add(next(outcomes), 0.0):
                alarms += 1
                break
    return alarms, watched


def delays(before: float, after: float, baseline: int, rounds: int) -> list[int]:
    """Return the sorted delays of the correctly detected changes, in runs."""
    found = []
    for seed in range(rounds):
        delay, shift = _delay(before, after, baseline, seed)
        if shift and delay > 0 and (shift.direction == "fall") is (after < before):
            found.append(delay)
    return sorted(found)


def _delay(before: float, after: float, baseline: int, seed: int) -> tuple[int, PassRateShift | None]:
    detector = ChangeDetector()
    outcomes, changed = _outcomes(before, seed), _outcomes(after, ~seed)
    for run in range(baseline + SPAN):
        shift = detector.add(next(outcomes if run < baseline else changed), 0.0)
        if shift:
            return run + 1 - baseline, shift
    return SPAN, None


def _outcomes(rate: float, seed: int) -> Iterator[bool]:
    draw = random.Random(f"{seed} {rate}").random
    while True:
        yield draw() < rate


if __name__ == "__main__":
    main()
