"""Journal entries, and the SQL with which `journal.Journal` inserts, selects and prunes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from operator import attrgetter
from sqlite3 import Connection

from goldspan.gateway.resource_limits import ALL_PARTITIONS, EntryOrigin, Media, Signal

ENTRY_OVERHEAD_BYTES = 64
"""Bytes that each entry counts in addition to its body, so that empty bodies fill a journal too."""

_RECENT_BYTES = 16 * 2**20
_RECENT_ENTRIES = 1024
_PRUNE_BATCH = 256
_INSERT = """INSERT INTO entries (key, size, total, signal, media, origin, partitions, arrived_ns, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_column_values = attrgetter("signal", "media", "origin", "partitions", "arrived_ns", "body")
_SELECT = "SELECT key, signal, media, origin, partitions, arrived_ns, body FROM entries WHERE key > ?"
_SELECT_BOUNDS = """SELECT
    coalesce((SELECT key FROM entries ORDER BY key DESC LIMIT 1), (SELECT key FROM pruned)),
    coalesce((SELECT total - size FROM entries ORDER BY key LIMIT 1), 0),
    coalesce((SELECT total FROM entries ORDER BY key DESC LIMIT 1), 0)"""
_SELECT_BACKLOG = """SELECT (SELECT total FROM entries ORDER BY key DESC LIMIT 1) - total + size, arrived_ns
FROM entries WHERE key > ? ORDER BY key LIMIT 1"""


@dataclass(frozen=True, slots=True)
class NewEntry:
    """An entry to append."""

    signal: Signal
    media: Media
    body: bytes
    origin: EntryOrigin = "received"
    partitions: int = ALL_PARTITIONS
    """The partitions that the entry concerns: one bit each, see `goldspan.gateway.resource_limits.partition_of`."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """An acknowledged export request, or one that goldspan created itself."""

    key: int
    """Counted from 1 in commit order; never reused."""
    signal: Signal
    media: Media
    origin: EntryOrigin
    partitions: int
    arrived_ns: int
    """When the journal received it, in nanoseconds since the Unix epoch."""
    body: bytes


@dataclass(frozen=True, slots=True)
class EntryQuery:
    """The filters and limits of one read; see `Journal.read`."""

    after_key: int
    max_bytes: int
    max_entries: int
    origins: frozenset[EntryOrigin] | None
    partitions: int

    def matches(self, entry: JournalEntry) -> bool:
        """Return whether an entry after `after_key` has a wanted origin and partition."""
        return (self.origins is None or entry.origin in self.origins) and (
            self.partitions == ALL_PARTITIONS or entry.partitions & self.partitions != 0
        )

    def limit(self, entries: Iterable[JournalEntry]) -> list[JournalEntry]:
        """Return the first of these entries, up to the limits of bytes and count."""
        found: list[JournalEntry] = []
        size = 0
        for entry in entries:
            found.append(entry)
            size += len(entry.body)
            if size >= self.max_bytes or len(found) >= self.max_entries:
                break
        return found


class RecentEntries:
    """The latest entries, in memory, so that consumers that keep up need not read the file."""

    def __init__(self, last_key: int) -> None:
        self._entries: deque[JournalEntry] = deque()
        self._size = 0
        self._key_before = last_key
        """The key before the first entry in memory."""

    def extend(self, added: Iterable[JournalEntry]) -> None:
        """Add committed entries, and evict the oldest beyond the limits."""
        for entry in added:
            self._entries.append(entry)
            self._size += len(entry.body)
        while self._size > _RECENT_BYTES or len(self._entries) > _RECENT_ENTRIES:
            evicted = self._entries.popleft()
            self._size -= len(evicted.body)
            self._key_before = evicted.key

    def select(self, entry_query: EntryQuery) -> list[JournalEntry] | None:
        """Return the next matching entries, or `None` if the first of them may be on disk only."""
        if entry_query.after_key < self._key_before:
            return None
        following = islice(self._entries, entry_query.after_key - self._key_before, None)  # keys have no gaps
        return entry_query.limit(filter(entry_query.matches, following))


@dataclass(frozen=True, slots=True)
class JournalBounds:
    """The last key of a journal, and the running byte totals at both ends."""

    last_key: int
    total_before: int
    """The `total` before the first entry."""
    total: int
    """The `total` of the last entry."""

    @property
    def size(self) -> int:
        """The bytes of all entries, including `ENTRY_OVERHEAD_BYTES` for each."""
        return self.total - self.total_before


def insert_entries(connection: Connection, added: Sequence[JournalEntry], bounds: JournalBounds) -> JournalBounds:
    """Insert entries after the existing ones. Returns the new bounds."""
    totals = list(accumulate((len(entry.body) + ENTRY_OVERHEAD_BYTES for entry in added), initial=bounds.total))
    connection.executemany(
        _INSERT,
        [
            (entry.key, total - before, total, *_column_values(entry))
            for entry, (before, total) in zip(added, pairwise(totals), strict=True)
        ],
    )
    return JournalBounds(added[-1].key, bounds.total_before, totals[-1])


def select_entries(connection: Connection, entry_query: EntryQuery) -> list[JournalEntry]:
    """Return the next matching entries."""
    query = _SELECT
    if entry_query.origins is not None:
        query += f" AND origin IN ({', '.join(map(repr, sorted(entry_query.origins)))})"
    if entry_query.partitions != ALL_PARTITIONS:
        query += f" AND partitions & {entry_query.partitions:d}"
    rows = connection.execute(f"{query} ORDER BY key LIMIT {entry_query.max_entries:d}", (entry_query.after_key,))
    found = entry_query.limit(JournalEntry(*row) for row in rows)
    rows.close()
    return found


def read_bounds(connection: Connection) -> JournalBounds:
    """Return the bounds of the stored entries."""
    return JournalBounds(*connection.execute(_SELECT_BOUNDS).fetchone())


def backlog_after(connection: Connection, key: int) -> tuple[int, int] | None:
    """Return the bytes after a key and the arrival time of the first entry there; `None` if there is no entry."""
    row: tuple[int, int] | None = connection.execute(_SELECT_BACKLOG, (key,)).fetchone()
    return row


def write_cursors(connection: Connection, cursors: Mapping[str, int]) -> None:
    """Advance the cursors of registered consumers."""
    connection.executemany(
        "UPDATE cursors SET key = max(key, ?) WHERE consumer = ?", [(key, name) for name, key in cursors.items()]
    )


def prune_entries(connection: Connection) -> bool:
    """Delete one batch of the oldest entries that all consumers are past. Returns whether more remain."""
    (last,) = connection.execute("SELECT max(key) FROM entries").fetchone()
    if last is None:
        return False
    (first,) = connection.execute("SELECT min(key) FROM entries").fetchone()
    (floor,) = connection.execute("SELECT min(key) FROM cursors").fetchone()
    processed = last if floor is None else min(floor, last)
    until = min(processed, first + _PRUNE_BATCH - 1)
    connection.execute("DELETE FROM entries WHERE key <= ?", (until,))
    if until == last:
        connection.execute("UPDATE pruned SET key = ?", (last,))
    return bool(until < processed)
