"""Every convention reads a span whatever values its attributes have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.conventions import BUILT_IN
from goldspan.conventions.convention import ANY, Convention
from goldspan.extraction import extract
from support.laws import examples
from support.span_builders import span

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
WORDS = st.sampled_from(
    ["name", "type", "kind", "role", "content", "messages", "tool_calls", "args", "kwargs", "inputs", "tool", "error"]
)
STRUCTURES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3), max_leaves=6
)
VALUES = STRUCTURES | STRUCTURES.map(json.dumps) | STRUCTURES.map(json.dumps).map(lambda text: text[:-1])


def keys_of(convention: Convention) -> Iterator[str]:
    """Every attribute that the tables of the convention name."""
    yield from convention.all_marker_attributes
    for places in (convention.common_attributes, *convention.attributes_by_role.values()):
        for place in fields(places):
            for key in getattr(places, place.name):
                named = key if isinstance(key, str) else getattr(key, "attribute", None)
                yield named or f"{getattr(key, 'prefix', 'x')}.0.role"


def markers_of(convention: Convention) -> list[dict[str, str]]:
    """The attributes that mark a span of each role."""
    told = [{key: "x" if value == ANY else value} for key, values in convention.roles.items() for value in values]
    return told or [{sign: "x"} for sign in convention.marker_attributes]


@pytest.mark.parametrize("convention", BUILT_IN, ids=lambda convention: convention.name)
@examples(0.4)
@given(data=st.data())
def test_a_span_with_any_attribute_values_is_read_without_an_error(convention: Convention, data: st.DataObject) -> None:
    held: dict[str, Any] = data.draw(
        st.dictionaries(st.sampled_from(sorted(set(keys_of(convention)))), VALUES, max_size=6)
    )
    held |= data.draw(st.sampled_from(markers_of(convention)))
    extract([replace(span("some span"), attributes=held, status=data.draw(st.sampled_from(["ok", "error"])))])
