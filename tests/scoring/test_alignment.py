"""Order is judged by the best alignment there is: the same as trying all of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.model import ToolCall
from goldspan.scoring.alignment import align, concurrent_groups, longest_chain

GAIN = 1_000


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[dict[int, int]], list[list[int]]]:
    """Gains of some pairs, and the calls cut into groups. One more pair is worth more than any better pair."""
    expectations, calls = draw(st.integers(0, 4)), draw(st.integers(0, 5))
    gains = [
        {call: GAIN + draw(st.integers(0, 9)) for call in range(calls) if draw(st.booleans())}
        for _ in range(expectations)
    ]
    cuts = [0, *sorted(draw(st.sets(st.integers(1, max(calls - 1, 1)), max_size=calls))), calls]
    groups = [list(range(begin, end)) for begin, end in pairwise(cuts) if begin < end]
    return gains, groups


def orders(groups: list[list[int]]) -> Iterator[list[int]]:
    """Every order in which the calls may have come."""
    if not groups:
        yield []
        return
    for first in permutations(groups[0]):
        for rest in orders(groups[1:]):
            yield [*first, *rest]


def best_of_all(gains: list[dict[int, int]], groups: list[list[int]]) -> int:
    best = 0
    for calls in orders(groups):
        for size in range(min(len(gains), len(calls)) + 1):
            for rows in combinations(gains, size):
                for columns in combinations(calls, size):
                    if all(call in row for row, call in zip(rows, columns, strict=True)):
                        best = max(best, sum(row[call] for row, call in zip(rows, columns, strict=True)))
    return best


def is_in_order(pairs: dict[int, int], groups: list[list[int]]) -> bool:
    group_of = {call: number for number, group in enumerate(groups) for call in group}
    numbers = [group_of[pairs[expectation]] for expectation in sorted(pairs)]
    return numbers == sorted(numbers) and len(set(pairs.values())) == len(pairs)


@given(problems())
def test_the_alignment_is_as_good_as_the_best_of_all(problem: tuple[list[dict[int, int]], list[list[int]]]) -> None:
    gains, groups = problem
    pairs = align(gains, groups)
    assert is_in_order(pairs, groups)
    assert sum(gains[expectation][call] for expectation, call in pairs.items()) == best_of_all(gains, groups)


@given(st.permutations(range(6)), st.sets(st.integers(1, 5)))
def test_the_longest_chain_of_given_pairs_is_as_long_as_the_best_of_all(calls: list[int], cuts: set[int]) -> None:
    pairs = dict(enumerate(calls))
    bounds = [0, *sorted(cuts), 6]
    groups = [list(range(begin, end)) for begin, end in pairwise(bounds)]
    chain = longest_chain(pairs, groups)
    assert is_in_order({expectation: pairs[expectation] for expectation in chain}, groups)
    sizes = (
        size
        for size in range(7)
        for part in combinations(pairs, size)
        if is_in_order({expectation: pairs[expectation] for expectation in part}, groups)
    )
    assert len(chain) == max(sizes)


def test_of_equal_alignments_the_earliest_calls_are_taken() -> None:
    assert align([{0: GAIN, 1: GAIN, 2: GAIN}, {1: GAIN, 2: GAIN}], [[0], [1], [2]]) == {0: 0, 1: 1}


@pytest.mark.parametrize(
    ("overlaps", "groups"),
    [
        pytest.param({}, [[0], [1], [2]], id="one after the other"),
        pytest.param({0: (1, 2), 1: (0, 2), 2: (0, 1)}, [[0, 1, 2]], id="all at once"),
        pytest.param({1: (2,), 2: (1,)}, [[0], [1, 2]], id="two at once"),
        pytest.param({0: (1,), 1: (0, 2), 2: (1,)}, [[0, 1], [2]], id="a chain of overlaps"),
    ],
)
def test_calls_that_all_overlap_make_a_group(overlaps: dict[int, tuple[int, ...]], groups: list[list[int]]) -> None:
    calls = [(at, ToolCall("t", concurrent_with=overlaps.get(at, ()))) for at in range(3)]
    assert concurrent_groups(calls) == groups


def test_no_calls_make_no_group() -> None:
    assert concurrent_groups([]) == []
