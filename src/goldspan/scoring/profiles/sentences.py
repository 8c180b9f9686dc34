"""What a profile's score says in one plain sentence. Tool names have no place here: a comparison names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from goldspan.scoring.profiles.formula import Formula

Account: TypeAlias = Callable[[float, int, int], str]
"""Half a sentence of the worth of all matches, the number of calls, and that of expectations."""


def sentence(formula: Formula, value: float, matched: float | None, called: int, expected: int) -> str:
    """Why the score is what it is."""
    if not called or not expected:
        told = _of_empty(called, expected)
    elif matched is None:
        told = _GATES[formula.gate](called, expected)
    else:
        told = MEASURES[formula.measure](matched, called, expected) + PAIRINGS.get(formula.pairing, "")
        if formula.strict and not value and matched:
            told += "; less than all counts for nothing"
    return f"{told[0].upper()}{told[1:]}."


def _of_empty(called: int, expected: int) -> str:
    if expected:
        return f"{_many(expected, 'call was', 'calls were')} expected, and none was made"
    made = f"but {_many(called, 'call was', 'calls were')} made" if called else "and nothing was called"
    return f"nothing was expected, {made}"


def _recall(matched: float, called: int, expected: int) -> str:
    return f"{matched:g} of {_many(expected, 'expected call', 'expected calls')} found"


def _precision(matched: float, called: int, expected: int) -> str:
    return f"{matched:g} of {_many(called, 'call', 'calls')} expected"


def _both(matched: float, called: int, expected: int) -> str:
    return f"{matched:g} matched of {_many(called, 'call', 'calls')} and {expected} expected"


MEASURES: Mapping[str, Account] = {
    "recall": _recall,
    "precision": _precision,
    "f1": _both,
    "all_expected": _recall,
    "all_called": _precision,
    "all": _both,
    "count": lambda matched, called, expected: f"{_many(int(matched), 'call', 'calls')} of the tool",
    "calls": lambda matched, called, expected: f"{_many(called, 'call was', 'calls were')} made",
}
"""By the axis `measure`."""

PAIRINGS: Mapping[str, str] = {
    "position": ", each at its place",
    "sorted": ", each at its place once sorted",
    "lcs": ", in order",
    "walk": ", in order up to the first that is missing",
}
"""By the axis `pairing`, where it says more than that each call counts once."""

_GATES: Mapping[str, Callable[[int, int], str]] = {
    "same_count": lambda called, expected: (
        f"{_many(called, 'call was', 'calls were')} made where {expected} {'was' if expected == 1 else 'were'} expected"
    ),
    "same_names": lambda called, expected: "the tools called are not those expected, in this order",
    "same_names_in_any_order": lambda called, expected: "the tools called are not those expected",
}


def _many(count: int, one: str, more: str) -> str:
    return f"{count} {one if count == 1 else more}"
