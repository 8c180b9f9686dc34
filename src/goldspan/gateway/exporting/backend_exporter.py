"""Exports the journal's entries, unchanged, to one OTLP back end for the gateway, with retries.

The exporter handles responses as the OTLP specification requires, with these additions:

* A retryable request is retried without limit, with a backoff of up to 60 s. The journal keeps pending entries.
* 401, 403, 405, 407 and redirects (UNAUTHENTICATED, PERMISSION_DENIED) mean that a setting is wrong, not the data. The
  request is retried as in an outage, with longer pauses.
* 404 (UNIMPLEMENTED, NOT_FOUND) is handled in the same way, unless the back end accepts another signal. In that case it
  does not support this signal, and the exporter counts its requests as rejected. The setting `signals` avoids this.
* 413, and the gRPC errors for messages that are too large: the request is split in half.
* 415 for JSON: the request is sent in protobuf.
* A request that keeps failing while the back end accepts hundreds of others is itself at fault and is dropped.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from goldspan import _guard, semconv
from goldspan.errors import StoreError
from goldspan.gateway.exporting.backends import Backend
from goldspan.gateway.exporting.backoff import Backoff
from goldspan.gateway.exporting.outgoing_requests import (
    OutgoingRequest,
    PendingEntry,
    SendingQueue,
    split_in_half,
    to_protobuf,
)
from goldspan.gateway.exporting.senders import ExportResult, GrpcSender, HttpSender, Sender
from goldspan.gateway.gateway_counters import GatewayCounters
from goldspan.gateway.journal.journal import Journal
from goldspan.gateway.resource_limits import EXPORTED_ORIGINS, Signal
from goldspan.otlp.decode_results import DecodeError

_log = logging.getLogger("goldspan")

MAX_CONCURRENT_REQUESTS = 4
"""Maximum number of requests in flight per signal. With one, the round trip time would limit the rate."""
READ_BYTES = 2**20
READ_ENTRIES = 32
MAX_NOT_FOUND_RESPONSES = 3
"""Number of "not found" responses after which the back end counts as not supporting a signal."""
_OUTAGE_FAILURES = 3
"""Number of consecutive failures after which the exporter logs the recovery."""
_POLL_SECONDS = 0.5
"""Interval at which the thread that waits for entries checks for the end. The other threads are notified."""
_MAX_WAIT_SECONDS = 30.0
_IDLE_READ_SECONDS = 0.1
"""Delay of the next read after one that returned only entries of other signals."""
_READ_RETRY_SECONDS = 1.0
"""Delay before the next read of a journal that could not be read."""


class BackendExporter:
    """Exports a journal to one back end. Signals are exported independently, so that no signal waits for another.

    Entries are sent unchanged, except that JSON is converted to protobuf for gRPC. Delivery is at least once: after a
    crash, the requests that were in flight are sent again. The consumers in the journal are `backend.consumers`.
    `random_fraction` returns a number from 0 to 1 for the jitter of the backoff.

    Raises `ConfigurationError` for an invalid proxy in the environment.
    """

    def __init__(
        self,
        backend: Backend,
        journal: Journal,
        counters: GatewayCounters,
        *,
        random_fraction: Callable[[], float] = random.random,
    ) -> None:
        self.backend = backend
        self._journal = journal
        self._sender: Sender = (
            GrpcSender(backend)
            if backend.protocol == "grpc"
            else HttpSender(backend, MAX_CONCURRENT_REQUESTS * len(backend.signals))
        )
        backend_state = BackendState()
        self._signal_exporters = [
            SignalExporter(
                backend, signal, journal, counters, self._sender, backend_state, random_fraction=random_fraction
            )
            for signal in backend.consumers
        ]

    def start(self) -> None:
        """Start to export, in separate threads."""
        for exporter in self._signal_exporters:
            exporter.start()

    def stop(self, timeout: float) -> None:
        """Export for at most `timeout` seconds, then stop. The remaining entries stay in the journal.

        Stops earlier if everything is exported, or if the backoff lasts longer than the timeout.
        """
        deadline = time.monotonic() + timeout
        for exporter in self._signal_exporters:
            exporter.drain(deadline)
        for exporter in self._signal_exporters:
            exporter.join(deadline)
        self._sender.close()

    def status(self) -> dict[str, Any]:
        """Return the status for people and probes, without secrets. Unknown values are `None`."""
        signals = {exporter.signal: self._signal_status(exporter) for exporter in self._signal_exporters}
        known = [status["reachable"] for status in signals.values() if status["reachable"] is not None]
        return {
            "name": self.backend.name,
            "endpoint": self.backend.endpoint,
            "protocol": self.backend.protocol,
            "reachable": all(known) if known else None,
            "error": next((status["error"] for status in signals.values() if status["error"]), None),
            "behind_bytes": max(status["behind_bytes"] for status in signals.values()),
            "behind_seconds": max(status["behind_seconds"] for status in signals.values()),
            "signals": signals,
        }

    def _signal_status(self, exporter: SignalExporter) -> dict[str, Any]:
        try:
            size, seconds = self._journal.backlog(exporter.consumer)
        except StoreError:
            size, seconds = 0, 0.0  # the journal's health check reports the error
        return {
            "reachable": exporter.is_reachable,
            "error": exporter.error,
            "behind_bytes": size,
            "behind_seconds": seconds,
        }


@dataclass(slots=True)
class BackendState:
    """The state of one back end that its signals share."""

    accepted_signals: set[Signal] = field(default_factory=set)
    """Signals of which the back end has accepted a request."""


class SignalExporter:
    """Exports the entries of one signal to one back end, starting at its cursor in the journal.

    Entries start in journal order, and the cursor stays before the first pending entry: after a crash, the exporter
    sends the entries beyond the cursor again. Memory is bounded, however long the back end is unavailable.
    """

    def __init__(
        self,
        backend: Backend,
        signal: Signal,
        journal: Journal,
        counters: GatewayCounters,
        sender: Sender,
        backend_state: BackendState,
        *,
        random_fraction: Callable[[], float] = random.random,
    ) -> None:
        self.signal = signal
        self.consumer = backend.consumers[signal]
        self.error: str | None = None
        """The last error; `None` after an accepted request."""
        self.is_reachable: bool | None = None
        """Whether the last response shows a working back end; `None` before the first response."""
        self._backend = backend
        self._journal = journal
        self._counters = counters
        self._sender = sender
        self._backend_state = backend_state
        self._random_fraction = random_fraction
        self._backoff = Backoff(random_fraction)
        self._changed = threading.Condition()
        self._read_key = self._cursor = journal.cursor(self.consumer) or 0
        self._queue = SendingQueue()
        self._in_flight = self._accepted = self._not_found = 0
        self._next_read_at = 0.0
        self._is_waiting = False
        self._drain_deadline: float | None = None
        self._is_stopped = False
        self._logged: set[str] = set()
        self._threads = [
            threading.Thread(target=self._run, name=f"goldspan-{self.consumer}", daemon=True)
            for _ in range(MAX_CONCURRENT_REQUESTS)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def drain(self, deadline: float) -> None:
        """Continue until the deadline (monotonic clock), or until nothing is left or can be sent before it."""
        with self._changed:
            self._drain_deadline = deadline
            self._changed.notify_all()

    def join(self, deadline: float) -> None:
        """Wait for the threads until the deadline. Results that arrive later are ignored."""
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
        with self._changed:
            self._is_stopped = True

    # --- on each thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (pending := self._next_entry()) is not None:
            try:
                result = self._sender.send(self.signal, pending.requests[0])
            except Exception as error:  # noqa: BLE001 - a bug in the sender must not lose the request
                _guard.report_error(f"forward to {self._backend.name}", error)
                result = ExportResult("failed", type(error).__name__)
            with self._changed:
                if not self._is_stopped:
                    self._handle_result(pending, result)
                self._changed.notify_all()

    def _next_entry(self) -> PendingEntry | None:
        """Wait for the next entry to send and return it. Returns `None` when the exporter has finished."""
        with self._changed:
            while not self._is_finished(now := time.monotonic()):
                if pending := self._next_due(now):
                    pending.is_in_flight, pending.backoff_round = True, self._backoff.round
                    self._in_flight += 1
                    return pending
                if self._should_read(now):
                    if not self._read_entries(now):
                        self._wait_for_entries(self._idle_seconds(now, _POLL_SECONDS))
                else:
                    self._changed.wait(self._idle_seconds(now, _MAX_WAIT_SECONDS))
            self._changed.notify_all()
            return None

    def _is_finished(self, now: float) -> bool:
        if self._is_stopped or self._drain_deadline is None:
            return self._is_stopped
        is_drained = not self._queue and self._read_key >= self._last_key()
        retries_too_late = not self._in_flight and self._backoff.retry_at > self._drain_deadline
        self._is_stopped = is_drained or retries_too_late or now >= self._drain_deadline
        return self._is_stopped

    def _last_key(self) -> int:
        try:
            return self._journal.last_key
        except StoreError:
            return self._read_key

    def _next_due(self, now: float) -> PendingEntry | None:
        """Return the due entry with the fewest attempts, unless the limit or the backoff forbids a request now."""
        if (
            self._in_flight >= (1 if self._backoff.is_failing else MAX_CONCURRENT_REQUESTS)
            or now < self._backoff.retry_at
        ):
            return None
        return self._queue.next_due(now)

    def _should_read(self, now: float) -> bool:
        if self._is_waiting or now < max(self._next_read_at, self._backoff.retry_at):
            return False
        return self._queue.has_capacity()

    def _read_entries(self, now: float) -> bool:
        """Read entries into the queue. Returns whether any entry was read, of any signal, or reading failed."""
        try:
            last_key = self._journal.last_key
            entries = self._journal.read(
                self._read_key, max_bytes=READ_BYTES, max_entries=READ_ENTRIES, origins=EXPORTED_ORIGINS
            )
        except StoreError as error:
            self._log_once("journal", f"the journal cannot be read: {error}")
            self._next_read_at = now + _READ_RETRY_SECONDS
            return True
        signal_entries = [entry for entry in entries if entry.signal == self.signal]
        for entry in signal_entries:
            self._queue.add(entry, self._accepted)
        if entries and not signal_entries and entries[-1].key >= last_key:
            self._next_read_at = now + _IDLE_READ_SECONDS
        self._read_key = entries[-1].key if entries else max(self._read_key, last_key)
        self._advance_cursor()
        return bool(entries)

    def _wait_for_entries(self, timeout: float) -> None:
        """Wait for new entries, in one thread for all. Releases the lock, which the caller holds, while it waits."""
        self._is_waiting = True
        read_key, deadline, has_new_entries = self._read_key, time.monotonic() + timeout, False
        self._changed.release()
        try:
            with suppress(StoreError):  # the next read logs the error
                has_new_entries = self._journal.wait(read_key, timeout)
        finally:
            self._changed.acquire()
            self._is_waiting = False
            if not has_new_entries and time.monotonic() < deadline:  # waiting failed, or the journal was closed
                self._next_read_at = time.monotonic() + _READ_RETRY_SECONDS
            self._changed.notify_all()

    def _idle_seconds(self, now: float, max_seconds: float) -> float:
        """Return the seconds until the next possible action, at most `max_seconds`."""
        next_due_time = self._queue.next_due_time()
        wake_times = [] if next_due_time is None else [max(self._backoff.retry_at, next_due_time)]
        if self._drain_deadline is not None:
            wake_times.append(self._drain_deadline)
        if self._next_read_at > now:
            wake_times.append(self._next_read_at)
        return max(0.005, min([max_seconds, *(wake_time - now for wake_time in wake_times if wake_time > now)]))

    # --- results, with the lock held ----------------------------------------------------------------------------------

    def _handle_result(self, pending: PendingEntry, result: ExportResult) -> None:
        pending.is_in_flight = False
        self._in_flight -= 1
        message = self._backend.redact(result.message)
        description = f"{result.status}: {message}" if message else result.status
        if result.kind == "accepted":
            self._on_accepted(pending, result, message)
        elif self._replace_request(pending, result):
            self._backoff.record_success()
        elif self._is_permanent(pending, result):
            self._on_rejected(pending, result, description)
        else:
            self._schedule_retry(pending, result, description)

    def _on_accepted(self, pending: PendingEntry, result: ExportResult, message: str) -> None:
        if self._backoff.failures >= _OUTAGE_FAILURES:
            _log.warning("goldspan: back end %s accepts %s again", self._backend.name, self.signal)
            self._logged.clear()
        self._backoff.record_success()
        self._backend_state.accepted_signals.add(self.signal)
        self.is_reachable, self.error = True, None
        self._accepted += 1
        self._not_found = 0
        self._counters.add(semconv.GATEWAY_FORWARDED, backend=self._backend.name, signal=self.signal)
        if result.rejected_count:
            labels = {"backend": self._backend.name, "signal": self.signal}
            self._counters.add(semconv.GATEWAY_FORWARD_LEFT_OUT, result.rejected_count, **labels)
            self._log_once(
                "partial", f"{result.rejected_count} items of a request were rejected (logged once): {message}"
            )
        elif message:
            self._log_once("warning", f"a request was accepted with a warning (logged once): {message}")
        self._queue.complete_request(pending)
        self._advance_cursor()

    def _on_rejected(self, pending: PendingEntry, result: ExportResult, description: str) -> None:
        self._backoff.record_success()
        self.is_reachable = True
        self.error = description
        self._counters.add(semconv.GATEWAY_FORWARD_REJECTED, backend=self._backend.name, signal=self.signal)
        self._log_once(
            result.status, f"a request was rejected and is not retried (logged once for each status): {description}"
        )
        self._queue.complete_request(pending)
        self._advance_cursor()

    def _is_permanent(self, pending: PendingEntry, result: ExportResult) -> bool:
        """Whether a retry cannot succeed."""
        if result.kind in ("rejected", "too_large", "unsupported_media"):
            return True
        if result.kind == "not_found":
            # With a wrong address no signal is accepted. A back end that accepts another signal lacks only this one.
            other_signals = self._backend_state.accepted_signals - {self.signal}
            return (
                self._not_found >= MAX_NOT_FOUND_RESPONSES
                and bool(other_signals)
                and self.signal not in self._backend_state.accepted_signals
            )
        return result.kind != "throttled" and pending.is_poison(self._accepted)

    def _schedule_retry(self, pending: PendingEntry, result: ExportResult, description: str) -> None:
        now = time.monotonic()
        is_misconfigured = result.kind in ("misconfigured", "not_found")
        self._not_found += result.kind == "not_found" and pending.backoff_round == self._backoff.round
        is_throttled = result.kind == "throttled"
        pending.record_failure(now, self._accepted, is_throttled=is_throttled, random_fraction=self._random_fraction)
        self._backoff.record_failure(
            pending.backoff_round,
            now,
            retry_after_seconds=result.retry_after_seconds,
            is_misconfigured=is_misconfigured,
        )
        self.is_reachable = is_throttled
        self.error = description
        self._counters.add(semconv.GATEWAY_FORWARD_RETRIES, backend=self._backend.name)
        advice = "; check its address and headers in the settings" if is_misconfigured else ""
        self._log_once(result.status, f"the request is retried until it is accepted: {description}{advice}")

    def _replace_request(self, pending: PendingEntry, result: ExportResult) -> bool:
        """Replace a request that the back end cannot process by split or converted ones. Returns whether it did."""
        request = pending.requests[0]
        replacements: Iterable[OutgoingRequest] | None = None
        if result.kind == "too_large":
            replacements = split_in_half(self.signal, request)
        elif result.kind == "unsupported_media" and request.media == "json":
            with suppress(DecodeError):
                replacements = (to_protobuf(self.signal, request),)
        if replacements is None:
            return False
        pending.replace_first_request(replacements)
        return True

    def _advance_cursor(self) -> None:
        first_key = self._queue.first_key
        cursor = self._read_key if first_key is None else first_key - 1
        if cursor > self._cursor:
            self._cursor = cursor
            self._journal.advance({self.consumer: cursor})

    def _log_once(self, topic: str, text: str) -> None:
        """Log a warning once per topic, and again after an outage."""
        if topic not in self._logged:
            self._logged.add(topic)
            _log.warning("goldspan forwards %s to %s: %s", self.signal, self._backend.name, text)
