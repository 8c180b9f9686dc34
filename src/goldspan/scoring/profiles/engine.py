"""The one engine: it computes what a formula says, whoever's formula it is."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Mapping
from typing import Any, TypeAlias

from goldspan.scoring.profiles.answers import allowed_values
from goldspan.scoring.profiles.arguments import EQUALS_AGREE, KEYS, WEIGHTS, Weigh, fuzzy, hashed
from goldspan.scoring.profiles.formula import Formula, WhenEmpty
from goldspan.scoring.profiles.measures import GATES, MEASURES, Measure
from goldspan.scoring.profiles.names import NAMES
from goldspan.scoring.profiles.pairing import (
    ASSIGNMENTS,
    BY_NAME,
    IN_PLACE,
    PAIRINGS,
    Agree,
    Board,
    PairNames,
    distinct,
)
from goldspan.scoring.profiles.reading import FUNCTION, Side
from goldspan.scoring.profiles.views import PROBES, VIEWS

Tally: TypeAlias = "tuple[float | None, int, int]"
"""What the engine counted in one case: what the pairs are worth in all, and how many calls and expectations were looked
at. Their worth is `None` where the gate is closed, and has no meaning where a side is empty."""


class NotScored(Exception):  # noqa: N818 - an outcome, not an error
    """There is no number; the text says what the peer does instead."""


class Engine:
    """A formula, ready to be computed."""

    def __init__(self, formula: Formula) -> None:
        self.formula = formula
        self._names = NAMES[formula.name]
        self._weigh = _weight_rule(formula)
        self._pair = ASSIGNMENTS[formula.assign] if formula.pairing == "one_to_one" else PAIRINGS[formula.pairing]
        self._key = KEYS.get(formula.args)
        self._gate = GATES[formula.gate]
        self._measure = _measure_rule(formula)
        self._probe = PROBES[formula.probe]
        self._view = VIEWS[formula.view]
        self.looks_inside = self._weigh is not None or formula.output
        """Whether it looks at more than names."""
        self._pair_names = None if self.looks_inside else _name_rule(formula)
        self.sees_sameness = _sees_sameness(formula)
        """Whether equal sides need not be weighed: a call and its equal are certain to be a pair that is worth 1."""
        self._meets_in_place = (formula.assign if formula.pairing == "one_to_one" else formula.pairing) in IN_PLACE
        self._chooses = (
            formula.needs_model is not None
            or self._names.key is not None
            or formula.types
            or formula.failed == "skip"
            or self._probe is not None
        )
        self.reads_names = self._pair_names is not None and not self._chooses
        """Whether two lists of names are all it needs: `tally_names` is to take no longer than the peer's own loop."""

    def tally(self, called: Side, expected: Side, case: Mapping[str, Any] | None = None) -> Tally:
        """Count in one case. `case` is what the view needs beside the two sides. Raises `NotScored`."""
        if self._chooses:
            called, expected = self._chosen(called, expected)
        if self._pair_names is not None:
            return self.tally_names(called.keys, expected.keys)
        if self._stay_unpaired(called.keys, expected.keys):
            return None, len(called.keys), len(expected.keys)
        if self.looks_inside:
            called, expected = self._seen_inside(called, expected, case)
        return self._matched(called, expected)

    def tally_names(self, called: list[Any], expected: list[Any], case: Mapping[str, Any] | None = None) -> Tally:
        """The same by names alone, where `reads_names` says that they do."""
        assert self._pair_names is not None
        if self._gate is not None and self._stay_unpaired(called, expected):
            return None, len(called), len(expected)
        return self._pair_names(expected, called), len(called), len(expected)

    def value(self, matched: float | None, called: int, expected: int) -> float:
        """The score that a tally comes to, which nothing else has a say in. Raises `NotScored`."""
        if called and expected:
            return 0.0 if matched is None else self._measure(matched, called, expected)
        score = self._when_empty(called, expected)
        if score == "raises":
            raise NotScored(f"raises {self.formula.raises}")
        return self._measure(0, called, expected) if score == "measured" else score

    def _stay_unpaired(self, called: list[Any], expected: list[Any]) -> bool:
        """Whether no pairs are needed: where a side is empty or the gate is closed."""
        if called and expected:
            return self._gate is not None and not self._gate(called, expected)
        return self._when_empty(len(called), len(expected)) != "measured"

    def _chosen(self, called: Side, expected: Side) -> tuple[Side, Side]:
        """What is looked at of either side. Raises `NotScored` where it is a model that looks."""
        if self.formula.needs_model is not None:
            raise NotScored(self.formula.needs_model)
        if self.formula.failed == "skip" and any(failed := called.failed):
            called = called.at([at for at, skipped in enumerate(failed) if not skipped])
        self._set_keys(called)
        self._set_keys(expected)
        return (called, expected) if self._probe is None else self._probe(called, expected, self.formula)

    def _set_keys(self, side: Side) -> None:
        """Put there what of the names is compared."""
        if self._names.key is not None:
            side.keys = list(map(self._names.key, side.names))
        if self.formula.types and (types := side.types):
            typed = zip(side.keys, types, strict=True)
            side.keys = [key if kind == FUNCTION else (key, kind) for key, kind in typed]

    def _when_empty(self, called: int, expected: int) -> WhenEmpty:
        return self.formula.empty[0 if called == expected else 1 if called else 2]

    def _seen_inside(self, called: Side, expected: Side, case: Mapping[str, Any] | None) -> tuple[Side, Side]:
        if self.formula.no_args == "empty":
            called, expected = _without_none(called), _without_none(expected)
        return (called, expected) if self._view is None else self._view(called, expected, self.formula, case)

    def _matched(self, called: Side, expected: Side) -> tuple[float, int, int]:
        """What all pairs are worth, and how many calls and expectations there were to be paired."""
        if self.formula.collapse != "none":
            return self._collapsed(called, expected)
        n_called, n_expected = len(called.keys), len(expected.keys)
        if self.sees_sameness and self._same(called, expected):
            return n_called, n_called, n_expected
        drives = self.formula.drive == "expected"
        matched = self._pair(self._board(called, expected)) if drives else self._driven(called, expected)
        return matched, n_called, n_expected

    def _same(self, called: Side, expected: Side) -> bool:
        """Whether the sides are equal and every call certainly meets its equal.

        Most runs are as expected, and to see that takes less time than to weigh pairs. Arguments that are no
        dictionaries may not agree with themselves.
        """
        if called.keys != expected.keys or not (self._meets_in_place or _all_differ(called, expected)):
            return False
        if self._weigh is None:
            return True
        return called.arguments == expected.arguments and called.holds_dictionaries and expected.holds_dictionaries

    def _driven(self, called: Side, expected: Side) -> float:
        """The calls ask, or both sides do."""
        swapped = self.formula.swapped
        board = self._board(expected, called) if swapped else self._board(called, expected).turned()
        matched = self._pair(board)
        return min(matched, self._pair(self._board(called, expected))) if self.formula.drive == "each" else matched

    def _board(self, called: Side, expected: Side) -> Board:
        agree = self._agreement(called, expected) if self.looks_inside else None
        return Board(expected, called, self._names.alike, agree)

    def _agreement(self, called: Side, expected: Side) -> Agree:
        weigh, other_rules, wanted, given = self._weigh, self.formula.args_of, expected.arguments, called.arguments
        if weigh is not None and not other_rules and not self.formula.output:
            return lambda asking, answering: weigh(wanted[asking], given[answering])
        names = expected.names
        outputs = (expected.outputs, called.outputs) if self.formula.output else None

        def agree(asking: int, answering: int) -> float:
            rule = other_rules.get(names[asking], weigh)
            worth = rule(wanted[asking], given[answering]) if rule else 1.0
            return 0.0 if outputs and outputs[0][asking] != outputs[1][answering] else worth

        return agree

    def _collapsed(self, called: Side, expected: Side) -> tuple[int, int, int]:
        """Matches and lengths, where equal calls are one: equality of content leaves nothing to assign."""
        made = self._distinct(called)
        # Most runs are as expected. Then one look is enough, if whatever is equal has the same key.
        sure = self._key is hashed and called.keys == expected.keys and called.arguments == expected.arguments
        wanted = made if sure else self._distinct(expected)
        matched = len(made & wanted)
        if self.formula.collapse == "matched":
            return matched, len(called.names), len(expected.names)
        return matched, len(made), len(wanted)

    def _distinct(self, side: Side) -> set[Hashable]:
        return set(zip(side.keys, map(self._key, side.arguments), strict=True)) if self._key else set(side.keys)


def _weight_rule(formula: Formula) -> Weigh | None:
    if formula.args == "fuzzy":
        return fuzzy(formula.least_similarity)
    if formula.args == "allowed":
        return allowed_values
    return WEIGHTS[formula.args] if formula.args != "ignore" or formula.args_of else None


def _sees_sameness(formula: Formula) -> bool:
    if formula.args_of or formula.output or NAMES[formula.name].alike is not operator.eq:
        return False
    return formula.args == "ignore" or formula.args in EQUALS_AGREE


def _all_differ(called: Side, expected: Side) -> bool:
    """Whether no name is there twice, however it is compared: then nobody but its equal is named like a call."""
    as_written = called.keys is called.names and expected.keys is expected.names
    return as_written and len(set(called.names)) == len(called.names)


def _name_rule(formula: Formula) -> PairNames | None:
    """How equal names are paired if nothing else matters; `None` where it takes more than the two lists of names."""
    if formula.collapse == "both" or NAMES[formula.name].alike is not operator.eq:
        return None
    if formula.collapse == "matched":
        return distinct
    rule = BY_NAME.get(formula.assign if formula.pairing == "one_to_one" else formula.pairing)
    if rule is None or formula.drive == "expected":
        return rule
    if formula.drive == "called":
        return lambda expected, called: rule(called, expected)
    return lambda expected, called: min(rule(called, expected), rule(expected, called))


def _measure_rule(formula: Formula) -> Measure:
    """The measure, and what is made of its number."""
    measure, digits = MEASURES[formula.measure](formula.least, formula.most), formula.digits
    if digits is not None:
        return lambda matched, called, expected: round(measure(matched, called, expected), digits)
    if formula.strict:
        return lambda matched, called, expected: _whole(measure(matched, called, expected))
    return measure


def _whole(value: float) -> float:
    return 0.0 if value < 1 else value


def _without_none(side: Side) -> Side:
    arguments = side.arguments
    return side.holding([{} if given is None else given for given in arguments]) if None in arguments else side
