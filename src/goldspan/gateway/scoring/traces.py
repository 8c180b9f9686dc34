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

from goldspan.model import Record, Unit

Part: TypeAlias = "bytes | list[Record]"
"""Spans of a bundle: an OTLP trace request in protobuf, or records."""

StitchKey: TypeAlias = Hashable
"""What gathers spans: the 16 bytes of a trace's id, or a service and a session of it."""

_LOST_KEPT = 200_000
"""Stitch keys of bundles that were let go without being scored, so that what comes later of them is not either."""
_ROOTLESS = 10
"""How many times as long a trace is held whose root has not come: its request goes on, perhaps."""
_PIECES = 10
"""How many times `idle` pieces of a session that never rests wait for the rest of it."""


_GONE = -1
"""The turn of a bundle that was let go, or is part of another one now."""


@dataclass(frozen=True, slots=True)
class Patience:
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
class Room:
    """How much is held."""

    max_bundles: int = 100_000
    max_bytes: int = 256 * 1024 * 1024
    """Of spans in memory; what is more is read from the journal again when it is scored."""
    max_spans: int = 100_000
    """Of one bundle. One with more is not scored."""


@dataclass(slots=True, eq=False)
class Bundle:
    """Spans that belong together."""

    keys: list[StitchKey]
    began: float
    """When the first span came that is not scored yet."""
    active: float
    """When the latest span came."""
    places: dict[int, list[int]] = field(default_factory=dict)
    """In which journals, and in which of their entries, the spans are."""
    parts: list[Part] = field(default_factory=list)
    """The spans, in the order in which they came, as far as they are in memory."""
    whole: bool = True
    """Whether all of them are."""
    size: int = 0
    """Bytes in memory."""
    spans: int = 0
    rooted: bool = False
    """Whether a span without a parent has come."""
    changed: bool = True
    """Whether something came since it was scored."""
    lost: bool = False
    """Whether some of its spans were not taken in, so that it must not be scored."""
    counted: int = 0
    """How many of its spans were counted as not scored."""
    arrived: float = 0.0
    """When the latest span came, by the journal: of those that came before this process began, when that was."""
    recalled: bool = False
    """Whether it is known what is stored of its traces."""
    leaving: bool = False
    """Whether it is let go whatever it waits for."""
    pieces: bool = False
    """Whether it is work without a request around it, which waits for the rest of its session."""
    known: dict[tuple[Unit, str], tuple[int, str]] = field(default_factory=dict)
    """Revision and digest of the runs that were scored."""
    needed: dict[tuple[Unit, str], frozenset[str]] = field(default_factory=dict)
    """The spans of which runs were made that were scored before it was held, also of those with further traces."""
    forgotten: set[str] = field(default_factory=set)
    """The ids of traces of which nothing is to be scored."""
    held: set[tuple[int, int]] = field(default_factory=set)
    """The journals and entries of spans that leave when they were scored, and were not yet."""
    turn: int = 0
    """Which of its appointments is valid."""

    @property
    def is_held(self) -> bool:
        """Whether it was neither let go nor made part of another one."""
        return self.turn != _GONE


class Bundles:
    """The bundles of one worker. Not for two threads at once; times are in seconds of one clock.

    What was scored is held until then at least (`held_until`), however long ago it came.
    """

    def __init__(self, patience: Patience, room: Room, *, held_until: float = 0.0) -> None:
        self._patience = patience
        self._held_until = held_until
        self._room = room
        self._of: dict[StitchKey, Bundle] = {}
        self._appointments: list[tuple[float, int, Bundle]] = []
        self._turns = 0
        self._firsts: dict[int, list[tuple[int, int, Bundle]]] = {}
        """By journal, a heap of the first entries of bundles in it; some are of bundles that were let go since."""
        self._in_memory: OrderedDict[Bundle, None] = OrderedDict()
        self._lost: OrderedDict[StitchKey, None] = OrderedDict()
        self._bundles = 0
        self.bytes = 0
        """Bytes of spans in memory."""
        self.evicted = 0
        """Bundles that were scored as they were, or let go early, because too many were held."""
        self.unscored = 0
        """Spans of bundles that are not scored because not all of them were taken in."""

    def __len__(self) -> int:
        return self._bundles

    # --- what comes in -----------------------------------------------------------------------------------------------

    def add(
        self,
        journal: int,
        entry: int,
        key: StitchKey,
        part: Part,
        now: float,
        *,
        size: int,
        spans: int,
        rooted: bool,
        arrived: float | None = None,
        held: bool = False,
    ) -> None:
        """Take in spans of an entry of a journal. Those of each journal come in their order.

        `now` is when they came, and for those that came before this process began, when it did; then `arrived` is when
        they came. `held`: they leave when they were scored.
        """
        bundle = self._touched(key, now, arrived, rooted=rooted)
        self._note_place(bundle, journal, entry, held=held)
        bundle.spans += spans
        if bundle.lost or bundle.spans > self._room.max_spans:
            self._lose(bundle)
        elif bundle.whole:
            bundle.parts.append(part)
            bundle.size += size
            self.bytes += size
            self._in_memory[bundle] = None
            while self.bytes > self._room.max_bytes:
                self._drop_parts(next(iter(self._in_memory)))

    def shed(self, journal: int, entry: int, key: StitchKey, now: float, *, spans: int, held: bool = False) -> None:
        """Take note of spans that will not be scored, and with them nothing of their trace."""
        bundle = self._touched(key, now, None)
        self._note_place(bundle, journal, entry, held=held)
        bundle.spans += spans
        self._lose(bundle)

    def join(self, bundles: Iterable[Bundle], key: StitchKey) -> Bundle:
        """Make one of several bundles, found by a further key from now on."""
        first, *others = sorted(dict.fromkeys(bundles), key=lambda bundle: -len(bundle.keys))
        for other in others:
            self._merge(first, other)
        if key not in self._of:
            self._of[key] = first
            first.keys.append(key)
            if self._lost.pop(key, 0) is None:
                self._lose(first)
        self._appoint(first)
        return first

    def fit(self, *bundles: Bundle) -> bool:
        """Whether bundles may be joined: not where that makes too many spans for one, or one cannot be scored."""
        several = dict.fromkeys(bundles)
        spans = sum(bundle.spans for bundle in several)
        return len(several) == 1 or not (any(bundle.lost for bundle in several) or spans > self._room.max_spans)

    def find(self, key: StitchKey) -> Bundle | None:
        """What is held by that key."""
        return self._of.get(key)

    # --- time --------------------------------------------------------------------------------------------------------

    def due(self, now: float) -> Iterator[Bundle]:
        """What is to be scored now, one by one. What has been scored for long enough is let go on the way.

        Whoever cannot score one asks for no more of them now: it is due once more then.
        """
        while self._appointments and self._appointments[0][0] <= now:
            _, turn, bundle = heappop(self._appointments)
            if turn != bundle.turn:
                continue
            if self._time_of(bundle) > now:
                self._appoint(bundle)
            elif bundle.changed:
                yield bundle
            else:
                self.let_go(bundle)
        while self._bundles > self._room.max_bundles:
            yield from self._leaving(next(iter(self._of.values())))

    def make_way(self, journal: int) -> Iterator[Bundle]:
        """Let go of what needs the oldest entry of a journal; it is to be scored first if it comes out."""
        if self.oldest(journal) is not None:
            yield from self._leaving(self._firsts[journal][0][2])

    def _leaving(self, bundle: Bundle) -> Iterator[Bundle]:
        if bundle.changed:
            self.evicted += 1
            bundle.leaving = True
            yield bundle
        self.let_go(bundle)

    def complete(self) -> list[Bundle]:
        """What was not scored yet and waits for nothing that is known to be missing."""
        waiting = [bundle for bundle in dict.fromkeys(self._of.values()) if bundle.changed]
        return [bundle for bundle in waiting if bundle.rooted and not bundle.pieces]

    def next_time(self) -> float | None:
        """When something may be due; `None`: nothing is held."""
        return self._appointments[0][0] if self._appointments else None

    def scored(self, bundle: Bundle) -> None:
        """Take note that a bundle was scored with everything that is in it. Its spans leave the memory."""
        bundle.changed = False
        bundle.held.clear()
        self._drop_parts(bundle)
        self._appoint(bundle)

    def try_again(self, bundle: Bundle, now: float) -> None:
        """Have a bundle that was due be due once more, as if something had come for it."""
        bundle.active = max(bundle.active, now)
        self._appoint(bundle)

    def wait_on(self, bundle: Bundle) -> None:
        """Have a bundle that was due wait for the rest of its session."""
        bundle.pieces = True
        self._appoint(bundle)

    def let_go(self, bundle: Bundle) -> None:
        """Forget a bundle."""
        self._drop_parts(bundle)
        for key in bundle.keys:
            self._of.pop(key, None)
            if bundle.lost:
                self._lost[key] = None
        while len(self._lost) > _LOST_KEPT:
            self._lost.popitem(last=False)
        bundle.turn = _GONE
        self._bundles -= 1

    def oldest(self, journal: int) -> int | None:
        """The first entry of a journal that is needed for what is held; `None`: none is."""
        firsts = self._firsts.get(journal, [])
        while firsts and not _is_first(firsts[0], journal):
            heappop(firsts)
        return firsts[0][0] if firsts else None

    # --- inside ------------------------------------------------------------------------------------------------------

    def _touched(self, key: StitchKey, now: float, arrived: float | None, *, rooted: bool = False) -> Bundle:
        """The bundle of a key, with note taken that something came for it at that time."""
        bundle = self._of.get(key)
        if bundle is None:
            bundle = self._of[key] = Bundle([key], now, now, lost=self._lost.pop(key, 0) is None)
            self._bundles += 1
        # Journals of several workers are not read in one order.
        bundle.active = max(bundle.active, now)
        bundle.arrived = max(bundle.arrived, now if arrived is None else arrived)
        if bundle.turn and bundle.changed and (bundle.rooted or not rooted):
            return bundle  # the appointment that it has comes first, and is put off when it does
        if not bundle.changed:
            bundle.changed, bundle.began = True, now
        bundle.rooted = bundle.rooted or rooted
        self._appoint(bundle)
        return bundle

    def _time_of(self, bundle: Bundle) -> float:
        patience = self._patience
        if not bundle.changed:
            late = patience.late * (1 if bundle.rooted or bundle.lost else _ROOTLESS)
            return max(bundle.arrived + late, self._held_until)
        if bundle.pieces:
            return min(bundle.active + patience.idle, bundle.began + patience.idle * _PIECES)
        rest = patience.grace if bundle.rooted else patience.idle
        return min(bundle.active + rest, bundle.began + patience.lifetime)

    def _appoint(self, bundle: Bundle) -> None:
        self._turns += 1
        bundle.turn = self._turns
        heappush(self._appointments, (self._time_of(bundle), self._turns, bundle))

    def _note_place(self, bundle: Bundle, journal: int, entry: int, *, held: bool) -> None:
        if held:
            bundle.held.add((journal, entry))
        entries = bundle.places.get(journal)
        if entries is None:
            bundle.places[journal] = [entry]
            self._note_first(bundle, journal)
        elif entries[-1] != entry:
            entries.append(entry)

    def _note_first(self, bundle: Bundle, journal: int) -> None:
        self._turns += 1  # so that no two bundles are compared
        firsts = self._firsts.setdefault(journal, [])
        heappush(firsts, (bundle.places[journal][0], self._turns, bundle))
        if len(firsts) > 4 * self._bundles + 1_000:  # behind one that is held for long, others are let go
            firsts[:] = [first for first in firsts if _is_first(first, journal)]
            heapify(firsts)

    def _merge(self, into: Bundle, other: Bundle) -> None:
        """Put one bundle's spans into another."""
        for key in other.keys:
            self._of[key] = into
        into.keys += other.keys
        for journal, entries in other.places.items():
            own = into.places.get(journal, [])
            if own and own[-1] < entries[0]:
                own += entries
                continue
            into.places[journal] = sorted({*own, *entries})
            if not own or entries[0] < own[0]:
                self._note_first(into, journal)
        into.whole = into.whole and other.whole
        into.parts += other.parts
        into.size += other.size
        into.spans += other.spans
        into.began, into.active = min(into.began, other.began), max(into.active, other.active)
        into.rooted = into.rooted or other.rooted
        into.arrived = max(into.arrived, other.arrived)
        into.counted += other.counted
        into.recalled = into.recalled and other.recalled
        into.changed = into.changed or other.changed
        into.forgotten |= other.forgotten
        into.known.update(other.known)
        into.needed.update(other.needed)
        into.held |= other.held
        other.parts, other.size, other.turn = [], 0, _GONE
        self._in_memory.pop(other, None)
        self._bundles -= 1
        into.pieces = into.pieces or other.pieces
        if into.size:
            self._in_memory[into] = None
        if not into.whole:
            self._drop_parts(into)
        if into.lost or other.lost or into.spans > self._room.max_spans:
            self._lose(into)

    def _lose(self, bundle: Bundle) -> None:
        self.unscored += bundle.spans - bundle.counted
        bundle.counted = bundle.spans
        bundle.lost = True
        self._drop_parts(bundle)

    def _drop_parts(self, bundle: Bundle) -> None:
        self.bytes -= bundle.size
        bundle.parts, bundle.size, bundle.whole = [], 0, False
        self._in_memory.pop(bundle, None)


def _is_first(first: tuple[int, int, Bundle], journal: int) -> bool:
    """Whether the first entry that was noted of a bundle still is what that bundle needs first."""
    entry, _, bundle = first
    return bundle.is_held and bundle.places[journal][0] == entry
