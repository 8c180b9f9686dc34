"""Copies messages without a key, and logs, to a topic of goldspan that is keyed by trace id."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

from goldspan import semconv
from goldspan._extras import require_extra
from goldspan._guard import suppress_errors
from goldspan.errors import StoreError
from goldspan.gateway.gateway_counters import GatewayCounters
from goldspan.gateway.kafka.kafka_clients import Message, create_consumer, describe_error
from goldspan.gateway.kafka.kafka_settings import KafkaSettings
from goldspan.gateway.kafka.message_decoding import SIGNAL_HEADER, UndecodableMessageError, split_message
from goldspan.gateway.kafka.reliable_producer import OutgoingMessage, ReliableProducer
from goldspan.gateway.resource_limits import ResourceLimits, Signal

with require_extra("kafka"):
    from confluent_kafka import Consumer, KafkaException, TopicPartition

_BATCH_MESSAGES = 500
_WAIT_SECONDS = 0.2
_FLUSH_SECONDS = 1.0
_RETRY_SECONDS = 2.0
_log = logging.getLogger("goldspan.kafka")


class Repartitioner:
    """Copies in a thread of its own, as a member of the group `GROUP-repartition`.

    It produces one message per trace of a message. Offsets are committed once all copies are stored, so after a crash
    some messages are copied again. A span that arrives twice changes no run.
    """

    def __init__(self, settings: KafkaSettings, limits: ResourceLimits, counters: GatewayCounters) -> None:
        self._settings = settings
        self._limits = limits
        self._counters = counters
        self._signals: dict[str, Signal] = {settings.topic: "traces"}
        if settings.logs_topic is not None:
            self._signals[settings.logs_topic] = "logs"
        self._producer = ReliableProducer(settings)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="goldspan-repartition", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Stop the thread. What is not committed is copied again at the next start."""
        self._stopping.set()
        self._thread.join(timeout)
        self._producer.stop_waiting()

    def _run(self) -> None:
        while not self._stopping.is_set():
            with suppress_errors("copy messages by trace"):
                try:
                    self._consume()
                except (KafkaException, StoreError) as error:
                    _log.warning("cannot copy messages by trace and retries: %s", describe_error(error))
            self._stopping.wait(_RETRY_SECONDS)

    def _consume(self) -> None:
        settings = self._settings
        consumer = create_consumer(
            settings, f"{settings.group}-repartition", partition_assignment_strategy="cooperative-sticky"
        )
        try:
            consumer.subscribe(list(self._signals))
            while not self._stopping.is_set():
                messages: list[Message] = consumer.consume(_BATCH_MESSAGES, _WAIT_SECONDS)
                if messages and not self._copy(consumer, messages):
                    return
        finally:
            consumer.close()

    def _copy(self, consumer: Consumer, messages: Sequence[Message]) -> bool:
        """Copy a batch and commit its offsets. Returns `False` if that was not possible before the shutdown."""
        offsets: dict[tuple[str, int], int] = {}
        for message in messages:
            error: Any = message.error()
            if error is not None:
                if error.fatal():
                    raise KafkaException(error)
                _log.warning("Kafka: %s", describe_error(KafkaException(error)))
                continue
            self._copy_message(message)
            offsets[message.topic(), message.partition()] = message.offset() + 1
        while not self._producer.flush(_FLUSH_SECONDS):
            if self._stopping.is_set():
                return False
        if offsets:
            done = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
            consumer.commit(offsets=done, asynchronous=True)
        return True

    def _copy_message(self, message: Message) -> None:
        signal = self._signals[message.topic()]
        try:
            parts = split_message(message.value(), signal, self._limits)
        except UndecodableMessageError as error:
            self._counters.add(semconv.KAFKA_UNDECODABLE, topic=message.topic())
            _log.debug("cannot decode offset %d: %s", message.offset(), error)
            return
        for part in parts:
            headers = [(SIGNAL_HEADER, b"logs")] if part.signal == "logs" else None
            timestamp = max(0, message.timestamp()[1])
            self._producer.produce(
                OutgoingMessage(self._settings.keyed_topic, part.key, part.value, headers, timestamp)
            )
