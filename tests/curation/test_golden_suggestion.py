"""Suggested goldens state what good runs have in common, and those runs pass them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goldspan import Golden, Goldens, Run, ToolCall, evaluate
from goldspan.curation.golden_suggestion import Suggestion, SuggestionOptions, suggest_goldens
from goldspan.errors import ConfigurationError
from goldspan.goldens.golden_files.golden_writer import goldens_to_yaml
from goldspan.model import AnyOf, ExpectedTool, Parallel, Times, Tool, ToolDefinition, Vocabulary, When
from goldspan.model.value_matchers import OfType, OneOf, Regex, Unordered


def call(name: str, error: str | None = None, **arguments: Any) -> ToolCall:
    return ToolCall(name, arguments=arguments, error=error)


def runs_of(*sequences: Sequence[ToolCall | str], text: str = "Book a room.") -> list[Run]:
    return [
        Run(
            f"run-{number:03}",
            input=text,
            tool_calls=tuple(each if isinstance(each, ToolCall) else call(each) for each in calls),
        )
        for number, calls in enumerate(sequences)
    ]


def only(runs: Sequence[Run], **options: Any) -> Suggestion:
    (suggestion,) = suggest_goldens(runs, SuggestionOptions(**options)).items
    assert suggestion.passing == sum(evaluate(run, suggestion.golden).passed is True for run in runs)
    assert suggestion.passing >= suggestion.runs * options.get("min_support", 0.9)
    return suggestion


def names(suggestion: Suggestion) -> list[str]:
    return [item.name for item in suggestion.golden.tools]


# --- calls ------------------------------------------------------------------------------------------------------------


def test_tools_of_enough_runs_are_required_and_the_others_are_optional() -> None:
    runs = runs_of(*[["search", "book"]] * 10, *[["book", "search", "mail"]] * 9, ["search", "mail"])
    suggestion = only(runs)
    assert {tool.name: tool.is_optional for tool in suggestion.golden.expected_calls} == {
        "book": False,
        "search": False,
        "mail": True,
    }
    assert suggestion.golden.order == "any"
    assert [notes[0] for notes in suggestion.item_comments] == [
        "in 20 of 20 runs",
        "in 19 of 20 runs",
        "in 10 of 20 runs",
    ]
    assert (suggestion.runs, suggestion.passing) == (20, 19)


def test_a_failed_attempt_before_a_further_call_is_not_expected() -> None:
    runs = runs_of(*[[call("book", error="Timeout"), call("book")]] * 3)
    assert only(runs).golden.tools == (ExpectedTool("book"),)


def test_runs_without_calls_get_a_golden_without_tools() -> None:
    suggestion = only(runs_of([], [], []))
    assert suggestion.golden.tools == ()
    assert evaluate(["anything"], suggestion.golden).passed is False


def test_a_tool_with_a_varying_number_of_calls_has_a_minimum() -> None:
    suggestion = only(runs_of(["page", "page"], ["page"] * 3, ["page"] * 4, ["page"] * 2))
    assert suggestion.golden.tools == (ExpectedTool("page", times=Times(2, None)),)
    assert suggestion.item_comments == (("in 4 of 4 runs, 2 to 4 times",),)


def test_ten_runs_with_the_same_number_of_calls_state_the_number() -> None:
    runs = runs_of(*[["search", "page", "page"]] * 5, *[["page", "search", "page"]] * 5)
    search, page = sorted(only(runs).golden.expected_calls, key=lambda tool: tool.name, reverse=True)
    assert (search.times, page.times) == (Times(1, 1), Times(2, 2))


def test_calls_of_one_tool_with_different_arguments_are_separate_expectations() -> None:
    there, back = call("fly", to="Rome", day=1), call("fly", to="Oslo", day=5)
    runs = runs_of([there, back], [back, there], [there, back, call("fly", to="Bonn", day=9)])
    suggestion = only(runs)
    stated = [tool.arguments for tool in suggestion.golden.expected_calls]
    assert {"to": "Rome", "day": 1} in stated
    assert {"to": "Oslo", "day": 5} in stated
    assert evaluate([there, there], suggestion.golden).passed is False


# --- order ------------------------------------------------------------------------------------------------------------


def test_an_order_that_holds_in_enough_runs_is_stated() -> None:
    suggestion = only(runs_of(*[["find", "think", "refund"]] * 3, *[["find", "refund"]] * 3))
    assert (suggestion.golden.order, names(suggestion)) == ("in_order", ["find", "refund"])
    assert evaluate(["refund", "find"], suggestion.golden).passed is False
    assert "also called: think in 3 of 6 runs" in suggestion.comments


def test_tools_without_an_order_among_themselves_are_parallel() -> None:
    suggestion = only(runs_of(["a", "b", "c"], ["b", "a", "c"], ["a", "b", "c"], ["b", "a", "c"]))
    group, last = suggestion.golden.tools
    assert isinstance(group, Parallel)
    assert ({item.name for item in group.items}, last.name) == ({"a", "b"}, "c")


def test_overlapping_calls_have_no_order() -> None:
    overlapping = tuple(
        ToolCall(name, arguments={}, concurrent_with=other) for name, other in (("a", (1,)), ("b", (0,)), ("c", ()))
    )
    runs = [
        Run(str(number), input="x", tool_calls=overlapping if number else (*overlapping, call("d")))
        for number in range(4)
    ]
    group, last = only(runs, min_support=1.0).golden.tools
    assert isinstance(group, Parallel)
    assert last.name == "c"


def test_ten_equal_sequences_are_exact() -> None:
    suggestion = only(runs_of(*[["find", "refund"]] * 10))
    assert suggestion.golden.order == "exact"
    assert evaluate(["find", "mail", "refund"], suggestion.golden).passed is False
    assert only(runs_of(*[["find", "refund"]] * 9)).golden.order == "in_order"


def test_two_runs_show_no_order() -> None:
    assert only(runs_of(["find", "refund"], ["find", "refund"])).golden.order == "any"


def test_an_order_that_the_runs_do_not_pass_is_dropped() -> None:
    """Every pair has an order in two of three runs at least, and no run has all of them."""
    runs = runs_of(["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"])
    assert only(runs, min_support=0.6).golden.order == "any"


# --- alternatives -----------------------------------------------------------------------------------------------------


def test_tools_that_exclude_one_another_are_alternatives() -> None:
    suggestion = only(runs_of(*[["find", "mail"]] * 3, *[["find", "text"]] * 2))
    find, alternatives = suggestion.golden.tools
    assert find.name == "find"
    assert isinstance(alternatives, AnyOf)
    assert alternatives.name == "mail or text"
    assert suggestion.item_comments[1] == ("one of these in 5 of 5 runs", "mail in 3 of 5 runs", "text in 2 of 5 runs")
    assert evaluate(["find"], suggestion.golden).passed is False


def test_trajectories_that_exclude_one_another_are_alternatives() -> None:
    suggestion = only(runs_of(*[["find", "refund", "mail"]] * 2, *[["find", "cancel"]] * 2))
    alternatives = suggestion.golden.tools[-1]
    assert isinstance(alternatives, AnyOf)
    assert {tuple(item.name for item in option) for option in alternatives.options} == {("refund", "mail"), ("cancel",)}


def test_three_alternatives_are_found_and_not_listed_as_optional_too() -> None:
    suggestion = only(runs_of(["a"], ["a"], ["b", "d"], ["b"], ["c"], ["c"]))
    assert names(suggestion) == ["a or b or c", "d"]
    ordered = only(runs_of(*[["find", "mail"]] * 3, *[["find", "text"]] * 3))
    assert (names(ordered), ordered.golden.order) == (["find", "mail or text"], "in_order")
    assert not any("also called" in comment for comment in ordered.comments)


def test_one_run_shows_no_alternative() -> None:
    suggestions = suggest_goldens(runs_of(["a"], ["b"]))
    assert (suggestions.items, suggestions.groups_without_rules) == ((), 1)


# --- rules that do not hold together ----------------------------------------------------------------------------------


def test_a_call_becomes_optional_if_too_few_runs_make_all_required_calls() -> None:
    suggestion = only(runs_of(["a", "b"], ["a"], ["a"], ["b"], ["b"]), min_support=0.6)
    assert (suggestion.passing, [tool.is_optional for tool in suggestion.golden.expected_calls]) == (3, [False, True])


def test_an_argument_is_dropped_if_too_few_runs_have_all_common_values() -> None:
    values = [(1, 1), (1, 2), (1, 3), (2, 1), (3, 1)]
    suggestion = only(runs_of(*([call("book", x=x, y=y)] for x, y in values)), min_support=0.6)
    (tool,) = suggestion.golden.expected_calls
    assert (suggestion.passing, tool.arguments, tool.match) == (3, {"y": 1}, "subset")


def test_the_order_is_dropped_if_too_few_runs_have_the_order_of_all_pairs() -> None:
    suggestion = only(runs_of("abc", "abc", "abc", "bac", "acb"), min_support=0.7)
    assert (suggestion.passing, suggestion.golden.order) == (5, "any")


def test_the_arguments_of_an_alternative_are_dropped_if_too_few_runs_have_them() -> None:
    arguments = [(1, 1), (1, 1), (1, 2), (2, 1)]
    sequences = [[call(name, x=x, y=y)] for name in ("mail", "text") for x, y in arguments]
    suggestion = only(runs_of(*sequences), min_support=0.75)
    alternatives = suggestion.golden.tools[0]
    assert isinstance(alternatives, AnyOf)
    assert alternatives.name == "mail or text"
    assert (suggestion.passing, {tool.arguments for tool in suggestion.golden.expected_calls}) == (8, {None})


def test_a_repeated_call_in_an_order_is_expected_as_often_as_enough_runs_make_it() -> None:
    suggestion = only(runs_of("aab", "aaab", "aab", "aaaab"))
    assert (names(suggestion), suggestion.golden.order) == (["a", "a", "b"], "in_order")


def test_alternatives_of_several_calls_beside_unordered_calls_leave_no_order() -> None:
    suggestion = only(runs_of("axyb", "xyab", "azb", "zab"))
    assert suggestion.golden.order == "any"
    assert sorted(names(suggestion)) == ["a", "b", "x + y or z"]


def test_a_group_with_more_wordings_than_a_condition_holds_is_selected_in_part() -> None:
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "my"]
    texts = [f"{'please ' * number}find the cheapest hotel for my family {word}" for number, word in enumerate(words)]
    runs = [Run(f"{number:02}", input=text, tool_calls=(call("find"),)) for number, text in enumerate(texts)]
    suggestion = only(runs)
    assert suggestion.found < suggestion.runs == 12
    assert f"the condition selects {suggestion.found} of them" in suggestion.comments


# --- arguments --------------------------------------------------------------------------------------------------------


def arguments_of(*values: Any, **options: Any) -> Any:
    suggestion = only(runs_of(*([call("book", x=value)] for value in values)), **options)
    return suggestion.golden.expected_calls[0].arguments, suggestion.item_comments[0][1:]


@pytest.mark.parametrize(
    ("values", "expected", "notes"),
    [
        pytest.param([7, 7, 7], 7, (), id="equal"),
        pytest.param([*[7] * 19, 8], 7, ("x this value in 19 of 20 calls",), id="nearly always equal"),
        pytest.param(["AB-1", "CD-22", "EF-3"], Regex(r"[A-Z]{2}-[0-9]+"), ("x 3 values",), id="shape of an id"),
        pytest.param(["ORD7", "ORD8"], Regex("ORD[0-9]"), ("x 2 values",), id="common prefix"),
        pytest.param(["v1.2", "v3.4"], Regex(r"v[0-9]\.[0-9]"), ("x 2 values",), id="special characters"),
        pytest.param(["2025-01-31", "2024-12-01"], Regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"), ("x 2 values",), id="dates"),
        pytest.param(["Rome", "New York"], OfType("string"), ("x 2 values",), id="words have no shape"),
        pytest.param([1, 2.0], OfType("integer"), ("x 2 values",), id="integers"),
        pytest.param([1, 2.5], OfType("number"), ("x 2 values",), id="numbers"),
        pytest.param([True, False], OfType("boolean"), ("x 2 values",), id="booleans"),
        pytest.param([["a", "b"], ["b", "a"], ["b", "a"], ["a", "b"]], "unordered", None, id="items in any order"),
        pytest.param([[1], [2]], OfType("array"), ("x 2 values",), id="lists"),
        pytest.param([{"a": 1, "b": 2}, {"a": 1, "b": 3}], {"a": 1, "b": OfType("integer")}, ("x 2 values",), id="key"),
        pytest.param([{"a": 1}, {"b": 3}], OfType("object"), ("x 2 values",), id="mappings"),
        pytest.param(
            [*["EUR"] * 5, *["USD"] * 4], OneOf(("EUR", "USD")), ('x "EUR" 5, "USD" 4 of 9 calls',), id="few values"
        ),
        pytest.param([float("inf"), 1.5], OfType("number"), ("x 2 values",), id="infinity"),
    ],
)  # fmt: skip
def test_an_argument_is_stated_by_what_its_values_have_in_common(values: list[Any], expected: Any, notes: Any) -> None:
    arguments, found = arguments_of(*values)
    if expected == "unordered":
        assert isinstance(arguments["x"], Unordered)
        assert found == ("x these items in any order in 4 of 4 calls",)
    else:
        assert (arguments, found) == ({"x": expected}, notes)


def test_values_of_several_types_have_nothing_in_common_but_their_presence() -> None:
    suggestion = only(runs_of([call("book", x="a")], [call("book", x=1)], [call("book")]), min_support=0.6)
    assert evaluate([call("book")], suggestion.golden).passed is (suggestion.golden.expected_calls[0].arguments is None)


def test_a_value_that_looks_like_a_matcher_is_compared_literally() -> None:
    suggestion = only(runs_of([call("book", x={"regex": "a"})], [call("book", x={"regex": "a"})]))
    assert evaluate([call("book", x="a")], suggestion.golden).passed is False


@pytest.mark.parametrize(
    "value",
    [10**5000, "\ud800", {1: 2}, float("nan"), b"x", "a" * 100_000, None],
    ids=lambda value: type(value).__name__,
)
def test_values_that_are_hard_to_write_do_not_prevent_a_suggestion(value: Any) -> None:
    runs = runs_of(*([call("book", x=each)] for each in (value, 1, value, 2, value, 3)))
    (item,) = suggest_goldens(runs, SuggestionOptions(min_support=0.6)).items
    assert item.golden.tools[0].name == "book"


def test_an_argument_of_some_calls_only_is_not_expected() -> None:
    suggestion = only(runs_of([call("book", x=1)], [call("book", x=1, note="late")]))
    (tool,) = suggestion.golden.expected_calls
    assert (tool.arguments, tool.match) == ({"x": 1}, "subset")


def test_an_argument_from_the_request_is_noted() -> None:
    runs = [
        Run(f"{n}", input=f"Refund order {n} please", tool_calls=(call("refund", order=n, why="asked"),))
        for n in range(17, 22)
    ]
    suggestion = only(runs)
    (tool,) = suggestion.golden.expected_calls
    assert tool.arguments == {"order": OfType("integer"), "why": "asked"}
    assert "order copied from the request in 5 of 5 calls" in suggestion.item_comments[0]
    assert evaluate(
        Run("r", input="Refund order 99 please", tool_calls=(call("refund", order=99, why="asked"),)),
        Goldens([suggestion.golden]),
    ).passed


def test_arguments_that_were_not_captured_are_not_expected() -> None:
    runs = [Run(str(number), input="x", tool_calls=(ToolCall("book"),)) for number in range(3)]
    assert only(runs).golden.tools == (ExpectedTool("book"),)
    assert only(runs_of([call("book", x=1)], [call("book", x=1)]), arguments=False).golden.tools == (
        ExpectedTool("book"),
    )


# --- selection --------------------------------------------------------------------------------------------------------


def test_a_group_of_equal_texts_is_selected_by_its_input() -> None:
    golden = only(runs_of(["a"], ["a"])).golden
    assert (golden.id, golden.input, golden.when) == ("book-a-room", "Book a room.", None)


def test_a_group_of_similar_texts_is_selected_by_a_pattern_that_fits_further_requests() -> None:
    runs = [
        Run(str(number), input=f"Please refund order {number}!", tool_calls=(call("refund"),)) for number in range(5)
    ]
    suggestion = only(runs)
    goldens = Goldens([suggestion.golden])
    assert suggestion.found == 5
    assert goldens.find(Run("new", input="please refund order 4711-B")) is not None
    assert goldens.find(Run("new", input="Please cancel order 4711")) is None


def test_requests_that_differ_in_a_negation_are_not_the_same() -> None:
    texts = ["Do send the newsletter to me every week", "Do not send the newsletter to me every week"]
    runs = [Run(f"{n}-{m}", input=text, tool_calls=(call("abc"[m]),)) for m, text in enumerate(texts) for n in range(2)]
    assert sorted(item.golden.input or "" for item in suggest_goldens(runs).items) == sorted(texts)


def test_a_group_without_common_calls_is_split_by_more_similar_texts() -> None:
    texts = {"find": "Tell me about the order {} right now", "cancel": "Tell me about my order {} right now, please do"}
    runs = [
        Run(f"{tool}-{number}", input=text.format(number), tool_calls=(call(tool),))
        for tool, text in texts.items()
        for number in range(3)
    ]
    suggestions = suggest_goldens(runs, SuggestionOptions(similarity=70))
    assert sorted(names(item)[0] for item in suggestions.items) == ["cancel", "find"]
    assert all(item.found == item.runs == 3 for item in suggestions.items)
    alone = suggest_goldens(runs_of(["a"], ["b"], ["c"]))
    assert (alone.items, alone.groups_without_rules) == ((), 1)


def test_runs_that_name_a_golden_form_its_group() -> None:
    runs = [Run(str(n), input=f"{'xyz'[n]} {n}", golden_id="refund", tool_calls=(call("refund"),)) for n in range(3)]
    golden = only(runs).golden
    assert (golden.id, golden.input, golden.when) == ("refund", None, None)


def test_components_form_groups_of_their_own() -> None:
    parts = [
        Run(str(n), unit="component", component="Retriever", input="find", tool_calls=(call("search"),)) for n in (1, 2)
    ]
    requests = [Run(str(n), input="find", tool_calls=(call("answer"),)) for n in (3, 4)]
    first, second = suggest_goldens(parts + requests).items
    assert {first.golden.component, second.golden.component} == {"Retriever", None}
    assert {first.golden.id, second.golden.id} == {"find", "find-2"}


def test_what_is_left_out_is_counted() -> None:
    runs = [*runs_of(["a"], ["a"]), Run("x", input="Something else entirely"), Run("y"), Run("z", input=" ")]
    suggestions = suggest_goldens(runs)
    assert (suggestions.runs, len(suggestions.items)) == (5, 1)
    assert (suggestions.small_groups, suggestions.runs_of_small_groups, suggestions.runs_without_request) == (1, 1, 2)


def test_a_condition_that_does_not_select_all_runs_is_reported() -> None:
    texts = ["find a hotel in rome now", "find a hotel in rome today please", "x" * 400 + " find", "x" * 400 + " found"]
    runs = [Run(f"{n}{m}", input=text, tool_calls=(call("a"),)) for n, text in enumerate(texts) for m in (0, 1)]
    for item in suggest_goldens(runs, SuggestionOptions(similarity=50)).items:
        assert item.found == item.runs or f"the condition selects {item.found} of them" in item.comments


def test_tools_that_were_never_called_are_forbidden_on_request() -> None:
    offered = (ToolDefinition("delete_all"), ToolDefinition("Book"), ToolDefinition("odd*"))
    runs = [Run(str(n), input="x", tool_calls=(call("book"),), available_tools=offered) for n in (1, 2)]
    assert only(runs).golden.forbid == ()
    assert only(runs, forbid=True).golden.forbid == ("delete_all",)
    (item,) = suggest_goldens(runs, SuggestionOptions(forbid=True), offered=["drop", "book"]).items
    assert item.golden.forbid == ("delete_all", "drop")


def test_only_side_effects_are_expected_of_tools_that_write() -> None:
    runs = runs_of(["find", "look", call("refund", how="card")], ["look", call("refund", how="card")], ["refund"])
    suggestion = only(runs[:2], write_tools=("refund", "cancel*"))
    golden = suggestion.golden
    assert (golden.tools, golden.write_tools, golden.extra) == (
        (ExpectedTool("refund", {"how": "card"}),),
        ("refund",),
        None,
    )
    assert evaluate([call("any"), call("refund", how="card")], golden).passed is True
    assert evaluate([call("refund", how="card"), call("refund", how="card")], golden).passed is False
    reading = only(runs_of(["find"], ["look"]), write_tools=("find_never", "look_never"))
    assert (reading.golden.tools, reading.golden.write_tools) == ((), ())
    (item,) = suggest_goldens(
        runs_of(["find"], ["find"]), SuggestionOptions(write_tools=("ref*",)), offered=["refund"]
    ).items
    assert (item.golden.write_tools, item.golden.forbid, item.golden.extra) == (("refund",), ("refund",), "allow")
    assert evaluate(["find", "refund"], item.golden).passed is False
    repeated = only(runs_of(*[["a", "b"]] * 10), write_tools=("a", "b"))
    assert repeated.golden.order == "in_order"


@pytest.mark.parametrize("options", [{"min_support": 0.5}, {"min_support": 1.1}, {"min_runs": 0}, {"similarity": 30}])
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        SuggestionOptions(**options)


# --- laws -------------------------------------------------------------------------------------------------------------

tool_calls = st.lists(
    st.builds(
        lambda name, value, failed: call(name, x=value, error="Timeout" if failed else None),
        st.sampled_from("abcd"),
        st.sampled_from((1, 2, "AB-1", "AB-2", None, [1], [2, 1])),
        st.booleans(),
    ),
    max_size=5,
)


@settings(deadline=None)
@given(
    st.lists(tool_calls, min_size=1, max_size=12), st.randoms(use_true_random=False), st.sampled_from((0.6, 0.9, 1.0))
)
def test_the_runs_pass_as_claimed_and_their_order_changes_nothing(
    calls: list[list[ToolCall]], chance: random.Random, support: float
) -> None:
    runs = runs_of(*calls)
    options = SuggestionOptions(min_support=support, min_runs=1)
    items = suggest_goldens(runs, options).items
    for item in items:
        assert item.passing == sum(evaluate(run, item.golden).passed is True for run in runs)
        assert item.passing >= support * len(runs) - 1e-9
        goldens_to_yaml(item.golden)
    shuffled = runs.copy()
    chance.shuffle(shuffled)
    assert suggest_goldens(shuffled, options).items == items


def test_long_groups_are_mined_in_part_and_verified_as_a_whole() -> None:
    runs = runs_of(*[["a", "b"]] * 1200, ["c"])
    suggestion = only(runs)
    assert (suggestion.runs, suggestion.passing, suggestion.golden.order) == (1201, 1200, "exact")


def test_a_golden_has_the_condition_of_several_wordings() -> None:
    texts = [
        "refund my order {} please",
        "please refund the order {} which broke",
        "my order {} broke so please refund it",
    ]
    runs = [
        Run(f"{n}-{m}", input=text.format(n), tool_calls=(call("refund"),))
        for m, text in enumerate(texts)
        for n in range(3)
    ]
    suggestions = suggest_goldens(runs, SuggestionOptions(similarity=50)).items
    for suggestion in suggestions:
        assert isinstance(suggestion.golden, Golden)
        assert isinstance(suggestion.golden.when, When)
        assert suggestion.found == suggestion.runs


# --- existing goldens -------------------------------------------------------------------------------------------------

DECLARED = Vocabulary((Tool("book_hotel", aliases=("hotel.book", "reserve")), Tool("search", server="shop")))


def test_calls_of_declared_names_and_aliases_are_one_tool_with_the_declared_name() -> None:
    sequences = [["find", ("hotel.book", "reserve", "book_hotel")[number % 3]] for number in range(12)]
    runs = runs_of(*sequences)
    (item,) = [item for item in only(runs).golden.tools if isinstance(item, AnyOf)]
    assert item.name == "book_hotel or hotel.book or reserve"
    suggestion = only(runs, existing=Goldens(vocabulary=DECLARED))
    assert names(suggestion) == ["find", "book_hotel"]
    assert suggestion.golden.vocabulary == DECLARED
    assert suggestion.passing == 12


def test_a_failed_attempt_under_an_alias_is_no_call_of_its_own() -> None:
    runs = runs_of(*[[call("reserve", error="busy"), "book_hotel"]] * 12)
    assert names(only(runs)) == ["reserve", "book_hotel"]
    assert names(only(runs, existing=Goldens(vocabulary=DECLARED))) == ["book_hotel"]


def test_no_alias_of_a_called_tool_is_forbidden() -> None:
    offered = tuple(map(ToolDefinition, ("reserve", "book_hotel", "cancel")))
    runs = [replace(run, available_tools=offered) for run in runs_of(*[["book_hotel"]] * 12)]
    assert only(runs, forbid=True).golden.forbid == ("cancel", "reserve")
    assert only(runs, forbid=True, existing=Goldens(vocabulary=DECLARED)).golden.forbid == ("cancel",)


def test_side_effects_are_selected_by_any_declared_name() -> None:
    runs = runs_of(*[["find", "reserve"]] * 12)
    suggestion = only(runs, existing=Goldens(vocabulary=DECLARED), write_tools=("book_*",))
    assert names(suggestion) == ["book_hotel"]
    assert only(runs_of(*[["find"]] * 12), existing=Goldens(vocabulary=DECLARED), write_tools=("f*",)).passing == 12


def test_ids_of_existing_goldens_are_not_reused_except_by_runs_that_name_them() -> None:
    runs = runs_of(*[["search", "book"]] * 3)
    taken = only(runs).golden.id
    assert only(runs, existing=Goldens([Golden(taken, "Something else.")])).golden.id == f"{taken}-2"
    named = [replace(run, golden_id="mine") for run in runs]
    assert only(named, existing=Goldens([Golden("mine", "Something else.")])).golden.id == "mine"


def test_runs_that_an_existing_golden_of_the_same_request_takes_are_not_counted_as_found() -> None:
    runs = runs_of(*[["search", "book"]] * 3)
    assert only(runs).found == 3
    suggestion = only(runs, existing=Goldens([Golden("other", "Book a room.", tools=(ExpectedTool("pay"),))]))
    assert suggestion.found == 0
    assert suggestion.comments[-1] == "the condition selects 0 of them"
