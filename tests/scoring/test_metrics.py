"""What the metrics say of runs that people know, and what must hold for all runs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.errors import ConfigurationError
from goldspan.model import ExpectedTool, Golden, ToolCall
from goldspan.scoring import compare
from goldspan.scoring.metrics import DEFAULT_METRICS, METRICS, Metric, resolve

LETTERS = st.lists(st.sampled_from("abcd"), max_size=6)
ARGUMENTS = st.none() | st.fixed_dictionaries({}, optional={"x": st.integers(0, 1), "y": st.integers(0, 1)})


def value(metric: str, called: Any, expected: Any, **more: Any) -> float | None:
    return METRICS[metric].measure(compare(called, expected, **more))


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
def test_tool_correctness_and_its_neighbours(
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
    ("called", "forbid", "correctness", "precision", "forbidden"),
    [
        pytest.param(["a"], [], 1.0, 1.0, None, id="nothing is forbidden"),
        pytest.param(["a"], ["d*"], 1.0, 1.0, 1.0, id="not called"),
        pytest.param(["a", "delete"], ["d*"], 1.0, 0.5, 0.0, id="called"),
        pytest.param([ToolCall("delete", outcome="denied"), "a"], ["d*"], 1.0, 1.0, 1.0, id="asked for and denied"),
    ],
)
def test_forbidden_tools(
    called: Any, forbid: list[str], correctness: float, precision: float, forbidden: float | None
) -> None:
    assert value("tool_correctness", called, ["a"], forbid=forbid) == correctness
    assert value("tool_precision", called, ["a"], forbid=forbid) == precision
    assert value("forbidden_tools", called, ["a"], forbid=forbid) == forbidden


def test_a_forbidden_call_is_a_call_where_none_was_expected() -> None:
    assert value("tool_correctness", ["delete"], [], forbid=["delete"]) == 0.0


@pytest.mark.parametrize(("attempts", "correctness"), [("effective", 1.0), ("all", 0.0), ("succeeded", 1.0)])
def test_a_retry_does_not_spoil_an_exact_run_unless_every_attempt_counts(attempts: str, correctness: float) -> None:
    called = [ToolCall("a", error="timeout"), ToolCall("a")]
    assert value("tool_correctness", called, ["a"], order="exact", attempts=attempts) == correctness


@pytest.mark.parametrize(
    ("called", "success"),
    [
        pytest.param([], None, id="nothing called"),
        pytest.param(["a", "b"], 1.0, id="all well"),
        pytest.param([ToolCall("a", error="x"), ToolCall("a")], 0.5, id="failed once"),
        pytest.param([ToolCall("a", outcome="denied")], None, id="denied"),
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
    assert share is not None or metric.unknown(seen) == why


def test_tool_order_looks_at_what_was_called_only() -> None:
    assert value("tool_order", ["b", "a"], ["a", "b"]) == 0.5
    assert value("tool_order", ["a", "x", "c"], ["a", "b", "c"]) == 1.0
    assert value("tool_order", ["x"], ["a"]) is None


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
def test_a_run_that_does_what_was_expected_is_right_in_every_order(names: list[str]) -> None:
    for order in ("any", "in_order", "exact"):
        assert value("tool_correctness", names, names, order=order) == 1.0


# --- the table --------------------------------------------------------------------------------------------------------


def test_every_metric_says_what_it_means_and_why_it_may_say_nothing() -> None:
    seen = compare([], Golden("g"))
    for metric in METRICS.values():
        assert metric.measure.__doc__
        if metric.measure(seen) is None:
            assert metric.unknown(seen)
    assert Metric("mine", lambda seen: None).unknown(seen) == "nothing to measure"


@pytest.mark.parametrize(
    ("metrics", "thresholds", "sentence"),
    [
        pytest.param(
            ["tool_recal"], None, "unknown metric 'tool_recal'. Did you mean 'tool_recall'?", id="misspelt metric"
        ),
        pytest.param(
            ["relevance"],
            None,
            "unknown metric 'relevance'. There are tool_correctness, tool_recall, tool_precision, tool_f1, tool_order, "
            "argument_correctness, forbidden_tools, tool_success.",
            id="unknown metric",
        ),
        pytest.param(["tool_f1", "tool_f1"], None, "metric 'tool_f1' is there twice.", id="twice"),
        pytest.param("tool_f1", None, "metrics must be a list, not 'tool_f1'.", id="no list"),
        pytest.param([3], None, "3 is no metric: neither a name nor a function of a comparison.", id="a number"),
        pytest.param(
            [("mine", 3)],
            None,
            "('mine', 3) is no metric: neither a name nor a function of a comparison.",
            id="a name without function",
        ),
        pytest.param(
            None,
            {"tool_f": 0.5},
            "a threshold for the metric 'tool_f', which is not measured. Did you mean 'tool_f1'?",
            id="misspelt threshold",
        ),
        pytest.param(
            ["tool_f1"],
            {"tool_success": 0.5},
            "a threshold for the metric 'tool_success', which is not measured. There are tool_f1.",
            id="threshold of what is not asked for",
        ),
    ],
)
def test_a_wrong_metric_is_one_sentence(metrics: Any, thresholds: Any, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve(metrics, thresholds)
    assert str(caught.value) == sentence
