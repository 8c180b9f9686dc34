"""Metrics by name: goldspan's, those that a program registers, and those of packages that are installed.

    @goldspan.metric("few_calls", threshold=0.8, needs_golden=False)
    def few_calls(seen: goldspan.Comparison) -> float:
        return min(1.0, 3 / max(1, len(seen.calls)))

A package offers one under an entry point of the group `goldspan.metrics`: a function of a comparison, or a `Metric`. A
name is then good wherever a metric is asked for: in `evaluate(metrics=...)`, on the command line, in golden files.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeVar

from goldspan.errors import ConfigurationError, GoldspanWarning
from goldspan.goldens.words import did_you_mean, listed, shown
from goldspan.model import Comparison, Golden
from goldspan.scoring.metrics import ASKED_METRICS, METRICS, Measure, Metric, MetricLike

GROUP = "goldspan.metrics"

OWN_METRICS = tuple(METRICS.values())
"""What is measured where nothing else is asked for."""

_M = TypeVar("_M", bound=Measure)

_registered: dict[str, Metric] = {}


def metric(
    name: str,
    *,
    threshold: float | Callable[[Golden], float] | None = None,
    needs_golden: bool = True,
) -> Callable[[_M], _M]:
    """Register a function of a comparison as a metric. The function stays what it was.

    With a `threshold` it is a gate wherever it is measured; with `needs_golden=False` it is also measured of runs that
    have no golden. Raises `ConfigurationError` for a name that another metric has.
    """
    if not isinstance(name, str) or not name.strip():  # type: ignore[redundant-expr]
        raise ConfigurationError(f"the name of a metric must be text, not {shown(name)}.")

    def register(measure: _M) -> _M:
        if not callable(measure):
            raise ConfigurationError(f"metric {name!r} must be a function of a comparison, not {shown(measure)}.")
        known = METRICS.get(name) or ASKED_METRICS.get(name) or _registered.get(name)
        # A cell of a notebook that runs again, or a module that is loaded again, means the same metric.
        if known and (name in METRICS or name in ASKED_METRICS or _home(known.measure) != _home(measure)):
            raise ConfigurationError(f"there is a metric {name!r} already: {_home(known.measure)}.")
        _registered[name] = Metric(name, measure, threshold, needs_golden)
        return measure

    return register


def find(name: str) -> Metric:
    """The metric of that name. Raises `ConfigurationError`, with the nearest name, where there is none."""
    found = _known(name)
    if found is None:
        known = (*METRICS, *ASKED_METRICS, *_registered, *_of_packages())
        raise ConfigurationError(f"unknown metric {name!r}.{_hint(name, known)}")
    return found


def resolve(
    metrics: Iterable[MetricLike] | None = None, thresholds: Mapping[str, float] | None = None
) -> tuple[Metric, ...]:
    """The metrics that are meant: those of `metrics`, else goldspan's own and what else has one of these thresholds.

    Raises `ConfigurationError` for a name that is unknown or there twice, for a threshold of a metric that is not
    measured, and for one that is no number.
    """
    if metrics is None and not thresholds:
        return OWN_METRICS
    found: dict[str, Metric] = {}
    for given in METRICS if metrics is None else _items(metrics):
        chosen = _metric(given)
        if chosen.name in found:
            raise ConfigurationError(f"metric {chosen.name!r} is there twice.")
        found[chosen.name] = chosen
    for name, threshold in (thresholds or {}).items():
        if not isinstance(threshold, int | float) or threshold != threshold:  # type: ignore[redundant-expr]
            raise ConfigurationError(f"the threshold for the metric {name!r} must be a number, not {shown(threshold)}.")
        if metrics is None and name not in found:
            found[name] = find(name)
        elif name not in found:
            raise ConfigurationError(
                f"a threshold for the metric {name!r}, which is not measured.{_hint(name, tuple(found))}"
            )
    return tuple(found.values())


def measured_by(golden: Golden, thresholds: Mapping[str, float] | None = None) -> tuple[Metric, ...]:
    """The metrics that a golden wants measured: those it lists, else the default ones, and those it has thresholds for.

    Raises `ConfigurationError`, naming the golden, for a name that is unknown.
    """
    if golden.metrics is None and not golden.thresholds:
        return resolve(None, thresholds)
    asked = METRICS if golden.metrics is None else golden.metrics
    wanted = dict.fromkeys((*asked, *golden.thresholds, *(thresholds or ())))
    try:
        return tuple([find(name) for name in wanted])
    except ConfigurationError as error:
        raise ConfigurationError(f"golden {golden.id!r}: {error}") from None


def asked_by(
    names: Iterable[str], golden: Golden | None = None, thresholds: Mapping[str, float] | None = None
) -> tuple[Metric, ...]:
    """The metrics that a run's own telemetry asks for, and those that have thresholds: nothing said there ends a gate.

    An unknown name is a metric that fails when it is measured, since no person is there to be told.
    """
    asked = [_known(name) or _unheard_of(name) for name in dict.fromkeys(names)]
    limits = dict.fromkeys((*(golden.thresholds if golden is not None else ()), *(thresholds or ())))
    return (*asked, *[find(name) for name in limits if name not in names])


def registered_name(given: MetricLike) -> str:
    """The name by which a metric can be asked for anywhere: a name itself, or that of a registered function.

    Raises `ConfigurationError` for what has no name in the registry.
    """
    if isinstance(given, str):
        return given
    measure = given.measure if isinstance(given, Metric) else given
    for name, known in (*METRICS.items(), *_registered.items(), *_of_packages().items()):
        if known is given or known.measure is measure:
            return name
    raise ConfigurationError(
        f"{shown(given)} is no registered metric: put @goldspan.metric(NAME) on it, and it is found by its name."
    )


def _known(name: str) -> Metric | None:
    return METRICS.get(name) or ASKED_METRICS.get(name) or _registered.get(name) or _of_packages().get(name)


def _unheard_of(name: str) -> Metric:
    def measure(seen: Comparison) -> float | None:
        return find(name).measure(seen)

    return Metric(name, measure, needs_golden=False)


def _metric(given: MetricLike) -> Metric:
    if isinstance(given, Metric):
        return given
    if isinstance(given, str):
        return find(given)
    name, measure = given if isinstance(given, tuple) and len(given) == 2 else (getattr(given, "__name__", ""), given)
    if not name or not isinstance(name, str) or not callable(measure):
        raise ConfigurationError(f"{shown(given)} is no metric: neither a name nor a function of a comparison.")
    return Metric(name, measure)


def _items(metrics: Iterable[MetricLike]) -> Iterable[MetricLike]:
    if isinstance(metrics, str) or not isinstance(metrics, Iterable):
        raise ConfigurationError(f"metrics must be a list, not {shown(metrics)}.")
    return metrics


def _home(measure: Any) -> str:
    """Where a function was written: `shop.metrics.few_calls`."""
    written = measure if hasattr(measure, "__qualname__") else type(measure)
    return f"{written.__module__}.{written.__qualname__}"


def _hint(name: str, known: tuple[str, ...]) -> str:
    return did_you_mean(name, known) or f" There are {listed(known)}."


# --- entry points -----------------------------------------------------------------------------------------------------


@cache
def _of_packages() -> Mapping[str, Metric]:
    """The metrics of installed packages; what cannot be used is named in a warning and left out."""
    return dict(_offered())


def _offered() -> Iterator[tuple[str, Metric]]:
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            loaded = point.load()
        except Exception as error:  # noqa: BLE001 - it is not our code
            _warn(f"the metric {point.name!r} cannot be loaded: {error}")
            continue
        if point.name in METRICS or point.name in ASKED_METRICS:
            _warn(f"the entry point {point.name!r} of {GROUP} has the name of a metric of goldspan's own")
        elif isinstance(loaded, Metric):
            yield point.name, replace(loaded, name=point.name)
        elif callable(loaded):
            yield point.name, Metric(point.name, loaded)
        else:
            _warn(f"the entry point {point.name!r} of {GROUP} is no metric, but {shown(loaded)}")


def _warn(what: str) -> None:
    warnings.warn(what, GoldspanWarning, stacklevel=2)
