"""The metrics: each reads one number off a comparison, and 1 is always good. None of them compares anything itself."""

from __future__ import annotations

from goldspan.scoring.metrics.metric import Measure, Metric, MetricLike, Part, Threshold
from goldspan.scoring.metrics.table import ASKED_METRICS, DEFAULT_METRICS, METRICS, correctness

__all__ = [
    "ASKED_METRICS",
    "DEFAULT_METRICS",
    "METRICS",
    "Measure",
    "Metric",
    "MetricLike",
    "Part",
    "Threshold",
    "correctness",
]
