"""What HTTP and gRPC share: a body comes in piece by piece, is read, put into the journal, and acknowledged from there.

Everything that can go wrong is an `Answer`. A request holds memory only within the limits, and is acknowledged only
when its journal entry is committed.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from goldspan import _guard, semconv
from goldspan.errors import StoreError
from goldspan.gateway.intake.answers import Answer, Refused
from goldspan.gateway.intake.inflating import Inflater
from goldspan.gateway.intake.reading import Reception, read
from goldspan.gateway.journal.writing import JournalFull

if TYPE_CHECKING:
    from goldspan.gateway.counting import Counting
    from goldspan.gateway.journal.writing import Journal
    from goldspan.gateway.limits import Limits
    from goldspan.gateway.signals import Media, Signal

BUSY_SECONDS = 1.0
"""After how long a client that met a limit on what is under way at once may try again: requests take milliseconds."""
FULL_SECONDS = 5.0
"""The same where the journal has no room or its disk does not work: back ends or people have to do something."""
FLUSH_SECONDS = 0.5
"""How long counts are kept before they are added to the counters: that costs as much as reading ten spans."""

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

    `partitioned`: whether several workers score, each its own traces.
    """

    def __init__(self, journal: Journal, limits: Limits, counting: Counting, *, partitioned: bool) -> None:
        self._journal = journal
        self._limits = limits
        self._counts = _Counts(counting)
        self._partitioned = partitioned
        self._requests = 0
        self._bytes = 0
        self._draining = False
        self._commits = _Commits()
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
        with _Deadline(limits.body_seconds):
            data = await self._gather(body, held)
        reception = await self._read(signal, media, data)
        if reception.items:
            await self._keep(signal, media, reception)
            self._counts.add(semconv.GATEWAY_ITEMS, reception.items, signal=signal)
            self._counts.add(semconv.GATEWAY_BYTES, len(data), signal=signal)
        if reception.rejected:
            self._counts.add(semconv.GATEWAY_REJECTED, reception.rejected, signal=signal)
        return Answer(200, reception.reason, rejected=reception.rejected)

    async def _gather(self, body: Body, held: _Held) -> bytes:
        """The whole body, inflated."""
        piece, more = await body.piece()
        sent = len(piece)
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
                sent += len(piece)
            for part in inflater.finish():
                held.take(len(part))
                kept.append(part)
        except Refused:
            kept.clear()
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
        try:
            commit = self._journal.append(signal, media, reception.body, partitions=reception.partitions)
            await self._commits.wait(commit)
        except JournalFull as error:
            raise Refused(Answer(503, str(error), retry_after=FULL_SECONDS, limit="max_journal_bytes")) from None
        except StoreError as error:
            _guard.report("write the journal", error, traceback=False)
            raise Refused(Answer(503, "the journal cannot be written", retry_after=FULL_SECONDS)) from None


class _Held:
    """What one request takes of what all may hold at once."""

    __slots__ = ("_admitted", "_receiver", "bytes")

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._admitted = 0
        self.bytes = 0

    def admit(self) -> None:
        receiver = self._receiver
        if receiver._draining:
            raise Refused(Answer(503, "the gateway is shutting down", retry_after=BUSY_SECONDS))
        if receiver._requests >= receiver._limits.max_requests:
            raise Refused(_busy("requests", "max_requests"))
        receiver._requests += 1
        self._admitted = 1

    def take(self, number: int) -> None:
        receiver = self._receiver
        if receiver._bytes + number > receiver._limits.max_received_bytes:
            raise Refused(_busy("bytes", "max_received_bytes"))
        receiver._bytes += number
        self.bytes += number

    def release(self) -> None:
        self._receiver._requests -= self._admitted
        self._receiver._bytes -= self.bytes


def _busy(what: str, limit: str) -> Answer:
    return Answer(429, f"too many {what} at once ({limit})", retry_after=BUSY_SECONDS, limit=limit)


class _Deadline:
    """Around what must come from a client in time: raises `Refused` 408 where it does not.

    `asyncio.timeout` does the same from Python 3.11 on.
    """

    __slots__ = ("_expired", "_handle", "_seconds", "_task")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._expired = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._handle = asyncio.get_running_loop().call_later(self._seconds, self._expire)

    def _expire(self) -> None:
        self._expired = True
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._handle.cancel()
        if self._expired and kind is not None and issubclass(kind, asyncio.CancelledError):
            if sys.version_info >= (3, 11):  # a task counts who wants it cancelled
                self._task.uncancel()
            message = f"the body did not arrive within {self._seconds:g} seconds (body_seconds)"
            raise Refused(Answer(408, message, limit="body_seconds")) from None


class _Commits:
    """Waits for commits of the journal's thread: all that one transaction held wake the loop up once."""

    def __init__(self) -> None:
        self._settled: deque[tuple[asyncio.Future[None], BaseException | None]] = deque()
        self._woken = False

    def wait(self, commit: Future[int]) -> asyncio.Future[None]:
        """Done, or failed, when the commit is. To give up waiting for it does not cancel it."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        commit.add_done_callback(lambda done: self._settle(loop, waiter, done.exception()))
        return waiter

    def _settle(
        self, loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None], error: BaseException | None
    ) -> None:
        self._settled.append((waiter, error))
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):  # the loop is closed: nobody waits any longer
                loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._woken = False  # first, so that what is settled from here on wakes the loop up again
        while self._settled:
            waiter, error = self._settled.popleft()
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)


class _Counts:
    """Counts of many requests, added to the counters together: a counter of OpenTelemetry costs microseconds."""

    def __init__(self, counting: Counting) -> None:
        self._counting = counting
        self._kept: Counter[tuple[str, tuple[tuple[str, str | int], ...]]] = Counter()

    def add(self, name: str, number: int, **labels: str | int) -> None:
        if not self._kept:
            asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)
        self._kept[name, tuple(labels.items())] += number

    def flush(self) -> None:
        kept, self._kept = self._kept, Counter()
        for (name, labels), number in kept.items():
            self._counting.add(name, number, **dict(labels))
