"""Computes numbers from a comparison, from 0 to 1, where 1 is good.

`metric`: what a metric is, and the checks of its declaration.
`registry`: every metric by name: built-in, registered and installed ones.
`call_correctness`: metrics of the expected calls, their order, arguments and results.
`behaviour`: metrics of failures, repeated and unknown calls, limits and side effects.
"""

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
