"""Equal values share a key, others do not, and many are told apart without one."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from goldspan.scoring.agreement.equality import equal
from goldspan.scoring.agreement.multisets import equality_keys, surely_differ

FEW_VALUES = st.recursive(
    st.sampled_from([None, False, True, 0, 1, 1.0, "", "1", math.nan]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
ARGUMENTS = st.dictionaries(st.sampled_from(["a", "b", 1]), FEW_VALUES, max_size=3)


@given(ARGUMENTS | FEW_VALUES, ARGUMENTS | FEW_VALUES)
def test_values_share_a_key_where_they_are_equal(one: Any, other: Any) -> None:
    key, its = equality_keys([one, other])
    assert (key == its) is equal(one, other)


def test_a_value_without_a_key_leaves_all_around_it_without() -> None:
    assert equality_keys([object(), [object()], {"a": object(), "b": 1}, {"a": 1}])[:3] == [None] * 3
    assert equality_keys([{"a": {}}, {"a": None}, {}], with_nothing=False) == [None] * 3


@given(ARGUMENTS | FEW_VALUES, ARGUMENTS | FEW_VALUES)
def test_what_surely_differs_is_not_equal(one: Any, other: Any) -> None:
    assert not (surely_differ(one, other) and equal(one, other))
    assert surely_differ(one, other) is surely_differ(other, one)


def test_texts_and_whole_numbers_tell_dictionaries_apart_and_nothing_else_does() -> None:
    assert surely_differ({"a": 1, "b": "x"}, {"a": 1, "b": "y"})
    assert surely_differ({"a": 1}, {"a": "1"})
    for one, other in [(1, 1.0), (1, True), (0, False), ("x", None), (0.5, 1), ([1], [2])]:
        assert not surely_differ({"a": one}, {"a": other})
    assert not surely_differ({"a": 1}, {"b": 1})
    assert not surely_differ(1, 2)
