"""The write-ahead journal of received requests: appends entries in groups and tracks its consumers.

A receiver acknowledges a request once its entry is committed. Each consumer (a back end, scoring) has its own cursor.
The journal keeps an entry until the cursors of all consumers are past it.
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
from goldspan.gateway.journal.journal_file import (
    ENTRY_OVERHEAD_BYTES,
    EntryQuery,
    JournalBounds,
    JournalEntry,
    JournalFile,
    NewEntry,
    RecentEntries,
    backlog_after,
    insert_entries,
    prune_entries,
    read_bounds,
    select_entries,
    write_cursors,
)
from goldspan.gateway.resource_limits import ALL_PARTITIONS, SCORED_ORIGINS, EntryOrigin, Media, Signal

_COMMIT_BYTES = 16 * 2**20
_COMMIT_ENTRIES = 1024
"""Maximum of one transaction, so that no caller waits for a very long one. A larger single append is still accepted."""
_QUEUE_BYTES = 64 * 2**20
"""Maximum bytes that wait in memory while the previous transaction is written."""
_MAINTENANCE_SECONDS = 0.5
_MAINTENANCE_BYTES = 8 * 2**20
"""Maintenance writes cursors and prunes entries after this time or this many appended bytes, whichever comes first.
SQLite writes pages that are reused soon to the write-ahead log only."""
_POLL_SECONDS = 0.1
"""Seconds between reads of a file to which another process appends."""


class JournalFull(GoldspanError):  # noqa: N818 - a response to the caller, not an error
    """The journal rejects an append until its consumers have advanced. The caller can retry later."""


@dataclass(frozen=True, slots=True)
class _PendingAppend:
    """Entries to append in one transaction."""

    entries: Sequence[NewEntry]
    size: int
    arrived_ns: int
    to_result: Callable[[range], object]
    """Makes the result of the future from the keys of the entries."""
    future: Future[Any]


class Journal:
    """One SQLite file to which one process appends entries. All methods are thread-safe.

    A background thread commits all entries that arrived during its previous transaction in one transaction, and syncs
    it to the disk. Processes that use a journal must be spawned, not forked.

    Args:
        path: The file. It is created if it does not exist.
        max_bytes: Entries of clients are rejected if all entries would take more bytes than this, with
            `ENTRY_OVERHEAD_BYTES` for each.
        attach: Whether another process appends the entries. This one then only reads and advances cursors.
        clock: Returns nanoseconds since the Unix epoch.

    Raises:
        StoreError: The file is not a journal, is damaged, was written by a newer goldspan, or cannot be written.
            All methods raise it when the disk fails.
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
        """Whether the latest request was rejected although an empty journal could hold it."""
        self._needs_maintenance = False
        """Whether more entries can be pruned, or more free pages released."""
        self._is_closing = False
        self._bounds = self._read_bounds()
        self._recent = RecentEntries(self._bounds.last_key)
        self._thread = threading.Thread(target=self._run, name="goldspan-journal", daemon=True)
        self._thread.start()

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self._file.path

    @property
    def last_key(self) -> int:
        """The key of the latest entry; 0 before the first."""
        return self._current_bounds().last_key

    @property
    def size(self) -> int:
        """The bytes of all stored entries, including `ENTRY_OVERHEAD_BYTES` for each."""
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
        """Append an entry. The future resolves to its key once the entry is on disk.

        The future fails with `JournalFull` if the disk is almost full, and with `StoreError` if writing fails.
        Cancelling the future prevents the entry, unless its transaction has begun.

        Args:
            signal: The OTLP signal of the body.
            media: The encoding of the body.
            body: The export request.
            origin: Where the entry comes from.
            partitions: The partitions that the entry concerns, as a bit set.

        Raises:
            JournalFull: The journal has no room.
        """
        done: Future[int] = Future()
        self._enqueue([NewEntry(signal, media, body, origin, partitions)], itemgetter(0), done)
        return done

    def append_all(self, items: Sequence[NewEntry]) -> Future[list[int]]:
        """Append several entries, all or none. The future resolves to their keys; it fails as in `append`."""
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
        """Return the next entries after a key, in order.

        An empty result means that no entry matches up to the `last_key` that the caller read before this call.

        Args:
            after_key: The key after which to begin.
            max_bytes: The result ends with the entry whose body reaches this total.
            max_entries: The maximum number of entries.
            origins: Only entries of these origins; `None` for all.
            partitions: Only entries that concern one of these partitions, as a bit set.
        """
        query = EntryQuery(after_key, max_bytes, max_entries, origins, partitions)
        if not self._is_attached:
            with self._filled:
                found = self._recent.select(query)
            if found is not None:
                return found
        with self._file.reader() as connection:
            return select_entries(connection, query)

    def wait(self, after_key: int, timeout: float) -> bool:
        """Wait until there is an entry with a greater key. Returns False after `timeout` seconds or `close`."""
        deadline = time.monotonic() + timeout
        while not self._is_closing:
            if self.last_key > after_key:
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            with self._committed:
                self._committed.wait_for(
                    lambda: self._is_closing or self._bounds.last_key > after_key,
                    min(left, _POLL_SECONDS) if self._is_attached else left,
                )
        return False

    def cursor(self, consumer: str) -> int | None:
        """Return the key up to which a consumer has processed all entries, or `None` if it is not registered."""
        with self._file.reader() as connection:
            row = connection.execute("SELECT key FROM cursors WHERE consumer = ?", (consumer,)).fetchone()
        return max(row[0], self._pending_cursors.get(consumer, 0)) if row else None

    def advance(self, cursors: Mapping[str, int]) -> None:
        """Record that consumers have processed all entries up to these keys. A cursor never moves back.

        The cursors are on disk within about a second, and after `close`. Those of unregistered consumers are dropped.
        """
        with self._filled:
            for consumer, key in cursors.items():
                self._pending_cursors[consumer] = max(key, self._pending_cursors.get(consumer, 0))

    def register_consumers(self, names: Collection[str], *, starts_at_end: Callable[[str], bool]) -> None:
        """Register exactly these consumers, and delete the cursors of all others.

        The journal prunes nothing before this call. A new consumer starts at the oldest stored entry, or after the
        latest one if `starts_at_end` returns True for it. Only the process that appends entries calls this.
        """
        with self._file.transaction() as connection:
            registered = {name for (name,) in connection.execute("SELECT consumer FROM cursors")}
            removed = [(name,) for name in registered.difference(names)]
            added = [(name, self.last_key if starts_at_end(name) else 0) for name in names if name not in registered]
            connection.executemany("DELETE FROM cursors WHERE consumer = ?", removed)
            connection.executemany("INSERT INTO cursors (consumer, key) VALUES (?, ?)", added)
        self._has_consumers = True

    def full_reason(self) -> str | None:
        """Return why the journal rejects appends now, as a message for users; `None` if it accepts them."""
        if self._refuses_appends or self.size >= self._max_bytes:
            return (
                "the journal is full (max_journal_bytes): check which back end is unavailable, or why scoring is behind"
            )
        return None if self._file.has_disk_space() else "the disk is almost full"

    def size_after(self, key: int) -> int:
        """Return the bytes of the entries after this key, counted as in `size`."""
        with self._file.reader() as connection:
            waiting = backlog_after(connection, key)
        return 0 if waiting is None else waiting[0]

    def backlog(self, consumer: str) -> tuple[int, float]:
        """Return the unprocessed bytes of a consumer, counted as in `size`, and their maximum age in seconds.

        Entries that the consumer will skip count too, until its cursor is past them.
        """
        key = self.cursor(consumer) or 0
        with self._file.reader() as connection:
            waiting = backlog_after(connection, key)
        if waiting is None:
            return 0, 0.0
        size, arrived_ns = waiting
        return size, max(self._clock() - arrived_ns, 0) / 1e9

    def close(self, timeout: float = 5.0) -> None:
        """Commit pending entries, write the cursors and close the file; wait up to `timeout` seconds for that."""
        with self._filled:
            self._is_closing = True
            self._filled.notify()
            self._committed.notify_all()
        self._thread.join(timeout)

    def _enqueue(self, items: Sequence[NewEntry], to_result: Callable[[range], object], done: Future[Any]) -> None:
        size = sum(len(item.body) + ENTRY_OVERHEAD_BYTES for item in items)
        pending = _PendingAppend(items, size, self._clock(), to_result, done)
        with self._filled:
            if self._is_closing or self._is_attached:
                reason = "another process appends its entries" if self._is_attached else "the journal was closed"
                raise StoreError(f"{self.path}: {reason}")
            # The limit applies to clients only: acknowledged spans can be pruned only once they are scored, and
            # goldspan's own results need room for that.
            full = items[0].origin in SCORED_ORIGINS and self._bounds.size + self._queued_bytes + size > self._max_bytes
            if items[0].origin in SCORED_ORIGINS:
                self._refuses_appends = full and size <= self._max_bytes
            if full:
                raise JournalFull(
                    f"{self.path}: {self._bounds.size:,} bytes are pending for a back end or for scoring; the limit "
                    f"is {self._max_bytes:,}; check which of them is behind, or raise max_journal_bytes"
                )
            if self._queued_bytes and self._queued_bytes + size > _QUEUE_BYTES:
                raise JournalFull(f"{self.path}: the disk is too slow for the incoming requests")
            self._pending_appends.append(pending)
            self._queued_bytes += size
            self._filled.notify()

    def _current_bounds(self) -> JournalBounds:
        return self._read_bounds() if self._is_attached else self._bounds

    def _read_bounds(self) -> JournalBounds:
        with self._file.reader() as connection:
            return read_bounds(connection)

    def _run(self) -> None:
        """Commit batches and maintain the file until the journal is closed and nothing is pending."""
        next_maintenance = time.monotonic() + _MAINTENANCE_SECONDS
        appended_bytes = 0
        while True:
            batch = self._next_batch(next_maintenance)
            if batch:
                self._commit(batch)
                appended_bytes += sum(pending.size for pending in batch)
            closing = self._is_closing and not self._pending_appends
            if closing or appended_bytes >= _MAINTENANCE_BYTES or time.monotonic() >= next_maintenance:
                self._maintain()
                appended_bytes = 0
                next_maintenance = time.monotonic() + (0 if self._needs_maintenance else _MAINTENANCE_SECONDS)
            if closing:
                break
        self._file.close()

    def _next_batch(self, deadline: float) -> list[_PendingAppend]:
        """Return pending appends for one transaction; an empty list if none arrive before the deadline."""
        batch: list[_PendingAppend] = []
        size = items = 0
        with self._filled:
            self._filled.wait_for(
                lambda: self._pending_appends or self._is_closing, max(deadline - time.monotonic(), 0)
            )
            while self._pending_appends and size < _COMMIT_BYTES and items < _COMMIT_ENTRIES:
                pending = self._pending_appends.popleft()
                self._queued_bytes -= pending.size
                if pending.future.set_running_or_notify_cancel():
                    batch.append(pending)
                    size += pending.size
                    items += len(pending.entries)
        return batch

    def _commit(self, batch: Sequence[_PendingAppend]) -> None:
        """Commit entries and resolve their futures."""
        first = self._bounds.last_key + 1
        added = [
            JournalEntry(key, item.signal, item.media, item.origin, item.partitions, arrived_ns, item.body)
            for key, (arrived_ns, item) in enumerate(
                ((pending.arrived_ns, item) for pending in batch for item in pending.entries), start=first
            )
        ]
        try:
            if not self._file.has_disk_space(internal=all(entry.origin not in SCORED_ORIGINS for entry in added)):
                raise JournalFull(f"{self.path}: the disk is almost full; free some space, or lower max_journal_bytes")
            with self._file.transaction() as connection:
                bounds = insert_entries(connection, added, self._bounds)
        except Exception as error:  # noqa: BLE001 - the waiting callers must get any error
            for pending in batch:
                pending.future.set_exception(error)
            return
        with self._committed:
            self._bounds = bounds
            self._recent.extend(added)
            self._committed.notify_all()
        for pending in batch:
            pending.future.set_result(pending.to_result(range(first, first + len(pending.entries))))
            first += len(pending.entries)
        with suppress(StoreError):  # the next commit fails too, and reports it to its callers
            self._file.record_write(sum(pending.size for pending in batch), len(added))

    def _maintain(self) -> None:
        """Write the cursors, prune a batch of processed entries and release a batch of free pages."""
        with self._filled:
            advanced = dict(self._pending_cursors)
        if not (advanced or self._needs_maintenance or (self._has_consumers and self._bounds.size)):
            return
        self._needs_maintenance = False
        try:
            with self._file.transaction() as connection:
                write_cursors(connection, advanced)
                self._needs_maintenance = self._has_consumers and prune_entries(connection)
                bounds = read_bounds(connection)
            with self._filled:
                self._refuses_appends &= bounds.size >= self._bounds.size
                self._bounds = bounds
                for consumer, key in advanced.items():
                    if self._pending_cursors[consumer] == key:
                        del self._pending_cursors[consumer]
            if self._has_consumers:
                self._file.record_write(0, 0)
                self._needs_maintenance |= self._file.release_free_pages()
        except StoreError as error:
            _guard.report_error("maintain the journal", error, with_traceback=False)
