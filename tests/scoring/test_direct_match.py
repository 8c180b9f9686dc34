"""A run as expected takes a direct way, with the same result as the general way, which is its oracle."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.model import (
    ABSENT,
    AnyOf,
    Comparison,
    Evaluation,
    ExpectedTool,
    Golden,
    Health,
    Parallel,
    Run,
    Times,
    Tool,
    ToolCall,
    ToolDefinition,
    Vocabulary,
)
from goldspan.model.value_matchers import Approx
from goldspan.scoring import evaluate, evaluator
from goldspan.scoring.matching.direct_match import direct_match
from goldspan.scoring.matching.slot_plan import golden_plans
from goldspan.scoring.run_comparison import compare_by_best_pairing, compare_run

NAMES = st.sampled_from(["search", "book", "a", "b", "Search", "orders_search", "mcp__orders__search", "find"])
ARGUMENTS: st.SearchStrategy[Any] = st.none() | st.fixed_dictionaries(
    {"x": st.sampled_from([0, 1, 1.0, "1", True, float("nan"), Approx(1.0)])}, optional={"y": st.integers(0, 1)}
)
VOCABULARIES = st.sampled_from(
    [
        Vocabulary(),
        Vocabulary((Tool("search", aliases=("find",), effect="read"), Tool("book", effect="write"))),
        Vocabulary((Tool("book", parameters={"properties": {"x": {"type": "integer"}}}),), servers=("orders",)),
    ]
)
PLAIN = st.builds(
    ExpectedTool,
    NAMES,
    ARGUMENTS,
    match=st.sampled_from(["exact", "exact", "subset"]),
    ignore=st.sampled_from([(), (), ("y",)]),
)
OTHERS = st.one_of(
    st.builds(ExpectedTool, NAMES, server=st.sampled_from([None, "orders"]), agent=st.sampled_from([None, "buyer"])),
    st.builds(ExpectedTool, NAMES, result=st.sampled_from([ABSENT, 1])),
    st.builds(ExpectedTool, NAMES, times=st.sampled_from([Times(0, 1), Times(1, 2), Times(2, 2)])),
    st.builds(lambda one, other: AnyOf(((one,), (other,))), PLAIN, PLAIN),
    st.builds(lambda one, other: Parallel((one, other)), PLAIN, PLAIN),
)
GOLDENS = st.builds(
    Golden,
    st.just("g"),
    tools=st.lists(PLAIN, min_size=1, max_size=4).map(tuple)
    | st.lists(PLAIN | OTHERS, min_size=1, max_size=4).map(tuple),
    order=st.sampled_from(["any", "in_order", "exact"]),
    forbid=st.sampled_from([(), (), (), (), ("refund*",), ("book",)]),
    max_calls=st.sampled_from([None, None, None, 2]),
    depth=st.sampled_from(["all"] * 7 + ["own"]),
    duplicates=st.sampled_from(["count", "count", "ignore"]),
    attempts=st.sampled_from(["effective", "all", "succeeded"]),
    threshold=st.sampled_from([1.0, 1.0, 0.5]),
    write_tools=st.sampled_from([None, None, None, ("book",)]),
    vocabulary=VOCABULARIES,
    policy=st.sampled_from([False] * 9 + [True]),
)
OFFERS = st.sampled_from(
    [
        (),
        (),
        (ToolDefinition("search", read_only=True), ToolDefinition("book", read_only=False)),
        (ToolDefinition("search", parameters={"properties": {"x": {"type": "string"}}}),),
    ]
)
_CHANGES: dict[str, st.SearchStrategy[Any]] = {
    "error": st.just("timeout"),
    "error_guess": st.just("Error: no room"),
    "outcome": st.sampled_from(["error", "denied", "deferred"]),
    "evidence": st.just("requested"),
    "kind": st.sampled_from(["agent", "hosted", "handoff"]),
    "agent": st.sampled_from(["buyer", "seller"]),
    "server": st.sampled_from(["orders", "stock"]),
    "name": NAMES,
    "arguments": ARGUMENTS,
}
UNUSUAL = st.one_of(
    [st.fixed_dictionaries({key: values}) for key, values in [*_CHANGES.items(), *3 * [*_CHANGES.items()][-1:]]]
)


@st.composite
def runs_of(draw: st.DrawFn, golden: Golden) -> Run:
    """The expected calls of a golden, in most runs without a change."""
    calls = []
    for tool in golden.expected_calls:
        arguments = draw(ARGUMENTS) if tool.arguments is None else dict(tool.arguments)
        call = ToolCall(tool.name, arguments=_plain(arguments), outcome=draw(st.sampled_from([None, "ok", "ok"])))
        calls.append(call)
    if calls and draw(st.integers(0, 2)) == 0:
        at = draw(st.integers(0, len(calls) - 1))
        changed = {key: _plain(value) for key, value in draw(UNUSUAL).items()}
        calls[at] = replace(calls[at], raw_name="" if "name" in changed else calls[at].raw_name, **changed)
    if draw(st.integers(0, 5)) == 0:
        calls = draw(st.permutations(calls)) + draw(st.sampled_from([[], [ToolCall("search")]]))
    return Run(
        "r",
        agent=draw(st.sampled_from([None, "buyer"])),
        tool_calls=tuple(calls),
        available_tools=draw(OFFERS),
        health=Health(calls_invisible=draw(st.integers(0, 9)) == 0),
    )


def _plain(arguments: Any) -> Any:
    """Arguments of a call: a number where the expectation has a matcher."""
    if not isinstance(arguments, dict):
        return arguments
    return {key: 1.0 if isinstance(value, Approx) else value for key, value in arguments.items()}


@st.composite
def evaluated(draw: st.DrawFn) -> tuple[Golden, list[Run]]:
    """A golden with several runs, the later of which can use what was computed for the earlier ones."""
    golden = draw(GOLDENS)
    return golden, draw(st.lists(runs_of(golden), min_size=1, max_size=4))


def _all_fields(of: Any) -> dict[str, str]:
    """Every field as text, because NaN does not equal itself."""
    return {each.name: repr(getattr(of, each.name)) for each in fields(of) if each.name != "is_as_expected"}


@given(evaluated())
def test_the_direct_comparison_is_that_of_the_general_way(given_: tuple[Golden, list[Run]]) -> None:
    golden, runs = given_
    for run in runs:
        direct, general = compare_run(run, golden), compare_by_best_pairing(run, golden)
        assert _all_fields(direct) == _all_fields(general)
        assert direct.faults == general.faults
        assert direct.golden is golden


@given(evaluated(), st.booleans(), st.sampled_from([None, None, 60.0, -1.0]))
def test_the_direct_evaluation_is_that_of_the_general_way(
    given_: tuple[Golden, list[Run]], reasons: bool, budget: float | None
) -> None:
    golden, runs = given_
    for run in runs:
        direct = evaluate(run, golden, reasons=reasons, budget=budget)
        with patch("goldspan.scoring.run_comparison.direct_match", return_value=None):
            general = evaluate(run, golden, reasons=reasons, budget=budget)
        assert _all_fields(direct) == _all_fields(general)
        assert (direct.faults, direct.digest) == (general.faults, general.digest)


# --- when the direct way is taken -------------------------------------------------------------------------------------

BOOK = Golden("book", tools=(ExpectedTool("search"), ExpectedTool("book", {"nights": 2})))


def _run(*calls: ToolCall, **more: Any) -> Run:
    return Run("r", tool_calls=calls, **more)


AS_EXPECTED = _run(ToolCall("search"), ToolCall("book", arguments={"nights": 2}))


def _direct(run: Run, golden: Golden = BOOK) -> Comparison | None:
    match = direct_match(golden_plans(golden))
    return None if match is None else match.compare(run, golden)


def test_a_run_as_expected_takes_the_direct_way() -> None:
    found = _direct(AS_EXPECTED)
    assert found is not None
    assert found.is_as_expected
    assert found.pairs == found.rows


def test_arguments_in_another_spelling_take_the_direct_way() -> None:
    golden = Golden("g", tools=(ExpectedTool("book", {"nights": 2, "city": "Rome"}),))
    found = _direct(_run(ToolCall("book", arguments={"city": "Rome", "nights": 2.0})), golden)
    assert found is not None
    assert found.is_as_expected


def test_differing_arguments_are_compared_and_are_not_as_expected() -> None:
    found = _direct(_run(ToolCall("search"), ToolCall("book", arguments={"nights": 3})))
    assert found is not None
    assert not found.is_as_expected
    assert [fault.kind for fault in found.faults] == ["arguments"]


@pytest.mark.parametrize(
    ("run", "golden"),
    [
        pytest.param(_run(ToolCall("search")), BOOK, id="a call is missing"),
        pytest.param(_run(*reversed(AS_EXPECTED.tool_calls)), BOOK, id="another order"),
        pytest.param(_run(ToolCall("search", error="x"), AS_EXPECTED.tool_calls[1]), BOOK, id="a failed call"),
        pytest.param(_run(ToolCall("search", outcome="denied"), AS_EXPECTED.tool_calls[1]), BOOK, id="a denied call"),
        pytest.param(_run(ToolCall("search", kind="agent"), AS_EXPECTED.tool_calls[1]), BOOK, id="a call of an agent"),
        pytest.param(AS_EXPECTED, replace(BOOK, forbid=("book",)), id="a forbidden call"),
        pytest.param(AS_EXPECTED, replace(BOOK, policy=True), id="a policy"),
        pytest.param(AS_EXPECTED, replace(BOOK, depth="own"), id="calls of one agent"),
        pytest.param(_run(), replace(BOOK, tools=()), id="nothing is expected"),
        pytest.param(
            _run(ToolCall("a", arguments={"x": 2}), ToolCall("a", arguments={"x": 1})),
            Golden("g", tools=(ExpectedTool("a", {"x": 1}), ExpectedTool("a", {"x": 2}))),
            id="calls of one tool in another order",
        ),
        pytest.param(
            _run(ToolCall("a", arguments={"x": 1}), ToolCall("a", arguments={"x": 1})),
            Golden("g", tools=(ExpectedTool("a", {"x": 1}), ExpectedTool("a"))),
            id="expectations of one tool that state different parts",
        ),
    ],
)
def test_every_other_run_takes_the_general_way(run: Run, golden: Golden) -> None:
    assert _direct(run, golden) is None


def test_what_was_computed_for_a_run_as_expected_serves_the_next_one() -> None:
    golden = replace(BOOK, id="measured once")
    first = evaluate(AS_EXPECTED, golden)
    with patch.object(evaluator, "determine_verdict") as determined:
        second = evaluate(AS_EXPECTED, golden)
    determined.assert_not_called()
    assert second == first


def test_an_evaluation_that_ran_out_of_time_serves_no_other() -> None:
    golden = replace(BOOK, id="no time")
    assert _value(evaluate(AS_EXPECTED, golden, budget=-1.0), "tool_correctness") is None
    assert _value(evaluate(AS_EXPECTED, golden), "tool_correctness") == 1.0
    assert _value(evaluate(AS_EXPECTED, golden, budget=-1.0), "tool_correctness") is None


def test_repeated_calls_are_measured_for_each_run() -> None:
    golden = Golden("twice", tools=(ExpectedTool("search"), ExpectedTool("search")))
    other = _run(ToolCall("search", arguments={"q": 1}), ToolCall("search", arguments={"q": 2}))
    same = _run(ToolCall("search", arguments={"q": 1}), ToolCall("search", arguments={"q": 1}))
    assert [_value(evaluate(run, golden), "redundant_calls") for run in (other, same, other)] == [1.0, 0.5, 1.0]


def test_offered_tools_are_compared_for_each_run() -> None:
    golden = replace(BOOK, id="offered")
    runs = [
        replace(AS_EXPECTED, available_tools=tuple(map(ToolDefinition, offered)))
        for offered in (("search",), ("search", "book"), ())
    ]
    assert [_value(evaluate(run, golden), "unknown_tools") for run in runs] == [0.5, 1.0, None]


def _value(evaluation: Evaluation, metric: str) -> float | None:
    score = evaluation.score(metric)
    assert score is not None
    return score.value
