"""Defines what a metric is: a function of a comparison, and what turns its number into a score."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from goldspan.errors import ConfigurationError
from goldspan.goldens.spelling import did_you_mean, join_words, short_repr
from goldspan.model import AnyOf, Comparison, ComparisonRow, ExpectedTool, Golden, Parallel, ToolCall

THRESHOLD_TOLERANCE = 1e-9
"""A value reaches a threshold if it is at most this far below it, so that 0.1 + 0.2 reaches 0.3."""

_MAX_SHOWN = 5
_MAX_NAME_CHARACTERS = 60

Measure: TypeAlias = Callable[[Comparison], "float | None"]
"""Computes a number from a comparison, from 0 to 1, where 1 is good; `None` if the number is not known."""


class MetricEvidence(NamedTuple):
    """Rows or calls that a metric counted, with a label: `expected but not called: book x2`."""

    label: str
    """What the items have in common."""
    items: Sequence[ComparisonRow | ToolCall | str]
    """Rows and calls are shown by the name of their tool, and text unchanged. No item contains an argument's value."""
    is_fault: bool = False
    """Whether these items keep the number below 1."""

    @property
    def names(self) -> list[str]:
        """The name of each item."""
        return [_item_name(item) for item in self.items]

    def __str__(self) -> str:
        return f"{self.label}: {summarize_names(self.names)}"


Explainer: TypeAlias = Callable[[Comparison], Iterable[MetricEvidence]]
"""Returns the evidence for a metric's number."""


Threshold: TypeAlias = "float | Callable[[Golden], float | None] | None"
"""The least value that passes, or a function that returns it for a golden; `None`: the metric has no threshold."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A function of a comparison, and what turns its number into a score.

    Raises `ConfigurationError` for a field that is unknown or wrong.
    """

    name: str
    measure: Measure
    threshold: Threshold = None
    """The evaluation fails if the value is below this number, or below what this function returns for the golden."""
    needs_golden: bool = True
    """Whether the metric is not evaluated for a run without a golden."""
    why_missing: Callable[[Comparison], str] = lambda comparison: "nothing to measure"
    """Returns why there is no value, as a clause."""
    explain: Explainer | None = None
    """Returns the evidence for the number, from which the reason and the steps of a score are written."""
    needs_expectations: bool = False
    """Whether the metric is not evaluated for a policy, which expects no calls in particular."""
    has_unknowns: Callable[[Comparison], bool] = lambda comparison: True
    """Returns, where there is no value, whether something was not captured. It is false where there is nothing to
    measure, for example because no call was made. If it is true, a threshold of the metric is undecided."""
    bounds: Callable[[Comparison], tuple[float, float]] | None = None
    """Returns the least and the greatest value that are possible, for a metric that is computed from known calls only.
    A threshold between the two is undecided."""

    def __new__(cls, *values: Any, **fields: Any) -> Metric:
        """Raise `ConfigurationError` for a field that a metric does not have."""
        for field in fields.keys() - cls.__dataclass_fields__.keys():
            name = values[0] if values else fields.get("name")
            raise unknown_field_error(name, field, cls.__dataclass_fields__)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        check_name(self.name)
        check_threshold(self.name, self.threshold)
        _check_function(self.name, "measure", self.measure, "the comparison")
        for field in ("why_missing", "has_unknowns"):
            _check_function(self.name, field, getattr(self, field), "the comparison")
        for field in ("explain", "bounds"):
            if getattr(self, field) is not None:
                _check_function(self.name, field, getattr(self, field), "the comparison")
        for field in ("needs_golden", "needs_expectations"):
            check_boolean(self.name, field, getattr(self, field))

    def is_undecided(self, comparison: Comparison, threshold: float) -> bool:
        """Whether values that were not captured decide if the threshold is reached."""
        if self.bounds is None:
            return False
        least, greatest = self.bounds(comparison)
        return least < threshold - THRESHOLD_TOLERANCE <= greatest


MetricLike: TypeAlias = "str | Measure | tuple[str, Measure] | Metric"
"""The name of a metric, a function of a comparison, a name with a function, or a `Metric`."""


# --- checks of a declaration ------------------------------------------------------------------------------------------


def check_name(name: Any) -> None:
    """Raise `ConfigurationError` for a name that is not text or is empty."""
    if isinstance(name, str) and name.strip():
        return
    hint = " Write @goldspan.metric(NAME)." if callable(name) else ""
    raise ConfigurationError(f"the name of a metric must be text, not {short_repr(name)}.{hint}")


def check_threshold(name: str, threshold: Any) -> None:
    """Raise `ConfigurationError` for a threshold that is neither a number from 0 to 1, nor a function, nor `None`."""
    if threshold is None:
        return
    if callable(threshold):
        _check_function(name, "threshold", threshold, "the golden")
    elif isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
        raise ConfigurationError(
            f"metric {name!r}: threshold must be a number from 0 to 1 or a function of the golden, "
            f"not {short_repr(threshold)}."
        )


def check_boolean(name: str, field: str, value: Any) -> None:
    """Raise `ConfigurationError` for a field that is neither true nor false."""
    if not isinstance(value, bool):
        raise ConfigurationError(f"metric {name!r}: {field} must be True or False, not {short_repr(value)}.")


def unknown_field_error(name: object, field: str, known: Iterable[str]) -> ConfigurationError:
    """Returns the error for a field that a metric does not have. It names the nearest field."""
    hint = did_you_mean(field, known) or f" The fields are {join_words(known)}."
    return ConfigurationError(f"metric {short_repr(name)}: unknown field {field!r}.{hint}")


def _check_function(name: str, field: str, function: Any, parameter: str) -> None:
    """Raise `ConfigurationError` for what cannot be called with exactly one argument."""
    if not callable(function):
        raise ConfigurationError(
            f"metric {name!r}: {field} must be a function of {parameter}, not {short_repr(function)}."
        )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions that are written in C have no signature
        return
    try:
        signature.bind(None)
    except TypeError:
        raise ConfigurationError(
            f"metric {name!r}: {field} must take one argument, {parameter}; "
            f"{getattr(function, '__name__', type(function).__name__)}{signature} does not."
        ) from None


# --- names ------------------------------------------------------------------------------------------------------------


def alternative_calls(expected: ExpectedTool | AnyOf) -> Iterator[ExpectedTool]:
    """Yield each call that meets an expectation."""
    pending: list[ExpectedTool | AnyOf | Parallel] = [expected]
    while pending:
        item = pending.pop()
        if isinstance(item, ExpectedTool):
            yield item
        elif isinstance(item, Parallel):
            pending.extend(item.items)
        else:
            pending.extend(inner for option in item.options for inner in option)


def summarize_names(names: Sequence[str]) -> str:
    """Returns the names with their counts, such as `search x2 and book`: at most five, each shortened."""
    if not names:
        return "none"
    if len(names) == 1:
        return _shorten(names[0])
    shown = [_shorten(name) + (f" x{count}" if count > 1 else "") for name, count in Counter(names).items()]
    return (
        join_words(shown)
        if len(shown) <= _MAX_SHOWN
        else f"{', '.join(shown[:_MAX_SHOWN])} and {len(shown) - _MAX_SHOWN} more"
    )


def _item_name(item: ComparisonRow | ToolCall | str) -> str:
    if isinstance(item, ComparisonRow):
        tool = item.expected or item.called
        return tool.name if tool else ""
    return item if isinstance(item, str) else item.name


def _shorten(name: str) -> str:
    return name if len(name) <= _MAX_NAME_CHARACTERS else f"{name[: _MAX_NAME_CHARACTERS - 3]}..."
