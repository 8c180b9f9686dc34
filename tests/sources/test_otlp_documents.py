"""Tests of the OTLP/JSON that is written for the spans of a tool."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.sources.otlp_documents import any_value, hex_id, plain_value, request_document, to_proto_json

values = st.recursive(
    st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(values)
def test_a_value_is_the_same_after_it_was_written(value: Any) -> None:
    written = json.loads(json.dumps(any_value(value)))
    assert plain_value(written) == value


def test_an_integer_that_otlp_cannot_hold_is_a_number() -> None:
    assert any_value(2**63) == {"doubleValue": 2.0**63}


def test_no_value_is_an_empty_value() -> None:
    assert any_value(None) == {}
    assert plain_value({}) is None


@pytest.mark.parametrize(("value", "digits"), [("AAE=", "0001"), ("?", ""), (None, ""), (3, "")])
def test_an_id_in_base64(value: Any, digits: str) -> None:
    assert hex_id(value) == digits


def test_the_names_of_fields_are_those_of_otlp_json() -> None:
    message = {"start_time_unix_nano": "1", "end": None, "attributes": [{"key": "a_b", "value": {"int_value": 1}}]}
    assert to_proto_json(message) == {
        "startTimeUnixNano": "1",
        "attributes": [{"key": "a_b", "value": {"intValue": 1}}],
    }


def test_a_request_has_one_resource_and_one_scope() -> None:
    assert request_document([{"name": "a"}], {"service.name": "shop", "none": None}, "agents") == {
        "resourceSpans": [
            {
                "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]},
                "scopeSpans": [{"scope": {"name": "agents"}, "spans": [{"name": "a"}]}],
            }
        ]
    }
