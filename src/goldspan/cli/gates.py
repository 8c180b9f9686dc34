"""Gates: what the evaluations of a whole command must reach, as `--fail-under METRIC=X` says."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from goldspan.cli.console import messages
from goldspan.errors import ConfigurationError
from goldspan.goldens.words import did_you_mean
from goldspan.model import Evaluation, NotEvaluated

_PASSED = "passed"
"""What a gate calls the share of judged runs that passed."""
_TOLERANCE = 1e-9
_SHOWN = 5
"""So many runs are named one by one."""


def limits(given: Iterable[str] | None, option: str) -> dict[str, float]:
    """What `METRIC=X` says, given several times. Raises `ConfigurationError` for what is written otherwise."""
    found: dict[str, float] = {}
    for text in given or ():
        name, _, number = text.partition("=")
        try:
            found[name.strip()] = float(number)
        except ValueError:
            raise ConfigurationError(f"{option} takes METRIC=NUMBER, such as tool_recall=0.8, not {text!r}") from None
    return found


def check_gates(gates: Mapping[str, float], metrics: Collection[str]) -> None:
    """Raises `ConfigurationError` for a gate of a metric that is not measured."""
    known = (_PASSED, *metrics)
    for name in gates:
        if name not in known:
            hint = did_you_mean(name, known) or f" There are {', '.join(known)}."
            raise ConfigurationError(f"--fail-under {name}: no such metric is measured.{hint}")


@dataclass(frozen=True, slots=True)
class Gates:
    """What a whole command must reach."""

    least: Mapping[str, float]
    """By metric, or `passed`."""
    fail_on_unknown: bool | None = None
    """Whether runs that could not be evaluated count as not passed; `None`: where the variable CI is set."""

    def met(self, mean_of: Callable[[str], float | None], judged: int, unknown: Sequence[NotEvaluated]) -> bool:
        """Whether every gate is met; each that is not is told. What could not be measured meets no gate.

        `judged` is how many runs passed or failed; `unknown` are those that a golden is for and that did neither.
        """
        strict = _in_ci() if self.fail_on_unknown is None else self.fail_on_unknown
        counted = list(unknown) if strict else []
        unmet = [told for name, least in self.least.items() if (told := _missed(name, least, mean_of, judged, counted))]
        if self.fail_on_unknown and counted and not self.least:
            unmet = [f"{_runs(len(counted))} could not be evaluated"]
        for told in unmet:
            messages().print(Text(f"gate failed: {told}", style="bold red"))
        if unmet:
            _name(counted)
        return not unmet


def _missed(
    name: str, least: float, mean_of: Callable[[str], float | None], judged: int, unknown: Sequence[NotEvaluated]
) -> str | None:
    """Why a gate is not met; `None`: it is."""
    mean = mean_of(name)
    if mean is None and not unknown:
        return f"{name} could not be measured on any run, and {least:g} is wanted"
    if name == _PASSED:
        mean = (mean or 0.0) * judged / (judged + len(unknown))
        beside = f", with {_runs(len(unknown))} counted that could not be evaluated" if unknown else ""
        return f"{name} is {mean:.4f}{beside}, and {least:g} is wanted" if mean < least - _TOLERANCE else None
    if lacking := [run for run in unknown if name in run.unmeasured]:
        return f"{name} could not be measured on {_runs(len(lacking))}, and {least:g} is wanted"
    if mean is None:
        return f"{name} could not be measured on any run, and {least:g} is wanted"
    return f"{name} is {mean:.4f}, and {least:g} is wanted" if mean < least - _TOLERANCE else None


def _name(unknown: Sequence[NotEvaluated]) -> None:
    """Say which runs could not be evaluated, and why."""
    for run in unknown[:_SHOWN]:
        messages().print(Text(f"  {run.run_id} ({run.golden_id}): {run.reason}", style="dim"))
    if len(unknown) > _SHOWN:
        messages().print(Text(f"  and {len(unknown) - _SHOWN} more", style="dim"))


def _runs(number: int) -> str:
    return f"{number} run{'s' * (number != 1)}"


def _in_ci() -> bool:
    return os.environ.get("CI", "").strip().casefold() not in ("", "0", "false", "no", "off")


def not_evaluated(evaluations: Iterable[Evaluation]) -> list[NotEvaluated]:
    """The runs that a golden is for, and that could not be evaluated."""
    return [
        NotEvaluated(
            each.run.run_id,
            each.name,
            each.reason,
            frozenset(s.metric for s in each.scores if s.label == "not_evaluated"),
        )
        for each in evaluations
        if each.golden is not None and each.passed is None
    ]


def mean(name: str, evaluations: Sequence[Evaluation]) -> float | None:
    """The mean of a metric, or the share that passed; `None`: it could not be measured."""
    values = _values(name, evaluations)
    return sum(values) / len(values) if values else None


def _values(name: str, evaluations: Sequence[Evaluation]) -> list[float]:
    if name == _PASSED:
        return [float(evaluation.passed) for evaluation in evaluations if evaluation.passed is not None]
    scores = (evaluation.score(name) for evaluation in evaluations)
    return [score.value for score in scores if score is not None and score.value is not None]
