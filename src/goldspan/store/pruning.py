"""Which runs are kept no longer. A few go at a time, so that nobody waits for many."""

from __future__ import annotations

import sqlite3
from datetime import timedelta

from goldspan.store.protocol import Retention

_BATCH = 500
"""So many runs are deleted at once, or twice as many as were just stored at once: it must keep up."""
_EVERY = 250
"""So many evaluations are stored from one look to the next, at least where they come one by one."""
_OFTEN_NS = 60 * 10**9
"""And where few are stored, so much time passes at most."""


class Pruning:
    """Keeps a store within its retention."""

    def __init__(self, retention: Retention) -> None:
        self._retention = retention
        self._stored = _EVERY
        self._looked_ns = 0

    def step(self, connection: sqlite3.Connection, now_ns: int, stored: int) -> int:
        """Called within the transaction that stores so many evaluations: where it is time, delete a batch; how many."""
        self._stored += stored
        if self._stored < _EVERY and now_ns - self._looked_ns < _OFTEN_NS:
            return 0
        self._looked_ns = now_ns
        deleted = self.batch(connection, now_ns, max(_BATCH, 2 * stored))
        self._stored = _EVERY if deleted else 0  # where something had to go there may be more, and the next call looks
        return deleted

    def batch(self, connection: sqlite3.Connection, now_ns: int, most: int = _BATCH) -> int:
        """Delete the oldest runs that are too old or too much, but so many at most; how many."""
        deleted = 0
        connection.execute("DELETE FROM deletions WHERE time_ns < ?", (self.remembered_from(now_ns),))
        if self._retention.max_age is not None:
            before = _earlier(now_ns, self._retention.max_age)
            deleted = connection.execute(_TOO_OLD, (before, most)).rowcount
        if self._retention.max_bytes is not None and (share := self._excess(connection)) > 0:
            (runs,) = connection.execute("SELECT count(*) FROM runs").fetchone()
            deleted += connection.execute(_OLDEST, (min(most - deleted, int(runs * share) + 1),)).rowcount
        return deleted

    def remembered_from(self, now_ns: int) -> int:
        """The time of the oldest deletion that is remembered, in nanoseconds since the Unix epoch."""
        return _earlier(now_ns, self._retention.deletions)

    def _excess(self, connection: sqlite3.Connection) -> float:
        """The share of what the file holds that is too much."""
        told = (
            connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "freelist_count", "page_size")
        )
        pages, free, size = (int(number) for (number,) in told)
        used = (pages - free) * size
        return (used - (self._retention.max_bytes or 0)) / used


def _earlier(now_ns: int, age: timedelta) -> int:
    return max(0, now_ns - age // timedelta(microseconds=1) * 1000)


_TOO_OLD = "DELETE FROM runs WHERE key IN (SELECT key FROM runs WHERE time_ns < ? ORDER BY time_ns LIMIT ?)"
_OLDEST = "DELETE FROM runs WHERE key IN (SELECT key FROM runs ORDER BY time_ns, key LIMIT ?)"
