"""Decides whether results reach the required values, overall, per tag and per golden."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from goldspan.errors import ConfigurationError
from goldspan.goldens.spelling import did_you_mean
from goldspan.testing.results import PASS_RATE, TRIAL_STATISTIC, AgentResults, CaseResult

_TOLERANCE = 1e-9
"""A value meets its minimum down to this difference, as a score meets its threshold."""

GateScope = Literal["all", "tag", "golden"]


@dataclass(frozen=True, slots=True)
class Gate:
    """A value that the results, or a part of them, must reach."""

    metric: str
    """A metric, `passed` for the pass rate, or `pass^K` and `pass@K` for repeated trials."""
    minimum: float
    scope: GateScope = "all"
    name: str = ""
    """The tag or the id of the golden."""

    @property
    def label(self) -> str:
        """The gate in words: `passed of tag checkout`."""
        return self.metric if self.scope == "all" else f"{self.metric} of {self.scope} {self.name}"


@dataclass(frozen=True, slots=True)
class GateResult:
    """What a gate measured."""

    gate: Gate
    value: float | None
    """`None`: no case has a value."""
    cases: int
    """The number of cases in the scope."""

    @property
    def is_met(self) -> bool:
        """Whether the minimum is reached. A missing value reaches no minimum."""
        return self.value is not None and self.value >= self.gate.minimum - _TOLERANCE


def parse_gates(texts: Iterable[str] | None, option: str, scope: GateScope = "all") -> list[Gate]:
    """Parse `METRIC=X`, or `NAME:METRIC=X` for a tag and for a golden. Raises `ConfigurationError` for other texts."""
    return [_parse_gate(text, option, scope) for text in texts or ()]


def _parse_gate(text: str, option: str, scope: GateScope) -> Gate:
    target, _, number = text.rpartition("=")
    # Tags and ids may contain colons and equals signs; metrics contain neither.
    name, colon, metric = target.rpartition(":") if scope != "all" else ("", ":", target)
    try:
        minimum = float(number)
    except ValueError:
        minimum = -1.0
    if not metric.strip() or not colon or (scope != "all" and not name.strip()) or not 0 <= minimum <= 1:
        form = (
            "METRIC=X, such as passed=0.95" if scope == "all" else f"{scope.upper()}:METRIC=X, such as refund:passed=1"
        )
        raise ConfigurationError(f"{option} takes {form}, with X from 0 to 1, not {text!r}.")
    return Gate(metric.strip(), minimum, scope, name.strip())


def check_gates(results: AgentResults, gates: Iterable[Gate], *, is_strict: bool = False) -> list[GateResult]:
    """Measure each gate.

    Args:
        results: The cases.
        gates: The required values.
        is_strict: Whether cases that could not be evaluated meet no gate: they count as failed in rates, and a metric
            that could not be evaluated in one of them has no value.

    Raises:
        ConfigurationError: A gate names a metric, a tag or a golden that no case has.
    """
    return [_check_gate(results, gate, is_strict) for gate in gates]


def count_unknown_as_failed(results: AgentResults) -> AgentResults:
    """Return the results with cases that could not be evaluated as failed ones."""
    cases = (replace(case, outcome="failed") if case.outcome == "not_evaluated" else case for case in results.cases)
    return replace(results, cases=tuple(cases))


def _check_gate(results: AgentResults, gate: Gate, is_strict: bool) -> GateResult:
    part = replace(results, cases=tuple(_cases_in_scope(results, gate)))
    _require_known_metric(results, gate)
    if is_strict and any(_is_unknown(case, gate.metric) for case in part.cases):
        return GateResult(gate, None, len(part.cases))
    counted = count_unknown_as_failed(part) if is_strict else part
    return GateResult(gate, counted.value_of(gate.metric), len(part.cases))


def _is_unknown(case: CaseResult, metric: str) -> bool:
    """Whether a metric could not be evaluated in a case without a verdict."""
    scores = case.evaluation["scores"] if case.passed is None and case.evaluation is not None else ()
    return any(score["metric"] == metric and score["value"] is None for score in scores)


def _cases_in_scope(results: AgentResults, gate: Gate) -> Iterable[CaseResult]:
    if gate.scope == "all":
        return results.cases
    names_of = _tags_of if gate.scope == "tag" else _id_of
    found = [case for case in results.cases if gate.name in names_of(case)]
    if not found:
        known = sorted({name for case in results.cases for name in names_of(case)})
        raise ConfigurationError(f"No case has the {gate.scope} {gate.name!r}.{_hint(gate.name, known)}")
    return found


def _tags_of(case: CaseResult) -> Collection[str]:
    return case.tags


def _id_of(case: CaseResult) -> Collection[str]:
    return (case.golden_id,)


def _require_known_metric(results: AgentResults, gate: Gate) -> None:
    if statistic := TRIAL_STATISTIC.fullmatch(gate.metric):
        k = int(statistic["k"])
        if max(Counter(case.golden_id for case in results.cases).values(), default=0) < k:
            raise ConfigurationError(f"{gate.metric} needs {k} trials of a golden; run the agent with --trials {k}.")
    elif gate.metric not in (known := [PASS_RATE, *results.metric_names]):
        names = [PASS_RATE, "pass^K", "pass@K", *known[1:]]
        raise ConfigurationError(f"No case has the metric {gate.metric!r}.{_hint(gate.metric, names)}")


def _hint(name: str, known: Collection[str]) -> str:
    return did_you_mean(name, known) or (f" There are {', '.join(known)}." if known else "")
