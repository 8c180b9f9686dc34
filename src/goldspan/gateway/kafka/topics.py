"""Creates the topics of goldspan that do not exist."""

from __future__ import annotations

import logging

from goldspan._extras import require_extra
from goldspan.gateway.kafka.kafka_clients import describe_error
from goldspan.gateway.kafka.kafka_settings import KafkaSettings

with require_extra("kafka"):
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

_TIMEOUT_SECONDS = 10.0
_DEFAULT_REPLICATION = -1
_log = logging.getLogger("goldspan.kafka")


def create_missing_topics(settings: KafkaSettings) -> bool:
    """Create the topics of results and of copied messages with as many partitions as the topic of the spans.

    Returns `False` if that must be tried again: no broker is available, or the topic of the spans does not exist. If
    it is not permitted, the error is logged, and an operator must create the topics.
    """
    admin = AdminClient(
        {
            **settings.options,
            "bootstrap.servers": settings.brokers,
            "allow.auto.create.topics": False,
        },
        logger=_log,
    )
    try:
        existing = admin.list_topics(timeout=_TIMEOUT_SECONDS).topics
    except KafkaException:
        return False
    source = existing.get(settings.topic)
    if source is None or not source.partitions:
        return False
    wanted: list[NewTopic] = []
    if settings.repartitions and settings.keyed_topic not in existing:
        wanted.append(NewTopic(settings.keyed_topic, len(source.partitions), _DEFAULT_REPLICATION))
    if settings.results_topic is not None and settings.results_topic not in existing:
        compacted = {"cleanup.policy": "compact"}
        wanted.append(NewTopic(settings.results_topic, len(source.partitions), _DEFAULT_REPLICATION, config=compacted))
    is_done = True
    for topic, creation in (admin.create_topics(wanted) if wanted else {}).items():
        try:
            creation.result(_TIMEOUT_SECONDS)
            _log.info("created the topic %s", topic)
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.TOPIC_ALREADY_EXISTS:
                continue
            if code in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
                _log.error("cannot create the topic %s: %s; create it yourself", topic, describe_error(error))
            else:
                is_done = False
    return is_done
