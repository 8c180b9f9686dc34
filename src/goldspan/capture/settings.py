"""Every `GOLDSPAN_*` variable that capturing reads, in one table.

| variable | meaning | default |
|---|---|---|
| `GOLDSPAN_GOLDENS` | golden files, separated by commas | none |
| `GOLDSPAN_METRICS` | names of metrics, separated by commas | the default metrics |
| `GOLDSPAN_THRESHOLDS` | `metric=number`, separated by commas | those of the goldens |
| `GOLDSPAN_GOLDEN_ID_ATTRIBUTE` | span attributes that name a golden, separated by commas, tried in order | see below |
| `GOLDSPAN_MAX_TRACES` | traces in flight before the one idle for longest is given up | 10000 |
| `GOLDSPAN_MAX_SPANS` | spans in flight before the trace idle for longest is given up | 100000 |
| `GOLDSPAN_STRICT` | `1`: errors of goldspan's own are raised, for its own tests | off |

The attributes are `goldspan.golden.id`, then `test.case.name`. What is given in code goes before what stands here.
Exporters, end points, sampling and resources are set by the `OTEL_*` variables of OpenTelemetry.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from goldspan.errors import ConfigurationError
from goldspan.extraction import golden_ids
from goldspan.online.assembly import DEFAULT_MAX_SPANS, DEFAULT_MAX_TRACES

GOLDENS = "GOLDSPAN_GOLDENS"
METRICS = "GOLDSPAN_METRICS"
THRESHOLDS = "GOLDSPAN_THRESHOLDS"
MAX_TRACES = "GOLDSPAN_MAX_TRACES"
MAX_SPANS = "GOLDSPAN_MAX_SPANS"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment says. `None`: nothing."""

    goldens: tuple[str, ...] | None = None
    metrics: tuple[str, ...] | None = None
    thresholds: Mapping[str, float] | None = None
    golden_id_attributes: tuple[str, ...] | None = None
    max_traces: int = DEFAULT_MAX_TRACES
    max_spans: int = DEFAULT_MAX_SPANS


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
    """Read the variables. Raises `ConfigurationError`, naming the variable, for what cannot be understood."""
    return Settings(
        goldens=_list(environment, GOLDENS),
        metrics=_list(environment, METRICS),
        thresholds=_thresholds(environment),
        golden_id_attributes=_list(environment, golden_ids.VARIABLE),
        max_traces=_number(environment, MAX_TRACES, DEFAULT_MAX_TRACES),
        max_spans=_number(environment, MAX_SPANS, DEFAULT_MAX_SPANS),
    )


def _list(environment: Mapping[str, str], variable: str) -> tuple[str, ...] | None:
    items = (item.strip() for item in environment.get(variable, "").split(","))
    return tuple(item for item in items if item) or None


def _thresholds(environment: Mapping[str, str]) -> dict[str, float] | None:
    items = _list(environment, THRESHOLDS)
    return None if items is None else dict(map(_threshold, items))


def _threshold(item: str) -> tuple[str, float]:
    metric, _, number = item.partition("=")
    try:
        return metric.strip(), float(number)
    except ValueError:
        raise ConfigurationError(f"{THRESHOLDS}: {item!r} is not of the form tool_correctness=0.8") from None


def _number(environment: Mapping[str, str], variable: str, default: int) -> int:
    text = environment.get(variable, "").strip()
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ConfigurationError(f"{variable}: {text!r} is not a whole number of at least 1")
    return int(text)
