"""Handing on what is in the journal to a back end, as it came, until it has all of it.

What the answers mean is what the OTLP specification says, with these decisions beside it:

* What may be tried again is tried for ever, with pauses that grow to a minute: the journal keeps what is not settled.
* 401, 403, 405, 407 and redirections (UNAUTHENTICATED, PERMISSION_DENIED) say that a setting is wrong, and nothing
  about the data: they are tried again like an outage, with longer pauses.
* So does 404 (UNIMPLEMENTED, NOT_FOUND), unless the back end takes another signal: then it simply has not this one,
  and what it is sent of it is counted as rejected. A setting, `signals`, says so beforehand.
* 413, and what gRPC servers say of messages that are too large: the request is sent in halves.
* 415 for JSON: it is sent in protobuf.
* One request that keeps failing while hundreds of others are taken is at fault itself, and is given up.
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
from goldspan.gateway.exporting.outgoing_requests import (
    Backoff,
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
"""So many requests of a signal are under way at once: one at a time, the rate would be that of the round trips."""
READ_BYTES = 2**20
READ_ENTRIES = 32
MAX_NOT_FOUND_ANSWERS = 3
"""So often a signal is answered with "there is no such thing" before that is believed."""
_OUTAGE_FAILURES = 3
"""After so many failures in a row it is worth a word that the back end is well again."""
_POLL_SECONDS = 0.5
"""How often the thread that waits for entries looks whether the end has come; the others are told."""
_MAX_WAIT_SECONDS = 30.0
_IDLE_READ_SECONDS = 0.1
"""How long entries may wait after others came that are of no concern here."""
_READ_RETRY_SECONDS = 1.0
"""How long to wait before a journal that could not be read is read again."""


@dataclass(slots=True)
class BackendState:
    """What is known of one back end, by all of its signals."""

    accepted_signals: set[Signal] = field(default_factory=set)
    """Signals of which it took something."""


class SignalExporter:
    """Sends the entries of one signal to one back end, from where its cursor in the journal stands.

    Entries are started in their order, and the cursor stands before the first that is not settled: what was behind it
    when the process was killed is sent again. What is held in memory is bounded, however long the back end is away.
    """

    def __init__(
        self,
        backend: Backend,
        signal: Signal,
        journal: Journal,
        counting: GatewayCounters,
        sender: Sender,
        backend_state: BackendState,
        *,
        random_fraction: Callable[[], float] = random.random,
    ) -> None:
        self.signal = signal
        self.consumer = backend.consumers[signal]
        self.error: str | None = None
        """What went wrong the last time; `None` once something is taken again."""
        self.is_reachable: bool | None = None
        """Whether the last request was answered with anything that a back end in order says; `None` before that."""
        self._backend = backend
        self._journal = journal
        self._counters = counting
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
        """Begin to send."""
        for thread in self._threads:
            thread.start()

    def drain(self, deadline: float) -> None:
        """Go on to that moment of the monotonic clock, or until nothing is left or can be sent by then."""
        with self._changed:
            self._drain_deadline = deadline
            self._changed.notify_all()

    def join(self, deadline: float) -> None:
        """Wait until then for the end of it; what is under way after that changes nothing any more."""
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
        with self._changed:
            self._is_stopped = True

    # --- on each of its threads ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (pending := self._next_entry()) is not None:
            try:
                outcome = self._sender.send(self.signal, pending.requests[0])
            except Exception as error:  # noqa: BLE001 - a fault of ours; what is to be sent must not be lost by it
                _guard.report_error(f"forward to {self._backend.name}", error)
                outcome = ExportResult("failed", type(error).__name__)
            with self._changed:
                if not self._is_stopped:
                    self._handle_result(pending, outcome)
                self._changed.notify_all()

    def _next_entry(self) -> PendingEntry | None:
        """The entry to send next, as soon as there is one; `None` when it is over."""
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
        done = not self._queue and self._read_key >= self._last_key()
        hopeless = not self._in_flight and self._backoff.retry_at > self._drain_deadline
        self._is_stopped = done or hopeless or now >= self._drain_deadline
        return self._is_stopped

    def _last_key(self) -> int:
        try:
            return self._journal.last_key
        except StoreError:
            return self._read_key

    def _next_due(self, now: float) -> PendingEntry | None:
        """Of what may be sent now, the first that was tried least."""
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
        """Whether any entry came, of concern here or not."""
        try:
            last = self._journal.last_key
            entries = self._journal.read(
                self._read_key, max_bytes=READ_BYTES, max_entries=READ_ENTRIES, origins=EXPORTED_ORIGINS
            )
        except StoreError as error:
            self._log_once("journal", f"the journal cannot be read: {error}")
            self._next_read_at = now + _READ_RETRY_SECONDS
            return True
        ours = [entry for entry in entries if entry.signal == self.signal]
        for entry in ours:
            self._queue.add(entry, self._accepted)
        if entries and not ours and entries[-1].key >= last:
            self._next_read_at = now + _IDLE_READ_SECONDS
        self._read_key = entries[-1].key if entries else max(self._read_key, last)
        self._advance_cursor()
        return bool(entries)

    def _wait_for_entries(self, timeout: float) -> None:
        """Wait for new entries: one thread does that for all. The lock is held before and after, but not meanwhile."""
        self._is_waiting = True
        position, until, came = self._read_key, time.monotonic() + timeout, False
        self._changed.release()
        try:
            with suppress(StoreError):  # reading it will say so
                came = self._journal.wait(position, timeout)
        finally:
            self._changed.acquire()
            self._is_waiting = False
            if not came and time.monotonic() < until:  # it failed, or was closed under us
                self._next_read_at = time.monotonic() + _READ_RETRY_SECONDS
            self._changed.notify_all()

    def _idle_seconds(self, now: float, most: float) -> float:
        """How long there is certainly nothing to do, unless something changes."""
        next_time = self._queue.next_due_time()
        moments = [] if next_time is None else [max(self._backoff.retry_at, next_time)]
        if self._drain_deadline is not None:
            moments.append(self._drain_deadline)
        if self._next_read_at > now:
            moments.append(self._next_read_at)
        return max(0.005, min([most, *(moment - now for moment in moments if moment > now)]))

    # --- what became of it, with the lock held ------------------------------------------------------------------------

    def _handle_result(self, pending: PendingEntry, result: ExportResult) -> None:
        pending.is_in_flight = False
        self._in_flight -= 1
        message = self._backend.redact(result.message)
        told = f"{result.status}: {message}" if message else result.status
        if result.kind == "taken":
            self._on_accepted(pending, result, message)
        elif self._replace_request(pending, result):
            self._backoff.record_success()
        elif self._is_permanent(pending, result):
            self._on_refused(pending, result, told)
        else:
            self._schedule_retry(pending, result, told)

    def _on_accepted(self, pending: PendingEntry, result: ExportResult, message: str) -> None:
        if self._backoff.failures >= _OUTAGE_FAILURES:
            _log.warning("goldspan: back end %s takes %s again", self._backend.name, self.signal)
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
                "partial", f"{result.rejected_count} items of a request were not taken (said once): {message}"
            )
        elif message:
            self._log_once("warning", f"a request was taken with a warning (said once): {message}")
        self._queue.complete_request(pending)
        self._advance_cursor()

    def _on_refused(self, pending: PendingEntry, result: ExportResult, description: str) -> None:
        self._backoff.record_success()
        self.is_reachable = True
        self.error = description
        self._counters.add(semconv.GATEWAY_FORWARD_REJECTED, backend=self._backend.name, signal=self.signal)
        self._log_once(
            result.status, f"a request was refused and is not tried again (said once for each status): {description}"
        )
        self._queue.complete_request(pending)
        self._advance_cursor()

    def _is_permanent(self, pending: PendingEntry, result: ExportResult) -> bool:
        """Whether it is of no use to try again."""
        if result.kind in ("refused", "too_large", "other_media"):
            return True
        if result.kind == "absent":
            # A wrong address has none of the signals. A back end that takes another one has just this not.
            others = self._backend_state.accepted_signals - {self.signal}
            return (
                self._not_found >= MAX_NOT_FOUND_ANSWERS
                and bool(others)
                and self.signal not in self._backend_state.accepted_signals
            )
        return result.kind != "throttled" and pending.is_poison(self._accepted)

    def _schedule_retry(self, pending: PendingEntry, result: ExportResult, description: str) -> None:
        now = time.monotonic()
        barred = result.kind in ("barred", "absent")
        self._not_found += result.kind == "absent" and pending.backoff_round == self._backoff.round
        throttled = result.kind == "throttled"
        pending.record_failure(now, self._accepted, is_throttled=throttled, random_fraction=self._random_fraction)
        self._backoff.record_failure(
            pending.backoff_round, now, retry_after_seconds=result.retry_after_seconds, is_misconfigured=barred
        )
        self.is_reachable = throttled
        self.error = description
        self._counters.add(semconv.GATEWAY_FORWARD_RETRIES, backend=self._backend.name)
        advice = "; look at its address and headers in the settings" if barred else ""
        self._log_once(result.status, f"tried again until it is taken, nothing is lost: {description}{advice}")

    def _replace_request(self, pending: PendingEntry, result: ExportResult) -> bool:
        """Whether what the back end could not take as it is can be sent in another form, in which it then stands."""
        part = pending.requests[0]
        instead: Iterable[OutgoingRequest] | None = None
        if result.kind == "too_large":
            instead = split_in_half(self.signal, part)
        elif result.kind == "other_media" and part.media == "json":
            with suppress(DecodeError):
                instead = (to_protobuf(self.signal, part),)
        if instead is None:
            return False
        pending.replace_first_request(instead)
        return True

    def _advance_cursor(self) -> None:
        first = self._queue.first_key
        cursor = self._read_key if first is None else first - 1
        if cursor > self._cursor:
            self._cursor = cursor
            self._journal.advance({self.consumer: cursor})

    def _log_once(self, topic: str, text: str) -> None:
        """Log something once, and again after an outage."""
        if topic not in self._logged:
            self._logged.add(topic)
            _log.warning("goldspan forwards %s to %s: %s", self.signal, self._backend.name, text)


class BackendExporter:
    """Sends what is in a journal to one back end: each signal by itself, so that none waits for another.

    The bytes are those of the entries; only what came as JSON is put into protobuf for gRPC. Each entry is sent at
    least once: what was under way when the process was killed is sent again. The consumers in the journal are
    `backend.consumers`. `chance` makes the jitter of pauses: a number from 0 to 1.

    Raises `ConfigurationError` for a proxy of the environment that cannot be used.
    """

    def __init__(
        self,
        backend: Backend,
        journal: Journal,
        counting: GatewayCounters,
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
        reached = BackendState()
        self._signal_exporters = [
            SignalExporter(backend, signal, journal, counting, self._sender, reached, random_fraction=random_fraction)
            for signal in backend.consumers
        ]

    def start(self) -> None:
        """Begin to send, on threads of its own."""
        for delivery in self._signal_exporters:
            delivery.start()

    def stop(self, timeout: float) -> None:
        """Send what can be sent within so many seconds, and end; what is left stays in the journal.

        It ends earlier where everything is sent, or where the back end is not to be asked again before that.
        """
        until = time.monotonic() + timeout
        for delivery in self._signal_exporters:
            delivery.drain(until)
        for delivery in self._signal_exporters:
            delivery.join(until)
        self._sender.close()

    def status(self) -> dict[str, Any]:
        """How it stands, for people and probes: no secrets are in it. What is not known yet is `None`."""
        signals = {delivery.signal: self._signal_status(delivery) for delivery in self._signal_exporters}
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
            size, seconds = 0, 0.0  # the journal's own health tells of that
        return {
            "reachable": exporter.is_reachable,
            "error": exporter.error,
            "behind_bytes": size,
            "behind_seconds": seconds,
        }
