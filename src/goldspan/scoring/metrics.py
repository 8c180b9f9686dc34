"""The metrics: each reads one number off a comparison. None of them compares anything itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

from goldspan.errors import ConfigurationError
from goldspan.goldens.words import did_you_mean, shown
from goldspan.model import COUNTED_KINDS, Comparison, Golden, ToolCall

Measure: TypeAlias = Callable[[Comparison], "float | None"]
"""Reads a number, usually 0 to 1, off a comparison; `None` where it cannot be known."""


def tool_correctness(seen: Comparison) -> float | None:
    """Of the expected tools, the share that was called as the golden's order wants it.

    With `order: exact` 1 if the calls are the expected ones and nothing else, else 0. Where nothing is expected, 1 if
    nothing was called, else 0.
    """
    extra = bool(seen.unexpected or seen.forbidden)
    expected = len(seen.pairs) + len(seen.missing)
    if not expected:
        return 0.0 if extra else 1.0
    order = seen.golden.order if seen.golden else "any"
    answered = len(seen.pairs) if order == "any" else _in_order(seen)
    return answered / expected if order != "exact" else float(answered == expected and not extra)


def tool_recall(seen: Comparison) -> float | None:
    """Of the expected tools, the share that was called."""
    expected = len(seen.pairs) + len(seen.missing)
    return len(seen.pairs) / expected if expected else None


def tool_precision(seen: Comparison) -> float | None:
    """Of the calls that count, the share that was expected."""
    called = len(seen.pairs) + len(seen.unexpected) + len(seen.forbidden)
    return len(seen.pairs) / called if called else None


def tool_f1(seen: Comparison) -> float | None:
    """The harmonic mean of recall and precision."""
    wrong = len(seen.missing) + len(seen.unexpected) + len(seen.forbidden)
    whole = 2 * len(seen.pairs) + wrong
    return 2 * len(seen.pairs) / whole if whole else None


def tool_order(seen: Comparison) -> float | None:
    """Of the expected tools that were called, the share that came in order."""
    return _in_order(seen) / len(seen.pairs) if seen.pairs else None


def argument_correctness(seen: Comparison) -> float | None:
    """How far the arguments agree, on average over the calls whose arguments are stated by the golden and captured."""
    shares = [pair.agreement.share for pair in seen.pairs if pair.agreement]
    return sum(shares) / len(shares) if shares else None


def forbidden_tools(seen: Comparison) -> float | None:
    """1 if no forbidden tool was called, else 0."""
    forbids = seen.golden is not None and seen.golden.forbid
    return float(not seen.forbidden) if forbids else None


def tool_success(seen: Comparison) -> float | None:
    """Of the calls that were made, the share that did not fail. Needs no golden."""
    calls = [row.called for row in seen.rows if row.called and _counts(row.called)]
    return sum(call.error is None for call in calls) / len(calls) if calls else None


def _in_order(seen: Comparison) -> int:
    return sum(pair.in_order is True for pair in seen.pairs)


def _counts(call: ToolCall) -> bool:
    return call.made and call.kind in COUNTED_KINDS


# --- the table --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Metric:
    """A measure with what is needed to make a score of it."""

    name: str
    measure: Measure
    threshold: Callable[[Golden], float] | None = None
    """Where given, the score is a gate: below this threshold the evaluation fails."""
    needs_golden: bool = True
    """Whether it says nothing about a run for which there is no golden."""
    unknown: Callable[[Comparison], str] = lambda seen: "nothing to measure"
    """Why there is no value, in half a sentence."""


MetricLike: TypeAlias = "str | Measure | tuple[str, Measure] | Metric"
"""A metric of the table by its name, a function of one's own, one with a name beside it, or a whole `Metric`."""


def _nothing_called(_: Comparison) -> str:
    return "no tool was called"


def _no_arguments(seen: Comparison) -> str:
    if seen.golden is None or all(tool.arguments is None for tool in seen.golden.calls):
        return "the golden states no arguments"
    if all(pair.expected is None or pair.expected.arguments is None for pair in seen.pairs):
        return "no tool whose arguments are stated was called"
    return "the arguments of the calls were not captured"


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("tool_correctness", tool_correctness, threshold=lambda golden: golden.threshold),
        Metric("tool_recall", tool_recall, unknown=lambda seen: "no tool was expected"),
        Metric("tool_precision", tool_precision, unknown=_nothing_called),
        Metric("tool_f1", tool_f1, unknown=lambda seen: "no tool was expected and none was called"),
        Metric("tool_order", tool_order, unknown=lambda seen: "no expected tool was called"),
        Metric(
            "argument_correctness",
            argument_correctness,
            threshold=lambda golden: golden.threshold,
            unknown=_no_arguments,
        ),
        Metric(
            "forbidden_tools",
            forbidden_tools,
            threshold=lambda golden: 1.0,
            unknown=lambda seen: "the golden forbids nothing",
        ),
        Metric("tool_success", tool_success, needs_golden=False, unknown=_nothing_called),
    )
}
"""Every metric by its name."""

DEFAULT_METRICS: tuple[str, ...] = tuple(METRICS)
"""What is measured where nothing else is asked for."""


def resolve(
    metrics: Iterable[MetricLike] | None = None, thresholds: Mapping[str, float] | None = None
) -> tuple[Metric, ...]:
    """The metrics that are meant, with the thresholds given here instead of their own.

    Raises `ConfigurationError` for a name that is unknown or there twice, and for a threshold of no metric.
    """
    if metrics is None and not thresholds:
        return _DEFAULT
    found: dict[str, Metric] = {}
    for given in DEFAULT_METRICS if metrics is None else _listed(metrics):
        metric = _metric(given)
        if metric.name in found:
            raise ConfigurationError(f"metric {metric.name!r} is there twice.")
        found[metric.name] = metric
    for name, threshold in (thresholds or {}).items():
        if name not in found:
            raise ConfigurationError(f"a threshold for the metric {name!r}, which is not measured.{_hint(name, found)}")
        found[name] = replace(found[name], threshold=_constant(threshold))
    return tuple(found.values())


_DEFAULT = tuple(METRICS.values())


def _listed(metrics: Iterable[MetricLike]) -> Iterable[MetricLike]:
    if isinstance(metrics, str) or not isinstance(metrics, Iterable):
        raise ConfigurationError(f"metrics must be a list, not {shown(metrics)}.")
    return metrics


def _metric(given: MetricLike) -> Metric:
    if isinstance(given, Metric):
        return given
    if isinstance(given, str):
        if given not in METRICS:
            raise ConfigurationError(f"unknown metric {given!r}.{_hint(given, METRICS)}")
        return METRICS[given]
    name, measure = given if isinstance(given, tuple) else (getattr(given, "__name__", ""), given)
    if not name or not callable(measure):
        raise ConfigurationError(f"{shown(given)} is no metric: neither a name nor a function of a comparison.")
    return Metric(name, measure)


def _hint(name: str, known: Iterable[str]) -> str:
    return did_you_mean(name, known) or f" There are {', '.join(known)}."


@lru_cache(maxsize=128)
def _constant(threshold: float) -> Callable[[Golden], float]:
    return lambda golden: threshold
