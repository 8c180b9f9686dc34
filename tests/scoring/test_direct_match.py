"""Most runs of a list of calls take a direct way, with the same result as the general way, which is its oracle."""

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


def _golden(*fields: Any, **rules: Any) -> Golden:
    """A golden; with an exact order, no other calls are allowed."""
    return Golden(*fields, **rules | ({"extra": None} if rules["order"] == "exact" else {}))


GOLDENS = st.builds(
    _golden,
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
    mode=st.sampled_from(["recall", "recall", "precision", "f1", "exact", "set"]),
    extra=st.sampled_from([None, None, "penalize", "allow"]),
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
    calls = draw(st.sampled_from([*[_unchanged] * 4, *_MISTAKES]))(
        draw, draw(st.sampled_from([_unchanged, *_MISTAKES]))(draw, calls)
    )
    if draw(st.integers(0, 9)) == 0:
        calls = [replace(call, concurrent_with=_others(at, len(calls))) for at, call in enumerate(calls)]
    return Run(
        "r",
        agent=draw(st.sampled_from([None, "buyer"])),
        tool_calls=tuple(calls),
        available_tools=draw(OFFERS),
        health=Health(calls_invisible=draw(st.integers(0, 9)) == 0),
    )


def _unchanged(draw: st.DrawFn, calls: list[ToolCall]) -> list[ToolCall]:
    return calls


def _forgets(draw: st.DrawFn, calls: list[ToolCall]) -> list[ToolCall]:
    forgotten = draw(st.integers(0, len(calls)))
    return [call for at, call in enumerate(calls) if at != forgotten]


def _adds(draw: st.DrawFn, calls: list[ToolCall]) -> list[ToolCall]:
    at = draw(st.integers(0, len(calls)))
    return [*calls[:at], ToolCall(draw(NAMES), arguments=_plain(draw(ARGUMENTS))), *calls[at:]]


def _repeats(draw: st.DrawFn, calls: list[ToolCall]) -> list[ToolCall]:
    return [*calls, draw(st.sampled_from(calls))] if calls else []


def _mixes(draw: st.DrawFn, calls: list[ToolCall]) -> list[ToolCall]:
    return draw(st.permutations(calls))


def _changes(draw: st.DrawFn, calls: list[ToolCall]) -> list[ToolCall]:
    return [replace(call, arguments=_plain(draw(ARGUMENTS))) if draw(st.booleans()) else call for call in calls]


_MISTAKES = (_forgets, _adds, _repeats, _mixes, _changes)


def _others(at: int, calls: int) -> tuple[int, ...]:
    """The calls that overlap each call: its neighbour, so that the calls run in pairs."""
    return tuple(other for other in (at ^ 1,) if other < calls)


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
    return {each.name: repr(getattr(of, each.name)) for each in fields(of) if each.name not in _HINTS}


_HINTS = ("is_as_expected", "is_all_successful")
"""Fields of a comparison that only the direct way sets, for those who would find out the same from the rows."""


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


SEARCHES = Golden("g", tools=(ExpectedTool("a", {"x": 1}), ExpectedTool("a", {"x": 2}), ExpectedTool("b")))


@pytest.mark.parametrize(
    ("run", "verdicts", "in_order"),
    [
        pytest.param("a1 a2", "paired paired missing", [True, True], id="a call is missing"),
        pytest.param("a1 b", "paired missing paired", [True, True], id="one of two calls of a tool is missing"),
        pytest.param("a1 a2 c b", "paired paired unexpected paired", [True] * 3, id="a call of another tool"),
        pytest.param("a1 a2 b a1", "paired paired paired unexpected", [True] * 3, id="a call is repeated"),
        pytest.param("b a1 a2", "paired paired paired", [False, True, True], id="another order"),
        pytest.param("a2 a1 b", "paired paired paired", [True, False, True], id="calls of one tool in another order"),
        pytest.param("a1 a3 b", "paired paired paired", [True] * 3, id="other arguments of one of two calls"),
        pytest.param("a3 b", "paired missing paired", [True] * 2, id="one call is missing and one differs"),
    ],
)
def test_a_run_with_a_mistake_takes_the_direct_way(run: str, verdicts: str, in_order: list[bool]) -> None:
    calls = [ToolCall(text[0], arguments={"x": int(text[1:])} if text[1:] else None) for text in run.split()]
    found = _direct(_run(*calls), SEARCHES)
    assert found is not None
    assert [row.verdict for row in found.rows] == verdicts.split()
    assert [row.in_order for row in found.pairs] == in_order


@pytest.mark.parametrize(
    ("run", "golden"),
    [
        pytest.param(
            _run(*reversed(AS_EXPECTED.tool_calls)), replace(BOOK, order="in_order"), id="another order than required"
        ),
        pytest.param(
            _run(*(ToolCall(name, arguments={"x": 1}) for name in "aba")),
            Golden("g", tools=tuple(ExpectedTool(name, {"x": 1}) for name in "aab")),
            id="equal calls in another order",
        ),
        pytest.param(
            _run(ToolCall("a", arguments={"x": 1}), ToolCall("a", arguments={"x": 1})),
            Golden("g", tools=(ExpectedTool("a", {"x": 1}), ExpectedTool("a"))),
            id="expectations of one tool that state different parts",
        ),
        pytest.param(
            _run(ToolCall("add", server="orders"), ToolCall("add")),
            Golden("g", tools=(ExpectedTool("add", server="orders"), ExpectedTool("add", server="stock"))),
            id="calls that share some of their candidates",
        ),
    ],
)
def test_pairs_that_compete_are_weighted_on_the_direct_way(run: Run, golden: Golden) -> None:
    direct = _direct(run, golden)
    assert direct is not None
    assert _all_fields(direct) == _all_fields(compare_by_best_pairing(run, golden))


def test_calls_that_are_allowed_besides_are_tolerated_on_the_direct_way() -> None:
    found = _direct(_run(ToolCall("other"), *AS_EXPECTED.tool_calls), replace(BOOK, extra="allow"))
    assert found is not None
    assert [row.note for row in found.tolerated] == ["extra"]
    assert found.unexpected == ()


@pytest.mark.parametrize(
    ("run", "golden"),
    [
        pytest.param(
            _run(*map(ToolCall, "ba")),
            Golden("g", tools=tuple(map(ExpectedTool, "ab")), order="in_order"),
            id="only names, reversed",
        ),
        pytest.param(
            _run(*(ToolCall(name, concurrent_with=(at ^ 1,)) for at, name in enumerate("ba"))),
            replace(BOOK, tools=(ExpectedTool("a", {"x": 1}), ExpectedTool("b"))),
            id="concurrent calls in another order",
        ),
        pytest.param(_run(ToolCall("search")), replace(BOOK, duplicates="ignore"), id="repeats that do not count"),
        pytest.param(_run(ToolCall("search", error="x"), AS_EXPECTED.tool_calls[1]), BOOK, id="a failed call"),
        pytest.param(_run(ToolCall("search", outcome="denied"), AS_EXPECTED.tool_calls[1]), BOOK, id="a denied call"),
        pytest.param(_run(ToolCall("search", kind="agent"), AS_EXPECTED.tool_calls[1]), BOOK, id="a call of an agent"),
        pytest.param(AS_EXPECTED, replace(BOOK, forbid=("book",)), id="a forbidden call"),
        pytest.param(AS_EXPECTED, replace(BOOK, policy=True), id="a policy"),
        pytest.param(AS_EXPECTED, replace(BOOK, depth="own"), id="calls of one agent"),
        pytest.param(_run(), replace(BOOK, tools=()), id="nothing is expected"),
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
