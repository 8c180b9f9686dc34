"""One signal on its way to one back end: from the journal, several requests at once, until each is settled."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from goldspan import _guard, semconv
from goldspan.errors import StoreError
from goldspan.gateway.counting import Counting
from goldspan.gateway.forwarding.backends import BackEnd
from goldspan.gateway.forwarding.outcomes import Outcome, Sender
from goldspan.gateway.forwarding.pacing import Pace
from goldspan.gateway.forwarding.parts import Part, halves, in_protobuf
from goldspan.gateway.forwarding.unsettled import Pending, Unsettled
from goldspan.gateway.journal.writing import Journal
from goldspan.gateway.signals import TO_BACK_ENDS, Signal
from goldspan.otlp.decoding import DecodeError

_log = logging.getLogger("goldspan")

WINDOW = 4
"""So many requests of a signal are under way at once: one at a time, the rate would be that of the round trips."""
READ_BYTES = 2**20
READ_ENTRIES = 32
ABSENT = 3
"""So often a signal is answered with "there is no such thing" before that is believed."""
_OUTAGE = 3
"""After so many failures in a row it is worth a word that the back end is well again."""
_LOOK_SECONDS = 0.5
"""How often the thread that waits for entries looks whether the end has come; the others are told."""
_LONG = 30.0
_NAP_SECONDS = 0.1
"""How long entries may wait after others came that are of no concern here."""
_DISK_SECONDS = 1.0
"""How long to wait before a journal that could not be read is read again."""


@dataclass(slots=True)
class Reached:
    """What is known of one back end, by all of its signals."""

    taken: set[Signal] = field(default_factory=set)
    """Signals of which it took something."""


class Delivery:
    """Sends the entries of one signal to one back end, from where its cursor in the journal stands.

    Entries are started in their order, and the cursor stands before the first that is not settled: what was behind it
    when the process was killed is sent again. What is held in memory is bounded, however long the back end is away.
    """

    def __init__(
        self,
        backend: BackEnd,
        signal: Signal,
        journal: Journal,
        counting: Counting,
        sender: Sender,
        reached: Reached,
        *,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.signal = signal
        self.consumer = backend.consumers[signal]
        self.error: str | None = None
        """What went wrong the last time; `None` once something is taken again."""
        self.reachable: bool | None = None
        """Whether the last request was answered with anything that a back end in order says; `None` before that."""
        self._backend = backend
        self._journal = journal
        self._counting = counting
        self._sender = sender
        self._reached = reached
        self._chance = chance
        self._pace = Pace(chance)
        self._changed = threading.Condition()
        self._position = self._advanced = journal.cursor(self.consumer) or 0
        self._unsettled = Unsettled()
        self._flying = self._taken = self._absent = 0
        self._look_after = 0.0
        self._watching = False
        self._until: float | None = None
        self._over = False
        self._said: set[str] = set()
        self._threads = [
            threading.Thread(target=self._work, name=f"goldspan-{self.consumer}", daemon=True) for _ in range(WINDOW)
        ]

    def start(self) -> None:
        """Begin to send."""
        for thread in self._threads:
            thread.start()

    def drain(self, until: float) -> None:
        """Go on to that moment of the monotonic clock, or until nothing is left or can be sent by then."""
        with self._changed:
            self._until = until
            self._changed.notify_all()

    def join(self, until: float) -> None:
        """Wait until then for the end of it; what is under way after that changes nothing any more."""
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, until - time.monotonic()))
        with self._changed:
            self._over = True

    # --- on each of its threads ---------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (pending := self._next()) is not None:
            try:
                outcome = self._sender.send(self.signal, pending.parts[0])
            except Exception as error:  # noqa: BLE001 - a fault of ours; what is to be sent must not be lost by it
                _guard.report(f"forward to {self._backend.name}", error)
                outcome = Outcome("failed", type(error).__name__)
            with self._changed:
                if not self._over:
                    self._settle(pending, outcome)
                self._changed.notify_all()

    def _next(self) -> Pending | None:
        """The entry to send next, as soon as there is one; `None` when it is over."""
        with self._changed:
            while not self._is_over(now := time.monotonic()):
                if pending := self._due(now):
                    pending.flying, pending.round = True, self._pace.round
                    self._flying += 1
                    return pending
                if self._wants_more(now):
                    if not self._read_more(now):
                        self._watch(self._pause(now, _LOOK_SECONDS))
                else:
                    self._changed.wait(self._pause(now, _LONG))
            self._changed.notify_all()
            return None

    def _is_over(self, now: float) -> bool:
        if self._over or self._until is None:
            return self._over
        done = not self._unsettled and self._position >= self._last_key()
        hopeless = not self._flying and self._pace.rests_until > self._until
        self._over = done or hopeless or now >= self._until
        return self._over

    def _last_key(self) -> int:
        try:
            return self._journal.last_key
        except StoreError:
            return self._position

    def _due(self, now: float) -> Pending | None:
        """Of what may be sent now, the first that was tried least."""
        if self._flying >= (1 if self._pace.failing else WINDOW) or now < self._pace.rests_until:
            return None
        return self._unsettled.due(now)

    def _wants_more(self, now: float) -> bool:
        if self._watching or now < max(self._look_after, self._pace.rests_until):
            return False
        return self._unsettled.wants_more()

    def _read_more(self, now: float) -> bool:
        """Whether any entry came, of concern here or not."""
        try:
            last = self._journal.last_key
            entries = self._journal.read(
                self._position, max_bytes=READ_BYTES, max_entries=READ_ENTRIES, origins=TO_BACK_ENDS
            )
        except StoreError as error:
            self._say("journal", f"the journal cannot be read: {error}")
            self._look_after = now + _DISK_SECONDS
            return True
        ours = [entry for entry in entries if entry.signal == self.signal]
        for entry in ours:
            self._unsettled.hold(entry, self._taken)
        if entries and not ours and entries[-1].key >= last:
            self._look_after = now + _NAP_SECONDS
        self._position = entries[-1].key if entries else max(self._position, last)
        self._advance()
        return bool(entries)

    def _watch(self, timeout: float) -> None:
        """Wait for new entries: one thread does that for all. The lock is held before and after, but not meanwhile."""
        self._watching = True
        position, until, came = self._position, time.monotonic() + timeout, False
        self._changed.release()
        try:
            with suppress(StoreError):  # reading it will say so
                came = self._journal.wait(position, timeout)
        finally:
            self._changed.acquire()
            self._watching = False
            if not came and time.monotonic() < until:  # it failed, or was closed under us
                self._look_after = time.monotonic() + _DISK_SECONDS
            self._changed.notify_all()

    def _pause(self, now: float, most: float) -> float:
        """How long there is certainly nothing to do, unless something changes."""
        next_time = self._unsettled.next_time()
        moments = [] if next_time is None else [max(self._pace.rests_until, next_time)]
        if self._until is not None:
            moments.append(self._until)
        if self._look_after > now:
            moments.append(self._look_after)
        return max(0.005, min([most, *(moment - now for moment in moments if moment > now)]))

    # --- what became of it, with the lock held ------------------------------------------------------------------------

    def _settle(self, pending: Pending, outcome: Outcome) -> None:
        pending.flying = False
        self._flying -= 1
        message = self._backend.redacted(outcome.message)
        told = f"{outcome.status}: {message}" if message else outcome.status
        if outcome.kind == "taken":
            self._part_taken(pending, outcome, message)
        elif self._put_otherwise(pending, outcome):
            self._pace.succeed()
        elif self._is_final(pending, outcome):
            self._part_refused(pending, outcome, told)
        else:
            self._try_again(pending, outcome, told)

    def _part_taken(self, pending: Pending, outcome: Outcome, message: str) -> None:
        if self._pace.failures >= _OUTAGE:
            _log.warning("goldspan: back end %s takes %s again", self._backend.name, self.signal)
            self._said.clear()
        self._pace.succeed()
        self._reached.taken.add(self.signal)
        self.reachable, self.error = True, None
        self._taken += 1
        self._absent = 0
        self._counting.add(semconv.GATEWAY_FORWARDED, backend=self._backend.name, signal=self.signal)
        if outcome.rejected:
            labels = {"backend": self._backend.name, "signal": self.signal}
            self._counting.add(semconv.GATEWAY_FORWARD_LEFT_OUT, outcome.rejected, **labels)
            self._say("partial", f"{outcome.rejected} items of a request were not taken (said once): {message}")
        elif message:
            self._say("warning", f"a request was taken with a warning (said once): {message}")
        self._unsettled.finish_part(pending)
        self._advance()

    def _part_refused(self, pending: Pending, outcome: Outcome, told: str) -> None:
        self._pace.succeed()
        self.reachable = True
        self.error = told
        self._counting.add(semconv.GATEWAY_FORWARD_REJECTED, backend=self._backend.name, signal=self.signal)
        self._say(outcome.status, f"a request was refused and is not tried again (said once for each status): {told}")
        self._unsettled.finish_part(pending)
        self._advance()

    def _is_final(self, pending: Pending, outcome: Outcome) -> bool:
        """Whether it is of no use to try again."""
        if outcome.kind in ("refused", "too_large", "other_media"):
            return True
        if outcome.kind == "absent":
            # A wrong address has none of the signals. A back end that takes another one has just this not.
            others = self._reached.taken - {self.signal}
            return self._absent >= ABSENT and bool(others) and self.signal not in self._reached.taken
        return outcome.kind != "throttled" and pending.is_at_fault(self._taken)

    def _try_again(self, pending: Pending, outcome: Outcome, told: str) -> None:
        now = time.monotonic()
        barred = outcome.kind in ("barred", "absent")
        self._absent += outcome.kind == "absent" and pending.round == self._pace.round
        throttled = outcome.kind == "throttled"
        pending.fail(now, self._taken, throttled=throttled, chance=self._chance)
        self._pace.fail(pending.round, now, wait=outcome.wait, barred=barred)
        self.reachable = throttled
        self.error = told
        self._counting.add(semconv.GATEWAY_FORWARD_RETRIES, backend=self._backend.name)
        advice = "; look at its address and headers in the settings" if barred else ""
        self._say(outcome.status, f"tried again until it is taken, nothing is lost: {told}{advice}")

    def _put_otherwise(self, pending: Pending, outcome: Outcome) -> bool:
        """Whether what the back end could not take as it is can be sent in another form, in which it then stands."""
        part = pending.parts[0]
        instead: Iterable[Part] | None = None
        if outcome.kind == "too_large":
            instead = halves(self.signal, part)
        elif outcome.kind == "other_media" and part.media == "json":
            with suppress(DecodeError):
                instead = (in_protobuf(self.signal, part),)
        if instead is None:
            return False
        pending.put_instead(instead)
        return True

    def _advance(self) -> None:
        first = self._unsettled.first_key
        cursor = self._position if first is None else first - 1
        if cursor > self._advanced:
            self._advanced = cursor
            self._journal.advance({self.consumer: cursor})

    def _say(self, what: str, text: str) -> None:
        """Log something once, and again after an outage."""
        if what not in self._said:
            self._said.add(what)
            _log.warning("goldspan forwards %s to %s: %s", self.signal, self._backend.name, text)
