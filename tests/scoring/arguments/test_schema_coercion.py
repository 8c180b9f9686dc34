"""Values are read as the tool's JSON schema says, where it says one thing only, and no schema does any harm."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.model import ABSENT
from goldspan.scoring.arguments.schema_coercion import SchemaShape, schema_shape

INTEGER, NUMBER, TEXT, NULL = {"type": "integer"}, {"type": "number"}, {"type": "string"}, {"type": "null"}
FLAG, LIST, ENTRIES = {"type": "boolean"}, {"type": "array"}, {"type": "object"}


def folded(schema: Any, value: Any) -> Any:
    shape = schema_shape({"type": "object", "properties": {"it": schema}})
    assert shape is not None
    inner = shape.property("it")
    return value if inner is None else inner.coerce(value)


@pytest.mark.parametrize(
    ("schema", "value", "read"),
    [
        pytest.param(INTEGER, "5", 5, id="an integer as text"),
        pytest.param(INTEGER, "-5", -5, id="less than 0"),
        pytest.param(INTEGER, "+5", 5, id="with a sign"),
        pytest.param(INTEGER, "020", 20, id="with a leading zero"),
        pytest.param(INTEGER, "5.0", 5, id="an integer with a fraction of 0"),
        pytest.param(INTEGER, "5.5", "5.5", id="no integer"),
        pytest.param(INTEGER, "five", "five", id="a word"),
        pytest.param(INTEGER, " 5", " 5", id="not only a number"),
        pytest.param(INTEGER, "٥", "٥", id="digits that JSON does not know"),
        pytest.param(INTEGER, "1_000", "1_000", id="digits as Python alone writes them"),
        pytest.param(INTEGER, "", "", id="no text"),
        pytest.param(INTEGER, 5.5, 5.5, id="a number that is none"),
        pytest.param(INTEGER, True, True, id="truth is no integer"),
        pytest.param(INTEGER, None, None, id="nothing"),
        pytest.param(INTEGER, ["5"], ["5"], id="a list"),
        pytest.param(INTEGER, "9" * 400, int("9" * 400), id="a huge integer"),
        pytest.param(INTEGER, "9" * 401, "9" * 401, id="more digits than anybody wants"),
        pytest.param(INTEGER, "9" * 10_000_000, "9" * 10_000_000, id="10 MB of digits"),
        pytest.param(NUMBER, "12.5", 12.5, id="a number as text"),
        pytest.param(NUMBER, "1e3", 1000.0, id="with an exponent"),
        pytest.param(NUMBER, "1e999", "1e999", id="beyond all numbers"),
        pytest.param(NUMBER, "NaN", "NaN", id="not a number"),
        pytest.param(FLAG, "true", True, id="true as text"),
        pytest.param(FLAG, "False", False, id="false as Python writes it"),
        pytest.param(FLAG, "yes", "yes", id="yes is not true"),
        pytest.param(FLAG, 1, 1, id="1 is not true"),
        pytest.param(TEXT, "020", "020", id="text stays text"),
        pytest.param(TEXT, 20, "20", id="an integer for a text"),
        pytest.param(TEXT, 12.5, "12.5", id="a fraction for a text"),
        pytest.param(TEXT, math.inf, math.inf, id="infinity for a text"),
        pytest.param(TEXT, True, True, id="truth for a text"),
        pytest.param(TEXT, 10**5000, 10**5000, id="a huge integer for a text"),
        pytest.param(LIST, "[1, 2]", [1, 2], id="a list as text"),
        pytest.param(LIST, '{"a": 1}', '{"a": 1}', id="a dictionary for a list"),
        pytest.param(LIST, "one, two", "one, two", id="words for a list"),
        pytest.param(LIST, "", "", id="no text for a list"),
        pytest.param(LIST, "[" * 100_000, "[" * 100_000, id="an endless list"),
        pytest.param(ENTRIES, '{"a": 1}', {"a": 1}, id="a dictionary as text"),
        pytest.param(ENTRIES, "[1]", "[1]", id="a list for a dictionary"),
        pytest.param(NULL, "null", "null", id="null as text"),
    ],
)
def test_how_a_value_is_read(schema: Any, value: Any, read: Any) -> None:
    assert folded(schema, value) == read
    assert type(folded(schema, value)) is type(read) or read == 5


@pytest.mark.parametrize(
    ("schema", "read"),
    [
        pytest.param({"type": ["integer", "null"]}, 5, id="or null"),
        pytest.param({"type": ["integer", "number"]}, 5, id="two kinds of numbers"),
        pytest.param({"type": ["string", "integer"]}, "5", id="text or integer"),
        pytest.param({"type": ["integer", "whatever"]}, "5", id="a type that nobody knows"),
        pytest.param({"type": "int"}, "5", id="another type that nobody knows"),
        pytest.param({"type": 7}, "5", id="a type that is none"),
        pytest.param({"type": [["integer"]]}, "5", id="types that are none"),
        pytest.param({"type": "integer", "nullable": True}, 5, id="nullable"),
        pytest.param({"anyOf": [INTEGER, NULL]}, 5, id="any of: or null"),
        pytest.param({"oneOf": [NULL, INTEGER]}, 5, id="one of: or null"),
        pytest.param({"anyOf": [INTEGER, NUMBER]}, 5, id="any of: two kinds of numbers"),
        pytest.param({"anyOf": [INTEGER, TEXT]}, "5", id="any of: text or integer"),
        pytest.param({"anyOf": [INTEGER, {}]}, "5", id="any of: or anything"),
        pytest.param({"anyOf": [INTEGER, True]}, "5", id="any of: or whatever"),
        pytest.param({"anyOf": []}, "5", id="any of: nothing"),
        pytest.param({"anyOf": "nonsense"}, "5", id="any of: nonsense"),
        pytest.param({"allOf": [INTEGER]}, 5, id="all of"),
        pytest.param(
            {"allOf": [{"type": ["integer", "string"]}, {"type": ["integer", "null"]}]}, 5, id="all of: what is left"
        ),
        pytest.param({"allOf": [NUMBER, INTEGER]}, 5, id="all of: an integer is a number"),
        pytest.param({"allOf": [INTEGER, TEXT]}, "5", id="all of: a contradiction"),
        pytest.param({"enum": [1, 5]}, 5, id="one of some integers"),
        pytest.param({"enum": ["1", "5"]}, "5", id="one of some texts"),
        pytest.param({"enum": ["5", 5]}, "5", id="one of integers and texts"),
        pytest.param({"enum": [5, None]}, 5, id="one of some integers, or null"),
        pytest.param({"enum": [5, object()]}, "5", id="one of what JSON does not know"),
        pytest.param({"enum": []}, "5", id="one of nothing"),
        pytest.param({"const": 5}, 5, id="a constant"),
        pytest.param({"const": None}, "5", id="nothing but null"),
        pytest.param({"$ref": "#/$defs/count"}, 5, id="a reference"),
        pytest.param(
            {"$ref": "#/definitions/a~1b~0c/anyOf/1"}, 5, id="a reference with special characters and an index"
        ),
        pytest.param({"$ref": "#/$defs/circle"}, "5", id="a circle"),
        pytest.param({"anyOf": [{"$ref": "#/$defs/circle"}, INTEGER]}, "5", id="a circle or an integer"),
        pytest.param({"allOf": [{"$ref": "#/$defs/circle"}, INTEGER]}, 5, id="a circle and an integer"),
        pytest.param({"$ref": "#/$defs/nobody"}, "5", id="a reference to nothing"),
        pytest.param({"$ref": "#/$defs/list/7"}, "5", id="a reference to no item"),
        pytest.param({"$ref": "#/$defs/list/x"}, "5", id="a reference to no index"),
        pytest.param({"$ref": "https://example.com/schema"}, "5", id="a reference to elsewhere"),
        pytest.param({"$ref": 5}, "5", id="a reference that is none"),
        pytest.param({"$ref": "#" + "/a" * 100_000}, "5", id="a long way"),
        pytest.param({"$ref": "#/$defs/count", "default": 1}, 5, id="a reference with something beside it"),
        pytest.param({}, "5", id="anything"),
        pytest.param(True, "5", id="whatever"),
        pytest.param(False, "5", id="nothing at all"),
        pytest.param(None, "5", id="no schema"),
        pytest.param("integer", "5", id="a word"),
    ],
)
def test_a_text_is_a_number_only_where_the_schema_leaves_nothing_else(schema: Any, read: Any) -> None:
    document = {
        "type": "object",
        "properties": {"it": schema},
        "$defs": {"count": INTEGER, "circle": {"$ref": "#/$defs/circle"}, "list": [INTEGER]},
        "definitions": {"a/b~c": {"anyOf": [TEXT, INTEGER]}},
    }
    inner = part_of(schema_shape(document), "it")
    assert (inner.coerce("5") if inner else "5") == read


def part_of(shape: SchemaShape | None, *way: str | int) -> SchemaShape | None:
    for step in way:
        if shape is None:
            return None
        shape = shape.item(step) if isinstance(step, int) else shape.property(step)
    return shape


@pytest.mark.parametrize(
    ("schema", "way"),
    [
        pytest.param({"properties": {"a": INTEGER}}, ("a",), id="a property"),
        pytest.param({"a": INTEGER, "b": TEXT}, ("a",), id="a bare dictionary of properties"),
        pytest.param({"type": "object", "additionalProperties": INTEGER}, ("a",), id="any other property"),
        pytest.param({"properties": {"a": {"items": INTEGER}}}, ("a", 3), id="an item"),
        pytest.param({"properties": {"a": {"prefixItems": [TEXT, INTEGER]}}}, ("a", 1), id="one of the first items"),
        pytest.param(
            {"properties": {"a": {"prefixItems": [TEXT], "items": INTEGER}}}, ("a", 1), id="an item after the first"
        ),
        pytest.param(
            {"properties": {"a": {"items": [TEXT, INTEGER]}}}, ("a", 1), id="one of the first items, as it was"
        ),
        pytest.param({"properties": {"a": {"properties": {"b": INTEGER}}}}, ("a", "b"), id="a property of a property"),
        pytest.param(
            {"type": "object", "allOf": [{"properties": {"a": {}}}, {"properties": {"a": INTEGER}}]},
            ("a",),
            id="one that two describe",
        ),
        pytest.param(
            {"properties": {"a": {"anyOf": [TEXT, {**ENTRIES, "properties": {"b": INTEGER}}]}}},
            ("a", "b"),
            id="of the only dictionary among alternatives",
        ),
        pytest.param(
            {"properties": {"a": {"anyOf": [TEXT, {"type": "array", "items": INTEGER}, NULL]}}},
            ("a", 0),
            id="of the only list among alternatives",
        ),
        pytest.param(
            {"type": "object", "$ref": "#/$defs/x", "$defs": {"x": {"properties": {"a": INTEGER}}}},
            ("a",),
            id="behind a reference",
        ),
        pytest.param(
            {"properties": {"n": INTEGER, "next": {"$ref": "#"}}}, ("next", "next", "next", "n"), id="round in a circle"
        ),
        pytest.param(
            MappingProxyType({"properties": MappingProxyType({"a": MappingProxyType(INTEGER)})}),
            ("a",),
            id="another kind of mapping",
        ),
    ],
)
def test_values_are_coerced_as_their_schema_states(schema: Any, way: tuple[str | int, ...]) -> None:
    inner = part_of(schema_shape(schema), *way)
    assert inner is not None
    assert inner.coerce("5") == 5


@pytest.mark.parametrize(
    ("schema", "way"),
    [
        pytest.param({"properties": {"a": INTEGER}}, ("b",), id="another property"),
        pytest.param(
            {"properties": {"a": INTEGER}, "additionalProperties": False}, ("b",), id="a property that must not be"
        ),
        pytest.param({"properties": [INTEGER]}, ("a",), id="properties that are none"),
        pytest.param({"properties": {"a": {"items": [TEXT]}}}, ("a", 1), id="an item after the last"),
        pytest.param(
            {"properties": {"a": {"anyOf": [{**ENTRIES, "properties": {"b": INTEGER}}, ENTRIES]}}},
            ("a", "b"),
            id="one of two dictionaries",
        ),
        pytest.param({"properties": {"a": INTEGER}}, (0,), id="an item of a dictionary"),
    ],
)
def test_values_without_a_schema_are_not_coerced(schema: Any, way: tuple[str | int, ...]) -> None:
    inner = part_of(schema_shape(schema), *way)
    assert inner is None or inner.coerce("5") == "5"


@pytest.mark.parametrize("schema", [None, {}, [], "object", 5, True])
def test_an_invalid_schema_is_ignored(schema: Any) -> None:
    assert schema_shape(schema) is None


@pytest.mark.parametrize(
    ("schema", "default"),
    [
        pytest.param({"default": 10}, 10, id="its own"),
        pytest.param({"default": None}, None, id="null"),
        pytest.param({"allOf": [{"default": 10}]}, 10, id="of what holds with it"),
        pytest.param({"anyOf": [{"type": "integer", "default": 10}, NULL]}, 10, id="of the only alternative to null"),
        pytest.param({"anyOf": [{"type": "integer", "default": 10}, TEXT]}, ABSENT, id="of one alternative of two"),
        pytest.param({"type": "integer"}, ABSENT, id="none"),
    ],
)
def test_the_default_that_a_schema_declares(schema: Any, default: Any) -> None:
    inner = part_of(schema_shape({"properties": {"a": schema}}), "a")
    assert inner is not None
    assert inner.default == default


def test_a_schema_is_read_once() -> None:
    schema = {"properties": {"a": INTEGER}}
    first = schema_shape(schema)
    assert schema_shape(schema) is first
    assert part_of(first, "a") is part_of(first, "a")


def test_the_cache_keeps_the_latest_schemas_and_confuses_none() -> None:
    for number in range(200):
        inner = part_of(schema_shape({"properties": {"a": {"default": number}}}), "a")
        assert inner is not None
        assert inner.default == number


def thicket(names: int) -> dict[str, Any]:
    """Definitions that each refer to all, in every way there is."""
    everyone = [{"$ref": f"#/$defs/{name}"} for name in range(names)]
    one = {"anyOf": everyone, "allOf": everyone, "oneOf": everyone, "items": everyone[0], "default": 1}
    return {"properties": {"a": everyone[0], "b": one}, "$defs": {str(name): one for name in range(names)}, **one}


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = INTEGER
    for _ in range(levels):
        schema = {"anyOf": [schema, NULL]}
    return {"properties": {"a": schema}}


@pytest.mark.parametrize("schema", [thicket(300), deep(10_000), {"allOf": [{"properties": {}}] * 100_000}])
def test_schemas_without_end_do_no_harm(schema: dict[str, Any]) -> None:
    shape = schema_shape(schema)
    assert shape is not None
    for way in [("a",), ("b",), ("a", 0, 0, 0), ("b", "c")]:
        inner = part_of(shape, *way)
        assert inner is None or inner.coerce("x") == "x"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from(["5", "true", "[1]"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)
WORDS = ["type", "properties", "items", "anyOf", "oneOf", "allOf", "$ref", "enum", "default", "prefixItems", "nullable"]
SCHEMAS = st.recursive(
    st.sampled_from([INTEGER, NUMBER, TEXT, FLAG, LIST, ENTRIES, NULL, {}, True, {"$ref": "#"}, {"$ref": "#/items"}]),
    lambda inner: st.dictionaries(st.sampled_from(WORDS), inner | st.lists(inner, max_size=2), max_size=3),
    max_leaves=6,
)


@given(SCHEMAS, JSON)
def test_reading_twice_changes_nothing_more(schema: Any, value: Any) -> None:
    once = folded(schema, value)
    assert repr(folded(schema, once)) == repr(once)


@given(SCHEMAS | JSON, st.lists(st.integers(0, 2) | st.text(max_size=2), max_size=4))
def test_any_value_may_be_given_as_a_schema(schema: Any, way: list[str | int]) -> None:
    inner = part_of(schema_shape(schema), *way)
    assert inner is None or inner.coerce("word") == "word"
