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
from goldspan.goldens.spelling import did_you_mean, join_words, short_repr
from goldspan.model import Comparison, Golden
from goldspan.scoring.metrics import behaviour, call_correctness
from goldspan.scoring.metrics.metric import Measure, Metric, MetricLike


def correctness(*, idle: float | None = 1.0, uncalled_for: float | None = 0.0) -> Metric:
    """`tool_correctness` that says something else where nothing is expected.

    `idle` is its value where nothing was called, `uncalled_for` where something was; `None` makes no score of it.
    """

    def measure(seen: Comparison) -> float | None:
        if seen.pairs or seen.missing:
            return call_correctness.tool_correctness(seen)
        return uncalled_for if seen.unexpected or seen.forbidden else idle

    return replace(METRICS["tool_correctness"], measure=measure, why_missing=_constant_reason("nothing was expected"))


def _constant_reason(why: str) -> Callable[[Comparison], str]:
    return lambda seen: why


def _golden_threshold(golden: Golden) -> float:
    return golden.threshold


def _never_has_unknowns(seen: Comparison) -> bool:
    """That a metric has no value because there is nothing to measure."""
    return False


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            "tool_correctness",
            call_correctness.tool_correctness,
            threshold=_golden_threshold,
            explain=call_correctness.explain_correctness,
            needs_expectations=True,
        ),
        Metric(
            "tool_recall",
            call_correctness.tool_recall,
            has_unknowns=_never_has_unknowns,
            why_missing=_constant_reason("no tool was expected"),
            explain=call_correctness.explain_recall,
            needs_expectations=True,
        ),
        Metric(
            "tool_precision",
            call_correctness.tool_precision,
            has_unknowns=_never_has_unknowns,
            why_missing=_constant_reason("no tool was called"),
            explain=call_correctness.explain_precision,
            needs_expectations=True,
        ),
        Metric(
            "tool_f1",
            call_correctness.tool_f1,
            has_unknowns=_never_has_unknowns,
            why_missing=_constant_reason("no tool was expected and none was called"),
            explain=call_correctness.explain_f1,
            needs_expectations=True,
        ),
        Metric(
            "tool_order",
            call_correctness.tool_order,
            has_unknowns=_never_has_unknowns,
            why_missing=_constant_reason("no expected tool was called"),
            explain=call_correctness.explain_order,
            needs_expectations=True,
        ),
        Metric(
            "argument_correctness",
            call_correctness.argument_correctness,
            threshold=_golden_threshold,
            why_missing=call_correctness.why_missing_arguments,
            has_unknowns=_never_has_unknowns,  # what was not captured is known of each call by itself
            explain=call_correctness.explain_arguments,
            needs_expectations=True,
        ),
        Metric(
            "result_correctness",
            call_correctness.result_correctness,
            threshold=_golden_threshold,
            why_missing=call_correctness.why_missing_results,
            has_unknowns=_never_has_unknowns,
            explain=call_correctness.explain_results,
            needs_expectations=True,
        ),
        Metric(
            "effect_correctness",
            behaviour.effect_correctness,
            threshold=behaviour.effect_threshold,
            why_missing=behaviour.why_missing_effects,
            explain=behaviour.explain_effects,
            needs_expectations=True,
        ),
        Metric(
            "tool_success",
            behaviour.tool_success,
            has_unknowns=behaviour.has_calls,
            bounds=behaviour.success_bounds,
            needs_golden=False,
            why_missing=behaviour.why_missing_success,
            explain=behaviour.explain_success,
        ),
        Metric(
            "redundant_calls",
            behaviour.redundant_calls,
            has_unknowns=behaviour.has_calls,
            needs_golden=False,
            why_missing=behaviour.why_missing_redundant_calls,
            explain=behaviour.explain_redundant_calls,
        ),
        Metric(
            "unknown_tools",
            behaviour.unknown_tools,
            has_unknowns=behaviour.has_calls,
            needs_golden=False,
            why_missing=behaviour.why_missing_unknown_tools,
            explain=behaviour.explain_unknown_tools,
        ),
        Metric(
            "forbidden_tools",
            behaviour.forbidden_tools,
            has_unknowns=_never_has_unknowns,
            threshold=1.0,
            why_missing=_constant_reason("the golden forbids nothing"),
            explain=behaviour.explain_forbidden_tools,
        ),
        Metric(
            "call_budget",
            behaviour.call_budget,
            has_unknowns=_never_has_unknowns,
            threshold=1.0,
            why_missing=_constant_reason("the golden limits no calls"),
            explain=behaviour.explain_call_budget,
        ),
    )
}
"""Every metric of goldspan by its name."""

DEFAULT_METRICS: tuple[str, ...] = tuple(METRICS)
"""What is measured where nothing else is asked for."""

JUDGE_METRICS: Mapping[str, Metric] = {
    "tool_selection": Metric(
        "tool_selection",
        lambda _: None,
        needs_golden=False,
        why_missing=_constant_reason("no judge was asked about it"),
    )
}
"""Metrics that a model is asked for, so that their number comes later, and only where a judge is set up."""


ENTRY_POINT_GROUP = "goldspan.metrics"

BUILTIN_METRICS = tuple(METRICS.values())
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
        raise ConfigurationError(f"the name of a metric must be text, not {short_repr(name)}.")

    def register(measure: _M) -> _M:
        if not callable(measure):
            raise ConfigurationError(f"metric {name!r} must be a function of a comparison, not {short_repr(measure)}.")
        known = METRICS.get(name) or JUDGE_METRICS.get(name) or _registered.get(name)
        # A cell of a notebook that runs again, or a module that is loaded again, means the same metric.
        if known and (
            name in METRICS or name in JUDGE_METRICS or _qualified_name(known.measure) != _qualified_name(measure)
        ):
            raise ConfigurationError(f"there is a metric {name!r} already: {_qualified_name(known.measure)}.")
        _registered[name] = Metric(name, measure, threshold, needs_golden)
        return measure

    return register


def find_metric(name: str) -> Metric:
    """The metric of that name. Raises `ConfigurationError`, with the nearest name, where there is none."""
    found = _lookup_metric(name)
    if found is None:
        known = (*METRICS, *JUDGE_METRICS, *_registered, *_installed_metrics())
        raise ConfigurationError(f"unknown metric {name!r}.{_name_hint(name, known)}")
    return found


def resolve_metrics(
    metrics: Iterable[MetricLike] | None = None, thresholds: Mapping[str, float] | None = None
) -> tuple[Metric, ...]:
    """The metrics that are meant: those of `metrics`, else goldspan's own and what else has one of these thresholds.

    Raises `ConfigurationError` for a name that is unknown or there twice, for a threshold of a metric that is not
    measured, and for one that is no number.
    """
    if metrics is None and not thresholds:
        return BUILTIN_METRICS
    found: dict[str, Metric] = {}
    for given in METRICS if metrics is None else _require_iterable(metrics):
        chosen = _as_metric(given)
        if chosen.name in found:
            raise ConfigurationError(f"metric {chosen.name!r} is there twice.")
        found[chosen.name] = chosen
    for name, threshold in (thresholds or {}).items():
        if not isinstance(threshold, int | float) or threshold != threshold:  # type: ignore[redundant-expr]
            raise ConfigurationError(
                f"the threshold for the metric {name!r} must be a number, not {short_repr(threshold)}."
            )
        if metrics is None and name not in found:
            found[name] = find_metric(name)
        elif name not in found:
            raise ConfigurationError(
                f"a threshold for the metric {name!r}, which is not measured.{_name_hint(name, tuple(found))}"
            )
    return tuple(found.values())


def metrics_of_golden(golden: Golden, thresholds: Mapping[str, float] | None = None) -> tuple[Metric, ...]:
    """The metrics that a golden wants measured: those it lists, else the default ones, and those it has thresholds for.

    Raises `ConfigurationError`, naming the golden, for a name that is unknown.
    """
    if golden.metrics is None and not golden.thresholds:
        return resolve_metrics(None, thresholds)
    asked = METRICS if golden.metrics is None else golden.metrics
    wanted = dict.fromkeys((*asked, *golden.thresholds, *(thresholds or ())))
    try:
        return tuple([find_metric(name) for name in wanted])
    except ConfigurationError as error:
        raise ConfigurationError(f"golden {golden.id!r}: {error}") from None


def metrics_of_run(
    names: Iterable[str], golden: Golden | None = None, thresholds: Mapping[str, float] | None = None
) -> tuple[Metric, ...]:
    """The metrics that a run's own telemetry asks for, and those that have thresholds: nothing said there ends a gate.

    An unknown name is a metric that fails when it is measured, since no person is there to be told.
    """
    asked = [_lookup_metric(name) or _missing_metric(name) for name in dict.fromkeys(names)]
    limits = dict.fromkeys((*(golden.thresholds if golden is not None else ()), *(thresholds or ())))
    return (*asked, *[find_metric(name) for name in limits if name not in names])


def registered_name(given: MetricLike) -> str:
    """The name by which a metric can be asked for anywhere: a name itself, or that of a registered function.

    Raises `ConfigurationError` for what has no name in the registry.
    """
    if isinstance(given, str):
        return given
    measure = given.measure if isinstance(given, Metric) else given
    for name, known in (*METRICS.items(), *_registered.items(), *_installed_metrics().items()):
        if known is given or known.measure is measure:
            return name
    raise ConfigurationError(
        f"{short_repr(given)} is no registered metric: put @goldspan.metric(NAME) on it, and it is found by its name."
    )


def _lookup_metric(name: str) -> Metric | None:
    return METRICS.get(name) or JUDGE_METRICS.get(name) or _registered.get(name) or _installed_metrics().get(name)


def _missing_metric(name: str) -> Metric:
    def measure(seen: Comparison) -> float | None:
        return find_metric(name).measure(seen)

    return Metric(name, measure, needs_golden=False)


def _as_metric(given: MetricLike) -> Metric:
    if isinstance(given, Metric):
        return given
    if isinstance(given, str):
        return find_metric(given)
    name, measure = given if isinstance(given, tuple) and len(given) == 2 else (getattr(given, "__name__", ""), given)
    if not name or not isinstance(name, str) or not callable(measure):
        raise ConfigurationError(f"{short_repr(given)} is no metric: neither a name nor a function of a comparison.")
    return Metric(name, measure)


def _require_iterable(metrics: Iterable[MetricLike]) -> Iterable[MetricLike]:
    if isinstance(metrics, str) or not isinstance(metrics, Iterable):
        raise ConfigurationError(f"metrics must be a list, not {short_repr(metrics)}.")
    return metrics


def _qualified_name(measure: Any) -> str:
    """Where a function was written: `shop.metrics.few_calls`."""
    written = measure if hasattr(measure, "__qualname__") else type(measure)
    return f"{written.__module__}.{written.__qualname__}"


def _name_hint(name: str, known: tuple[str, ...]) -> str:
    return did_you_mean(name, known) or f" There are {join_words(known)}."


# --- entry points -----------------------------------------------------------------------------------------------------


@cache
def _installed_metrics() -> Mapping[str, Metric]:
    """The metrics of installed packages; what cannot be used is named in a warning and left out."""
    return dict(_load_entry_points())


def _load_entry_points() -> Iterator[tuple[str, Metric]]:
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name):
        try:
            loaded = point.load()
        except Exception as error:  # noqa: BLE001 - it is not our code
            _warn(f"the metric {point.name!r} cannot be loaded: {error}")
            continue
        if point.name in METRICS or point.name in JUDGE_METRICS:
            _warn(f"the entry point {point.name!r} of {ENTRY_POINT_GROUP} has the name of a metric of goldspan's own")
        elif isinstance(loaded, Metric):
            yield point.name, replace(loaded, name=point.name)
        elif callable(loaded):
            yield point.name, Metric(point.name, loaded)
        else:
            _warn(f"the entry point {point.name!r} of {ENTRY_POINT_GROUP} is no metric, but {short_repr(loaded)}")


def _warn(what: str) -> None:
    warnings.warn(what, GoldspanWarning, stacklevel=2)
