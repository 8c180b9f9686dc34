"""Finds where to begin to read a partition that the group assigns to a worker."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from goldspan._extras import require_extra
from goldspan.gateway.kafka.kafka_clients import create_consumer
from goldspan.gateway.kafka.kafka_settings import KafkaSettings
from goldspan.gateway.kafka.partition_log import CommitPoint

with require_extra("kafka"):
    from confluent_kafka import Consumer, KafkaException, TopicPartition

_REQUEST_SECONDS = 30.0
_RESETS_TO_END = ("latest", "end", "largest")
_log = logging.getLogger("goldspan.kafka")


class StartPoints:
    """Asks the brokers with a consumer of its own, which is no member of the group.

    confluent-kafka ends the process if a callback of a consumer calls that consumer and another callback follows.
    Raises `KafkaException` if the brokers do not answer.
    """

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self._consumer: Consumer | None = None
        self.partition_count = 0
        """The number of partitions of the topic, as of the last call of `find`."""

    def find(self, partitions: Iterable[int]) -> dict[int, CommitPoint]:
        """Returns the start point of each partition."""
        if self._consumer is None:
            self._consumer = create_consumer(self._settings, self._settings.group)
        topics = self._consumer.list_topics(self._topic, timeout=_REQUEST_SECONDS).topics
        self.partition_count = len(topics[self._topic].partitions)
        places = [TopicPartition(self._topic, partition) for partition in partitions]
        found: dict[int, CommitPoint] = {}
        for place in self._consumer.committed(places, timeout=_REQUEST_SECONDS):
            if place.error is not None:
                raise KafkaException(place.error)
            found[place.partition] = self._start_point(self._consumer, place)
        return found

    def close(self) -> None:
        """Close the consumer."""
        if self._consumer is not None:
            self._consumer.close()

    def _start_point(self, consumer: Consumer, committed: TopicPartition) -> CommitPoint:
        """Returns where to begin. What the broker has deleted meanwhile cannot be scored."""
        low, high = consumer.get_watermark_offsets(
            TopicPartition(self._topic, committed.partition), timeout=_REQUEST_SECONDS
        )
        if committed.offset < 0:
            starts_at_end = self._settings.options.get("auto.offset.reset") in _RESETS_TO_END
            return CommitPoint.parse(high if starts_at_end else low, None)
        point = CommitPoint.parse(committed.offset, committed.metadata)
        if point.position > high:
            _log.error(
                "partition %d of %s ends before the committed offset, so the topic was created again; it is scored "
                "from its start",
                committed.partition,
                self._topic,
            )
            return CommitPoint.parse(low, None)
        if point.position < low:
            _log.error(
                "partition %d of %s: the broker has deleted %d messages that were not scored; raise retention.ms",
                committed.partition,
                self._topic,
                low - point.position,
            )
        position = max(point.position, low)
        return CommitPoint(position, max(point.context_start, low), max(min(point.read, high), position))
