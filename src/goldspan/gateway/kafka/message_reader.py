"""Reads single messages of a topic again, for traces whose spans are no longer in memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from goldspan._extras import require_extra
from goldspan.errors import StoreError
from goldspan.gateway.kafka.kafka_clients import Message, create_consumer, describe_error
from goldspan.gateway.kafka.kafka_settings import KafkaSettings

with require_extra("kafka"):
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

_TIMEOUT_SECONDS = 10.0
_WAIT_SECONDS = 0.1
_PREFETCH_KILOBYTES = 1024


class MessageReader:
    """A consumer outside any group, which one thread uses. `may_wait` tells whether it may go on waiting."""

    def __init__(self, settings: KafkaSettings, topic: str, may_wait: Callable[[], bool]) -> None:
        self._settings = settings
        self._topic = topic
        self._may_wait = may_wait
        self._consumer: Consumer | None = None

    def read(self, partition: int, offset: int) -> Message | None:
        """Returns the message at an offset; `None` if the broker has deleted it. Raises `StoreError`."""
        if self._consumer is None:
            self._consumer = create_consumer(
                self._settings,
                f"{self._settings.group}-reader",
                auto_offset_reset="error",
                queued_max_messages_kbytes=_PREFETCH_KILOBYTES,
            )
        consumer = self._consumer
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        try:
            consumer.assign([TopicPartition(self._topic, partition, offset)])
            while time.monotonic() < deadline and self._may_wait():
                message = consumer.poll(_WAIT_SECONDS)
                if message is None:
                    continue
                error: Any = message.error()
                if error is None:
                    return message if message.offset() == offset else None
                if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                    return None
            raise StoreError(f"Kafka: offset {offset} of partition {partition} of {self._topic} cannot be read now")
        except KafkaException as error:
            raise StoreError(f"Kafka: {describe_error(error)}") from None

    def close(self) -> None:
        """Close the consumer."""
        if self._consumer is not None:
            self._consumer.close()
