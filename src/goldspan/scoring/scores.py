"""Builds the scores of an evaluation: the number of each metric with its threshold and its reason."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from time import perf_counter
from typing import NamedTuple, TypeAlias

from goldspan.model import (
    CallOrder,
    Comparison,
    ComparisonRow,
    CorrectnessMode,
    ExpectedTool,
    Golden,
    Score,
    ToolCall,
    fast_constructor,
)
from goldspan.scoring.metrics import METRICS, Metric, MetricEvidence, Threshold
from goldspan.scoring.metrics.behaviour import effect_threshold
from goldspan.scoring.metrics.metric import THRESHOLD_TOLERANCE
from goldspan.scoring.metrics.registry import BUILTIN_METRICS
from goldspan.scoring.verdict import relaxes_tool_correctness
from goldspan.scoring.violations import CALLS_NOT_VISIBLE

OUT_OF_TIME = "the time budget of the evaluation was used up"
"""The reason of a metric that was not evaluated because of the budget."""


def stated_thresholds(golden: Golden | None, thresholds: Mapping[str, float] | None) -> Mapping[str, float]:
    """Returns the thresholds of single metrics: the golden's, replaced by those of the caller."""
    if golden is None or not (golden.thresholds or thresholds):
        return _NO_THRESHOLDS
    return {**golden.thresholds, **(thresholds or {})}


_NO_THRESHOLDS: Mapping[str, float] = {}


MetricThresholds: TypeAlias = "Sequence[tuple[Metric, float | None]]"
"""Metrics, each with its threshold or `None`."""


def metric_thresholds(
    metrics: Sequence[Metric], golden: Golden | None, thresholds: Mapping[str, float] | None, strict: bool
) -> MetricThresholds:
    """Returns the threshold of each metric: the caller's, else the golden's, else the metric's own."""
    if golden is None:
        return [(metric, None) for metric in metrics]
    if metrics is BUILTIN_METRICS and not thresholds:
        return _builtin_thresholds(golden.threshold, effect_threshold(golden) is not None, strict)
    limits = stated_thresholds(golden, thresholds)
    gates = [
        (metric, _resolve_threshold(limits.get(metric.name, metric.threshold), golden, strict)) for metric in metrics
    ]
    if strict or not relaxes_tool_correctness(golden, limits):
        return gates
    return [(metric, None if metric.name == "tool_correctness" else limit) for metric, limit in gates]


@lru_cache(maxsize=256)
def _builtin_thresholds(threshold: float, declares_effects: bool, strict: bool) -> MetricThresholds:
    """Returns the thresholds of the built-in metrics, which depend on these fields of a golden only."""
    golden = Golden("", threshold=threshold, write_tools=() if declares_effects else None)
    return [(metric, _resolve_threshold(metric.threshold, golden, strict)) for metric in BUILTIN_METRICS]


def _resolve_threshold(threshold: Threshold, golden: Golden, strict: bool) -> float | None:
    limit = threshold(golden) if callable(threshold) else threshold
    return 1.0 if strict and limit is not None else limit


@dataclass(slots=True)
class ScoreBuilder:
    """Measures metrics on one comparison and builds their scores."""

    comparison: Comparison
    no_golden_reason: str
    strict: bool
    reasons: bool
    verbose: bool
    deadline: float | None = None

    @property
    def is_out_of_time(self) -> bool:
        """Whether the time budget is used up."""
        return self.deadline is not None and perf_counter() > self.deadline

    def scores(self, gates: MetricThresholds) -> tuple[Score, ...]:
        """Return the score of each metric."""
        comparison, golden = self.comparison, self.comparison.golden
        is_measured = golden is not None and not golden.policy and self.deadline is None
        is_measured = is_measured and not comparison.run.health.calls_invisible
        found = []
        for metric, threshold in gates:
            score = None if is_measured else self._unmeasured(metric, threshold)
            found.append(score or self._measured_or_error(metric, threshold))
        return tuple(found)

    def default_scores(self) -> tuple[Score, ...]:
        """Return the scores of the default metrics, in half of the time if all calls are known to have succeeded.

        Most of them then depend on how many rows there are of each kind.
        """
        comparison, golden = self.comparison, self.comparison.golden
        if not comparison.is_all_successful or golden is None or golden.mode == "set" or self.deadline is not None:
            return self.scores(metric_thresholds(BUILTIN_METRICS, golden, None, strict=False))
        if not comparison.calls or comparison.run.available_tools or comparison.run.health.calls_invisible:
            return self.scores(metric_thresholds(BUILTIN_METRICS, golden, None, strict=False))
        fields, gates = _scored_fields(golden)
        known = _scores_of_counts(
            fields,
            self.reasons,
            len(comparison.pairs),
            sum([row.in_order is True for row in comparison.pairs]),
            len(comparison.missing),
            len(comparison.unexpected),
        )
        scores = list(known.scores)
        for at in known.measured:
            scores[at] = self._measured_or_error(*gates[at])
        for at in known.explained:
            scores[at] = self._with_explanation(scores[at], gates[at][0])
        return tuple(scores)

    def _measured_or_error(self, metric: Metric, threshold: float | None) -> Score:
        try:
            return self._measured(metric, threshold)
        except Exception as error:  # noqa: BLE001 - the error becomes a score; the other metrics still run
            text = f"{type(error).__name__}: {error}"
            return Score(metric.name, threshold=threshold, label="not_evaluated", error=text)

    def _unmeasured(self, metric: Metric, threshold: float | None) -> Score | None:
        """Return the score of a metric that does not apply, or for which no time is left; else `None`."""
        golden = self.comparison.golden
        if golden is None and metric.needs_golden:
            return _not_evaluated_score(metric.name, None, self.no_golden_reason if self.reasons else None)
        if golden is not None and golden.policy and metric.needs_expectations:
            return _not_evaluated_score(metric.name, None, _POLICY_HAS_NO_EXPECTATIONS if self.reasons else None)
        if self.comparison.run.health.calls_invisible:
            return _not_evaluated_score(metric.name, threshold, CALLS_NOT_VISIBLE if self.reasons else None)
        return _not_evaluated_score(metric.name, threshold, OUT_OF_TIME) if self.is_out_of_time else None

    def _measured(self, metric: Metric, threshold: float | None) -> Score:
        value = metric.measure(self.comparison)
        if value is None:
            why = metric.why_missing(self.comparison) if self.reasons else None
            return _not_evaluated_score(metric.name, threshold, why)
        if threshold is not None and metric.bounds is not None and metric.is_undecided(self.comparison, threshold):
            return self._undecided(metric, float(value), threshold)
        score = _make_score(metric.name, float(value), threshold, self.strict)
        # A score without a threshold needs no reason: the evaluation's reason covers it.
        needs_reason = self.reasons and threshold is not None and value < 1
        return self._with_explanation(score, metric) if needs_reason or self.verbose else score

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
        explained = _Score(score.metric, score.value, score.passed, score.threshold, score.label)
        if not self.verbose and METRICS.get(metric.name) is metric:  # the explanation of another metric can raise
            return explained.with_deferred_reason(partial(_fault_sentence, metric, self.comparison))
        parts = tuple(metric.explain(self.comparison)) if metric.explain else ()
        reason = _sentence_of_faults(parts) if self.reasons else None
        steps = (*[_sentence(str(part)) for part in parts], _outcome_sentence(score)) if self.verbose else ()
        return replace(explained, reason=reason, steps=steps, judgement=score.judgement)


def _fault_sentence(metric: Metric, comparison: Comparison) -> str | None:
    return _sentence_of_faults(metric.explain(comparison)) if metric.explain else None


def _sentence_of_faults(parts: Iterable[MetricEvidence]) -> str | None:
    faults = [str(part) for part in parts if part.is_fault and part.items]
    return _sentence("; ".join(faults)) if faults else None


_Score = fast_constructor(Score)


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


# --- runs whose calls all succeeded -----------------------------------------------------------------------------------


class _ScoredFields(NamedTuple):
    """The fields of a golden on which the default scores depend, if it states no results."""

    threshold: float
    mode: CorrectnessMode
    order: CallOrder
    forbids: bool
    is_unlimited: bool
    """Whether any number of calls can be made."""
    declares_effects: bool


@lru_cache(maxsize=2048)
def _scored_fields(golden: Golden) -> tuple[_ScoredFields, MetricThresholds]:
    """Returns these fields of a golden, and the thresholds of the default metrics."""
    fields = _ScoredFields(
        golden.threshold,
        golden.mode,
        golden.order,
        bool(golden.forbid),
        golden.max_calls is None,
        effect_threshold(golden) is not None,
    )
    return fields, metric_thresholds(BUILTIN_METRICS, golden, None, strict=False)


class _ScoresOfCounts(NamedTuple):
    """The default scores of all runs with as many rows of each kind, in the order of the metrics."""

    scores: tuple[Score, ...]
    measured: tuple[int, ...]
    """The positions of the scores that depend on more: each run has its own."""
    explained: tuple[int, ...]
    """The positions of the scores whose reasons name the calls of a run."""


@lru_cache(maxsize=4096)
def _scores_of_counts(
    fields: _ScoredFields, reasons: bool, paired: int, in_order: int, missing: int, unexpected: int
) -> _ScoresOfCounts:
    """Returns the default scores of runs whose calls all succeeded and whose offered tools were not captured.

    They are measured on a comparison with so many rows. Without this, the scores take twice as long.
    """
    golden = Golden(
        "",
        threshold=fields.threshold,
        mode=fields.mode,
        order=fields.order,
        forbid=("other",) if fields.forbids else (),
        max_calls=None if fields.is_unlimited else 0,
        write_tools=() if fields.declares_effects else None,
    )
    rows = [ComparisonRow("paired", _ANY_TOOL, _ANY_CALL, in_order=at < in_order) for at in range(paired)]
    rows += [ComparisonRow("missing", _ANY_TOOL)] * missing
    rows += [ComparisonRow("unexpected", called=_ANY_CALL)] * unexpected
    if not paired and not unexpected:
        rows.append(ComparisonRow("tolerated", called=_ANY_CALL))  # there is at least one call
    scores = ScoreBuilder(Comparison(golden, tuple(rows)), "", strict=False, reasons=reasons, verbose=False).scores(
        metric_thresholds(BUILTIN_METRICS, golden, None, strict=False)
    )
    measured = {"argument_correctness", "redundant_calls"}
    if not fields.is_unlimited:
        measured.add("call_budget")
    if fields.declares_effects:
        measured.add("effect_correctness")
    return _ScoresOfCounts(
        scores,
        tuple([at for at, score in enumerate(scores) if score.metric in measured]),
        tuple([at for at, score in enumerate(scores) if reasons and score.metric not in measured and _is_low(score)]),
    )


_ANY_TOOL, _ANY_CALL = ExpectedTool("any"), ToolCall("any")


def _is_low(score: Score) -> bool:
    """Whether the score has a reason: it has a threshold, and something keeps it below 1."""
    return score.threshold is not None and score.value is not None and score.value < 1
