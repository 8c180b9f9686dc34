"""The entries of a journal: what they are, and how they are written to its tables, read and pruned."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from operator import attrgetter
from sqlite3 import Connection

from goldspan.gateway.signals import ALL_PARTITIONS, Media, Origin, Signal

ENTRY_BYTES = 64
"""What an entry counts for beside its body, so that empty bodies fill a journal too."""

_TAIL_BYTES = 16 * 2**20
_TAIL_ENTRIES = 1024
_PRUNED_AT_ONCE = 256
_INSERT = """INSERT INTO entries (key, size, total, signal, media, origin, partitions, arrived_ns, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_columns = attrgetter("signal", "media", "origin", "partitions", "arrived_ns", "body")
_SELECT = "SELECT key, signal, media, origin, partitions, arrived_ns, body FROM entries WHERE key > ?"
_EDGES = """SELECT
    coalesce((SELECT key FROM entries ORDER BY key DESC LIMIT 1), (SELECT key FROM pruned)),
    coalesce((SELECT total - size FROM entries ORDER BY key LIMIT 1), 0),
    coalesce((SELECT total FROM entries ORDER BY key DESC LIMIT 1), 0)"""
_BEHIND = """SELECT (SELECT total FROM entries ORDER BY key DESC LIMIT 1) - total + size, arrived_ns
FROM entries WHERE key > ? ORDER BY key LIMIT 1"""


@dataclass(frozen=True, slots=True)
class Item:
    """What is to become an entry."""

    signal: Signal
    media: Media
    body: bytes
    origin: Origin = "received"
    partitions: int = ALL_PARTITIONS
    """Which partitions have to do with it: a bit for each, see `goldspan.gateway.signals.partition_of`."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One request that was acknowledged, or one that goldspan made itself."""

    key: int
    """Counted from 1, in the order of being committed; never given twice."""
    signal: Signal
    media: Media
    origin: Origin
    partitions: int
    arrived_ns: int
    """When it was handed to the journal, in nanoseconds since the Unix epoch."""
    body: bytes


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which entries are to be read; see `Journal.read`."""

    after: int
    max_bytes: int
    max_entries: int
    origins: frozenset[Origin] | None
    partitions: int

    def includes(self, entry: Entry) -> bool:
        """Whether an entry behind `after` is one of them."""
        return (self.origins is None or entry.origin in self.origins) and (
            self.partitions == ALL_PARTITIONS or entry.partitions & self.partitions != 0
        )

    def first(self, entries: Iterable[Entry]) -> list[Entry]:
        """Of entries that are wanted, as many as may be read at once."""
        found: list[Entry] = []
        size = 0
        for entry in entries:
            found.append(entry)
            size += len(entry.body)
            if size >= self.max_bytes or len(found) >= self.max_entries:
                break
        return found


class Tail:
    """The latest entries, in memory: consumers that keep up, which is most of the time, need not read the file."""

    def __init__(self, last_key: int) -> None:
        self._entries: deque[Entry] = deque()
        self._size = 0
        self._before = last_key
        """The key before the first that is held."""

    def extend(self, added: Iterable[Entry]) -> None:
        """Add entries that were committed, and let go of the first ones that are too much."""
        for entry in added:
            self._entries.append(entry)
            self._size += len(entry.body)
        while self._size > _TAIL_BYTES or len(self._entries) > _TAIL_ENTRIES:
            gone = self._entries.popleft()
            self._size -= len(gone.body)
            self._before = gone.key

    def select(self, wanted: Wanted) -> list[Entry] | None:
        """The next entries that are wanted; `None` where the first of them may be on disk only."""
        if wanted.after < self._before:
            return None
        behind = islice(self._entries, wanted.after - self._before, None)  # there are no gaps between keys
        return wanted.first(filter(wanted.includes, behind))


@dataclass(frozen=True, slots=True)
class Edges:
    """Where the entries begin and end."""

    last_key: int
    before: int
    """The `total` before the first entry."""
    total: int
    """The `total` of the last entry."""

    @property
    def size(self) -> int:
        """How many bytes the entries take, `ENTRY_BYTES` for each among them."""
        return self.total - self.before


def insert(connection: Connection, added: Sequence[Entry], edges: Edges) -> Edges:
    """Add entries behind those that are there; where they end then."""
    totals = list(accumulate((len(entry.body) + ENTRY_BYTES for entry in added), initial=edges.total))
    connection.executemany(
        _INSERT,
        [
            (entry.key, total - before, total, *_columns(entry))
            for entry, (before, total) in zip(added, pairwise(totals), strict=True)
        ],
    )
    return Edges(added[-1].key, edges.before, totals[-1])


def select(connection: Connection, wanted: Wanted) -> list[Entry]:
    """The next entries that are wanted."""
    query = _SELECT
    if wanted.origins is not None:
        query += f" AND origin IN ({', '.join(map(repr, sorted(wanted.origins)))})"
    if wanted.partitions != ALL_PARTITIONS:
        query += f" AND partitions & {wanted.partitions:d}"
    rows = connection.execute(f"{query} ORDER BY key LIMIT {wanted.max_entries:d}", (wanted.after,))
    found = wanted.first(Entry(*row) for row in rows)
    rows.close()
    return found


def edges(connection: Connection) -> Edges:
    """Where the entries begin and end."""
    return Edges(*connection.execute(_EDGES).fetchone())


def behind(connection: Connection, key: int) -> tuple[int, int] | None:
    """How many bytes come after a key, and when the first of them came; `None` where there is nothing."""
    row: tuple[int, int] | None = connection.execute(_BEHIND, (key,)).fetchone()
    return row


def write_cursors(connection: Connection, cursors: Mapping[str, int]) -> None:
    """Move cursors forward, of consumers that are registered."""
    connection.executemany(
        "UPDATE cursors SET key = max(key, ?) WHERE consumer = ?", [(key, name) for name, key in cursors.items()]
    )


def prune(connection: Connection) -> bool:
    """Delete the first entries that all consumers are past, but not too many at once; whether there are more."""
    (last,) = connection.execute("SELECT max(key) FROM entries").fetchone()
    if last is None:
        return False
    (first,) = connection.execute("SELECT min(key) FROM entries").fetchone()
    (floor,) = connection.execute("SELECT min(key) FROM cursors").fetchone()
    done = last if floor is None else min(floor, last)
    until = min(done, first + _PRUNED_AT_ONCE - 1)
    connection.execute("DELETE FROM entries WHERE key <= ?", (until,))
    if until == last:
        connection.execute("UPDATE pruned SET key = ?", (last,))
    return bool(until < done)
