"""Serialization of captured values: JSON if possible, bounded, without exceptions."""

from __future__ import annotations

import dataclasses
import datetime
import json
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from goldspan.capture.span_attributes import MAX_ITEMS, MAX_TEXT, StreamedItems, bounded_repr, to_json


class Hotel(BaseModel):
    name: str
    stars: int = 3


@dataclasses.dataclass
class Room:
    beds: int


class Mute:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Odd:
    def __repr__(self) -> str:
        return "an odd thing"


class Broken(BaseModel):
    """A model that cannot be dumped."""

    value: Any = None

    def __repr__(self) -> str:
        return "Broken()"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param({"a": [1, 2.5, None, True]}, '{"a":[1,2.5,null,true]}', id="plain"),
        pytest.param("é", '"é"', id="text"),
        pytest.param((1, 2), "[1,2]", id="tuple"),
        pytest.param({3}, "[3]", id="set"),
        pytest.param(b"ab", '"ab"', id="bytes that are text"),
        pytest.param(Hotel(name="Ritz"), '{"name":"Ritz","stars":3}', id="pydantic model"),
        pytest.param(Room(beds=2), '{"beds":2}', id="dataclass"),
        pytest.param(datetime.date(2026, 5, 1), '"2026-05-01"', id="date"),
        pytest.param(uuid.UUID(int=0), '"00000000-0000-0000-0000-000000000000"', id="uuid"),
        pytest.param(float("nan"), '"NaN"', id="not a number"),
        pytest.param({1: "a"}, '{"1":"a"}', id="keys that are numbers"),
        pytest.param({"x": Odd()}, '{"x":"an odd thing"}', id="anything else: its repr"),
        pytest.param([Mute()], '["<Mute, whose repr fails>"]', id="a repr that raises"),
    ],
)
def test_values_are_serialized_to_natural_json(value: object, text: str) -> None:
    assert to_json(value) == text


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        pytest.param(b"\xff\x00", "\\xff\x00", id="bytes that are no text"),
        pytest.param("half \ud800", "half \ud800", id="half a surrogate pair"),
        pytest.param({"deep": ["half \ud800", float("inf"), 1]}, {"deep": ["half \ud800", "inf", 1]}, id="inside"),
        pytest.param({(1, "\ud800"): {Odd(): 1}}, {"(1, '\\ud800')": {"an odd thing": 1}}, id="odd keys"),
    ],
)
def test_values_that_the_json_encoder_rejects_are_serialized(value: object, plain: object) -> None:
    assert json.loads(to_json(value)) == plain


def _circle() -> list[Any]:
    circle: list[Any] = [1]
    circle.append(circle)
    return circle


def _deep() -> list[Any]:
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    return deep


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("x" * (MAX_TEXT + 1), id="text"),
        pytest.param("é" * MAX_TEXT + "\ud800", id="odd text"),
        pytest.param(b"x" * (MAX_TEXT + 1), id="bytes"),
        pytest.param(list(range(MAX_ITEMS + 1)), id="list"),
        pytest.param([[0] * 100] * 100, id="list of lists"),
        pytest.param({"a": {"b": "x" * (MAX_TEXT + 1)}}, id="text inside"),
        pytest.param({str(number): "x" * 100 for number in range(1000)}, id="many texts"),
        pytest.param([Room(beds=10**300)] * 500, id="objects that are larger than they look"),
        pytest.param(_circle(), id="circle"),
        pytest.param(_deep(), id="depth"),
    ],
)
def test_an_oversized_value_is_truncated_to_text_that_is_not_valid_json(value: object) -> None:
    text = to_json(value)
    assert len(text) <= MAX_TEXT + 1
    assert text.endswith("…")
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)


def test_a_value_that_changes_during_serialization_falls_back_to_its_repr() -> None:
    class Trap(dict):  # type: ignore[type-arg]
        def items(self) -> Any:
            raise RuntimeError("changed")

    assert to_json(Trap({b"\xff": 1})) == bounded_repr(Trap({b"\xff": 1}))


def test_a_long_repr_is_truncated() -> None:
    assert len(bounded_repr(list(range(10_000)))) == 1_001


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_plain_values_survive_a_json_round_trip(value: object) -> None:
    assert json.loads(to_json(value)) == value


@given(st.lists(values, max_size=5))
def test_streamed_items_are_serialized_as_a_list(items: list[Any]) -> None:
    pieces = StreamedItems()
    for item in items:
        pieces.add(item)
    assert json.loads(pieces.json()) == items
    assert pieces.text() == (
        "".join(items) if items and all(isinstance(item, str) for item in items) else pieces.json()
    )


def test_a_streamed_item_is_recorded_as_it_was_when_it_was_added() -> None:
    pieces, item = StreamedItems(), {"n": 1}
    pieces.add(item)
    item["n"] = 2
    pieces.add(item)
    assert pieces.json() == '[{"n":1},{"n":2}]'


def test_a_long_stream_is_truncated() -> None:
    pieces = StreamedItems()
    for _ in range(MAX_TEXT):
        pieces.add("word ")
    assert len(pieces.json()) <= MAX_TEXT + 1
    assert pieces.json().endswith("…")
    assert pieces.text().endswith("word …")
