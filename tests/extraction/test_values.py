"""Arguments, results and texts in the notations people's tracers use."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.extraction import values
from goldspan.model import ABSENT


def _nested(depth: int) -> list[object]:
    value: list[object] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def _pairs(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [{}, value]
    return value


CITY = {"city": "Cairo", "nested": {"x": [1, 2.5, None, True]}}


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(json.dumps(CITY), id="JSON"),
        pytest.param(json.dumps(json.dumps(CITY)), id="JSON in JSON"),
        pytest.param(repr(CITY), id="Python repr"),
        pytest.param(CITY, id="structured attribute"),
        pytest.param(json.dumps(CITY).encode(), id="bytes"),
        pytest.param(json.dumps({"args": [], "kwargs": CITY}), id="decorator's envelope"),
        pytest.param(json.dumps({"args": [CITY], "kwargs": {}}), id="one dictionary as the only positional argument"),
    ],
)
def test_arguments_are_read_whatever_their_notation(written: object) -> None:
    assert values.arguments(written) == (CITY, None)


@pytest.mark.parametrize(
    ("written", "read", "raw"),
    [
        pytest.param(ABSENT, None, None, id="not captured"),
        pytest.param("", {}, None, id="empty text means no arguments"),
        pytest.param('{"city": "Par', None, '{"city": "Par', id="cut off"),
        pytest.param('{"city": oops}', None, '{"city": oops}', id="no known notation"),
        pytest.param("[1, 2]", [1, 2], None, id="positional"),
        pytest.param("42", 42, None, id="a single number"),
        pytest.param('{"args": [1, 2], "kwargs": {}}', [1, 2], None, id="positional in an envelope"),
        pytest.param('{"args": [1], "kwargs": {"b": 2}}', {"b": 2, "args": [1]}, None, id="mixed"),
        pytest.param('{"kwargs": 1, "city": "x"}', {"kwargs": 1, "city": "x"}, None, id="a tool's own key kwargs"),
        pytest.param('{"id": 12345678901234567890123}', {"id": 12345678901234567890123}, None, id="a big integer"),
        pytest.param("[" * 100_000, None, "[" * 100_000, id="a bomb of brackets"),
        pytest.param("[" * 900 + "]" * 900, None, "[" * 900 + "]" * 900, id="a value nested too deeply to handle"),
        pytest.param("[" * 150 + "]" * 150, _nested(150), None, id="a value nested deeply"),
        pytest.param("[{}, " * 150 + "1" + "]" * 150, _pairs(150), None, id="many brackets, not so deep"),
        pytest.param("[" + "1+" * 300_000 + "1]", None, "[" + "1+" * 300_000 + "1]", id="a chain that kills a parser"),
        pytest.param("[1 " + "-1 " * 300_000 + "]", None, "[1 " + "-1 " * 300_000 + "]", id="a chain of signs"),
        pytest.param("{'f': print(1)}", None, "{'f': print(1)}", id="a call is no literal"),
        pytest.param("{'e': -1.5e-07, 'b': b'x', 's': {1}}", {"e": -1.5e-07, "b": b"x", "s": {1}}, None, id="literals"),
        pytest.param("['it\\'s', \"a (b) [c] + d\"]", ["it's", "a (b) [c] + d"], None, id="signs inside text"),
        pytest.param("(" * 100_000, None, "(" * 100_000, id="a bomb of parentheses"),
    ],
)
def test_arguments_that_are_unusual(written: object, read: object, raw: str | None) -> None:
    assert values.arguments(written) == (read, raw)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("Plan my trip", "Plan my trip"),
        ('"Quoted"', "Quoted"),
        ('{"args": ["Plan my trip"], "kwargs": {}}', "Plan my trip"),
        ('{"messages": ["Plan my trip"]}', "Plan my trip"),
        ('{"task": "Plan my trip"}', "Plan my trip"),
        ('{"anything": "Plan my trip"}', "Plan my trip"),
        ('{"a": 1, "b": 2}', '{"a": 1, "b": 2}'),
        ("", None),
        (None, None),
        ("[]", None),
    ],
)
def test_the_words_of_a_request_are_found_in_what_holds_them(written: object, words: str | None) -> None:
    assert values.text(written) == words


plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), plain_values, max_size=4))
def test_any_dictionary_of_arguments_survives_json_and_repr(arguments: dict[str, object]) -> None:
    if "kwargs" in arguments:
        return
    assert values.plain(json.dumps(arguments)) == arguments
    assert values.plain(repr(arguments)) == arguments


@given(st.text() | st.binary() | plain_values)
def test_nothing_that_an_attribute_can_hold_is_an_error(value: object) -> None:
    values.arguments(value)
    values.text(value)
    values.complaint(value)
