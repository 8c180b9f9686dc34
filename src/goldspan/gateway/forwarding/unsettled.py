"""The entries that are on their way to a back end: read from the journal, and not settled yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from goldspan.gateway.forwarding.pacing import INITIAL_SECONDS, pause
from goldspan.gateway.forwarding.parts import Part
from goldspan.gateway.journal.writing import Entry

AHEAD = 1_000
"""How many entries behind the first unsettled one are sent at most: after a `kill -9` these are sent again."""
HELD_BYTES = 16 * 2**20
"""No more entries are read while so much is held."""
STRIKES = 10
TAKEN_MEANWHILE = 500
"""A request that failed `STRIKES` times while the back end took so many others is itself at fault, and is given up."""


@dataclass(slots=True, eq=False)
class Pending:
    """One entry that is not settled."""

    key: int
    at: int
    """How many were read before it."""
    size: int
    parts: deque[Part]
    """What of it is still to be sent: the whole, or pieces of it."""
    taken_before: int
    """How many requests the back end had taken when it was read."""
    taken_at_attempt: int
    attempts: int = 0
    strikes: int = 0
    """How often it failed again although others were taken meanwhile."""
    not_before: float = 0.0
    flying: bool = False
    round: int = 0
    """Of the pace, when it was sent last."""

    def fail(self, now: float, taken: int, *, throttled: bool, chance: Callable[[], float]) -> None:
        """Take note that it was not taken this time. Where others were, it waits longer each time than they do."""
        self.attempts += 1
        if taken > self.taken_at_attempt and self.attempts > 1 and not throttled:
            self.strikes += 1
            self.not_before = now + pause(self.strikes, initial=INITIAL_SECONDS, chance=chance)
        self.taken_at_attempt = taken

    def is_at_fault(self, taken: int) -> bool:
        """Whether so many others were taken that the fault must be its own."""
        return self.strikes >= STRIKES and taken - self.taken_before >= TAKEN_MEANWHILE

    def put_instead(self, parts: Iterable[Part]) -> None:
        """Have other parts sent instead of the first."""
        self.parts.popleft()
        self.parts.extendleft(reversed([*parts]))


class Unsettled:
    """What was read and is not settled, in the order of the journal. It is bounded. For one thread at a time."""

    def __init__(self) -> None:
        self._entries: dict[int, Pending] = {}
        self._read = 0
        self.held = 0
        """Bytes of entries."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def first_key(self) -> int | None:
        """The first entry that is not settled; `None`: all are."""
        return next(iter(self._entries), None)

    def hold(self, entry: Entry, taken: int) -> None:
        """Take an entry in, when the back end had taken so many requests."""
        part = Part(entry.media, entry.body)
        self._entries[entry.key] = Pending(entry.key, self._read, len(entry.body), deque([part]), taken, taken)
        self._read += 1
        self.held += len(entry.body)

    def due(self, now: float) -> Pending | None:
        """Of what may be sent now, the first that was tried least."""
        waiting = [each for each in self._waiting() if each.not_before <= now]
        return min(waiting, key=lambda each: each.attempts, default=None)

    def next_time(self) -> float | None:
        """From when on something may be sent; `None`: nothing waits."""
        return min((each.not_before for each in self._waiting()), default=None)

    def wants_more(self) -> bool:
        """Whether further entries are to be read: all that are here were tried, and there is room."""
        if self.held >= HELD_BYTES:
            return False
        first = next(iter(self._entries.values()), None)
        # One more with each attempt: only if others are taken is it known that the first one itself is at fault.
        if first is not None and self._read - first.at >= AHEAD + first.attempts:
            return False
        return all(each.attempts or each.flying for each in self._entries.values())

    def finish_part(self, pending: Pending) -> None:
        """Take note that the first part of an entry is settled, and with the last one all of it."""
        pending.parts.popleft()
        pending.attempts = pending.strikes = 0
        if not pending.parts:
            del self._entries[pending.key]
            self.held -= pending.size

    def _waiting(self) -> list[Pending]:
        return [each for each in self._entries.values() if not each.flying]
