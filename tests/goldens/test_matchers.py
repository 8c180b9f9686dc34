"""Matchers are recognized, plain data is left as it is, and an invalid matcher is refused with its place."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.errors import GoldenError
from goldspan.goldens.schema.matchers import (
    MAX_CONTAINERS,
    MAX_REGEX_LENGTH,
    MAX_VALUE_DEPTH,
    check_plain_data,
    parse_matchers,
)
from goldspan.model.value_matchers import (
    JSON_TYPES,
    MATCHERS,
    Anything,
    Approx,
    Contains,
    Equal,
    Folded,
    Matcher,
    OfType,
    OneOf,
    Regex,
    Similar,
    Unordered,
)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        pytest.param({"any": True}, Anything(), id="any"),
        pytest.param({"approx": 12.5}, Approx(12.5), id="approx"),
        pytest.param({"approx": 3, "within": 1}, Approx(3, within=1), id="within"),
        pytest.param({"approx": 3, "within": 0, "relative": 0.1}, Approx(3, 0, 0.1), id="relative"),
        pytest.param({"contains": "x"}, Contains("x"), id="contains a text"),
        pytest.param({"contains": ["x", {"any": True}]}, Contains(["x", Anything()]), id="contains items"),
        pytest.param({"contains": {"k": {"regex": "x"}}}, Contains({"k": Regex("x")}), id="contains entries"),
        pytest.param({"contains": {"regex": "x"}}, Contains(Regex("x")), id="contains what matches"),
        pytest.param({"equal": {"regex": "("}}, Equal({"regex": "("}), id="equal to what looks like a matcher"),
        pytest.param({"folded": ""}, Folded(""), id="folded"),
        pytest.param({"one_of": [1, {"approx": 2.5}]}, OneOf((1, Approx(2.5))), id="one_of"),
        pytest.param({"regex": r"\d+"}, Regex(r"\d+"), id="regex"),
        pytest.param({"similar": "x"}, Similar("x"), id="similar"),
        pytest.param({"similar": "x", "threshold": 1}, Similar("x", 1), id="how similar"),
        pytest.param({"type": "integer"}, OfType("integer"), id="type"),
        pytest.param({"unordered": [[{"any": True}], 1]}, Unordered(([Anything()], 1)), id="unordered"),
        pytest.param({"unordered": []}, Unordered(()), id="an empty list"),
    ],
)
def test_a_matcher_is_parsed_at_any_depth(written: dict[str, Any], meant: Matcher) -> None:
    assert parse_matchers({"x": written}, "here", "arguments") == {"x": meant}
    assert parse_matchers({"x": [1, {"y": written}]}, "here", "arguments") == {"x": [1, {"y": meant}]}
    assert parse_matchers(written, "here", "result") == meant


def test_every_matcher_has_a_written_form() -> None:
    assert {type(parse_matchers(one, "here", "result")) for one in WRITTEN} == set(MATCHERS)


WRITTEN: list[dict[str, Any]] = [
    {"any": True}, {"approx": 1}, {"contains": 1}, {"equal": 1}, {"folded": "a"}, {"one_of": [1]}, {"regex": "a"},
    {"similar": "a"}, {"type": "null"}, {"unordered": [1]},
]  # fmt: skip


@pytest.mark.parametrize(
    "data",
    [
        pytest.param({"any": 1}, id="any of one"),
        pytest.param({"any": "x"}, id="any of something"),
        pytest.param({"type": "hotel"}, id="a type of its own"),
        pytest.param({"type": ["string"]}, id="types"),
        pytest.param({"regex": 5}, id="a regex that is a number"),
        pytest.param({"regex": "a", "flags": "i"}, id="a regex with a key of somebody's own"),
        pytest.param({"regex": "a", "within": 1}, id="a regex with another matcher's option"),
        pytest.param({"regex": "a", "type": "string"}, id="two words"),
        pytest.param({"approx": "soon"}, id="approx in words"),
        pytest.param({"approx": True}, id="approx true"),
        pytest.param({"one_of": "abc"}, id="one_of a text"),
        pytest.param({"within": 1}, id="an option alone"),
        pytest.param({"approx": 1, "within": 1, "relative": 1, "unit": "EUR"}, id="too many keys"),
        pytest.param({}, id="nothing"),
        pytest.param([], id="an empty list"),
    ],
)
def test_plain_data_is_returned_as_the_same_object(data: Any) -> None:
    arguments = {"x": data, "y": [data, ({"z": data},)]}
    assert parse_matchers(arguments, "here", "arguments") is arguments
    assert parse_matchers(data, "here", "result") is data


@pytest.mark.parametrize("written", WRITTEN, ids=lambda written: next(iter(written)))
def test_the_arguments_mapping_itself_is_never_a_matcher(written: dict[str, Any]) -> None:
    assert parse_matchers(written, "here", "arguments") is written


def test_parts_without_a_matcher_are_not_copied() -> None:
    plain = {"deep": [1, 2]}
    arguments = {"plain": plain, "list": [plain, {"any": True}]}
    read_ = parse_matchers(arguments, "here", "arguments")
    assert read_ == {"plain": plain, "list": [plain, Anything()]}
    assert read_["plain"] is plain
    assert read_["list"][0] is plain
    assert arguments["list"] == [plain, {"any": True}]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param({"x": {"approx": 1, "withn": 2}}, ", arguments.x: unknown key 'withn'. Did you mean 'within'?",
                     id="slip in an option"),
        pytest.param({"x": {"similar": "a", "treshold": 1}},
                     ", arguments.x: unknown key 'treshold'. Did you mean 'threshold'?", id="another slip"),
        pytest.param({"x": {"approx": "1", "within": 2}}, ", arguments.x: approx must be a number, not '1'.",
                     id="a text that is to be near"),
        pytest.param({"x": {"approx": math.nan}}, ", arguments.x: approx must be a finite number, not nan.", id="nan"),
        pytest.param({"x": {"approx": math.inf}}, ", arguments.x: approx must be a finite number, not inf.", id="inf"),
        pytest.param({"x": {"approx": 1, "within": math.nan}},
                     ", arguments.x: within must be a finite number, not nan.", id="within nan"),
        pytest.param({"x": {"approx": 1, "relative": -0.1}}, ", arguments.x: relative must be 0 or more, not -0.1.",
                     id="less than nothing"),
        pytest.param({"x": {"similar": "a", "threshold": 90}},
                     ", arguments.x: threshold must be a number from 0 to 1, not 90.", id="a share in percent"),
        pytest.param({"x": {"one_of": []}}, ", arguments.x: one_of must not be empty.", id="one of nothing"),
        pytest.param({"x": [1, {"y": {"regex": "(?=a)"}}]}, ", arguments.x[1].y: regex '(?=a)' cannot be used: "
                     "look-around, including look-ahead and look-behind, is not supported.", id="look-around"),
        pytest.param({"x": {"regex": "a)|(b"}}, ", arguments.x: regex 'a)|(b' cannot be used: unopened group.",
                     id="a pattern that is none until something stands around it"),
        pytest.param({"x": {"regex": "a" * (MAX_REGEX_LENGTH + 1)}},
                     f", arguments.x: regex '{'a' * 27}...{'a' * 28}' is longer than 10,000 characters.", id="long"),
        pytest.param({"x": {"equal": {1: 2}}}, ": the key 1 in the arguments must be text.", id="a number for a key"),
        pytest.param({"x": Regex("(")}, ", arguments.x: regex '(' cannot be used: unclosed group.", id="from Python"),
        pytest.param({"a": {"regex": "("}, "b": {"regex": ")"}},
                     ", arguments.a: regex '(' cannot be used: unclosed group.", id="the first of two"),
    ],
)  # fmt: skip
def test_an_invalid_matcher_is_refused_with_its_place_and_the_reason(arguments: dict[Any, Any], sentence: str) -> None:
    with pytest.raises(GoldenError) as caught:
        parse_matchers(arguments, "here", "arguments")
    assert str(caught.value) == f"here{sentence}"


def test_values_that_contain_themselves_are_refused() -> None:
    endless: dict[str, Any] = {}
    endless["x"] = [endless, endless]
    with pytest.raises(GoldenError, match=f"here: the result is nested more than {MAX_VALUE_DEPTH} levels deep"):
        parse_matchers(endless, "here", "result")
    with pytest.raises(GoldenError, match=f"here: the defaults are nested more than {MAX_VALUE_DEPTH} levels deep"):
        check_plain_data(endless, "here", "defaults")


def test_shared_values_that_expand_to_too_many_containers_are_refused() -> None:
    bomb: Any = "x"
    for _ in range(12):
        bomb = [bomb] * 10
    with pytest.raises(
        GoldenError, match=f"here: more than {MAX_CONTAINERS:,} lists and mappings are in the arguments"
    ):
        parse_matchers({"x": bomb}, "here", "arguments")


def test_a_value_shared_by_several_places_is_parsed_in_each() -> None:
    shared = {"any": True}
    arguments = {"a": {"y": shared}, "b": [{"equal": [shared]}], "c": [shared], "d": {"equal": shared}}
    assert parse_matchers(arguments, "here", "arguments") == {
        "a": {"y": Anything()},
        "b": [Equal([{"any": True}])],
        "c": [Anything()],
        "d": Equal({"any": True}),
    }


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
written = st.recursive(
    scalars
    | st.just({"any": True})
    | st.sampled_from(JSON_TYPES).map(lambda kind: {"type": kind})
    | st.text(alphabet="ab.*", max_size=3)
    .filter(lambda text: not text.startswith("*"))
    .map(lambda text: {"folded": text}),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "contains", "within"]), inner, max_size=3)
        | inner.map(lambda part: {"contains": part})
        | inner.map(lambda part: {"equal": part})
        | st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"one_of": parts})
        | st.lists(inner, max_size=3).map(lambda parts: {"unordered": parts})
    ),
    max_leaves=12,
)


def by_recursion(value: Any) -> Any:
    """The recursive oracle of `parse_matchers`."""
    if isinstance(value, list):
        return [by_recursion(part) for part in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"equal"}:
        return Equal(value["equal"])
    if value == {"any": True} and value["any"] is True:
        return Anything()
    if value.keys() == {"type"} and value["type"] in JSON_TYPES:
        return OfType(value["type"])
    if value.keys() == {"folded"} and isinstance(value["folded"], str):
        return Folded(value["folded"])
    if value.keys() == {"contains"}:
        return Contains(by_recursion(value["contains"]))
    for word, made in (("one_of", OneOf), ("unordered", Unordered)):
        if value.keys() == {word} and isinstance(value[word], list):
            return made(tuple(map(by_recursion, value[word])))
    return {key: by_recursion(part) for key, part in value.items()}


@given(written)
def test_the_iterative_parser_equals_the_recursive_oracle(value: Any) -> None:
    assert parse_matchers(value, "here", "result") == by_recursion(value)
