"""Evaluates a run: finds its golden, compares the two, measures metrics, determines the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from goldspan.errors import ConfigurationError
from goldspan.goldens.lookup.golden_lookup import NO_INPUT_REASON, Goldens
from goldspan.goldens.spelling import short_repr
from goldspan.model import Comparison, Evaluation, Golden, Match, Run, Score, fast_constructor
from goldspan.model.name_folding import fold_name
from goldspan.scoring.coercion import CallLike, ToolLike, as_calls, as_golden
from goldspan.scoring.explanation import capture_advice, explain_evaluation
from goldspan.scoring.metrics import MetricLike
from goldspan.scoring.metrics.registry import BUILTIN_METRICS, metrics_of_golden, metrics_of_run, resolve_metrics
from goldspan.scoring.run_comparison import compare, compare_run
from goldspan.scoring.scores import MetricThresholds, ScoreBuilder, metric_thresholds, stated_thresholds
from goldspan.scoring.verdict import ALL_MET, RunVerdict, determine_verdict, passes

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from goldspan.scoring.coercion import GoldenOverrides

SCORING_VERSION = 5
"""The version of numbers and verdicts. It increases with every change that can alter one."""

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
    if input is not None and not isinstance(input, str):
        raise ConfigurationError(f"input must be the text of the request, not {short_repr(input)}.")
    deadline = None if budget is None else perf_counter() + budget
    selected = BUILTIN_METRICS if metrics is None and not thresholds else resolve_metrics(metrics, thresholds)
    if not isinstance(run, Run):
        run = Run(run_id="", input=input, tool_calls=as_calls(run))
    elif input is not None:
        run = replace(run, input=input)
    match, no_golden_reason = _find_golden(run, goldens)
    golden = match.golden if match else None
    if rules and golden is not None and any(value is not None for value in rules.values()):
        golden = as_golden(golden, **rules)
    comparison = compare_run(run, golden) if golden is not None else compare(run, None)
    if metrics is None and run.metrics is not None:
        selected = metrics_of_run(run.metrics, golden, thresholds)
    elif metrics is None and golden is not None and (golden.metrics is not None or golden.thresholds):
        selected = metrics_of_golden(golden, thresholds)
    builder = ScoreBuilder(comparison, no_golden_reason, strict, reasons, verbose, deadline)
    is_usual = selected is BUILTIN_METRICS and not (strict or verbose)
    verdict: RunVerdict | None = ALL_MET
    known = _known_outcome(builder) if is_usual and comparison.is_as_expected else None
    if known is not None:
        scores, reason = known
    else:
        if is_usual:
            scores = builder.default_scores()
        else:
            scores = builder.scores(metric_thresholds(selected, golden, thresholds, strict))
        reason = ""
        verdict = determine_verdict(comparison, scores, stated_thresholds(golden, thresholds), strict=strict)
        if is_usual and comparison.is_as_expected and verdict is ALL_MET:
            _remember_outcome(builder, scores)
    passed = None
    if golden is not None and verdict is not None:
        passed = verdict is ALL_MET or passes(verdict.broken, verdict.undetermined, golden.unknown)
    results = verdict or ALL_MET
    evaluation = Evaluation.of_fields(
        run=run,
        golden=golden,
        match=match,
        comparison=comparison,
        scores=scores,
        passed=passed,
        reason=reason if reasons else "",
        scoring_version=SCORING_VERSION,
        revision=1,
        changes=None,
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
    return _Match(goldens if isinstance(goldens, Golden) else as_golden(goldens), "given"), ""


_Match = fast_constructor(Match)


_NO_GOLDENS = Goldens()


def _evaluation_reason(comparison: Comparison, verdict: RunVerdict | None, no_golden_reason: str) -> str:
    if comparison.golden is None:
        reason = f"{explain_evaluation(comparison).rstrip('.')}: {no_golden_reason}."
        lacks_content = no_golden_reason == NO_INPUT_REASON and comparison.run.health.content_off
        return f"{reason} {capture_advice(comparison.run)}".rstrip() if lacks_content else reason
    return explain_evaluation(comparison, comparison.run.available_tools, verdict)


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
    differing_metrics: MetricThresholds
    """The metrics that depend on the arguments of repeated calls, or on the offered tools."""
    differing: Sequence[int]
    """The positions of their scores."""


_CallName: TypeAlias = "tuple[str, str, str | None]"


def _known_outcome(builder: ScoreBuilder) -> tuple[tuple[Score, ...], str] | None:
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
    scores = list(known.scores)
    for at, score in zip(known.differing, builder.scores(known.differing_metrics), strict=True):
        if score.threshold is not None and score.passed is not True:
            return None
        scores[at] = score
    return tuple(scores), known.reason


def _remember_outcome(builder: ScoreBuilder, scores: tuple[Score, ...]) -> None:
    """Keep the scores and the reason of a run as expected for the next runs of the golden."""
    comparison, run = builder.comparison, builder.comparison.run
    if comparison.golden is None or builder.is_out_of_time or any(score.error is not None for score in scores):
        return
    differing: tuple[str, ...] = ()
    if len({fold_name(call.name) for call in run.tool_calls}) < len(run.tool_calls):
        differing += ("redundant_calls",)
    if run.available_tools:
        differing += ("unknown_tools", "effect_correctness")
    gates = metric_thresholds(BUILTIN_METRICS, comparison.golden, None, strict=False)
    _outcomes_of_golden(comparison.golden)[builder.reasons] = _KnownOutcome(
        _call_names(run),
        bool(run.available_tools),
        scores,
        _evaluation_reason(comparison, ALL_MET, ""),
        [(metric, threshold) for metric, threshold in gates if metric.name in differing],
        [at for at, (metric, _) in enumerate(gates) if metric.name in differing],
    )


def _call_names(run: Run) -> Sequence[_CallName]:
    return [(call.name, call.raw_name, call.server) for call in run.tool_calls]


@lru_cache(maxsize=2048)
def _outcomes_of_golden(golden: Golden) -> dict[bool, _KnownOutcome]:
    """Returns the outcomes of runs as expected, with reasons (`True`) and without: at first none."""
    return {}
