"""The log of one partition of a Kafka topic, which scoring reads like a journal.

The key of an entry is the offset of its message plus one, so that an acknowledged position is the offset to commit.
"""

from __future__ import annotations

import json
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from goldspan.gateway.journal.journal_file import JournalEntry
from goldspan.gateway.scoring.telemetry_log import MAX_READ_BYTES, LogBatch


@dataclass(frozen=True, slots=True)
class CommitPoint:
    """A committed offset, with what the next worker must know of the worker before it."""

    position: int
    """The offset: the results of all messages before it are stored."""
    context_start: int
    """The offset from which to read, to know the traces that were scored and have later messages too."""
    read: int
    """The offset up to which the worker had read. Traces may have been scored up to there."""

    @property
    def metadata(self) -> str:
        """The metadata of the commit."""
        return json.dumps({"goldspan": 1, "context": self.context_start, "read": self.read})

    @classmethod
    def parse(cls, position: int, metadata: str | None) -> CommitPoint:
        """Returns the point of a committed offset; also of one that another program committed."""
        try:
            values: Any = json.loads(metadata or "")
            context, read = int(values["context"]), int(values["read"])
        except (ValueError, KeyError, TypeError):
            return cls(position, position, position)
        return cls(position, min(max(context, 0), position), max(read, position))


class EntryCache:
    """Keeps the latest entries of all partitions of a worker, to read them again without the broker."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[tuple[int, int], JournalEntry] = OrderedDict()

    def add(self, partition: int, entry: JournalEntry) -> None:
        """Add an entry, and remove the oldest ones."""
        if (partition, entry.key) in self._entries:
            return
        self._entries[partition, entry.key] = entry
        self._bytes += len(entry.body)
        while self._bytes > self._max_bytes:
            _, removed = self._entries.popitem(last=False)
            self._bytes -= len(removed.body)

    def get(self, partition: int, key: int) -> JournalEntry | None:
        """Returns an entry that is still kept."""
        return self._entries.get((partition, key))


class PartitionLog:
    """The messages of one partition, in their order. The receiver adds them, and scoring reads them.

    `read_again` reads a single message from the broker; it may raise `StoreError`.
    """

    needs_context = True
    exports_held_entries = False

    def __init__(
        self,
        partition: int,
        point: CommitPoint,
        *,
        cache: EntryCache,
        read_again: Callable[[int, int], JournalEntry | None],
    ) -> None:
        self.partition = partition
        self.start, self.context_start, self.replay_end = point.position, point.context_start, point.read
        self.acknowledged = point.position
        """The offset to commit."""
        self.position = point.context_start
        """The offset of the next message."""
        self.end = point.position
        """The offset after the last message of the partition, as far as it is known."""
        self.is_at_end = False
        """Whether the broker reported that no message follows the ones that were added."""
        self.is_current = True
        """Whether that still holds: false if the client may have received messages since then."""
        self._pending: deque[JournalEntry] = deque()
        self._cache = cache
        self._read_again = read_again
        self._bytes = self._messages = 0

    # --- called by the receiver --------------------------------------------------------------------------------------

    def add(self, offset: int, entry: JournalEntry | None) -> None:
        """Add the message at an offset; without an entry if nothing of it is scored."""
        self.position = offset + 1
        self.is_at_end = False
        if entry is not None:
            self._pending.append(entry)
            self._cache.add(self.partition, entry)
            self._bytes += len(entry.body)
            self._messages += 1

    def reach_end(self, offset: int) -> None:
        """Record that no message follows before this offset."""
        self.position = max(self.position, offset)
        self.is_at_end = True

    @property
    def lag(self) -> int:
        """The number of messages that were not read yet."""
        return max(0, self.end - self.position)

    # --- called by scoring -------------------------------------------------------------------------------------------

    def owns(self, partition: int) -> bool:
        """Whether a trace is scored here: all traces of the partition are."""
        return True

    def read(self, after: int) -> LogBatch:
        """Returns the messages that were added since the last call."""
        entries: list[JournalEntry] = []
        size = 0
        while self._pending and size < MAX_READ_BYTES:
            entries.append(self._pending.popleft())
            size += len(entries[-1].body)
        position = entries[-1].key if self._pending else max(after, self.position)
        return LogBatch(entries, position, is_behind=bool(self._pending) or not (self.is_at_end and self.is_current))

    def read_entry(self, key: int) -> JournalEntry | None:
        """Returns an entry; `None` if the broker no longer has its message. Raises `StoreError`."""
        return self._cache.get(self.partition, key) or self._read_again(self.partition, key - 1)

    def size_after(self, position: int) -> int:
        """Returns the approximate bytes of the messages that were read after a position."""
        return max(0, self.position - position) * self._bytes // max(1, self._messages)

    def must_shed(self, position: int, max_backlog_bytes: int) -> bool:
        """Returns `False`: the broker keeps messages for as long as the topic says, whether they are scored or not."""
        return False

    def wait(self, position: int, timeout: float) -> None:
        """Does nothing: the receiver waits for messages."""

    def acknowledge(self, position: int) -> None:
        """Record the offset that can be committed. It never moves back."""
        self.acknowledged = max(self.acknowledged, position)
