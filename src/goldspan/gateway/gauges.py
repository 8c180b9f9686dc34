"""How full the gateway is, as gauges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter

from goldspan import semconv
from goldspan._version import __version__
from goldspan.errors import StoreError
from goldspan.gateway.forwarding.forwarder import Forwarder
from goldspan.gateway.journal.writing import Journal
from goldspan.gateway.scoring.consumer import Scoring


def publish(
    meter_provider: MeterProvider, scoring: Scoring, journals: Mapping[int, Journal], forwarders: Sequence[Forwarder]
) -> None:
    """Have these read whenever the figures of a worker are."""
    meter = get_meter("goldspan", __version__, meter_provider=meter_provider)

    def gauge(name: str, unit: str, description: str, read: Callable[[], Iterable[Observation]]) -> None:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            with suppress(StoreError):  # it is closed, or the disk is gone: others say so
                return read()
            return []

        meter.create_observable_gauge(name, [observe], unit=unit, description=description)

    def forwarding() -> Iterable[Observation]:
        for forwarder in forwarders:
            labels = {semconv.BACK_END_LABEL: forwarder.backend.name}
            yield Observation(forwarder.status()["behind_bytes"], labels)

    gauge(
        semconv.GATEWAY_JOURNAL_SIZE,
        "By",
        "What is kept of acknowledged requests until it is forwarded and scored. Near max_journal_bytes, requests are "
        "refused: see which back end is away.",
        lambda: [Observation(sum(journal.size for journal in journals.values()))],
    )
    gauge(
        semconv.GATEWAY_SCORING_BACKLOG,
        "By",
        "What waits to be looked at by scoring. If it grows, add workers; beyond max_backlog_bytes it is not scored.",
        lambda: [Observation(scoring.behind())],
    )
    gauge(
        semconv.GATEWAY_FORWARD_BACKLOG,
        "By",
        "What waits for a back end, by back end. If it grows, the back end is away or slower than what comes in.",
        forwarding,
    )
    gauge(
        semconv.GATEWAY_HELD_TRACES,
        "{trace}",
        "Traces held: those that are not whole, and those that were scored lately.",
        lambda: [Observation(len(scoring))],
    )
