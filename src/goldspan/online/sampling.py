"""Selects the runs that are scored and the traces that are exported, by their trace id."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from goldspan.errors import ConfigurationError
from goldspan.model import Run

_TRACE_ID_SPACE = 1 << 64
_UNITS = ("request", "component", "conversation")


@dataclass(frozen=True, slots=True)
class SamplingRule:
    """A sampling rate for the runs that match all conditions. A condition that is `None` matches every run.

    Raises:
        ConfigurationError: If the rate is not a number from 0 to 1, or the unit does not exist.
    """

    rate: float
    """The share of the traces that is scored, 0 to 1."""
    agent: str | None = None
    service: str | None = None
    environment: str | None = None
    golden: str | None = None
    """The golden that the run itself names; other goldens are looked up only for sampled runs."""
    unit: str | None = None
    """`request`, `component` or `conversation`."""

    def __post_init__(self) -> None:
        _check_rate(self.rate)
        if self.unit is not None and self.unit not in _UNITS:
            raise ConfigurationError(f"unit must be {', '.join(_UNITS[:-1])} or {_UNITS[-1]}, not {self.unit!r}")

    def matches(self, run: Run) -> bool:
        """Returns whether the run meets all conditions."""
        return (
            self.agent in (None, run.agent)
            and self.service in (None, run.service)
            and self.environment in (None, run.environment)
            and self.golden in (None, run.golden_id)
            and self.unit in (None, run.unit)
        )


class Sampling:
    """Selects the runs that are scored: the rate of the first matching rule applies, else `rate`.

    A trace is sampled if the low 64 bits of its id are below rate · 2⁶⁴, as in OpenTelemetry's `TraceIdRatioBased`.
    Every process makes the same decision, and a higher rate samples every trace that a lower rate samples. A run of
    several traces is decided by its first trace; a run without a trace is sampled at any rate above 0.

    Raises:
        ConfigurationError: If the rate is not a number from 0 to 1.
    """

    def __init__(self, rate: float = 1.0, rules: Iterable[SamplingRule] = ()) -> None:
        self.rate = _check_rate(rate)
        self.rules = tuple(rules)
        self._bound = _rate_bound(rate)
        self._bounds = tuple((rule, _rate_bound(rule.rate)) for rule in self.rules)

    def should_sample(self, run: Run) -> bool:
        """Returns whether the run is scored."""
        bound = next((bound for rule, bound in self._bounds if rule.matches(run)), self._bound)
        return _is_below(run, bound)


class ExportSampling:
    """Selects the traces that are exported while all traces are scored. It decides as `Sampling` does.

    Raises:
        ConfigurationError: If the rate is not a number from 0 to 1.
    """

    def __init__(self, rate: float = 1.0) -> None:
        self.rate = _check_rate(rate)
        self._bound = _rate_bound(rate)

    def should_export(self, trace_id: int) -> bool:
        """Returns whether the spans of the trace are exported."""
        return trace_id % _TRACE_ID_SPACE < self._bound


def parse_sampling(rate: str | float | None = None, rules: str | None = None) -> Sampling:
    """Parses a rate, and rules such as `agent=support:1, environment=test unit=request:0.5`.

    A rule is one or more `NAME=VALUE`, a colon, and its rate. Commas separate rules, and spaces separate the conditions
    of a rule. A value that contains commas, spaces or quotes must be in double quotes. Empty text contains no rule.

    Raises `ConfigurationError`, naming the rule, for anything else.
    """
    chosen = _parse_rate_number(rate, "the sampling rate") if rate not in (None, "") else 1.0
    return Sampling(chosen, [_parse_rule(text) for text in _split_outside_quotes(rules or "", ",")])


def _parse_rule(text: str) -> SamplingRule:
    pairs, colon, rate = text.rpartition(":")
    if not colon or not pairs.strip():
        raise ConfigurationError(f"sampling rule {text!r}: write NAME=VALUE:RATE, for instance environment=test:0")
    parts = _split_outside_quotes(pairs, r"\s")
    conditions: dict[str, Any] = {}
    try:
        for position, pair in enumerate(parts, start=1):
            name, value = _parse_pair(pair, last=position == len(parts))
            if name in conditions:
                raise ConfigurationError(f"{name} occurs twice")
            conditions[name] = value
        return SamplingRule(_parse_rate_number(rate, "the rate"), **conditions)
    except ConfigurationError as error:
        raise ConfigurationError(f"sampling rule {text!r}: {error}") from None


def _parse_pair(text: str, *, last: bool) -> tuple[str, str]:
    """Parses `NAME=VALUE`. Rejects unknown names, and values that look like two rules without a comma."""
    name, _, value = text.partition("=")
    if name not in _CONDITION_NAMES or not _unquote(value):
        raise ConfigurationError(f"{text!r} is not one of {', '.join(f'{known}=...' for known in _CONDITION_NAMES)}")
    if value.count('"') % 2:
        raise ConfigurationError(f"{text!r} lacks a closing quote")
    if not last and re.search(r":[0-9.]+$", value):
        raise ConfigurationError(f"write a comma after {text!r}, or quotes around its value")
    return name, _unquote(value)


_CONDITION_NAMES = tuple(condition.name for condition in fields(SamplingRule) if condition.name != "rate")


def _split_outside_quotes(text: str, separator: str) -> list[str]:
    """Returns the non-empty parts between separators that are not in quotes."""
    parts = re.findall(rf'(?:"[^"]*"?|[^"{separator}])+', text)
    return [stripped for part in parts if (stripped := part.strip())]


def _unquote(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] == '"'
    return value[1:-1] if quoted else value


def _parse_rate_number(text: str | float | None, name: str) -> float:
    try:
        return float(text)  # type: ignore[arg-type]  # other types raise TypeError
    except (TypeError, ValueError):
        raise ConfigurationError(f"{name} must be a number from 0 to 1, not {text!r}") from None


def _check_rate(rate: float) -> float:
    value: object = rate  # untyped callers may pass anything
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ConfigurationError(f"the sampling rate must be a number from 0 to 1, not {rate!r}")
    return rate


def _rate_bound(rate: float) -> int:
    return round(rate * _TRACE_ID_SPACE)


def _is_below(run: Run, bound: int) -> bool:
    if bound in (0, _TRACE_ID_SPACE) or not run.trace_ids:
        return bound > 0
    return int(run.trace_ids[0], 16) % _TRACE_ID_SPACE < bound
