"""Every `GOLDSPAN_*` variable in one table: what it is called, how it is read, what it means.

Nothing is loaded here that an application without goldens would have to pay for.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from goldspan.errors import ConfigurationError

Owner = Literal["goldens", "processor", "limits"]
"""Whose argument of the same name a setting stands in for: `Goldens`, `ScoringProcessor` or `Limits`."""


def _setting(variable: str, read: Callable[[str], Any], meaning: str, default: str, of: Owner | None = None) -> Any:
    row = {"variable": f"GOLDSPAN_{variable}", "read": read, "meaning": meaning, "default": default, "of": of}
    return field(default=None, metadata=row)


def _list(text: str) -> tuple[str, ...]:
    return tuple(item for item in map(str.strip, text.split(",")) if item)


def _units(text: str) -> tuple[str, ...]:
    units = _list(text)
    for unit in units:
        if unit not in ("request", "component", "conversation"):
            raise ValueError(f"{unit!r} is none of request, component, conversation")
    return units


def _thresholds(text: str) -> dict[str, float]:
    return dict(map(_threshold, _list(text)))


def _threshold(item: str) -> tuple[str, float]:
    metric, _, number = item.partition("=")
    try:
        return metric.strip(), float(number)
    except ValueError:
        raise ValueError(f"{item!r} is not of the form tool_correctness=0.8") from None


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _number(text: str) -> float:
    number = _float(text)
    if not 0 <= number < math.inf:
        raise ValueError(f"{text!r} is not a number of at least 0")
    return number


def _seconds(text: str) -> float:
    seconds = _float(text)
    if not 0 < seconds < math.inf:
        raise ValueError(f"{text!r} is not a number of seconds above 0")
    return seconds


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _rate(text: str) -> float:
    rate = _number(text)
    if rate > 1:
        raise ValueError(f"{text!r} is not a share from 0 to 1")
    return rate


_SWITCH = {
    **dict.fromkeys(("on", "true", "1", "yes"), True),
    **dict.fromkeys(("off", "false", "0", "no"), False),
}


_OFF = ("off", "false", "no")


def _switch(text: str) -> bool:
    if text.lower() not in _SWITCH:
        raise ValueError(f"{text!r} is neither on nor off")
    return _SWITCH[text.lower()]


def _number_or_off(text: str) -> float | Literal[False]:
    """`False`: off. Zero is a number here."""
    return False if text.lower() in _OFF else _number(text)


def _seconds_or_off(text: str) -> float | Literal[False]:
    return False if text.lower() in _OFF else _seconds(text)


def _captured(text: str) -> bool | tuple[str, ...]:
    return _SWITCH[text.lower()] if text.lower() in _SWITCH else _list(text)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment says. `None`: nothing."""

    goldens: tuple[str, ...] | None = _setting("GOLDENS", _list, "golden files, separated by commas", "none")
    reload: float | Literal[False] | None = _setting(
        "RELOAD",
        _seconds_or_off,
        "seconds between two looks at whether golden files have changed; or `off`",
        "1",
        of="processor",
    )
    near: float | Literal[False] | None = _setting(
        "NEAR",
        _number_or_off,
        "from which similarity on, 0 to 100, a request's text is that of a golden; or `off`",
        "90",
        of="goldens",
    )
    margin: float | None = _setting(
        "MARGIN", _number, "how much nearer that golden must be than any other", "3", of="goldens"
    )
    golden_id_attributes: tuple[str, ...] | None = _setting(
        "GOLDEN_ID_ATTRIBUTE",
        _list,
        "span attributes that name a golden, separated by commas, in the order tried",
        "`goldspan.golden.id`, `test.case.name`",
        of="processor",
    )
    metrics: tuple[str, ...] | None = _setting(
        "METRICS", _list, "names of metrics, separated by commas", "all", of="processor"
    )
    thresholds: Mapping[str, float] | None = _setting(
        "THRESHOLDS", _thresholds, "`metric=number`, separated by commas", "those of the goldens", of="processor"
    )
    units: tuple[str, ...] | None = _setting(
        "UNITS",
        _units,
        "what is scored: `request`, `component`, `conversation`, separated by commas",
        "`request,component`",
        of="processor",
    )
    sinks: tuple[str, ...] | None = _setting(
        "SINKS",
        _list,
        "where results go, separated by commas: `attributes` of the run's own span, `events`, `metrics`, `figures`, "
        "`spans`, `jsonl:PATH`, `store:PATH`",
        "`attributes,events,metrics,figures`",
    )
    capture_arguments: bool | tuple[str, ...] | None = _setting(
        "CAPTURE_ARGUMENTS",
        _captured,
        "what `@goldspan.trace` captures where it is not told: `on`, `off` for neither arguments nor results, or the "
        "names of the only arguments that may be captured, separated by commas, and no results",
        "on",
    )
    threads: bool | None = _setting(
        "THREADS",
        _switch,
        "whether threads and thread pools keep the request they were started in",
        "on",
        of="processor",
    )
    sample: float | None = _setting("SAMPLE", _rate, "which share of the traces is scored, 0 to 1", "1")
    sample_rules: str | None = _setting(
        "SAMPLE_RULES", str, "other shares by rule, as `environment=test:0, agent=support:1`", "none"
    )
    export_sample: float | None = _setting(
        "EXPORT_SAMPLE", _rate, "which share of the traces is handed on, 0 to 1; all are scored", "1"
    )
    budget: float | None = _setting(
        "BUDGET", _seconds, "seconds that the metrics of one run may take", "no limit", of="processor"
    )
    background: bool | None = _setting(
        "BACKGROUND",
        _switch,
        "whether runs are scored by a thread of their own",
        "on where spans are exported in batches",
        of="processor",
    )
    max_traces: int | None = _setting(
        "MAX_TRACES",
        _count,
        "traces in flight before the one idle for longest is scored as it is",
        "10000",
        of="limits",
    )
    max_spans: int | None = _setting("MAX_SPANS", _count, "spans in flight before that", "100000", of="limits")
    max_spans_per_trace: int | None = _setting(
        "MAX_SPANS_PER_TRACE",
        _count,
        "spans of one trace in flight beyond which it is not scored",
        "10000",
        of="limits",
    )
    max_bytes: int | None = _setting(
        "MAX_BYTES", _count, "bytes of ended spans kept before that", "67108864", of="limits"
    )
    max_queue: int | None = _setting(
        "MAX_QUEUE",
        _count,
        "spans that wait to be scored in the background; the traces of those beyond are not scored",
        "50000",
        of="limits",
    )
    idle: float | None = _setting(
        "IDLE", _seconds, "seconds without a span after which a run is scored as it is", "300", of="limits"
    )
    lifetime: float | None = _setting(
        "LIFETIME", _seconds, "seconds after which it is, however busy", "3600", of="limits"
    )
    late: float | None = _setting(
        "LATE", _number, "seconds for which late spans can change a run that was scored", "60", of="limits"
    )
    settle: float | None = _setting(
        "SETTLE", _number, "seconds without a further late span before such a run is scored again", "1", of="limits"
    )
    then_exporter: tuple[str, ...] | None = _setting(
        "THEN_EXPORTER",
        _list,
        "where `OTEL_TRACES_EXPORTER=goldspan` hands the spans on: names of exporters, separated by commas, or `none`",
        "`otlp` where an end point is set, else `none`",
    )
    enabled: bool | None = _setting(
        "ENABLED",
        _switch,
        "`on`: score under `opentelemetry-instrument` also without any goldens; `off`: do not score there at all",
        "on with goldens or `OTEL_TRACES_EXPORTER=goldspan`",
    )
    disabled: bool | None = _setting(
        "DISABLED", _switch, "whether `instrument()` and the ways without code do nothing", "off"
    )
    strict: bool | None = _setting(
        "STRICT", _switch, "`1`: failures of goldspan's own are raised, for its own tests", "off"
    )

    def said(self, of: Owner) -> dict[str, Any]:
        """What is said of the arguments of `Goldens`, `ScoringProcessor` or `Limits`; `None` for a number: off."""
        named = {row.name: getattr(self, row.name) for row in fields(self) if row.metadata["of"] == of}
        numbers = {"near", "reload"}
        return {
            name: None if value is False and name in numbers else value
            for name, value in named.items()
            if value is not None
        }


@dataclass(frozen=True, slots=True)
class Variable:
    """One row of the table, for people."""

    name: str
    meaning: str
    default: str


VARIABLES = tuple(
    Variable(row.metadata["variable"], row.metadata["meaning"], row.metadata["default"]) for row in fields(Settings)
)


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
    """Read the variables. Raises `ConfigurationError`, naming the variable, for what cannot be understood."""
    return Settings(**{row.name: _read(environment, row.metadata) for row in fields(Settings)})


def captured(environment: Mapping[str, str] = os.environ) -> bool | tuple[str, ...]:
    """What decorated functions capture where they are not told; names: of the arguments only those called so."""
    said: bool | tuple[str, ...] | None = _read(
        environment, Settings.__dataclass_fields__["capture_arguments"].metadata
    )
    return True if said is None else said


def _read(environment: Mapping[str, str], row: Mapping[str, Any]) -> Any:
    text = environment.get(row["variable"], "").strip()
    if not text:
        return None
    try:
        value = row["read"](text)
    except ValueError as error:
        raise ConfigurationError(f"{row['variable']}: {error}") from None
    return None if value == () else value
