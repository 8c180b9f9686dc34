"""When a store applies its retention, and which times are the limits."""

from __future__ import annotations

from datetime import timedelta

from goldspan.store.store_protocol import Retention

MIN_BATCH_SIZE = 500
"""Runs deleted at once; twice the number just stored, if that is more, so that pruning keeps up."""
_CHECK_EVERY_EVALUATIONS = 250
"""How many evaluations are stored between two checks."""
_CHECK_EVERY_NS = 60 * 10**9
"""The maximum time between two checks, if few evaluations are stored."""

UNLIMITED_RETENTION = Retention()


class RetentionSchedule:
    """Decides, while evaluations are stored, when the runs that exceed the retention are deleted."""

    def __init__(self, retention: Retention) -> None:
        self.retention = retention
        self._stored_since_check = _CHECK_EVERY_EVALUATIONS
        self._last_check_ns = 0

    def batch_size(self, now_ns: int, stored: int) -> int:
        """Return how many runs may be deleted after `stored` evaluations were stored; 0: no check is due."""
        self._stored_since_check += stored
        if self._stored_since_check < _CHECK_EVERY_EVALUATIONS and now_ns - self._last_check_ns < _CHECK_EVERY_NS:
            return 0
        self._last_check_ns = now_ns
        return max(MIN_BATCH_SIZE, 2 * stored)

    def record_check(self, deleted: int) -> None:
        """Note the result of a check. After a deletion, the next call checks again: there may be more to delete."""
        self._stored_since_check = _CHECK_EVERY_EVALUATIONS if deleted else 0

    def oldest_kept_ns(self, now_ns: int) -> int | None:
        """Return the time before which runs are deleted, in nanoseconds since the Unix epoch; `None`: no limit."""
        return None if self.retention.max_age is None else _cutoff_ns(now_ns, self.retention.max_age)

    def tombstone_cutoff_ns(self, now_ns: int) -> int:
        """Return the time of the oldest remembered deletion, in nanoseconds since the Unix epoch."""
        return _cutoff_ns(now_ns, self.retention.deletion_memory)


def _cutoff_ns(now_ns: int, age: timedelta) -> int:
    return max(0, now_ns - age // timedelta(microseconds=1) * 1000)
