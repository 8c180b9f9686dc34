"""Scoring: a run is laid beside its golden once, and metrics read numbers off that one comparison."""

from __future__ import annotations

from goldspan.scoring.evaluator import SCORING_VERSION, evaluate
from goldspan.scoring.metrics import DEFAULT_METRICS
from goldspan.scoring.run_comparison import compare

__all__ = ["DEFAULT_METRICS", "SCORING_VERSION", "compare", "evaluate"]
