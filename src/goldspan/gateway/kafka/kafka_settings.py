"""The brokers, topics and librdkafka options of the Kafka clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from goldspan.errors import ConfigurationError
from goldspan.goldens.spelling import join_words

SECRET_OPTIONS = frozenset({"sasl.password", "ssl.key.password", "ssl.key.pem", "ssl.keystore.password"})
"""Options with secrets. They belong in a file or in a variable."""
_OWN_OPTIONS: Mapping[str, str] = {
    "bootstrap.servers": "kafka.brokers",
    "metadata.broker.list": "kafka.brokers",
    "group.id": "kafka.group",
    "group.instance.id": "kafka.instance_id",
    **dict.fromkeys(("acks", "request.required.acks", "auto.commit.enable", "enable.auto.commit"), ""),
    **dict.fromkeys(("enable.auto.offset.store", "enable.idempotence", "enable.partition.eof"), ""),
    **dict.fromkeys(("message.timeout.ms", "delivery.timeout.ms", "statistics.interval.ms"), ""),
    "partition.assignment.strategy": "",
}
"""Options that goldspan sets, each with the setting that changes it."""


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """What the Kafka clients of one worker need to know."""

    brokers: str
    """Addresses, separated by commas."""
    topic: str = "otlp_spans"
    logs_topic: str | None = None
    keyed: bool = True
    """Whether the messages of `topic` have the trace id as their key."""
    keyed_topic: str = "goldspan_spans"
    """The topic to which messages are copied if there is a logs topic, or if they have no key."""
    results_topic: str | None = "goldspan_evaluations"
    group: str = "goldspan"
    instance_id: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Further librdkafka options."""

    @property
    def repartitions(self) -> bool:
        """Whether messages are copied to `keyed_topic` before they are scored."""
        return not self.keyed or self.logs_topic is not None

    @property
    def scored_topic(self) -> str:
        """The topic that is scored."""
        return self.keyed_topic if self.repartitions else self.topic

    def for_worker(self, index: int, workers: int) -> KafkaSettings:
        """Returns the settings of one of several worker processes, each of which is a member of the group."""
        if self.instance_id is None or workers == 1:
            return self
        return replace(self, instance_id=f"{self.instance_id}-{index}")


def check_options(options: Mapping[str, str]) -> None:
    """Raise `ConfigurationError` for an option that goldspan sets itself."""
    for name in options:
        if name in _OWN_OPTIONS:
            setting = _OWN_OPTIONS[name]
            raise ConfigurationError(f"{name} cannot be changed" + (f" here; use {setting}" if setting else ""))


def check_for_secrets(options: Mapping[str, str]) -> None:
    """Raise `ConfigurationError` for an option that contains a secret."""
    if secrets := sorted(SECRET_OPTIONS.intersection(options)):
        raise ConfigurationError(f"{join_words(secrets)} must be in the file of kafka.options_file, not here")


def read_options_file(path: Path) -> dict[str, str]:
    """Returns the options in a file with a line `name=value` for each. Lines that start with # are comments.

    Raises `ConfigurationError` for a file that cannot be read, and for any other line.
    """
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = (getattr(error, "strerror", None) or "not UTF-8 text").lower()
        raise ConfigurationError(f"{path} cannot be read: {reason}") from None
    options: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            name, sign, value = line.partition("=")
            if not sign or not name.strip():
                raise ConfigurationError(f"{path}, line {number}: must look like security.protocol=SASL_SSL")
            options[name.strip()] = value.strip()
    return options
