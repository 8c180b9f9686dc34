"""The metrics: each reads one number off a comparison, and 1 is always good. None of them compares anything itself."""

from __future__ import annotations

from goldspan.scoring.metrics.metric import Measure, Metric, MetricEvidence, MetricLike, Threshold
from goldspan.scoring.metrics.registry import DEFAULT_METRICS, JUDGE_METRICS, METRICS, correctness

__all__ = [
    "DEFAULT_METRICS",
    "JUDGE_METRICS",
    "METRICS",
    "Measure",
    "Metric",
    "MetricEvidence",
    "MetricLike",
    "Threshold",
    "correctness",
]
