"""Consumes a Kafka topic, scores its partitions and commits offsets. The scoring thread calls it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from goldspan import semconv
from goldspan._extras import require_extra
from goldspan._guard import suppress_errors
from goldspan.errors import StoreError
from goldspan.gateway.gateway_counters import GatewayCounters
from goldspan.gateway.journal.journal import JournalFull
from goldspan.gateway.journal.journal_file import JournalEntry
from goldspan.gateway.kafka.connection_state import ConnectionState
from goldspan.gateway.kafka.kafka_clients import Message, create_consumer, describe_error
from goldspan.gateway.kafka.kafka_settings import KafkaSettings
from goldspan.gateway.kafka.message_decoding import UndecodableMessageError, decode_message, signal_of
from goldspan.gateway.kafka.message_reader import MessageReader
from goldspan.gateway.kafka.partition_log import CommitPoint, EntryCache, PartitionLog
from goldspan.gateway.kafka.reliable_producer import ReliableProducer
from goldspan.gateway.kafka.start_points import StartPoints
from goldspan.gateway.resource_limits import ResourceLimits
from goldspan.gateway.scoring.scoring_consumer import ScoringConsumer, ScoringStop

with require_extra("kafka"):
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

_BATCH_MESSAGES = 1000
_MAX_POLL_SECONDS = 0.25
"""Seconds for a partition before the next one is scored: a worker that does not answer the brokers loses them all."""
_COMMIT_SECONDS = 1.0
_END_CHECK_SECONDS = 0.5
"""How often the broker is asked for the ends of partitions while messages wait in the client."""
_END_CHECK_TIMEOUT_SECONDS = 1.0
_FLUSH_SECONDS = 1.0
"""Seconds for the delivery of results before a commit. Without it, the next commit has the offsets too."""
_REOPEN_SECONDS = 2.0
_LOG_INTERVAL_SECONDS = 60.0
_CACHE_SHARE = 4
"""The share of `max_held_bytes` for messages that may be read again: one fourth."""
_log = logging.getLogger("goldspan.kafka")


@dataclass(slots=True)
class _Partition:
    """A partition that this worker scores."""

    log: PartitionLog
    scoring: ScoringConsumer
    committed: CommitPoint


class KafkaReceiver:
    """Scores the partitions of a topic that the group assigns to this worker.

    Args:
        settings: The brokers and topics.
        create_scoring: Returns the scoring of a partition.
        limits: The limits of messages and of memory.
        counters: Counts messages and rebalances.
        results: Delivers results; offsets are committed only once everything is delivered. `None`: no results topic.
        stop: The end of the scoring thread.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        create_scoring: Callable[[PartitionLog], ScoringConsumer],
        limits: ResourceLimits,
        counters: GatewayCounters,
        results: ReliableProducer | None,
        stop: ScoringStop,
    ) -> None:
        self._settings = settings
        self._topic = settings.scored_topic
        self._create_scoring = create_scoring
        self._limits = limits
        self._counters = counters
        self._results = results
        self._stop = stop
        self._cache = EntryCache(limits.max_held_bytes // _CACHE_SHARE)
        self._reader = MessageReader(settings, self._topic, lambda: not stop.requested.is_set())
        self._start_points = StartPoints(settings, self._topic)
        self._partitions: dict[int, _Partition] = {}
        self._consumer: Consumer | None = None
        self._next_open = 0.0
        self._next_commit = 0.0
        self._next_end_check = 0.0
        self._last_logged: dict[str, float] = {}
        self.connection = ConnectionState()
        """Whether the brokers can be reached, for `/readyz`."""

    # --- called by other threads -------------------------------------------------------------------------------------

    def drop_trace(self, trace_id: str) -> None:
        """Do not score the spans that are held of a trace."""
        for partition in list(self._partitions.values()):
            partition.scoring.drop_trace(trace_id)

    def lag(self) -> int:
        """Returns the number of messages in the assigned partitions that were not read yet."""
        return sum(partition.log.lag for partition in list(self._partitions.values()))

    def held_trace_count(self) -> int:
        """Returns the number of traces in memory: incomplete ones, and those that were scored recently."""
        return sum(len(partition.scoring) for partition in list(self._partitions.values()))

    def assigned_count(self) -> int:
        """Returns the number of assigned partitions."""
        return len(self._partitions)

    def oldest_open_trace_seconds(self) -> float:
        """Returns for how long the oldest trace that is not scored has been open; 0 without such a trace."""
        ages = [partition.scoring.oldest_open_seconds() for partition in list(self._partitions.values())]
        return max(ages, default=0.0)

    @property
    def is_store_failing(self) -> bool:
        """Whether results of a partition wait because the store cannot be written."""
        return any(partition.scoring.is_store_failing for partition in list(self._partitions.values()))

    # --- called by the scoring thread --------------------------------------------------------------------------------

    def poll(self, timeout: float) -> bool:
        """Score what arrived, after waiting `timeout` seconds for it at most. Returns whether something arrived."""
        has_messages = False
        try:
            if self._open():
                has_messages, is_drained = self._fetch(timeout)
                self._check_ends(is_drained)
        except KafkaException as error:
            self._log_throttled("consume", f"cannot consume and connects again: {describe_error(error)}")
            self._reopen_later()
        except BaseException:  # a rebalance that failed leaves partitions without a reader
            self._reopen_later()
            raise
        for number, partition in list(self._partitions.items()):
            with suppress_errors("score a Kafka partition"):
                try:
                    partition.scoring.poll(_MAX_POLL_SECONDS)
                except (StoreError, JournalFull) as error:
                    self._log_throttled("score", f"cannot score partition {number} and retries: {error}")
        consumer = self._consumer
        if consumer is None:
            self._stop.requested.wait(timeout)
        elif time.monotonic() >= self._next_commit:
            self._next_commit = time.monotonic() + _COMMIT_SECONDS
            self._update_ends(consumer)
            self._commit(consumer, self._partitions.values(), wait=False)
        return has_messages

    def close(self) -> None:
        """Commit what is done and leave; a static member stays in the group until its session ends.

        Open traces are left to the next owner of their partition, which reads all of their spans.
        """
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with suppress_errors("leave the consumer group"):
                self._commit(consumer, self._partitions.values(), wait=True)
                consumer.close()  # calls `_on_revoke`
        self._partitions.clear()
        self._reader.close()
        self._start_points.close()

    # --- the consumer ------------------------------------------------------------------------------------------------

    def _open(self) -> bool:
        """Create the consumer if there is none. Returns whether there is one."""
        if self._consumer is None and time.monotonic() >= self._next_open:
            identity = {} if self._settings.instance_id is None else {"group_instance_id": self._settings.instance_id}
            self._consumer = create_consumer(
                self._settings,
                self._settings.group,
                partition_assignment_strategy="cooperative-sticky",
                enable_partition_eof=True,
                fetch_wait_max_ms=100,
                statistics_interval_ms=1000,
                stats_cb=self.connection.update_from_statistics,
                error_cb=self.connection.update_from_error,
                on_commit=self._on_commit,
                **identity,
            )
            self._consumer.subscribe(
                [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
        return self._consumer is not None

    def _reopen_later(self) -> None:
        """Drop the consumer and all partitions. The group assigns them again to the next consumer, or to others."""
        self._partitions.clear()
        self._next_open = time.monotonic() + _REOPEN_SECONDS
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with suppress_errors("close a Kafka consumer", except_=KafkaException):
                consumer.close()

    def _fetch(self, timeout: float) -> tuple[bool, bool]:
        """Take messages. Returns whether there were some, and whether the client has no more of them."""
        assert self._consumer is not None
        is_scoring_behind = any(partition.scoring.has_more_due for partition in self._partitions.values())
        # One message, so that rebalances and answers of brokers are handled, and memory does not fill with more traces.
        count, timeout = (1, 0.0) if is_scoring_behind else (_BATCH_MESSAGES, timeout)
        messages: list[Message] = self._consumer.consume(count, timeout)
        arrived_count = 0
        for message in messages:
            error: Any = message.error()
            if error is None:
                arrived_count += 1
                self._take(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                if (partition := self._partitions.get(message.partition())) is not None:
                    partition.log.reach_end(message.offset())
            elif error.fatal():
                raise KafkaException(error)
            else:
                self._log_throttled(error.name(), describe_error(KafkaException(error)))
                self.connection.update_from_error(error)
        self._counters.add(semconv.KAFKA_MESSAGES, arrived_count, topic=self._topic)
        return arrived_count > 0, len(messages) < count

    def _check_ends(self, is_drained: bool) -> None:
        """Tell the partitions that were read to their end whether messages may have followed since then.

        The messages of all partitions wait in one queue of the client. As long as it is not empty, only the broker
        knows whether a partition has more of them. A partition of which that is not known must not count the time as
        inactivity of its traces.
        """
        assert self._consumer is not None
        for partition in self._partitions.values():
            partition.log.is_current = is_drained
        if is_drained or time.monotonic() < self._next_end_check:
            return
        with suppress(KafkaException):  # a broker that does not answer is asked again later
            for number, partition in self._partitions.items():
                log = partition.log
                if log.is_at_end:
                    place = TopicPartition(self._topic, number)
                    _, log.end = self._consumer.get_watermark_offsets(place, timeout=_END_CHECK_TIMEOUT_SECONDS)
                    log.is_current = log.end <= log.position
        self._next_end_check = time.monotonic() + _END_CHECK_SECONDS

    def _take(self, message: Message) -> None:
        """Add a message to the log of its partition."""
        partition = self._partitions.get(message.partition())
        if partition is None:
            return
        entry = None
        if message.key() is None and self._start_points.partition_count > 1:
            self._counters.add(semconv.KAFKA_UNKEYED, topic=self._topic)
            self._log_throttled(
                "unkeyed",
                f"messages of {self._topic} have no key, so the spans of a trace are in several partitions; they are "
                "not scored: set partition_traces_by_id in the Collector's exporter, or kafka.keyed to false",
            )
        else:
            entry = self._decode(message)
        partition.log.add(message.offset(), entry)

    def _decode(self, message: Message) -> JournalEntry | None:
        """Returns the entry of a message; `None` if it cannot be decoded or contains nothing to score."""
        signal = signal_of(message.headers())
        arrived_ns = message.timestamp()[1] * 1_000_000
        try:
            entry, validated = decode_message(
                message.value(), signal, self._limits, key=message.offset() + 1, arrived_ns=arrived_ns
            )
        except UndecodableMessageError as error:
            self._counters.add(semconv.KAFKA_UNDECODABLE, topic=self._topic)
            self._log_throttled(
                "undecodable",
                f"cannot decode a message and skips it: topic {self._topic}, partition {message.partition()}, "
                f"offset {message.offset()}: {error}",
            )
            return None
        self._counters.add(semconv.GATEWAY_REJECTED, validated.rejected_count, signal=signal)
        return entry

    def _read_again(self, partition: int, offset: int) -> JournalEntry | None:
        message = self._reader.read(partition, offset)
        return None if message is None else self._decode(message)

    # --- rebalances, called by `consume` and `close` -----------------------------------------------------------------

    def _on_assign(self, consumer: Consumer, assigned: Sequence[TopicPartition]) -> None:
        self._counters.add(semconv.KAFKA_REBALANCES)
        if not assigned:
            return
        starts: list[TopicPartition] = []
        for number, point in self._start_points.find(each.partition for each in assigned).items():
            log = PartitionLog(number, point, cache=self._cache, read_again=self._read_again)
            self._partitions[number] = _Partition(log, self._create_scoring(log), point)
            starts.append(TopicPartition(self._topic, number, log.context_start))
        self._limit_memory()
        consumer.incremental_assign(starts)
        self.connection.problem = None
        _log.info("scores partitions %s of %s", sorted(self._partitions), self._topic)

    def _on_revoke(self, consumer: Consumer, revoked: Sequence[TopicPartition]) -> None:
        self._counters.add(semconv.KAFKA_REBALANCES)
        leaving = [self._partitions[each.partition] for each in revoked if each.partition in self._partitions]
        with suppress_errors("commit offsets before a rebalance"):
            self._commit(consumer, leaving, wait=False)
        self._drop(consumer, revoked)

    def _on_lost(self, consumer: Consumer, lost: Sequence[TopicPartition]) -> None:
        self._counters.add(semconv.KAFKA_REBALANCES)
        self._drop(consumer, lost)

    def _drop(self, consumer: Consumer, gone: Sequence[TopicPartition]) -> None:
        for each in gone:
            self._partitions.pop(each.partition, None)
        self._limit_memory()
        if gone:
            consumer.incremental_unassign(list(gone))

    def _limit_memory(self) -> None:
        for partition in self._partitions.values():
            partition.scoring.limit_memory(len(self._partitions))

    # --- offsets -----------------------------------------------------------------------------------------------------

    def _commit(self, consumer: Consumer, partitions: Iterable[_Partition], *, wait: bool) -> None:
        """Commit the offsets of partitions that moved, if all results are delivered; `wait` for the answer of a broker.

        A callback of the consumer must not wait.
        """
        moved = [
            (each, point)
            for each in partitions
            if (point := commit_point(each.log, each.scoring)) is not None and point != each.committed
        ]
        if not moved:
            return
        if self._results is not None and not self._results.flush(_FLUSH_SECONDS):
            return
        offsets = [
            TopicPartition(self._topic, each.log.partition, point.position, metadata=point.metadata)
            for each, point in moved
        ]
        try:
            if wait:
                consumer.commit(offsets=offsets, asynchronous=False)
            else:
                consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            self._log_throttled("commit", f"cannot commit offsets and retries: {describe_error(error)}")
            return
        for each, point in moved:
            each.committed = point

    def _on_commit(self, error: KafkaError | None, offsets: Sequence[TopicPartition]) -> None:
        """Commit again at the next time what a broker did not commit."""
        for each in offsets:
            failed = error is not None or each.error is not None
            if failed and (partition := self._partitions.get(each.partition)) is not None:
                partition.committed = CommitPoint(-1, -1, -1)

    def _update_ends(self, consumer: Consumer) -> None:
        for number, partition in self._partitions.items():
            _, high = consumer.get_watermark_offsets(TopicPartition(self._topic, number), cached=True)
            partition.log.end = max(partition.log.end, high)

    def _log_throttled(self, kind: str, text: str) -> None:
        """Log a problem at most once per interval and kind."""
        now = time.monotonic()
        if now >= self._last_logged.get(kind, -_LOG_INTERVAL_SECONDS) + _LOG_INTERVAL_SECONDS:
            self._last_logged[kind] = now
            _log.error("goldspan %s", text)


def commit_point(log: PartitionLog, scoring: ScoringConsumer) -> CommitPoint | None:
    """Returns what to commit of a partition; `None` as long as the committed point must stay.

    A worker that has not read yet what the worker before it had read does not know which traces have messages on both
    sides of the position, so it knows neither the context nor what was scored.
    """
    if scoring.is_replaying():
        return None
    return CommitPoint(log.acknowledged, scoring.context_start(log.partition, log.acknowledged), log.position)
