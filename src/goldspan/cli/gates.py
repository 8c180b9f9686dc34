"""Gates: what the evaluations of a whole command must reach, as `--fail-under METRIC=X` says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from rich.text import Text

from goldspan.cli.console import messages
from goldspan.errors import ConfigurationError
from goldspan.goldens.words import did_you_mean
from goldspan.model import Evaluation

_PASSED = "passed"
"""What a gate calls the share of judged runs that passed."""
_TOLERANCE = 1e-9


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


def all_met(gates: Mapping[str, float], mean_of: Callable[[str], float | None]) -> bool:
    """Whether every gate is met; each that is not is told. What could not be measured meets no gate."""
    met = True
    for name, least in gates.items():
        mean = mean_of(name)
        if mean is None or mean < least - _TOLERANCE:
            met = False
            found = "could not be measured on any run" if mean is None else f"is {mean:.4f}"
            messages().print(Text(f"gate failed: {name} {found}, and {least:g} is wanted", style="bold red"))
    return met


def mean(name: str, evaluations: Sequence[Evaluation]) -> float | None:
    """The mean of a metric, or the share that passed; `None`: it could not be measured."""
    values = _values(name, evaluations)
    return sum(values) / len(values) if values else None


def _values(name: str, evaluations: Sequence[Evaluation]) -> list[float]:
    if name == _PASSED:
        return [float(evaluation.passed) for evaluation in evaluations if evaluation.passed is not None]
    scores = (evaluation.score(name) for evaluation in evaluations)
    return [score.value for score in scores if score is not None and score.value is not None]
