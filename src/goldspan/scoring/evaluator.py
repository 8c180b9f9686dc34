"""Judge a run: find its golden, lay the two side by side, and let every metric read its number."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from goldspan.goldens.lookup import Goldens
from goldspan.model import (
    Attempts,
    Comparison,
    Evaluation,
    Golden,
    Match,
    Order,
    Run,
    Score,
    content_digest,
)
from goldspan.scoring.calls import CallLike, ToolLike, as_calls, as_golden
from goldspan.scoring.explanation import reason
from goldspan.scoring.matching import compare
from goldspan.scoring.metrics import DEFAULT_METRICS, Metric, MetricLike, resolve

__all__ = ["DEFAULT_METRICS", "SCORING_VERSION", "evaluate"]

SCORING_VERSION = 2
"""Rises whenever any number can change."""

TOLERANCE = 1e-9
"""A threshold is met from this little below it, so that 0.1 + 0.2 meets 0.3."""

Expectation: TypeAlias = "Goldens | Golden | Iterable[ToolLike] | None"
"""Goldens to look the run up in, the golden it is to be judged by, or just the tools that were expected."""


def evaluate(
    run: Run | Iterable[CallLike],
    goldens: Expectation,
    *,
    input: str | None = None,  # noqa: A002 - what it is called everywhere else
    metrics: Iterable[MetricLike] | None = None,
    thresholds: Mapping[str, float] | None = None,
    order: Order | None = None,
    attempts: Attempts | None = None,
    forbid: Iterable[str] | None = None,
) -> Evaluation:
    """Judge a run, or a list of calls, by its golden, or by a list of expected tools.

    `input` is the text of the request, where it is not the run's own. `order`, `attempts` and `forbid` stand in for
    what the golden says, `thresholds` for those of the metrics: a metric with a threshold must meet it for the
    evaluation to pass. A metric that raises becomes a score with an `error`. Raises `GoldspanError` for a metric that
    does not exist and for lists that hold something else than tools.

        >>> evaluate(["search", "cancel"], ["search", "book"]).score("tool_correctness").value
        0.5
    """
    chosen = resolve(metrics, thresholds)
    if not isinstance(run, Run):
        run = Run(run_id="", input=input, tool_calls=as_calls(run))
    elif input is not None:
        run = replace(run, input=input)
    match, why_none = _find(run, goldens)
    golden = None
    if match:
        golden = as_golden(match.golden, order=order, attempts=attempts, forbid=forbid)
    seen = compare(run, golden)
    told = reason(seen, run.available_tools) if golden else f"{reason(seen).rstrip('.')}: {why_none}."
    scores = tuple(_score(metric, seen, why_none, told) for metric in chosen)
    return Evaluation(
        run=run,
        golden=golden,
        match=match,
        comparison=seen,
        scores=scores,
        passed=_passed(scores) if golden else None,
        reason=told,
        digest=_digest(run, golden, seen),
        scoring_version=SCORING_VERSION,
    )


def _find(run: Run, goldens: Expectation) -> tuple[Match | None, str]:
    """The golden and how it was found, or why there is none."""
    if goldens is None:
        return None, "none was given"
    if isinstance(goldens, Goldens):
        match = goldens.find(run)
        return match, "" if match else goldens.explain(run)
    return Match(as_golden(goldens), how="given"), ""


def _score(metric: Metric, seen: Comparison, why_none: str, told: str) -> Score:
    golden = seen.golden
    threshold = metric.threshold(golden) if metric.threshold and golden else None
    if golden is None and metric.needs_golden:
        return Score(metric.name, label="not_evaluated", reason=why_none)
    try:
        value = _number(metric.measure(seen))
        if value is None:
            unknown = metric.unknown(seen)
            return Score(metric.name, threshold=threshold, label="not_evaluated", reason=unknown)
    except Exception as error:  # noqa: BLE001 - a failure is a value; the other metrics still run
        text = f"{type(error).__name__}: {error}"
        return Score(metric.name, threshold=threshold, label="not_evaluated", error=text)
    if threshold is None:
        return Score(metric.name, value)
    passed = value >= threshold - TOLERANCE
    return Score(metric.name, value, passed, threshold, "pass" if passed else "fail", reason=told)


def _number(value: float | None) -> float | None:
    if value is None:
        return None
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"a score must be a finite number, not {number}")
    return number


def _passed(scores: Iterable[Score]) -> bool | None:
    """Whether every gate that could be judged was passed."""
    verdicts = [score.passed for score in scores if score.passed is not None]
    return all(verdicts) if verdicts else None


def _digest(run: Run, golden: Golden | None, seen: Comparison) -> str:
    judged_by = [golden.digest if golden else None, SCORING_VERSION]
    calls = [
        [call.name, call.raw_name, call.server, call.arguments, call.error is not None, call.kind, call.outcome]
        for call in run.tool_calls
    ]
    try:
        return content_digest([calls, *judged_by])
    except (TypeError, ValueError, RecursionError):
        # Arguments no hash can be made of (keys of several types, circles, thousands of levels): hash the verdict.
        verdicts = [[row.verdict, row.expected_at, row.agreement and row.agreement.share] for row in seen.rows]
        return content_digest([verdicts, *judged_by])
