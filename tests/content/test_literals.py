"""Values parsed from text: JSON, JSON in JSON, and the `repr` of Python values and objects."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.content.literals import ReprObject, parse_object, plain_value


@pytest.mark.parametrize(
    ("written", "denoted"),
    [
        pytest.param('{"a": [1, 2.5, null, true]}', {"a": [1, 2.5, None, True]}, id="JSON"),
        pytest.param(json.dumps(json.dumps({"a": 1})), {"a": 1}, id="JSON in JSON"),
        pytest.param('"Kyoto"', "Kyoto", id="a quoted text"),
        pytest.param('"42"', "42", id="a quoted number is a text"),
        pytest.param("42", 42, id="a number"),
        pytest.param(" true ", True, id="a constant with space around it"),
        pytest.param("{'a': (1, 2), 'b': {3}, 'c': b'\\xff', 'd': ()}", {"a": (1, 2), "b": {3}, "c": b"\xff", "d": ()}),
        pytest.param("{'e': -1.5e-07, 's': set(), 'i': inf}", {"e": -1.5e-07, "s": set(), "i": math.inf}),
        pytest.param("['it\\'s', \"a (b) [c] + d\"]", ["it's", "a (b) [c] + d"], id="signs inside text"),
        pytest.param("('a'\n 'b')", "ab", id="a long text as pprint breaks it"),
        pytest.param("['\\d', '\\u00e9', '\\x41', '\\101']", ["\\d", "é", "A", "A"], id="escapes, and what is none"),
        pytest.param("{'at': datetime.date(2027, 3, 12)}", {"at": "2027-03-12"}, id="a date"),
        pytest.param(
            "[datetime.datetime(2027, 3, 12, 8, 5, tzinfo=datetime.timezone.utc)]", ["2027-03-12T08:05:00+00:00"]
        ),
        pytest.param("[datetime.datetime(2027, 3, 12, 8, 5)]", ["2027-03-12T08:05:00"], id="a time without a zone"),
        pytest.param("{'unit': <Unit.CELSIUS: 'c'>, 'n': <N.ONE: 1>}", {"unit": "c", "n": 1}, id="members"),
        pytest.param("[UUID('ab'), PosixPath('/tmp'), Decimal('1.5')]", ["ab", "/tmp", 1.5], id="simple objects"),
        pytest.param("{'d': defaultdict(<class 'list'>, {'x': [1]})}", {"d": {"x": [1]}}, id="a kind of dictionary"),
        pytest.param("[<Context object at 0x7f13>]", ["<Context object at 0x7f13>"], id="an object that shows nothing"),
        pytest.param("[Hotel(name='Ritz', stars=5)]", [{"name": "Ritz", "stars": 5}], id="an object with fields"),
        pytest.param("[Point(1, 2, label='a')]", [{"label": "a", "args": [1, 2]}], id="unnamed fields"),
    ],
)
def test_text_in_a_known_notation_is_parsed_to_its_value(written: str, denoted: object) -> None:
    assert plain_value(written) == denoted
    assert type(plain_value(written)) is type(denoted)


@pytest.mark.parametrize(
    "written",
    [
        "Plan my trip (to Lisbon)",
        "(see above)",
        "[Note] buy milk",
        "[1 2]",
        "[1,,2]",
        "[,]",
        "{'a':}",
        "{'a': 1, 2}",
        "{1, 2: 3}",
        "{[]: 1}",
        "[1+1]",
        "[007]",
        "[<b>bold</b>]",
        "[x]",
        "{'f': print(1)}",
        "[Foo(1)",
        "[Foo(a=)]",
        "[a=1]",
        "(1]",
        "['a' b'c']",
        "[b'€']",
        "[...]",
        "007",
        "2027-03-12",
        "-",
        "Truely",
        '{"city": "Par',
        "Hotel(name='Ritz')",
        "",
    ],
)
def test_text_that_only_resembles_a_value_stays_text(written: str) -> None:
    assert plain_value(written) == written


@pytest.mark.parametrize(
    "bomb",
    [
        pytest.param("[" * 100_000, id="brackets"),
        pytest.param("(" * 100_000, id="parentheses"),
        pytest.param("[" * 900 + "]" * 900, id="nested too deeply to handle"),
        pytest.param("[" + "F(a=" * 500 + "1" + ")" * 500 + "]", id="objects nested too deeply"),
        pytest.param("[" + "1+" * 300_000 + "1]", id="a chain that kills a parser"),
        pytest.param("[1 " + "-1 " * 300_000 + "]", id="a chain of signs"),
        pytest.param("[" + "<" * 300_000, id="angle brackets"),
        pytest.param("['" + "\\'" * 300_000, id="a text that never ends"),
        pytest.param("[" + "9" * 5_000 + ", 'a']", id="a number of more digits than Python reads"),
        pytest.param("['" + "a" * 1_100_000 + "']", id="longer than anybody wants to see"),
    ],
)
def test_text_that_would_exhaust_a_parser_stays_text(bomb: str) -> None:
    assert plain_value(bomb) == bomb
    assert parse_object(bomb, is_truncated=True) is None


def test_a_parsed_object_keeps_its_type_name() -> None:
    call = parse_object("ResponseFunctionToolCall(arguments='{}', call_id='c1', name='f', status=None)")
    assert isinstance(call, ReprObject)
    assert call.type_name == "ResponseFunctionToolCall"
    assert call == {"arguments": "{}", "call_id": "c1", "name": "f", "status": None}


def test_the_module_of_a_type_name_is_removed() -> None:
    shown = parse_object("app.models.Hotel(name='Ritz')")
    assert shown is not None
    assert shown.type_name == "Hotel"


def test_two_or_more_fields_without_a_type_name_are_an_object() -> None:
    shown = parse_object("id='1' source='user' created_at=datetime.date(2027, 3, 12) content='Hi' models_usage=None")
    assert shown == {"id": "1", "source": "user", "created_at": "2027-03-12", "content": "Hi", "models_usage": None}
    assert parse_object("x=1") is None


@pytest.mark.parametrize(
    ("cut", "complete"),
    [
        ("StopEvent(result=Reply(text='Booked.'), usage=Usa...", {"result": {"text": "Booked."}}),
        ("Booking(hotel='Ritz', nights=12", {"hotel": "Ritz"}),
        ("Reply(role=<Role.USER: 'user'>, text='Boo...", {"role": "user"}),
        ("Reply(role='user', text=...", {"role": "user"}),
        ("Reply(role='user', parts=['a', 'b", {"role": "user", "parts": ["a"]}),
    ],
)
def test_a_truncated_object_yields_its_complete_fields(cut: str, complete: object) -> None:
    assert parse_object(cut, is_truncated=True) == complete
    assert parse_object(cut) is None


@pytest.mark.parametrize(
    "words", ["Reply(role='user' and more", "Call me (maybe)", "print(x=1)", "a == b", "What (is, this"]
)
def test_prose_is_not_an_object_even_if_truncation_is_allowed(words: str) -> None:
    assert parse_object(words, is_truncated=True) is None


hashable = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
literals = st.recursive(
    hashable,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(hashable, inner, max_size=3)
        | st.sets(st.integers() | st.text(), max_size=2)
    ),
    max_leaves=6,
)


@given(st.lists(literals, max_size=2) | st.dictionaries(st.text(), literals, max_size=2))
def test_every_list_and_dictionary_survives_repr(value: object) -> None:
    assert plain_value(repr(value)) == value


pieces = st.sampled_from(
    [*"[](){},:.'\"\\<>= \n-+0", "Foo(", "a=", "b'", "None", "1.5", "x", "...", "<A.B: 'c'>", "<x at 0x1>", "datetime("]
)


@given(st.lists(pieces, max_size=25).map("".join))
def test_arbitrary_text_is_parsed_without_an_error(text: str) -> None:
    plain_value(text)
    parse_object(text)
    parse_object(text, is_truncated=True)
