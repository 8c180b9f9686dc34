"""Attributes that are decoded on access behave like any other mapping."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.otlp import protobuf_attributes
from goldspan.otlp.otlp_protobuf import decode_traces
from goldspan.otlp.protobuf_attributes import LazyAttributes, attribute_names, decode_value
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


@given(st.binary(max_size=6), st.sampled_from([b"", b"\x0a", b"\x0a\x03", b"\x0a\x05", b"\x18"]))
def test_values_that_are_read_together_equal_values_that_are_decoded_one_by_one(noise, start):
    raw = {"noise": start + noise, "text": b"\x0a\x04text", "empty": b""}
    expected = {key: decode_value(value) for key, value in raw.items()}
    assert LazyAttributes(raw).read(raw) == expected
    assert LazyAttributes(raw).read(["noise"])["noise"] == expected["noise"]


_names = st.sets(st.sampled_from("abcdef"), max_size=4) | st.sets(st.integers(0, 80).map(str), min_size=60, max_size=70)


@given(st.lists(st.tuples(st.sampled_from(["work", "rest"]), _names), max_size=8))
def test_attribute_names_equal_the_keys_whatever_spans_of_that_name_had_before(spans):
    for span_name, keys in spans:
        raw = dict.fromkeys(keys, b"")
        names = attribute_names(span_name, raw)
        assert names == frozenset(raw)
        assert attribute_names(span_name, raw) is attribute_names("other", raw) is LazyAttributes(raw).names


def test_only_a_bounded_number_of_span_names_and_attribute_names_is_kept():
    for number in range(protobuf_attributes._MAX_NAME_SETS + 1):
        assert attribute_names(f"span {number}", {f"key {number}": b""}) == {f"key {number}"}
    assert len(protobuf_attributes._expected_names) <= protobuf_attributes._MAX_NAME_SETS
