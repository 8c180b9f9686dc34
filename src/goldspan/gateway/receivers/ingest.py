"""Reads, validates and journals each export request, for the HTTP and gRPC receivers.

Every failure becomes an `ExportResponse`. The limits bound the memory of requests. A request is acknowledged once
its journal entry is committed.
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

BUSY_RETRY_SECONDS = 1.0
"""Retry-After for a limit on concurrent requests or bytes: requests take milliseconds."""
FULL_RETRY_SECONDS = 5.0
"""Retry-After for a full journal or a failed disk: a back end must recover, or an operator must act."""
LOG_INTERVAL_SECONDS = 60.0
"""Minimum interval between log records of the same problem."""
SLOW_BODY_SECONDS = 2.0
"""Age of an incomplete body from which it can be evicted when other requests need memory."""

_INLINE_BYTES = {"protobuf": 512 * 2**10, "json": 32 * 2**10}
"""Bodies up to this size are validated in the event loop, within a millisecond or two; larger ones in a thread."""
_YIELD_BYTES = 2**20
"""Decompressed bytes after which a request yields to the event loop."""
COUNTER_FLUSH_SECONDS = 0.5
"""How long counts are buffered before they are added to the counters, which costs as much as reading ten spans."""

_EXTENSION_SECONDS = 0.01
_MAX_IDLE_EXTENSIONS = 4
"""A body can seem late because the event loop is. After this many rounds without data, the body itself is late."""
_MAX_EXTENSIONS = 100

_log = logging.getLogger("goldspan.gateway")


class ClientDisconnected(Exception):  # noqa: N818 - named after the event
    """The client disconnected before its request was complete, so no response is sent."""


class RequestBody(Protocol):
    """The body of a request, as a receiver reads it from its client."""

    content_length: int | None
    """Declared size in bytes, before decompression; None if not declared."""
    content_encoding: str | None
    """Content coding, known after the first chunk at the latest."""

    async def read_chunk(self) -> tuple[bytes, bool]:
        """Return the next chunk and whether more follow. Raises `ClientDisconnected`; may raise `RequestRefused`."""
        ...


class Receiver:
    """Receives export requests for all protocols of a worker, in one event loop. Only `drain` is thread-safe.

    Args:
        journal: Stores the requests.
        limits: The limits of bodies, requests and bytes.
        counters: Counts requests, items and refusals.
        partitioned: Whether several workers score, each its own traces.
        hold_traces: Whether spans are exported only once they are scored.
    """

    def __init__(
        self,
        journal: Journal,
        limits: ResourceLimits,
        counters: GatewayCounters,
        *,
        partitioned: bool,
        hold_traces: bool = False,
    ) -> None:
        self._journal = journal
        self._limits = limits
        self._counters = BufferedCounters(counters)
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
        """Requests without a response yet."""
        return self._requests

    @property
    def bytes_in_flight(self) -> int:
        """Bytes of the decompressed bodies of these requests."""
        return self._bytes

    def drain(self) -> None:
        """Refuse new requests with 503 from now on. Another worker accepts them, or this one after its restart."""
        self._draining = True

    def close(self) -> None:
        """Flush the counters, after the receivers are closed."""
        self._counters.flush()
        self._validators.shutdown(wait=False)

    async def receive(self, signal: Signal, media: Media, body: RequestBody, *, transport: str) -> ExportResponse:
        """Receive one export request. Returns its response once its items are in the journal.

        `transport` is `http` or `grpc`, for the counters. Raises `ClientDisconnected`.
        """
        reservation = _RequestReservation(self)
        try:
            reservation.admit()
            response = await self._receive(signal, media, body, reservation)
        except ClientDisconnected:
            raise
        except RequestRefused as refusal:
            response = refusal.response
        except Exception as error:  # an error of the gateway: the client retries, and the gateway goes on
            with _guard.suppress_errors("receive a request"):
                raise error
            response = ExportResponse(503, "the gateway failed; its log has the reason", retry_after=FULL_RETRY_SECONDS)
        finally:
            reservation.release()
        self.count_response(signal, response, transport=transport)
        return response

    def count_response(self, signal: Signal, response: ExportResponse, *, transport: str) -> None:
        """Count a response. The receivers call it for requests that are refused before `receive`."""
        self._counters.add(semconv.GATEWAY_REQUESTS, 1, signal=signal, transport=transport, status=response.http_status)
        if response.limit is not None:
            self._counters.add(semconv.GATEWAY_REFUSED, 1, limit=response.limit)

    async def _receive(
        self, signal: Signal, media: Media, body: RequestBody, reservation: _RequestReservation
    ) -> ExportResponse:
        limits = self._limits
        if body.content_length is not None and body.content_length > limits.max_body_bytes:
            message = f"the body is longer than {limits.max_body_bytes:,} bytes"
            raise RequestRefused(ExportResponse(413, message, limit="max_body_bytes"))
        with reservation.deadline:
            data = await self._read_body(body, reservation)
        reservation.complete()
        validated = await self._validate(signal, media, data)
        if validated.item_count:
            await self._commit(signal, media, validated)
            self._counters.add(semconv.GATEWAY_ITEMS, validated.item_count, signal=signal)
            self._counters.add(semconv.GATEWAY_BYTES, len(data), signal=signal)
        if validated.rejected_count:
            self._counters.add(semconv.GATEWAY_REJECTED, validated.rejected_count, signal=signal)
        return ExportResponse(200, validated.rejection_reason, rejected=validated.rejected_count)

    def evict_slow_requests(self, number: int, reservation: _RequestReservation) -> None:
        """Refuse slow incomplete requests, the largest first, until `number` more bytes of one request fit.

        Clients that never complete their requests thus do not block others.
        """
        latest_start = asyncio.get_running_loop().time() - SLOW_BODY_SECONDS
        slow = [
            request
            for request in self._incomplete
            if request is not reservation and request.bytes and request.started_at <= latest_start
        ]
        for request in sorted(slow, key=lambda request: -request.bytes):
            if self._bytes + number <= self._limits.max_received_bytes:
                return
            request.evict()

    async def _read_body(self, body: RequestBody, reservation: _RequestReservation) -> bytes:
        """Return the whole body, decompressed."""
        chunk, more = await body.read_chunk()
        received_bytes = len(chunk)
        deadline = reservation.deadline
        decompressor = Decompressor(body.content_encoding, self._limits)
        parts: list[bytes] = []
        yielded_at = 0
        try:
            while True:
                for part in decompressor.feed(chunk):
                    reservation.reserve(len(part))
                    parts.append(part)
                    if reservation.bytes - yielded_at > _YIELD_BYTES:
                        yielded_at = reservation.bytes
                        await asyncio.sleep(0)
                if not more:
                    break
                chunk, more = await body.read_chunk()
                deadline.has_progress = True
                received_bytes += len(chunk)
            for part in decompressor.finish():
                reservation.reserve(len(part))
                parts.append(part)
        except RequestRefused:
            parts.clear()
            reservation.release_bytes()
            while more and received_bytes <= self._limits.max_body_bytes:
                # Read on: a client that is still sending when the connection is closed never sees the response.
                chunk, more = await body.read_chunk()
                received_bytes += len(chunk)
            raise
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _validate(self, signal: Signal, media: Media, data: bytes) -> ValidatedRequest:
        if len(data) <= _INLINE_BYTES[media]:
            return validate_request(signal, media, data, self._limits, partitioned=self._partitioned)
        return await asyncio.get_running_loop().run_in_executor(
            self._validators, lambda: validate_request(signal, media, data, self._limits, partitioned=self._partitioned)
        )

    async def _commit(self, signal: Signal, media: Media, validated: ValidatedRequest) -> None:
        """Append a validated request to the journal, and wait until it is on disk."""
        origin: EntryOrigin = "held" if self._hold_traces and signal == "traces" else "received"
        try:
            commit = self._journal.append(signal, media, validated.body, origin=origin, partitions=validated.partitions)
            await self._commits.wait(commit)
        except JournalFull as error:
            self._log_journal_full(error)
            full = ExportResponse(503, "the journal is full", retry_after=FULL_RETRY_SECONDS, limit="max_journal_bytes")
            raise RequestRefused(full) from None
        except StoreError as error:
            _guard.report_error("write the journal", error, with_traceback=False)
            raise RequestRefused(
                ExportResponse(503, "the journal cannot be written", retry_after=FULL_RETRY_SECONDS)
            ) from None

    def _log_journal_full(self, error: JournalFull) -> None:
        """Log why requests are refused, at most once per interval."""
        now = time.monotonic()
        if now >= self._last_logged + LOG_INTERVAL_SECONDS:
            self._last_logged = now
            _log.error("requests are refused: %s", error)


class _RequestReservation:
    """The share of one request in the limits that all requests have in common.

    `max_requests` limits complete requests. Connections, bytes and time limit incomplete ones.
    """

    __slots__ = ("_is_admitted", "_is_completed", "_receiver", "bytes", "deadline", "started_at")

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._is_admitted = False
        self._is_completed = False
        self.bytes = 0
        self.started_at = asyncio.get_running_loop().time()
        self.deadline = BodyDeadline(receiver._limits.body_seconds)

    def admit(self) -> None:
        receiver = self._receiver
        if receiver._draining:
            raise RequestRefused(ExportResponse(503, "the gateway is shutting down", retry_after=BUSY_RETRY_SECONDS))
        self._check_request_limit()
        receiver._requests += 1
        self._is_admitted = True
        receiver._incomplete[self] = None

    def complete(self) -> None:
        receiver = self._receiver
        del receiver._incomplete[self]
        self._check_request_limit()
        receiver._complete_requests += 1
        self._is_completed = True

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


def _too_busy(resource: str, limit: str) -> ExportResponse:
    return ExportResponse(429, f"too many {resource} at once ({limit})", retry_after=BUSY_RETRY_SECONDS, limit=limit)


class BodyDeadline:
    """A deadline around reads from a client. Raises `RequestRefused` with 408, or with the response given to `refuse`.

    Unlike `asyncio.timeout` (Python 3.11), it first reads data that has arrived: an event loop that lags handles the
    timer before the data.
    """

    __slots__ = ("_handle", "_idle_rounds", "_response", "_rounds", "_seconds", "_task", "has_progress")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._response: ExportResponse | None = None
        self._rounds = self._idle_rounds = 0
        self.has_progress = False
        """Set by the reader when data has arrived."""

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

    def refuse(self, response: ExportResponse) -> None:
        """Cancel the read and refuse the request."""
        if self._response is None:
            self._response = response
            self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._handle.cancel()
        if self._response is not None and kind is not None and issubclass(kind, asyncio.CancelledError):
            if sys.version_info >= (3, 11):  # a task counts its cancellation requests
                self._task.uncancel()
            raise RequestRefused(self._response) from None


class CommitWaiter:
    """Waits for commits of the journal's thread. All commits of one transaction wake the event loop up once."""

    def __init__(self) -> None:
        self._resolved: deque[tuple[asyncio.Future[None], BaseException | None]] = deque()
        self._is_wakeup_scheduled = False

    def wait(self, commit: Future[int]) -> asyncio.Future[None]:
        """Return a future that resolves or fails with the commit. Cancelling it does not cancel the commit."""
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
            with suppress(RuntimeError):  # the loop is closed, so nothing waits
                loop.call_soon_threadsafe(self._wake_waiters)

    def _wake_waiters(self) -> None:
        self._is_wakeup_scheduled = False  # first, so that later commits wake the loop up again
        while self._resolved:
            waiter, error = self._resolved.popleft()
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)


class BufferedCounters:
    """Sums counts of many requests before it adds them: each call of an OpenTelemetry counter costs microseconds."""

    def __init__(self, counters: GatewayCounters) -> None:
        self._counters = counters
        self._pending: Counter[tuple[str, tuple[tuple[str, str | int], ...]]] = Counter()

    def add(self, name: str, number: int, **labels: str | int) -> None:
        """Add to a counter with the next flush."""
        if not self._pending:
            asyncio.get_running_loop().call_later(COUNTER_FLUSH_SECONDS, self.flush)
        self._pending[name, tuple(labels.items())] += number

    def flush(self) -> None:
        """Add all pending counts to the counters now."""
        pending, self._pending = self._pending, Counter()
        for (name, labels), number in pending.items():
            self._counters.add(name, number, **dict(labels))
