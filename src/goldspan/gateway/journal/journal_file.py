"""Stores journal entries in an SQLite file: entries, tables, SQL, connections and checkpoints."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from operator import attrgetter
from pathlib import Path
from sqlite3 import Connection

from goldspan.errors import StoreError
from goldspan.gateway.resource_limits import ALL_PARTITIONS, EntryOrigin, Media, Signal
from goldspan.store.sqlite_files import COMMON_ADVICE, SqliteFormat, as_store_error, connect, open_for_writing

ENTRY_OVERHEAD_BYTES = 64
"""Bytes that each entry counts in addition to its body, so that empty bodies fill a journal too."""

_RECENT_BYTES = 16 * 2**20
_RECENT_ENTRIES = 1024
_PRUNE_BATCH = 256
PAGE_BYTES = 16384
"""Measured for bodies of 1 KB to 1 MB. Smaller pages make a large body cost more CPU, because it is a chain of pages.
Larger pages make a small body cost more, because a transaction writes some pages whole."""
_WAL_BYTES = 32 * 2**20
"""Size of the write-ahead log at which a checkpoint copies it into the file. Most entries are pruned before that, and
so are never written a second time."""
_PAGES_PER_TRANSACTION = 4
"""Pages that a transaction writes in addition to its rows: the roots of table and file, the free list, pointer maps."""
_CHECKPOINT_TIMEOUT_MS = 50
"""How long a checkpoint waits for readers. If it fails, it is retried after some more writes."""
_LOCK_TIMEOUT_MS = 5000
"""How long a transaction waits for transactions of other processes, which write cursors only."""
_MAX_FREE_BYTES = 64 * 2**20
"""Free bytes that the file keeps; more than that is released to the system."""
_DISK_RESERVE_BYTES = 4 * _WAL_BYTES
"""Free disk space that entries must leave. Pruning and checkpoints both write before they free anything, so on a full
disk a journal could never shrink again."""
_RELEASE_BATCH_PAGES = 256
"""Pages to release in one step. Releasing moves pages, and no entry is committed meanwhile."""


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


# --- tables and SQL ---------------------------------------------------------------------------------------------------

_TABLES = (
    # The one writing process assigns keys without gaps. SQLite reads a row from its beginning, so the columns that are
    # queried without the body precede it. `total` is the size of this entry and of all before it.
    """CREATE TABLE entries (
        key INTEGER PRIMARY KEY,
        size INTEGER NOT NULL,
        total INTEGER NOT NULL,
        signal TEXT NOT NULL,
        media TEXT NOT NULL,
        origin TEXT NOT NULL,
        partitions INTEGER NOT NULL,
        arrived_ns INTEGER NOT NULL,
        body BLOB NOT NULL
    )""",
    "CREATE TABLE cursors (consumer TEXT PRIMARY KEY, key INTEGER NOT NULL) WITHOUT ROWID",
    # The key of the last pruned entry, so that no key is reused. (AUTOINCREMENT would write one page more per commit.)
    "CREATE TABLE pruned (key INTEGER NOT NULL)",
    "INSERT INTO pruned VALUES (0)",
)
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


# --- the file ---------------------------------------------------------------------------------------------------------

_ERROR_ADVICE = {
    "file is not a database": "it is not an SQLite database; move it away, or name another data folder",
    "malformed": "it is damaged; move it away to continue with an empty journal (`sqlite3 FILE .recover` may recover "
    "entries that were not forwarded or scored yet)",
    "disk is full": "the disk is full; free some space",
    "locked": "another process holds a lock on it; only one gateway may use a data folder",
    "readonly database": "it cannot be written: file or folder is read-only",
    **COMMON_ADVICE,
    "disk I/O error": "the disk reports an error, or the file exceeds a size limit",
}
"""What to do about an error of SQLite, by words of its message."""


class JournalFile:
    """An SQLite file with a write-ahead log: one connection for writes, and a pool of connections for reads.

    The file is created if it does not exist. `is_owner` is False if another process writes the entries and runs the
    checkpoints. SQLite connections must not be used after a fork: spawn processes instead.
    """

    def __init__(self, path: Path, *, is_owner: bool) -> None:
        self.path = path
        self._file = path.absolute()
        self._is_owner = is_owner
        self._writer_lock = threading.Lock()
        self._readers_lock = threading.Lock()
        self._idle_readers: list[sqlite3.Connection] = []
        self._is_closed = False
        self._wal_bytes = 0
        self._checkpoint_at = _WAL_BYTES
        with explain_sqlite_errors(path):
            self._writer: sqlite3.Connection | None = self._open_writer()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Yield the writing connection in a transaction, which is rolled back on any error."""
        with self._writer_lock, explain_sqlite_errors(self.path):
            connection = self._ensure_writer()
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                # The state after a disk error is unknown: the next transaction opens a new connection.
                self._writer = None
                connection.close()  # rolls back
                raise

    @contextmanager
    def reader(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection for one query. Fetch all of its rows: an open query keeps the log from being reused."""
        with explain_sqlite_errors(self.path):
            with self._readers_lock:
                self._check_open()
                connection = self._idle_readers.pop() if self._idle_readers else None
            if connection is None:
                connection = connect(self._file, mode="ro", timeout=_LOCK_TIMEOUT_MS / 1000)
            try:
                yield connection
            except BaseException:
                connection.close()
                raise
            with self._readers_lock:
                if not self._is_closed:
                    self._idle_readers.append(connection)
                    return
            connection.close()

    def record_write(self, size: int, rows: int) -> None:
        """Count a transaction of this size, and run a checkpoint when the log is large enough.

        A checkpoint waits briefly for running queries. If they take longer, it is retried when the log has grown.
        """
        self._wal_bytes += size + PAGE_BYTES * (rows + _PAGES_PER_TRANSACTION)
        if self._wal_bytes < self._checkpoint_at:
            return
        self._checkpoint_at = self._wal_bytes + _WAL_BYTES // 4
        with self._writer_lock, explain_sqlite_errors(self.path):
            self._checkpoint(self._ensure_writer())

    def release_free_pages(self) -> bool:
        """Release a batch of surplus free pages to the system. Returns whether more may remain."""
        with explain_sqlite_errors(self.path):
            surplus = self._unused_pages() - _MAX_FREE_BYTES // PAGE_BYTES
            if surplus > 0:
                with self._writer_lock:
                    # As a script: `execute` would run it only as far as its rows are fetched.
                    self._ensure_writer().executescript(
                        f"PRAGMA incremental_vacuum({min(surplus, _RELEASE_BATCH_PAGES)})"
                    )
        return surplus > _RELEASE_BATCH_PAGES

    def has_disk_space(self, *, internal: bool = False) -> bool:
        """Return whether the disk has room for more entries, and after them for the log and for pruning.

        For goldspan's own entries (`internal`) half of the reserve is enough, because pruning depends on them.
        """
        reserve = _DISK_RESERVE_BYTES // 2 if internal else _DISK_RESERVE_BYTES
        with explain_sqlite_errors(self.path):
            free = shutil.disk_usage(self._file.parent).free
            return free >= reserve or free + self._unused_pages() * PAGE_BYTES >= reserve

    def close(self) -> None:
        """Close the writer and the idle readers; running queries close their own connection.

        The last connection to close checkpoints the log.
        """
        with self._readers_lock:
            self._is_closed = True
            for connection in self._idle_readers:
                connection.close()
            self._idle_readers.clear()
        with self._writer_lock:
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    def _ensure_writer(self) -> sqlite3.Connection:
        """Return the writing connection, and open a new one after a failure."""
        if self._writer is None:
            self._check_open()
            self._writer = self._open_writer()
            # The failure may have been a full disk: after a checkpoint the log is overwritten and needs no more space.
            with suppress(sqlite3.Error):
                self._checkpoint(self._writer)
        return self._writer

    def _unused_pages(self) -> int:
        with self.reader() as connection:
            return int(connection.execute("PRAGMA freelist_count").fetchone()[0])

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA busy_timeout = {_CHECKPOINT_TIMEOUT_MS}")
        (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        connection.execute(f"PRAGMA busy_timeout = {_LOCK_TIMEOUT_MS}")
        if not busy:
            self._wal_bytes, self._checkpoint_at = 0, _WAL_BYTES

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreError(f"{self.path}: the journal was closed")

    def _open_writer(self) -> sqlite3.Connection:
        connection = open_for_writing(
            self._file, _journal_format(), timeout=_LOCK_TIMEOUT_MS / 1000, display_path=self.path
        )
        # The owner runs checkpoints itself, after it has responded. Another process runs one only if the owner has
        # exited and the log keeps growing.
        pages = 0 if self._is_owner else 4 * _WAL_BYTES // PAGE_BYTES
        connection.execute(f"PRAGMA wal_autocheckpoint = {pages}")
        return connection


def explain_sqlite_errors(path: Path) -> AbstractContextManager[None]:
    """Convert errors of SQLite and the system into a `StoreError` that names the file and says what to do."""
    return as_store_error(path, _ERROR_ADVICE)


def _journal_format() -> SqliteFormat:
    return SqliteFormat(
        application_id=0x676F6C6A,  # `golj` in ASCII
        migrations=(_TABLES,),
        creation_pragmas=(f"page_size = {PAGE_BYTES}", "auto_vacuum = INCREMENTAL"),
        connection_pragmas=(
            "synchronous = FULL",  # a commit reaches the disk, not only the cache of the operating system
            # Some builds of SQLite overwrite deleted content by default, which doubles the CPU time of an entry. Here
            # pages are reused soon anyway.
            "secure_delete = OFF",
            f"journal_size_limit = {2 * _WAL_BYTES}",
        ),
        upgrade_hint="pip install --upgrade 'goldspan[server]', or move it away",
        foreign_hint="name another data folder",
    )
