"""Whether a pass rate has changed: made for scores that are nearly always the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from goldspan.online.intervals import lasting_limits

Direction = Literal["fall", "rise"]

RUN_LENGTH = 10_000
"""How many runs pass on average, at least, between two false alarms of one series."""
MINIMUM = 50
"""Runs from which a baseline is learned before anything is called a change."""
TOLERANCE = 0.005
"""Changes of half a percentage point or less are not looked for: no single failure is an alarm, after however many
runs that passed."""

_ERROR = 0.05
"""How probable it may be that the limits of the baseline are ever wrong."""
_ODDS = (1.5, 3.0, 9.0, 30.0)
"""By how much the odds may have changed, from a small change to a break-down."""
_REFRESH = 1.1
"""The limits are computed anew when the baseline has grown by a tenth: rarely, and soon enough."""


@dataclass(frozen=True, slots=True)
class Shift:
    """A change of a pass rate that was found."""

    direction: Direction
    before: float
    """The pass rate of the baseline, 0 to 1."""
    after: float
    """The pass rate since. It was looked at because it is unusual, so the true one is rather nearer to the baseline."""
    runs_before: int
    runs_after: int
    since: float
    """When the first of the runs was seen that are counted as after; in the unit of the times that were given."""


class ChangeDetector:
    """Watches passes and failures one by one, and says when their rate has changed. Nothing is stored but counts.

    It is the Bernoulli CUSUM (M. R. Reynolds and Z. G. Stoumbos, Journal of Quality Technology 31, 1999) in the form of
    an e-detector (J. Shin, A. Ramdas and A. Rinaldo, New England Journal of Statistics in Data Science 2, 2024), so
    that it holds where the baseline is learned and not known:

    - Against a pass rate p0, odds of failing that are r times as high are tested by the likelihood ratio
      e = r / (p0 + r(1 - p0)) for a failure and e = 1 / (p0 + r(1 - p0)) for a pass; the evidence is
      C = e · max(C, 1). Rises are tested the same way with the odds of passing.
    - p0 is no estimate but a limit: the lower one of the baseline for falls, the upper one for rises (`lasting_limits`,
      95 %), and at least `TOLERANCE` away from the baseline. The evidence then grows by chance no faster than it may,
      whatever the true rate is.
    - A change is found where the mean of the evidence over four r and both directions reaches the promised run length.
      Where the limits hold, the time to a false alarm is as long on average; within n runs one comes with a probability
      of at most n / run length + 5 %, and with far less in practice.
    - Runs join the baseline as soon as the evidence is below 1, where it began; those since then are the *after* of a
      change. After a change everything is learned anew, so that one change is told once.
    """

    __slots__ = (
        "_at_rest",
        "_evidence",
        "_judged",
        "_limited_at",
        "_on_fail",
        "_on_pass",
        "_passed",
        "_pending",
        "_pending_passed",
        "_since",
        "_threshold",
    )

    def __init__(self, run_length: int = RUN_LENGTH) -> None:
        self._threshold = run_length * 2 * len(_ODDS)  # of the sum, where the promise is about the mean
        self._at_rest = False
        """A further pass leaves the evidence as it is: the usual case of an agent that never fails, and quick."""
        self._evidence: list[float] = []
        self._on_pass: list[float] = []
        self._on_fail: list[float] = []
        self._begin()

    def add(self, passed: bool, now: float) -> Shift | None:
        """Take one outcome; the change where it completes the evidence for one."""
        if not self._evidence:
            self._learn(passed)
            return None
        if passed and self._at_rest:
            self._settle(1, 1)
            return None
        self._at_rest = False
        if not self._pending:
            self._since = now
        self._pending += 1
        self._pending_passed += passed
        factors = self._on_pass if passed else self._on_fail
        self._evidence = evidence = [
            held * factor if held > 1 else factor for held, factor in zip(self._evidence, factors, strict=True)
        ]
        total = sum(evidence)
        if total < len(evidence):
            self._settle(self._pending, self._pending_passed)
            self._at_rest = passed and evidence == self._on_pass and max(evidence) <= 1
        elif total >= self._threshold:
            return self._found()
        return None

    def _begin(self) -> None:
        self._judged = self._passed = self._pending = self._pending_passed = self._limited_at = 0
        self._since = 0.0
        self._at_rest = False
        self._evidence = []

    def _learn(self, passed: bool) -> None:
        self._judged += 1
        self._passed += passed
        if self._judged == MINIMUM:
            self._set_limits()
            self._evidence = [0.0] * (2 * len(_ODDS))

    def _settle(self, judged: int, passed: int) -> None:
        """What came last looks like the baseline, and is part of it from now on."""
        self._judged += judged
        self._passed += passed
        self._pending = self._pending_passed = 0
        if self._judged > self._limited_at * _REFRESH:
            self._set_limits()

    def _set_limits(self) -> None:
        low, high = lasting_limits(self._passed, self._judged, _ERROR)
        rate = self._passed / self._judged
        falls = _ratios(1 - min(low, rate - TOLERANCE))
        rises = _ratios(max(high, rate + TOLERANCE))
        self._on_pass = [usual for usual, _ in falls] + [likelier for _, likelier in rises]
        self._on_fail = [likelier for _, likelier in falls] + [usual for usual, _ in rises]
        self._limited_at = self._judged
        self._at_rest = False

    def _found(self) -> Shift:
        half = len(_ODDS)
        falls, rises = sum(self._evidence[:half]), sum(self._evidence[half:])
        shift = Shift(
            "fall" if falls > rises else "rise",
            before=self._passed / self._judged,
            after=self._pending_passed / self._pending,
            runs_before=self._judged,
            runs_after=self._pending,
            since=self._since,
        )
        self._begin()
        return shift


def _ratios(share: float) -> list[tuple[float, float]]:
    """For each change of the odds of something with that share: the likelihood ratios where it did not and did happen.

    Nothing can be more frequent than always: there, no evidence is ever found.
    """
    if share >= 1:
        return [(0.0, 0.0)] * len(_ODDS)
    return [(1 / (1 - share + odds * share), odds / (1 - share + odds * share)) for odds in _ODDS]
