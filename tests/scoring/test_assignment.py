"""The assignment is the best there is: the same as trying all of them."""

from __future__ import annotations

import random
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.scoring.matching.assignment import TOO_MANY_TO_ASSIGN, WorkBudget, assign, assign_multiset, prefix_gains

COSTS = st.tuples(st.integers(1, 5), st.integers(1, 5)).flatmap(
    lambda shape: st.lists(
        st.lists(st.none() | st.integers(-20, 20) | st.just(10**40), min_size=shape[1], max_size=shape[1]),
        min_size=shape[0],
        max_size=shape[0],
    )
)


def best_of_all(costs: list[list[int | None]]) -> tuple[int, int]:
    """The most pairs there can be and the lowest cost of so many, found by trying everything."""
    rows, columns = len(costs), len(costs[0])
    found = []
    for chosen in permutations([*range(columns), *[-1] * rows], rows):
        paid = [costs[row][column] for row, column in enumerate(chosen) if column >= 0]
        real = [cost for cost in paid if cost is not None]
        found.append((-len(real), sum(real)))
    pairs, cost = min(found)
    return -pairs, cost


@given(COSTS)
def test_the_assignment_is_as_good_as_the_best_of_all(costs: list[list[int | None]]) -> None:
    pairs = assign(costs)
    paid = [costs[row][column] for row, column in pairs]
    assert None not in paid
    assert (len(pairs), sum(cost for cost in paid if cost is not None)) == best_of_all(costs)
    assert len({row for row, _ in pairs}) == len({column for _, column in pairs}) == len(pairs)
    assert pairs == sorted(pairs)


@pytest.mark.parametrize("costs", [pytest.param([], id="no rows"), pytest.param([[], []], id="no columns")])
def test_nothing_is_assigned_to_nothing(costs: list[list[int | None]]) -> None:
    assert assign(costs) == []


def test_greed_does_not_pay() -> None:
    # Whoever takes the cheapest first (row 0 with column 0) pays 101 in the end.
    assert assign([[1, 2], [2, 100]]) == [(0, 1), (1, 0)]


def test_a_large_assignment_is_still_exact() -> None:
    chance = random.Random(7)
    size = 120
    best = list(range(size))
    chance.shuffle(best)
    costs = [[0 if best[row] == column else chance.randint(1, 9) for column in range(size)] for row in range(size)]
    assert assign(costs) == list(enumerate(best))


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=1, max_size=4),
)
def test_the_gain_of_the_first_rows_is_the_best_there_is(gains: list[list[int]]) -> None:
    found = list(prefix_gains(gains))
    for rows, gain in enumerate(found, start=1):
        choices = permutations([0, 1, 2, *[-1] * rows], rows)
        assert gain == max(
            sum(gains[row][column] for row, column in enumerate(chosen) if column >= 0) for chosen in choices
        )


@st.composite
def crowds(draw: st.DrawFn) -> tuple[list[list[int | None]], list[int], list[int]]:
    """Costs, and how many equal ones each row and each column stands for."""
    rows = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    columns = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    cost = st.none() | st.integers(-9, 9)
    return [[draw(cost) for _ in columns] for _ in rows], rows, columns


@given(crowds())
def test_equal_rows_and_columns_are_assigned_as_if_each_stood_alone(
    crowd: tuple[list[list[int | None]], list[int], list[int]],
) -> None:
    costs, rows, columns = crowd
    flows = assign_multiset(costs, rows, columns, WorkBudget())
    alone = [
        [cost for cost, times in zip(row, columns, strict=True) for _ in range(times)]
        for row, copies in zip(costs, rows, strict=True)
        for _ in range(copies)
    ]
    pairs = assign(alone)
    paid = [(costs[row][column] or 0) * amount for row, column, amount in flows]
    assert sum(amount for *_, amount in flows) == len(pairs)
    assert sum(paid) == sum(alone[row][column] or 0 for row, column in pairs)
    for at, most in enumerate(rows):
        assert sum(amount for row, _, amount in flows if row == at) <= most
    for at, most in enumerate(columns):
        assert sum(amount for _, column, amount in flows if column == at) <= most


def test_a_million_equal_ones_are_assigned_at_once() -> None:
    costs = [[1, 2], [1, 5]]
    assert assign_multiset(costs, [10**6, 10**6], [10**6, 10**6], WorkBudget()) == [(0, 1, 10**6), (1, 0, 10**6)]


def test_with_no_budget_the_last_rows_get_the_remaining_columns_and_the_result_is_marked_approximate() -> None:
    effort = WorkBudget(2)
    assert assign_multiset([[1, 2], [2, 100]], [1, 1], [1, 1], effort) == [(0, 0, 1), (1, 1, 1)]
    assert effort.incomplete_reason == TOO_MANY_TO_ASSIGN


def test_nothing_is_distributed_to_nothing() -> None:
    assert assign_multiset([], [], [], WorkBudget()) == []
