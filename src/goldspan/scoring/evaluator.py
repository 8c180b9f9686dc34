"""Evaluates a run: finds its golden, compares the two, measures metrics, determines the verdict."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from time import perf_counter
from typing import TYPE_CHECKING, TypeAlias

from goldspan.errors import ConfigurationError
from goldspan.goldens.lookup.golden_lookup import Goldens
from goldspan.goldens.spelling import short_repr
from goldspan.model import Comparison, Evaluation, Golden, Match, Run, Score
from goldspan.scoring.coercion import CallLike, ToolLike, as_calls, as_golden
from goldspan.scoring.explanation import explain_evaluation
from goldspan.scoring.metrics import Metric, MetricLike, Threshold
from goldspan.scoring.metrics.behaviour import effect_threshold
from goldspan.scoring.metrics.metric import THRESHOLD_TOLERANCE
from goldspan.scoring.metrics.registry import BUILTIN_METRICS, metrics_of_golden, metrics_of_run, resolve_metrics
from goldspan.scoring.run_comparison import compare, compare_run
from goldspan.scoring.verdict import RunVerdict, determine_verdict, passes, relaxes_tool_correctness
from goldspan.scoring.violations import CALLS_NOT_VISIBLE, has_invisible_calls

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from goldspan.scoring.coercion import GoldenOverrides

SCORING_VERSION = 5
"""The version of numbers and verdicts. It increases with every change that can alter one."""

OUT_OF_TIME = "the time budget of the evaluation was used up"
"""The reason of a metric that was not evaluated because of the budget."""

Expectation: TypeAlias = "Goldens | Golden | Iterable[ToolLike] | None"
"""Goldens among which the run's golden is looked up, a golden, or a list of expected tools."""


def evaluate(
    run: Run | Iterable[CallLike],
    goldens: Expectation,
    *,
    input: str | None = None,  # noqa: A002 - what it is called everywhere else
    metrics: Iterable[MetricLike] | None = None,
    thresholds: Mapping[str, float] | None = None,
    strict: bool = False,
    reasons: bool = True,
    verbose: bool = False,
    budget: float | None = None,
    **rules: Unpack[GoldenOverrides],
) -> Evaluation:
    """Evaluate a run, or a list of calls, against its golden, or against a list of expected tools.

    The evaluation fails if the run breaks a requirement of the golden or misses a threshold. It is not evaluated
    (`passed` is `None`) if nothing is broken and a requirement cannot be evaluated, unless `unknown` says otherwise.
    Else it passes. A metric that raises becomes a score with an `error`, and so does an unknown metric that the run's
    telemetry names.

        >>> evaluate(["search", "cancel"], ["search", "book"]).score("tool_correctness").value
        0.5

    Args:
        run: A run, or a list of calls: names, dictionaries or `ToolCall` values.
        goldens: Goldens among which the run's golden is looked up, a golden, a list of expected tools, or `None`.
        input: The text of the request, in place of the run's.
        metrics: The metrics to measure. Default: those that the run's telemetry names, else those of the golden.
        thresholds: The value that each metric must reach, by name, in place of the golden's.
        strict: Raises every threshold to 1 and sets lower scores to 0.
        reasons: If false, the evaluation and the scores have no reasons, which takes less time.
        verbose: Adds a reason to every score, and the steps of its computation.
        budget: A number of seconds. A metric that would start after it is not evaluated, and its reason says so.
        **rules: Any other key of a golden, such as `order`, `match` or `forbid`, in place of the golden's.

    Returns:
        The evaluation with the comparison, the scores and the verdict.

    Raises:
        GoldspanError: `metrics` or the golden names an unknown metric, a list contains something other than tools, a
            rule does not exist, or `input` is not text.
    """
    if not isinstance(input, str | None):
        raise ConfigurationError(f"input must be the text of the request, not {short_repr(input)}.")
    deadline = None if budget is None else perf_counter() + budget
    selected = resolve_metrics(metrics, thresholds)
    if not isinstance(run, Run):
        run = Run(run_id="", input=input, tool_calls=as_calls(run))
    elif input is not None:
        run = replace(run, input=input)
    match, no_golden_reason = _find_golden(run, goldens)
    golden = as_golden(match.golden, **rules) if match else None
    comparison = compare_run(run, golden) if golden is not None else compare(run, None)
    if metrics is None and run.metrics is not None:
        selected = metrics_of_run(run.metrics, golden, thresholds)
    elif metrics is None and golden is not None:
        selected = metrics_of_golden(golden, thresholds)
    gates = _metric_thresholds(selected, golden, thresholds, strict)
    scores = tuple(_ScoreBuilder(comparison, no_golden_reason, strict, reasons, verbose, deadline).scores(gates))
    verdict = determine_verdict(comparison, scores, _stated_thresholds(golden, thresholds), strict=strict)
    return Evaluation(
        run=run,
        golden=golden,
        match=match,
        comparison=comparison,
        scores=scores,
        passed=passes(verdict.broken, verdict.undetermined, golden.unknown) if golden and verdict else None,
        reason=_evaluation_reason(comparison, verdict, no_golden_reason) if reasons else "",
        scoring_version=SCORING_VERSION,
        broken=verdict.broken if verdict else (),
        undetermined=verdict.undetermined if verdict else (),
        accepted_shares=verdict.accepted if verdict else (),
    )


def _find_golden(run: Run, goldens: Expectation) -> tuple[Match | None, str]:
    """Returns the golden and how it was found, or why there is none."""
    if goldens is None:
        if run.expected_tools is None:
            return None, "none was given"
        goldens = _NO_GOLDENS  # the run's telemetry states the expected tools
    if isinstance(goldens, Goldens):
        return goldens.find_with_reason(run)
    return Match(as_golden(goldens), how="given"), ""


_NO_GOLDENS = Goldens()


def _evaluation_reason(comparison: Comparison, verdict: RunVerdict | None, no_golden_reason: str) -> str:
    if comparison.golden is None:
        return f"{explain_evaluation(comparison).rstrip('.')}: {no_golden_reason}."
    return explain_evaluation(comparison, comparison.run.available_tools, verdict)


def _stated_thresholds(golden: Golden | None, thresholds: Mapping[str, float] | None) -> Mapping[str, float]:
    """Returns the thresholds of single metrics: the golden's, replaced by those of the caller."""
    if golden is None or not (golden.thresholds or thresholds):
        return _NO_THRESHOLDS
    return {**golden.thresholds, **(thresholds or {})}


_NO_THRESHOLDS: Mapping[str, float] = {}


# --- scores -----------------------------------------------------------------------------------------------------------

_MetricThresholds: TypeAlias = "Sequence[tuple[Metric, float | None]]"
"""Metrics, each with its threshold or `None`."""


def _metric_thresholds(
    metrics: Sequence[Metric], golden: Golden | None, thresholds: Mapping[str, float] | None, strict: bool
) -> _MetricThresholds:
    """Returns the threshold of each metric: the caller's, else the golden's, else the metric's own."""
    if golden is None:
        return [(metric, None) for metric in metrics]
    if metrics is BUILTIN_METRICS and not thresholds:
        return _builtin_thresholds(golden.threshold, effect_threshold(golden) is not None, strict)
    limits = _stated_thresholds(golden, thresholds)
    gates = [
        (metric, _resolve_threshold(limits.get(metric.name, metric.threshold), golden, strict)) for metric in metrics
    ]
    if strict or not relaxes_tool_correctness(golden, limits):
        return gates
    return [(metric, None if metric.name == "tool_correctness" else limit) for metric, limit in gates]


@lru_cache(maxsize=256)
def _builtin_thresholds(threshold: float, declares_effects: bool, strict: bool) -> _MetricThresholds:
    """Returns the thresholds of the built-in metrics, which depend on these fields of a golden only."""
    golden = Golden("", threshold=threshold, write_tools=() if declares_effects else None)
    return [(metric, _resolve_threshold(metric.threshold, golden, strict)) for metric in BUILTIN_METRICS]


def _resolve_threshold(threshold: Threshold, golden: Golden, strict: bool) -> float | None:
    limit = threshold(golden) if callable(threshold) else threshold
    return 1.0 if strict and limit is not None else limit


@dataclass(slots=True)
class _ScoreBuilder:
    """Measures metrics on one comparison and builds their scores."""

    comparison: Comparison
    no_golden_reason: str
    strict: bool
    reasons: bool
    verbose: bool
    deadline: float | None = None

    def scores(self, gates: _MetricThresholds) -> Iterator[Score]:
        """Yield the score of each metric."""
        comparison, strict, reasons = self.comparison, self.strict, self.reasons
        policy = comparison.golden is not None and comparison.golden.policy
        invisible = has_invisible_calls(comparison)
        for metric, threshold in gates:
            if comparison.golden is None and metric.needs_golden:
                yield _not_evaluated_score(metric.name, None, self.no_golden_reason if reasons else None)
                continue
            if policy and metric.needs_expectations:
                yield _not_evaluated_score(metric.name, None, _POLICY_HAS_NO_EXPECTATIONS if reasons else None)
                continue
            if invisible:
                yield _not_evaluated_score(metric.name, threshold, CALLS_NOT_VISIBLE if reasons else None)
                continue
            if self.deadline is not None and perf_counter() > self.deadline:
                yield _not_evaluated_score(metric.name, threshold, OUT_OF_TIME)
                continue
            try:
                value = metric.measure(comparison)
                if value is None:
                    yield _not_evaluated_score(
                        metric.name, threshold, metric.why_missing(comparison) if reasons else None
                    )
                    continue
                if threshold is not None and metric.is_undecided(comparison, threshold):
                    yield self._undecided(metric, float(value), threshold)
                    continue
                score = _make_score(metric.name, float(value), threshold, strict)
                # A score without a threshold needs no reason: the evaluation's reason covers it.
                needs_reason = reasons and threshold is not None and value < 1
                yield self._with_explanation(score, metric) if needs_reason or self.verbose else score
            except Exception as error:  # noqa: BLE001 - the error becomes a score; the other metrics still run
                text = f"{type(error).__name__}: {error}"
                yield Score(metric.name, threshold=threshold, label="not_evaluated", error=text)

    def _undecided(self, metric: Metric, value: float, threshold: float) -> Score:
        """Returns a score without a verdict: calls that were not captured decide if it reaches the threshold."""
        parts = tuple(metric.explain(self.comparison)) if metric.explain and self.verbose else ()
        steps = (
            (*[_sentence(str(part)) for part in parts], f"The score is {value:.4g} of what is known.") if parts else ()
        )
        why = metric.why_missing(self.comparison) if self.reasons else None
        return Score(metric.name, value, None, threshold, "not_evaluated", why, steps=steps)

    def _with_explanation(self, score: Score, metric: Metric) -> Score:
        """Returns the score with the faults that keep it below 1, and with its steps if `verbose` is set."""
        parts = metric.explain(self.comparison) if metric.explain else ()
        if self.verbose:
            parts = tuple(parts)
            steps = (*[_sentence(str(part)) for part in parts], _outcome_sentence(score))
        else:
            steps = ()
        faults = [str(part) for part in parts if part.is_fault and part.items] if self.reasons else ()
        reason = _sentence("; ".join(faults)) if faults else None
        return Score(score.metric, score.value, score.passed, score.threshold, score.label, reason, steps=steps)


_POLICY_HAS_NO_EXPECTATIONS = "a policy expects no calls in particular"

# Most runs have the same few scores: a lookup takes a quarter of the time of the constructor.


@lru_cache(maxsize=4096)
def _make_score(metric: str, value: float, threshold: float | None, strict: bool) -> Score:
    if not math.isfinite(value):
        raise ValueError(f"a score must be a finite number, not {value}")
    if threshold is None:
        return Score(metric, value)
    if value >= threshold - THRESHOLD_TOLERANCE:
        return Score(metric, value, True, threshold, "pass")
    return Score(metric, 0.0 if strict else value, False, threshold, "fail")


@lru_cache(maxsize=1024)
def _not_evaluated_score(metric: str, threshold: float | None, why: str | None) -> Score:
    return Score(metric, None, None, threshold, "not_evaluated", why)


def _outcome_sentence(score: Score) -> str:
    wanted = "" if score.threshold is None else f"; {score.threshold:g} is wanted"
    return f"The score is {score.value:.4g}{wanted}."


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
