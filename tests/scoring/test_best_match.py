"""The quick ways to pair find what weighing finds, and where there is too much to weigh, that is said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from goldspan.model import (
    ABSENT,
    AnyOf,
    CallOrder,
    Comparison,
    ExpectedItem,
    ExpectedTool,
    Golden,
    Parallel,
    Times,
    ToolCall,
)
from goldspan.scoring import compare
from goldspan.scoring.matching.alignment import TOO_MANY_TO_ALIGN
from goldspan.scoring.matching.assignment import WorkBudget
from goldspan.scoring.matching.best_match import TOO_MANY_PLANS, grouped_match, pair_calls, trivial_match
from goldspan.scoring.matching.match_costs import PairCosts
from goldspan.scoring.matching.slot_plan import DEFAULT_NAMING, SlotPairs, SlotPlan, golden_plans
from goldspan.scoring.matching.weighted_match import TOO_MANY_TO_COMPARE, TOO_MANY_TO_ORDER, weighted_match

ARGUMENTS = st.none() | st.fixed_dictionaries({"x": st.integers(0, 1)})
TOOLS = st.builds(
    ExpectedTool,
    st.sampled_from(["a", "b", "A"]),
    ARGUMENTS,
    result=st.sampled_from([ABSENT, ABSENT, 1]),
    times=st.sampled_from([Times(), Times(), Times(0, 1)]),
)
NAMES_ONLY = st.builds(ExpectedTool, st.sampled_from(["a", "b", "c"]))
ITEMS = TOOLS | st.builds(Parallel, st.lists(TOOLS, min_size=1, max_size=2).map(tuple))
CALLS = st.builds(
    ToolCall,
    st.sampled_from(["a", "b", "A", "c"]),
    arguments=ARGUMENTS,
    result=st.sampled_from([None, 1]),
    error=st.sampled_from([None, None, None, "timeout"]),
)
PLAIN_CALLS = st.builds(ToolCall, st.sampled_from(["a", "b", "c"]))
SAME = st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2)), max_size=5)

Calls = Sequence[tuple[int, ToolCall]]


def unknown(call: ToolCall) -> None:
    """No schema is known."""


def weighed(plan: SlotPlan, calls: Calls, order: CallOrder) -> SlotPairs:
    return weighted_match(plan, calls, order, DEFAULT_NAMING, unknown, WorkBudget())


def merit(plan: SlotPlan, calls: Calls, found: SlotPairs, order: CallOrder) -> Any:
    """How good what was found is: in order, where order matters, and altogether."""
    chosen, in_order = found
    merits = PairCosts(plan, calls, DEFAULT_NAMING, unknown)
    ordered = {slot: call for slot, call in chosen.items() if slot in in_order}
    worth = sum(merits.gains(slot)[call] for slot, call in (chosen if order == "any" else ordered).items())
    return worth, len(ordered), len(chosen)


def check(
    quick: Callable[[SlotPlan, Calls], SlotPairs | None], items: Any, called: Sequence[ToolCall], order: CallOrder
) -> None:
    plan, calls = golden_plans(Golden("g", tools=tuple(items))).first_plan, list(enumerate(called))
    found = quick(plan, calls)
    assume(found is not None)
    if found is not None:
        assert merit(plan, calls, found, order) == merit(plan, calls, weighed(plan, calls, order), order)


ORDERS = st.sampled_from(["any", "in_order"])


@given(st.lists(ITEMS, max_size=4), st.lists(CALLS, max_size=4), ORDERS)
def test_without_a_choice_the_weighted_match_equals_the_trivial_one(items: Any, called: Any, order: CallOrder) -> None:
    check(trivial_match, items, called, order)


@given(st.lists(NAMES_ONLY, max_size=5) | st.lists(ITEMS, max_size=4), st.lists(PLAIN_CALLS, max_size=6), ORDERS)
def test_among_calls_of_one_tool_weighing_brings_nothing(items: Any, called: Any, order: CallOrder) -> None:
    check(lambda plan, calls: grouped_match(plan, calls, order, unknown, WorkBudget()), items, called, order)


@given(st.lists(ITEMS, max_size=4), st.lists(CALLS, max_size=4), ORDERS)
def test_for_indistinguishable_calls_the_weighted_match_is_not_better(
    items: Any, called: Any, order: CallOrder
) -> None:
    check(lambda plan, calls: grouped_match(plan, calls, order, unknown, WorkBudget()), items, called, order)


@given(SAME, st.lists(CALLS, max_size=2), st.integers(0, 2), st.booleans(), ORDERS, st.randoms(use_true_random=False))
def test_for_calls_with_the_expected_values_the_weighted_match_is_not_better(
    same: list[tuple[str, int]], more: list[ToolCall], lost: int, together: bool, order: CallOrder, chance: Random
) -> None:
    tools = tuple(ExpectedTool(name, {"x": x}) for name, x in same)
    called = [*(ToolCall(name, arguments={"x": x}) for name, x in same), *more]
    if (more or lost) and together:
        chance.shuffle(called)
    called = called[lost:]
    items = (Parallel(tools),) if together else tools
    check(lambda plan, calls: grouped_match(plan, calls, order, unknown, WorkBudget()), items, called, order)


@pytest.mark.parametrize(("number", "more"), [(5, {}), (2, {"body": "x" * 5000})], ids=["many", "large"])
def test_only_a_few_small_calls_are_tried_in_all_ways(number: int, more: dict[str, Any]) -> None:
    def settled(number: int, **more: Any) -> SlotPairs | None:
        tools = tuple(ExpectedTool("a", {"x": at, **more}) for at in range(number))
        calls = [(at, ToolCall("a", arguments={"x": at + 1, **more})) for at in range(number)]
        return grouped_match(golden_plans(Golden("g", tools=tools)).first_plan, calls, "any", unknown, WorkBudget())

    assert settled(2) is not None
    assert settled(number, **more) is None


def test_of_pairs_that_agree_as_much_those_with_equal_arguments_are_chosen() -> None:
    expected = [{"name": "t", "arguments": {"x": number}, "result": number} for number in (1, 2)]
    called = [{"name": "t", "arguments": {"x": number}, "result": 3 - number} for number in (1, 2)]
    for calls in (called, called[::-1]):
        rows = compare(calls, expected, order="any").pairs
        assert [row.expected.arguments == row.called.arguments for row in rows if row.expected and row.called] == [
            True,
            True,
        ]


def test_a_call_that_would_do_earlier_answers_there_if_that_keeps_the_order() -> None:
    expected = [ExpectedTool("a", {"x": 1}, match="subset"), "b", ExpectedTool("a", {"x": 1, "y": 2}, match="subset")]
    seen = compare([{"name": "a", "arguments": {"x": 1, "y": 2}}, "b"], expected)
    assert [(row.expected_at, row.called_at, row.in_order) for row in seen.pairs] == [(0, 0, True), (1, 1, True)]


# --- too much to weigh ------------------------------------------------------------------------------------------------


def numbered(name: str, numbers: Sequence[int], **more: Any) -> list[dict[str, Any]]:
    return [{"name": name, "arguments": {"id": number, "page": number % 3, **more}} for number in numbers]


def agreeing(seen: Comparison) -> int:
    return sum(row.agreement is not None and row.agreement.share == 1.0 for row in seen.pairs)


@pytest.mark.parametrize("order", ["any", "in_order"])
def test_two_thousand_equal_calls_answer_two_thousand_equal_expectations(order: CallOrder) -> None:
    seen = compare(numbered("get", [1] * 2000), numbered("get", [1] * 2000), order=order)
    assert agreeing(seen) == len(seen.pairs) == 2000
    assert seen.approximation_reason is None


@pytest.mark.e2e
def test_two_thousand_different_calls_answer_the_expectations_that_they_meet_exactly() -> None:
    seen = compare(numbered("get", [n * 7 % 2000 for n in range(2000)]), numbered("get", range(0, 2000, 10)))
    assert agreeing(seen) == len(seen.pairs) == 200
    assert seen.approximation_reason is None


@pytest.mark.e2e
def test_among_too_many_calls_equal_ones_are_matched_and_the_rest_is_marked_approximate() -> None:
    called = numbered("get", [n * 7 % 2000 for n in range(2000)])
    expected = [*numbered("get", range(900)), *numbered("get", range(900), more=True)]
    seen = compare(called, expected)
    assert agreeing(seen) == 900
    assert len(seen.pairs) == 1800
    assert seen.approximation_reason == TOO_MANY_TO_COMPARE
    in_order = compare(called, expected, order="in_order")
    assert in_order.approximation_reason == TOO_MANY_TO_COMPARE
    assert len(in_order.pairs) == 1800


def test_expectations_without_an_equal_call_are_weighted_within_the_budget() -> None:
    called = numbered("get", range(2000))
    seen = compare(called, [*numbered("get", range(1000)), {"name": "get", "arguments": {"id": 1500}}])
    row = next(row for row in seen.pairs if row.expected_at == 1000)
    assert row.called_at == 1500
    assert seen.approximation_reason == TOO_MANY_TO_COMPARE


def test_large_arguments_take_more_of_the_effort() -> None:
    long = "x" * 200_000
    called = [{"name": "put", "arguments": {"text": f"{long}{n}"}} for n in range(120)]
    expected = [{"name": "put", "arguments": {"text": f"{n}{long}"}} for n in range(120)]
    seen = compare(called, expected)
    assert len(seen.pairs) == 120
    assert seen.approximation_reason == TOO_MANY_TO_COMPARE


def test_too_many_orders_are_truncated_and_marked_approximate() -> None:
    calls = [
        ToolCall("ab"[at * at % 7 % 2], arguments={"n": at % 5}, concurrent_with=tuple({at - 1, at + 1, at + 2}))
        for at in range(300)
    ]
    tools = tuple(ExpectedTool("ab"[at % 2], {"n": at * 3 % 7}) for at in range(60))
    groups = tuple(Parallel(tools[at : at + 12]) for at in range(0, 60, 12))
    seen = compare(calls, Golden("g", tools=groups, order="in_order"))
    assert seen.approximation_reason == TOO_MANY_TO_ALIGN
    assert len(seen.pairs) == 60


def test_a_conflict_of_arguments_and_order_among_many_calls_is_marked_approximate() -> None:
    called = [ToolCall("a", arguments={"x": n % 2}) for n in range(800)]
    expected = tuple(ExpectedTool("a", {"x": n // 400}) for n in range(800))
    seen = compare(called, Golden("g", tools=expected))
    assert agreeing(seen) == 800
    assert seen.approximation_reason == TOO_MANY_TO_ORDER


def test_too_many_alternatives_are_chosen_greedily_and_marked_approximate() -> None:
    either = tuple(
        AnyOf(((ExpectedTool(f"a{n}"), ExpectedTool(f"b{n}")), (ExpectedTool(f"c{n}"), ExpectedTool(f"d{n}"))))
        for n in range(20)
    )
    called = [name for n in range(20) for name in ((f"a{n}", f"b{n}") if n % 3 else (f"c{n}", f"d{n}"))]
    seen = compare(called, Golden("g", tools=either, order="in_order"))
    assert len(seen.pairs) == 40
    assert not seen.missing
    assert seen.approximation_reason == TOO_MANY_PLANS


def test_deeply_nested_alternatives_are_truncated_and_marked_approximate() -> None:
    single: tuple[ExpectedItem, ...] = (ExpectedTool("c"),)
    deep = AnyOf(((ExpectedTool("a"), ExpectedTool("b")), single))
    for _ in range(5):
        deep = AnyOf(((deep, deep), single))
    seen = compare(["c"], Golden("g", tools=(deep,)))
    assert seen.approximation_reason == TOO_MANY_PLANS
    assert len(seen.pairs) == 1


def test_a_pairing_without_effort_is_still_one() -> None:
    plan = golden_plans(Golden("g", tools=tuple(ExpectedTool("a", {"x": n}) for n in range(9)))).first_plan
    calls = [(at, ToolCall("a", arguments={"x": n})) for at, n in enumerate((3, 1, 2, 12, 13))]
    for order in ("any", "in_order"):
        found = pair_calls(plan, calls, order=order, names=DEFAULT_NAMING, schemas=unknown, budget=WorkBudget(0))
        assert sorted(found.rows) == [0, 1, 2, 3, 4]
        assert len({row.expected_at for row in found.rows.values()}) == 5
        assert found.approximate == TOO_MANY_TO_COMPARE
