"""Produces messages and repeats each until the brokers have stored it."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, NamedTuple

from goldspan._extras import require_extra
from goldspan.errors import StoreError
from goldspan.gateway.kafka.kafka_clients import create_producer, describe_error
from goldspan.gateway.kafka.kafka_settings import KafkaSettings

with require_extra("kafka"):
    from confluent_kafka import KafkaError, KafkaException

_LOG_INTERVAL_SECONDS = 60.0
_WAIT_SECONDS = 0.2
_log = logging.getLogger("goldspan.kafka")


class OutgoingMessage(NamedTuple):
    """A message to produce."""

    topic: str
    key: bytes
    value: bytes | None
    headers: list[tuple[str, bytes]] | None = None
    timestamp_ms: int = 0
    """0: the time when it is produced."""


class ReliableProducer:
    """An idempotent producer that loses no message. Thread-safe.

    A message that is not delivered is produced again, so it can arrive twice. Only a message that the brokers will
    never store, because it is too large, is dropped; `dropped` counts these.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._producer = create_producer(settings)
        self._lock = threading.RLock()
        self._undelivered: dict[int, OutgoingMessage] = {}
        self._failed: list[int] = []
        self._last_number = 0
        self._is_closing = False
        self._last_logged_at = -_LOG_INTERVAL_SECONDS
        self.dropped = 0

    @property
    def undelivered_count(self) -> int:
        """The number of messages that the brokers have not confirmed."""
        return len(self._undelivered)

    def produce(self, message: OutgoingMessage) -> None:
        """Produce a message. Waits while the queue is full. Raises `StoreError` during the shutdown."""
        with self._lock:
            self._last_number += 1
            self._undelivered[self._last_number] = message
            self._produce(self._last_number)
            self._producer.poll(0)

    def flush(self, timeout: float) -> bool:
        """Wait for the confirmation of all messages. Returns whether all were confirmed within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            with self._lock:
                failed, self._failed = self._failed, []
                for number in failed:
                    self._produce(number)
                self._producer.flush(max(0.0, deadline - time.monotonic()))
                if not self._undelivered:
                    return True
            if time.monotonic() >= deadline or self._is_closing:
                return False
            time.sleep(min(_WAIT_SECONDS, max(0.0, deadline - time.monotonic())))

    def close(self, timeout: float) -> bool:
        """Flush and stop waiting for room in the queue. Returns whether all messages were confirmed."""
        is_done = self.flush(timeout)
        self._is_closing = True
        return is_done

    def stop_waiting(self) -> None:
        """Let a thread that waits for room in the queue, or for confirmations, give up."""
        self._is_closing = True

    def _produce(self, number: int) -> None:
        message = self._undelivered[number]
        options: dict[str, Any] = {"headers": message.headers} if message.headers else {}
        if message.timestamp_ms > 0:
            options["timestamp"] = message.timestamp_ms
        while True:
            try:
                self._producer.produce(
                    message.topic,
                    key=message.key,
                    value=message.value,
                    on_delivery=lambda error, _: self._on_delivery(number, error),
                    **options,
                )
                return
            except BufferError:
                if self._is_closing:
                    raise StoreError("Kafka: the queue of the producer is full") from None
                self._producer.poll(_WAIT_SECONDS)
            except KafkaException as error:
                self._on_delivery(number, error.args[0])
                if error.args[0].fatal():
                    self._replace_producer()
                return

    def _on_delivery(self, number: int, error: KafkaError | None) -> None:
        """Forget a delivered message, or one that can never be delivered; remember a failed one for the next flush."""
        if error is None:
            self._undelivered.pop(number, None)
        elif error.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD):
            self._undelivered.pop(number, None)
            self.dropped += 1
            self._log_throttled("drops a message: %s", error)
        else:
            self._failed.append(number)
            self._log_throttled("cannot produce a message and retries: %s", error)

    def _replace_producer(self) -> None:
        """Create a new producer after a fatal error, and let it produce everything that is not confirmed."""
        self._producer = create_producer(self._settings)
        self._failed = list(self._undelivered)

    def _log_throttled(self, text: str, error: KafkaError) -> None:
        now = time.monotonic()
        if now >= self._last_logged_at + _LOG_INTERVAL_SECONDS:
            self._last_logged_at = now
            _log.error(f"goldspan {text}", describe_error(KafkaException(error)))
