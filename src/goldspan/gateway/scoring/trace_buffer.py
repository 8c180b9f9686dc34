"""What is gathered until it is scored: the spans of a trace, or of several traces of one session.

The journal holds every span that was acknowledged, so what is held here may be let go at any time: of each bundle it is
known in which entries of which journals its spans are. That bounds the memory, and lets a late span bring back a trace
that was scored and let go long before. Time is passed in; nothing here locks, sleeps or reads.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from goldspan.model import RunUnit, TelemetryRecord

TraceChunk: TypeAlias = "bytes | list[TelemetryRecord]"
"""Spans of a bundle: an OTLP trace request in protobuf, or records."""

StitchKey: TypeAlias = Hashable
"""What gathers spans: the 16 bytes of a trace's id, or a service and a session of it."""

_MAX_LOST_KEYS = 200_000
"""Stitch keys of bundles that were let go without being scored, so that what comes later of them is not either."""
_ROOTLESS_RETENTION_FACTOR = 10
"""How many times as long a trace is held whose root has not come: its request goes on, perhaps."""
_SESSION_WAIT_FACTOR = 10
"""How many times `idle` pieces of a session that never rests wait for the rest of it."""


_RELEASED = -1
"""The turn of a bundle that was let go, or is part of another one now."""


@dataclass(frozen=True, slots=True)
class FlushPolicy:
    """How long is waited for further spans, in seconds."""

    grace: float = 5.0
    """After the last span of a trace whose root has come."""
    idle: float = 30.0
    """After the last span of one whose root has not."""
    late: float = 60.0
    """After a trace was scored: so long a late span changes its runs."""
    lifetime: float = 3600.0
    """A trace that never rests is scored as it is every so often."""


@dataclass(frozen=True, slots=True)
class TraceBufferLimits:
    """How much is held."""

    max_groups: int = 100_000
    max_bytes: int = 256 * 1024 * 1024
    """Of spans in memory; what is more is read from the journal again when it is scored."""
    max_spans_per_group: int = 100_000
    """Of one bundle. One with more is not scored."""


@dataclass(slots=True, eq=False)
class TraceGroup:
    """Spans that belong together."""

    keys: list[StitchKey]
    first_unscored_at: float
    """When the first span came that is not scored yet."""
    last_seen_at: float
    """When the latest span came."""
    entries_by_journal: dict[int, list[int]] = field(default_factory=dict)
    """In which journals, and in which of their entries, the spans are."""
    chunks: list[TraceChunk] = field(default_factory=list)
    """The spans, in the order in which they came, as far as they are in memory."""
    is_in_memory: bool = True
    """Whether all of them are."""
    memory_bytes: int = 0
    """Bytes in memory."""
    span_count: int = 0
    has_root: bool = False
    """Whether a span without a parent has come."""
    is_changed: bool = True
    """Whether something came since it was scored."""
    is_lost: bool = False
    """Whether some of its spans were not taken in, so that it must not be scored."""
    unscored_counted: int = 0
    """How many of its spans were counted as not scored."""
    arrived_at: float = 0.0
    """When the latest span came, by the journal: of those that came before this process began, when that was."""
    has_loaded_revisions: bool = False
    """Whether it is known what is stored of its traces."""
    is_evicting: bool = False
    """Whether it is let go whatever it waits for."""
    awaits_session: bool = False
    """Whether it is work without a request around it, which waits for the rest of its session."""
    revisions: dict[tuple[RunUnit, str], tuple[int, str]] = field(default_factory=dict)
    """Revision and digest of the runs that were scored."""
    required_span_ids: dict[tuple[RunUnit, str], frozenset[str]] = field(default_factory=dict)
    """The spans of which runs were made that were scored before it was held, also of those with further traces."""
    dropped_trace_ids: set[str] = field(default_factory=set)
    """The ids of traces of which nothing is to be scored."""
    held_entries: set[tuple[int, int]] = field(default_factory=set)
    """The journals and entries of spans that leave when they were scored, and were not yet."""
    appointment: int = 0
    """Which of its appointments is valid."""

    @property
    def is_held(self) -> bool:
        """Whether it was neither let go nor made part of another one."""
        return self.appointment != _RELEASED


class TraceBuffer:
    """The bundles of one worker. Not for two threads at once; times are in seconds of one clock.

    What was scored is held until then at least (`held_until`), however long ago it came.
    """

    def __init__(self, policy: FlushPolicy, limits: TraceBufferLimits, *, held_until: float = 0.0) -> None:
        self._policy = policy
        self._held_until = held_until
        self._limits = limits
        self._group_by_key: dict[StitchKey, TraceGroup] = {}
        self._schedule: list[tuple[float, int, TraceGroup]] = []
        self._sequence = 0
        self._first_entries: dict[int, list[tuple[int, int, TraceGroup]]] = {}
        """By journal, a heap of the first entries of bundles in it; some are of bundles that were let go since."""
        self._in_memory: OrderedDict[TraceGroup, None] = OrderedDict()
        self._lost_keys: OrderedDict[StitchKey, None] = OrderedDict()
        self._group_count = 0
        self.memory_bytes = 0
        """Bytes of spans in memory."""
        self.evicted = 0
        """Bundles that were scored as they were, or let go early, because too many were held."""
        self.unscored_spans = 0
        """Spans of bundles that are not scored because not all of them were taken in."""

    def __len__(self) -> int:
        return self._group_count

    # --- what comes in -----------------------------------------------------------------------------------------------

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
        """Take in spans of an entry of a journal. Those of each journal come in their order.

        `now` is when they came, and for those that came before this process began, when it did; then `arrived` is when
        they came. `held`: they leave when they were scored.
        """
        bundle = self._touch(key, now, arrived, rooted=has_root)
        self._add_entry(bundle, journal, entry, held=is_held)
        bundle.span_count += span_count
        if bundle.is_lost or bundle.span_count > self._limits.max_spans_per_group:
            self._mark_lost(bundle)
        elif bundle.is_in_memory:
            bundle.chunks.append(chunk)
            bundle.memory_bytes += size
            self.memory_bytes += size
            self._in_memory[bundle] = None
            while self.memory_bytes > self._limits.max_bytes:
                self._drop_chunks(next(iter(self._in_memory)))

    def shed(
        self, journal: int, entry: int, key: StitchKey, now: float, *, span_count: int, is_held: bool = False
    ) -> None:
        """Take note of spans that will not be scored, and with them nothing of their trace."""
        bundle = self._touch(key, now, None)
        self._add_entry(bundle, journal, entry, held=is_held)
        bundle.span_count += span_count
        self._mark_lost(bundle)

    def join_groups(self, bundles: Iterable[TraceGroup], key: StitchKey) -> TraceGroup:
        """Make one of several bundles, found by a further key from now on."""
        first, *others = sorted(dict.fromkeys(bundles), key=lambda bundle: -len(bundle.keys))
        for other in others:
            self._merge_groups(first, other)
        if key not in self._group_by_key:
            self._group_by_key[key] = first
            first.keys.append(key)
            if self._lost_keys.pop(key, 0) is None:
                self._mark_lost(first)
        self._schedule_group(first)
        return first

    def can_join(self, *bundles: TraceGroup) -> bool:
        """Whether bundles may be joined: not where that makes too many spans for one, or one cannot be scored."""
        several = dict.fromkeys(bundles)
        spans = sum(bundle.span_count for bundle in several)
        return len(several) == 1 or not (
            any(bundle.is_lost for bundle in several) or spans > self._limits.max_spans_per_group
        )

    def find(self, key: StitchKey) -> TraceGroup | None:
        """What is held by that key."""
        return self._group_by_key.get(key)

    # --- time --------------------------------------------------------------------------------------------------------

    def pop_due(self, now: float) -> Iterator[TraceGroup]:
        """What is to be scored now, one by one. What has been scored for long enough is let go on the way.

        Whoever cannot score one asks for no more of them now: it is due once more then.
        """
        while self._schedule and self._schedule[0][0] <= now:
            _, turn, bundle = heappop(self._schedule)
            if turn != bundle.appointment:
                continue
            if self._due_time(bundle) > now:
                self._schedule_group(bundle)
            elif bundle.is_changed:
                yield bundle
            else:
                self.release(bundle)
        while self._group_count > self._limits.max_groups:
            yield from self._evict(next(iter(self._group_by_key.values())))

    def evict_oldest(self, journal: int) -> Iterator[TraceGroup]:
        """Let go of what needs the oldest entry of a journal; it is to be scored first if it comes out."""
        if self.oldest_entry(journal) is not None:
            yield from self._evict(self._first_entries[journal][0][2])

    def _evict(self, bundle: TraceGroup) -> Iterator[TraceGroup]:
        if bundle.is_changed:
            self.evicted += 1
            bundle.is_evicting = True
            yield bundle
        self.release(bundle)

    def complete_groups(self) -> list[TraceGroup]:
        """What was not scored yet and waits for nothing that is known to be missing."""
        waiting = [bundle for bundle in dict.fromkeys(self._group_by_key.values()) if bundle.is_changed]
        return [bundle for bundle in waiting if bundle.has_root and not bundle.awaits_session]

    def next_due_time(self) -> float | None:
        """When something may be due; `None`: nothing is held."""
        return self._schedule[0][0] if self._schedule else None

    def mark_scored(self, bundle: TraceGroup) -> None:
        """Take note that a bundle was scored with everything that is in it. Its spans leave the memory."""
        bundle.is_changed = False
        bundle.held_entries.clear()
        self._drop_chunks(bundle)
        self._schedule_group(bundle)

    def reschedule(self, bundle: TraceGroup, now: float) -> None:
        """Have a bundle that was due be due once more, as if something had come for it."""
        bundle.last_seen_at = max(bundle.last_seen_at, now)
        self._schedule_group(bundle)

    def await_session(self, bundle: TraceGroup) -> None:
        """Have a bundle that was due wait for the rest of its session."""
        bundle.awaits_session = True
        self._schedule_group(bundle)

    def release(self, bundle: TraceGroup) -> None:
        """Forget a bundle."""
        self._drop_chunks(bundle)
        for key in bundle.keys:
            self._group_by_key.pop(key, None)
            if bundle.is_lost:
                self._lost_keys[key] = None
        while len(self._lost_keys) > _MAX_LOST_KEYS:
            self._lost_keys.popitem(last=False)
        bundle.appointment = _RELEASED
        self._group_count -= 1

    def oldest_entry(self, journal: int) -> int | None:
        """The first entry of a journal that is needed for what is held; `None`: none is."""
        firsts = self._first_entries.get(journal, [])
        while firsts and not _is_first_entry(firsts[0], journal):
            heappop(firsts)
        return firsts[0][0] if firsts else None

    # --- inside ------------------------------------------------------------------------------------------------------

    def _touch(self, key: StitchKey, now: float, arrived: float | None, *, rooted: bool = False) -> TraceGroup:
        """The bundle of a key, with note taken that something came for it at that time."""
        bundle = self._group_by_key.get(key)
        if bundle is None:
            bundle = self._group_by_key[key] = TraceGroup([key], now, now, is_lost=self._lost_keys.pop(key, 0) is None)
            self._group_count += 1
        # Journals of several workers are not read in one order.
        bundle.last_seen_at = max(bundle.last_seen_at, now)
        bundle.arrived_at = max(bundle.arrived_at, now if arrived is None else arrived)
        if bundle.appointment and bundle.is_changed and (bundle.has_root or not rooted):
            return bundle  # the appointment that it has comes first, and is put off when it does
        if not bundle.is_changed:
            bundle.is_changed, bundle.first_unscored_at = True, now
        bundle.has_root = bundle.has_root or rooted
        self._schedule_group(bundle)
        return bundle

    def _due_time(self, bundle: TraceGroup) -> float:
        patience = self._policy
        if not bundle.is_changed:
            late = patience.late * (1 if bundle.has_root or bundle.is_lost else _ROOTLESS_RETENTION_FACTOR)
            return max(bundle.arrived_at + late, self._held_until)
        if bundle.awaits_session:
            return min(
                bundle.last_seen_at + patience.idle, bundle.first_unscored_at + patience.idle * _SESSION_WAIT_FACTOR
            )
        rest = patience.grace if bundle.has_root else patience.idle
        return min(bundle.last_seen_at + rest, bundle.first_unscored_at + patience.lifetime)

    def _schedule_group(self, bundle: TraceGroup) -> None:
        self._sequence += 1
        bundle.appointment = self._sequence
        heappush(self._schedule, (self._due_time(bundle), self._sequence, bundle))

    def _add_entry(self, bundle: TraceGroup, journal: int, entry: int, *, held: bool) -> None:
        if held:
            bundle.held_entries.add((journal, entry))
        entries = bundle.entries_by_journal.get(journal)
        if entries is None:
            bundle.entries_by_journal[journal] = [entry]
            self._add_first_entry(bundle, journal)
        elif entries[-1] != entry:
            entries.append(entry)

    def _add_first_entry(self, bundle: TraceGroup, journal: int) -> None:
        self._sequence += 1  # so that no two bundles are compared
        firsts = self._first_entries.setdefault(journal, [])
        heappush(firsts, (bundle.entries_by_journal[journal][0], self._sequence, bundle))
        if len(firsts) > 4 * self._group_count + 1_000:  # behind one that is held for long, others are let go
            firsts[:] = [first for first in firsts if _is_first_entry(first, journal)]
            heapify(firsts)

    def _merge_groups(self, into: TraceGroup, other: TraceGroup) -> None:
        """Put one bundle's spans into another."""
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
        other.chunks, other.memory_bytes, other.appointment = [], 0, _RELEASED
        self._in_memory.pop(other, None)
        self._group_count -= 1
        into.awaits_session = into.awaits_session or other.awaits_session
        if into.memory_bytes:
            self._in_memory[into] = None
        if not into.is_in_memory:
            self._drop_chunks(into)
        if into.is_lost or other.is_lost or into.span_count > self._limits.max_spans_per_group:
            self._mark_lost(into)

    def _mark_lost(self, bundle: TraceGroup) -> None:
        self.unscored_spans += bundle.span_count - bundle.unscored_counted
        bundle.unscored_counted = bundle.span_count
        bundle.is_lost = True
        self._drop_chunks(bundle)

    def _drop_chunks(self, bundle: TraceGroup) -> None:
        self.memory_bytes -= bundle.memory_bytes
        bundle.chunks, bundle.memory_bytes, bundle.is_in_memory = [], 0, False
        self._in_memory.pop(bundle, None)


def _is_first_entry(first_entry: tuple[int, int, TraceGroup], journal: int) -> bool:
    """Whether the first entry that was noted of a bundle still is what that bundle needs first."""
    entry, _, bundle = first_entry
    return bundle.is_held and bundle.entries_by_journal[journal][0] == entry
