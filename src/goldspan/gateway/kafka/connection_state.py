"""Whether the brokers can be reached and the topic can be consumed, for `/readyz`."""

from __future__ import annotations

import json
from typing import Any

from goldspan._extras import require_extra

with require_extra("kafka"):
    from confluent_kafka import KafkaError

_CONNECTED_STATES = frozenset({"UP", "UPDATE"})


class ConnectionState:
    """The state of the connection. The scoring thread updates it, and other threads read it."""

    def __init__(self) -> None:
        self._is_connected = False
        self.problem: str | None = None
        """Why the topic is not consumed although the brokers can be reached."""

    @property
    def reason(self) -> str | None:
        """Why nothing is consumed; `None` if all is well."""
        return self.problem if self._is_connected else "no Kafka broker can be reached (kafka.brokers)"

    def update_from_statistics(self, statistics: str) -> None:
        """Read the state of the brokers from the statistics of librdkafka."""
        brokers: dict[str, Any] = json.loads(statistics)["brokers"]
        self._is_connected = any(broker["state"] in _CONNECTED_STATES for broker in brokers.values())

    def update_from_error(self, error: KafkaError) -> None:
        """Record an error that prevents consuming until an operator acts."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._is_connected = False
        elif error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            self.problem = "the Kafka topic does not exist (kafka.topic)"
        elif error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED):
            self.problem = f"Kafka: {error.str()}"
        elif error.code() in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):
            self._is_connected = False
