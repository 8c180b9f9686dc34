"""What was received and is not yet done with, on disk: a request is acknowledged when it is in here.

Behind it are consumers, each with a cursor of its own. An entry is kept until all of them are past it.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from goldspan import _guard
from goldspan.errors import GoldspanError, StoreError
from goldspan.gateway.journal.journal_entries import (
    ENTRY_OVERHEAD_BYTES,
    EntryQuery,
    JournalBounds,
    JournalEntry,
    NewEntry,
    RecentEntries,
    backlog_after,
    insert_entries,
    prune_entries,
    read_bounds,
    select_entries,
    write_cursors,
)
from goldspan.gateway.journal.journal_file import JournalFile
from goldspan.gateway.resource_limits import ALL_PARTITIONS, SCORED_ORIGINS, EntryOrigin, Media, Signal

_COMMIT_BYTES = 16 * 2**20
_COMMIT_ENTRIES = 1024
"""What is written in one transaction at most (or one request), so that nobody waits for a very long one."""
_QUEUE_BYTES = 64 * 2**20
"""What may wait in memory for the transaction before it."""
_MAINTENANCE_SECONDS = 0.5
_MAINTENANCE_BYTES = 8 * 2**20
"""Cursors are written and entries pruned after so many seconds, or when so much has come: pages that are soon reused
are written to the log only."""
_POLL_SECONDS = 0.1
"""Seconds between looks into the file of another process."""


class JournalFull(GoldspanError):  # noqa: N818 - an answer to whoever would add to it, and no fault
    """The journal takes no more until its consumers are past some of it; trying again later helps."""


@dataclass(frozen=True, slots=True)
class _PendingAppend:
    """Items that become entries in one transaction."""

    entries: Sequence[NewEntry]
    size: int
    arrived_ns: int
    to_result: Callable[[range], object]
    """What whoever waits for it is told of the keys."""
    future: Future[Any]


class Journal:
    """One SQLite file to which one process adds entries; any number of its threads may use it.

    A thread of its own writes whatever came while it was writing before, in one transaction that is synced to the
    disk. With `attach`, another process adds the entries: then this one reads and advances. Entries of clients are not
    added where all take more than `max_bytes` then, with `ENTRY_BYTES` for each. `clock` tells nanoseconds since the
    Unix epoch.

    Raises `StoreError` where the file is no journal, is damaged, of a newer goldspan, or cannot be written; all
    methods do so when the disk fails them. Processes that use a journal must be spawned, not forked.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_bytes: int,
        attach: bool = False,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._file = JournalFile(Path(path), is_owner=not attach)
        self._max_bytes = max_bytes
        self._is_attached = attach
        self._clock = clock
        lock = threading.Lock()
        self._filled = threading.Condition(lock)
        self._committed = threading.Condition(lock)
        self._pending_appends: deque[_PendingAppend] = deque()
        self._queued_bytes = 0
        self._pending_cursors: dict[str, int] = {}
        self._has_consumers = False
        self._refuses_appends = False
        """Whether the latest request found no room, which an empty journal would have had for it."""
        self._needs_maintenance = False
        """Whether there is more to prune, or more room to give back."""
        self._is_closing = False
        self._bounds = self._read_bounds()
        self._recent = RecentEntries(self._bounds.last_key)
        self._thread = threading.Thread(target=self._run, name="goldspan-journal", daemon=True)
        self._thread.start()

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    @property
    def last_key(self) -> int:
        """The key of the latest entry; 0 before the first."""
        return self._current_bounds().last_key

    @property
    def size(self) -> int:
        """How many bytes the entries take that are kept, `ENTRY_BYTES` for each among them."""
        return self._current_bounds().size

    def append(
        self,
        signal: Signal,
        media: Media,
        body: bytes,
        *,
        origin: EntryOrigin = "received",
        partitions: int = ALL_PARTITIONS,
    ) -> Future[int]:
        """Add an entry: its key, once it is on disk.

        Raises `JournalFull` at once where there is no room. The future fails with `JournalFull` where the disk is
        almost full, and with `StoreError` where it refuses.
        To cancel the future prevents the entry, unless it is being written.
        """
        done: Future[int] = Future()
        self._enqueue([NewEntry(signal, media, body, origin, partitions)], itemgetter(0), done)
        return done

    def append_all(self, items: Sequence[NewEntry]) -> Future[list[int]]:
        """Add several entries, all of them or none: their keys. Otherwise the same as `append`."""
        done: Future[list[int]] = Future()
        if items:
            self._enqueue(items, list, done)
        else:
            done.set_result([])
        return done

    def read(
        self,
        after_key: int,
        *,
        max_bytes: int = 8 * 2**20,
        max_entries: int = 256,
        origins: frozenset[EntryOrigin] | None = None,
        partitions: int = ALL_PARTITIONS,
    ) -> list[JournalEntry]:
        """The next entries after this key, in their order: of these origins, and having to do with these partitions.

        It stops with the entry that makes it `max_bytes` of bodies. Where nothing comes back, a consumer is past the
        `last_key` that it asked for before.
        """
        wanted = EntryQuery(after_key, max_bytes, max_entries, origins, partitions)
        if not self._is_attached:
            with self._filled:
                found = self._recent.select(wanted)
            if found is not None:
                return found
        with self._file.reader() as connection:
            return select_entries(connection, wanted)

    def wait(self, after_key: int, timeout: float) -> bool:
        """Wait so many seconds for an entry with a greater key; whether there is one. `close` ends it."""
        until = time.monotonic() + timeout
        while not self._is_closing:
            if self.last_key > after_key:
                return True
            left = until - time.monotonic()
            if left <= 0:
                return False
            with self._committed:
                self._committed.wait_for(
                    lambda: self._is_closing or self._bounds.last_key > after_key,
                    min(left, _POLL_SECONDS) if self._is_attached else left,
                )
        return False

    def cursor(self, consumer: str) -> int | None:
        """The key up to which a consumer is done with everything; `None` for one that is not registered."""
        with self._file.reader() as connection:
            row = connection.execute("SELECT key FROM cursors WHERE consumer = ?", (consumer,)).fetchone()
        return max(row[0], self._pending_cursors.get(consumer, 0)) if row else None

    def advance(self, cursors: Mapping[str, int]) -> None:
        """Note that consumers are done with everything up to these keys; a cursor never goes back.

        It is on disk within about a second, and after `close`. What is of consumers that are not registered is dropped.
        """
        with self._filled:
            for consumer, key in cursors.items():
                self._pending_cursors[consumer] = max(key, self._pending_cursors.get(consumer, 0))

    def register_consumers(self, names: Collection[str], *, starts_at_end: Callable[[str], bool]) -> None:
        """Register exactly these consumers: the others are forgotten, and until this was called nothing is pruned.

        One that is new begins with the entries that are kept, or after them where `starts_at_end` says so. For the
        process that adds the entries.
        """
        with self._file.transaction() as connection:
            kept = {name for (name,) in connection.execute("SELECT consumer FROM cursors")}
            gone = [(name,) for name in kept.difference(names)]
            fresh = [(name, self.last_key if starts_at_end(name) else 0) for name in names if name not in kept]
            connection.executemany("DELETE FROM cursors WHERE consumer = ?", gone)
            connection.executemany("INSERT INTO cursors (consumer, key) VALUES (?, ?)", fresh)
        self._has_consumers = True

    def full_reason(self) -> str | None:
        """Why it takes no more now, in words for people; `None` where it does."""
        if self._refuses_appends or self.size >= self._max_bytes:
            return "the journal is full (max_journal_bytes): see which back end is away, or what scoring waits for"
        return None if self._file.has_disk_space() else "the disk is almost full"

    def size_after(self, key: int) -> int:
        """How many bytes the entries after this key take, counted as in `size`."""
        with self._file.reader() as connection:
            waiting = backlog_after(connection, key)
        return 0 if waiting is None else waiting[0]

    def backlog(self, consumer: str) -> tuple[int, float]:
        """How many bytes a consumer is not done with, counted as in `size`, and for how many seconds the oldest waits.

        What is of no interest to it counts too, until it is past it.
        """
        key = self.cursor(consumer) or 0
        with self._file.reader() as connection:
            waiting = backlog_after(connection, key)
        if waiting is None:
            return 0, 0.0
        size, arrived_ns = waiting
        return size, max(self._clock() - arrived_ns, 0) / 1e9

    def close(self, timeout: float = 5.0) -> None:
        """Commit what waits, write the cursors, and close the file; after so many seconds it is left to the thread."""
        with self._filled:
            self._is_closing = True
            self._filled.notify()
            self._committed.notify_all()
        self._thread.join(timeout)

    def _enqueue(self, items: Sequence[NewEntry], answer: Callable[[range], object], done: Future[Any]) -> None:
        size = sum(len(item.body) + ENTRY_OVERHEAD_BYTES for item in items)
        waiting = _PendingAppend(items, size, self._clock(), answer, done)
        with self._filled:
            if self._is_closing or self._is_attached:
                reason = "another process adds its entries" if self._is_attached else "the journal was closed"
                raise StoreError(f"{self.path}: {reason}")
            # What was acknowledged is let go when it was scored, and for what comes of it there must be room.
            full = items[0].origin in SCORED_ORIGINS and self._bounds.size + self._queued_bytes + size > self._max_bytes
            if items[0].origin in SCORED_ORIGINS:
                self._refuses_appends = full and size <= self._max_bytes
            if full:
                raise JournalFull(
                    f"{self.path}: {self._bounds.size:,} bytes wait for a back end or for scoring, and the journal "
                    f"takes {self._max_bytes:,}; see what keeps them, or raise max_journal_bytes"
                )
            if self._queued_bytes and self._queued_bytes + size > _QUEUE_BYTES:
                raise JournalFull(f"{self.path}: the disk is slower than what comes in")
            self._pending_appends.append(waiting)
            self._queued_bytes += size
            self._filled.notify()

    def _current_bounds(self) -> JournalBounds:
        return self._read_bounds() if self._is_attached else self._bounds

    def _read_bounds(self) -> JournalBounds:
        with self._file.reader() as connection:
            return read_bounds(connection)

    def _run(self) -> None:
        """What the thread does: commit, answer, and keep the file in order, until it is closed and nothing waits."""
        tick = time.monotonic() + _MAINTENANCE_SECONDS
        came = 0
        while True:
            batch = self._next_batch(tick)
            if batch:
                self._commit(batch)
                came += sum(waiting.size for waiting in batch)
            closing = self._is_closing and not self._pending_appends
            if closing or came >= _MAINTENANCE_BYTES or time.monotonic() >= tick:
                self._maintain()
                came, tick = 0, time.monotonic() + (0 if self._needs_maintenance else _MAINTENANCE_SECONDS)
            if closing:
                break
        self._file.close()

    def _next_batch(self, until: float) -> list[_PendingAppend]:
        """What waits, but not too much at once; nothing where nothing came until then."""
        batch: list[_PendingAppend] = []
        size = items = 0
        with self._filled:
            self._filled.wait_for(lambda: self._pending_appends or self._is_closing, max(until - time.monotonic(), 0))
            while self._pending_appends and size < _COMMIT_BYTES and items < _COMMIT_ENTRIES:
                waiting = self._pending_appends.popleft()
                self._queued_bytes -= waiting.size
                if waiting.future.set_running_or_notify_cancel():
                    batch.append(waiting)
                    size += waiting.size
                    items += len(waiting.entries)
        return batch

    def _commit(self, batch: Sequence[_PendingAppend]) -> None:
        """Write entries to the disk, and tell whoever waits for them."""
        first = self._bounds.last_key + 1
        added = [
            JournalEntry(key, item.signal, item.media, item.origin, item.partitions, arrived_ns, item.body)
            for key, (arrived_ns, item) in enumerate(
                ((waiting.arrived_ns, item) for waiting in batch for item in waiting.entries), start=first
            )
        ]
        try:
            if not self._file.has_disk_space(internal=all(entry.origin not in SCORED_ORIGINS for entry in added)):
                raise JournalFull(f"{self.path}: the disk is almost full; make room, or lower max_journal_bytes")
            with self._file.transaction() as connection:
                edges = insert_entries(connection, added, self._bounds)
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait for an answer must hear of it
            for waiting in batch:
                waiting.future.set_exception(error)
            return
        with self._committed:
            self._bounds = edges
            self._recent.extend(added)
            self._committed.notify_all()
        for waiting in batch:
            waiting.future.set_result(waiting.to_result(range(first, first + len(waiting.entries))))
            first += len(waiting.entries)
        with suppress(StoreError):  # the next commit says so, to somebody whom it concerns
            self._file.record_write(sum(waiting.size for waiting in batch), len(added))

    def _maintain(self) -> None:
        """Write the cursors, prune what all consumers are past, give room back; of the last two only so much."""
        with self._filled:
            advanced = dict(self._pending_cursors)
        if not (advanced or self._needs_maintenance or (self._has_consumers and self._bounds.size)):
            return
        self._needs_maintenance = False
        try:
            with self._file.transaction() as connection:
                write_cursors(connection, advanced)
                self._needs_maintenance = self._has_consumers and prune_entries(connection)
                edges = read_bounds(connection)
            with self._filled:
                self._refuses_appends &= edges.size >= self._bounds.size
                self._bounds = edges
                for consumer, key in advanced.items():
                    if self._pending_cursors[consumer] == key:
                        del self._pending_cursors[consumer]
            if self._has_consumers:
                self._file.record_write(0, 0)
                self._needs_maintenance |= self._file.release_free_pages()
        except StoreError as error:
            _guard.report_error("keep the journal in order", error, with_traceback=False)
