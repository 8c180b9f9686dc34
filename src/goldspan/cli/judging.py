"""Options that say how runs are judged: which metrics, which peer's, and what stands in for the goldens' own rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goldspan.cases.judging import Case, judge_of
from goldspan.cases.workers import in_order
from goldspan.cli.console import counted
from goldspan.cli.gates import limits
from goldspan.cli.reading import cases_in, made_of_runs
from goldspan.errors import ConfigurationError
from goldspan.goldens import Goldens
from goldspan.model import Attempts, Depth, Duplicates, Evaluation, Extra, Mode, Order, Unit, Unknown
from goldspan.scoring import DEFAULT_METRICS
from goldspan.scoring.metrics import Metric
from goldspan.scoring.profiles import NAMES as PEERS
from goldspan.scoring.profiles import metric as metric_of_peer
from goldspan.scoring.registry import resolve

if TYPE_CHECKING:
    from goldspan.scoring.metrics import MetricLike

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

_METRICS = "What is measured"
_RULES = "Rules, instead of what the goldens say"

MetricOption = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        "-m",
        metavar="NAME",
        help=f"Measure only this; may be given again: {', '.join(DEFAULT_METRICS)}, or one of an installed package.",
        rich_help_panel=_METRICS,
    ),
]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="PEER",
        help=f"Measure the number that another tool would give: {', '.join(PEERS)}.",
        rich_help_panel=_METRICS,
    ),
]
ProfileSetting = Annotated[
    list[str] | None,
    typer.Option(
        "--profile-option",
        metavar="KEY=VALUE",
        help="An option of that tool, by its own name; may be given again.",
        rich_help_panel=_METRICS,
    ),
]
ThresholdOption = Annotated[
    list[str] | None,
    typer.Option(
        "--threshold",
        metavar="METRIC=X",
        help="A run fails below X; stands in for the golden's own.",
        rich_help_panel=_METRICS,
    ),
]
StrictFlag = Annotated[
    bool,
    typer.Option("--strict", help="A gate is met by 1 alone, and anything less is 0.", rich_help_panel=_METRICS),
]
ModeOption = Annotated[
    Mode | None,
    typer.Option("--mode", help="How tool_correctness makes one number of it.", rich_help_panel=_RULES),
]
OrderOption = Annotated[
    Order | None, typer.Option("--order", help="In which order tools must be called.", rich_help_panel=_RULES)
]
AttemptsOption = Annotated[
    Attempts | None, typer.Option("--attempts", help="Which attempts count.", rich_help_panel=_RULES)
]
ExtraOption = Annotated[
    Extra | None, typer.Option("--extra", help="Whether calls that nobody expected count.", rich_help_panel=_RULES)
]
DuplicatesOption = Annotated[
    Duplicates | None,
    typer.Option("--duplicates", help="Whether the same call again counts again.", rich_help_panel=_RULES),
]
DepthOption = Annotated[
    Depth | None,
    typer.Option("--depth", help="Whether the calls of agents that an agent calls count.", rich_help_panel=_RULES),
]
UnknownOption = Annotated[
    Unknown | None,
    typer.Option(
        "--unknown",
        help="What becomes of a run of which something stated cannot be judged; ignore lets the rest decide.",
        rich_help_panel=_RULES,
    ),
]
ForbidOption = Annotated[
    list[str] | None,
    typer.Option(
        "--forbid", metavar="GLOB", help="Tools that must not be called; may be given again.", rich_help_panel=_RULES
    ),
]
MaxCallsOption = Annotated[
    int | None,
    typer.Option("--max-calls", metavar="N", min=0, help="How many calls a run may take.", rich_help_panel=_RULES),
]


@dataclass(frozen=True, slots=True)
class Manner:
    """How runs are to be judged, as far as options say."""

    metrics: list[MetricLike] | None
    """What is to be measured; `None`: what the goldens say."""
    thresholds: dict[str, float]
    strict: bool
    rules: Mapping[str, Any]
    """Those that stand in for the goldens' own."""

    @property
    def is_said(self) -> bool:
        """Whether any option says anything."""
        return self != Manner(None, {}, False, {})

    @property
    def lowered(self) -> str:
        """The number that a model may lower: the peer's where there is one, else `tool_correctness`."""
        peers = (metric.name for metric in self.metrics or () if isinstance(metric, Metric))
        return next(peers, "tool_correctness")

    def without_threshold(self, metric: str) -> tuple[Manner, float | None]:
        """The same without what is said of a metric that is measured elsewhere; and that."""
        thresholds = dict(self.thresholds)
        threshold = thresholds.pop(metric, None)
        return replace(self, thresholds=thresholds), threshold

    def measured(self, goldens: Goldens | None) -> Collection[str]:
        """The names of all that may be measured. Raises `ConfigurationError` for a metric that there is not."""
        names = dict.fromkeys(metric.name for metric in resolve(self.metrics, self.thresholds))
        for golden in goldens or () if self.metrics is None else ():
            names |= dict.fromkeys((*(golden.metrics or ()), *golden.thresholds))
        return names

    def judge(self, goldens: Goldens | None, *, verbose: bool = False) -> Callable[[Case], Evaluation]:
        """A function that judges so."""
        how = {**self.rules, "strict": self.strict, "verbose": verbose}
        return judge_of(goldens, metrics=self.metrics, thresholds=self.thresholds, **how)


def manner_of(
    metrics: list[str] | None,
    profile: str | None,
    profile_settings: list[str] | None,
    thresholds: list[str] | None,
    *,
    strict: bool,
    **rules: Any,
) -> Manner:
    """What the options say of judging; rules that are `None` were not given."""
    return Manner(
        _chosen_metrics(metrics, profile, profile_settings),
        limits(thresholds, "--threshold"),
        strict,
        {name: given for name, given in rules.items() if given is not None},
    )


def judged_in(
    paths: list[str] | None,
    cases: list[str] | None,
    judge: Callable[[Case], Evaluation],
    *,
    goldens: Goldens | None,
    unit: Unit,
    golden_id_attributes: list[str] | None,
    concurrency: int,
    then: Callable[[Iterable[Evaluation]], Iterable[Evaluation]] = iter,
    streamed: bool = False,
) -> tuple[Iterable[Evaluation], list[str]]:
    """Every run in some traces, or every row of case files, judged as they come; and what is wrong with other rows.

    `then` makes something further of the evaluations. On a terminal one sees how far it is; `streamed` is said of that
    in `counted`.
    """

    def judged(each: Iterable[Case]) -> Iterable[Evaluation]:
        return then(in_order(judge, each, concurrency=concurrency))

    if cases:
        found, wrong = cases_in(cases, goldens)
        return counted(judged(found), len(found), "judging", streamed=streamed), wrong
    evaluations = made_of_runs(
        paths or [],
        lambda runs: judged(map(Case, runs)),
        unit=unit,
        golden_id_attributes=golden_id_attributes,
        goldens=goldens,
        doing="judging",
        streamed=streamed,
    )
    return evaluations, []


def _chosen_metrics(
    names: list[str] | None, profile: str | None, settings: list[str] | None
) -> list[MetricLike] | None:
    """What is to be measured: metrics by name, and a peer's. `None`: what the goldens say."""
    if profile is None:
        if settings:
            raise ConfigurationError("--profile-option needs --profile")
        return list(names) if names else None
    return [*(names or ()), metric_of_peer(profile, **_settings(settings or ()))]


def _settings(given: Iterable[str]) -> dict[str, Any]:
    """Options by name; a value is JSON or a word of Python's, or else text."""
    settings: dict[str, Any] = {}
    for text in given:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise ConfigurationError(f"--profile-option takes KEY=VALUE, not {text!r}")
        try:
            settings[key.strip()] = json.loads(_AS_JSON.get(value, value))
        except (ValueError, RecursionError):
            settings[key.strip()] = value
    return settings


_AS_JSON = {"True": "true", "False": "false", "None": "null"}
