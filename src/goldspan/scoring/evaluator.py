"""Evaluates a run: finds its golden, compares the two, measures metrics, determines the verdict."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from goldspan.content.tools import fold_name
from goldspan.errors import ConfigurationError
from goldspan.goldens.lookup.golden_lookup import Goldens
from goldspan.goldens.spelling import short_repr
from goldspan.model import Comparison, Evaluation, Golden, Match, Run, Score, fast_constructor
from goldspan.scoring.coercion import CallLike, ToolLike, as_calls, as_golden
from goldspan.scoring.explanation import explain_evaluation
from goldspan.scoring.metrics import Metric, MetricLike, Threshold
from goldspan.scoring.metrics.behaviour import effect_threshold
from goldspan.scoring.metrics.metric import THRESHOLD_TOLERANCE
from goldspan.scoring.metrics.registry import BUILTIN_METRICS, metrics_of_golden, metrics_of_run, resolve_metrics
from goldspan.scoring.run_comparison import compare, compare_run
from goldspan.scoring.verdict import ALL_MET, RunVerdict, determine_verdict, passes, relaxes_tool_correctness
from goldspan.scoring.violations import CALLS_NOT_VISIBLE

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
    selected = BUILTIN_METRICS if metrics is None and not thresholds else resolve_metrics(metrics, thresholds)
    if not isinstance(run, Run):
        run = Run(run_id="", input=input, tool_calls=as_calls(run))
    elif input is not None:
        run = replace(run, input=input)
    match, no_golden_reason = _find_golden(run, goldens)
    golden = match.golden if match else None
    if golden is not None and any(value is not None for value in rules.values()):
        golden = as_golden(golden, **rules)
    comparison = compare_run(run, golden) if golden is not None else compare(run, None)
    if metrics is None and run.metrics is not None:
        selected = metrics_of_run(run.metrics, golden, thresholds)
    elif metrics is None and golden is not None and (golden.metrics is not None or golden.thresholds):
        selected = metrics_of_golden(golden, thresholds)
    builder = _ScoreBuilder(comparison, no_golden_reason, strict, reasons, verbose, deadline)
    is_usual = selected is BUILTIN_METRICS and not (strict or verbose)
    verdict: RunVerdict | None = ALL_MET
    known = _known_outcome(builder) if is_usual and comparison.is_as_expected else None
    if known is not None:
        scores, reason = known
    else:
        gates = _metric_thresholds(selected, golden, thresholds, strict)
        scores, reason = builder.scores(gates), ""
        verdict = determine_verdict(comparison, scores, _stated_thresholds(golden, thresholds), strict=strict)
        if is_usual and comparison.is_as_expected and verdict is ALL_MET:
            _remember_outcome(builder, gates, scores)
    passed = None
    if golden is not None and verdict is not None:
        passed = verdict is ALL_MET or passes(verdict.broken, verdict.undetermined, golden.unknown)
    results = verdict or ALL_MET
    evaluation = Evaluation(
        run=run,
        golden=golden,
        match=match,
        comparison=comparison,
        scores=scores,
        passed=passed,
        reason=reason if reasons else "",
        scoring_version=SCORING_VERSION,
        broken=results.broken,
        undetermined=results.undetermined,
        accepted_shares=results.accepted,
    )
    if reason or not reasons:
        return evaluation
    return evaluation.with_deferred_reason(partial(_evaluation_reason, comparison, verdict, no_golden_reason))


def _find_golden(run: Run, goldens: Expectation) -> tuple[Match | None, str]:
    """Returns the golden and how it was found, or why there is none."""
    if goldens is None:
        if run.expected_tools is None:
            return None, "none was given"
        goldens = _NO_GOLDENS  # the run's telemetry states the expected tools
    if isinstance(goldens, Goldens):
        return goldens.find_with_reason(run)
    return Match(goldens if isinstance(goldens, Golden) else as_golden(goldens), how="given"), ""


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

    @property
    def is_out_of_time(self) -> bool:
        """Whether the time budget is used up."""
        return self.deadline is not None and perf_counter() > self.deadline

    def scores(self, gates: _MetricThresholds) -> tuple[Score, ...]:
        """Return the score of each metric."""
        comparison, golden = self.comparison, self.comparison.golden
        is_measured = golden is not None and not golden.policy and self.deadline is None
        is_measured = is_measured and not comparison.run.health.calls_invisible
        found = []
        for metric, threshold in gates:
            score = None if is_measured else self._unmeasured(metric, threshold)
            try:
                found.append(score or self._measured(metric, threshold))
            except Exception as error:  # noqa: BLE001 - the error becomes a score; the other metrics still run
                text = f"{type(error).__name__}: {error}"
                found.append(Score(metric.name, threshold=threshold, label="not_evaluated", error=text))
        return tuple(found)

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
        parts = metric.explain(self.comparison) if metric.explain else ()
        if self.verbose:
            parts = tuple(parts)
            steps = (*[_sentence(str(part)) for part in parts], _outcome_sentence(score))
        else:
            steps = ()
        faults = [str(part) for part in parts if part.is_fault and part.items] if self.reasons else ()
        reason = _sentence("; ".join(faults)) if faults else None
        return _Score(
            score.metric, score.value, score.passed, score.threshold, score.label, reason, None, steps, score.judgement
        )


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


# --- runs as expected -------------------------------------------------------------------------------------------------


class _KnownOutcome(NamedTuple):
    """What the runs have in common that are as expected of a golden, with the same names and with nothing to explain.

    Their scores and reason depend on the golden and on these names only, except for `differing_metrics`.
    """

    names: Sequence[_CallName]
    has_offers: bool
    """Whether the tools that the agent was offered were captured."""
    scores: tuple[Score, ...]
    reason: str
    differing_metrics: _MetricThresholds
    """The metrics that depend on the arguments of repeated calls, or on the offered tools."""


_CallName: TypeAlias = "tuple[str, str, str | None]"


def _known_outcome(builder: _ScoreBuilder) -> tuple[tuple[Score, ...], str] | None:
    """Returns the scores and the reason of a run as expected, if an earlier run had the same; else `None`.

    Without this, evaluating five expected calls takes twice the time.
    """
    comparison, run = builder.comparison, builder.comparison.run
    if comparison.golden is None or run.health.calls_invisible or builder.is_out_of_time:
        return None
    known = _outcomes_of_golden(comparison.golden).get(builder.reasons)
    if known is None or known.names != _call_names(run) or known.has_offers != bool(run.available_tools):
        return None
    if not known.differing_metrics:
        return known.scores, known.reason
    measured = {score.metric: score for score in builder.scores(known.differing_metrics)}
    if any(score.threshold is not None and score.passed is not True for score in measured.values()):
        return None
    return tuple([measured.get(score.metric, score) for score in known.scores]), known.reason


def _remember_outcome(builder: _ScoreBuilder, gates: _MetricThresholds, scores: tuple[Score, ...]) -> None:
    """Keep the scores and the reason of a run as expected for the next runs of the golden."""
    comparison, run = builder.comparison, builder.comparison.run
    if comparison.golden is None or builder.is_out_of_time or any(score.error is not None for score in scores):
        return
    differing: tuple[str, ...] = ()
    if len({fold_name(call.name) for call in run.tool_calls}) < len(run.tool_calls):
        differing += ("redundant_calls",)
    if run.available_tools:
        differing += ("unknown_tools", "effect_correctness")
    _outcomes_of_golden(comparison.golden)[builder.reasons] = _KnownOutcome(
        _call_names(run),
        bool(run.available_tools),
        scores,
        _evaluation_reason(comparison, ALL_MET, ""),
        [(metric, threshold) for metric, threshold in gates if metric.name in differing],
    )


def _call_names(run: Run) -> Sequence[_CallName]:
    return [(call.name, call.raw_name, call.server) for call in run.tool_calls]


@lru_cache(maxsize=2048)
def _outcomes_of_golden(golden: Golden) -> dict[bool, _KnownOutcome]:
    """Returns the outcomes of runs as expected, with reasons (`True`) and without: at first none."""
    return {}


def _outcome_sentence(score: Score) -> str:
    wanted = "" if score.threshold is None else f"; {score.threshold:g} is wanted"
    return f"The score is {score.value:.4g}{wanted}."


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
