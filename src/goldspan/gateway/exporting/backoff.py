"""Computes when the exporter retries a failing back end."""

from __future__ import annotations

import random
from collections.abc import Callable

INITIAL_BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 60.0
MISCONFIGURED_BACKOFF_SECONDS = 15.0
"""Initial backoff if a setting is wrong: a retry succeeds only after somebody has corrected it."""


def backoff_seconds(failures: int, *, initial: float, random_fraction: Callable[[], float]) -> float:
    """Return the seconds to wait after consecutive failures: exponential, with full jitter.

    The upper bound doubles with each failure, up to `MAX_BACKOFF_SECONDS`. The jitter keeps clients that failed at the
    same time from retrying at the same time ("Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
    """
    return min(MAX_BACKOFF_SECONDS, initial * 2.0 ** min(failures - 1, 16)) * random_fraction()


class Backoff:
    """Decides when to retry a failing back end: with one request at a time until it accepts one.

    Several requests are in flight at once. Failures of the same round count as one failure.
    """

    def __init__(self, random_fraction: Callable[[], float] = random.random) -> None:
        self._random_fraction = random_fraction
        self.failures = 0
        """Number of consecutive failed rounds."""
        self.round = 0
        """The round of a request that starts now."""
        self.retry_at = 0.0
        """Monotonic time before which no request starts."""

    @property
    def is_failing(self) -> bool:
        """Whether the latest round failed."""
        return self.failures > 0

    def record_failure(
        self, started_in_round: int, now: float, *, retry_after_seconds: float | None, is_misconfigured: bool
    ) -> None:
        """Record a failed request. `retry_after_seconds` is the minimum delay that the back end requests."""
        delay = retry_after_seconds or 0.0
        if started_in_round == self.round:
            self.round += 1
            self.failures += 1
            initial = MISCONFIGURED_BACKOFF_SECONDS if is_misconfigured else INITIAL_BACKOFF_SECONDS
            delay = max(delay, backoff_seconds(self.failures, initial=initial, random_fraction=self._random_fraction))
        self.retry_at = max(self.retry_at, now + delay)

    def record_success(self) -> None:
        """Record that the back end accepted a request or rejected it permanently."""
        if self.failures:
            self.failures = 0
            self.round += 1  # later failures of requests in flight belong to an earlier round
