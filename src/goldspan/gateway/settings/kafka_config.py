"""The settings of Kafka."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from goldspan._extras import require_extra
from goldspan.errors import ConfigurationError
from goldspan.gateway.kafka.kafka_settings import KafkaSettings, check_for_secrets, check_options, read_options_file
from goldspan.gateway.settings.setting_types import OptionalName, OptionMap, TextList, validation_error

with require_extra("server"):
    from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_BROKER = re.compile(r"[^\s,/@]+:[0-9]{1,5}")


class KafkaConfig(BaseModel):
    """Kafka topics that the Collector writes, which are scored in addition to received requests."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True)

    brokers: TextList = ()
    """Addresses of some brokers, such as kafka-1:9092; none: nothing is read from Kafka."""
    topic: str = "otlp_spans"
    """Topic of the spans, in the encodings otlp_proto or otlp_json."""
    logs_topic: OptionalName = None
    """Topic of the logs; null: none. With it, spans and logs are copied to keyed_topic."""
    keyed: bool = True
    """Whether messages of topic have the trace id as their key (partition_traces_by_id). If not, they are copied to
    keyed_topic."""
    keyed_topic: str = "goldspan_spans"
    """Topic for the copies, keyed by trace id; created if it does not exist."""
    results_topic: OptionalName = "goldspan_evaluations"
    """Compacted topic that evaluations are written to, keyed by run; created if it does not exist; off: none."""
    group: Annotated[str, Field(min_length=1)] = "goldspan"
    """Consumer group of all workers."""
    instance_id: OptionalName = None
    """Name of this worker in the group (group.instance.id), different for each; with it, a short restart causes no
    rebalance; null: none."""
    username: OptionalName = None
    """User name for SASL."""
    password: SecretStr | None = Field(default=None, repr=False)
    """Password for SASL, preferably set by the variable GOLDSPAN_KAFKA_PASSWORD."""
    options: OptionMap = Field(default={}, repr=False)
    """Further options of librdkafka, such as security.protocol; a JSON object in a variable."""
    options_file: Path | None = None
    """File with further options of librdkafka, one name=value per line, for options with secrets."""

    @model_validator(mode="after")
    def _validate(self) -> KafkaConfig:
        for field in ("topic", "logs_topic", "keyed_topic", "results_topic"):
            name = getattr(self, field)
            if name is not None and not _TOPIC_NAME.fullmatch(name):
                raise validation_error(
                    "must be the name of a topic: letters, digits, dots, underscores, hyphens", field
                )
        names = [self.topic, self.logs_topic, self.keyed_topic, self.results_topic]
        if len(set(names)) < len(names) - (self.logs_topic is None and self.results_topic is None):
            raise validation_error("each topic must have its own name", "topic")
        for broker in self.brokers:
            if not _BROKER.fullmatch(broker):
                raise validation_error("must look like kafka-1:9092, several separated by commas", "brokers")
        if (self.username is None) != (self.password is None):
            present, missing = ("username", "password") if self.password is None else ("password", "username")
            raise validation_error(f"requires {missing}", present)
        try:
            check_options(self.options)
            check_for_secrets(self.options)
        except ConfigurationError as error:
            raise validation_error(str(error), "options") from None
        return self

    def to_kafka_settings(self) -> KafkaSettings | None:
        """Returns the settings of the clients, or `None` if no brokers are set.

        Raises `ConfigurationError` for a file of options that cannot be read.
        """
        if not self.brokers:
            return None
        options: dict[str, str] = {**self.options}
        if self.options_file is not None:
            from_file = read_options_file(self.options_file)
            check_options(from_file)
            options |= from_file
        if self.username is not None and self.password is not None:
            options |= {"sasl.username": self.username, "sasl.password": self.password.get_secret_value()}
        same: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("topic", "logs_topic", "keyed", "keyed_topic", "results_topic", "group", "instance_id")
        }
        return KafkaSettings(brokers=",".join(self.brokers), options=options, **same)
