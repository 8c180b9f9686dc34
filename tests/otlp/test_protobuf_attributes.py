"""Attributes that are decoded on access behave like any other mapping."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.otlp.otlp_protobuf import decode_traces
from goldspan.otlp.protobuf_attributes import LazyAttributes, decode_value
from otlp.payloads import add, any_value, request, spans_of

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=3), inside, max_size=3),
    max_leaves=8,
)


def received(attributes: dict[str, Any]) -> Mapping[str, Any]:
    made = request("work")
    add(spans_of(made)[0], attributes)
    return decode_traces(made.SerializeToString()).spans[0].attributes


@given(st.dictionaries(st.text(max_size=8), values, max_size=6), st.text(max_size=8))
def test_lazy_attributes_equal_the_encoded_dictionary(sent, key):
    attributes = received(sent)
    assert isinstance(attributes, LazyAttributes)
    assert attributes == sent
    assert sent == attributes
    assert dict(attributes) == {**attributes} == sent
    assert set(attributes) == set(sent)
    assert len(attributes) == len(sent)
    assert attributes.get(key, "default") == sent.get(key, "default")
    assert (key in attributes) == (key in sent)


def test_a_lookup_of_a_missing_key_changes_nothing():
    attributes = received({"key": 1})
    assert attributes.get("other") is None
    with pytest.raises(KeyError, match="other"):
        attributes["other"]
    assert attributes == {"key": 1}


def test_lazy_attributes_are_iterated_and_serialized_in_key_order():
    attributes = received({"b": [2], "c": None, "a": "text"})
    assert list(attributes.keys()) == ["a", "b", "c"]
    assert list(attributes.values()) == ["text", [2], None]
    assert json.dumps(dict(attributes)) == '{"a": "text", "b": [2], "c": null}'
    assert repr(attributes) == "{'a': 'text', 'b': [2], 'c': None}"


def test_a_structured_value_is_decoded_once():
    attributes = received({"key": {"a": 1}})
    assert attributes["key"] is attributes["key"]


@pytest.mark.parametrize("length", [0, 1, 127, 128, 129, 130, 255, 256, 16_383, 16_384, 70_000])
def test_text_of_any_length_is_decoded(length):
    text = "é" + "x" * length
    assert decode_value(any_value(text).SerializeToString()) == text


@pytest.mark.parametrize("length", [1, 126, 127, 128, 300])
def test_only_the_invalid_bytes_of_text_that_is_not_utf_8_are_replaced(length):
    raw = any_value("?" + "x" * length).SerializeToString().replace(b"?", b"\xff")
    assert decode_value(raw) == "\ufffd" + "x" * length


@given(st.binary(max_size=200))
def test_decode_value_accepts_arbitrary_bytes_without_an_error(noise):
    for raw in (noise, b"\x0a" + noise, b"\x2a" + noise):
        decode_value(raw)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x0a", id="a tag"),
        pytest.param(b"\x0a\x05text", id="text that was cut off"),
        pytest.param(b"\x0a\x82\x01" + b"x" * 129, id="long text that was cut off"),
        pytest.param(b"\x2a\x03\x0a\x01", id="a list that was cut off"),
        pytest.param(any_value(["?"]).SerializeToString().replace(b"?", b"\xff"), id="a list with damaged text"),
    ],
)
def test_a_value_that_cannot_be_decoded_is_none(raw):
    assert decode_value(raw) is None
