"""Finds metrics by name: built-in ones, those of the program, and those of installed packages.

    @goldspan.metric("few_calls", threshold=0.8, needs_golden=False)
    def few_calls(comparison: goldspan.Comparison) -> float:
        return min(1.0, 3 / max(1, len(comparison.calls)))

A package offers a metric under an entry point of the group `goldspan.metrics`: a function of a comparison, or a
`Metric`. The name is then valid wherever a metric can be named: in `evaluate(metrics=...)`, on the command line, in
golden files.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NoReturn, TypeVar

from goldspan.errors import ConfigurationError, GoldspanWarning
from goldspan.goldens.spelling import did_you_mean, join_words, short_repr
from goldspan.model import Comparison, Golden
from goldspan.scoring.metrics import behaviour, call_correctness
from goldspan.scoring.metrics.metric import (
    Measure,
    Metric,
    MetricLike,
    check_boolean,
    check_name,
    check_threshold,
    unknown_field_error,
)


def correctness(*, idle: float | None = 1.0, uncalled_for: float | None = 0.0) -> Metric:
    """Returns `tool_correctness` with other values for goldens that expect no call.

    `idle` is the value where nothing was called, `uncalled_for` the value where something was; with `None` the metric
    is not evaluated.
    """

    def measure(comparison: Comparison) -> float | None:
        if comparison.pairs or comparison.missing:
            return call_correctness.tool_correctness(comparison)
        return uncalled_for if comparison.unexpected or comparison.forbidden else idle

    return replace(METRICS["tool_correctness"], measure=measure, why_missing=_constant_reason("nothing was expected"))


def _constant_reason(why: str) -> Callable[[Comparison], str]:
    return lambda comparison: why


def _golden_threshold(golden: Golden) -> float:
    return golden.threshold


def _never_has_unknowns(comparison: Comparison) -> bool:
    """Without a value there is nothing to measure: nothing is unknown."""
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
            has_unknowns=_never_has_unknowns,  # a call without captured arguments is unknown in itself
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
"""The metrics that `evaluate` measures if none are named."""

JUDGE_METRICS: Mapping[str, Metric] = {
    "tool_selection": Metric(
        "tool_selection",
        lambda _: None,
        needs_golden=False,
        why_missing=_constant_reason("no judge was asked about it"),
    )
}
"""Metrics whose number a model gives later, if a judge is set up."""


ENTRY_POINT_GROUP = "goldspan.metrics"

BUILTIN_METRICS = tuple(METRICS.values())
"""The metrics of `DEFAULT_METRICS`."""

_M = TypeVar("_M", bound=Measure)

_registered: dict[str, Metric] = {}


def metric(
    name: str,
    *,
    threshold: float | Callable[[Golden], float] | None = None,
    needs_golden: bool = True,
    **unknown: NoReturn,
) -> Callable[[_M], _M]:
    """Register a function of a comparison as a metric. The decorator returns the function unchanged.

    Args:
        name: The name by which the metric can be measured anywhere.
        threshold: The evaluation fails if the value is below this number, from 0 to 1, or below what this function
            returns for the golden.
        needs_golden: If false, the metric is also measured for runs that have no golden.
        **unknown: Refused; the error names the nearest field.

    Raises:
        ConfigurationError: A field is unknown or wrong, the function does not take exactly one argument, or another
            metric has the name.
    """
    check_name(name)
    for field in unknown:
        raise unknown_field_error(name, field, ("threshold", "needs_golden"))
    check_threshold(name, threshold)
    check_boolean(name, "needs_golden", needs_golden)
    if name in METRICS or name in JUDGE_METRICS:
        raise _taken_name_error(name, METRICS.get(name) or JUDGE_METRICS[name])

    def register(measure: _M) -> _M:
        declared = Metric(name, measure, threshold, needs_golden)
        known = _registered.get(name)
        # A notebook cell or a module that runs a second time declares the same metric again.
        if known and _qualified_name(known.measure) != _qualified_name(measure):
            raise _taken_name_error(name, known)
        _registered[name] = declared
        return measure

    return register


def _taken_name_error(name: str, known: Metric) -> ConfigurationError:
    is_builtin = name in METRICS or name in JUDGE_METRICS
    owner = "a built-in metric" if is_builtin else _qualified_name(known.measure)
    return ConfigurationError(f"metric {name!r}: name is already used by {owner}; choose another one.")


def find_metric(name: str) -> Metric:
    """Returns the metric of that name. Raises `ConfigurationError`, with the nearest name, if there is none."""
    found = _lookup_metric(name)
    if found is None:
        known = (*METRICS, *JUDGE_METRICS, *_registered, *_installed_metrics())
        raise ConfigurationError(f"unknown metric {name!r}.{_name_hint(name, known)}")
    return found


def resolve_metrics(
    metrics: Iterable[MetricLike] | None = None, thresholds: Mapping[str, float] | None = None
) -> tuple[Metric, ...]:
    """Returns the metrics of a list; without a list, the default ones and those that have one of these thresholds.

    Raises `ConfigurationError` for a name that is unknown or listed twice, for a threshold of a metric that is not
    measured, and for a threshold that is not a number.
    """
    if metrics is None and not thresholds:
        return BUILTIN_METRICS
    found: dict[str, Metric] = {}
    for item in METRICS if metrics is None else _require_iterable(metrics):
        resolved = _as_metric(item)
        if resolved.name in found:
            raise ConfigurationError(f"metric {resolved.name!r} is listed twice.")
        found[resolved.name] = resolved
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
    """Returns the metrics that a golden lists, else the default ones, and those that have thresholds.

    Raises `ConfigurationError`, naming the golden, for a name that is unknown.
    """
    if golden.metrics is None and not golden.thresholds:
        return resolve_metrics(None, thresholds)
    listed = METRICS if golden.metrics is None else golden.metrics
    names = dict.fromkeys((*listed, *golden.thresholds, *(thresholds or ())))
    try:
        return tuple([find_metric(name) for name in names])
    except ConfigurationError as error:
        raise ConfigurationError(f"golden {golden.id!r}: {error}") from None


def metrics_of_run(
    names: Iterable[str], golden: Golden | None = None, thresholds: Mapping[str, float] | None = None
) -> tuple[Metric, ...]:
    """Returns the metrics that a run's telemetry names, and those that have thresholds.

    Telemetry cannot remove a threshold. An unknown name becomes a metric that raises when it is measured, so that the
    mistake appears in a score: no caller could handle an exception.
    """
    named = [_lookup_metric(name) or _missing_metric(name) for name in dict.fromkeys(names)]
    limits = dict.fromkeys((*(golden.thresholds if golden is not None else ()), *(thresholds or ())))
    return (*named, *[find_metric(name) for name in limits if name not in names])


def registered_name(metric_like: MetricLike) -> str:
    """Returns the name under which a metric is registered; a name is returned unchanged.

    Raises `ConfigurationError` for a metric that is not registered.
    """
    if isinstance(metric_like, str):
        return metric_like
    measure = metric_like.measure if isinstance(metric_like, Metric) else metric_like
    for name, known in (*METRICS.items(), *_registered.items(), *_installed_metrics().items()):
        if known is metric_like or known.measure is measure:
            return name
    raise ConfigurationError(
        f"{short_repr(metric_like)} is not a registered metric: decorate it with @goldspan.metric(NAME)."
    )


def _lookup_metric(name: str) -> Metric | None:
    return METRICS.get(name) or JUDGE_METRICS.get(name) or _registered.get(name) or _installed_metrics().get(name)


def _missing_metric(name: str) -> Metric:
    def measure(comparison: Comparison) -> float | None:
        return find_metric(name).measure(comparison)

    return Metric(name if name.strip() else "unnamed", measure, needs_golden=False)


def _as_metric(metric_like: MetricLike) -> Metric:
    if isinstance(metric_like, Metric):
        return metric_like
    if isinstance(metric_like, str):
        return find_metric(metric_like)
    if isinstance(metric_like, tuple) and len(metric_like) == 2:
        name, measure = metric_like
    else:
        name, measure = getattr(metric_like, "__name__", ""), metric_like
    if not isinstance(name, str) or not name or not callable(measure):  # type: ignore[redundant-expr]
        raise ConfigurationError(
            f"{short_repr(metric_like)} is not a metric: neither a name nor a function of a comparison."
        )
    return Metric(name, measure)


def _require_iterable(metrics: Iterable[MetricLike]) -> Iterable[MetricLike]:
    if isinstance(metrics, str) or not isinstance(metrics, Iterable):
        raise ConfigurationError(f"metrics must be a list, not {short_repr(metrics)}.")
    return metrics


def _qualified_name(measure: Any) -> str:
    """Returns where a function is defined: `shop.metrics.few_calls`."""
    definition = measure if hasattr(measure, "__qualname__") else type(measure)
    return f"{definition.__module__}.{definition.__qualname__}"


def _name_hint(name: str, known: tuple[str, ...]) -> str:
    return did_you_mean(name, known) or f" There are {join_words(known)}."


# --- entry points -----------------------------------------------------------------------------------------------------


@cache
def _installed_metrics() -> Mapping[str, Metric]:
    """Returns the metrics of installed packages. A broken one is left out with a warning that names its package."""
    found: dict[str, Metric] = {}
    packages: dict[str, str] = {}
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name):
        package = _package_of(point)
        try:
            if point.name in packages:
                raise ConfigurationError(
                    f"metric {point.name!r}: name is already used by the package {packages[point.name]!r}."
                )
            found[point.name] = _load_entry_point(point)
            packages[point.name] = package
        except ConfigurationError as error:
            _warn(package, str(error))
        except Exception as error:  # noqa: BLE001 - the package's own code failed
            _warn(package, f"metric {point.name!r}: loading {point.value} raised {type(error).__name__}: {error}")
    return found


def _load_entry_point(point: EntryPoint) -> Metric:
    """Raises `ConfigurationError` for an entry point that is not a metric, and whatever importing it raises."""
    check_name(point.name)
    if point.name in METRICS or point.name in JUDGE_METRICS:
        raise ConfigurationError(f"metric {point.name!r}: name is already used by a built-in metric.")
    loaded = point.load()
    return replace(loaded, name=point.name) if isinstance(loaded, Metric) else Metric(point.name, loaded)


def _package_of(point: EntryPoint) -> str:
    """Returns the name of the distribution that declares an entry point."""
    return point.dist.name if point.dist is not None else point.value


def _warn(package: str, problem: str) -> None:
    warnings.warn(
        f"goldspan leaves out a metric of the package {package!r}: {problem.rstrip('.')}", GoldspanWarning, stacklevel=2
    )
