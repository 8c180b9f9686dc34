"""A comparison says of every call and every expectation, once, what became of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.errors import GoldspanError
from goldspan.model import CallOrder, Comparison, ExpectedTool, Golden, Run, Tool, ToolCall, ToolDefinition, Vocabulary
from goldspan.scoring import compare
from goldspan.scoring.arguments.agreement import argument_agreement
from goldspan.scoring.run_comparison import compare_run

NAMES = st.sampled_from(["search", "book", "pay"])
ARGUMENTS = st.none() | st.fixed_dictionaries({}, optional={"x": st.integers(0, 1), "y": st.integers(0, 1)})
CALLS = st.lists(
    st.builds(
        ToolCall,
        st.sampled_from(["search", "Search", "book", "pay", "cancel"]),
        arguments=ARGUMENTS,
        error=st.none() | st.just("timeout"),
        outcome=st.sampled_from(["ok", "denied", None]),
        kind=st.sampled_from(["tool", "tool", "hosted", "agent"]),
    ),
    max_size=6,
)
GOLDENS = st.builds(
    Golden,
    st.just("g"),
    tools=st.lists(st.builds(ExpectedTool, NAMES, ARGUMENTS), max_size=5).map(tuple),
    order=st.sampled_from(["any", "in_order", "exact"]),
    forbid=st.sampled_from([(), ("can*",)]),
    attempts=st.sampled_from(["effective", "all", "succeeded"]),
)


def story(seen: Comparison) -> list[str]:
    """The rows in words: `verdict expected=called (note)`, with ` !` for pairs that are out of order."""
    words = []
    for row in seen.rows:
        sides = (row.expected.name if row.expected else "", row.called.raw_name if row.called else "")
        note = f" ({row.note})" if row.note in NOTES else ""
        words.append(f"{row.verdict} {'='.join(filter(None, sides))}{note}{' !' if row.in_order is False else ''}")
    return words


NOTES = {"optional", "optional, not called", "extra", "repeat", "sub-agent"}


def failed(name: str, **more: Any) -> ToolCall:
    return ToolCall(name, error="timeout", **more)


def at_once(*names: str) -> list[ToolCall]:
    """Calls that all overlap in time."""
    return [
        ToolCall(name, concurrent_with=tuple(other for other in range(len(names)) if other != at))
        for at, name in enumerate(names)
    ]


# --- one call, one row ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("called", "expected", "rows"),
    [
        pytest.param([], [], [], id="nothing"),
        pytest.param(["a"], [], ["unexpected a"], id="nothing was expected"),
        pytest.param([], ["a"], ["missing a"], id="nothing was called"),
        pytest.param(["a", "b"], ["a", "b"], ["paired a=a", "paired b=b"], id="as expected"),
        pytest.param(["a", "x", "b"], ["a", "b"], ["paired a=a", "unexpected x", "paired b=b"], id="one extra"),
        pytest.param(["a", "c"], ["a", "b", "c"], ["paired a=a", "missing b", "paired c=c"], id="one missing"),
        pytest.param(["b"], ["a", "b"], ["missing a", "paired b=b"], id="the first missing"),
        pytest.param(["a", "x"], ["a", "b"], ["paired a=a", "missing b", "unexpected x"], id="another tool instead"),
        pytest.param(["a", "a"], ["a", "a"], ["paired a=a", "paired a=a"], id="twice"),
        pytest.param(["a"], ["a", "a"], ["paired a=a", "missing a"], id="too few"),
        pytest.param(["a", "a"], ["a"], ["paired a=a", "unexpected a"], id="too many"),
        pytest.param(["mcp__web__search"], ["search"], ["paired search=mcp__web__search"], id="decorated"),
        pytest.param(["mcp__a__b"], ["mcp__a__b"], ["paired mcp__a__b=mcp__a__b"], id="decorated on both sides"),
        pytest.param(["WebSearch"], ["web_search"], ["paired web_search=WebSearch"], id="another spelling"),
        pytest.param(
            ["WebSearch", "web_search"], ["web_search"], ["unexpected WebSearch", "paired web_search=web_search"],
            id="the exact spelling wins",
        ),
        pytest.param(
            [ToolCall("add", server="stock"), ToolCall("add", server="orders")],
            ["orders_add"],
            ["unexpected add", "paired orders_add=add"],
            id="the right server",
        ),
        pytest.param(
            [ToolCall("Add", server="x"), ToolCall("mcp-orders-add")],
            ["mcp__orders__add"],
            ["unexpected Add", "paired mcp__orders__add=mcp-orders-add"],
            id="the closer spelling wins",
        ),
        pytest.param(
            [ToolCall("add", server="stock")],
            [{"name": "add", "server": "orders"}],
            ["missing add", "unexpected add"],
            id="another server's tool of the same name",
        ),
        pytest.param(
            [{"name": "orders_add", "server": "orders"}, {"name": "orders.add", "server": "orders"}],
            ["add", "mcp__orders__add"],
            ["paired add=orders_add", "paired mcp__orders__add=orders.add"],
            id="calls that name their server",
        ),
    ],
)  # fmt: skip
def test_every_call_and_every_expectation_has_its_row(called: Any, expected: Any, rows: list[str]) -> None:
    assert story(compare(called, expected)) == rows


@given(CALLS, GOLDENS)
def test_every_call_and_every_expectation_is_accounted_for_once(calls: list[ToolCall], golden: Golden) -> None:
    seen = compare(calls, golden)
    assert [row.called_at for row in seen.rows if row.called] == list(range(len(calls)))
    assert sorted(row.expected_at for row in seen.rows if row.expected_at is not None) == list(range(len(golden.tools)))
    for row in seen.rows:
        assert (row.verdict == "paired") is (row.in_order is not None) is (bool(row.expected and row.called))
        assert (row.verdict == "missing") is (row.called is None)
    counted = [*seen.pairs, *seen.missing, *seen.unexpected, *seen.superseded, *seen.tolerated, *seen.forbidden]
    assert len(counted) == len(seen.rows)


# --- order ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "called", "expected", "rows"),
    [
        pytest.param("any", "ba", "ab", ["paired b=b", "paired a=a !"], id="any: swapped"),
        pytest.param("any", "aba", "ba", ["unexpected a", "paired b=b", "paired a=a"], id="any: order breaks ties"),
        pytest.param("in_order", "ab", "ab", ["paired a=a", "paired b=b"], id="in order"),
        pytest.param("in_order", "axb", "ab", ["paired a=a", "unexpected x", "paired b=b"], id="one in between"),
        pytest.param("in_order", "ba", "ab", ["paired b=b", "paired a=a !"], id="swapped"),
        pytest.param("in_order", "bca", "abc", ["paired b=b", "paired c=c", "paired a=a !"], id="the first came last"),
        pytest.param(
            "in_order", "aba", "ba", ["unexpected a", "paired b=b", "paired a=a"], id="the call that is in order"
        ),
        pytest.param("in_order", "bb", "ab", ["missing a", "paired b=b", "unexpected b"], id="missing and repeated"),
        pytest.param("exact", "ab", "ab", ["paired a=a", "paired b=b"], id="exact"),
        pytest.param(
            "exact", "xab", "ab", ["unexpected x", "paired a=a", "paired b=b"], id="exact: another before them"
        ),
        pytest.param("exact", "aab", "ab", ["paired a=a", "unexpected a", "paired b=b"], id="exact: one twice"),
        pytest.param("exact", "ba", "ab", ["paired b=b", "paired a=a !"], id="exact: swapped"),
    ],
)
def test_order_is_as_strict_as_the_golden_wants_it(
    order: CallOrder, called: str, expected: str, rows: list[str]
) -> None:
    seen = compare(list(called), list(expected), order=order)
    assert story(seen) == rows


@pytest.mark.parametrize("order", ["any", "in_order", "exact"])
@pytest.mark.parametrize("names", ["abc", "cba", "bca"])
def test_calls_that_overlap_in_time_may_stand_in_any_order(order: CallOrder, names: str) -> None:
    seen = compare(at_once(*names), list("abc"), order=order)
    assert [row.in_order for row in seen.pairs] == [True] * 3


def test_only_overlapping_calls_may_swap() -> None:
    b, a = at_once("b", "a")
    late = ToolCall("first")
    seen = compare([b, a, late], ["first", "a", "b"], order="in_order")
    assert [row.called.name for row in seen.pairs if row.called and row.in_order] == ["b", "a"]


def test_overlapping_calls_in_the_middle_of_a_repeated_pattern_are_aligned() -> None:
    calls = [ToolCall("b"), *(call for call in at_once("a", "b")), ToolCall("a")]
    shifted = [
        ToolCall(call.name, concurrent_with=tuple(other + 1 for other in call.concurrent_with)) for call in calls
    ]
    seen = compare(shifted, ["a", "b", "a", "c"], order="in_order")
    assert [row.in_order for row in seen.pairs] == [True] * 3


# --- what takes part --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("called", "expected", "more", "rows"),
    [
        pytest.param([ToolCall("a", outcome="denied")], ["a"], {}, ["missing a", "tolerated a"], id="denied"),
        pytest.param([ToolCall("a", outcome="deferred")], [], {}, ["tolerated a"], id="deferred"),
        pytest.param([ToolCall("helper", kind="agent")], [], {}, ["tolerated helper"], id="an agent"),
        pytest.param([ToolCall("docs", kind="retrieval")], [], {}, ["tolerated docs"], id="a retrieval"),
        pytest.param([ToolCall("to_b", kind="handoff")], ["to_b"], {}, ["paired to_b=to_b"], id="a hand-off by name"),
        pytest.param([ToolCall("done", kind="answer")], [], {}, ["tolerated done"], id="the answer"),
        pytest.param([ToolCall("done", kind="answer")], ["done"], {}, ["paired done=done"], id="the answer by name"),
        pytest.param([ToolCall("web", kind="hosted")], [], {}, ["unexpected web"], id="a hosted tool counts"),
        pytest.param(["delete_user"], [], {"forbid": ["delete_*"]}, ["forbidden delete_user"], id="forbidden"),
        pytest.param(
            [failed("delete_user")],
            [],
            {"forbid": ["delete_*"], "attempts": "succeeded"},
            ["forbidden delete_user"],
            id="forbidden and failed",
        ),
        pytest.param(
            [ToolCall("delete_user", outcome="denied")],
            [],
            {"forbid": ["delete_*"]},
            ["tolerated delete_user"],
            id="forbidden and denied: it was never called",
        ),
        pytest.param(
            [ToolCall("to_b", kind="handoff")], [], {"forbid": ["to_*"]}, ["forbidden to_b"], id="forbidden hand-off"
        ),
        pytest.param([failed("a"), ToolCall("A")], ["a"], {}, ["superseded a", "paired a=A"], id="a failure made good"),
        pytest.param(
            [failed("a"), "b", failed("a"), "a"],
            ["a", "b"],
            {},
            ["superseded a", "paired b=b", "superseded a", "paired a=a !"],
            id="two failures made good",
        ),
        pytest.param([failed("a")], ["a"], {}, ["paired a=a"], id="a failure never made good"),
        pytest.param([failed("a"), failed("a")], ["a"], {}, ["superseded a", "paired a=a"], id="two of them"),
        pytest.param(
            [failed("a", arguments={"x": 1}), failed("a", arguments={"x": 2})],
            ["a", "a"],
            {},
            ["paired a=a", "paired a=a"],
            id="two of them that are different calls",
        ),
        pytest.param(
            [failed("a", arguments={"x": 1}), failed("a", arguments={"x": 2}), ToolCall("a", arguments={"x": 2.0})],
            ["a", "a"],
            {},
            ["paired a=a", "superseded a", "paired a=a"],
            id="only one of two different calls was made good",
        ),
        pytest.param(
            [failed("a", arguments={"x": 1}), ToolCall("a", arguments={"x": 2})],
            [{"name": "a", "args": {"x": 1}}],
            {},
            ["superseded a", "paired a=a"],
            id="a success is preferred, whatever the failure was called with",
        ),
        pytest.param(
            [failed("a", arguments={"x": 1}), ToolCall("a", arguments={"x": 2})],
            [{"name": "a", "times": {"min": 1, "max": 2}}],
            {},
            ["superseded a", "paired a=a"],
            id="what was made good answers nothing optional",
        ),
        pytest.param(
            [failed("b", arguments={"x": 1}), failed("b", arguments={"x": 2})],
            [],
            {},
            ["superseded b", "unexpected b"],
            id="tried twice in vain, it counts once",
        ),
        pytest.param(["a", failed("a")], ["a"], {}, ["paired a=a", "unexpected a"], id="a failure after the success"),
        pytest.param(
            [failed("a"), ToolCall("a", kind="tool")],
            ["a"],
            {"attempts": "all"},
            ["unexpected a", "paired a=a"],
            id="all attempts: success is preferred",
        ),
        pytest.param(
            [failed("a"), "a"], ["a", "a"], {"attempts": "all"}, ["paired a=a", "paired a=a"], id="all attempts count"
        ),
        pytest.param(
            [failed("a")], ["a"], {"attempts": "succeeded"}, ["missing a", "superseded a"], id="failures never count"
        ),
        pytest.param(
            [failed("add", server="stock"), ToolCall("add", server="orders")],
            ["orders_add"],
            {},
            ["unexpected add", "paired orders_add=add"],
            id="another server's success makes nothing good",
        ),
    ],
)
def test_calls_count_or_do_not(called: Any, expected: Any, more: dict[str, Any], rows: list[str]) -> None:
    assert story(compare(called, expected, **more)) == rows


BESIDE = Golden(
    "g",
    tools=(ExpectedTool("search"),),
    vocabulary=Vocabulary((Tool("search", ("find",)), Tool("researcher"), Tool("to_b", ("transfer_to_b",)))),
)


@pytest.mark.parametrize(
    ("called", "rows"),
    [
        pytest.param(["find"], ["paired search=find"], id="an alias"),
        pytest.param(["find", "search"], ["unexpected find", "paired search=search"], id="the own name wins"),
        pytest.param(["FIND", "find"], ["paired search=FIND", "unexpected find"], id="of two aliases the first"),
        pytest.param([failed("find"), "search"], ["superseded find", "paired search=search"], id="made good by alias"),
        pytest.param(["search", ToolCall("researcher", kind="agent")],
                     ["paired search=search", "unexpected researcher"], id="an agent in the vocabulary counts"),
        pytest.param(["search", ToolCall("transfer_to_b", kind="handoff")],
                     ["paired search=search", "unexpected transfer_to_b"], id="a hand-off by its alias, too"),
        pytest.param(["search", ToolCall("writer", kind="agent")], ["paired search=search", "tolerated writer"],
                     id="any other agent does not"),
    ],
)  # fmt: skip
def test_the_vocabulary_of_a_golden_defines_aliases_and_counted_kinds(called: Any, rows: list[str]) -> None:
    assert story(compare(called, BESIDE)) == rows


def test_calls_that_do_not_count_say_why() -> None:
    calls = [
        ToolCall("a", outcome="denied"),
        ToolCall("b", kind="agent"),
        failed("c"),
        ToolCall("c"),
    ]
    assert [row.note for row in compare(calls, ["c"]).rows] == ["denied", "agent", "made good by a later call", None]
    assert compare([failed("c")], [], attempts="succeeded").rows[0].note == "failed"
    assert compare(["a"], None).rows[0].note == "no golden"


def test_without_a_golden_every_call_is_tolerated() -> None:
    seen = compare(["a", "delete_user"], None)
    assert seen.golden is None
    assert story(seen) == ["tolerated a", "tolerated delete_user"]


# --- what need not be called, may be called otherwise, or several times -----------------------------------------------

OPTIONAL = {"name": "o", "optional": True}
EITHER = {"any_of": ["mail", "sms"]}
PATHS = {"any_of": [["find", "refund"], "escalate"]}
TOGETHER = {"parallel": ["log", "notify"]}


def times(least: int, most: int | None = None) -> dict[str, Any]:
    return {"name": "t", "times": {"min": least} if most is None else {"min": least, "max": most}}


@pytest.mark.parametrize(
    ("order", "called", "expected", "rows"),
    [
        pytest.param("any", "o", [OPTIONAL], ["tolerated o=o (optional)"], id="optional and called"),
        pytest.param("any", "", [OPTIONAL], ["tolerated o (optional, not called)"], id="optional and not called"),
        pytest.param("any", "o o", [OPTIONAL], ["tolerated o=o (optional)", "unexpected o"], id="optional, but once"),
        pytest.param("any", "o", [OPTIONAL, "o"], ["tolerated o (optional, not called)", "paired o=o"],
                     id="what must be called comes first"),
        pytest.param("in_order", "o a", ["a", OPTIONAL], ["tolerated o=o (optional) !", "paired a=a"],
                     id="what may be called has its place, too"),
        pytest.param("any", "", [EITHER], ["missing mail or sms"], id="neither alternative"),
        pytest.param("any", "sms", [EITHER], ["paired sms=sms"], id="the other alternative"),
        pytest.param("any", "mail sms", [EITHER], ["paired mail=mail", "unexpected sms"], id="both alternatives"),
        pytest.param("any", "sms mail", [EITHER, "sms"], ["paired sms=sms", "paired mail=mail !"],
                     id="an alternative leaves a call to what takes no other"),
        pytest.param("any", "sms", [{**EITHER, "optional": True}], ["tolerated sms=sms (optional)"],
                     id="optional alternatives"),
        pytest.param("any", "mail sms", [{**EITHER, "times": 2}], ["paired mail=mail", "paired sms=sms"],
                     id="alternatives twice"),
        pytest.param("any", "find refund", [PATHS], ["paired find=find", "paired refund=refund"], id="one trajectory"),
        pytest.param("any", "escalate", [PATHS], ["paired escalate=escalate"], id="the other trajectory"),
        pytest.param("any", "find", [PATHS], ["paired find=find", "missing refund"], id="half of a trajectory"),
        pytest.param("any", "find escalate", [PATHS], ["unexpected find", "paired escalate=escalate"],
                     id="a whole trajectory and half of another"),
        pytest.param("any", "", [PATHS], ["missing find", "missing refund"], id="no trajectory"),
        pytest.param("any", "x", [{"any_of": [["a", "b"], ["x", "y"]]}], ["paired x=x", "missing y"],
                     id="the trajectory that was begun"),
        pytest.param("in_order", "b a", [{"any_of": [["a", "b"], ["b", "a"]]}], ["paired b=b", "paired a=a"],
                     id="the trajectory that is in order"),
        pytest.param("any", "find", [{**PATHS, "optional": True}],
                     ["tolerated find=find (optional)", "tolerated refund (optional, not called)"],
                     id="an optional trajectory"),
        pytest.param("any", "a z", ["a", {"any_of": [[PATHS, "z"], ["z", "y"]]}],
                     ["paired a=a", "missing escalate", "paired z=z"], id="alternatives inside alternatives"),
        pytest.param("in_order", "a notify log b", ["a", TOGETHER, "b"],
                     ["paired a=a", "paired notify=notify", "paired log=log", "paired b=b"], id="in parallel"),
        pytest.param("in_order", "log a b notify", ["a", "b", TOGETHER],
                     ["paired log=log !", "paired a=a", "paired b=b", "paired notify=notify"], id="before its turn"),
        pytest.param("in_order", "sms log b", [{"parallel": ["log", EITHER]}, "b"],
                     ["paired sms=sms", "paired log=log", "paired b=b"], id="an alternative in parallel"),
        pytest.param("any", "t t t", [times(1, 2)], ["paired t=t", "tolerated t=t (optional)", "unexpected t"],
                     id="once or twice, and called three times"),
        pytest.param("any", "t", [times(2, 4)], ["paired t=t", "missing t"], id="too few times"),
        pytest.param("any", "t t t", [times(1)], ["paired t=t", *["tolerated t=t (optional)"] * 2], id="at least once"),
        pytest.param("any", "", [times(0)], ["tolerated t (optional, not called)"], id="any number, and none"),
        pytest.param("in_order", "t t a t", [times(0), "a"],
                     [*["tolerated t=t (optional)"] * 2, "paired a=a", "tolerated t=t (optional) !"],
                     id="any number before another"),
        pytest.param("in_order", "t a t", [{"parallel": [times(0), "a"]}],
                     ["tolerated t=t (optional)", "paired a=a", "tolerated t=t (optional)"],
                     id="any number beside another"),
    ],
)  # fmt: skip
def test_the_order_of_a_golden_states_which_calls_may_be_swapped(
    order: CallOrder, called: str, expected: Any, rows: list[str]
) -> None:
    assert story(compare(called.split(), expected, order=order)) == rows


@pytest.mark.parametrize(
    ("called", "expected", "rules", "rows"),
    [
        pytest.param("a a x", "a", {"duplicates": "ignore"}, ["paired a=a", "tolerated a (repeat)", "unexpected x"],
                     id="called again"),
        pytest.param("x x a", "a", {"duplicates": "ignore"}, ["unexpected x", "tolerated x (repeat)", "paired a=a"],
                     id="what nobody expected, again"),
        pytest.param("a", "a a b b", {"duplicates": "ignore"},
                     ["paired a=a", "tolerated a (repeat)", "missing b", "tolerated b (repeat)"], id="expected again"),
        pytest.param("x a", "a", {"extra": "allow"}, ["tolerated x (extra)", "paired a=a"], id="more is allowed"),
        pytest.param("rm a", "a", {"extra": "allow", "forbid": ["rm"]}, ["forbidden rm", "paired a=a"],
                     id="more is allowed, but not what is forbidden"),
    ],
)  # fmt: skip
def test_repeats_and_extra_calls_count_as_the_golden_wants_it(
    called: str, expected: str, rules: Any, rows: list[str]
) -> None:
    assert story(compare(called.split(), expected.split(), **rules)) == rows


def test_a_repeat_has_the_same_arguments() -> None:
    called = [{"name": "a", "args": args} for args in ({"x": 1}, {"x": 1.0, "y": None}, {"x": 2})]
    assert [row.verdict for row in compare(called, ["a"], duplicates="ignore").rows] == [
        "paired",
        "tolerated",
        "unexpected",
    ]


def test_a_duplicate_is_marked_at_any_distance_from_the_counted_call() -> None:
    called = [{"name": "a", "args": {"x": 1}}, "b", {"name": "a", "args": {"x": 1}}]
    seen = compare(called, ["b", {"name": "a", "args": {"x": 1}}], order="in_order", duplicates="ignore")
    assert story(seen) == ["tolerated a (repeat)", "paired b=b", "paired a=a"]


@pytest.mark.parametrize(
    ("own", "rows"),
    [
        pytest.param("main", ["paired a=a", "tolerated b (sub-agent)", "unexpected c"], id="its own calls only"),
        pytest.param(None, ["paired a=a", "unexpected b", "unexpected c"], id="nobody knows whose it is"),
    ],
)
def test_calls_of_other_agents_do_not_count_under_depth_own(own: str | None, rows: list[str]) -> None:
    calls = (ToolCall("a", agent="main"), ToolCall("b", agent="helper"), ToolCall("c"))
    golden = Golden("g", tools=(ExpectedTool("a"),), depth="own")
    assert story(compare_run(Run("r", agent=own, tool_calls=calls), golden)) == rows


def test_a_forbidden_tool_is_forbidden_to_all_agents() -> None:
    run = Run("r", agent="main", tool_calls=(ToolCall("rm", agent="helper"),))
    assert story(compare(run, [], depth="own", forbid=["rm"])) == ["forbidden rm"]


def test_a_failure_and_its_repetition_answer_one_expectation_not_two() -> None:
    calls = [{"name": "pay", "error": "timeout"}, "pay"]
    assert story(compare(calls, ["pay", "pay"])) == ["superseded pay", "paired pay=pay", "missing pay"]
    assert story(compare(calls, ["pay", "pay"], attempts="all")) == ["paired pay=pay", "paired pay=pay"]


def test_a_comparison_has_its_run() -> None:
    run = Run("r", tool_calls=(ToolCall("a"),))
    assert compare(run, ["a"]).run is run
    assert compare(run, None).run is run
    assert compare(["a"], []).run == Run("", tool_calls=(ToolCall("a"),))


# --- arguments decide who answers whom --------------------------------------------------------------------------------


def test_the_best_pairing_is_chosen_where_a_greedy_one_is_worse() -> None:
    called = [{"name": "s", "args": {"a": 1, "b": 1}}, {"name": "s", "args": {"a": 1, "b": 2}}]
    expected = [{"name": "s", "args": {"a": 1}}, {"name": "s", "args": {"a": 1, "b": 1}}]
    seen = compare(called, expected)
    assert [(row.expected_at, row.called_at) for row in seen.pairs] == [(1, 0), (0, 1)]


@pytest.mark.parametrize(
    ("called", "expected", "pairs"),
    [
        pytest.param([{"q": 2}, {"q": 1}], [{"q": 1}, {"q": 2}], {0: 1, 1: 0}, id="each to its own"),
        pytest.param([{"q": 1}], [None, {"q": 1}], {1: 0}, id="what was stated is answered first"),
        pytest.param([{"q": 2}], [{"q": 1}, None], {1: 0}, id="a wrong call answers what takes any"),
        pytest.param([None, {"q": 1}], [{"q": 1}], {0: 1}, id="what was captured is judged first"),
        pytest.param([None, {"q": 2}], [{"q": 1}], {0: 0}, id="what was not captured may be right"),
        pytest.param([{"q": 1}, {"q": 1}], [{"q": 1}], {0: 0}, id="of equals the first"),
    ],
)
def test_calls_of_one_tool_are_distinguished_by_their_arguments(
    called: list[Any], expected: list[Any], pairs: dict[int, int]
) -> None:
    seen = compare(
        [ToolCall("s", arguments=arguments) for arguments in called],
        [ExpectedTool("s", arguments) for arguments in expected],
    )
    assert {row.expected_at: row.called_at for row in seen.pairs} == pairs


def test_arguments_are_judged_where_stated_and_captured_only() -> None:
    called = [{"name": "a", "args": {"x": 1}}, {"name": "b", "args": {"x": 1}}, {"name": "c"}]
    expected = [{"name": "a", "args": {"x": 1}}, "b", {"name": "c", "args": {"x": 1}}]
    judged = [row.agreement and row.agreement.share for row in compare(called, expected).pairs]
    assert judged == [1.0, None, None]


TWINS = st.lists(st.tuples(st.sampled_from(["s", "t"]), ARGUMENTS), max_size=4)


def merit(expected: list[Any], called: list[Any], pairs: list[tuple[int, int]]) -> tuple[int, float, int]:
    """What makes a pairing good: many pairs, little disagreement, many judged."""
    judged = [
        argument_agreement(ExpectedTool("s", expected[one][1]), ToolCall("s", arguments=called[other][1]))
        for one, other in pairs
        if expected[one][1] is not None and called[other][1] is not None
    ]
    return len(pairs), -round(sum(1 - agreed.share for agreed in judged if agreed), 6), len(judged)


@given(TWINS, TWINS)
def test_no_other_pairing_is_better(expected: list[Any], called: list[Any]) -> None:
    seen = compare([ToolCall(n, arguments=a) for n, a in called], [ExpectedTool(n, a) for n, a in expected])
    found = [(row.expected_at or 0, row.called_at or 0) for row in seen.pairs]
    choices = permutations([*range(len(called)), *[-1] * len(expected)], len(expected))
    assert merit(expected, called, found) == max(
        merit(expected, called, [(one, other) for one, other in enumerate(choice) if other >= 0])
        for choice in choices
        if all(other < 0 or called[other][0] == expected[one][0] for one, other in enumerate(choice))
    )


def test_two_hundred_calls_of_one_tool_are_paired_exactly() -> None:
    called = [{"name": "get", "args": {"id": n * 7 % 200}} for n in range(200)]
    expected = [{"name": "get", "args": {"id": n}} for n in range(200)]
    assert all(row.agreement and row.agreement.share == 1.0 for row in compare(called, expected).pairs)


def test_results_weigh_like_arguments() -> None:
    called = [{"name": "s", "result": 2}, {"name": "s", "output": 1}]
    seen = compare(called, [{"name": "s", "result": 1}, {"name": "s", "result": 2}])
    assert [(row.expected_at, row.called_at) for row in seen.pairs] == [(1, 0), (0, 1)]
    assert all(row.result_agreement and row.result_agreement.share == 1.0 for row in seen.pairs)


def test_the_matching_alternative_is_reported() -> None:
    either = {"any_of": [{"name": "pay", "args": {"by": "card"}}, {"name": "pay", "args": {"by": "cash"}}]}
    (row,) = compare([{"name": "pay", "args": {"by": "cash"}}], [either]).pairs
    assert isinstance(row.expected, ExpectedTool)
    assert row.expected.arguments == {"by": "cash"}


SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}
CALL = ToolCall("get", raw_name="mcp__shop__get", server="shop", arguments={"id": "7"})


@pytest.mark.parametrize(
    ("declared", "offered", "share"),
    [
        pytest.param((), (), 0.0, id="nothing is known of the tool"),
        pytest.param((Tool("get", parameters=SCHEMA),), (), 1.0, id="the golden file declares it"),
        pytest.param((), (ToolDefinition("mcp__shop__get", parameters=SCHEMA),), 1.0, id="the agent was offered it"),
        pytest.param((), (ToolDefinition("GET", parameters=SCHEMA),), 1.0, id="offered in another spelling"),
        pytest.param((Tool("get"),), (ToolDefinition("get", parameters=SCHEMA),), 1.0, id="declared without a schema"),
        pytest.param((Tool("get", parameters={}),), (ToolDefinition("get", parameters=SCHEMA),), 0.0,
                     id="what is declared wins"),
        pytest.param((Tool("other", parameters=SCHEMA),), (ToolDefinition("put", parameters=SCHEMA),), 0.0,
                     id="only others are known"),
    ],
)  # fmt: skip
def test_arguments_are_read_as_the_tool_declares_them(
    declared: tuple[Tool, ...], offered: tuple[ToolDefinition, ...], share: float
) -> None:
    golden = Golden("g", tools=(ExpectedTool("get", {"id": 7}),), vocabulary=Vocabulary(declared))
    (row,) = compare_run(Run("r", tool_calls=(CALL,), available_tools=offered), golden).pairs
    assert row.agreement is not None
    assert row.agreement.share == share


# --- what may be handed over ------------------------------------------------------------------------------------------


def test_calls_may_be_given_as_names_dictionaries_values_or_a_run() -> None:
    call = ToolCall("search", arguments={"q": "x"})
    golden = Golden("g", tools=(ExpectedTool("search", {"q": "x"}),))
    for called in (
        [call],
        (each for each in [call]),
        Run("r", tool_calls=(call,)),
        [{"name": "search", "arguments": {"q": "x"}}],
        [{"name": "search", "args": {"q": "x"}, "description": "kept by somebody else"}],
        [{"name": "search", "input_parameters": {"q": "x"}, "arguments": None, "id": "c1", "outcome": None}],
        [{"name": "search", "arguments": '{"q": "x"}', "error": None}],
    ):
        (row,) = compare(called, golden).rows
        assert row.agreement is not None
        assert row.agreement.share == 1.0
    assert story(compare(["search"], golden)) == ["paired search=search"]


def test_a_dictionary_may_say_more_about_a_call() -> None:
    item = {
        "name": "mcp__web__search",
        "args": "q=x",
        "error": True,
        "result": 3,
        "server": "web2",
        "kind": "hosted",
        "outcome": "error",
        "call_id": "c1",
    }
    (row,) = compare([item, {"name": "x", "error": False}], []).rows[:1]
    assert row.called == ToolCall(
        "search",
        raw_name="mcp__web__search",
        server="web2",
        arguments=None,
        raw_arguments="q=x",
        result=3,
        error="True",
        outcome="error",
        call_id="c1",
        kind="hosted",
    )


def test_expectations_may_be_given_as_golden_files_have_them() -> None:
    expected: list[Any] = [
        "a",
        ExpectedTool("b"),
        {"name": "c", "args": '{"x": 1}'},
        {"name": "c", "arguments": {"x": {"approx": 2, "within": 0.5}}},
        {"any_of": ["d", "e"]},
    ]
    called = ["a", "b", {"name": "c", "args": {"x": 2.25}}, {"name": "c", "args": {"x": 1}}, "e"]
    assert all(row.agreement is None or row.agreement.share == 1.0 for row in compare(called, expected).pairs)
    assert len(compare(called, expected).pairs) == 5


def test_keyword_arguments_override_the_golden() -> None:
    golden = Golden("g", tools=(ExpectedTool("a"), ExpectedTool("b")), order="in_order", forbid=("x",))
    seen = compare(["b", "a", "x"], golden, order="any", forbid=[])
    assert seen.golden == Golden("g", tools=golden.tools)
    assert compare(["a"], golden, order="in_order").golden is golden
    assert compare(["a"], golden, order=None).golden is golden
    changed = compare(["a"], golden, max_calls=3, mode="f1", extra="allow").golden
    assert changed == replace(golden, max_calls=3, mode="f1", extra="allow")


@pytest.mark.parametrize(
    ("called", "expected", "more", "sentence"),
    [
        pytest.param("search", [], {}, "called must be a list, not 'search'.", id="a name, no list"),
        pytest.param([], {"name": "a"}, {}, "expected must be a list, not {'name': 'a'}.", id="a dictionary, no list"),
        pytest.param(3, [], {}, "called must be a list, not 3.", id="a number"),
        pytest.param(
            [3], [], {}, "called[0]: must be the name of a tool or a dictionary with its name, not 3.", id="no call"
        ),
        pytest.param([{"tool": "a"}], [], {}, "called[0]: has no name: {'tool': 'a'}.", id="no name"),
        pytest.param(
            ["a", {"name": "b", "argument": {}}],
            [],
            {},
            "called[1]: unknown key 'argument'. Did you mean 'arguments'?",
            id="misspelt key",
        ),
        pytest.param(
            [{"name": "a", "kind": "hand-off"}],
            [],
            {},
            "called[0]: kind must be tool, agent, handoff, hosted, retrieval or answer, not 'hand-off'. "
            "Did you mean 'handoff'?",
            id="unknown kind",
        ),
        pytest.param(
            [], [{"name": "a", "args": [1]}], {}, "expected[0]: args must be a mapping, not [1].", id="a list"
        ),
        pytest.param(
            [], [{"name": "a", "args": "{"}], {}, "expected[0]: args must be a mapping, not '{'.", id="broken"
        ),
        pytest.param(
            [],
            ["a", {"name": "b", "argument": {}}],
            {},
            "expected[1]: unknown key 'argument'. Did you mean 'arguments'?",
            id="misspelt key of an expectation",
        ),
        pytest.param(
            [],
            [{"name": 3}],
            {},
            "expected[0]: name must be text, not 3. Write it in quotes.",
            id="a name that is none",
        ),
        pytest.param([], [""], {}, "expected[0]: name must not be empty.", id="an empty name"),
        pytest.param(
            [],
            [],
            {"order": "in order"},
            "order must be any, in_order or exact, not 'in order'. Did you mean 'in_order'?",
            id="unknown order",
        ),
        pytest.param(
            [], [], {"attempts": 2}, "attempts must be effective, all or succeeded, not 2.", id="unknown attempts"
        ),
        pytest.param([], [], {"forbid": "x"}, "forbid must be a list, not 'x'.", id="forbidden, no list"),
        pytest.param(
            [], [], {"forbid": [3]}, "forbid must be a list of names, and 3 is none.", id="forbidden, no name"
        ),
        pytest.param(
            [], [], {"max_calls": -1}, "max_calls must be a whole number, 0 or more, not -1.", id="fewer than no calls"
        ),
        pytest.param(
            [],
            [],
            {"max_calls": True},
            "max_calls must be a whole number, 0 or more, not True.",
            id="true is no number",
        ),
        pytest.param([], [], {"ordr": "any"}, "there is no rule 'ordr'. Did you mean 'order'?", id="misspelt rule"),
        pytest.param(
            [],
            [],
            {"order": "exact", "extra": "allow"},
            "golden 'given': order 'exact' allows no other calls, so extra cannot be 'allow'.",
            id="rules that contradict each other",
        ),
    ],
)
def test_a_value_that_is_neither_a_call_nor_a_tool_raises_one_sentence(
    called: Any, expected: Any, more: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(GoldspanError) as caught:
        compare(called, expected, **more)
    assert str(caught.value) == sentence
