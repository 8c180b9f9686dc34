"""Creates the judge, the pipeline and the Kafka clients of a worker from its settings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from opentelemetry.metrics import MeterProvider

from goldspan.errors import ConfigurationError
from goldspan.gateway.gateway_counters import GatewayCounters
from goldspan.gateway.internal_telemetry import InternalTelemetry
from goldspan.gateway.scoring.verdict_queue import VerdictQueue
from goldspan.gateway.settings.gateway_settings import GatewaySettings
from goldspan.goldens import Goldens
from goldspan.goldens.golden_files.hot_reload import ReloadingGoldens
from goldspan.judge.judge import Judge
from goldspan.online.pass_rate_sink import PassRateSink
from goldspan.online.pipeline import Pipeline, check_units
from goldspan.online.sampling import Sampling
from goldspan.sinks import MetricSink, Sink

if TYPE_CHECKING:
    from goldspan.gateway.kafka.kafka_worker import KafkaWorker


def create_judge(settings: GatewaySettings, meter_provider: MeterProvider) -> Judge | None:
    """Returns the judge, or `None` if the settings name no model.

    Raises `ConfigurationError` if the cache file of the judge cannot be used.
    """
    judge_settings = settings.judge.to_judge_settings(settings.data)
    if judge_settings is None:
        return None
    try:
        samples = Sampling(judge_settings.sample).should_sample
        return judge_settings.create_judge(samples=samples, meter_provider=meter_provider)
    except ConfigurationError as error:  # loading the settings validated the rest, so the file is wrong
        raise ConfigurationError(f"{settings.location_of('judge.cache')}: {error}") from None


def open_kafka(settings: GatewaySettings, index: int, counters: GatewayCounters) -> KafkaWorker | None:
    """Returns the Kafka clients of a worker, or `None` if the settings name no brokers."""
    kafka_settings = settings.kafka_settings(index)
    if kafka_settings is None:
        return None
    from goldspan.gateway.kafka.kafka_worker import KafkaWorker  # deferred: the extra `kafka` is optional

    return KafkaWorker(kafka_settings, settings.limits, counters, include_arguments=settings.keep_arguments)


def create_pipeline(
    settings: GatewaySettings,
    telemetry: InternalTelemetry,
    sinks: Iterable[Sink],
    judge: Judge | None,
    verdicts: VerdictQueue,
) -> Pipeline:
    """Returns the pipeline with the gateway's own sinks for metrics, and `sinks`."""
    goldens: Goldens | ReloadingGoldens = Goldens(near=settings.near, margin=settings.margin)
    if settings.goldens:
        goldens = ReloadingGoldens(settings.goldens, near=settings.near, margin=settings.margin)
    own_metrics = (MetricSink(telemetry.meter_provider), PassRateSink(telemetry.meter_provider))
    return Pipeline(
        goldens,
        sinks=(*own_metrics, *sinks),
        metrics=settings.metrics,
        thresholds=settings.thresholds or None,
        unknown=settings.unknown,
        golden_id_attributes=settings.golden_id_attributes,
        units=check_units(settings.units),
        budget=settings.budget,
        judge=judge,
        on_verdict=verdicts.put,
    )
