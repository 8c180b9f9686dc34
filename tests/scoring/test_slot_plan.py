"""A golden is laid out as slots in stages, once, and says clearly what it cannot mean."""

from __future__ import annotations

from typing import Any

import pytest

from goldspan.errors import GoldspanError
from goldspan.model import (
    NO_VOCABULARY,
    ONCE,
    Agreement,
    AnyOf,
    ExpectedItem,
    ExpectedTool,
    Golden,
    Parallel,
    Times,
    Tool,
    ToolCall,
    Vocabulary,
)
from goldspan.scoring.matching.slot_plan import MAX_SLOTS, MAX_TRAJECTORIES, GoldenPlans, SlotPlan, golden_plans
from goldspan.scoring.run_comparison import compare


def tool(name: str, *times: int | None, **more: Any) -> ExpectedTool:
    return ExpectedTool(name, times=Times(*times) if times else ONCE, **more)


def either(*names: str, times: Times | None = None) -> AnyOf:
    return AnyOf(tuple((tool(name),) for name in names), times or Times())


def laid_out(plan: SlotPlan) -> str:
    """The slots in words: stages between bars, optional ones in brackets."""
    stages: dict[int, list[str]] = {}
    for slot, number in zip(plan.slots, plan.stages, strict=True):
        name = "/".join(one.name for one in slot.tools)
        stages.setdefault(number, []).append(name if slot.required else f"[{name}]")
    return " | ".join(" ".join(stage) for stage in stages.values())


def plans(*items: ExpectedItem) -> list[str]:
    asked = GoldenPlans(Golden("g", tools=items))
    ways: list[tuple[int, ...]] = [()]
    for choices in asked.trajectories:
        ways = [(*taken, at) for taken in ways for at in range(len(choices))]
    return [laid_out(asked.plan(taken)) for taken in ways]


A, B, C = tool("a"), tool("b"), tool("c")


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        pytest.param((), [""], id="nothing"),
        pytest.param((A, B), ["a | b"], id="one after the other"),
        pytest.param((tool("a", 2, 2), B), ["a | a | b"], id="twice"),
        pytest.param((tool("a", 0, 0), B), ["b"], id="not at all"),
        pytest.param((tool("a", 0, 1),), ["[a]"], id="optional"),
        pytest.param((Parallel((A, B)), C), ["a b | c"], id="in parallel"),
        pytest.param((Parallel((tool("a", 2, 2), either("b", "c"))),), ["a a b/c"], id="twice in parallel"),
        pytest.param((either("a", "b"), C), ["a/b | c"], id="alternatives share a slot"),
        pytest.param((AnyOf(((either("a", "b"),), (C,))),), ["a/b/c"], id="alternatives of alternatives"),
        pytest.param((AnyOf(((A, B), (C,))), A), ["a | b | a", "c | a"], id="trajectories make plans"),
        pytest.param((AnyOf(((tool("a", 2, 2),), (C,))),), ["a | a", "c"], id="twice is a trajectory"),
        pytest.param((AnyOf(((Parallel((A, B)),), (C,)), Times(0, 1)),), ["[a] [b]", "[c]"], id="optional ones"),
        pytest.param(
            (AnyOf(((A, AnyOf(((B, B), (C,)))), (C,))), AnyOf(((A, A), (B,)))),
            ["a | b | b | a | a", "a | b | b | b", "a | c | a | a", "a | c | b", "c | a | a", "c | b"],
            id="trajectories inside trajectories",
        ),
    ],
)
def test_items_become_slots_in_stages(items: tuple[ExpectedItem, ...], expected: list[str]) -> None:
    assert plans(*items) == expected


@pytest.mark.parametrize(
    ("items", "called", "expected"),
    [
        pytest.param((tool("a", 0, None), B), "", "[a] | b", id="any number: one is told"),
        pytest.param((tool("a", 0, None), B), "aab", "[a] | [a] | b", id="any number: as many as were called"),
        pytest.param((tool("a", 1, None), B), "aaa", "a | [a] | [a] | b", id="at least one"),
        pytest.param((tool("a", 2, 3), B), "a", "a | a | b", id="more would be allowed"),
        pytest.param((tool("a", 0, 2),), "aaaa", "[a] | [a]", id="at most two"),
        pytest.param((tool("a", 0, 10**12),), "aa", "[a] | [a]", id="a limit out of sight"),
        pytest.param((Parallel((tool("a", 0, None), B)),), "aa", "[a] [a] b", id="any number in parallel"),
        pytest.param((either("a", "b", times=Times(0, None)),), "ab", "[a/b] | [a/b]", id="any number of either"),
    ],
)
def test_an_open_number_makes_as_many_slots_as_calls_could_answer(
    items: tuple[ExpectedItem, ...], called: str, expected: str
) -> None:
    plan = golden_plans(Golden("g", tools=items)).first_plan
    assert plan.has_open_slots
    assert laid_out(plan.expand_open_slots([ToolCall(name) for name in called])) == expected


def test_a_plan_without_open_numbers_stays_as_it_is() -> None:
    plan = golden_plans(Golden("g", tools=(A,))).first_plan
    assert plan.expand_open_slots([ToolCall("a")]) is plan


def test_a_golden_is_laid_out_once() -> None:
    assert golden_plans(Golden("g", tools=(A,))) is golden_plans(Golden("g", tools=(ExpectedTool("a"),)))


def test_a_call_may_answer_the_slots_of_its_tool() -> None:
    plan = golden_plans(Golden("g", tools=(A, either("b", "a"), B, tool("A")))).first_plan
    assert plan.candidate_slots(ToolCall("a")) == (0, 1, 3)
    assert plan.candidate_slots(ToolCall("c")) == ()


def test_equal_slots_are_of_one_kind() -> None:
    tools = (tool("a", arguments={"x": 1}), tool("a", arguments={"x": 1}), tool("a", arguments={"x": True}), A, A)
    plan = golden_plans(Golden("g", tools=(*tools, tool("a", 0, 1)))).first_plan
    assert plan.kinds == [0, 0, 1, 2, 2, 3]
    assert plan.rough_kinds == [0, 0, 0, 0, 0, 1]


def test_the_golden_and_its_vocabulary_name_calls() -> None:
    beside = Vocabulary((Tool("helper"),))
    asked = golden_plans(Golden("g", tools=(AnyOf(((A, B), (C,))),), vocabulary=beside))
    assert [asked.mentions_call(ToolCall(name)) for name in ("a", "c", "helper", "x")] == [True, True, True, False]


DEEP = AnyOf(((A, B), (C,)))
for _ in range(4):
    DEEP = AnyOf(((DEEP, DEEP), (C,)))


def test_too_many_layouts_are_truncated_and_marked_approximate() -> None:
    asked = golden_plans(Golden("g", tools=(DEEP,)))
    assert len(asked.trajectories[0]) == MAX_TRAJECTORIES
    assert not asked.is_complete
    assert golden_plans(Golden("g", tools=(A,))).is_complete


@pytest.mark.parametrize(
    ("item", "sentence"),
    [
        pytest.param(
            tool("a", MAX_SLOTS + 1, None), "'a' is expected more than 10000 times.", id="one call without end"
        ),
        pytest.param(
            Parallel((tool("a", MAX_SLOTS, MAX_SLOTS), B)),
            "golden 'g' expects more than 10000 calls.",
            id="too many together",
        ),
        pytest.param(
            AnyOf(((A, B), (C,)), Times(2, 2)),
            "'a + b or c': only alternatives of one call each can be expected repeatedly.",
            id="trajectories several times",
        ),
        pytest.param(
            Parallel((AnyOf(((A, B), (C,))),)),
            "'a + b or c': alternatives of several calls cannot stand in a parallel group.",
            id="trajectories in parallel",
        ),
    ],
)
def test_an_impossible_layout_raises_one_sentence(item: ExpectedItem, sentence: str) -> None:
    with pytest.raises(GoldspanError) as caught:
        golden_plans(Golden("g", tools=(item,), vocabulary=NO_VOCABULARY))
    assert str(caught.value) == sentence


def test_alternatives_nested_without_end_are_a_clear_error() -> None:
    nested = AnyOf(((ExpectedTool("book"),),))
    for _ in range(5000):
        nested = AnyOf(((nested,),))
    with pytest.raises(GoldspanError, match="golden 'given': its alternatives are nested too deeply"):
        compare(["book"], [nested])


def test_arguments_that_hold_themselves_are_compared_like_any_others() -> None:
    circle: dict[str, Any] = {}
    circle["in"] = circle
    (pair,) = compare([{"name": "book", "arguments": circle}], [ExpectedTool("book", circle)]).pairs
    assert pair.agreement == Agreement(1.0)
