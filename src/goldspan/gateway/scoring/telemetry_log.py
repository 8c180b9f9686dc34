"""The log that scoring reads spans and log records from: a journal, or a partition of a Kafka topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from goldspan.gateway.journal.journal import Journal
from goldspan.gateway.journal.journal_file import JournalEntry
from goldspan.gateway.resource_limits import PARTITION_COUNT, SCORED_ORIGINS

SCORING_CONSUMERS = tuple(f"score/{partition:02d}" for partition in range(PARTITION_COUNT))
"""Names of the journal consumers, one per partition."""

MAX_READ_BYTES = 8 * 1024 * 1024
"""Maximum bytes of entries per read."""


class LogBatch(NamedTuple):
    """The entries that one read returned."""

    entries: Sequence[JournalEntry]
    position: int
    """The key up to which the log was read. Entries of no interest to the reader may follow the last returned one."""
    is_behind: bool
    """Whether the log had more entries before the read."""


class TelemetryLog(Protocol):
    """A log of OTLP requests with increasing keys. One thread reads it in order, and reads single entries again.

    Raises `StoreError` if the log cannot be read now.
    """

    start: int
    """The acknowledged position when the log was opened: all entries up to this key were processed then."""
    context_start: int
    """The position after which reading begins, at most `start`. The entries up to `start` belong to traces that were
    scored; some of these traces have further entries."""
    replay_end: int
    """The last entry that may have been scored before the log was opened."""
    needs_context: bool
    """Whether another worker may read on from an acknowledged position, so that it needs `context_start`."""
    exports_held_entries: bool
    """Whether the reader exports the entries that are held until they are scored."""

    def owns(self, partition: int) -> bool:
        """Whether the reader scores the traces of a partition (`partition_of`)."""
        ...

    def read(self, after: int) -> LogBatch:
        """Returns the next entries after a position."""
        ...

    def read_entry(self, key: int) -> JournalEntry | None:
        """Returns an entry that was read before; `None` if the log no longer has it."""
        ...

    def size_after(self, position: int) -> int:
        """Returns the approximate bytes of the entries after a position."""
        ...

    def must_shed(self, position: int, max_backlog_bytes: int) -> bool:
        """Whether the entries after a position must not be scored, so that the log does not grow without limit."""
        ...

    def wait(self, position: int, timeout: float) -> None:
        """Wait until there is an entry after a position, for `timeout` seconds at most."""
        ...

    def acknowledge(self, position: int) -> None:
        """Record that the results of all entries up to a key are stored. The position never moves back."""
        ...


class JournalLog:
    """The entries of a journal that one worker scores.

    Args:
        journal: The journal.
        partitions: The partitions that the worker scores.
        exports_held_entries: Whether the worker exports the entries that are held until they are scored.
    """

    needs_context = False

    def __init__(self, journal: Journal, partitions: frozenset[int], *, exports_held_entries: bool) -> None:
        self._journal = journal
        self._partitions = partitions
        self._partition_mask = sum(1 << partition for partition in partitions)
        self._consumers = [SCORING_CONSUMERS[partition] for partition in sorted(partitions)]
        self.exports_held_entries = exports_held_entries
        self.start = self.context_start = min((journal.cursor(name) or 0 for name in self._consumers), default=0)
        self.replay_end = journal.last_key

    def owns(self, partition: int) -> bool:
        """Whether the worker scores the traces of a partition."""
        return partition in self._partitions

    def read(self, after: int) -> LogBatch:
        """Returns the next entries after a position."""
        last = self._journal.last_key
        entries = self._journal.read(
            after, max_bytes=MAX_READ_BYTES, origins=SCORED_ORIGINS, partitions=self._partition_mask
        )
        if not entries:
            return LogBatch((), max(after, last), is_behind=False)
        return LogBatch(entries, entries[-1].key, is_behind=entries[-1].key < last)

    def read_entry(self, key: int) -> JournalEntry | None:
        """Returns an entry; `None` if the journal no longer has it."""
        return next((entry for entry in self._journal.read(key - 1, max_entries=1) if entry.key == key), None)

    def size_after(self, position: int) -> int:
        """Returns the bytes of the entries after a position."""
        return self._journal.size_after(position)

    def must_shed(self, position: int, max_backlog_bytes: int) -> bool:
        """Whether more bytes wait for scoring than the limit allows."""
        return self._journal.size_after(position) > max_backlog_bytes

    def wait(self, position: int, timeout: float) -> None:
        """Wait until the journal has an entry after a position."""
        self._journal.wait(position, timeout)

    def acknowledge(self, position: int) -> None:
        """Advance the cursors of scoring."""
        self._journal.advance(dict.fromkeys(self._consumers, position))


def journal_logs(journals: Mapping[int, Journal], worker: int = 0, workers: int = 1) -> dict[int, JournalLog]:
    """Returns the logs that a worker scores, by the number of the journal; its own journal comes first.

    `journals` are the journals of all workers.
    """
    partitions = frozenset(range(worker, PARTITION_COUNT, workers))
    return {
        number: JournalLog(journals[number], partitions, exports_held_entries=number % workers == worker)
        for number in sorted(journals, key=lambda number: number != worker)
    }
