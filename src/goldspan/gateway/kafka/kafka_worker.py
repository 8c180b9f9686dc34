"""The Kafka clients of one worker, opened and closed together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter

from goldspan import semconv
from goldspan._guard import suppress_errors
from goldspan._version import __version__
from goldspan.gateway.gateway_counters import GatewayCounters
from goldspan.gateway.kafka.kafka_settings import KafkaSettings
from goldspan.gateway.kafka.partition_log import PartitionLog
from goldspan.gateway.kafka.receiver import KafkaReceiver
from goldspan.gateway.kafka.reliable_producer import ReliableProducer
from goldspan.gateway.kafka.repartitioner import Repartitioner
from goldspan.gateway.kafka.results_topic import ResultsTopic
from goldspan.gateway.kafka.topics import create_missing_topics
from goldspan.gateway.resource_limits import ResourceLimits
from goldspan.gateway.scoring.scoring_consumer import ScoringConsumer, ScoringStop

_TOPICS_RETRY_SECONDS = 5.0
_DELIVERY_SECONDS = 0.5


class KafkaWorker:
    """The receiver, the results topic and, if messages must be copied, the repartitioner of one worker."""

    def __init__(
        self, settings: KafkaSettings, limits: ResourceLimits, counters: GatewayCounters, *, include_arguments: bool
    ) -> None:
        self._settings = settings
        self._limits = limits
        self._counters = counters
        self._producer: ReliableProducer | None = None
        self.results: ResultsTopic | None = None
        """The sink of the results topic."""
        if settings.results_topic is not None:
            self._producer = ReliableProducer(settings)
            self.results = ResultsTopic(self._producer, settings.results_topic, include_arguments=include_arguments)
        self._repartitioner = Repartitioner(settings, limits, counters) if settings.repartitions else None
        self._receiver: KafkaReceiver | None = None
        self._stopping = threading.Event()

    def open_receiver(
        self, create_scoring: Callable[[PartitionLog], ScoringConsumer], stop: ScoringStop
    ) -> KafkaReceiver:
        """Returns the receiver, for the scoring thread. `create_scoring` returns the scoring of a partition."""
        self._receiver = KafkaReceiver(
            self._settings,
            create_scoring=create_scoring,
            limits=self._limits,
            counters=self._counters,
            results=self._producer,
            stop=stop,
        )
        return self._receiver

    def start(self) -> None:
        """Start to copy messages, and to create missing topics."""
        threading.Thread(target=self._create_topics, name="goldspan-kafka-topics", daemon=True).start()
        if self._repartitioner is not None:
            self._repartitioner.start()

    def are_results_delivered(self) -> bool:
        """Whether the brokers have confirmed all evaluations, after waiting for that for a moment."""
        return self._producer is None or self._producer.flush(_DELIVERY_SECONDS)

    def not_ready_reason(self) -> str | None:
        """Returns why nothing can be read from Kafka; `None` if all is well."""
        return None if self._receiver is None else self._receiver.connection.reason

    @property
    def is_store_failing(self) -> bool:
        """Whether results wait because the store cannot be written."""
        return self._receiver is not None and self._receiver.is_store_failing

    def drop_trace(self, trace_id: str) -> None:
        """Do not score the spans that are held of a trace."""
        if self._receiver is not None:
            self._receiver.drop_trace(trace_id)

    def begin_stop(self, timeout: float) -> None:
        """Stop copying, before scoring stops."""
        self._stopping.set()
        if self._repartitioner is not None:
            self._repartitioner.stop(timeout)

    def close(self) -> None:
        """Release a thread that waits for the brokers, after scoring has stopped."""
        self._stopping.set()
        if self._producer is not None:
            self._producer.stop_waiting()

    def register_gauges(self, meter_provider: MeterProvider) -> None:
        """Register the gauges, which are read at every collection."""
        register_kafka_gauges(meter_provider, self._receiver, self._producer)

    def _create_topics(self) -> None:
        while not self._stopping.is_set():
            with suppress_errors("create Kafka topics"):
                if create_missing_topics(self._settings):
                    return
            self._stopping.wait(_TOPICS_RETRY_SECONDS)


def register_kafka_gauges(
    meter_provider: MeterProvider, receiver: KafkaReceiver | None, producer: ReliableProducer | None
) -> None:
    """Register the gauges of a worker that reads from Kafka."""
    meter = get_meter("goldspan", __version__, meter_provider=meter_provider)

    def gauge(name: str, unit: str, description: str, read: Callable[[], float]) -> None:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            return [Observation(read())]

        meter.create_observable_gauge(name, [observe], unit=unit, description=description)

    gauge(
        semconv.KAFKA_LAG,
        "{message}",
        "Messages in the assigned partitions that were not read yet. If it grows, add workers, or partitions.",
        lambda: 0 if receiver is None else receiver.lag(),
    )
    gauge(
        semconv.KAFKA_PARTITIONS,
        "{partition}",
        "Partitions that Kafka assigns to this worker. If it is 0 for long, there are more workers than partitions.",
        lambda: 0 if receiver is None else receiver.assigned_count(),
    )
    gauge(
        semconv.KAFKA_OLDEST_OPEN_TRACE,
        "s",
        "Age of the oldest trace from Kafka that is not scored. The retention of the topic must be much longer.",
        lambda: 0 if receiver is None else receiver.oldest_open_trace_seconds(),
    )
    gauge(
        semconv.KAFKA_UNDELIVERED,
        "{message}",
        "Evaluations that the brokers have not confirmed. Offsets are committed once it is 0.",
        lambda: 0 if producer is None else producer.undelivered_count,
    )
    gauge(
        semconv.KAFKA_DROPPED,
        "{message}",
        "Evaluations that are too large for the results topic, since the start. Should be zero: raise its "
        "max.message.bytes.",
        lambda: 0 if producer is None else producer.dropped,
    )
