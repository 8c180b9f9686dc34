"""What HTTP and gRPC share: a body comes in piece by piece, is read, put into the journal, and acknowledged from there.

Everything that can go wrong is an `Answer`. A request holds memory only within the limits, and is acknowledged only
when its journal entry is committed.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections import Counter, deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from goldspan import _guard, semconv
from goldspan.errors import StoreError
from goldspan.gateway.decoding.decompression import Decompressor
from goldspan.gateway.decoding.export_response import ExportResponse, RequestRefused, ValidatedRequest
from goldspan.gateway.decoding.request_validation import validate_request
from goldspan.gateway.journal.journal import JournalFull

if TYPE_CHECKING:
    from goldspan.gateway.gateway_counters import GatewayCounters
    from goldspan.gateway.journal.journal import Journal
    from goldspan.gateway.resource_limits import EntryOrigin, Media, ResourceLimits, Signal

COUNTER_FLUSH_SECONDS = 0.5
"""How long counts are kept before they are added to the counters: that costs as much as reading ten spans."""

_EXTENSION_SECONDS = 0.01
_MAX_IDLE_EXTENSIONS = 4
"""When a body is late, the event loop may be: so many rounds without anything of it say that it is the body."""
_MAX_EXTENSIONS = 100


class BodyDeadline:
    """Around what must come from a client in time: raises `Refused` 408 where it does not, or what it is ended with.

    `asyncio.timeout` does the same from Python 3.11 on. But a loop that lags sees the time before what has arrived:
    what has is taken first.
    """

    __slots__ = ("_handle", "_idle_rounds", "_response", "_rounds", "_seconds", "_task", "has_progress")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._response: ExportResponse | None = None
        self._rounds = self._idle_rounds = 0
        self.has_progress = False
        """For whoever waits to say that something came."""

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._handle = asyncio.get_running_loop().call_later(self._seconds, self._expire)

    def _expire(self) -> None:
        self._rounds += 1
        self._idle_rounds = 0 if self.has_progress else self._idle_rounds + 1
        self.has_progress = False
        if self._idle_rounds > _MAX_IDLE_EXTENSIONS or self._rounds > _MAX_EXTENSIONS:
            message = f"the body did not arrive within {self._seconds:g} seconds (body_seconds)"
            self.refuse(ExportResponse(408, message, limit="body_seconds"))
        else:
            self._handle = asyncio.get_running_loop().call_later(_EXTENSION_SECONDS, self._expire)

    def refuse(self, answer: ExportResponse) -> None:
        """Wait no longer, and refuse."""
        if self._response is None:
            self._response = answer
            self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._handle.cancel()
        if self._response is not None and kind is not None and issubclass(kind, asyncio.CancelledError):
            if sys.version_info >= (3, 11):  # a task counts who wants it cancelled
                self._task.uncancel()
            raise RequestRefused(self._response) from None


class CommitWaiter:
    """Waits for commits of the journal's thread: all that one transaction held wake the loop up once."""

    def __init__(self) -> None:
        self._resolved: deque[tuple[asyncio.Future[None], BaseException | None]] = deque()
        self._is_wakeup_scheduled = False

    def wait(self, commit: Future[int]) -> asyncio.Future[None]:
        """Done, or failed, when the commit is. To give up waiting for it does not cancel it."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        commit.add_done_callback(lambda done: self._resolve(loop, waiter, done.exception()))
        return waiter

    def _resolve(
        self, loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None], error: BaseException | None
    ) -> None:
        self._resolved.append((waiter, error))
        if not self._is_wakeup_scheduled:
            self._is_wakeup_scheduled = True
            with suppress(RuntimeError):  # the loop is closed: nobody waits any longer
                loop.call_soon_threadsafe(self._wake_waiters)

    def _wake_waiters(self) -> None:
        self._is_wakeup_scheduled = False  # first, so that what is settled from here on wakes the loop up again
        while self._resolved:
            waiter, error = self._resolved.popleft()
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)


class BufferedCounters:
    """Counts of many requests, added to the counters together: a counter of OpenTelemetry costs microseconds."""

    def __init__(self, counting: GatewayCounters) -> None:
        self._counters = counting
        self._pending: Counter[tuple[str, tuple[tuple[str, str | int], ...]]] = Counter()

    def add(self, name: str, number: int, **labels: str | int) -> None:
        """Count so many more, soon."""
        if not self._pending:
            asyncio.get_running_loop().call_later(COUNTER_FLUSH_SECONDS, self.flush)
        self._pending[name, tuple(labels.items())] += number

    def flush(self) -> None:
        """Count what was kept, now."""
        kept, self._pending = self._pending, Counter()
        for (name, labels), number in kept.items():
            self._counters.add(name, number, **dict(labels))


_log = logging.getLogger("goldspan.gateway")

BUSY_RETRY_SECONDS = 1.0
"""After how long a client that met a limit on what is under way at once may try again: requests take milliseconds."""
FULL_RETRY_SECONDS = 5.0
"""The same where the journal has no room or its disk does not work: back ends or people have to do something."""
LOG_INTERVAL_SECONDS = 60.0
"""How often the same trouble is logged."""
SLOW_BODY_SECONDS = 2.0
"""How long a body may be on its way before it has to make room for others, where there is none."""

_INLINE_BYTES = {"protobuf": 512 * 2**10, "json": 32 * 2**10}
"""Bodies up to so long are read in the event loop, within a millisecond or two; others in a thread beside it."""
_YIELD_BYTES = 2**20
"""After inflating so much, others may go on."""


class ClientDisconnected(Exception):  # noqa: N818 - says what happened
    """The client went away before its request was complete: nobody waits for an answer."""


class RequestBody(Protocol):
    """A request's body as a door gets it from its client."""

    content_length: int | None
    """Bytes that it says it has, as they are sent; None where it does not say."""
    content_encoding: str | None
    """Its content coding, known after the first piece at the latest."""

    async def read_chunk(self) -> tuple[bytes, bool]:
        """The next piece, and whether there are more. Raises `Gone`; may raise `Refused`."""
        ...


class Receiver:
    """Receives export requests for all doors of a worker, in their event loop. Other threads may call `drain` only.

    `partitioned`: whether several workers score, each its own traces. `holds`: whether spans are handed on only when
    they were scored.
    """

    def __init__(
        self,
        journal: Journal,
        limits: ResourceLimits,
        counting: GatewayCounters,
        *,
        partitioned: bool,
        hold_traces: bool = False,
    ) -> None:
        self._journal = journal
        self._limits = limits
        self._counters = BufferedCounters(counting)
        self._partitioned = partitioned
        self._hold_traces = hold_traces
        self._requests = 0
        self._complete_requests = 0
        self._bytes = 0
        self._incomplete: dict[_RequestReservation, None] = {}  # the oldest first
        self._draining = False
        self._last_logged = -LOG_INTERVAL_SECONDS
        self._commits = CommitWaiter()
        self._validators = ThreadPoolExecutor(2, thread_name_prefix="goldspan-read")

    @property
    def requests_in_flight(self) -> int:
        """Requests that are not answered yet."""
        return self._requests

    @property
    def bytes_in_flight(self) -> int:
        """Bytes of the bodies of these requests."""
        return self._bytes

    def drain(self) -> None:
        """From now on answer new requests with 503: somebody else is there for them, or this one is again, soon."""
        self._draining = True

    def close(self) -> None:
        """Add what was counted; for when the doors are closed."""
        self._counters.flush()
        self._validators.shutdown(wait=False)

    async def receive(self, signal: Signal, media: Media, body: RequestBody, *, transport: str) -> ExportResponse:
        """Take one export request: its answer, once what it holds is in the journal. Raises `Gone`.

        `transport`: `http` or `grpc`, for the counters.
        """
        held = _RequestReservation(self)
        try:
            held.admit()
            answer = await self._receive(signal, media, body, held)
        except ClientDisconnected:
            raise
        except RequestRefused as refused:
            answer = refused.response
        except Exception as error:  # ours: the client keeps what it sent, and the gateway goes on
            with _guard.suppress_errors("receive a request"):
                raise error
            answer = ExportResponse(503, "the gateway failed; its log says why", retry_after=FULL_RETRY_SECONDS)
        finally:
            held.release()
        self.count_response(signal, answer, transport=transport)
        return answer

    def count_response(self, signal: Signal, answer: ExportResponse, *, transport: str) -> None:
        """Count an answered request; for the doors, where one did not come as far as to be received."""
        self._counters.add(semconv.GATEWAY_REQUESTS, 1, signal=signal, transport=transport, status=answer.http_status)
        if answer.limit is not None:
            self._counters.add(semconv.GATEWAY_REFUSED, 1, limit=answer.limit)

    async def _receive(
        self, signal: Signal, media: Media, body: RequestBody, held: _RequestReservation
    ) -> ExportResponse:
        limits = self._limits
        if body.content_length is not None and body.content_length > limits.max_body_bytes:
            message = f"the body is longer than {limits.max_body_bytes:,} bytes"
            raise RequestRefused(ExportResponse(413, message, limit="max_body_bytes"))
        with held.deadline:
            data = await self._read_body(body, held)
        held.complete()
        reception = await self._validate(signal, media, data)
        if reception.item_count:
            await self._commit(signal, media, reception)
            self._counters.add(semconv.GATEWAY_ITEMS, reception.item_count, signal=signal)
            self._counters.add(semconv.GATEWAY_BYTES, len(data), signal=signal)
        if reception.rejected_count:
            self._counters.add(semconv.GATEWAY_REJECTED, reception.rejected_count, signal=signal)
        return ExportResponse(200, reception.rejection_reason, rejected=reception.rejected_count)

    def evict_slow_requests(self, number: int, held: _RequestReservation) -> None:
        """For so many more bytes of one request: refuse others that have been on their way for long, the longest first.

        So whoever never completes what they send keeps nobody out.
        """
        begun = asyncio.get_running_loop().time() - SLOW_BODY_SECONDS
        slow = [each for each in self._incomplete if each is not held and each.bytes and each.started_at <= begun]
        for each in sorted(slow, key=lambda each: -each.bytes):
            if self._bytes + number <= self._limits.max_received_bytes:
                return
            each.evict()

    async def _read_body(self, body: RequestBody, held: _RequestReservation) -> bytes:
        """The whole body, inflated."""
        piece, more = await body.read_chunk()
        sent = len(piece)
        deadline = held.deadline
        inflater = Decompressor(body.content_encoding, self._limits)
        kept: list[bytes] = []
        paused = 0
        try:
            while True:
                for part in inflater.feed(piece):
                    held.reserve(len(part))
                    kept.append(part)
                    if held.bytes - paused > _YIELD_BYTES:
                        paused = held.bytes
                        await asyncio.sleep(0)
                if not more:
                    break
                piece, more = await body.read_chunk()
                deadline.has_progress = True
                sent += len(piece)
            for part in inflater.finish():
                held.reserve(len(part))
                kept.append(part)
        except RequestRefused:
            kept.clear()
            held.release_bytes()
            while more and sent <= self._limits.max_body_bytes:
                # A client that is still sending when the connection is closed never sees the answer.
                piece, more = await body.read_chunk()
                sent += len(piece)
            raise
        return kept[0] if len(kept) == 1 else b"".join(kept)

    async def _validate(self, signal: Signal, media: Media, data: bytes) -> ValidatedRequest:
        if len(data) <= _INLINE_BYTES[media]:
            return validate_request(signal, media, data, self._limits, partitioned=self._partitioned)
        return await asyncio.get_running_loop().run_in_executor(
            self._validators, lambda: validate_request(signal, media, data, self._limits, partitioned=self._partitioned)
        )

    async def _commit(self, signal: Signal, media: Media, reception: ValidatedRequest) -> None:
        """Put it into the journal, and wait until it is on disk."""
        origin: EntryOrigin = "held" if self._hold_traces and signal == "traces" else "received"
        try:
            commit = self._journal.append(signal, media, reception.body, origin=origin, partitions=reception.partitions)
            await self._commits.wait(commit)
        except JournalFull as error:
            self._log_journal_full(error)
            full = ExportResponse(
                503, "the journal has no room", retry_after=FULL_RETRY_SECONDS, limit="max_journal_bytes"
            )
            raise RequestRefused(full) from None
        except StoreError as error:
            _guard.report_error("write the journal", error, with_traceback=False)
            raise RequestRefused(
                ExportResponse(503, "the journal cannot be written", retry_after=FULL_RETRY_SECONDS)
            ) from None

    def _log_journal_full(self, error: JournalFull) -> None:
        """Log why nothing is taken: now and then, as long as it is so."""
        now = time.monotonic()
        if now >= self._last_logged + LOG_INTERVAL_SECONDS:
            self._last_logged = now
            _log.error("requests are refused: %s", error)


class _RequestReservation:
    """What one request takes of what all may hold at once.

    Those that are complete count as `max_requests`. Those that are not are bounded by connections, bytes and time.
    """

    __slots__ = ("_is_admitted", "_is_completed", "_receiver", "bytes", "deadline", "started_at")

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._is_admitted = 0
        self._is_completed = 0
        self.bytes = 0
        self.started_at = asyncio.get_running_loop().time()
        self.deadline = BodyDeadline(receiver._limits.body_seconds)

    def admit(self) -> None:
        receiver = self._receiver
        if receiver._draining:
            raise RequestRefused(ExportResponse(503, "the gateway is shutting down", retry_after=BUSY_RETRY_SECONDS))
        self._check_request_limit()
        receiver._requests += 1
        self._is_admitted = 1
        receiver._incomplete[self] = None

    def complete(self) -> None:
        receiver = self._receiver
        del receiver._incomplete[self]
        self._check_request_limit()
        receiver._complete_requests += 1
        self._is_completed = 1

    def _check_request_limit(self) -> None:
        if self._receiver._complete_requests >= self._receiver._limits.max_requests:
            raise RequestRefused(_too_busy("requests", "max_requests"))

    def reserve(self, number: int) -> None:
        receiver = self._receiver
        if receiver._bytes + number > receiver._limits.max_received_bytes:
            receiver.evict_slow_requests(number, self)
            if receiver._bytes + number > receiver._limits.max_received_bytes:
                raise RequestRefused(_too_busy("bytes", "max_received_bytes"))
        receiver._bytes += number
        self.bytes += number

    def release_bytes(self) -> None:
        self._receiver._bytes -= self.bytes
        self.bytes = 0

    def evict(self) -> None:
        self.release_bytes()
        self.deadline.refuse(_too_busy("bytes", "max_received_bytes"))

    def release(self) -> None:
        self.release_bytes()
        self._receiver._incomplete.pop(self, None)
        self._receiver._requests -= self._is_admitted
        self._receiver._complete_requests -= self._is_completed


def _too_busy(what: str, limit: str) -> ExportResponse:
    return ExportResponse(429, f"too many {what} at once ({limit})", retry_after=BUSY_RETRY_SECONDS, limit=limit)
