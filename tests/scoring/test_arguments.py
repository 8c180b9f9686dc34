"""Arguments agree by what they mean, key by key, however deeply they are nested."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.model import ABSENT, Difference
from goldspan.scoring.arguments import agreement, equal

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=12,
)
ARGUMENTS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


@pytest.mark.parametrize(
    ("expected", "called", "share"),
    [
        pytest.param({"city": "Paris", "n": 2}, {"n": 2, "city": "Paris"}, 1.0, id="identical"),
        pytest.param({"n": 1}, {"n": 1.0}, 1.0, id="1 and 1.0"),
        pytest.param({"n": 1}, {"n": True}, 0.0, id="1 and true"),
        pytest.param({"n": 5}, {"n": "5"}, 0.0, id="number and text"),
        pytest.param({"q": "x"}, {"q": "x", "page": 1}, 0.5, id="an extra default"),
        pytest.param({"q": "x", "request_id": "a"}, {"q": "x", "request_id": "b"}, 0.5, id="one of two"),
        pytest.param({"city": "Paris"}, {"city": " paris"}, 0.0, id="text as written"),
        pytest.param({"ids": [1, 2]}, {"ids": [2, 1]}, 0.0, id="a list in another order"),
        pytest.param({"ids": [1, 2]}, {"ids": (1, 2)}, 1.0, id="list and tuple"),
        pytest.param({"ids": [1, 2]}, {"ids": [1]}, 0.0, id="a shorter list"),
        pytest.param({"ids": [{"a": None}]}, {"ids": [{}]}, 1.0, id="an absent key inside a list"),
        pytest.param({"a": {"x": 1}}, {"a": {"x": 1, "y": 2}}, 0.5, id="nested extra key"),
        pytest.param({"a": {"x": 1, "y": 2}, "b": 3}, {"a": {"x": 1, "y": 0}, "b": 3}, 0.75, id="nested share"),
        pytest.param({}, {}, 1.0, id="no arguments on both sides"),
        pytest.param({}, {"q": "x"}, 0.0, id="none were expected"),
        pytest.param({"q": "x"}, {}, 0.0, id="none were given"),
        pytest.param({"q": "x", "page": None}, {"q": "x"}, 1.0, id="null and absent"),
        pytest.param({"q": "x"}, {"q": "x", "page": None}, 1.0, id="absent and null"),
        pytest.param({"filter": {}}, {"filter": None}, 1.0, id="an empty dictionary and null"),
        pytest.param({"filter": {}}, {}, 1.0, id="an empty dictionary and nothing"),
        pytest.param({"filter": {}}, {"filter": []}, 0.0, id="an empty dictionary and an empty list"),
        pytest.param({"q": None}, {"q": ""}, 0.0, id="null and empty text"),
        pytest.param({"q": None}, {"q": 0}, 0.0, id="null and zero"),
        pytest.param({"x": math.nan}, {"x": math.nan}, 1.0, id="not a number"),
        pytest.param({"x": [math.nan]}, {"x": [float("nan")]}, 1.0, id="not a number in a list"),
        pytest.param({"x": 1.0}, {"x": math.nan}, 0.0, id="a number and not a number"),
        pytest.param({"q": "x"}, "x", 0.0, id="arguments that are no dictionary"),
        pytest.param({"q": "x"}, ["x"], 0.0, id="arguments in a list"),
    ],
)
def test_the_share_of_arguments_that_agree(expected: dict[str, Any], called: Any, share: float) -> None:
    agreed = agreement(expected, called)
    assert agreed is not None
    assert agreed.share == share
    assert (agreed.differences == ()) is (share == 1.0)


def test_arguments_that_were_not_captured_are_not_judged() -> None:
    assert agreement({"q": "x"}, None) is None


def test_differences_name_the_key_and_both_values() -> None:
    expected = {"city": "Paris", "payment": {"amount": 12.5, "by": {"card": 1}}, "gone": True, "same": 1}
    called = {"city": "Rome", "payment": {"amount": 13, "by": {"card": 2}}, "new": False, "same": 1}
    agreed = agreement(expected, called)
    assert agreed is not None
    assert sorted(agreed.differences, key=lambda difference: difference.key) == [
        Difference("city", "Paris", "Rome"),
        Difference("gone", True, ABSENT),
        Difference("new", ABSENT, False),
        Difference("payment.amount", 12.5, 13),
        Difference("payment.by.card", 1, 2),
    ]
    assert agreed.share == pytest.approx(1 / 5)
    assert repr(ABSENT) == "absent"


def test_arguments_that_are_no_dictionary_differ_as_a_whole() -> None:
    agreed = agreement({"q": "x"}, "x")
    assert agreed is not None
    assert agreed.differences == (Difference("", {"q": "x"}, "x"),)


def test_nesting_has_no_limit() -> None:
    one: Any = 1
    other: Any = 2
    for _ in range(5_000):
        one, other = {"a": [one]}, {"a": [other]}
    same = agreement(one, one)
    different = agreement(one, other)
    assert same is not None
    assert different is not None
    assert (same.share, different.share) == (1.0, 0.0)


def test_dictionaries_may_be_nested_without_limit_too() -> None:
    one: Any = {"x": 1}
    other: Any = {"x": 2}
    for _ in range(2_000):
        one, other = {"a": one, "b": 1}, {"a": other, "b": 1}
    agreed = agreement(one, other)
    assert agreed is not None
    assert agreed.share == pytest.approx(1.0)
    assert len(agreed.differences) == 1


class Awkward:
    """A value that refuses to be compared, as arrays do."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value of an array is ambiguous")


def test_values_that_cannot_be_compared_differ() -> None:
    assert not equal(Awkward(), Awkward())


@given(VALUES)
def test_everything_equals_itself(value: Any) -> None:
    assert equal(value, value)


@given(VALUES, VALUES)
def test_equality_has_no_direction(one: Any, other: Any) -> None:
    assert equal(one, other) is equal(other, one)


@given(ARGUMENTS, ARGUMENTS)
def test_a_share_lies_between_nothing_and_all_and_is_all_without_differences_only(
    expected: dict[str, Any], called: dict[str, Any]
) -> None:
    agreed = agreement(expected, called)
    assert agreed is not None
    assert 0.0 <= agreed.share <= 1.0
    assert (not agreed.differences) is equal(expected, called)
