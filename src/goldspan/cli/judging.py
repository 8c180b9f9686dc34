"""Options that say how runs are judged: which metrics, which peer's, and what stands in for the goldens' own rules."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goldspan.errors import ConfigurationError
from goldspan.goldens import Goldens
from goldspan.model import Attempts, Depth, Duplicates, Extra, Mode, Order
from goldspan.scoring import DEFAULT_METRICS
from goldspan.scoring.profiles import NAMES as PEERS
from goldspan.scoring.profiles import metric as metric_of_peer
from goldspan.scoring.registry import resolve

if TYPE_CHECKING:
    from goldspan.scoring.metrics import MetricLike

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


def chosen_metrics(
    names: list[str] | None, profile: str | None, settings: Iterable[str] | None
) -> list[MetricLike] | None:
    """What is to be measured: metrics by name, and a peer's. `None`: what the goldens say."""
    if profile is None:
        if settings:
            raise ConfigurationError("--profile-option needs --profile")
        return list(names) if names else None
    return [*(names or ()), metric_of_peer(profile, **_settings(settings or ()))]


def measured_names(
    metrics: Iterable[MetricLike] | None, thresholds: dict[str, float], goldens: Goldens | None
) -> Collection[str]:
    """The names of everything that may be measured. Raises `ConfigurationError` for a metric that there is not."""
    names = dict.fromkeys(metric.name for metric in resolve(metrics, thresholds))
    for golden in goldens or () if metrics is None else ():
        names |= dict.fromkeys((*(golden.metrics or ()), *golden.thresholds))
    return names


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
