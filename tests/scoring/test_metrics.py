"""What the metrics say of runs that people know, and what must hold for all runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.model import (
    Agreement,
    AnyOf,
    Comparison,
    ComparisonRow,
    Difference,
    ExpectedTool,
    Golden,
    Parallel,
    Run,
    Times,
    Tool,
    ToolCall,
    ToolDefinition,
    Vocabulary,
)
from goldspan.scoring import compare
from goldspan.scoring.coercion import as_golden
from goldspan.scoring.metrics import DEFAULT_METRICS, METRICS, Metric, behaviour, correctness
from goldspan.scoring.metrics.metric import alternative_calls

LETTERS = st.lists(st.sampled_from("abcd"), max_size=6)
ARGUMENTS = st.none() | st.fixed_dictionaries({}, optional={"x": st.integers(0, 1), "y": st.integers(0, 1)})


def seen_of(called: Any, expected: Any, **more: Any) -> Comparison:
    return compare(called, None if expected is None else replace(as_golden(expected), **more))


def value(metric: str, called: Any, expected: Any, **more: Any) -> float | None:
    return METRICS[metric].measure(seen_of(called, expected, **more))


def parts(metric: str, seen: Comparison) -> dict[str, list[str]]:
    account = METRICS[metric].explain
    assert account is not None
    return {part.label: list(part.names) for part in account(seen)}


# --- the cases on which the products disagree -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "called", "any_order", "in_order", "exact", "precision", "f1"),
    [
        pytest.param([], [], 1.0, 1.0, 1.0, None, None, id="nothing expected, nothing called"),
        pytest.param([], ["a"], 0.0, 0.0, 0.0, 0.0, 0.0, id="nothing expected, one called"),
        pytest.param(["a"], [], 0.0, 0.0, 0.0, None, 0.0, id="one expected, nothing called"),
        pytest.param(["a", "b"], ["a", "b"], 1.0, 1.0, 1.0, 1.0, 1.0, id="the same two"),
        pytest.param(["a", "b"], ["a", "x", "b"], 1.0, 1.0, 0.0, 2 / 3, 0.8, id="one extra"),
        pytest.param(["a", "b"], ["a"], 0.5, 0.5, 0.0, 1.0, 2 / 3, id="one missing"),
        pytest.param(["a", "b"], ["b", "a"], 1.0, 0.5, 0.0, 1.0, 1.0, id="swapped"),
        pytest.param(["s", "s"], ["s", "s"], 1.0, 1.0, 1.0, 1.0, 1.0, id="twice the same"),
        pytest.param(["s"], ["s", "s"], 1.0, 1.0, 0.0, 0.5, 2 / 3, id="called again"),
        pytest.param(["search"], ["mcp__web__search"], 1.0, 1.0, 1.0, 1.0, 1.0, id="decorated"),
        pytest.param(["web_search"], ["WebSearch"], 1.0, 1.0, 1.0, 1.0, 1.0, id="another spelling"),
        pytest.param(["s"], ["s", *map(str, range(100))], 1.0, 1.0, 0.0, 1 / 101, 2 / 102, id="a hundred others"),
        pytest.param(list("abc"), list("bca"), 1.0, 2 / 3, 0.0, 1.0, 1.0, id="the first came last"),
        pytest.param(list("abc"), list("abx"), 2 / 3, 2 / 3, 0.0, 2 / 3, 2 / 3, id="another tool instead"),
    ],
)
def test_tool_correctness_in_each_mode_precision_and_f1_have_these_values(
    expected: list[str],
    called: list[str],
    any_order: float,
    in_order: float,
    exact: float,
    precision: float | None,
    f1: float | None,
) -> None:
    assert value("tool_correctness", called, expected) == pytest.approx(any_order)
    assert value("tool_correctness", called, expected, order="in_order") == pytest.approx(in_order)
    assert value("tool_correctness", called, expected, order="exact") == exact
    assert value("tool_precision", called, expected) == pytest.approx(precision)
    assert value("tool_f1", called, expected) == pytest.approx(f1)
    assert value("tool_recall", called, expected) == (pytest.approx(any_order) if expected else None)


@pytest.mark.parametrize(
    ("called", "forbid", "share", "precision", "forbidden"),
    [
        pytest.param(["a"], [], 1.0, 1.0, None, id="nothing is forbidden"),
        pytest.param(["a"], ["d*"], 1.0, 1.0, 1.0, id="not called"),
        pytest.param(["a", "delete"], ["d*"], 1.0, 0.5, 0.0, id="called"),
        pytest.param([ToolCall("delete", outcome="denied"), "a"], ["d*"], 1.0, 1.0, 1.0, id="asked for and denied"),
    ],
)
def test_forbidden_tools(
    called: Any, forbid: list[str], share: float, precision: float, forbidden: float | None
) -> None:
    assert value("tool_correctness", called, ["a"], forbid=tuple(forbid)) == share
    assert value("tool_precision", called, ["a"], forbid=tuple(forbid)) == precision
    assert value("forbidden_tools", called, ["a"], forbid=tuple(forbid)) == forbidden


def test_a_forbidden_call_is_a_call_where_none_was_expected() -> None:
    assert value("tool_correctness", ["delete"], [], forbid=("delete",)) == 0.0


@pytest.mark.parametrize(("attempts", "share"), [("effective", 1.0), ("all", 0.0), ("succeeded", 1.0)])
def test_a_retry_does_not_spoil_an_exact_run_unless_every_attempt_counts(attempts: str, share: float) -> None:
    called = [ToolCall("a", error="timeout"), ToolCall("a")]
    assert value("tool_correctness", called, ["a"], order="exact", attempts=attempts) == share


@pytest.mark.parametrize(
    ("called", "success"),
    [
        pytest.param([], None, id="nothing called"),
        pytest.param(["a", "b"], 1.0, id="all well"),
        pytest.param([ToolCall("a", error="x"), ToolCall("a")], 0.5, id="failed once"),
        pytest.param([ToolCall("a", outcome="denied")], None, id="denied"),
        pytest.param([ToolCall("a", error_guess="Error: x"), ToolCall("b")], 1.0, id="one perhaps failed"),
        pytest.param([ToolCall("a", error_guess="Error: x"), ToolCall("b", error="x")], 0.0, id="failed and perhaps"),
        pytest.param([ToolCall("a", error_guess="Error: x")], None, id="perhaps failed"),
        pytest.param([ToolCall("a", evidence="requested")], None, id="asked for, and nothing came back"),
        pytest.param([ToolCall("a", evidence="requested", outcome="ok")], 1.0, id="asked for and answered"),
        pytest.param([ToolCall("a", outcome="error")], 0.0, id="failed without a text"),
        pytest.param([ToolCall("a", kind="agent", error="x"), ToolCall("b", kind="hosted")], 1.0, id="agents aside"),
    ],
)
@pytest.mark.parametrize("expected", [pytest.param(None, id="no golden"), pytest.param([], id="nothing expected")])
def test_tool_success_needs_no_golden(called: Any, success: float | None, expected: Any) -> None:
    assert value("tool_success", called, expected) == success


@pytest.mark.parametrize(
    ("called", "expected", "share", "why"),
    [
        pytest.param([{"x": 1}], [{"x": 1}], 1.0, None, id="equal"),
        pytest.param([{"x": 1}, {"x": 3}], [{"x": 1}, {"x": 2}], 0.5, None, id="the mean"),
        pytest.param([{"x": 1}, {"x": 3}], [{"x": 1}, None], 1.0, None, id="stated ones only"),
        pytest.param([{"x": 1}], [None], None, "the golden states no arguments", id="nothing stated"),
        pytest.param([], [{"x": 1}], None, "no tool whose arguments are stated was called", id="not called"),
        pytest.param([None], [{"x": 1}], None, "the arguments of the calls were not captured", id="not captured"),
    ],
)
def test_argument_correctness(called: Any, expected: Any, share: float | None, why: str | None) -> None:
    seen = compare(
        [ToolCall("t", arguments=arguments) for arguments in called],
        [ExpectedTool("t", arguments) for arguments in expected],
    )
    metric = METRICS["argument_correctness"]
    assert metric.measure(seen) == share
    assert share is not None or metric.why_missing(seen) == why


def test_without_a_golden_no_tool_is_right_or_wrong() -> None:
    for name in ("tool_correctness", "tool_recall", "tool_precision", "tool_f1", "tool_order", "argument_correctness"):
        assert value(name, ["a"], None) is None
    assert METRICS["argument_correctness"].why_missing(compare(["a"], None)) == "the golden states no arguments"


def test_the_explanation_omits_order_for_sets_and_lists_calls_if_nothing_was_expected() -> None:
    ordered = seen_of(["b", "a", "c"], ["a", "b"], order="in_order", mode="set")
    assert parts("tool_correctness", ordered) == {
        "expected and called": ["b", "a"],
        "expected but not called": [],
        "called but not expected": ["c"],
        "called but forbidden": [],
    }
    assert parts("tool_correctness", compare(["a"], []))["called but not expected"] == ["a"]


def test_tool_order_considers_only_called_tools() -> None:
    assert value("tool_order", ["b", "a"], ["a", "b"]) == 0.5
    assert value("tool_order", ["a", "x", "c"], ["a", "b", "c"]) == 1.0
    assert value("tool_order", ["x"], ["a"]) is None


# --- the modes of tool_correctness ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "called", "recall", "precision", "f1", "exact", "same"),
    [
        pytest.param("ab", "ab", 1, 1, 1, 1, 1, id="the same two"),
        pytest.param("ab", "ba", 1, 1, 1, 1, 1, id="swapped"),
        pytest.param("ab", "axb", 1, 2 / 3, 0.8, 0, 0, id="one extra"),
        pytest.param("ab", "a", 1 / 2, 1, 2 / 3, 0, 0, id="one missing"),
        pytest.param("ab", "", 0, 0, 0, 0, 0, id="nothing called"),
        pytest.param("", "", 1, 1, 1, 1, 1, id="nothing expected, nothing called"),
        pytest.param("", "a", 0, 0, 0, 0, 0, id="nothing expected, one called"),
        pytest.param("ab", "aab", 1, 2 / 3, 0.8, 0, 1, id="one called again"),
        pytest.param("aab", "ab", 2 / 3, 1, 0.8, 0, 1, id="one expected again"),
        pytest.param("aab", "abb", 2 / 3, 2 / 3, 2 / 3, 0, 1, id="another one again"),
        pytest.param("aa", "ab", 1 / 2, 1 / 2, 1 / 2, 0, 0, id="another tool instead"),
    ],
)
def test_the_mode_says_how_correctness_counts(
    expected: str, called: str, recall: float, precision: float, f1: float, exact: float, same: float
) -> None:
    counted = {"recall": recall, "precision": precision, "f1": f1, "exact": exact, "set": same}
    for mode, share in counted.items():
        assert value("tool_correctness", [*called], [*expected], mode=mode) == pytest.approx(share), mode


@pytest.mark.parametrize(
    ("mode", "in_order", "exact"),
    [("recall", 0.5, 0), ("precision", 0.5, 0.5), ("f1", 0.5, 0.5), ("exact", 0, 0), ("set", 1, 1)],
)
def test_calls_out_of_order_are_not_met_whatever_the_mode_but_a_set_has_no_order(
    mode: str, in_order: float, exact: float
) -> None:
    for order, share in {"any": 1, "in_order": in_order, "exact": exact}.items():
        assert value("tool_correctness", ["b", "a"], ["a", "b"], order=order, mode=mode) == share


def test_a_set_is_one_of_tools_not_of_spellings() -> None:
    vocabulary = Vocabulary((Tool("search_hotels", aliases=("hotel.search",)),))
    called = ["search_hotels", "hotel-search"]
    assert value("tool_correctness", called, ["SearchHotels"], mode="set", vocabulary=vocabulary) == 1
    assert value("tool_correctness", called, ["SearchHotels"], mode="set") == 0
    assert value("tool_correctness", ["a", "a"], ["a"], mode="set", forbid=("b",)) == 1
    assert value("tool_correctness", ["a", "b"], ["a"], mode="set", forbid=("b",)) == 0


def test_an_alternative_that_was_called_before_is_in_the_set() -> None:
    either = AnyOf(((ExpectedTool("a"),), (ExpectedTool("b"),)))
    golden = Golden("g", tools=(ExpectedTool("a"), either), mode="set")
    rows = (
        ComparisonRow("paired", expected=ExpectedTool("a"), called=ToolCall("a")),
        ComparisonRow("missing", expected=either),
    )
    assert METRICS["tool_correctness"].measure(Comparison(golden, rows)) == 1
    neither = replace(either, options=((ExpectedTool("c"),), (ExpectedTool("d"),)))
    assert (
        METRICS["tool_correctness"].measure(Comparison(golden, (rows[0], ComparisonRow("missing", expected=neither))))
        == 0
    )


def test_alternatives_are_found_at_any_depth() -> None:
    deep: Any = ExpectedTool("a")
    for _ in range(5_000):
        deep = AnyOf(((deep,),))
    both = AnyOf(((Parallel((deep, ExpectedTool("b"))), ExpectedTool("c")),))
    assert sorted(tool.name for tool in alternative_calls(both)) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("called", "expected", "usual", "changed"),
    [
        pytest.param([], [], 1.0, None, id="nothing to do and nothing done"),
        pytest.param(["a"], [], 0.0, 1.0, id="uncalled for"),
        pytest.param(["a"], ["a", "b"], 0.5, 0.5, id="something to do"),
    ],
)
def test_the_value_without_expectations_is_configurable(
    called: list[str], expected: list[str], usual: float, changed: float | None
) -> None:
    seen = compare(called, expected)
    metric = correctness(idle=None, uncalled_for=1.0)
    assert correctness().measure(seen) == METRICS["tool_correctness"].measure(seen) == usual
    assert metric.measure(seen) == changed
    assert (metric.name, metric.why_missing(seen)) == ("tool_correctness", "nothing was expected")


# --- optional expectations --------------------------------------------------------------------------------------------

MAYBE = ExpectedTool("b", {"x": 1}, times=Times(0, 1))


@pytest.mark.parametrize(
    ("called", "share", "exact", "precision", "arguments", "order"),
    [
        pytest.param([("a", None)], 1, 1, 1, None, 1, id="left out"),
        pytest.param([("a", None), ("b", 1)], 1, 1, 1, 1, 1, id="called"),
        pytest.param([("a", None), ("b", 2)], 1, 1, 1, 0, 1, id="called with other arguments"),
        pytest.param([("b", 1), ("a", None)], 1, 0, 1, 1, 0.5, id="called too early"),
        pytest.param([("a", None), ("b", 1), ("b", 1)], 1, 0, 0.5, 1, 1, id="called again"),
    ],
)
def test_an_optional_call_may_be_missing_but_its_arguments_and_position_count(
    called: Any, share: float, exact: float, precision: float, arguments: float | None, order: float
) -> None:
    calls = [ToolCall(name, arguments=x and {"x": x}) for name, x in called]
    golden = Golden("g", tools=(ExpectedTool("a"), MAYBE))
    assert value("tool_correctness", calls, golden) == share
    assert value("tool_correctness", calls, golden, order="exact") == exact
    assert value("tool_precision", calls, golden) == precision
    assert value("argument_correctness", calls, golden) == arguments
    assert value("tool_order", calls, golden, order="in_order") == order


# --- results ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "expected", "share", "why"),
    [
        pytest.param("ok", ExpectedTool("t", result="ok"), 1.0, None, id="as stated"),
        pytest.param("no", ExpectedTool("t", result="ok"), 0.0, None, id="another"),
        pytest.param("ok", ExpectedTool("t"), None, "the golden states no results", id="not stated"),
        pytest.param(
            "ok", ExpectedTool("u", result="ok"), None, "no tool whose result is stated was called", id="not called"
        ),
        pytest.param(
            None, ExpectedTool("t", result="ok"), None, "the results of the calls were not captured", id="not captured"
        ),
    ],
)
def test_result_correctness(result: Any, expected: ExpectedTool, share: float | None, why: str | None) -> None:
    seen = compare([ToolCall("t", result=result)], [expected])
    metric = METRICS["result_correctness"]
    assert metric.measure(seen) == share
    assert share is not None or metric.why_missing(seen) == why


# --- what changed the world -------------------------------------------------------------------------------------------

SHOP = Vocabulary((Tool("find", effect="read"), Tool("buy", aliases=("purchase",), effect="write"), Tool("idle")))


@pytest.mark.parametrize(
    ("called", "expected", "share"),
    [
        pytest.param([], [], 1.0, id="nothing to change, nothing changed"),
        pytest.param(["find"], [], 1.0, id="reads do not count"),
        pytest.param([], ["find"], 1.0, id="nor do missing reads"),
        pytest.param(["unheard_of"], [], 1.0, id="nor does what is not declared"),
        pytest.param(["buy"], ["buy"], 1.0, id="made"),
        pytest.param(["find", "find", "purchase"], ["find", "buy"], 1.0, id="made by another name"),
        pytest.param([], ["buy"], 0.0, id="not made"),
        pytest.param(["buy"], [], 0.0, id="made unasked"),
        pytest.param(["buy", "buy"], ["buy"], 0.5, id="made twice"),
        pytest.param([ToolCall("buy", error="no money")], ["buy"], 0.0, id="failed"),
        pytest.param([ToolCall("buy", error="no money")], [], 1.0, id="failed unasked"),
        pytest.param([ToolCall("buy", error="busy"), "buy"], ["buy"], 1.0, id="failed and made good"),
        pytest.param([ToolCall("buy", outcome="denied")], [], 1.0, id="denied"),
        pytest.param([ToolCall("buy", arguments={"n": 1})], [ExpectedTool("buy", {"n": 1})], 1.0, id="as stated"),
        pytest.param([ToolCall("buy", arguments={"n": 2})], [ExpectedTool("buy", {"n": 1})], 0.0, id="another"),
        pytest.param(
            [ToolCall("buy", arguments={"n": 1, "of": "tea"})],
            [ExpectedTool("buy", {"n": 2, "of": "tea"})],
            0.5,
            id="half right",
        ),
        pytest.param(["buy"], [ExpectedTool("buy", {"n": 1})], 1.0, id="arguments not captured"),
        pytest.param(
            [ToolCall("buy", arguments={"n": n}) for n in (1, 2)],
            [ExpectedTool("buy", {"n": n}) for n in (2, 1)],
            1.0,
            id="each finds its own",
        ),
    ],
)
@pytest.mark.parametrize("attempts", ["effective", "all", "succeeded"])
def test_effect_correctness(called: Any, expected: Any, share: float, attempts: str) -> None:
    assert value("effect_correctness", called, expected, vocabulary=SHOP, attempts=attempts) == share


def purchase(n: int, **more: Any) -> ToolCall:
    return ToolCall("buy", arguments={"n": n, "of": "tea"}, **more)


@pytest.mark.parametrize(
    ("called", "expected", "more", "share"),
    [
        pytest.param([2, 1], [1, 2], {}, 1.0, id="in another order"),
        pytest.param([2, 1, 4], [1, 2, 3], {}, 5 / 6, id="in another order, and one half right"),
        pytest.param([2], [1], {}, 0.5, id="half right"),
        pytest.param([2, 1], [1, 2], {"forbid": ("purchase",)}, 0.0, id="forbidden"),
    ],
)
@pytest.mark.parametrize("order", ["any", "in_order", "exact"])
def test_changes_stand_beside_those_they_are_most_like_whatever_the_order(
    called: list[int], expected: list[int], more: dict[str, Any], share: float, order: str
) -> None:
    calls = [purchase(n, concurrent_with=(1 - at,) if at < 2 else ()) for at, n in enumerate(called)]
    tools = [ExpectedTool("buy", purchase(n).arguments, times=Times(1, 1)) for n in expected]
    found = value("effect_correctness", calls, tools, order=order, vocabulary=SHOP, **more)
    assert found == pytest.approx(share)


@pytest.mark.parametrize("order", ["any", "in_order", "exact"])
def test_a_failed_call_is_not_the_expected_change(order: str) -> None:
    calls = [purchase(2), purchase(1, error="no money")]
    tools = [ExpectedTool("buy", purchase(1).arguments)]
    assert value("effect_correctness", calls, tools, order=order, vocabulary=SHOP, attempts="all") == 0.5


def test_a_change_that_need_not_be_made_is_optional_in_every_order() -> None:
    maybe = ExpectedTool("buy", purchase(1).arguments, times=Times(0, 1))
    tools = [ExpectedTool("buy", purchase(2).arguments), maybe]
    for called, share in {(2,): 1.0, (2, 1): 1.0, (1, 2): 1.0, (1,): 0.5}.items():
        calls = [purchase(n) for n in called]
        assert value("effect_correctness", calls, tools, order="in_order", vocabulary=SHOP) == share


def test_effects_are_known_where_any_is_declared() -> None:
    assert value("effect_correctness", ["buy"], ["buy"]) is None
    assert value("effect_correctness", ["buy"], ["buy"], vocabulary=Vocabulary((Tool("buy"),))) is None
    assert value("effect_correctness", ["buy"], None) is None
    assert value("effect_correctness", ["buy"], [], vocabulary=Vocabulary((Tool("find", effect="read"),))) == 1
    assert parts("effect_correctness", compare(["buy"], ["buy"])) == {}


def test_a_golden_may_list_the_tools_that_write() -> None:
    assert value("effect_correctness", ["Buy", "find"], [], write_tools=("buy",)) == 0
    assert value("effect_correctness", ["find"], [], write_tools=("buy",)) == 1
    assert value("effect_correctness", ["find"], [], write_tools=()) == 1


READS, WRITES = ToolDefinition("find", read_only=True), ToolDefinition("buy", read_only=False)


@pytest.mark.parametrize(
    ("called", "expected", "offered", "share"),
    [
        pytest.param(["find", "buy"], ["buy"], (READS, WRITES), 1.0, id="made"),
        pytest.param(["find", "buy"], [], (READS, WRITES), 0.0, id="made unasked"),
        pytest.param([], ["buy"], (READS, WRITES), 0.0, id="not made"),
        pytest.param(["find"], [], (READS, WRITES), 1.0, id="a read more"),
        pytest.param(["find", "sell"], [], (READS,), 1.0, id="of a tool nothing is said"),
        pytest.param(["buy"], [], (READS, ToolDefinition("buy")), 1.0, id="of this one neither"),
        pytest.param(
            [ToolCall("buy", server="shop")],
            [],
            (ToolDefinition("mcp__shop__buy", read_only=False),),
            0.0,
            id="decorated",
        ),
        pytest.param(["buy"], [], (ToolDefinition("find"), ToolDefinition("buy")), None, id="nothing is said of any"),
        pytest.param(["buy"], [], (), None, id="none was offered"),
    ],
)
def test_effects_come_from_the_tool_annotations_of_mcp_servers(
    called: list[Any], expected: list[str], offered: tuple[ToolDefinition, ...], share: float | None
) -> None:
    calls = tuple(ToolCall(call) if isinstance(call, str) else call for call in called)
    seen = compare(Run("r", tool_calls=calls, available_tools=offered), expected)
    assert METRICS["effect_correctness"].measure(seen) == share


@pytest.mark.parametrize(
    ("golden", "share"),
    [
        pytest.param({"vocabulary": Vocabulary((Tool("buy", effect="read"),))}, 1.0, id="the vocabulary says it reads"),
        pytest.param({"vocabulary": Vocabulary((Tool("find", effect="write"),))}, 0.0, id="it says so of another"),
        pytest.param({"vocabulary": Vocabulary((Tool("purchase", ("buy",)),))}, 0.0, id="it only knows its other name"),
        pytest.param({"write_tools": ()}, 1.0, id="the golden names all that write"),
    ],
)
def test_the_effect_in_a_golden_takes_precedence_over_that_of_a_server(golden: dict[str, Any], share: float) -> None:
    run = Run("r", tool_calls=(ToolCall("buy"),), available_tools=(READS, WRITES))
    assert METRICS["effect_correctness"].measure(compare(run, replace(as_golden([]), **golden))) == share


def test_a_change_that_is_tolerated_or_might_have_been_a_read_is_no_fault() -> None:
    call, tool = ToolCall("buy", arguments={"n": 1}), ExpectedTool("buy", {"n": 1})
    either = AnyOf(((tool,), (ExpectedTool("find"),)))
    golden = Golden("g", vocabulary=SHOP)
    for row, share in [
        (ComparisonRow("tolerated", called=call, note="extra"), 1),
        (ComparisonRow("tolerated", expected=replace(tool, times=Times(0, 1)), note="optional, not called"), 1),
        (ComparisonRow("tolerated", expected=tool, called=call, agreement=Agreement(0.5), note="optional"), 0.5),
        (ComparisonRow("forbidden", called=call), 0),
        (ComparisonRow("missing", expected=either), 1),
        (ComparisonRow("missing", expected=AnyOf(((tool,), (replace(tool, name="purchase"),)))), 0),
    ]:
        assert METRICS["effect_correctness"].measure(Comparison(golden, (row,))) == share


# --- how the agent went about it --------------------------------------------------------------------------------------


def call(name: str, x: Any = 1, **more: Any) -> ToolCall:
    return ToolCall(name, arguments=None if x is None else {"x": x}, **more)


@pytest.mark.parametrize(
    ("calls", "share"),
    [
        pytest.param([], None, id="nothing called"),
        pytest.param([call("a"), call("b")], 1, id="two tools"),
        pytest.param([call("a", 1), call("a", 2)], 1, id="other arguments"),
        pytest.param([call("a"), call("a")], 0.5, id="again"),
        pytest.param([call("a"), call("A"), call("a")], 1 / 3, id="again and again"),
        pytest.param([call("a", error="busy"), call("a")], 1, id="a retry"),
        pytest.param([call("a"), call("a", error="busy")], 0.5, id="again, and failed"),
        pytest.param([call("a", error="x"), call("a", error="x"), call("a")], 1, id="retries"),
        pytest.param([call("a", server="s"), call("a", server="t")], 1, id="of two servers"),
        pytest.param([call("a", None), call("b", None)], 1, id="arguments not captured, two tools"),
        pytest.param([call("a", None), call("a")], None, id="arguments not captured"),
        pytest.param([call("a"), call("a", None)], None, id="arguments of the second not captured"),
        pytest.param([call("a", None, error="x"), call("a")], 1, id="arguments not captured, a retry"),
        pytest.param([call("a"), call("a", outcome="denied"), call("a", kind="agent")], 1, id="only one counts"),
        pytest.param([call("a", error_guess="x"), call("a")], None, id="perhaps a retry"),
        pytest.param([call("a"), call("a", error_guess="x")], 0.5, id="again, and perhaps failed"),
        pytest.param([call("a", 1, error_guess="x"), call("a", 2)], 1, id="perhaps failed, other arguments"),
        pytest.param([call("a", None, error_guess="x"), call("a")], None, id="arguments not captured, perhaps a retry"),
        pytest.param([call("a", 1), call("a", 1.0)], 0.5, id="the same number"),
        pytest.param([call("a", 1), call("a", True)], 1, id="no number"),
        pytest.param([call("a", {"b": 2, "c": 3}), call("a", {"c": 3, "b": 2})], 0.5, id="keys in another order"),
        pytest.param([call("a", {1: 2, "b": 3}), call("a", {1: 2, "b": 3})], 0.5, id="keys of two types"),
        pytest.param([call("a", object()), call("a", object())], 1, id="arguments that cannot be compared"),
    ],
)
@pytest.mark.parametrize("expected", [pytest.param(None, id="no golden"), pytest.param([], id="nothing expected")])
def test_redundant_calls(calls: list[ToolCall], share: float | None, expected: Any) -> None:
    assert value("redundant_calls", calls, expected) == pytest.approx(share)


PASSED = st.none() | st.fixed_dictionaries(
    {}, optional={name: st.sampled_from([0, 1, 1.0, True, "1", "2", None, [1]]) for name in "xyz"}
)
MADE = st.builds(
    ToolCall,
    st.sampled_from("ab"),
    arguments=PASSED,
    server=st.sampled_from([None, "s"]),
    error=st.sampled_from([None, None, "busy"]),
)


@given(st.lists(MADE, max_size=8))
def test_duplicates_are_the_same_with_and_without_hashing(calls: list[ToolCall]) -> None:
    found = METRICS["redundant_calls"].measure(compare(calls, None))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(behaviour, "_MAX_PAIRWISE_CALLS", 0)
        assert METRICS["redundant_calls"].measure(compare(calls, None)) == found


def test_why_repeats_may_not_be_known() -> None:
    unknown = METRICS["redundant_calls"].why_missing
    assert unknown(compare([], None)) == "no tool was called"
    assert unknown(compare(["a", "a"], None)) == "the arguments of calls of one tool were not captured"
    perhaps = [call("a", error_guess="Error: x"), call("a")]
    assert unknown(compare(perhaps, None)) == "whether a call that was made again had failed is not known"


def test_why_success_may_not_be_known() -> None:
    unknown = METRICS["tool_success"].why_missing
    assert unknown(compare([], None)) == "no tool was called"
    perhaps = [call("a", error_guess="Error: x"), call("b", evidence="requested"), call("c")]
    assert unknown(compare(perhaps, None)) == "whether a and b failed is not known"
    told = parts("tool_success", compare(perhaps, None))
    assert told == {"succeeded": ["c"], "failed": [], "not known to have succeeded or failed": ["a", "b"]}


@pytest.mark.parametrize(
    ("calls", "offered", "share"),
    [
        pytest.param(["a"], [], None, id="not known what it was offered"),
        pytest.param([], ["a"], None, id="nothing called"),
        pytest.param(["a", "b"], ["a", "b", "c"], 1, id="all offered"),
        pytest.param(["a", "invented"], ["a"], 0.5, id="one invented"),
        pytest.param(["WebSearch"], ["web_search"], 1, id="another spelling"),
        pytest.param([ToolCall("add", server="orders")], ["mcp__orders__add"], 1, id="of a server"),
        pytest.param(["a", ToolCall("web", kind="hosted")], ["a"], 1, id="run by the provider"),
        pytest.param(["a", "purchase"], ["a"], 1, id="declared"),
    ],
)
def test_unknown_tools(calls: Any, offered: list[str], share: float | None) -> None:
    calls = [ToolCall(each) if isinstance(each, str) else each for each in calls]
    run = Run("r", tool_calls=tuple(calls), available_tools=tuple(map(ToolDefinition, offered)))
    seen = Comparison(
        Golden("g", vocabulary=SHOP), tuple(ComparisonRow("unexpected", called=each) for each in calls), run
    )
    metric = METRICS["unknown_tools"]
    assert metric.measure(seen) == share
    if share is None:
        why = "no tool was called" if offered else "the tools the agent was offered were not captured"
        assert metric.why_missing(seen) == why


def test_without_a_golden_only_offered_tools_are_known() -> None:
    run = Run("r", tool_calls=(ToolCall("a"), ToolCall("b")), available_tools=(ToolDefinition("a"),))
    rows = tuple(ComparisonRow("tolerated", called=each) for each in run.tool_calls)
    assert METRICS["unknown_tools"].measure(Comparison(None, rows, run)) == 0.5


@pytest.mark.parametrize(
    ("calls", "most", "share"),
    [
        pytest.param(4, None, None, id="no limit"),
        pytest.param(3, 4, 1, id="below"),
        pytest.param(4, 4, 1, id="at"),
        pytest.param(10, 8, 0.8, id="above"),
        pytest.param(0, 0, 1, id="none allowed, none made"),
        pytest.param(1, 0, 0, id="none allowed"),
    ],
)
def test_call_budget(calls: int, most: int | None, share: float | None) -> None:
    assert value("call_budget", ["a"] * calls, ["a"], max_calls=most) == share


def test_the_budget_counts_every_attempt_but_no_denied_call_and_no_agent() -> None:
    calls = [ToolCall("a", error="busy"), ToolCall("a"), ToolCall("b", outcome="denied"), ToolCall("c", kind="agent")]
    assert value("call_budget", calls, ["a"], max_calls=1) == 0.5
    assert value("call_budget", calls, ["a"], max_calls=2) == 1


def test_the_budget_of_an_agent_of_its_own_leaves_out_the_calls_of_others() -> None:
    run = Run("r", agent="boss", tool_calls=(ToolCall("a", agent="boss"), ToolCall("b", agent="helper")))
    golden = Golden("g", tools=(ExpectedTool("a"),), max_calls=1, depth="own")
    assert METRICS["call_budget"].measure(compare(run, golden)) == 1
    assert METRICS["call_budget"].measure(compare(run, replace(golden, depth="all"))) == 0.5


# --- what a number is made of -----------------------------------------------------------------------------------------


def test_every_metric_can_give_an_account() -> None:
    seen = seen_of(
        [call("a", error="x"), call("b", 2), call("b", 2), call("gone"), call("buy", 3)],
        [ExpectedTool("b", {"x": 1}), ExpectedTool("buy", {"x": 3, "y": 4}), ExpectedTool("a"), ExpectedTool("c")],
        order="in_order",
        mode="f1",
        forbid=("gone",),
        max_calls=4,
        vocabulary=SHOP,
        attempts="all",
    )
    told = {name: parts(name, seen) for name in METRICS}
    assert told["tool_recall"] == {"expected and called": ["a", "b", "buy"], "expected but not called": ["c"]}
    assert told["tool_precision"]["called but forbidden"] == ["gone"]
    assert told["tool_f1"]["called but not expected"] == ["b"]
    assert told["tool_correctness"]["called out of order"] == ["a"]
    assert told["tool_order"]["called out of order"] == ["a"]
    assert told["argument_correctness"] == {"arguments agree": [], "arguments differ": ["b in x (0)", "buy in y (0.5)"]}
    assert told["effect_correctness"]["changes that differ"] == ["buy in y (0.5)"]
    assert told["tool_success"] == {"succeeded": ["b", "b", "gone", "buy"], "failed": ["a"]}
    assert told["redundant_calls"]["called again with the same arguments"] == ["b"]
    assert told["forbidden_tools"] == {"called but forbidden": ["gone"]}
    assert told["call_budget"] == {"of 4 allowed calls were made": ["5"]}


def test_an_account_of_results_names_where_they_differ() -> None:
    golden = Golden("g")
    differences = tuple(Difference(key, 1, 2) for key in ("a", "b", "c", "d"))
    rows = [
        ComparisonRow("paired", ExpectedTool("t"), ToolCall("t"), result_agreement=Agreement(0.25, differences)),
        ComparisonRow(
            "paired", ExpectedTool("u"), ToolCall("u"), result_agreement=Agreement(0.0, (Difference("", 1, 2),))
        ),
        ComparisonRow("paired", ExpectedTool("v"), ToolCall("v"), result_agreement=Agreement(1.0)),
    ]
    assert parts("result_correctness", Comparison(golden, tuple(rows))) == {
        "result agree": ["v"],
        "result differ": ["t in a, b, c and 1 more (0.25)", "u in the whole result (0)"],
    }


def test_the_explanation_of_effects_names_missing_and_extra_changes() -> None:
    seen = seen_of([call("find"), call("buy")], [ExpectedTool("buy", {"x": 2}), "idle"], vocabulary=SHOP)
    assert parts("effect_correctness", seen) == {
        "changes as expected": [],
        "changes that differ": ["buy in x (0)"],
        "expected changes that were not made": [],
        "changes that nobody expected": [],
    }
    lacking = seen_of([call("buy", error="x")], ["buy", "buy"], vocabulary=SHOP)
    assert parts("effect_correctness", lacking)["expected changes that were not made"] == ["buy", "buy"]
    assert parts("effect_correctness", seen_of(["buy"], [], vocabulary=SHOP))["changes that nobody expected"] == ["buy"]


def test_an_account_of_the_agents_tools_names_those_it_has_not() -> None:
    run = Run("r", tool_calls=(ToolCall("a"), ToolCall("b")), available_tools=(ToolDefinition("a"),))
    seen = Comparison(None, tuple(ComparisonRow("tolerated", called=each) for each in run.tool_calls), run)
    assert parts("unknown_tools", seen)["called but not among the agent's tools"] == ["b"]


def test_a_part_is_never_long() -> None:
    many = METRICS["tool_recall"].explain
    assert many is not None
    called, missing = many(compare(["z", "z"], ["z", "z", *"abcdef", "x" * 100]))
    assert str(called) == "expected and called: z x2"
    assert str(missing) == "expected but not called: a, b, c, d, e and 2 more"
    assert str(next(iter(many(compare([], []))))) == "expected and called: none"
    _, missing = many(compare([], ["x" * 100, "b", "b"]))
    assert str(missing) == f"expected but not called: {'x' * 57}... and b x2"


# --- laws -------------------------------------------------------------------------------------------------------------

ORDER_FREE = ("tool_correctness", "tool_recall", "tool_precision", "tool_f1", "argument_correctness")


@given(st.data())
def test_scores_do_not_depend_on_the_order_of_the_lists(data: st.DataObject) -> None:
    tools = st.lists(st.builds(ExpectedTool, st.sampled_from("st"), ARGUMENTS), max_size=4)
    calls = st.lists(st.builds(ToolCall, st.sampled_from(["s", "t", "S", "u"]), arguments=ARGUMENTS), max_size=5)
    expected, called = data.draw(tools), data.draw(calls)
    shuffled = compare(data.draw(st.permutations(called)), data.draw(st.permutations(expected)))
    seen = compare(called, expected)
    for name in ORDER_FREE:
        assert METRICS[name].measure(shuffled) == pytest.approx(METRICS[name].measure(seen))


@given(LETTERS, LETTERS, st.sampled_from("abcd"), st.integers(0, 6), st.sampled_from(["any", "in_order"]))
def test_one_more_right_call_never_lowers_recall(
    expected: list[str], called: list[str], name: str, place: int, order: str
) -> None:
    more = [*called[:place], name, *called[place:]]
    if name not in expected:
        return
    before, after = (value("tool_recall", calls, expected, order=order) for calls in (called, more))
    assert before is not None
    assert after is not None
    assert after >= before
    before, after = (value("tool_correctness", calls, expected, order=order) for calls in (called, more))
    assert before is not None
    assert after is not None
    assert after >= before


@given(LETTERS, LETTERS, st.integers(0, 6))
def test_one_more_unexpected_call_never_raises_precision(expected: list[str], called: list[str], place: int) -> None:
    before = value("tool_precision", called, expected)
    after = value("tool_precision", [*called[:place], "never_expected", *called[place:]], expected)
    assert after is not None
    assert before is None or after <= before


@given(LETTERS, LETTERS, st.sampled_from(["any", "in_order", "exact"]))
def test_every_value_is_a_share(expected: list[str], called: list[str], order: str) -> None:
    for name in DEFAULT_METRICS:
        number = value(name, called, expected, order=order)
        assert number is None or 0.0 <= number <= 1.0


@given(LETTERS, LETTERS)
def test_the_stricter_the_order_the_lower_the_correctness(expected: list[str], called: list[str]) -> None:
    loose, ordered, exact = (
        value("tool_correctness", called, expected, order=order) for order in ("any", "in_order", "exact")
    )
    assert loose is not None
    assert ordered is not None
    assert exact is not None
    assert loose >= ordered >= exact


@given(LETTERS)
def test_a_run_that_meets_its_expectations_is_correct_in_every_order(names: list[str]) -> None:
    for order in ("any", "in_order", "exact"):
        assert value("tool_correctness", names, names, order=order) == 1.0


# --- the table --------------------------------------------------------------------------------------------------------


def test_every_metric_documents_its_meaning_and_when_it_has_no_value() -> None:
    seen = compare([], Golden("g"))
    for metric in METRICS.values():
        assert metric.measure.__doc__
        if metric.measure(seen) is None:
            assert metric.why_missing(seen)
    assert Metric("mine", lambda seen: None).why_missing(seen) == "nothing to measure"
