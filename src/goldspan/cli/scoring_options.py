"""Options that say how runs are judged: which metrics, which peer's, and what stands in for the goldens' own rules."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from goldspan.cases.case_evaluation import Case, case_evaluator, map_in_order
from goldspan.cli.console import stderr_console, with_progress_bar
from goldspan.cli.input_options import read_cases, transform_runs
from goldspan.errors import ConfigurationError
from goldspan.goldens import Goldens
from goldspan.goldens.spelling import did_you_mean
from goldspan.model import (
    CallDepth,
    CallOrder,
    CorrectnessMode,
    CountedAttempts,
    DuplicateCalls,
    Evaluation,
    ExtraCalls,
    NotEvaluatedRun,
    RunUnit,
    UnknownPolicy,
)
from goldspan.profiles import NAMES as PEERS
from goldspan.profiles import metric as metric_of_peer
from goldspan.scoring import DEFAULT_METRICS
from goldspan.scoring.metrics import Metric
from goldspan.scoring.metrics.registry import resolve_metrics

if TYPE_CHECKING:
    from goldspan.scoring.metrics import MetricLike

_PASS_RATE = "passed"
"""What a gate calls the share of judged runs that passed."""
_TOLERANCE = 1e-9
_MAX_RUNS_SHOWN = 5
"""So many runs are named one by one."""


def parse_thresholds(given: Iterable[str] | None, option: str) -> dict[str, float]:
    """What `METRIC=X` says, given several times. Raises `ConfigurationError` for what is written otherwise."""
    found: dict[str, float] = {}
    for text in given or ():
        name, _, number = text.partition("=")
        try:
            found[name.strip()] = float(number)
        except ValueError:
            raise ConfigurationError(f"{option} takes METRIC=NUMBER, such as tool_recall=0.8, not {text!r}") from None
    return found


def validate_gates(gates: Mapping[str, float], metrics: Collection[str]) -> None:
    """Raises `ConfigurationError` for a gate of a metric that is not measured."""
    known = (_PASS_RATE, *metrics)
    for name in gates:
        if name not in known:
            hint = did_you_mean(name, known) or f" There are {', '.join(known)}."
            raise ConfigurationError(f"--fail-under {name}: no such metric is measured.{hint}")


@dataclass(frozen=True, slots=True)
class Gates:
    """What a whole command must reach."""

    minimums: Mapping[str, float]
    """By metric, or `passed`."""
    fail_on_not_evaluated: bool | None = None
    """Whether runs that could not be evaluated count as not passed; `None`: where the variable CI is set."""

    def are_met(
        self, mean_of: Callable[[str], float | None], evaluated: int, not_evaluated: Sequence[NotEvaluatedRun]
    ) -> bool:
        """Whether every gate is met; each that is not is told. What could not be measured meets no gate.

        `judged` is how many runs passed or failed; `unknown` are those that a golden is for and that did neither.
        """
        strict = _is_ci() if self.fail_on_not_evaluated is None else self.fail_on_not_evaluated
        counted = list(not_evaluated) if strict else []
        unmet = [
            told
            for name, least in self.minimums.items()
            if (told := _failure_reason(name, least, mean_of, evaluated, counted))
        ]
        if self.fail_on_not_evaluated and counted and not self.minimums:
            unmet = [f"{_run_count(len(counted))} could not be evaluated"]
        for told in unmet:
            stderr_console().print(Text(f"gate failed: {told}", style="bold red"))
        if unmet:
            _print_not_evaluated(counted)
        return not unmet


def _failure_reason(
    name: str, least: float, mean_of: Callable[[str], float | None], judged: int, unknown: Sequence[NotEvaluatedRun]
) -> str | None:
    """Why a gate is not met; `None`: it is."""
    mean = mean_of(name)
    if mean is None and not unknown:
        return f"{name} could not be measured on any run, and {least:g} is wanted"
    if name == _PASS_RATE:
        mean = (mean or 0.0) * judged / (judged + len(unknown))
        beside = f", with {_run_count(len(unknown))} counted that could not be evaluated" if unknown else ""
        return f"{name} is {mean:.4f}{beside}, and {least:g} is wanted" if mean < least - _TOLERANCE else None
    if lacking := [run for run in unknown if name in run.missing_metrics]:
        return f"{name} could not be measured on {_run_count(len(lacking))}, and {least:g} is wanted"
    if mean is None:
        return f"{name} could not be measured on any run, and {least:g} is wanted"
    return f"{name} is {mean:.4f}, and {least:g} is wanted" if mean < least - _TOLERANCE else None


def _print_not_evaluated(unknown: Sequence[NotEvaluatedRun]) -> None:
    """Say which runs could not be evaluated, and why."""
    for run in unknown[:_MAX_RUNS_SHOWN]:
        stderr_console().print(Text(f"  {run.run_id} ({run.golden_id}): {run.reason}", style="dim"))
    if len(unknown) > _MAX_RUNS_SHOWN:
        stderr_console().print(Text(f"  and {len(unknown) - _MAX_RUNS_SHOWN} more", style="dim"))


def _run_count(number: int) -> str:
    return f"{number} run{'s' * (number != 1)}"


def _is_ci() -> bool:
    return os.environ.get("CI", "").strip().casefold() not in ("", "0", "false", "no", "off")


def not_evaluated_runs(evaluations: Iterable[Evaluation]) -> list[NotEvaluatedRun]:
    """The runs that a golden is for, and that could not be evaluated."""
    return [
        NotEvaluatedRun(
            each.run.run_id,
            each.name,
            each.reason,
            frozenset(s.metric for s in each.scores if s.label == "not_evaluated"),
        )
        for each in evaluations
        if each.golden is not None and each.passed is None
    ]


def mean_score(name: str, evaluations: Sequence[Evaluation]) -> float | None:
    """The mean of a metric, or the share that passed; `None`: it could not be measured."""
    values = _metric_values(name, evaluations)
    return sum(values) / len(values) if values else None


def _metric_values(name: str, evaluations: Sequence[Evaluation]) -> list[float]:
    if name == _PASS_RATE:
        return [float(evaluation.passed) for evaluation in evaluations if evaluation.passed is not None]
    scores = (evaluation.score(name) for evaluation in evaluations)
    return [score.value for score in scores if score is not None and score.value is not None]


ConcurrencyOption = Annotated[
    int,
    typer.Option("--concurrency", metavar="N", min=1, help="Runs judged at once, for metrics of your own that wait."),
]
CasesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--cases",
        metavar="FILE",
        help="Judge rows with tools_called and expected_tools, or a golden_id, instead of traces: JSON lines, a "
        "JSON list or CSV; may be given again.",
    ),
]
FailUnderOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-under", metavar="METRIC=X", help="Exit with 1 if the metric's mean, or the share `passed`, is below X."
    ),
]
FailOnUnknownFlag = Annotated[
    bool | None,
    typer.Option(
        "--fail-on-unknown/--no-fail-on-unknown",
        help="Whether a run that a golden is for, and that could not be evaluated, counts as one that did not pass. "
        "Usual where the variable CI is set. Without --fail-under: exit with 1 if there is any.",
    ),
]

_METRICS_PANEL = "What is measured"
_RULES_PANEL = "Rules, instead of what the goldens say"

MetricOption = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        "-m",
        metavar="NAME",
        help=f"Measure only this; may be given again: {', '.join(DEFAULT_METRICS)}, or one of an installed package.",
        rich_help_panel=_METRICS_PANEL,
    ),
]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="PEER",
        help=f"Measure the number that another tool would give: {', '.join(PEERS)}.",
        rich_help_panel=_METRICS_PANEL,
    ),
]
ProfileSetting = Annotated[
    list[str] | None,
    typer.Option(
        "--profile-option",
        metavar="KEY=VALUE",
        help="An option of that tool, by its own name; may be given again.",
        rich_help_panel=_METRICS_PANEL,
    ),
]
ThresholdOption = Annotated[
    list[str] | None,
    typer.Option(
        "--threshold",
        metavar="METRIC=X",
        help="A run fails below X; stands in for the golden's own.",
        rich_help_panel=_METRICS_PANEL,
    ),
]
StrictFlag = Annotated[
    bool,
    typer.Option("--strict", help="A gate is met by 1 alone, and anything less is 0.", rich_help_panel=_METRICS_PANEL),
]
ModeOption = Annotated[
    CorrectnessMode | None,
    typer.Option("--mode", help="How tool_correctness makes one number of it.", rich_help_panel=_RULES_PANEL),
]
OrderOption = Annotated[
    CallOrder | None, typer.Option("--order", help="In which order tools must be called.", rich_help_panel=_RULES_PANEL)
]
AttemptsOption = Annotated[
    CountedAttempts | None, typer.Option("--attempts", help="Which attempts count.", rich_help_panel=_RULES_PANEL)
]
ExtraOption = Annotated[
    ExtraCalls | None,
    typer.Option("--extra", help="Whether calls that nobody expected count.", rich_help_panel=_RULES_PANEL),
]
DuplicatesOption = Annotated[
    DuplicateCalls | None,
    typer.Option("--duplicates", help="Whether the same call again counts again.", rich_help_panel=_RULES_PANEL),
]
DepthOption = Annotated[
    CallDepth | None,
    typer.Option(
        "--depth", help="Whether the calls of agents that an agent calls count.", rich_help_panel=_RULES_PANEL
    ),
]
UnknownOption = Annotated[
    UnknownPolicy | None,
    typer.Option(
        "--unknown",
        help="What becomes of a run of which something stated cannot be judged; ignore lets the rest decide.",
        rich_help_panel=_RULES_PANEL,
    ),
]
ForbidOption = Annotated[
    list[str] | None,
    typer.Option(
        "--forbid",
        metavar="GLOB",
        help="Tools that must not be called; may be given again.",
        rich_help_panel=_RULES_PANEL,
    ),
]
MaxCallsOption = Annotated[
    int | None,
    typer.Option(
        "--max-calls", metavar="N", min=0, help="How many calls a run may take.", rich_help_panel=_RULES_PANEL
    ),
]


@dataclass(frozen=True, slots=True)
class ScoringOptions:
    """How runs are to be judged, as far as options say."""

    metrics: list[MetricLike] | None
    """What is to be measured; `None`: what the goldens say."""
    thresholds: dict[str, float]
    strict: bool
    rules: Mapping[str, Any]
    """Those that stand in for the goldens' own."""

    @property
    def is_any_set(self) -> bool:
        """Whether any option says anything."""
        return self != ScoringOptions(None, {}, False, {})

    @property
    def judge_lowers_metric(self) -> str:
        """The number that a model may lower: the peer's where there is one, else `tool_correctness`."""
        peers = (metric.name for metric in self.metrics or () if isinstance(metric, Metric))
        return next(peers, "tool_correctness")

    def pop_threshold(self, metric: str) -> tuple[ScoringOptions, float | None]:
        """The same without what is said of a metric that is measured elsewhere; and that."""
        thresholds = dict(self.thresholds)
        threshold = thresholds.pop(metric, None)
        return replace(self, thresholds=thresholds), threshold

    def metric_names(self, goldens: Goldens | None) -> Collection[str]:
        """The names of all that may be measured. Raises `ConfigurationError` for a metric that there is not."""
        names = dict.fromkeys(metric.name for metric in resolve_metrics(self.metrics, self.thresholds))
        for golden in goldens or () if self.metrics is None else ():
            names |= dict.fromkeys((*(golden.metrics or ()), *golden.thresholds))
        return names

    def evaluator(self, goldens: Goldens | None, *, verbose: bool = False) -> Callable[[Case], Evaluation]:
        """A function that judges so."""
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
    """What the options say of judging; rules that are `None` were not given."""
    return ScoringOptions(
        _select_metrics(metrics, profile, profile_settings),
        parse_thresholds(thresholds, "--threshold"),
        strict,
        {name: given for name, given in rules.items() if given is not None},
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
) -> tuple[Iterable[Evaluation], list[str]]:
    """Every run in some traces, or every row of case files, judged as they come; and what is wrong with other rows.

    `then` makes something further of the evaluations. On a terminal one sees how far it is; `streamed` is said of that
    in `counted`.
    """

    def judged(each: Iterable[Case]) -> Iterable[Evaluation]:
        return transform(map_in_order(evaluate, each, concurrency=concurrency))

    if cases:
        found, wrong = read_cases(cases, goldens)
        return with_progress_bar(judged(found), len(found), "judging", is_streamed=is_streamed), wrong
    evaluations = transform_runs(
        paths or [],
        lambda runs: judged(map(Case, runs)),
        unit=unit,
        golden_id_attributes=golden_id_attributes,
        goldens=goldens,
        description="judging",
        is_streamed=is_streamed,
    )
    return evaluations, []


def _select_metrics(
    names: list[str] | None, profile: str | None, settings: list[str] | None
) -> list[MetricLike] | None:
    """What is to be measured: metrics by name, and a peer's. `None`: what the goldens say."""
    if profile is None:
        if settings:
            raise ConfigurationError("--profile-option needs --profile")
        return list(names) if names else None
    return [*(names or ()), metric_of_peer(profile, **_parse_profile_options(settings or ()))]


def _parse_profile_options(options: Iterable[str]) -> dict[str, Any]:
    """Options by name; a value is JSON or a word of Python's, or else text."""
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
