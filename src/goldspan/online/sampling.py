"""Which runs are scored and which traces are exported, decided by the trace id alone."""

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
    """A rate for the runs that have all the values named. A value that is `None` is not asked for.

    Raises `ConfigurationError` for a rate that is no number from 0 to 1, and for a unit that does not exist.
    """

    rate: float
    """Which share of the traces is scored, 0 to 1."""
    agent: str | None = None
    service: str | None = None
    environment: str | None = None
    golden: str | None = None
    """The golden that the run itself names: other goldens are found only for runs that are scored."""
    unit: str | None = None
    """`request`, `component` or `conversation`."""

    def __post_init__(self) -> None:
        _check_rate(self.rate)
        if self.unit is not None and self.unit not in _UNITS:
            raise ConfigurationError(f"unit is {', '.join(_UNITS[:-1])} or {_UNITS[-1]}, not {self.unit!r}")

    def matches(self, run: Run) -> bool:
        """Whether the run has every value that is named."""
        return (
            self.agent in (None, run.agent)
            and self.service in (None, run.service)
            and self.environment in (None, run.environment)
            and self.golden in (None, run.golden_id)
            and self.unit in (None, run.unit)
        )


class Sampling:
    """Tells which runs are scored: the first rule that matches decides by its rate, else `rate` does.

    A trace is kept at a rate where the low 64 bits of its id are below rate · 2⁶⁴, as in OpenTelemetry's
    `TraceIdRatioBased`: every process decides the same, and what a lower rate keeps, a higher one keeps as well. A run
    of several traces is decided by its first; one without a trace is kept at any rate above 0.

    Raises `ConfigurationError` for a rate that is no number from 0 to 1.
    """

    def __init__(self, rate: float = 1.0, rules: Iterable[SamplingRule] = ()) -> None:
        self.rate = _check_rate(rate)
        self.rules = tuple(rules)
        self._bound = _rate_bound(rate)
        self._bounds = tuple((rule, _rate_bound(rule.rate)) for rule in self.rules)

    def should_sample(self, run: Run) -> bool:
        """Whether that run is scored."""
        bound = next((bound for rule, bound in self._bounds if rule.matches(run)), self._bound)
        return _is_below(run, bound)


class ExportSampling:
    """Tells which traces are exported, where all are scored and only some are kept. It decides as `Sampling` does.

    Raises `ConfigurationError` for a rate that is no number from 0 to 1.
    """

    def __init__(self, rate: float = 1.0) -> None:
        self.rate = _check_rate(rate)
        self._bound = _rate_bound(rate)

    def should_export(self, trace_id: int) -> bool:
        """Whether the spans of that trace are exported."""
        return trace_id % _TRACE_ID_SPACE < self._bound


def parse_sampling(rate: str | float | None = None, rules: str | None = None) -> Sampling:
    """Sampling as settings say it: a rate, and rules as `agent=support:1, environment=test unit=request:0.5`.

    A rule is one or more `NAME=VALUE`, a colon, and its rate. Rules are separated by commas, the pairs of one by
    spaces; a value with commas, spaces or quotes in it stands in double quotes. Empty text is no rule.

    Raises `ConfigurationError` for anything else, and says which rule it is.
    """
    chosen = _parse_rate_number(rate, "the sampling rate") if rate not in (None, "") else 1.0
    return Sampling(chosen, [_parse_rule(text) for text in _split_outside_quotes(rules or "", ",")])


def _parse_rule(text: str) -> SamplingRule:
    pairs, colon, rate = text.rpartition(":")
    if not colon or not pairs.strip():
        raise ConfigurationError(f"sampling rule {text!r}: write NAME=VALUE:RATE, for instance environment=test:0")
    parts = _split_outside_quotes(pairs, r"\s")
    named: dict[str, Any] = {}
    try:
        for place, pair in enumerate(parts, start=1):
            name, value = _parse_pair(pair, last=place == len(parts))
            if name in named:
                raise ConfigurationError(f"{name} is named twice")
            named[name] = value
        return SamplingRule(_parse_rate_number(rate, "the rate"), **named)
    except ConfigurationError as error:
        raise ConfigurationError(f"sampling rule {text!r}: {error}") from None


def _parse_pair(text: str, *, last: bool) -> tuple[str, str]:
    """The name and the value of `NAME=VALUE`; what no rule could match, or where two rules run into one, is refused."""
    name, _, value = text.partition("=")
    if name not in _CONDITION_NAMES or not _unquote(value):
        raise ConfigurationError(f"{text!r} is not one of {', '.join(f'{known}=...' for known in _CONDITION_NAMES)}")
    if value.count('"') % 2:
        raise ConfigurationError(f"the quotes in {text!r} do not end")
    if not last and re.search(r":[0-9.]+$", value):
        raise ConfigurationError(f"write a comma behind {text!r}, or quotes around its value")
    return name, _unquote(value)


_CONDITION_NAMES = tuple(each.name for each in fields(SamplingRule) if each.name != "rate")


def _split_outside_quotes(text: str, separator: str) -> list[str]:
    """The parts between separators that stand in no quotes, without those that are empty."""
    parts = re.findall(rf'(?:"[^"]*"?|[^"{separator}])+', text)
    return [stripped for part in parts if (stripped := part.strip())]


def _unquote(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] == '"'
    return value[1:-1] if quoted else value


def _parse_rate_number(text: str | float | None, what: str) -> float:
    try:
        return float(text)  # type: ignore[arg-type]  # what is no number is said below
    except (TypeError, ValueError):
        raise ConfigurationError(f"{what} is a number from 0 to 1, not {text!r}") from None


def _check_rate(rate: float) -> float:
    given: object = rate  # settings and programs without types say anything
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 <= given <= 1:
        raise ConfigurationError(f"the sampling rate is a number from 0 to 1, not {rate!r}")
    return rate


def _rate_bound(rate: float) -> int:
    return round(rate * _TRACE_ID_SPACE)


def _is_below(run: Run, bound: int) -> bool:
    if bound in (0, _TRACE_ID_SPACE) or not run.trace_ids:
        return bound > 0
    return int(run.trace_ids[0], 16) % _TRACE_ID_SPACE < bound
