"""The thread that scores what the journals and a Kafka topic contain."""

from __future__ import annotations

import threading
import time
from typing import Protocol

from goldspan._guard import report_error, suppress_errors
from goldspan.errors import StoreError
from goldspan.gateway.journal.journal import JournalFull
from goldspan.gateway.scoring.scoring_consumer import RETRY_SECONDS, ScoringConsumer, ScoringStop

_MAX_KAFKA_WAIT_SECONDS = 0.05
"""Seconds between two polls of the journals while the thread waits for messages."""

_MAX_POLL_SECONDS = 0.5
"""Seconds after which scoring of the journals is interrupted for a receiver, which must answer its brokers."""


class PartitionedReceiver(Protocol):
    """A receiver whose log is divided over workers, and which scores its partitions in the scoring thread."""

    def poll(self, timeout: float) -> bool:
        """Score what arrived, after waiting `timeout` seconds for it at most. Returns whether something arrived."""
        ...

    def close(self) -> None:
        """Store what was evaluated, acknowledge it, and leave the rest to other workers or to the next start."""
        ...


class ScoringThread:
    """Polls the scoring of the journals and, if given, a receiver with its own log, in turn."""

    def __init__(
        self, scoring: ScoringConsumer, stop: ScoringStop, receiver: PartitionedReceiver | None = None
    ) -> None:
        self._scoring = scoring
        self._receiver = receiver
        self._stop = stop
        self._thread = threading.Thread(target=self._run, name="goldspan-scoring", daemon=True)

    def start(self) -> None:
        """Start the thread at the stored positions."""
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Score pending traces for `timeout` seconds. Returns whether all were scored; the rest is not lost."""
        self._stop.drain_deadline = time.monotonic() + timeout
        self._stop.requested.set()
        self._thread.join(timeout)
        self._stop.is_abandoned = self._thread.is_alive()
        return not self._stop.is_abandoned

    def _run(self) -> None:
        while not self._stop.requested.is_set():
            busy: bool | None = None
            with suppress_errors("score new entries"):
                try:
                    busy = self._scoring.poll(None if self._receiver is None else _MAX_POLL_SECONDS)
                    busy = self._poll_receiver(0.0 if busy else _MAX_KAFKA_WAIT_SECONDS) or busy
                except (StoreError, JournalFull) as error:
                    self._scoring.log_throttled(f"cannot read new journal entries and retries: {error}")
            if busy is None:
                self._stop.requested.wait(RETRY_SECONDS)
            elif not busy and self._receiver is None:
                self._scoring.wait_for_entries()
        try:
            self._scoring.drain()
        except (StoreError, JournalFull) as error:
            self._scoring.log_throttled(f"cannot score the remaining traces and does so at the next start: {error}")
        except Exception as error:  # noqa: BLE001 - the store or a journal may be closed meanwhile
            if not self._stop.is_abandoned:
                report_error("score the remaining traces", error)
        if self._receiver is not None:
            with suppress_errors("leave the consumer group"):
                self._receiver.close()

    def _poll_receiver(self, timeout: float) -> bool:
        return self._receiver is not None and self._receiver.poll(timeout)
