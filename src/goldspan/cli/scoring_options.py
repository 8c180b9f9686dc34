"""Evaluates runs and cases with the metrics and rules of the options, and checks the gates."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rich.text import Text

from goldspan.batch.bounded_extraction import DEFAULT_MEMORY
from goldspan.cases.case_evaluation import Case, case_evaluator, map_in_order
from goldspan.cli.console import stderr_console, with_progress_bar
from goldspan.cli.evaluation_summary import PASS_RATE, NotEvaluatedRuns
from goldspan.cli.input_reading import read_cases, transform_runs
from goldspan.errors import ConfigurationError
from goldspan.goldens import Goldens
from goldspan.goldens.spelling import did_you_mean
from goldspan.model import Evaluation, RunUnit
from goldspan.otlp.start_range import ALL_STARTS, StartRange
from goldspan.scoring.metrics import Metric
from goldspan.scoring.metrics.registry import resolve_metrics

if TYPE_CHECKING:
    from goldspan.scoring.metrics import MetricLike

_TOLERANCE = 1e-9


def parse_thresholds(texts: Iterable[str] | None, option: str) -> dict[str, float]:
    """Parse the values `METRIC=X` of a repeated option. Raises `ConfigurationError` for any other text."""
    thresholds: dict[str, float] = {}
    for text in texts or ():
        name, _, number = text.partition("=")
        try:
            thresholds[name.strip()] = float(number)
        except ValueError:
            raise ConfigurationError(f"{option} takes METRIC=NUMBER, such as tool_recall=0.8, not {text!r}") from None
    return thresholds


def validate_gates(gates: Mapping[str, float], metrics: Collection[str]) -> None:
    """Raises `ConfigurationError` for a gate on a metric that is not evaluated."""
    known = (PASS_RATE, *metrics)
    for name in gates:
        if name not in known:
            hint = did_you_mean(name, known) or f" Evaluated are {', '.join(known)}."
            raise ConfigurationError(f"--fail-under {name}: this metric is not evaluated.{hint}")


@dataclass(frozen=True, slots=True)
class Gates:
    """The values that the results of a command must reach."""

    minimums: Mapping[str, float]
    """By metric; `passed` is the pass rate."""
    fail_on_not_evaluated: bool | None = None
    """Whether runs that could not be evaluated count as not passed; `None`: only if the variable CI is set."""

    def are_met(self, mean_of: Callable[[str], float | None], evaluated: int, not_evaluated: NotEvaluatedRuns) -> bool:
        """Return whether every gate is met, and print each that is not. A metric without a value meets no gate.

        `evaluated` is the number of runs that passed or failed; `not_evaluated` are the runs with a golden that did
        neither.
        """
        strict = is_ci() if self.fail_on_not_evaluated is None else self.fail_on_not_evaluated
        counted = not_evaluated if strict else NotEvaluatedRuns()
        unmet = [
            reason
            for name, minimum in self.minimums.items()
            if (reason := _failure_reason(name, minimum, mean_of, evaluated, counted))
        ]
        if self.fail_on_not_evaluated and counted.count and not self.minimums:
            unmet = [f"{_run_count(counted.count)} could not be evaluated"]
        for reason in unmet:
            stderr_console().print(Text(f"gate failed: {reason}", style="bold red"))
        if unmet:
            _print_not_evaluated(counted)
        return not unmet


def _failure_reason(
    name: str,
    minimum: float,
    mean_of: Callable[[str], float | None],
    evaluated: int,
    not_evaluated: NotEvaluatedRuns,
) -> str | None:
    """Return why a gate is not met, or `None` where it is met."""
    mean = mean_of(name)
    if mean is None and not not_evaluated.count:
        return f"{name} could not be evaluated on any run; required: {minimum:g}"
    if name == PASS_RATE:
        mean = (mean or 0.0) * evaluated / (evaluated + not_evaluated.count)
        number = not_evaluated.count
        counted = f", counting {_run_count(number)} that could not be evaluated" if number else ""
        return f"{name} is {mean:.4f}{counted}; required: {minimum:g}" if mean < minimum - _TOLERANCE else None
    if lacking := not_evaluated.missing[name]:
        return f"{name} could not be evaluated on {_run_count(lacking)}; required: {minimum:g}"
    if mean is None:
        return f"{name} could not be evaluated on any run; required: {minimum:g}"
    return f"{name} is {mean:.4f}; required: {minimum:g}" if mean < minimum - _TOLERANCE else None


def _print_not_evaluated(runs: NotEvaluatedRuns) -> None:
    """Print which runs could not be evaluated, and why."""
    for run in runs.first:
        stderr_console().print(Text(f"  {run.run_id} ({run.golden_id}): {run.reason}", style="dim"))
    if runs.count > len(runs.first):
        stderr_console().print(Text(f"  and {runs.count - len(runs.first)} more", style="dim"))


def _run_count(number: int) -> str:
    return f"{number} run{'s' * (number != 1)}"


def is_ci() -> bool:
    """Whether the variable CI is set, as CI systems do."""
    return os.environ.get("CI", "").strip().casefold() not in ("", "0", "false", "no", "off")


@dataclass(frozen=True, slots=True)
class ScoringOptions:
    """The evaluation settings that options state."""

    metrics: list[MetricLike] | None
    """The metrics to evaluate; `None`: those that the goldens name."""
    thresholds: dict[str, float]
    strict: bool
    rules: Mapping[str, Any]
    """Replace the rules in goldens."""

    @property
    def is_any_set(self) -> bool:
        """Whether any of these options is set."""
        return self != ScoringOptions(None, {}, False, {})

    @property
    def judge_lowers_metric(self) -> str:
        """The metric that the judge may lower: that of the profile, else `tool_correctness`."""
        peers = (metric.name for metric in self.metrics or () if isinstance(metric, Metric))
        return next(peers, "tool_correctness")

    def pop_threshold(self, metric: str) -> tuple[ScoringOptions, float | None]:
        """Return the options without the threshold of `metric`, and that threshold."""
        thresholds = dict(self.thresholds)
        threshold = thresholds.pop(metric, None)
        return replace(self, thresholds=thresholds), threshold

    def metric_names(self, goldens: Goldens | None) -> Collection[str]:
        """Return the names of all metrics that may be evaluated. Raises `ConfigurationError` for an unknown metric."""
        names = dict.fromkeys(metric.name for metric in resolve_metrics(self.metrics, self.thresholds))
        for golden in goldens or () if self.metrics is None else ():
            names |= dict.fromkeys((*(golden.metrics or ()), *golden.thresholds))
        return names

    def evaluator(self, goldens: Goldens | None, *, verbose: bool = False) -> Callable[[Case], Evaluation]:
        """Return a function that evaluates a case with these options."""
        how = {**self.rules, "strict": self.strict, "verbose": verbose}
        return case_evaluator(goldens, metrics=self.metrics, thresholds=self.thresholds, **how)


def scoring_options_from(
    metrics: list[str] | None,
    profile: str | None,
    profile_settings: list[str] | None,
    thresholds: list[str] | None,
    *,
    strict: bool,
    **rules: Any,
) -> ScoringOptions:
    """Build the options from the values of the command line; rules that are `None` were not stated."""
    return ScoringOptions(
        _select_metrics(metrics, profile, profile_settings),
        parse_thresholds(thresholds, "--threshold"),
        strict,
        {name: value for name, value in rules.items() if value is not None},
    )


def evaluate_inputs(
    paths: list[str] | None,
    cases: list[str] | None,
    evaluate: Callable[[Case], Evaluation],
    *,
    goldens: Goldens | None,
    unit: RunUnit,
    golden_id_attributes: list[str] | None,
    concurrency: int,
    transform: Callable[[Iterable[Evaluation]], Iterable[Evaluation]] = iter,
    is_streamed: bool = False,
    memory: int = DEFAULT_MEMORY,
    jobs: int = 1,
    start_range: StartRange = ALL_STARTS,
) -> tuple[Iterable[Evaluation], list[str]]:
    """Evaluate every run in traces, or every row of case files, lazily; also return the errors of invalid rows.

    `transform` is applied to the evaluations. On a terminal a bar shows the progress; `is_streamed`: see
    `with_progress_bar`. `memory` is the budget of extraction in bytes, and `jobs` the number of its processes.
    Runs that started outside `start_range` are left out.
    """

    def evaluate_all(inputs: Iterable[Case]) -> Iterable[Evaluation]:
        return transform(map_in_order(evaluate, inputs, concurrency=concurrency))

    if cases:
        parsed, errors = read_cases(cases, goldens)
        return with_progress_bar(evaluate_all(parsed), len(parsed), "evaluating", is_streamed=is_streamed), errors
    evaluations = transform_runs(
        paths or [],
        lambda runs: evaluate_all(map(Case, runs)),
        unit=unit,
        golden_id_attributes=golden_id_attributes,
        goldens=goldens,
        description="evaluating",
        is_streamed=is_streamed,
        memory=memory,
        jobs=jobs,
        start_range=start_range,
    )
    return evaluations, []


def no_match_warning(goldens: Goldens) -> str:
    """Return the warning for goldens of which none matches any run."""
    return f"none of the {len(goldens)} goldens matches any of these runs, by id or by input"


def _select_metrics(
    names: list[str] | None, profile: str | None, settings: list[str] | None
) -> list[MetricLike] | None:
    """Return the metrics to evaluate: by name, and that of a profile. `None`: those that the goldens name."""
    if profile is None:
        if settings:
            raise ConfigurationError("--profile-option needs --profile")
        return list(names) if names else None
    from goldspan.profiles import metric as metric_of_peer  # deferred: few commands need it

    return [*(names or ()), metric_of_peer(profile, **_parse_profile_options(settings or ()))]


def _parse_profile_options(options: Iterable[str]) -> dict[str, Any]:
    """Parse options by name; a value is JSON, `True`, `False` or `None`, else text."""
    settings: dict[str, Any] = {}
    for text in options:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise ConfigurationError(f"--profile-option takes KEY=VALUE, not {text!r}")
        try:
            settings[key.strip()] = json.loads(_PYTHON_LITERALS.get(value, value))
        except (ValueError, RecursionError):
            settings[key.strip()] = value
    return settings


_PYTHON_LITERALS = {"True": "true", "False": "false", "None": "null"}
