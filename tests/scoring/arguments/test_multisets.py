"""Equal values share a key, others do not, and many are told apart without one."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.model.value_matchers import Contains, Matcher, OfType, Regex, Unordered
from goldspan.scoring.arguments.equality import equal
from goldspan.scoring.arguments.matcher_evaluation import agrees
from goldspan.scoring.arguments.multisets import (
    ToleranceKey,
    can_assign_all,
    certainly_differ,
    equality_keys,
    plain_keys,
)

STEP = 0.8e-9
"""Two steps are more than the tolerance, one is less."""
NUMBERS = [0, 1, 1.0, -1.0, 0.0, math.nan, math.inf, 10**18, 10**18 + 1, 1e18, 10**400, 0.1 + 0.2, 0.3, 5e-324]
CHAIN = [base * (1 + step * STEP) for base in (1.0, 0.1, -7.3, 1.7e9) for step in range(4)]
EDGES = [base * (1 + step * 1e-9 + ulp * 2e-16) for base in (1.0, 0.1) for step in (0, 1, -1) for ulp in (-1, 0, 1)]
TEXTS = ["", "1", "\u00e9", "e\u0301", "K", "\u212a", "e"]
FEW_VALUES = st.recursive(
    st.sampled_from([None, False, True, *TEXTS]) | st.sampled_from([*NUMBERS, *CHAIN, *EDGES]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
ARGUMENTS = st.dictionaries(st.sampled_from(["a", "b", 1]), FEW_VALUES, max_size=3)


@given(st.lists(ARGUMENTS | FEW_VALUES, min_size=2, max_size=6))
def test_values_share_a_key_where_they_are_equal(values: list[Any]) -> None:
    keys = equality_keys(values)
    for one, key in zip(values, keys, strict=True):
        for other, its in zip(values, keys, strict=True):
            assert (key == its) is equal(one, other)
            assert key != its or hash(key) == hash(its)


@given(
    st.lists(st.sampled_from([*NUMBERS, *CHAIN, *EDGES, *TEXTS]), max_size=5).flatmap(
        lambda wanted: st.tuples(st.just(wanted), st.permutations(wanted), st.randoms())
    )
)
def test_items_are_assigned_as_if_every_pair_were_compared(drawn: Any) -> None:
    wanted, given_, chance = drawn
    given_ = [chance.choice([*CHAIN, *EDGES, *TEXTS]) if chance.random() < 0.3 else item for item in given_]
    assert can_assign_all(wanted, given_, equal, on_comparison=lambda: None) is _tried(wanted, given_, equal)


MATCHERS: list[Matcher] = [Regex("\u00e9"), Regex("e\u0301"), OfType("integer"), Contains("e\u0301")]


@given(st.lists(st.sampled_from([*TEXTS, 1, 1.0, 1 + 2e-16, 1 - 2e-16, *MATCHERS]), max_size=4), st.randoms())
def test_a_matcher_is_left_the_item_that_only_it_can_take(wanted: list[Any], chance: Any) -> None:
    items = [chance.choice([*TEXTS, 1, 1 + 2e-16, 1 - 2e-16]) for _ in wanted]
    assert agrees(Unordered(tuple(wanted)), items) is _tried(wanted, items, agrees)


def _tried(wanted: list[Any], items: list[Any], fits: Callable[[Any, Any], bool]) -> bool:
    return any(all(map(fits, wanted, order)) for order in permutations(items))


def test_numbers_that_are_all_equal_share_one_key_and_chains_of_them_are_compared() -> None:
    assert equality_keys([{"a": 0.3}, {"a": 0.1 + 0.2}]) == [frozenset({("a", 0.3)})] * 2
    one, middle, other = equality_keys([1.0, 1 + STEP, 1 + 2 * STEP])
    assert type(one) is type(middle) is type(other) is ToleranceKey
    assert one == middle == other
    assert one != other


@pytest.mark.parametrize("count", [3_000])
def test_many_floats_in_another_order_are_soon_found(count: int) -> None:
    floats = [at + 0.1 for at in range(count)]
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1

    assert can_assign_all(floats, floats[::-1], equal, on_comparison=look)
    assert looks == 0


def test_a_value_without_a_key_leaves_all_around_it_without() -> None:
    assert equality_keys([object(), [object()], {"a": object(), "b": 1}, {"a": 1}])[:3] == [None] * 3
    assert equality_keys([{"a": {}}, {"a": None}, {}], as_written=True) == [None] * 3
    assert equality_keys(["\u00e9", "e\u0301", "e"], as_written=True) == [None, None, "e"]
    assert equality_keys([1, 1 + 2e-16, 2.5], as_written=True) == [None, None, 2.5]


@given(ARGUMENTS | FEW_VALUES, ARGUMENTS | FEW_VALUES)
def test_values_that_certainly_differ_are_unequal(one: Any, other: Any) -> None:
    assert not (certainly_differ(one, other) and equal(one, other))
    assert certainly_differ(one, other) is certainly_differ(other, one)


@given(st.lists(ARGUMENTS | FEW_VALUES, max_size=4))
def test_plain_keys_are_equal_for_the_same_values_as_equality_keys(values: list[Any]) -> None:
    keys = plain_keys(values)
    if keys is not None:
        others = equality_keys(values)
        pairs = [(one, other) for one in range(len(values)) for other in range(len(values))]
        assert [keys[one] == keys[other] for one, other in pairs] == [
            others[one] == others[other] for one, other in pairs
        ]


def test_plain_keys_number_equal_dictionaries_and_leave_doubtful_ones_to_equality_keys() -> None:
    assert plain_keys([{"a": 1}, {"a": 2}, {"a": 1}, {"a": 2}]) == [0, 1, 0, 1]
    assert plain_keys([{"a": 1}, {"a": 1.0}]) is None
    assert plain_keys([{"a": 1}, None]) is None
    assert plain_keys([]) == []


def test_texts_and_numbers_tell_dictionaries_apart_and_nothing_else_does() -> None:
    assert certainly_differ({"a": 1, "b": "x"}, {"a": 1, "b": "y"})
    assert certainly_differ({"a": 1}, {"a": "1"})
    assert certainly_differ({"a": 0.5}, {"a": 1})
    alike = [(1, 1.0), (0.3, 0.1 + 0.2), ("\u00e9", "e\u0301")]
    for one, other in [*alike, (1, True), (0, False), ("x", None), ([1], [2])]:
        assert not certainly_differ({"a": one}, {"a": other})
    assert not certainly_differ({"a": 1}, {"b": 1})
    assert not certainly_differ(1, 2)
