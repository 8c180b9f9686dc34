"""What the gateway counts, each with what to do about it."""

from __future__ import annotations

from typing import NamedTuple

from opentelemetry.metrics import Counter, MeterProvider, get_meter

from goldspan import semconv
from goldspan._version import __version__


class CounterDefinition(NamedTuple):
    """One thing that is counted."""

    name: str
    unit: str
    description: str
    """What it means and, where it should not happen, what to do about it."""


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
        "Bytes of acknowledged requests after inflating, by signal.",
    ),
    CounterDefinition(
        semconv.GATEWAY_REFUSED,
        "{request}",
        "Requests and connections that met a limit, by limit; clients that follow OTLP try again where that can help. "
        "Should be near zero: raise that limit, or have the client send smaller batches.",
    ),
    CounterDefinition(
        semconv.GATEWAY_REJECTED,
        "{item}",
        "Spans and log records of acknowledged requests that could not be read (partial success), by signal. "
        "Should be zero: the client's log has the reason of the answer.",
    ),
    CounterDefinition(
        semconv.GATEWAY_FORWARDED,
        "{request}",
        "Requests that a back end took, by back end and signal.",
    ),
    CounterDefinition(
        semconv.GATEWAY_FORWARD_RETRIES,
        "{attempt}",
        "Attempts to forward that failed and are made again, by back end. "
        "Should be near zero: look at the back end; nothing is lost while the journal has room.",
    ),
    CounterDefinition(
        semconv.GATEWAY_FORWARD_REJECTED,
        "{request}",
        "Requests that a back end will never take (it answered that they are wrong), by back end and signal; they are "
        "not tried again. Should be zero: the log says what the back end answered.",
    ),
    CounterDefinition(
        semconv.GATEWAY_FORWARD_LEFT_OUT,
        "{item}",
        "Spans, log records and data points that a back end left out of requests it took (partial success), by back "
        "end and signal. Should be zero: the log says what the back end answered.",
    ),
    CounterDefinition(
        semconv.GATEWAY_SHED,
        "{request}",
        "Requests that were forwarded and not scored, because scoring was too far behind. "
        "Should be zero: add workers, or raise max_backlog_bytes.",
    ),
    CounterDefinition(
        semconv.GATEWAY_UNREADABLE,
        "{request}",
        "Acknowledged requests that could not be read when they were to be scored. Should be zero: please report it.",
    ),
)

_DEFINITION_BY_NAME = {counted.name: counted for counted in COUNTERS}


class GatewayCounters:
    """The gateway's counters. Any thread may use it."""

    def __init__(self, meter_provider: MeterProvider | None = None) -> None:
        meter = get_meter("goldspan", __version__, meter_provider=meter_provider)
        self._counters: dict[str, Counter] = {
            counted.name: meter.create_counter(counted.name, unit=counted.unit, description=counted.description)
            for counted in COUNTERS
        }

    def add(self, name: str, number: int = 1, **labels: str | int) -> None:
        """Count so many more, by the name of the counter; labels are written without `goldspan.` before them."""
        if number:
            self._counters[name].add(number, {f"goldspan.{label}": value for label, value in labels.items()})
