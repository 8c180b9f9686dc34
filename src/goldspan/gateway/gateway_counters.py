"""The counters of the gateway, each with a description of what to do about it."""

from __future__ import annotations

from typing import NamedTuple

from opentelemetry.metrics import Counter, MeterProvider, get_meter

from goldspan import semconv
from goldspan._version import __version__


class CounterDefinition(NamedTuple):
    """Name, unit and description of one counter."""

    name: str
    unit: str
    description: str
    """What is counted and, if it should stay at zero, what to do about it."""


COUNTERS = (
    CounterDefinition(
        semconv.GATEWAY_REQUESTS,
        "{request}",
        "Export requests that were answered, by signal, transport and HTTP status.",
    ),
    CounterDefinition(
        semconv.GATEWAY_ITEMS,
        "{item}",
        "Spans, log records and metrics that were acknowledged, by signal.",
    ),
    CounterDefinition(
        semconv.GATEWAY_BYTES,
        "By",
        "Bytes of acknowledged requests after decompression, by signal.",
    ),
    CounterDefinition(
        semconv.GATEWAY_REFUSED,
        "{request}",
        "Requests and connections refused at a limit, by limit; OTLP clients retry if the status is retryable. "
        "Should be near zero: raise the limit, or configure smaller batches in the client.",
    ),
    CounterDefinition(
        semconv.GATEWAY_REJECTED,
        "{item}",
        "Invalid spans and log records of acknowledged requests (partial success), by signal. "
        "Should be zero: the client logs the reason in the response.",
    ),
    CounterDefinition(
        semconv.GATEWAY_FORWARDED,
        "{request}",
        "Requests that a back end accepted, by back end and signal.",
    ),
    CounterDefinition(
        semconv.GATEWAY_FORWARD_RETRIES,
        "{attempt}",
        "Failed export attempts that are retried, by back end. "
        "Should be near zero: check the back end; nothing is lost while the journal has space.",
    ),
    CounterDefinition(
        semconv.GATEWAY_FORWARD_REJECTED,
        "{request}",
        "Requests that a back end rejected with a non-retryable status, by back end and signal; they are not retried. "
        "Should be zero: the log has the response of the back end.",
    ),
    CounterDefinition(
        semconv.GATEWAY_FORWARD_LEFT_OUT,
        "{item}",
        "Spans, log records and data points that a back end rejected from accepted requests (partial success), by back "
        "end and signal. Should be zero: the log has the response of the back end.",
    ),
    CounterDefinition(
        semconv.GATEWAY_SHED,
        "{request}",
        "Requests that were forwarded but not scored, because scoring was too far behind. "
        "Should be zero: add workers, or raise max_backlog_bytes.",
    ),
    CounterDefinition(
        semconv.GATEWAY_UNREADABLE,
        "{request}",
        "Acknowledged requests that could not be decoded for scoring. Should be zero: please report it.",
    ),
    CounterDefinition(
        semconv.GATEWAY_STORE_RETRIES,
        "{attempt}",
        "Failed attempts to write results to the store or to read it for scoring; they are repeated. "
        "Should be near zero: check the disk or the database server; nothing is lost while the journal has space.",
    ),
    CounterDefinition(
        semconv.KAFKA_MESSAGES,
        "{message}",
        "Messages that were read from Kafka, by topic.",
    ),
    CounterDefinition(
        semconv.KAFKA_UNDECODABLE,
        "{message}",
        "Messages from Kafka that are not OTLP, or exceed a limit of requests, by topic; they are skipped. "
        "Should be zero: the log has the offset and the reason.",
    ),
    CounterDefinition(
        semconv.KAFKA_UNKEYED,
        "{message}",
        "Messages from Kafka without a key, which are not scored, by topic. "
        "Should be zero: set partition_traces_by_id in the Collector, or kafka.keyed to false.",
    ),
    CounterDefinition(
        semconv.KAFKA_REBALANCES,
        "{rebalance}",
        "Changes of the partitions that Kafka assigns to a worker. "
        "Should be rare: check why workers restart, and set kafka.instance_id.",
    ),
)

_DEFINITION_BY_NAME = {definition.name: definition for definition in COUNTERS}


class GatewayCounters:
    """The counters of the gateway. Thread-safe."""

    def __init__(self, meter_provider: MeterProvider | None = None) -> None:
        meter = get_meter("goldspan", __version__, meter_provider=meter_provider)
        self._counters: dict[str, Counter] = {
            definition.name: meter.create_counter(
                definition.name, unit=definition.unit, description=definition.description
            )
            for definition in COUNTERS
        }

    def add(self, name: str, number: int = 1, **labels: str | int) -> None:
        """Adds `number` to the counter `name`. Labels are written without the prefix `goldspan.`."""
        if number:
            self._counters[name].add(number, {f"goldspan.{label}": value for label, value in labels.items()})
