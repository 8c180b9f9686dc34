"""The engine that computes the score of any formula."""

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
"""Whether a score can exceed 0, given the compared names of the calls and the expectations."""

Measure: TypeAlias = Callable[[float, int, int], float]
"""Returns the score from the total weight of the matches, the number of calls and of expectations."""


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
    """Returns the share of the expectations that were called."""
    return matched / expected


def measure_precision(matched: float, called: int, expected: int) -> float:
    """Returns the share of the calls that were expected."""
    return matched / called


def measure_f1(matched: float, called: int, expected: int) -> float:
    """Returns the harmonic mean as most peers write it: 2PR / (P + R), with the same rounding."""
    if not matched:
        return 0.0
    precision, recall = matched / called, matched / expected
    return 2 * precision * recall / (precision + recall)


def all_expected_called(matched: float, called: int, expected: int) -> float:
    """Returns 1 if everything expected was called."""
    return float(matched == expected)


def all_calls_expected(matched: float, called: int, expected: int) -> float:
    """Returns 1 if everything called was expected."""
    return float(matched == called)


def all_matched(matched: float, called: int, expected: int) -> float:
    """Returns 1 if every item of both sides is matched."""
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
"""The axis `measure`: factories that receive the bounds of the count, which only counting measures use."""


MatchCounts: TypeAlias = "tuple[float | None, int, int]"
"""The total weight of the pairs, and the numbers of compared calls and expectations. The weight is `None` if the gate
is closed, and meaningless if a side is empty."""


class NotScoredError(Exception):
    """The peer computes no score. The message states what it does instead."""


class FormulaEngine:
    """Computes the counts and scores of one formula."""

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
        """Whether it compares arguments or outputs."""
        self._pair_names = None if self.compares_content else _name_pairing_of(formula)
        self.has_equality_shortcut = _allows_equality_shortcut(formula)
        """Whether equal calls and expectations always have weight 1, so that equal sides need no pairing."""
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
        """Whether two lists of names suffice; `count_name_matches` is then as fast as the loop of the peer."""

    def count_matches(self, called: CaseSide, expected: CaseSide, case: Mapping[str, Any] | None = None) -> MatchCounts:
        """Counts the matches of one case. `case` is further data for the preprocessing. Raises `NotScoredError`."""
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
        """Counts the matches of two lists of names, if `needs_only_names`."""
        assert self._pair_names is not None
        if self._gate is not None and self._skip_pairing(called, expected):
            return None, len(called), len(expected)
        return self._pair_names(expected, called), len(called), len(expected)

    def score_of(self, matched: float | None, called: int, expected: int) -> float:
        """Returns the score, which depends only on the counts. Raises `NotScoredError`."""
        if called and expected:
            return 0.0 if matched is None else self._measure(matched, called, expected)
        score = self._empty_score(called, expected)
        if score == "raises":
            raise NotScoredError(f"raises {self.formula.raised_error}")
        return self._measure(0, called, expected) if score == "measured" else score

    def _skip_pairing(self, called: list[Any], expected: list[Any]) -> bool:
        """Whether the score needs no pairing, because a side is empty or the gate is closed."""
        if called and expected:
            return self._gate is not None and not self._gate(called, expected)
        return self._empty_score(len(called), len(expected)) != "measured"

    def _select_items(self, called: CaseSide, expected: CaseSide) -> tuple[CaseSide, CaseSide]:
        """Selects the compared items of both sides. Raises `NotScoredError` if the peer asks a language model."""
        if self.formula.needs_model is not None:
            raise NotScoredError(self.formula.needs_model)
        if self.formula.failed_calls == "skip" and any(failed := called.failed):
            called = called.select([position for position, is_failed in enumerate(failed) if not is_failed])
        self._set_name_keys(called)
        self._set_name_keys(expected)
        return (called, expected) if self._selection is None else self._selection(called, expected, self.formula)

    def _set_name_keys(self, side: CaseSide) -> None:
        """Sets the compared form of the names."""
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
        """Returns the total weight of the pairs, and the numbers of calls and expectations."""
        if self.formula.collapse != "none":
            return self._count_collapsed(called, expected)
        n_called, n_expected = len(called.keys), len(expected.keys)
        if self.has_equality_shortcut and self._are_equal(called, expected):
            return n_called, n_called, n_expected
        drives = self.formula.driving_side == "expected"
        matched = self._pair(self._side_pair(called, expected)) if drives else self._pair_from_calls(called, expected)
        return matched, n_called, n_expected

    def _are_equal(self, called: CaseSide, expected: CaseSide) -> bool:
        """Whether the sides are equal and each call certainly pairs with its equal.

        Most runs are as expected, and this check is faster than pairing. Arguments that are not dictionaries may
        disagree with themselves.
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
        """Pairs with the calls as the driving side, or with each side in turn."""
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
        """Returns the counts if equal calls count once; no assignment is needed."""
        distinct_calls = self._distinct(called)
        # Most runs are as expected. Equal values then have equal keys, which need to be computed only once.
        is_equal = (
            self._key is hashable_value and called.keys == expected.keys and called.arguments == expected.arguments
        )
        distinct_expected = distinct_calls if is_equal else self._distinct(expected)
        matched = len(distinct_calls & distinct_expected)
        if self.formula.collapse == "matched":
            return matched, len(called.names), len(expected.names)
        return matched, len(distinct_calls), len(distinct_expected)

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
    """Whether all names are unique and compared unchanged, so that only equal items share a name."""
    as_written = called.keys is called.names and expected.keys is expected.names
    return as_written and len(set(called.names)) == len(called.names)


def _name_pairing_of(formula: Formula) -> NamePairing | None:
    """Returns how equal names are paired; `None` if the formula needs more than two lists of names."""
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
    """Returns the measure, with rounding or strictness applied."""
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
