"""The keyword arguments that everything that makes a `ScoringProcessor` hands on to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

from opentelemetry._logs import LoggerProvider
from opentelemetry.metrics import MeterProvider

from goldspan.model import Unit
from goldspan.online import Limits
from goldspan.online.sampling import ExportSampling, Sampling
from goldspan.scoring.metrics import MetricLike
from goldspan.sinks import Redact, SinkLike


class Options(TypedDict, total=False):
    """Those of `ScoringProcessor`, apart from the goldens and `then`. What is left out is as it is there."""

    metrics: Iterable[MetricLike]
    thresholds: Mapping[str, float]
    sinks: Iterable[SinkLike]
    attributes: bool
    logger_provider: LoggerProvider
    meter_provider: MeterProvider
    golden_id_attributes: Sequence[str]
    units: Sequence[Unit]
    redact: Redact
    sampling: Sampling
    export: ExportSampling
    budget: float
    background: bool
    threads: bool
    reload: float | None
    limits: Limits
