"""Compares runs with goldens, computes metrics from the comparison, and determines the verdict.

`evaluator`: evaluates a run: finds its golden, compares, measures and determines the verdict.
`coercion`: converts names and dictionaries of the caller to calls and goldens.
`run_comparison`: compares the calls of a run with a golden.
`matching`: matches calls with expected calls.
`arguments`: compares arguments and results.
`metrics`: computes numbers from a comparison.
`scores`: builds the scores: numbers with thresholds and reasons.
`violations`: finds the requirements of a golden that a run breaks, and those that cannot be evaluated.
`verdict`: decides whether a run passes.
`explanation`: writes the reason of an evaluation.
`name_suggestions`: finds tool names that nearly match.
`golden_lint`: finds mistakes in goldens.
"""

from __future__ import annotations

from goldspan.scoring.evaluator import SCORING_VERSION, evaluate
from goldspan.scoring.metrics import DEFAULT_METRICS
from goldspan.scoring.run_comparison import compare

__all__ = ["DEFAULT_METRICS", "SCORING_VERSION", "compare", "evaluate"]
