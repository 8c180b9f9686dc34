"""The time for which a process was awake."""

from __future__ import annotations

import time
from collections.abc import Callable

_LONGEST_STEP = 5.0
"""Seconds. Whoever watches deadlines looks once a second or more often: a longer gap is one in which nothing ran."""


class AwakeClock:
    """Seconds since it was made, without those for which the process was frozen between two readings.

    Serverless platforms freeze a process when a request is answered: what was in flight then has not grown old when
    the next request thaws it.
    """

    __slots__ = ("_before", "_elapsed", "_monotonic")

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._before = monotonic()
        self._elapsed = 0.0

    def now(self) -> float:
        """The time in seconds; never less than before."""
        reading = self._monotonic()
        self._elapsed += max(0.0, min(reading - self._before, _LONGEST_STEP))
        self._before = reading
        return self._elapsed
