"""Judge a run: find its golden, lay the two side by side, and let every metric read its number."""

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
"""Rises whenever any number or verdict can change."""

OUT_OF_TIME = "the time budget of the evaluation was used up"
"""Why a metric was not evaluated, where there was a budget."""

Expectation: TypeAlias = "Goldens | Golden | Iterable[ToolLike] | None"
"""Goldens to look the run up in, the golden it is to be judged by, or just the tools that were expected."""


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
    """Judge a run, or a list of calls, by its golden, or by a list of expected tools.

    `input` is the text of the request, where it is not the run's own. What is given here stands in for what the golden
    says: `metrics`, `thresholds`, and as `rules` every other key of a golden, such as `order`, `match` or `forbid`.

    The evaluation fails if anything is broken that the golden states, or a threshold is missed; it is not evaluated
    (`passed` is `None`) if nothing is broken and something that is stated cannot be judged, unless `unknown` says
    otherwise; else it passes. `strict` raises every threshold to 1 and makes 0 of a lower score. Without `reasons`
    there are no sentences, which takes less time; `verbose` adds the steps that lead to each score, and gives every one
    its reason. `budget` is in seconds: a metric that would begin after it is not evaluated, which its reason says.

    Without `metrics`, those are measured that the run's own telemetry asks for, else those of the golden. A metric that
    raises becomes a score with an `error`, and so does an unknown one that telemetry asks for. Raises `GoldspanError`
    for a metric that does not exist otherwise, for lists that hold something else than tools, and for an input that is
    no text.

        >>> evaluate(["search", "cancel"], ["search", "book"]).score("tool_correctness").value
        0.5
    """
    if not isinstance(input, str | None):
        raise ConfigurationError(f"input must be the text of the request, not {short_repr(input)}.")
    deadline = None if budget is None else perf_counter() + budget
    asked = resolve_metrics(metrics, thresholds)
    if not isinstance(run, Run):
        run = Run(run_id="", input=input, tool_calls=as_calls(run))
    elif input is not None:
        run = replace(run, input=input)
    match, no_golden_reason = _find_golden(run, goldens)
    golden = as_golden(match.golden, **rules) if match else None
    seen = compare_run(run, golden) if golden is not None else compare(run, None)
    if metrics is None and run.metrics is not None:
        asked = metrics_of_run(run.metrics, golden, thresholds)
    elif metrics is None and golden is not None:
        asked = metrics_of_golden(golden, thresholds)
    gates = _metric_thresholds(asked, golden, thresholds, strict)
    scores = tuple(_ScoreBuilder(seen, no_golden_reason, strict, reasons, verbose, deadline).scores(gates))
    verdict = determine_verdict(seen, scores, _stated_thresholds(golden, thresholds), strict=strict)
    return Evaluation(
        run=run,
        golden=golden,
        match=match,
        comparison=seen,
        scores=scores,
        passed=passes(verdict.broken, verdict.unjudged, golden.unknown) if golden and verdict else None,
        reason=_evaluation_reason(seen, verdict, no_golden_reason) if reasons else "",
        scoring_version=SCORING_VERSION,
        broken=verdict.broken if verdict else (),
        undetermined=verdict.unjudged if verdict else (),
        accepted_shares=verdict.accepted if verdict else (),
    )


def _find_golden(run: Run, goldens: Expectation) -> tuple[Match | None, str]:
    """The golden and how it was found, or why there is none."""
    if goldens is None:
        if run.expected_tools is None:
            return None, "none was given"
        goldens = _NO_GOLDENS  # the run says itself what is expected
    if isinstance(goldens, Goldens):
        return goldens.find_with_reason(run)
    return Match(as_golden(goldens), how="given"), ""


_NO_GOLDENS = Goldens()


def _evaluation_reason(seen: Comparison, verdict: RunVerdict | None, no_golden_reason: str) -> str:
    if seen.golden is None:
        return f"{explain_evaluation(seen).rstrip('.')}: {no_golden_reason}."
    return explain_evaluation(seen, seen.run.available_tools, verdict)


def _stated_thresholds(golden: Golden | None, thresholds: Mapping[str, float] | None) -> Mapping[str, float]:
    """What single metrics must reach: what the golden says, and what goes before it."""
    if golden is None or not (golden.thresholds or thresholds):
        return _NO_THRESHOLDS
    return {**golden.thresholds, **(thresholds or {})}


_NO_THRESHOLDS: Mapping[str, float] = {}


# --- scores -----------------------------------------------------------------------------------------------------------

_MetricThresholds: TypeAlias = "Sequence[tuple[Metric, float | None]]"
"""Metrics, each with what it must reach; `None`: nothing."""


def _metric_thresholds(
    asked: Sequence[Metric], golden: Golden | None, thresholds: Mapping[str, float] | None, strict: bool
) -> _MetricThresholds:
    """What metrics must reach, as said beside the goldens, in the golden, or of the metrics themselves."""
    if golden is None:
        return [(metric, None) for metric in asked]
    if asked is BUILTIN_METRICS and not thresholds:
        return _builtin_thresholds(golden.threshold, effect_threshold(golden) is not None, strict)
    limits = _stated_thresholds(golden, thresholds)
    gates = [
        (metric, _resolve_threshold(limits.get(metric.name, metric.threshold), golden, strict)) for metric in asked
    ]
    if strict or not relaxes_tool_correctness(golden, limits):
        return gates
    return [(metric, None if metric.name == "tool_correctness" else limit) for metric, limit in gates]


@lru_cache(maxsize=256)
def _builtin_thresholds(threshold: float, declares_effects: bool, strict: bool) -> _MetricThresholds:
    """Those of goldspan's own metrics, which look at nothing else in a golden."""
    golden = Golden("", threshold=threshold, write_tools=() if declares_effects else None)
    return [(metric, _resolve_threshold(metric.threshold, golden, strict)) for metric in BUILTIN_METRICS]


def _resolve_threshold(threshold: Threshold, golden: Golden, strict: bool) -> float | None:
    limit = threshold(golden) if callable(threshold) else threshold
    return 1.0 if strict and limit is not None else limit


@dataclass(slots=True)
class _ScoreBuilder:
    """Makes scores of what metrics read off one comparison."""

    comparison: Comparison
    no_golden_reason: str
    strict: bool
    reasons: bool
    verbose: bool
    deadline: float | None = None

    def scores(self, gates: _MetricThresholds) -> Iterator[Score]:
        """The score of each metric."""
        seen, strict, reasons = self.comparison, self.strict, self.reasons
        policy = seen.golden is not None and seen.golden.policy
        invisible = has_invisible_calls(seen)
        for metric, threshold in gates:
            if seen.golden is None and metric.needs_golden:
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
                value = metric.measure(seen)
                if value is None:
                    yield _not_evaluated_score(metric.name, threshold, metric.why_missing(seen) if reasons else None)
                    continue
                if threshold is not None and metric.is_undecided(seen, threshold):
                    yield self._undecided(metric, float(value), threshold)
                    continue
                score = _make_score(metric.name, float(value), threshold, strict)
                # Of a number that decides nothing, the sentence about the whole evaluation says enough.
                explained = reasons and threshold is not None and value < 1
                yield self._with_explanation(score, metric) if explained or self.verbose else score
            except Exception as error:  # noqa: BLE001 - a failure is a value; the other metrics still run
                text = f"{type(error).__name__}: {error}"
                yield Score(metric.name, threshold=threshold, label="not_evaluated", error=text)

    def _undecided(self, metric: Metric, value: float, threshold: float) -> Score:
        """The score of what is known, where what is not known decides if the threshold is reached."""
        parts = tuple(metric.explain(self.comparison)) if metric.explain and self.verbose else ()
        steps = (
            (*[_sentence(str(part)) for part in parts], f"The score is {value:.4g} of what is known.") if parts else ()
        )
        why = metric.why_missing(self.comparison) if self.reasons else None
        return Score(metric.name, value, None, threshold, "not_evaluated", why, steps=steps)

    def _with_explanation(self, score: Score, metric: Metric) -> Score:
        """The score with what keeps it below 1, and where that was asked for with every step to it."""
        parts = metric.explain(self.comparison) if metric.explain else ()
        if self.verbose:
            parts = tuple(parts)
            steps = (*[_sentence(str(part)) for part in parts], _outcome_sentence(score))
        else:
            steps = ()
        faults = [str(part) for part in parts if part.is_fault and part.items] if self.reasons else ()
        told = _sentence("; ".join(faults)) if faults else None
        return Score(score.metric, score.value, score.passed, score.threshold, score.label, told, steps=steps)


_POLICY_HAS_NO_EXPECTATIONS = "a policy expects no calls in particular"

# Most scores of most runs are the same few: looking one up takes a quarter of the time of making it.


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
