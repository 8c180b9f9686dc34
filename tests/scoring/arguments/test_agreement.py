"""Arguments and results agree by what they mean, key by key, as the golden says they are to be compared."""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Callable
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan._guard import failure_counts
from goldspan.model import ABSENT, Agreement, Difference, ExpectedTool, ToolCall
from goldspan.model.value_matchers import Anything, Approx, Contains, OfType, OneOf, Regex, Similar, Unordered
from goldspan.scoring.arguments.agreement import argument_agreement, argument_share, result_agreement, result_share
from goldspan.scoring.arguments.equality import equal

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=12,
)
ARGUMENTS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


def agreed(expected: Any, called: Any, schema: Any = None, **rules: Any) -> Agreement:
    """How far arguments agree that are there on both sides."""
    found = argument_agreement(ExpectedTool("book", expected, **rules), ToolCall("book", arguments=called), schema)
    assert found is not None
    return found


def differing(expected: Any, called: Any, schema: Any = None, **rules: Any) -> list[str]:
    return [difference.key for difference in agreed(expected, called, schema, **rules).differences]


# --- shares -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "called", "share"),
    [
        pytest.param({"city": "Paris", "n": 2}, {"n": 2, "city": "Paris"}, 1.0, id="identical"),
        pytest.param({"n": 1}, {"n": 1.0}, 1.0, id="1 and 1.0"),
        pytest.param({"n": 1}, {"n": True}, 0.0, id="1 and true"),
        pytest.param({"n": 5}, {"n": "5"}, 0.0, id="number and text"),
        pytest.param({"q": "x"}, {"q": "x", "page": 1}, 0.5, id="an extra default"),
        pytest.param({"q": "x", "request_id": "a"}, {"q": "x", "request_id": "b"}, 0.5, id="one of two"),
        pytest.param({"city": "Paris"}, {"city": " paris"}, 0.0, id="text as written"),
        pytest.param({"ids": [1, 2]}, {"ids": [2, 1]}, 0.0, id="a list in another order"),
        pytest.param({"ids": [1, 2]}, {"ids": (1, 2)}, 1.0, id="list and tuple"),
        pytest.param({"ids": [1, 2]}, {"ids": [1]}, 0.0, id="a shorter list"),
        pytest.param({"ids": [1, 2]}, {"ids": [1, True]}, 0.0, id="no number in a list"),
        pytest.param({"ids": [*range(99)]}, {"ids": [*range(99)]}, 1.0, id="a long list"),
        pytest.param({"ids": [math.nan]}, {"ids": [float("nan")]}, 1.0, id="no number in both lists"),
        pytest.param({"ids": [[1], {}]}, {"ids": [[1], {}]}, 1.0, id="lists in a list"),
        pytest.param({"ids": None}, {"ids": None}, 1.0, id="nothing"),
        pytest.param({"a": {"x": 1, "y": 2}}, {"a": {"y": 2, "x": 1}}, 1.0, id="nested, in another order"),
        pytest.param({"a": {"x": 1, "y": 2}}, {"a": {"x": 1, "z": 2}}, 1 / 3, id="nested other key"),
        pytest.param({"ids": [{"a": None}]}, {"ids": [{}]}, 1.0, id="an absent key inside a list"),
        pytest.param({"a": {"x": 1}}, {"a": {"x": 1, "y": 2}}, 0.5, id="nested extra key"),
        pytest.param({"a": {"x": 1, "y": 2}, "b": 3}, {"a": {"x": 1, "y": 0}, "b": 3}, 0.75, id="nested share"),
        pytest.param({}, {}, 1.0, id="no arguments on both sides"),
        pytest.param({}, {"q": "x"}, 0.0, id="none were expected"),
        pytest.param({"q": "x"}, {}, 0.0, id="none were given"),
        pytest.param({"q": "x", "page": None}, {"q": "x"}, 1.0, id="null and absent"),
        pytest.param({"q": "x"}, {"q": "x", "page": None}, 1.0, id="absent and null"),
        pytest.param({"filter": {}}, {"filter": None}, 1.0, id="an empty dictionary and null"),
        pytest.param({"filter": {}}, {}, 1.0, id="an empty dictionary and nothing"),
        pytest.param({"filter": {}}, {"filter": []}, 0.0, id="an empty dictionary and an empty list"),
        pytest.param({"q": None}, {"q": ""}, 0.0, id="null and empty text"),
        pytest.param({"q": None}, {"q": 0}, 0.0, id="null and zero"),
        pytest.param({"x": math.nan}, {"x": math.nan}, 1.0, id="not a number"),
        pytest.param({"x": [math.nan]}, {"x": [float("nan")]}, 1.0, id="not a number in a list"),
        pytest.param({"x": 1.0}, {"x": math.nan}, 0.0, id="a number and not a number"),
        pytest.param({"q": "x"}, "x", 0.0, id="arguments that are no dictionary"),
        pytest.param({"q": "x"}, ["x"], 0.0, id="arguments in a list"),
        pytest.param({"a": 1}, MappingProxyType({"a": 1}), 1.0, id="another kind of mapping"),
        pytest.param({"id": Regex(r"\d+"), "n": 1}, {"id": "17", "n": 2}, 0.5, id="a matcher among plain values"),
        pytest.param({"a": {"b": Approx(1), "c": Anything()}}, {"a": {"b": 1}}, 0.5, id="matchers deep inside"),
        pytest.param({"ids": [Anything(), 2]}, {"ids": [1, 2]}, 1.0, id="matchers in a list"),
        pytest.param({"ids": [Anything(), 2]}, {"ids": [1, 3]}, 0.0, id="a list agrees as a whole"),
        pytest.param({"a": Anything()}, {"a": {"b": 1, "c": 2}}, 1.0, id="a matcher has no keys"),
        pytest.param({str(n): n for n in range(10)}, {str(n): n for n in range(7)}, 0.7, id="seven of ten"),
    ],
)
def test_the_share_of_arguments_that_agree(expected: dict[str, Any], called: Any, share: float) -> None:
    found = agreed(expected, called)
    assert found.share == share
    assert (found.differences == ()) is (share == 1.0)


@pytest.mark.parametrize(
    ("expected", "called", "share"),
    [
        pytest.param({"q": "x"}, {"q": "x", "page": 1}, 1.0, id="more than was stated"),
        pytest.param({}, {"q": "x"}, 1.0, id="nothing was stated"),
        pytest.param({"q": "x", "n": 1}, {"q": "x", "page": 1}, 0.5, id="less than was stated"),
        pytest.param({"a": {"x": 1}}, {"a": {"x": 1, "y": 2}}, 1.0, id="more than was stated, deep inside"),
        pytest.param({"a": {}, "b": 1}, {"a": {"x": 1}, "b": 2}, 0.5, id="nothing was stated of a dictionary"),
        pytest.param({"a": {}}, {"a": 1}, 0.0, id="a dictionary was stated"),
        pytest.param({"a": [{"x": 1}]}, {"a": [{"x": 1, "y": 2}]}, 0.0, id="what lists hold is no argument"),
        pytest.param({"a": None}, {}, 1.0, id="null was stated"),
        pytest.param({"a": None}, {"a": 1}, 0.0, id="null was stated and something came"),
    ],
)
def test_a_golden_may_state_some_of_the_arguments_only(
    expected: dict[str, Any], called: dict[str, Any], share: float
) -> None:
    assert agreed(expected, called, match="subset").share == share


@pytest.mark.parametrize(
    ("tool", "call"),
    [
        pytest.param(ExpectedTool("a"), ToolCall("a", arguments={"q": 1}), id="not stated"),
        pytest.param(ExpectedTool("a", {"q": 1}), ToolCall("a"), id="not captured"),
        pytest.param(ExpectedTool("a", {}), ToolCall("a"), id="none stated and not captured"),
        pytest.param(ExpectedTool("a", {"q": 1}), ToolCall("a", raw_arguments='{"q": '), id="cut off"),
    ],
)
def test_unknown_arguments_are_not_evaluated(tool: ExpectedTool, call: ToolCall) -> None:
    assert argument_agreement(tool, call) is None


def test_differences_name_the_key_and_both_values() -> None:
    expected = {"city": Regex("P.*"), "payment": {"amount": 12.5, "by": {"card": 1}}, "gone": True, "same": 1}
    called = {"city": "Rome", "payment": {"amount": 13, "by": {"card": 2}}, "new": False, "same": 1}
    found = agreed(expected, called)
    assert sorted(found.differences, key=lambda difference: difference.key) == [
        Difference("city", Regex("P.*"), "Rome"),
        Difference("gone", True, ABSENT),
        Difference("new", ABSENT, False),
        Difference("payment.amount", 12.5, 13),
        Difference("payment.by.card", 1, 2),
    ]
    assert found.share == pytest.approx(1 / 5)
    assert repr(ABSENT) == "absent"


def test_arguments_that_are_no_dictionary_differ_as_a_whole() -> None:
    assert agreed({"q": "x"}, "x").differences == (Difference("", {"q": "x"}, "x"),)


def test_a_difference_says_when_the_two_could_not_be_compared() -> None:
    text = "a" * 200_000
    found = agreed({"q": Regex("a+"), "n": 1}, {"q": text, "n": 2})
    note = "a text of 200,000 characters is too long to be compared: 100,000 at most"
    assert found.differences == (Difference("q", Regex("a+"), text, note), Difference("n", 1, 2))


# --- what is ignored, and what is left out ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "called", "ignore", "share"),
    [
        pytest.param({"q": "x"}, {"q": "x", "trace": 1}, ["trace"], 1.0, id="only called"),
        pytest.param({"q": "x", "trace": 1}, {"q": "x"}, ["trace"], 1.0, id="only expected"),
        pytest.param({"q": "x", "trace": 1}, {"q": "y", "trace": 2}, ["trace"], 0.0, id="it has no share"),
        pytest.param({"q": "x"}, {"q": "y"}, ["q"], 1.0, id="all there is"),
        pytest.param({"o": {"t": 1, "n": 1}}, {"o": {"t": 2, "n": 1}}, ["o.t"], 1.0, id="deep inside"),
        pytest.param({"q": "x"}, {"q": "x", "o": {"t": 2}}, ["o.t"], 1.0, id="all of what is only called"),
        pytest.param({"o": {"t": 1}}, {"o": {"t": 1, "n": 2}}, ["o"], 1.0, id="with all that is inside"),
        pytest.param({"o.t": 1}, {"o.t": 2}, ["o.t"], 1.0, id="a key with a dot in it"),
        pytest.param(
            {"a": [{"id": 1, "n": 1}]}, {"a": [{"id": 2, "n": 1}]}, ["a.id"], 1.0, id="in each item of a list"
        ),
        pytest.param({"a": [[{"id": 1}]]}, {"a": [[{"id": 2}]]}, ["a.id"], 0.0, id="in no list of lists"),
        pytest.param({"o": Anything()}, {"o": {"t": 1}}, ["o.t"], 1.0, id="under a matcher"),
        pytest.param({"o": Anything()}, {"o": {"t": 1}}, ["o"], 1.0, id="a matcher"),
        pytest.param({"q": 1}, {"q": 2}, ["other", "q.deeper", "q."], 0.0, id="what is not there"),
        pytest.param({1: "x"}, {1: "y"}, ["1"], 0.0, id="a key that is no text"),
    ],
)
def test_ignored_arguments_are_dropped_from_both_sides(
    expected: dict[Any, Any], called: dict[Any, Any], ignore: list[str], share: float
) -> None:
    assert agreed(expected, called, ignore=tuple(ignore)).share == share


@pytest.mark.parametrize(
    ("expected", "called", "defaults", "share"),
    [
        pytest.param({"q": "x"}, {"q": "x", "n": 10}, {"n": 10}, 1.0, id="only called"),
        pytest.param({"q": "x", "n": 10}, {"q": "x"}, {"n": 10}, 1.0, id="only expected"),
        pytest.param({"q": "x"}, {"q": "x", "n": 5}, {"n": 10}, 0.5, id="another value was called"),
        pytest.param({"n": 5, "q": "x"}, {"q": "x"}, {"n": 10}, 0.5, id="another value was expected"),
        pytest.param({"n": 5}, {"n": 10}, {"n": 10}, 0.0, id="it is compared where it is given"),
        pytest.param({"n": Approx(10)}, {}, {"n": 10}, 1.0, id="a matcher looks at it"),
        pytest.param({"q": "x"}, {"q": "y"}, {"n": 10}, 0.0, id="it has no share of its own"),
        pytest.param({"o": {"n": 10}}, {"o": {}}, {"o.n": 10}, 1.0, id="deep inside"),
        pytest.param({"o": {"n": 10}}, {}, {"o.n": 10}, 1.0, id="in a dictionary that is left out"),
        pytest.param({}, {"o": {"n": 10, "m": 1}}, {"o.n": 10}, 0.5, id="in a dictionary that was not expected"),
        pytest.param({"o": None}, {"o": {"n": 10}}, {"o.n": 10}, 1.0, id="in a dictionary that is null"),
        pytest.param({"o": {"n": 10}}, {"o": "text"}, {"o.n": 10}, 0.0, id="in what is no dictionary"),
        pytest.param({"o": None}, {"o": Anything()}, {"o.n": 10}, 0.0, id="in what is nothing of the kind"),
        pytest.param({"n": None}, {}, {"n": 10}, 1.0, id="null and absent are the same without"),
        pytest.param({"n": 10}, {"n": None}, {"n": 10}, 0.0, id="null is not left out"),
    ],
)
def test_an_argument_that_is_left_out_is_its_declared_default(
    expected: dict[str, Any], called: dict[str, Any], defaults: dict[str, Any], share: float
) -> None:
    assert agreed(expected, called, defaults=defaults).share == share


def test_a_difference_from_a_default_shows_the_default() -> None:
    assert agreed({}, {"n": 5}, defaults={"n": 10}).differences == (Difference("n", 10, 5),)


# --- by the tool's JSON schema ----------------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "zip": {"type": "string"},
        "paid": {"type": "boolean"},
        "limit": {"type": "integer", "default": 10},
        "tags": {"type": "array", "items": {"type": "integer"}},
        "payment": {"type": "object", "properties": {"amount": {"type": "number"}, "tip": {"default": 0}}},
        "either": {"type": ["string", "integer"]},
    },
}


@pytest.mark.parametrize(
    ("expected", "called", "keys"),
    [
        pytest.param({"id": 5}, {"id": "5"}, [], id="an integer as text"),
        pytest.param({"id": "5"}, {"id": 5}, [], id="an integer as text in the golden"),
        pytest.param({"zip": "020"}, {"zip": "20"}, ["zip"], id="texts that would be one number"),
        pytest.param({"zip": "20"}, {"zip": 20}, [], id="a text as number"),
        pytest.param({"paid": True}, {"paid": "true"}, [], id="truth as text"),
        pytest.param({"paid": True}, {"paid": 1}, ["paid"], id="truth as number"),
        pytest.param({"tags": [1, 2]}, {"tags": ["1", "2"]}, [], id="items"),
        pytest.param({"tags": Unordered((1, 2))}, {"tags": ["2", "1"]}, [], id="items in any order"),
        pytest.param({"payment": {"amount": 12.5}}, {"payment": {"amount": "12.5"}}, [], id="deep inside"),
        pytest.param({"payment": {"amount": 12.5}}, {"payment": '{"amount": 12.5}'}, [], id="a dictionary as text"),
        pytest.param({"payment": {"amount": Approx(12.5)}}, {"payment": {"amount": "12.5"}}, [], id="a matcher"),
        pytest.param({"either": 5}, {"either": "5"}, ["either"], id="either text or number"),
        pytest.param({"other": 5}, {"other": "5"}, ["other"], id="of which the schema says nothing"),
        pytest.param({"id": 5, "limit": 10}, {"id": 5}, [], id="a default that was not called"),
        pytest.param({"id": 5}, {"id": 5, "limit": "10"}, [], id="a default that was not expected"),
        pytest.param({"id": 5}, {"id": 5, "limit": 20}, ["limit"], id="not the default"),
        pytest.param({"payment": {"amount": 1}}, {"payment": {"amount": 1, "tip": 0}}, [], id="a default deep inside"),
        pytest.param({"id": 5}, {"id": 5, "payment": {"tip": 0}}, [], id="a dictionary of defaults"),
    ],
)
def test_values_agree_that_the_tool_takes_for_the_same(
    expected: dict[str, Any], called: dict[str, Any], keys: list[str]
) -> None:
    assert differing(expected, called, SCHEMA) == keys
    assert not keys or differing(expected, called) == keys


def test_a_default_of_the_golden_takes_precedence_over_that_of_the_schema() -> None:
    assert differing({}, {"limit": 20}, SCHEMA, defaults={"limit": 20}) == []
    assert differing({}, {"limit": 10}, SCHEMA, defaults={"limit": 20}) == ["limit"]


@pytest.mark.parametrize("schema", [{}, {"properties": 5}, {"$ref": "#"}, [], "text", True, 0])
def test_a_schema_that_says_nothing_changes_nothing(schema: Any) -> None:
    assert differing({"id": 5, "q": "x"}, {"id": "5", "q": "x"}, schema) == ["id"]


# --- without end ------------------------------------------------------------------------------------------------------


def nested(levels: int, core: Any, beside: Any = None) -> Any:
    for _ in range(levels):
        core = {"a": core} if beside is None else {"a": core, "b": beside}
    return core


def test_nesting_has_no_limit() -> None:
    one, other = {"a": [nested(5_000, 1)]}, {"a": [nested(5_000, 2)]}
    assert agreed(one, one).share == 1.0
    assert agreed(one, other).share == 0.0


@pytest.mark.e2e
def test_dictionaries_may_be_nested_without_limit_too() -> None:
    found = agreed(nested(2_000, {"x": 1}, beside=1), nested(2_000, {"x": 2}, beside=1))
    assert found.share == pytest.approx(1.0)
    assert len(found.differences) == 1
    assert agreed(nested(100_000, {"x": 1}), nested(100_000, {"x": 1})).share == 1.0
    nowhere = tuple("a." * 99 + "b" for _ in range(3))
    assert agreed(nested(100_000, {"x": 1}), nested(100_000, {"x": 2}), ignore=nowhere).share == 0.0


def circular(x: Any) -> dict[str, Any]:
    value: dict[str, Any] = {"x": x}
    value["one"] = value["other"] = value
    return value


def test_arguments_may_hold_themselves() -> None:
    assert agreed(circular(1), circular(1)).share == 1.0
    found = agreed(circular(1), circular(2), ignore=("x.y.z",))
    assert 0.0 <= found.share < 1.0
    assert len(found.differences) <= 30_001


class Key(str):
    """A key that can be used once only: to make a dictionary."""

    used = False

    def __eq__(self, other: object) -> bool:
        raise ValueError("no")

    def __hash__(self) -> int:
        if self.used:
            raise ValueError("no")
        self.used = True
        return hash("q")


class Silent:
    """A key that cannot be shown."""

    def __format__(self, spec: str) -> str:
        raise ValueError("no")


@pytest.mark.parametrize("key", [Key("q"), Silent()], ids=["a key to be used once", "a key that cannot be shown"])
def test_keys_of_a_users_own_types_break_nothing(key: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOLDSPAN_STRICT")
    before = failure_counts["compare the arguments of a call"]
    called = {key: 1, "n": 1}
    assert agreed({"q": 1, "n": 2}, called) == Agreement(0.0, (Difference("", {"q": 1, "n": 2}, called),))
    expected = ExpectedTool("book", result={"q": 1, "n": 2})
    found = result_agreement(expected, ToolCall("book", result=called))
    assert found == Agreement(0.0, (Difference("", expected.result, called),))
    assert failure_counts["compare the arguments of a call"] == before + 1


# --- laws -------------------------------------------------------------------------------------------------------------


@given(ARGUMENTS, ARGUMENTS)
def test_a_share_lies_between_nothing_and_all_and_is_all_without_differences_only(
    expected: dict[str, Any], called: dict[str, Any]
) -> None:
    found = agreed(expected, called)
    assert 0.0 <= found.share <= 1.0
    assert (found.share == 1.0) is (not found.differences) is equal(expected, called)


@given(ARGUMENTS, ARGUMENTS)
def test_a_subset_match_differs_nowhere_else_than_an_exact_match(
    expected: dict[str, Any], called: dict[str, Any]
) -> None:
    if not differing(expected, called):
        assert not differing(expected, called, match="subset")
    assert set(differing(expected, called, match="subset")) <= set(differing(expected, called))


@given(ARGUMENTS, ARGUMENTS)
def test_arguments_that_are_all_ignored_agree(expected: dict[str, Any], called: dict[str, Any]) -> None:
    assert agreed(expected, called, ignore=("a", "b", "c")) == Agreement(1.0)


@given(ARGUMENTS, ARGUMENTS, st.sampled_from("abc"))
def test_an_ignored_argument_is_as_good_as_none(expected: dict[str, Any], called: dict[str, Any], key: str) -> None:
    without = [{name: value for name, value in side.items() if name != key} for side in (expected, called)]
    assert repr(agreed(expected, called, ignore=(key,))) == repr(agreed(*without))


@given(ARGUMENTS, st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3))
def test_an_omitted_argument_equals_its_default(expected: dict[str, Any], defaults: dict[str, Any]) -> None:
    called = {key: value for key, value in expected.items() if key not in defaults}
    stated = {**expected, **defaults}
    assert differing(stated, called, defaults=defaults) == []
    assert differing(called, stated, defaults=defaults) == []


# --- results ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "call", "share"),
    [
        pytest.param(ABSENT, {"result": 5}, None, id="nothing is expected of it"),
        pytest.param(5, {"result": 5.0}, 1.0, id="a number"),
        pytest.param(5, {"result": 6}, 0.0, id="another number"),
        pytest.param("done", {"result": "done"}, 1.0, id="a text"),
        pytest.param("5", {"result": 5}, 0.0, id="a text and a number"),
        pytest.param({"a": 1, "b": 2}, {"result": {"a": 1, "b": 3}}, 0.5, id="half of a dictionary"),
        pytest.param({"a": 1}, {"result": {"a": 1, "b": 3}}, 0.5, id="more than was expected"),
        pytest.param([1, 2], {"result": [1, 3]}, 0.0, id="half of a list"),
        pytest.param(Regex("[a-z]+"), {"result": "done"}, 1.0, id="a matcher"),
        pytest.param(Contains({"a": 1}), {"result": {"a": 1, "b": 3}}, 1.0, id="a matcher of some entries"),
        pytest.param({"a": Approx(1)}, {"result": {"a": 1.0}}, 1.0, id="a matcher inside"),
        pytest.param({"a": 1, "b": 2}, {"result": '{"a": 1, "b": 3}'}, 0.5, id="a dictionary in JSON"),
        pytest.param([1, 2], {"result": "[1, 2]"}, 1.0, id="a list in JSON"),
        pytest.param(5, {"result": "5"}, 1.0, id="a number in JSON"),
        pytest.param(None, {"result": "null"}, 1.0, id="null in JSON"),
        pytest.param(Unordered((1, 2)), {"result": "[2, 1]"}, 1.0, id="a list in JSON, in any order"),
        pytest.param(OfType("object"), {"result": "{}"}, 1.0, id="a type in JSON"),
        pytest.param(OfType("string"), {"result": "{}"}, 1.0, id="a text that could be JSON"),
        pytest.param(Contains("ok"), {"result": '{"status": "ok"}'}, 1.0, id="words in a text that is JSON"),
        pytest.param("{}", {"result": "{ }"}, 0.0, id="a text is expected as written"),
        pytest.param({"a": 1}, {"result": '{"a": 1'}, 0.0, id="JSON that is cut off"),
        pytest.param({"a": 1}, {"result": "done"}, 0.0, id="words for a dictionary"),
        pytest.param([1], {"result": "[" * 1_000_000}, 0.0, id="JSON without end"),
        pytest.param([1], {"result": "[1" + " " * 1_000_000 + "]"}, 0.0, id="more JSON than is read"),
        pytest.param(5, {}, None, id="not captured"),
        pytest.param(None, {}, None, id="not captured, where null is expected"),
        pytest.param(5, {"outcome": "ok"}, None, id="ended well, and not captured"),
        pytest.param(None, {"outcome": "ok"}, 1.0, id="ended well, and nothing was expected"),
        pytest.param(OneOf((5, None)), {"outcome": "ok"}, 1.0, id="ended well, and nothing would do"),
        pytest.param(Anything(), {"outcome": "ok"}, None, id="ended well, and something was expected"),
        pytest.param(5, {"outcome": "error"}, 0.0, id="failed"),
        pytest.param({"a": 5}, {"error": "boom"}, 0.0, id="failed, by its error"),
        pytest.param({"error": "boom"}, {"error": "boom", "result": {"error": "boom"}}, 1.0, id="failed as expected"),
    ],
)
def test_how_far_a_result_agrees(expected: Any, call: dict[str, Any], share: float | None) -> None:
    found = result_agreement(ExpectedTool("book", result=expected), ToolCall("book", **call))
    assert (found and found.share) == share


def test_differences_of_a_result_name_the_key_in_it() -> None:
    tool = ExpectedTool("book", result={"a": {"b": 1}}, match="subset", ignore=("a",), defaults={"a.b": 2})
    found = result_agreement(tool, ToolCall("book", result=json.dumps({"a": {"b": 2}})))
    assert found == Agreement(0.0, (Difference("a.b", 1, 2),))


def test_a_text_that_does_not_read_better_is_shown_as_written() -> None:
    found = result_agreement(ExpectedTool("book", result=Contains("ok")), ToolCall("book", result='{"status": "no"}'))
    assert found == Agreement(0.0, (Difference("", Contains("ok"), '{"status": "no"}'),))


@given(VALUES.filter(lambda value: value is not None))
def test_a_result_agrees_with_itself_as_it_is_and_in_json(value: Any) -> None:
    tool = ExpectedTool("book", result=value)
    assert result_agreement(tool, ToolCall("book", result=value)) == Agreement(1.0)
    if not isinstance(value, str):
        assert result_agreement(tool, ToolCall("book", result=json.dumps(value))) == Agreement(1.0)


def test_a_nearly_right_text_agrees_where_the_golden_says_how_near() -> None:
    assert agreed({"q": Similar("hotels in Paris", 0.8)}, {"q": "hotel in Paris"}).share == 1.0


# --- shares alone -----------------------------------------------------------------------------------------------------


@given(ARGUMENTS, ARGUMENTS, st.sampled_from(["exact", "subset"]), st.sampled_from([None, {"a": {"type": "integer"}}]))
def test_a_share_alone_is_that_of_the_agreement(expected: Any, called: Any, match: Any, schema: Any) -> None:
    tool, call = ExpectedTool("book", expected, match=match), ToolCall("book", arguments=called)
    assert argument_share(tool, call, schema) == agreed(expected, called, schema, match=match).share


@given(VALUES, VALUES, st.sampled_from([None, "ok", "error"]))
def test_a_share_of_a_result_is_that_of_its_agreement(expected: Any, called: Any, outcome: Any) -> None:
    tool, call = ExpectedTool("book", result=expected), ToolCall("book", result=called, outcome=outcome)
    found = result_agreement(tool, call)
    assert result_share(tool, call) == (None if found is None else found.share)


def test_without_arguments_to_compare_the_share_is_unknown() -> None:
    assert argument_share(ExpectedTool("book"), ToolCall("book", arguments={})) is None
    assert argument_share(ExpectedTool("book", {}), ToolCall("book")) is None
    assert result_share(ExpectedTool("book"), ToolCall("book", result=1)) is None


# --- hints that are found when they are read --------------------------------------------------------------------------


def _unread_difference() -> Difference:
    found = argument_agreement(ExpectedTool("book", {"city": "Rome"}), ToolCall("book", arguments={"city": "rome"}))
    assert found is not None
    return found.differences[0]


FOUND = Difference("city", "Rome", "rome", hint="differs only in case: {folded: ...} accepts it")


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda difference: difference, id="equal"),
        pytest.param(copy.copy, id="copied"),
        pytest.param(copy.deepcopy, id="copied with its parts"),
        pytest.param(lambda difference: pickle.loads(pickle.dumps(difference)), id="pickled"),
        pytest.param(replace, id="replaced"),
        pytest.param(lambda difference: Difference(**asdict(difference)), id="as a dictionary"),
    ],
)
def test_a_difference_whose_hint_nobody_read_is_that_whose_hint_is_found(
    read: Callable[[Difference], Difference],
) -> None:
    assert read(_unread_difference()) == FOUND
    assert repr(read(_unread_difference())) == repr(FOUND)
    assert hash(read(_unread_difference())) == hash(FOUND)


def test_the_hint_of_a_difference_is_found_once() -> None:
    asked: list[tuple[Any, Any]] = []

    def suggest(expected: Any, called: Any) -> str:
        asked.append((expected, called))
        return "a hint"

    difference = Difference("city", "Rome", "Oslo").with_deferred_hint(suggest)
    assert asked == []
    assert [difference.hint, difference.hint, asked] == ["a hint", "a hint", [("Rome", "Oslo")]]


def test_a_difference_has_no_other_attributes_than_its_fields() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'path'"):
        _ = _unread_difference().path  # type: ignore[attr-defined]
