"""How long to leave a back end alone that does not take what it is sent. Time and chance are passed in."""

from __future__ import annotations

import random
from collections.abc import Callable

INITIAL_SECONDS = 1.0
MAX_SECONDS = 60.0
BARRED_SECONDS = 15.0
"""The first pause where a setting is wrong: trying again helps only once somebody has seen to it."""


def pause(failures: int, *, initial: float, chance: Callable[[], float]) -> float:
    """Seconds to wait after so many failures in a row: exponential, with full jitter.

    Anything between none and twice as much as the time before, up to `MAX_SECONDS`, so that those who failed together
    do not come back together ("Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
    """
    return min(MAX_SECONDS, initial * 2.0 ** min(failures - 1, 16)) * chance()


class Pace:
    """When a back end that fails is tried again: at first with a single request, and freely once it takes one.

    What fails of the same round, since several requests are under way at once, counts as one failure.
    """

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self.failures = 0
        """How many rounds failed in a row."""
        self.round = 0
        """Which round a request that is started now belongs to."""
        self.rests_until = 0.0
        """Nothing is started before."""

    @property
    def failing(self) -> bool:
        """Whether the latest that is known of the back end is that it took nothing."""
        return self.failures > 0

    def fail(self, started_in: int, now: float, *, wait: float | None, barred: bool) -> None:
        """A request that was started in that round failed; `wait` seconds at least were asked for."""
        rest = wait or 0.0
        if started_in == self.round:
            self.round += 1
            self.failures += 1
            initial = BARRED_SECONDS if barred else INITIAL_SECONDS
            rest = max(rest, pause(self.failures, initial=initial, chance=self._chance))
        self.rests_until = max(self.rests_until, now + rest)

    def succeed(self) -> None:
        """The back end took something, or said for good that it will not."""
        if self.failures:
            self.failures = 0
            self.round += 1  # what is still under way and fails is of an earlier one
