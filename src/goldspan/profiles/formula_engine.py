"""The one engine: it computes what a formula says, whoever's formula it is."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeAlias

from goldspan.profiles.case_sides import FUNCTION_TYPE, CaseSide
from goldspan.profiles.comparison_rules import (
    ARGUMENT_RULES,
    COLLAPSE_KEYS,
    FULL_SCORE_IF_EQUAL,
    NAME_RULES,
    ArgumentRule,
    fuzzy_rule,
    hashable_value,
)
from goldspan.profiles.peer_options import EmptyScore, Formula
from goldspan.profiles.side_pairing import (
    ASSIGNMENTS,
    NAME_PAIRINGS,
    PAIRINGS,
    PAIRS_EQUAL_SIDES_IN_PLACE,
    NamePairing,
    PairWeight,
    SidePair,
    count_distinct_shared_names,
)
from goldspan.profiles.side_preprocessing import PREPROCESSINGS, SELECTIONS, match_bfcl_answer

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


def measure_recall(matched: float, called: int, expected: int) -> float:
    """Of what was expected, the share that was called."""
    return matched / expected


def measure_precision(matched: float, called: int, expected: int) -> float:
    """Of what was called, the share that was expected."""
    return matched / called


def measure_f1(matched: float, called: int, expected: int) -> float:
    """The harmonic mean of the two as most people write it: 2PR / (P + R), with its noise in the last digit."""
    if not matched:
        return 0.0
    of_called, of_expected = matched / called, matched / expected
    return 2 * of_called * of_expected / (of_called + of_expected)


def all_expected_called(matched: float, called: int, expected: int) -> float:
    """1 if everything that was expected was called."""
    return float(matched == expected)


def all_calls_expected(matched: float, called: int, expected: int) -> float:
    """1 if everything that was called was expected."""
    return float(matched == called)


def all_matched(matched: float, called: int, expected: int) -> float:
    """1 if either side holds nothing that the other does not."""
    return float(matched == called == expected)


def _ignore_bounds(measure: Measure) -> Callable[[float, float], Measure]:
    return lambda least, most: measure


def _matched_count_within(least: float, most: float) -> Measure:
    return lambda matched, called, expected: float(least <= matched <= most)


def _call_count_within(least: float, most: float) -> Measure:
    return lambda matched, called, expected: float(least <= called <= most)


MEASURES: Mapping[str, Callable[[float, float], Measure]] = {
    "recall": _ignore_bounds(measure_recall),
    "precision": _ignore_bounds(measure_precision),
    "f1": _ignore_bounds(measure_f1),
    "all_expected": _ignore_bounds(all_expected_called),
    "all_called": _ignore_bounds(all_calls_expected),
    "all": _ignore_bounds(all_matched),
    "count": _matched_count_within,
    "calls": _call_count_within,
}
"""The axis `measure`; each is told how many there must be at least and at most, which only counting measures mind."""


MatchCounts: TypeAlias = "tuple[float | None, int, int]"
"""What the engine counted in one case: what the pairs are worth in all, and how many calls and expectations were looked
at. Their worth is `None` where the gate is closed, and has no meaning where a side is empty."""


class NotScoredError(Exception):
    """There is no number; the text says what the peer does instead."""


class FormulaEngine:
    """A formula, ready to be computed."""

    def __init__(self, formula: Formula) -> None:
        self.formula = formula
        self._names = NAME_RULES[formula.name_rule]
        self._argument_rule = _argument_rule_of(formula)
        self._pair = ASSIGNMENTS[formula.assignment] if formula.pairing == "one_to_one" else PAIRINGS[formula.pairing]
        self._key = COLLAPSE_KEYS.get(formula.argument_rule)
        self._gate = GATES[formula.gate]
        self._measure = _measure_of(formula)
        self._selection = SELECTIONS[formula.selection]
        self._preprocessing = PREPROCESSINGS[formula.preprocessing]
        self.compares_content = self._argument_rule is not None or formula.compares_outputs
        """Whether it looks at more than names."""
        self._pair_names = None if self.compares_content else _name_pairing_of(formula)
        self.has_equality_shortcut = _allows_equality_shortcut(formula)
        """Whether equal sides need not be weighed: a call and its equal are certain to be a pair that is worth 1."""
        self._pairs_in_place = (
            formula.assignment if formula.pairing == "one_to_one" else formula.pairing
        ) in PAIRS_EQUAL_SIDES_IN_PLACE
        self._needs_selection = (
            formula.needs_model is not None
            or self._names.key is not None
            or formula.compares_types
            or formula.failed_calls == "skip"
            or self._selection is not None
        )
        self.needs_only_names = self._pair_names is not None and not self._needs_selection
        """Whether two lists of names are all it needs: `count_name_matches` is to take no longer than the peer's own loop."""

    def count_matches(self, called: CaseSide, expected: CaseSide, case: Mapping[str, Any] | None = None) -> MatchCounts:
        """Count in one case. `case` is what the view needs beside the two sides. Raises `NotScored`."""
        if self._needs_selection:
            called, expected = self._select_items(called, expected)
        if self._pair_names is not None:
            return self.count_name_matches(called.keys, expected.keys)
        if self._skip_pairing(called.keys, expected.keys):
            return None, len(called.keys), len(expected.keys)
        if self.compares_content:
            called, expected = self._preprocess(called, expected, case)
        return self._count_pairs(called, expected)

    def count_name_matches(
        self, called: list[Any], expected: list[Any], case: Mapping[str, Any] | None = None
    ) -> MatchCounts:
        """The same by names alone, where `needs_only_names` says that they do."""
        assert self._pair_names is not None
        if self._gate is not None and self._skip_pairing(called, expected):
            return None, len(called), len(expected)
        return self._pair_names(expected, called), len(called), len(expected)

    def score_of(self, matched: float | None, called: int, expected: int) -> float:
        """The score that a tally comes to, which nothing else has a say in. Raises `NotScored`."""
        if called and expected:
            return 0.0 if matched is None else self._measure(matched, called, expected)
        score = self._empty_score(called, expected)
        if score == "raises":
            raise NotScoredError(f"raises {self.formula.raised_error}")
        return self._measure(0, called, expected) if score == "measured" else score

    def _skip_pairing(self, called: list[Any], expected: list[Any]) -> bool:
        """Whether no pairs are needed: where a side is empty or the gate is closed."""
        if called and expected:
            return self._gate is not None and not self._gate(called, expected)
        return self._empty_score(len(called), len(expected)) != "measured"

    def _select_items(self, called: CaseSide, expected: CaseSide) -> tuple[CaseSide, CaseSide]:
        """What is looked at of either side. Raises `NotScored` where it is a model that looks."""
        if self.formula.needs_model is not None:
            raise NotScoredError(self.formula.needs_model)
        if self.formula.failed_calls == "skip" and any(failed := called.failed):
            called = called.select([at for at, skipped in enumerate(failed) if not skipped])
        self._set_name_keys(called)
        self._set_name_keys(expected)
        return (called, expected) if self._selection is None else self._selection(called, expected, self.formula)

    def _set_name_keys(self, side: CaseSide) -> None:
        """Put there what of the names is compared."""
        if self._names.key is not None:
            side.keys = list(map(self._names.key, side.names))
        if self.formula.compares_types and (types := side.types):
            typed = zip(side.keys, types, strict=True)
            side.keys = [key if kind == FUNCTION_TYPE else (key, kind) for key, kind in typed]

    def _empty_score(self, called: int, expected: int) -> EmptyScore:
        return self.formula.empty_scores[0 if called == expected else 1 if called else 2]

    def _preprocess(
        self, called: CaseSide, expected: CaseSide, case: Mapping[str, Any] | None
    ) -> tuple[CaseSide, CaseSide]:
        if self.formula.missing_arguments == "empty":
            called, expected = _none_to_empty(called), _none_to_empty(expected)
        return (
            (called, expected)
            if self._preprocessing is None
            else self._preprocessing(called, expected, self.formula, case)
        )

    def _count_pairs(self, called: CaseSide, expected: CaseSide) -> tuple[float, int, int]:
        """What all pairs are worth, and how many calls and expectations there were to be paired."""
        if self.formula.collapse != "none":
            return self._count_collapsed(called, expected)
        n_called, n_expected = len(called.keys), len(expected.keys)
        if self.has_equality_shortcut and self._are_equal(called, expected):
            return n_called, n_called, n_expected
        drives = self.formula.driving_side == "expected"
        matched = self._pair(self._side_pair(called, expected)) if drives else self._pair_from_calls(called, expected)
        return matched, n_called, n_expected

    def _are_equal(self, called: CaseSide, expected: CaseSide) -> bool:
        """Whether the sides are equal and every call certainly meets its equal.

        Most runs are as expected, and to see that takes less time than to weigh pairs. Arguments that are no
        dictionaries may not agree with themselves.
        """
        if called.keys != expected.keys or not (self._pairs_in_place or _have_unique_names(called, expected)):
            return False
        if self._argument_rule is None:
            return True
        return (
            called.arguments == expected.arguments
            and called.has_only_dict_arguments
            and expected.has_only_dict_arguments
        )

    def _pair_from_calls(self, called: CaseSide, expected: CaseSide) -> float:
        """The calls ask, or both sides do."""
        swapped = self.formula.swap_sides
        board = self._side_pair(expected, called) if swapped else self._side_pair(called, expected).reversed()
        matched = self._pair(board)
        return (
            min(matched, self._pair(self._side_pair(called, expected)))
            if self.formula.driving_side == "each"
            else matched
        )

    def _side_pair(self, called: CaseSide, expected: CaseSide) -> SidePair:
        agree = self._pair_weight(called, expected) if self.compares_content else None
        return SidePair(expected, called, self._names.is_same_tool, agree)

    def _pair_weight(self, called: CaseSide, expected: CaseSide) -> PairWeight:
        weigh, other_rules, wanted, given = (
            self._argument_rule,
            self.formula.argument_rules_by_tool,
            expected.arguments,
            called.arguments,
        )
        if weigh is not None and not other_rules and not self.formula.compares_outputs:
            return lambda asking, answering: weigh(wanted[asking], given[answering])
        names = expected.names
        outputs = (expected.outputs, called.outputs) if self.formula.compares_outputs else None

        def agree(asking: int, answering: int) -> float:
            rule = other_rules.get(names[asking], weigh)
            worth = rule(wanted[asking], given[answering]) if rule else 1.0
            return 0.0 if outputs and outputs[0][asking] != outputs[1][answering] else worth

        return agree

    def _count_collapsed(self, called: CaseSide, expected: CaseSide) -> tuple[int, int, int]:
        """Matches and lengths, where equal calls are one: equality of content leaves nothing to assign."""
        made = self._distinct(called)
        # Most runs are as expected. Then one look is enough, if whatever is equal has the same key.
        sure = self._key is hashable_value and called.keys == expected.keys and called.arguments == expected.arguments
        wanted = made if sure else self._distinct(expected)
        matched = len(made & wanted)
        if self.formula.collapse == "matched":
            return matched, len(called.names), len(expected.names)
        return matched, len(made), len(wanted)

    def _distinct(self, side: CaseSide) -> set[Hashable]:
        return set(zip(side.keys, map(self._key, side.arguments), strict=True)) if self._key else set(side.keys)


def _argument_rule_of(formula: Formula) -> ArgumentRule | None:
    if formula.argument_rule == "fuzzy":
        return fuzzy_rule(formula.min_similarity)
    if formula.argument_rule == "allowed":
        return match_bfcl_answer
    return (
        ARGUMENT_RULES[formula.argument_rule]
        if formula.argument_rule != "ignore" or formula.argument_rules_by_tool
        else None
    )


def _allows_equality_shortcut(formula: Formula) -> bool:
    if (
        formula.argument_rules_by_tool
        or formula.compares_outputs
        or NAME_RULES[formula.name_rule].is_same_tool is not operator.eq
    ):
        return False
    return formula.argument_rule == "ignore" or formula.argument_rule in FULL_SCORE_IF_EQUAL


def _have_unique_names(called: CaseSide, expected: CaseSide) -> bool:
    """Whether no name is there twice, however it is compared: then nobody but its equal is named like a call."""
    as_written = called.keys is called.names and expected.keys is expected.names
    return as_written and len(set(called.names)) == len(called.names)


def _name_pairing_of(formula: Formula) -> NamePairing | None:
    """How equal names are paired if nothing else matters; `None` where it takes more than the two lists of names."""
    if formula.collapse == "both" or NAME_RULES[formula.name_rule].is_same_tool is not operator.eq:
        return None
    if formula.collapse == "matched":
        return count_distinct_shared_names
    rule = NAME_PAIRINGS.get(formula.assignment if formula.pairing == "one_to_one" else formula.pairing)
    if rule is None or formula.driving_side == "expected":
        return rule
    if formula.driving_side == "called":
        return lambda expected, called: rule(called, expected)
    return lambda expected, called: min(rule(called, expected), rule(expected, called))


def _measure_of(formula: Formula) -> Measure:
    """The measure, and what is made of its number."""
    measure, digits = MEASURES[formula.measure](formula.min_count, formula.max_count), formula.digits
    if digits is not None:
        return lambda matched, called, expected: round(measure(matched, called, expected), digits)
    if formula.is_strict:
        return lambda matched, called, expected: _zero_below_one(measure(matched, called, expected))
    return measure


def _zero_below_one(value: float) -> float:
    return 0.0 if value < 1 else value


def _none_to_empty(side: CaseSide) -> CaseSide:
    arguments = side.arguments
    return side.with_arguments([{} if given is None else given for given in arguments]) if None in arguments else side
