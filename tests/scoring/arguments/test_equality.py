"""Equality as people mean it: floats within a billionth, texts in normal form C, everything else exact."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

import goldspan
from goldspan.model import ExpectedTool, ToolCall
from goldspan.model.value_matchers import Contains, Equal, OneOf, Unordered
from goldspan.scoring.arguments.agreement import argument_agreement, argument_share, result_share
from goldspan.scoring.arguments.equality import equal
from goldspan.scoring.arguments.matcher_evaluation import agrees
from goldspan.scoring.metrics.registry import METRICS

COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"

ALIKE: list[tuple[Any, Any]] = [
    (0.1 + 0.2, 0.3),
    (1, 1.0000000000000002),
    (1, 1.0),
    (0.0, -0.0),
    (0, -0.0),
    (math.nan, math.nan),
    (math.inf, math.inf),
    (10**18, 1e18),
    (10**18 + 1, 1e18),
    (-2.5, -2.5 * (1 + 0.9e-9)),
    (COMPOSED, DECOMPOSED),
    ("\u212a", "K"),
    ([{"a": [0.1 + 0.2, DECOMPOSED]}], [{"a": (0.3, COMPOSED)}]),
]
APART: list[tuple[Any, Any]] = [
    (10**18, 10**18 + 1),
    (10**400, math.inf),
    (10**400, 1e308),
    (1.0, 1.0 + 1.1e-9),
    (0.0, 5e-324),
    (0.0, 1e-300),
    (math.inf, 1e308),
    (math.inf, -math.inf),
    (math.nan, 1.0),
    (True, 1.0),
    (True, 1.0000000000000002),
    (False, 0.0),
    ("5", 5),
    ("0.3", 0.3),
    ("A", "a"),
    ("a ", "a"),
    (COMPOSED, "cafe"),
    ("2025-03-01", "20250301"),
    ({COMPOSED: 1}, {DECOMPOSED: 1}),
    (0.3, None),
    ("", None),
]


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_equal_values_are_equal_at_every_depth(one: Any, other: Any) -> None:
    for expected, called in ((one, other), (other, one)):
        assert equal(expected, called)
        assert equal({"a": [expected]}, {"a": [called]})
        for matcher in (OneOf((0, expected)), Equal(expected), OneOf((Unordered((expected, 7)),))):
            given_ = [7, called] if isinstance(matcher, OneOf) and matcher.options[0] != 0 else called
            assert agrees(matcher, given_)
        assert agrees(Contains((expected,)), ["x", called])
        _has_share(expected, called, 1.0)


@pytest.mark.parametrize(("one", "other"), APART)
def test_everything_else_differs(one: Any, other: Any) -> None:
    for expected, called in ((one, other), (other, one)):
        assert not equal(expected, called)
        assert not equal({"a": [expected]}, {"a": [called]})
        assert not agrees(Unordered((expected, 7)), [7, called])
        if type(expected) is not dict:
            _has_share(expected, called, 0.0)


def _has_share(expected: Any, called: Any, share: float) -> None:
    for wanted, given_ in ((expected, called), ([expected], [called])):
        tool = ExpectedTool("t", arguments={"a": wanted}, result={"r": wanted})
        call = ToolCall("t", arguments={"a": given_}, result={"r": given_})
        told = argument_agreement(tool, call)
        assert told is not None
        assert told.share == argument_share(tool, call) == result_share(tool, call) == share


def test_a_text_is_within_another_however_it_is_composed() -> None:
    assert agrees(Contains(COMPOSED), f"the {DECOMPOSED} is open")
    assert agrees(Contains(DECOMPOSED), f"the {COMPOSED} is open")
    assert not agrees(Contains(COMPOSED), "the cafe is open")


NUMBERS = st.integers(-3, 3) | st.integers() | st.floats() | st.sampled_from([1.0, 1 + 0.5e-9, 1 + 1e-9, 1 + 2e-9])
TEXTS = st.text(max_size=3) | st.text("e\u0301\u00e9aA\u030a\u212b", max_size=3)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=5,
)


@given(VALUES, VALUES)
def test_equality_is_reflexive_and_symmetric(one: Any, other: Any) -> None:
    assert equal(one, one)
    assert equal(one, other) is equal(other, one)


@given(NUMBERS, NUMBERS)
def test_numbers_are_equal_within_a_billionth_and_integers_exactly(one: float, other: float) -> None:
    if type(one) is int and type(other) is int:
        assert equal(one, other) is (one == other)
    elif math.isfinite(one) and math.isfinite(other):
        apart, allowed = abs(Fraction(one) - Fraction(other)), max(abs(Fraction(one)), abs(Fraction(other))) / 10**9
        if abs(apart - allowed) * 10**6 >= allowed or apart == 0:  # else rounding decides
            assert equal(one, other) is (apart <= allowed)


@given(TEXTS, TEXTS)
def test_texts_are_equal_in_normal_form_c(one: str, other: str) -> None:
    assert equal(one, other) is (normalize("NFC", one) == normalize("NFC", other))
    assert equal(one, normalize("NFD", one))


def test_calls_are_compared_by_the_same_rules() -> None:
    called = [{"name": "pay", "args": {"amount": 0.1 + 0.2, "to": DECOMPOSED}}]
    expected = [{"name": "pay", "args": {"amount": 0.3, "to": COMPOSED}}]
    (pair,) = goldspan.compare(called, expected).pairs
    assert pair.agreement is not None
    assert pair.agreement.share == 1


@pytest.mark.parametrize("one", [0.3, COMPOSED, [{"a": 0.3, "b": COMPOSED}]])
def test_duplicates_and_attempts_are_detected_by_the_same_equality(one: Any) -> None:
    other = {0.3: 0.1 + 0.2, COMPOSED: DECOMPOSED}.get(one) if not isinstance(one, list) else [_rewritten(one[0])]
    calls = [{"name": "a", "args": {"x": value}} for value in (one, other)]
    rows = goldspan.compare(calls, ["a"], duplicates="ignore").rows
    assert [row.verdict for row in rows] == ["paired", "tolerated"]
    assert METRICS["redundant_calls"].measure(goldspan.compare(calls, None)) == 0.5
    rows = goldspan.compare(calls[:1], calls, duplicates="ignore").rows
    assert [row.verdict for row in rows] == ["paired", "tolerated"]
    failed = [{**calls[0], "error": "busy"}, calls[1]]
    assert [row.verdict for row in goldspan.compare(failed, ["a"]).rows] == ["superseded", "paired"]


def _rewritten(value: dict[str, Any]) -> dict[str, Any]:
    return {"b": DECOMPOSED, "a": value["a"] * (1 + 2e-16)}


def test_calls_that_are_nearly_the_same_are_paired_in_order() -> None:
    expected = [{"name": "a", "args": {"x": amount}} for amount in (0.3, 0.1 + 0.2)]
    (one, other) = goldspan.compare(expected[::-1], expected, order="any").pairs
    assert (one.expected_at, other.expected_at) == (0, 1)
    assert one.in_order
    assert other.in_order
