"""Order is judged by the best alignment there is: the same as trying all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.model import ToolCall
from goldspan.scoring.matching.alignment import (
    TOO_MANY_TO_ALIGN,
    CallIntervals,
    align,
    call_intervals,
    longest_chain,
    sweep_alignment,
)
from goldspan.scoring.matching.assignment import WorkBudget

GAIN = 1_000

Problem = tuple[dict[int, dict[int, int]], list[int], CallIntervals]


@st.composite
def timelines(draw: st.DrawFn, *, shape: str) -> CallIntervals:
    """Calls one after the other, in groups that overlap, or overlapping in any way that time allows."""
    calls = draw(st.integers(0, 5))
    ended: list[int] = []
    while len(ended) < calls:
        at = len(ended)
        end = at + 1 if shape == "sequence" else draw(st.integers(at + 1, calls))
        ended += [end] * (end - at) if shape == "groups" else [end]
    return CallIntervals(tuple(range(0, 2 * calls, 2)), tuple(ended))


@st.composite
def problems(draw: st.DrawFn, *, shape: str, abreast: bool) -> Problem:
    """What some pairs are worth, the stages of the slots, and the calls. One pair more outweighs better pairs."""
    line = draw(timelines(shape=shape))
    stages = [0] if draw(st.booleans()) else []
    while stages and len(stages) < 4 and draw(st.booleans()):
        stages.append(stages[-1] + (draw(st.integers(0, 1)) if abreast else 1))
    gains = {
        slot: {call: GAIN + draw(st.integers(0, 9)) for call in line.calls if draw(st.booleans())}
        for slot in range(len(stages))
    }
    return gains, stages, line


def pairings(gains: Mapping[int, Mapping[int, int]]) -> Iterator[dict[int, int]]:
    """Every way to pair."""
    if not gains:
        yield {}
        return
    *others, last = gains
    for rest in pairings({slot: gains[slot] for slot in others}):
        yield rest
        for call in gains[last]:
            if call not in rest.values():
                yield {**rest, last: call}


def is_in_order(pairs: Mapping[int, int], stages: Sequence[int], line: CallIntervals) -> bool:
    ended = dict(zip(line.calls, line.first_after_end, strict=True))
    begins = {call: at for at, call in enumerate(line.calls)}
    return not any(
        stages[one] < stages[other] and ended[pairs[other]] <= begins[pairs[one]] for one in pairs for other in pairs
    )


def worth(pairs: Mapping[int, int], gains: Mapping[int, Mapping[int, int]]) -> int:
    return sum(gains[slot][call] for slot, call in pairs.items())


ANY_PROBLEM = st.one_of(
    *(problems(shape=shape, abreast=abreast) for shape in ("sequence", "groups", "any") for abreast in (False, True))
)


@given(ANY_PROBLEM)
def test_the_alignment_is_as_good_as_the_best_of_all(problem: Problem) -> None:
    gains, stages, line = problem
    effort = WorkBudget()
    pairs = align(gains, stages, line, effort)
    assert is_in_order(pairs, stages, line)
    assert line.is_in_order(pairs, stages)
    assert effort.incomplete_reason is None
    assert len(set(pairs.values())) == len(pairs)
    assert worth(pairs, gains) == max(worth(one, gains) for one in pairings(gains) if is_in_order(one, stages, line))


@given(ANY_PROBLEM)
def test_the_alignment_finds_what_each_special_case_finds(problem: Problem) -> None:
    gains, stages, line = problem
    swept, whole = sweep_alignment(list(gains.values()), stages, line, WorkBudget())
    assert whole
    assert worth(swept, gains) == worth(align(gains, stages, line, WorkBudget()), gains)


@given(ANY_PROBLEM, st.integers(0, 4_000))
def test_with_a_small_budget_the_alignment_is_valid_and_marked_approximate(problem: Problem, steps: int) -> None:
    gains, stages, line = problem
    effort = WorkBudget(steps)
    pairs = align(gains, stages, line, effort)
    assert is_in_order(pairs, stages, line)
    best = worth(align(gains, stages, line, WorkBudget()), gains)
    assert worth(pairs, gains) == best or effort.incomplete_reason == TOO_MANY_TO_ALIGN


@given(ANY_PROBLEM)
def test_nothing_is_given_up_where_the_order_costs_nothing(problem: Problem) -> None:
    gains, stages, line = problem
    best = max(pairings(gains), key=lambda pairs: worth(pairs, gains))
    effort = WorkBudget()
    pairs = align(gains, stages, line, effort, unordered=best)
    assert worth(pairs, gains) == worth(align(gains, stages, line, WorkBudget()), gains)
    assert effort.incomplete_reason is None


@given(ANY_PROBLEM, st.data())
def test_the_longest_chain_of_given_pairs_is_as_long_as_the_best_of_all(problem: Problem, data: st.DataObject) -> None:
    gains, stages, line = problem
    pairs = data.draw(st.sampled_from(list(pairings(gains))))
    chain = longest_chain(pairs, stages, line, WorkBudget())
    assert chain.items() <= pairs.items()
    assert is_in_order(chain, stages, line)
    sizes = (
        size
        for size in range(len(pairs) + 1)
        for part in combinations(pairs, size)
        if is_in_order({slot: pairs[slot] for slot in part}, stages, line)
    )
    assert len(chain) == max(sizes)


def test_of_equal_alignments_the_one_with_the_earliest_calls_is_chosen() -> None:
    line = CallIntervals((0, 1, 2), (1, 2, 3))
    gains = {0: {0: GAIN, 1: GAIN, 2: GAIN}, 1: {1: GAIN, 2: GAIN}}
    assert align(gains, [0, 1], line, WorkBudget()) == {0: 0, 1: 1}


def test_twenty_calls_at_once_answer_twenty_slots_each_best() -> None:
    line = CallIntervals(tuple(range(20)), (20,) * 20)
    gains = {slot: {call: GAIN + (slot * 7 + call * 11) % 20 for call in range(20)} for slot in range(20)}
    best = align(gains, list(range(20)), line, WorkBudget())
    assert worth(best, gains) == 20 * (GAIN + 19)


# --- timelines --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overlaps", "ended", "groups"),
    [
        pytest.param({}, [1, 2, 3], [[0], [1], [2]], id="one after the other"),
        pytest.param({0: (1, 2), 1: (0, 2), 2: (0, 1)}, [3, 3, 3], [[0, 1, 2]], id="all at once"),
        pytest.param({1: (2,), 2: (1,)}, [1, 3, 3], [[0], [1, 2]], id="two at once"),
        pytest.param({0: (1,), 1: (0, 2), 2: (1,)}, [2, 3, 3], None, id="a chain of overlaps"),
        pytest.param({0: (1, 2), 1: (0,), 2: (0,)}, [3, 2, 3], None, id="a long call beside two short ones"),
    ],
)
def test_calls_that_all_overlap_make_a_group(
    overlaps: dict[int, tuple[int, ...]], ended: list[int], groups: list[list[int]] | None
) -> None:
    line = call_intervals([(at, ToolCall("t", concurrent_with=overlaps.get(at, ()))) for at in range(3)])
    assert list(line.first_after_end) == ended
    assert line.concurrent_groups == groups
    assert line.has_overlaps is bool(overlaps)


def test_no_calls_make_no_group() -> None:
    assert call_intervals([]).concurrent_groups == []


@given(timelines(shape="any"), st.data())
def test_some_of_the_calls_overlap_as_they_did_among_all(line: CallIntervals, data: st.DataObject) -> None:
    kept = sorted(data.draw(st.sets(st.sampled_from(line.calls or [0])))) if line.calls else []
    fewer = line.restrict_to(kept)
    ended, fewer_ended = (dict(zip(one.calls, one.first_after_end, strict=True)) for one in (line, fewer))
    begins, fewer_begins = ({call: at for at, call in enumerate(one.calls)} for one in (line, fewer))
    assert list(fewer.calls) == kept
    for one in kept:
        for other in kept:
            assert (ended[one] <= begins[other]) is (fewer_ended[one] <= fewer_begins[other])
