"""What peers make of the matches: the gates before them, and the number after."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Gate: TypeAlias = Callable[[list[Any], list[Any]], bool]
"""Whether a score may be more than 0, by what is compared of the names called and expected."""

Measure: TypeAlias = Callable[[float, int, int], float]
"""The score, of the worth of all matches, the number of calls, and that of expectations."""


def _same_count(called: list[Any], expected: list[Any]) -> bool:
    return len(called) == len(expected)


def _same_names(called: list[Any], expected: list[Any]) -> bool:
    return called == expected


def _same_names_in_any_order(called: list[Any], expected: list[Any]) -> bool:
    return sorted(called) == sorted(expected)


GATES: Mapping[str, Gate | None] = {
    "none": None,
    "same_count": _same_count,
    "same_names": _same_names,
    "same_names_in_any_order": _same_names_in_any_order,
}
"""The axis `gate`."""


def recall(matched: float, called: int, expected: int) -> float:
    """Of what was expected, the share that was called."""
    return matched / expected


def precision(matched: float, called: int, expected: int) -> float:
    """Of what was called, the share that was expected."""
    return matched / called


def f1(matched: float, called: int, expected: int) -> float:
    """The harmonic mean of the two as most people write it: 2PR / (P + R), with its noise in the last digit."""
    if not matched:
        return 0.0
    of_called, of_expected = matched / called, matched / expected
    return 2 * of_called * of_expected / (of_called + of_expected)


def all_expected(matched: float, called: int, expected: int) -> float:
    """1 if everything that was expected was called."""
    return float(matched == expected)


def all_called(matched: float, called: int, expected: int) -> float:
    """1 if everything that was called was expected."""
    return float(matched == called)


def all_of_both(matched: float, called: int, expected: int) -> float:
    """1 if either side holds nothing that the other does not."""
    return float(matched == called == expected)


def _always(measure: Measure) -> Callable[[float, float], Measure]:
    return lambda least, most: measure


def _count(least: float, most: float) -> Measure:
    return lambda matched, called, expected: float(least <= matched <= most)


def _count_of_calls(least: float, most: float) -> Measure:
    return lambda matched, called, expected: float(least <= called <= most)


MEASURES: Mapping[str, Callable[[float, float], Measure]] = {
    "recall": _always(recall),
    "precision": _always(precision),
    "f1": _always(f1),
    "all_expected": _always(all_expected),
    "all_called": _always(all_called),
    "all": _always(all_of_both),
    "count": _count,
    "calls": _count_of_calls,
}
"""The axis `measure`; each is told how many there must be at least and at most, which only counting measures mind."""
