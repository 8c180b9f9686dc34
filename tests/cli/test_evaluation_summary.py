"""Evaluations counted one by one, and in parts that are merged."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from goldspan.cli.evaluation_summary import EvaluationSummary, ScoreTotal
from goldspan.goldens import load_goldens
from goldspan.otlp import load_runs
from goldspan.scoring import evaluate

ROOT = Path(__file__).parent.parent.parent
RUNS = [
    *load_runs(ROOT / "examples" / "traces.jsonl"),
    *load_runs(ROOT / "tests" / "fixtures" / "captures"),
]
GOLDENS = load_goldens(ROOT / "examples" / "goldens.yaml")


def summary_of(evaluations, limit):
    summary = EvaluationSummary(limit)
    for evaluation in evaluations:
        summary.add(evaluation)
    return summary


@pytest.mark.parametrize("limit", [None, 0, 1, 3, 100])
@pytest.mark.parametrize("size", [1, 4, 7])
def test_merged_parts_are_the_summary_of_all(limit, size):
    evaluations = [evaluate(run, goldens=GOLDENS) for run in RUNS]
    whole = summary_of(evaluations, limit)
    merged = EvaluationSummary(limit)
    for first in range(0, len(evaluations), size):
        merged.merge(summary_of(evaluations[first : first + size], limit))
    assert (len(merged), merged.evaluated, merged.verdicts) == (len(whole), whole.evaluated, whole.verdicts)
    assert merged.shown == whole.shown
    assert merged.scores == whole.scores
    assert merged.hints() == whole.hints()
    assert merged.not_evaluated == whole.not_evaluated
    assert merged.has_match is whole.has_match is True
    assert [merged.mean_score(name) for name in ("passed", "tool_recall", "x")] == [
        whole.mean_score(name) for name in ("passed", "tool_recall", "x")
    ]


def test_the_order_of_scores_does_not_change_their_mean():
    values = [0.1, 0.7, 1e-9, 1 / 3, 1.0] * 20
    totals = [ScoreTotal(), ScoreTotal()]
    for total, order in zip(totals, (values, sorted(values)), strict=True):
        for value in order:
            total.add(value, None)
    assert totals[0].mean == totals[1].mean == pytest.approx(sum(values) / len(values))


def test_a_mean_of_nothing_is_unknown_and_one_with_infinity_is_infinite():
    total = ScoreTotal()
    assert total.mean is None
    total.add(math.inf, True)
    total.add(0.5, False)
    assert total.mean == math.inf
    assert (total.passed, total.verdicts) == (1, 2)
