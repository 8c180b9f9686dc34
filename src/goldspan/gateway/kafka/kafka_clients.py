"""Creates the consumers and producers of confluent-kafka."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from goldspan._extras import require_extra
from goldspan.errors import ConfigurationError
from goldspan.gateway.kafka.kafka_settings import KafkaSettings

with require_extra("kafka"):
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

_METADATA_REFRESH_MS = 10_000
"""How soon a topic that is created later is found."""
_PRODUCER_QUEUE_KILOBYTES = 65_536
_LOG_INTERVAL_SECONDS = 60.0
_log = logging.getLogger("goldspan.kafka")


class _ClientLogFilter(logging.Filter):
    """Passes each kind of message of librdkafka (FAIL, SESSTMOUT) at most once per interval.

    It does not pass warnings about options of consumers that a producer ignores, and the other way round.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last_passed: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a message is logged. Those of goldspan are."""
        kind, mark, _ = record.getMessage().partition(" [rdkafka#")
        if not mark:
            return True
        now = time.monotonic()
        if kind == "CONFWARN" or now < self._last_passed.get(kind, -_LOG_INTERVAL_SECONDS) + _LOG_INTERVAL_SECONDS:
            return False
        self._last_passed[kind] = now
        return True


_log.addFilter(_ClientLogFilter())

ClientT = TypeVar("ClientT")
Message: TypeAlias = Any
"""A message of confluent-kafka, whose methods can return `None` only for an event with an error."""


def create_consumer(settings: KafkaSettings, group: str, **own: Any) -> Consumer:
    """Returns a consumer. `own` are more options, with `_` instead of dots.

    Raises `ConfigurationError` for an option that librdkafka refuses.
    """
    options: dict[str, Any] = {
        "auto.offset.reset": "earliest",
        "topic.metadata.refresh.interval.ms": _METADATA_REFRESH_MS,
        **settings.options,
        "bootstrap.servers": settings.brokers,
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "allow.auto.create.topics": False,
        **_dotted(own),
    }
    return _create(lambda: Consumer(options, logger=_log))


def create_producer(settings: KafkaSettings) -> Producer:
    """Returns an idempotent producer, which repeats messages without a limit of time.

    Raises `ConfigurationError` for an option that librdkafka refuses.
    """
    options: dict[str, Any] = {
        "compression.type": "zstd",
        "linger.ms": 20,
        "queue.buffering.max.kbytes": _PRODUCER_QUEUE_KILOBYTES,
        "topic.metadata.refresh.interval.ms": _METADATA_REFRESH_MS,
        **settings.options,
        "bootstrap.servers": settings.brokers,
        "enable.idempotence": True,
        "acks": "all",
        "message.timeout.ms": 0,
        "allow.auto.create.topics": False,  # a topic that a broker creates would not be compacted
    }
    return _create(lambda: Producer(options, logger=_log))


def check_kafka_settings(settings: KafkaSettings) -> None:
    """Raise `ConfigurationError` if librdkafka refuses the options. Connects to no broker."""
    create_producer(KafkaSettings(brokers="", options=settings.options))


def describe_error(error: BaseException) -> str:
    """Returns the message of an error of librdkafka."""
    detail = error.args[0] if error.args else error
    return str(detail.str() if isinstance(detail, KafkaError) else detail)


def _dotted(options: dict[str, Any]) -> dict[str, Any]:
    return {
        name if name.endswith("_cb") or name == "on_commit" else name.replace("_", "."): value
        for name, value in options.items()
    }


def _create(create: Callable[[], ClientT]) -> ClientT:
    try:
        return create()
    except (KafkaException, TypeError, ValueError) as error:
        raise ConfigurationError(f"Kafka: {describe_error(error)}") from None
