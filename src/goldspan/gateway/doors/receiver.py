"""What HTTP and gRPC share: a body comes in piece by piece, is read, put into the journal, and acknowledged from there.

Everything that can go wrong is an `Answer`. A request holds memory only within the limits, and is acknowledged only
when its journal entry is committed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

from goldspan import _guard, semconv
from goldspan.errors import StoreError
from goldspan.gateway.doors.waiting import Commits, Counts, Deadline
from goldspan.gateway.intake.answers import Answer, Refused
from goldspan.gateway.intake.inflating import Inflater
from goldspan.gateway.intake.reading import Reception, read
from goldspan.gateway.journal.writing import JournalFull

if TYPE_CHECKING:
    from goldspan.gateway.counting import Counting
    from goldspan.gateway.journal.writing import Journal
    from goldspan.gateway.limits import Limits
    from goldspan.gateway.signals import Media, Origin, Signal

_log = logging.getLogger("goldspan.gateway")

BUSY_SECONDS = 1.0
"""After how long a client that met a limit on what is under way at once may try again: requests take milliseconds."""
FULL_SECONDS = 5.0
"""The same where the journal has no room or its disk does not work: back ends or people have to do something."""
TELLING_SECONDS = 60.0
"""How often the same trouble is logged."""
SLOW_SECONDS = 2.0
"""How long a body may be on its way before it has to make room for others, where there is none."""

_INLINE_BYTES = {"protobuf": 512 * 2**10, "json": 32 * 2**10}
"""Bodies up to so long are read in the event loop, within a millisecond or two; others in a thread beside it."""
_PAUSE_BYTES = 2**20
"""After inflating so much, others may go on."""


class Gone(Exception):  # noqa: N818 - says what happened
    """The client went away before its request was complete: nobody waits for an answer."""


class Body(Protocol):
    """A request's body as a door gets it from its client."""

    length: int | None
    """Bytes that it says it has, as they are sent; None where it does not say."""
    encoding: str | None
    """Its content coding, known after the first piece at the latest."""

    async def piece(self) -> tuple[bytes, bool]:
        """The next piece, and whether there are more. Raises `Gone`; may raise `Refused`."""
        ...


class Receiver:
    """Receives export requests for all doors of a worker, in their event loop. Other threads may call `drain` only.

    `partitioned`: whether several workers score, each its own traces. `holds`: whether spans are handed on only when
    they were scored.
    """

    def __init__(
        self, journal: Journal, limits: Limits, counting: Counting, *, partitioned: bool, holds: bool = False
    ) -> None:
        self._journal = journal
        self._limits = limits
        self._counts = Counts(counting)
        self._partitioned = partitioned
        self._holds = holds
        self._requests = 0
        self._complete = 0
        self._bytes = 0
        self._incomplete: dict[_Held, None] = {}  # the oldest first
        self._draining = False
        self._told = -TELLING_SECONDS
        self._commits = Commits()
        self._readers = ThreadPoolExecutor(2, thread_name_prefix="goldspan-read")

    @property
    def under_way(self) -> int:
        """Requests that are not answered yet."""
        return self._requests

    @property
    def bytes_held(self) -> int:
        """Bytes of the bodies of these requests."""
        return self._bytes

    def drain(self) -> None:
        """From now on answer new requests with 503: somebody else is there for them, or this one is again, soon."""
        self._draining = True

    def close(self) -> None:
        """Add what was counted; for when the doors are closed."""
        self._counts.flush()
        self._readers.shutdown(wait=False)

    async def receive(self, signal: Signal, media: Media, body: Body, *, transport: str) -> Answer:
        """Take one export request: its answer, once what it holds is in the journal. Raises `Gone`.

        `transport`: `http` or `grpc`, for the counters.
        """
        held = _Held(self)
        try:
            held.admit()
            answer = await self._take(signal, media, body, held)
        except Gone:
            raise
        except Refused as refused:
            answer = refused.answer
        except Exception as error:  # ours: the client keeps what it sent, and the gateway goes on
            with _guard.guard("receive a request"):
                raise error
            answer = Answer(503, "the gateway failed; its log says why", retry_after=FULL_SECONDS)
        finally:
            held.release()
        self.count(signal, answer, transport=transport)
        return answer

    def count(self, signal: Signal, answer: Answer, *, transport: str) -> None:
        """Count an answered request; for the doors, where one did not come as far as to be received."""
        self._counts.add(semconv.GATEWAY_REQUESTS, 1, signal=signal, transport=transport, status=answer.status)
        if answer.limit is not None:
            self._counts.add(semconv.GATEWAY_REFUSED, 1, limit=answer.limit)

    async def _take(self, signal: Signal, media: Media, body: Body, held: _Held) -> Answer:
        limits = self._limits
        if body.length is not None and body.length > limits.max_body_bytes:
            message = f"the body is longer than {limits.max_body_bytes:,} bytes"
            raise Refused(Answer(413, message, limit="max_body_bytes"))
        with held.deadline:
            data = await self._gather(body, held)
        held.complete()
        reception = await self._read(signal, media, data)
        if reception.items:
            await self._keep(signal, media, reception)
            self._counts.add(semconv.GATEWAY_ITEMS, reception.items, signal=signal)
            self._counts.add(semconv.GATEWAY_BYTES, len(data), signal=signal)
        if reception.rejected:
            self._counts.add(semconv.GATEWAY_REJECTED, reception.rejected, signal=signal)
        return Answer(200, reception.reason, rejected=reception.rejected)

    def make_room(self, number: int, held: _Held) -> None:
        """For so many more bytes of one request: refuse others that have been on their way for long, the longest first.

        So whoever never completes what they send keeps nobody out.
        """
        begun = asyncio.get_running_loop().time() - SLOW_SECONDS
        slow = [each for each in self._incomplete if each is not held and each.bytes and each.since <= begun]
        for each in sorted(slow, key=lambda each: -each.bytes):
            if self._bytes + number <= self._limits.max_received_bytes:
                return
            each.give_way()

    async def _gather(self, body: Body, held: _Held) -> bytes:
        """The whole body, inflated."""
        piece, more = await body.piece()
        sent = len(piece)
        deadline = held.deadline
        inflater = Inflater(body.encoding, self._limits)
        kept: list[bytes] = []
        paused = 0
        try:
            while True:
                for part in inflater.feed(piece):
                    held.take(len(part))
                    kept.append(part)
                    if held.bytes - paused > _PAUSE_BYTES:
                        paused = held.bytes
                        await asyncio.sleep(0)
                if not more:
                    break
                piece, more = await body.piece()
                deadline.moved = True
                sent += len(piece)
            for part in inflater.finish():
                held.take(len(part))
                kept.append(part)
        except Refused:
            kept.clear()
            held.drop()
            while more and sent <= self._limits.max_body_bytes:
                # A client that is still sending when the connection is closed never sees the answer.
                piece, more = await body.piece()
                sent += len(piece)
            raise
        return kept[0] if len(kept) == 1 else b"".join(kept)

    async def _read(self, signal: Signal, media: Media, data: bytes) -> Reception:
        if len(data) <= _INLINE_BYTES[media]:
            return read(signal, media, data, self._limits, partitioned=self._partitioned)
        return await asyncio.get_running_loop().run_in_executor(
            self._readers, lambda: read(signal, media, data, self._limits, partitioned=self._partitioned)
        )

    async def _keep(self, signal: Signal, media: Media, reception: Reception) -> None:
        """Put it into the journal, and wait until it is on disk."""
        origin: Origin = "held" if self._holds and signal == "traces" else "received"
        try:
            commit = self._journal.append(signal, media, reception.body, origin=origin, partitions=reception.partitions)
            await self._commits.wait(commit)
        except JournalFull as error:
            self._tell(error)
            full = Answer(503, "the journal has no room", retry_after=FULL_SECONDS, limit="max_journal_bytes")
            raise Refused(full) from None
        except StoreError as error:
            _guard.report("write the journal", error, traceback=False)
            raise Refused(Answer(503, "the journal cannot be written", retry_after=FULL_SECONDS)) from None

    def _tell(self, error: JournalFull) -> None:
        """Log why nothing is taken: now and then, as long as it is so."""
        now = time.monotonic()
        if now >= self._told + TELLING_SECONDS:
            self._told = now
            _log.error("requests are refused: %s", error)


class _Held:
    """What one request takes of what all may hold at once.

    Those that are complete count as `max_requests`. Those that are not are bounded by connections, bytes and time.
    """

    __slots__ = ("_admitted", "_completed", "_receiver", "bytes", "deadline", "since")

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._admitted = 0
        self._completed = 0
        self.bytes = 0
        self.since = asyncio.get_running_loop().time()
        self.deadline = Deadline(receiver._limits.body_seconds)

    def admit(self) -> None:
        receiver = self._receiver
        if receiver._draining:
            raise Refused(Answer(503, "the gateway is shutting down", retry_after=BUSY_SECONDS))
        self._check()
        receiver._requests += 1
        self._admitted = 1
        receiver._incomplete[self] = None

    def complete(self) -> None:
        receiver = self._receiver
        del receiver._incomplete[self]
        self._check()
        receiver._complete += 1
        self._completed = 1

    def _check(self) -> None:
        if self._receiver._complete >= self._receiver._limits.max_requests:
            raise Refused(_busy("requests", "max_requests"))

    def take(self, number: int) -> None:
        receiver = self._receiver
        if receiver._bytes + number > receiver._limits.max_received_bytes:
            receiver.make_room(number, self)
            if receiver._bytes + number > receiver._limits.max_received_bytes:
                raise Refused(_busy("bytes", "max_received_bytes"))
        receiver._bytes += number
        self.bytes += number

    def drop(self) -> None:
        self._receiver._bytes -= self.bytes
        self.bytes = 0

    def give_way(self) -> None:
        self.drop()
        self.deadline.end(_busy("bytes", "max_received_bytes"))

    def release(self) -> None:
        self.drop()
        self._receiver._incomplete.pop(self, None)
        self._receiver._requests -= self._admitted
        self._receiver._complete -= self._completed


def _busy(what: str, limit: str) -> Answer:
    return Answer(429, f"too many {what} at once ({limit})", retry_after=BUSY_SECONDS, limit=limit)
