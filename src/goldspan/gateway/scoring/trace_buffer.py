"""Holds the spans of a trace, or of several traces of one session, until they are due for scoring.

The journal stores every acknowledged span, so the buffer may drop spans from memory at any time: a group records the
journal entries that contain its spans. This limits memory, and a late span can bring back a trace that was scored and
released long before. Time is passed in; nothing here locks, sleeps or reads.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from goldspan.model import RunUnit, TelemetryRecord

TraceChunk: TypeAlias = "bytes | list[TelemetryRecord]"
"""Spans of a group: an OTLP trace request in protobuf, or decoded records."""

StitchKey: TypeAlias = Hashable
"""Key of a group: the 16 bytes of a trace id, or a service and one of its sessions."""

_MAX_LOST_KEYS = 200_000
"""Remembered keys of groups that were released unscored. Later spans of them are not scored either."""
_ROOTLESS_RETENTION_FACTOR = 10
"""Factor on `late` for a trace without a root span: its request may still be running."""
_SESSION_WAIT_FACTOR = 10
"""Factor on `idle`: maximum wait of a part of a session for the rest of a session that stays active."""

_RELEASED = -1
"""The schedule number of a group that was released or merged into another one."""


@dataclass(frozen=True, slots=True)
class FlushPolicy:
    """How long to wait for further spans, in seconds."""

    grace: float = 5.0
    """After the last span of a trace with a root span."""
    idle: float = 30.0
    """After the last span of a trace without a root span."""
    late: float = 60.0
    """After scoring: how long a late span changes the runs of the trace."""
    lifetime: float = 3600.0
    """Maximum wait: a trace that stays active is scored after this time, and again each time it passes."""


@dataclass(frozen=True, slots=True)
class TraceBufferLimits:
    """Limits of the buffer."""

    max_groups: int = 100_000
    max_bytes: int = 256 * 1024 * 1024
    """Bytes of spans in memory. Spans beyond it are read from the journal again when they are scored."""
    max_spans_per_group: int = 100_000
    """A group with more spans is not scored."""


@dataclass(slots=True, eq=False)
class TraceGroup:
    """Spans that are scored together: one trace, or several traces of one session."""

    keys: list[StitchKey]
    first_unscored_at: float
    """When the first unscored span arrived."""
    last_seen_at: float
    """When the latest span arrived."""
    entries_by_journal: dict[int, list[int]] = field(default_factory=dict)
    """The entries with the spans, by journal."""
    chunks: list[TraceChunk] = field(default_factory=list)
    """The spans in memory, in order of arrival."""
    is_in_memory: bool = True
    """Whether all spans are in memory."""
    memory_bytes: int = 0
    """Bytes of the spans in memory."""
    span_count: int = 0
    has_root: bool = False
    """Whether a span without a parent has arrived."""
    is_changed: bool = True
    """Whether spans arrived since the group was scored."""
    is_lost: bool = False
    """Whether spans of it were not accepted, so that it must not be scored."""
    unscored_counted: int = 0
    """Number of its spans that were counted as unscored."""
    arrived_at: float = 0.0
    """When the latest span arrived according to the journal, also for spans from before this process started."""
    has_loaded_revisions: bool = False
    """Whether the stored revisions of its traces were loaded."""
    is_evicting: bool = False
    """Whether it is evicted without waiting for more spans."""
    awaits_session: bool = False
    """Whether it has no enclosing request and waits for the rest of its session."""
    revisions: dict[tuple[RunUnit, str], tuple[int, str]] = field(default_factory=dict)
    """Revision and digest of each scored run."""
    required_span_ids: dict[tuple[RunUnit, str], frozenset[str]] = field(default_factory=dict)
    """The source spans of runs that were scored before the group was held, including runs with further traces."""
    dropped_trace_ids: set[str] = field(default_factory=set)
    """Ids of traces that must not be scored."""
    held_entries: set[tuple[int, int]] = field(default_factory=set)
    """Journals and entries of spans that are exported after scoring and are not scored yet."""
    schedule_number: int = 0
    """Number of its valid entry in the schedule."""

    @property
    def is_held(self) -> bool:
        """Whether it was neither released nor merged into another one."""
        return self.schedule_number != _RELEASED


class TraceBuffer:
    """Holds the groups of one worker. Not thread-safe. Times are in seconds of one clock.

    Scored groups are held at least until `held_until`, even if their spans arrived long before. `on_release` is called
    with each group that is released.
    """

    def __init__(
        self,
        policy: FlushPolicy,
        limits: TraceBufferLimits,
        *,
        held_until: float = 0.0,
        on_release: Callable[[TraceGroup], object] | None = None,
    ) -> None:
        self._policy = policy
        self._on_release = on_release
        self._held_until = held_until
        self._limits = limits
        self._max_groups, self._max_bytes = limits.max_groups, limits.max_bytes
        self._group_by_key: dict[StitchKey, TraceGroup] = {}
        self._schedule: list[tuple[float, int, TraceGroup]] = []
        self._sequence = 0
        self._first_entries: dict[int, list[tuple[int, int, TraceGroup]]] = {}
        """By journal, a heap of the first entry of each group; it may contain entries of released groups."""
        self._in_memory: OrderedDict[TraceGroup, None] = OrderedDict()
        self._lost_keys: OrderedDict[StitchKey, None] = OrderedDict()
        self._group_count = 0
        self.memory_bytes = 0
        """Bytes of spans in memory."""
        self.evicted = 0
        """Groups that were scored or released early, because too many were held."""
        self.unscored_spans = 0
        """Spans of groups that are not scored because some of their spans were not accepted."""

    def __len__(self) -> int:
        return self._group_count

    def limit_memory(self, shares: int) -> None:
        """Use one of several equal shares of the limits of groups and bytes from now on."""
        self._max_groups = max(1, self._limits.max_groups // max(1, shares))
        self._max_bytes = self._limits.max_bytes // max(1, shares)

    # --- adding spans ------------------------------------------------------------------------------------------------

    def add(
        self,
        journal: int,
        entry: int,
        key: StitchKey,
        chunk: TraceChunk,
        now: float,
        *,
        size: int,
        span_count: int,
        has_root: bool,
        arrived: float | None = None,
        is_held: bool = False,
    ) -> None:
        """Add spans of a journal entry. The entries of each journal are added in their order.

        Args:
            journal: Number of the journal.
            entry: Key of the entry.
            key: Key of the group.
            chunk: The spans.
            now: When the spans arrived, or when this process started, if they arrived before.
            size: Bytes of the spans.
            span_count: Number of spans.
            has_root: Whether one of them has no parent.
            arrived: When the spans arrived, if that was before this process started.
            is_held: Whether the spans are exported only after scoring.
        """
        group = self._touch(key, now, arrived, rooted=has_root)
        self._add_entry(group, journal, entry, held=is_held)
        group.span_count += span_count
        if group.is_lost or group.span_count > self._limits.max_spans_per_group:
            self.mark_lost(group)
        elif group.is_in_memory:
            group.chunks.append(chunk)
            group.memory_bytes += size
            self.memory_bytes += size
            self._in_memory[group] = None
            while self.memory_bytes > self._max_bytes:
                self._drop_chunks(next(iter(self._in_memory)))

    def shed(
        self, journal: int, entry: int, key: StitchKey, now: float, *, span_count: int, is_held: bool = False
    ) -> None:
        """Record spans that will not be scored. Nothing of their trace is scored then."""
        group = self._touch(key, now, None)
        self._add_entry(group, journal, entry, held=is_held)
        group.span_count += span_count
        self.mark_lost(group)

    def join_groups(self, groups: Iterable[TraceGroup], key: StitchKey) -> TraceGroup:
        """Merge groups into one, which `key` finds from now on."""
        first, *others = sorted(dict.fromkeys(groups), key=lambda group: -len(group.keys))
        for other in others:
            self._merge_groups(first, other)
        if key not in self._group_by_key:
            self._group_by_key[key] = first
            first.keys.append(key)
            if self._lost_keys.pop(key, 0) is None:
                self.mark_lost(first)
        self._schedule_group(first)
        return first

    def can_join(self, *groups: TraceGroup) -> bool:
        """Whether groups may be merged: each can be scored, and together they do not have too many spans."""
        distinct = dict.fromkeys(groups)
        spans = sum(group.span_count for group in distinct)
        return len(distinct) == 1 or not (
            any(group.is_lost for group in distinct) or spans > self._limits.max_spans_per_group
        )

    def find(self, key: StitchKey) -> TraceGroup | None:
        """Returns the group with this key."""
        return self._group_by_key.get(key)

    # --- time --------------------------------------------------------------------------------------------------------

    def pop_due(self, now: float) -> Iterator[TraceGroup]:
        """Yields the groups that are due for scoring, and releases groups that were scored long enough ago.

        A caller that cannot score a group reschedules it and stops iterating.
        """
        while self._schedule and self._schedule[0][0] <= now:
            _, number, group = heappop(self._schedule)
            if number != group.schedule_number:
                continue
            if self._due_time(group) > now:
                self._schedule_group(group)
            elif group.is_changed:
                yield group
            else:
                self.release(group)
        while self._group_count > self._max_groups:
            yield from self._evict(next(iter(self._group_by_key.values())))

    def evict_oldest(self, journal: int) -> Iterator[TraceGroup]:
        """Release the group that needs the oldest entry of a journal. Yields it first if it has unscored spans."""
        if self.oldest_entry(journal) is not None:
            yield from self._evict(self._first_entries[journal][0][2])

    def _evict(self, group: TraceGroup) -> Iterator[TraceGroup]:
        if group.is_changed:
            self.evicted += 1
            group.is_evicting = True
            yield group
        self.release(group)

    def complete_groups(self) -> list[TraceGroup]:
        """Returns the unscored groups that do not wait for a root span or a session."""
        waiting = [group for group in dict.fromkeys(self._group_by_key.values()) if group.is_changed]
        return [group for group in waiting if group.has_root and not group.awaits_session]

    def next_due_time(self) -> float | None:
        """Returns when the next group may be due; `None` if no group is held."""
        return self._schedule[0][0] if self._schedule else None

    def mark_scored(self, group: TraceGroup) -> None:
        """Record that all spans of a group were scored, and drop them from memory."""
        group.is_changed = False
        group.held_entries.clear()
        self._drop_chunks(group)
        self._schedule_group(group)

    def mark_lost(self, group: TraceGroup) -> None:
        """Record that spans of a group are missing, so that it is not scored."""
        self.unscored_spans += group.span_count - group.unscored_counted
        group.unscored_counted = group.span_count
        group.is_lost = True
        self._drop_chunks(group)

    def reschedule(self, group: TraceGroup, now: float) -> None:
        """Schedule a due group again, as if a span had arrived now."""
        group.last_seen_at = max(group.last_seen_at, now)
        self._schedule_group(group)

    def await_session(self, group: TraceGroup) -> None:
        """Let a due group wait for the rest of its session."""
        group.awaits_session = True
        self._schedule_group(group)

    def release(self, group: TraceGroup) -> None:
        """Remove a group from the buffer."""
        self._drop_chunks(group)
        for key in group.keys:
            self._group_by_key.pop(key, None)
            if group.is_lost:
                self._lost_keys[key] = None
        while len(self._lost_keys) > _MAX_LOST_KEYS:
            self._lost_keys.popitem(last=False)
        group.schedule_number = _RELEASED
        self._group_count -= 1
        if self._on_release is not None:
            self._on_release(group)

    def oldest_unscored(self) -> float | None:
        """Returns when the first span arrived that is not scored yet; `None` if all held groups were scored."""
        waiting = (group.first_unscored_at for group in list(self._group_by_key.values()) if group.is_changed)
        return min(waiting, default=None)

    def oldest_entry(self, journal: int) -> int | None:
        """Returns the first entry of a journal that a held group needs; `None` if no entry is needed."""
        firsts = self._first_entries.get(journal, [])
        while firsts and not _is_first_entry(firsts[0], journal):
            heappop(firsts)
        return firsts[0][0] if firsts else None

    # --- internals ---------------------------------------------------------------------------------------------------

    def _touch(self, key: StitchKey, now: float, arrived: float | None, *, rooted: bool = False) -> TraceGroup:
        """Returns the group of a key, created if needed, and records that spans of it arrived."""
        group = self._group_by_key.get(key)
        if group is None:
            group = self._group_by_key[key] = TraceGroup([key], now, now, is_lost=self._lost_keys.pop(key, 0) is None)
            self._group_count += 1
        # The journals of several workers are not read in order of arrival.
        group.last_seen_at = max(group.last_seen_at, now)
        group.arrived_at = max(group.arrived_at, now if arrived is None else arrived)
        if group.schedule_number and group.is_changed and (group.has_root or not rooted):
            return group  # its entry in the schedule comes first, and is postponed then
        if not group.is_changed:
            group.is_changed, group.first_unscored_at = True, now
        group.has_root = group.has_root or rooted
        self._schedule_group(group)
        return group

    def _due_time(self, group: TraceGroup) -> float:
        policy = self._policy
        if not group.is_changed:
            late = policy.late * (1 if group.has_root or group.is_lost else _ROOTLESS_RETENTION_FACTOR)
            return max(group.arrived_at + late, self._held_until)
        if group.awaits_session:
            return min(group.last_seen_at + policy.idle, group.first_unscored_at + policy.idle * _SESSION_WAIT_FACTOR)
        rest = policy.grace if group.has_root else policy.idle
        return min(group.last_seen_at + rest, group.first_unscored_at + policy.lifetime)

    def _schedule_group(self, group: TraceGroup) -> None:
        self._sequence += 1
        group.schedule_number = self._sequence
        heappush(self._schedule, (self._due_time(group), self._sequence, group))

    def _add_entry(self, group: TraceGroup, journal: int, entry: int, *, held: bool) -> None:
        if held:
            group.held_entries.add((journal, entry))
        entries = group.entries_by_journal.get(journal)
        if entries is None:
            group.entries_by_journal[journal] = [entry]
            self._add_first_entry(group, journal)
        elif entries[-1] != entry:
            entries.append(entry)

    def _add_first_entry(self, group: TraceGroup, journal: int) -> None:
        self._sequence += 1  # a tie-breaker, so that the heap never compares groups
        firsts = self._first_entries.setdefault(journal, [])
        heappush(firsts, (group.entries_by_journal[journal][0], self._sequence, group))
        if len(firsts) > 4 * self._group_count + 1_000:  # released groups pile up behind one that is held long
            firsts[:] = [first for first in firsts if _is_first_entry(first, journal)]
            heapify(firsts)

    def _merge_groups(self, into: TraceGroup, other: TraceGroup) -> None:
        """Move the spans and the state of `other` into another group."""
        for key in other.keys:
            self._group_by_key[key] = into
        into.keys += other.keys
        for journal, entries in other.entries_by_journal.items():
            own = into.entries_by_journal.get(journal, [])
            if own and own[-1] < entries[0]:
                own += entries
                continue
            into.entries_by_journal[journal] = sorted({*own, *entries})
            if not own or entries[0] < own[0]:
                self._add_first_entry(into, journal)
        into.is_in_memory = into.is_in_memory and other.is_in_memory
        into.chunks += other.chunks
        into.memory_bytes += other.memory_bytes
        into.span_count += other.span_count
        into.first_unscored_at, into.last_seen_at = (
            min(into.first_unscored_at, other.first_unscored_at),
            max(into.last_seen_at, other.last_seen_at),
        )
        into.has_root = into.has_root or other.has_root
        into.arrived_at = max(into.arrived_at, other.arrived_at)
        into.unscored_counted += other.unscored_counted
        into.has_loaded_revisions = into.has_loaded_revisions and other.has_loaded_revisions
        into.is_changed = into.is_changed or other.is_changed
        into.dropped_trace_ids |= other.dropped_trace_ids
        into.revisions.update(other.revisions)
        into.required_span_ids.update(other.required_span_ids)
        into.held_entries |= other.held_entries
        other.chunks, other.memory_bytes, other.schedule_number = [], 0, _RELEASED
        self._in_memory.pop(other, None)
        self._group_count -= 1
        into.awaits_session = into.awaits_session or other.awaits_session
        if into.memory_bytes:
            self._in_memory[into] = None
        if not into.is_in_memory:
            self._drop_chunks(into)
        if into.is_lost or other.is_lost or into.span_count > self._limits.max_spans_per_group:
            self.mark_lost(into)

    def _drop_chunks(self, group: TraceGroup) -> None:
        self.memory_bytes -= group.memory_bytes
        group.chunks, group.memory_bytes, group.is_in_memory = [], 0, False
        self._in_memory.pop(group, None)


def _is_first_entry(first_entry: tuple[int, int, TraceGroup], journal: int) -> bool:
    """Whether a recorded first entry is still the first entry that its group needs."""
    entry, _, group = first_entry
    return group.is_held and group.entries_by_journal[journal][0] == entry
