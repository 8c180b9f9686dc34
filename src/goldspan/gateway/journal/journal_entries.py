"""The entries of a journal: what they are, and how they are written to its tables, read and pruned."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from operator import attrgetter
from sqlite3 import Connection

from goldspan.gateway.resource_limits import ALL_PARTITIONS, EntryOrigin, Media, Signal

ENTRY_OVERHEAD_BYTES = 64
"""What an entry counts for beside its body, so that empty bodies fill a journal too."""

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
    """What is to become an entry."""

    signal: Signal
    media: Media
    body: bytes
    origin: EntryOrigin = "received"
    partitions: int = ALL_PARTITIONS
    """Which partitions have to do with it: a bit for each, see `goldspan.gateway.resource_limits.partition_of`."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One request that was acknowledged, or one that goldspan made itself."""

    key: int
    """Counted from 1, in the order of being committed; never given twice."""
    signal: Signal
    media: Media
    origin: EntryOrigin
    partitions: int
    arrived_ns: int
    """When it was handed to the journal, in nanoseconds since the Unix epoch."""
    body: bytes


@dataclass(frozen=True, slots=True)
class EntryQuery:
    """Which entries are to be read; see `Journal.read`."""

    after_key: int
    max_bytes: int
    max_entries: int
    origins: frozenset[EntryOrigin] | None
    partitions: int

    def matches(self, entry: JournalEntry) -> bool:
        """Whether an entry behind `after` is one of them."""
        return (self.origins is None or entry.origin in self.origins) and (
            self.partitions == ALL_PARTITIONS or entry.partitions & self.partitions != 0
        )

    def limit(self, entries: Iterable[JournalEntry]) -> list[JournalEntry]:
        """Of entries that are wanted, as many as may be read at once."""
        found: list[JournalEntry] = []
        size = 0
        for entry in entries:
            found.append(entry)
            size += len(entry.body)
            if size >= self.max_bytes or len(found) >= self.max_entries:
                break
        return found


class RecentEntries:
    """The latest entries, in memory: consumers that keep up, which is most of the time, need not read the file."""

    def __init__(self, last_key: int) -> None:
        self._entries: deque[JournalEntry] = deque()
        self._size = 0
        self._key_before = last_key
        """The key before the first that is held."""

    def extend(self, added: Iterable[JournalEntry]) -> None:
        """Add entries that were committed, and let go of the first ones that are too much."""
        for entry in added:
            self._entries.append(entry)
            self._size += len(entry.body)
        while self._size > _RECENT_BYTES or len(self._entries) > _RECENT_ENTRIES:
            gone = self._entries.popleft()
            self._size -= len(gone.body)
            self._key_before = gone.key

    def select(self, entry_query: EntryQuery) -> list[JournalEntry] | None:
        """The next entries that are wanted; `None` where the first of them may be on disk only."""
        if entry_query.after_key < self._key_before:
            return None
        behind = islice(self._entries, entry_query.after_key - self._key_before, None)  # there are no gaps between keys
        return entry_query.limit(filter(entry_query.matches, behind))


@dataclass(frozen=True, slots=True)
class JournalBounds:
    """Where the entries begin and end."""

    last_key: int
    total_before: int
    """The `total` before the first entry."""
    total: int
    """The `total` of the last entry."""

    @property
    def size(self) -> int:
        """How many bytes the entries take, `ENTRY_BYTES` for each among them."""
        return self.total - self.total_before


def insert_entries(connection: Connection, added: Sequence[JournalEntry], bounds: JournalBounds) -> JournalBounds:
    """Add entries behind those that are there; where they end then."""
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
    """The next entries that are wanted."""
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
    """Where the entries begin and end."""
    return JournalBounds(*connection.execute(_SELECT_BOUNDS).fetchone())


def backlog_after(connection: Connection, key: int) -> tuple[int, int] | None:
    """How many bytes come after a key, and when the first of them came; `None` where there is nothing."""
    row: tuple[int, int] | None = connection.execute(_SELECT_BACKLOG, (key,)).fetchone()
    return row


def write_cursors(connection: Connection, cursors: Mapping[str, int]) -> None:
    """Move cursors forward, of consumers that are registered."""
    connection.executemany(
        "UPDATE cursors SET key = max(key, ?) WHERE consumer = ?", [(key, name) for name, key in cursors.items()]
    )


def prune_entries(connection: Connection) -> bool:
    """Delete the first entries that all consumers are past, but not too many at once; whether there are more."""
    (last,) = connection.execute("SELECT max(key) FROM entries").fetchone()
    if last is None:
        return False
    (first,) = connection.execute("SELECT min(key) FROM entries").fetchone()
    (floor,) = connection.execute("SELECT min(key) FROM cursors").fetchone()
    done = last if floor is None else min(floor, last)
    until = min(done, first + _PRUNE_BATCH - 1)
    connection.execute("DELETE FROM entries WHERE key <= ?", (until,))
    if until == last:
        connection.execute("UPDATE pruned SET key = ?", (last,))
    return bool(until < done)
