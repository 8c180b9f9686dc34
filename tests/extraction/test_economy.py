"""Optimizations of extraction, and their equality with the plain computation."""

from __future__ import annotations

import copy
import gc
import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from goldspan.conventions import installed_conventions
from goldspan.conventions.classification import UNKNOWN_FACTS
from goldspan.extraction import extract
from goldspan.model import Health, Run, ToolCall, fast_constructor
from support.span_builders import agent, model, span, tool


def test_extraction_creates_no_reference_cycles():
    request = agent()
    records = [request, *(tool("search", {"at": at}, parent_id=request.span_id) for at in range(20))]
    extract(records)  # the first extraction fills caches
    gc.collect()
    gc.disable()
    try:
        runs = extract(records)
        found = gc.collect()
    finally:
        gc.enable()
    assert (len(runs), found) == (1, 0)


@pytest.mark.parametrize(
    ("frozen", "given"),
    [
        pytest.param(ToolCall, {"name": "search"}, id="with defaults"),
        pytest.param(ToolCall, {"name": "search", "raw_name": "Search", "arguments": {"city": "Paris"}}, id="a call"),
        pytest.param(Run, {"run_id": "1:2", "tool_calls": (ToolCall("search"),)}, id="a run"),
        pytest.param(Health, {"merged": 2}, id="its health"),
    ],
)
def test_fast_constructor_creates_the_same_object_as_the_constructor(frozen: type, given: dict[str, Any]):
    made, drawn = frozen(**given), fast_constructor(frozen)(**given)
    assert type(drawn) is frozen
    assert (drawn, repr(drawn)) == (made, repr(made))
    assert copy.copy(drawn) == pickle.loads(pickle.dumps(drawn)) == made
    with pytest.raises(FrozenInstanceError):
        setattr(drawn, next(iter(given)), None)


def test_an_unknown_span_is_classified_without_reading_its_attributes():
    read = installed_conventions(("golden",)).classify
    assert read(span("GET /", http__route="/")) is UNKNOWN_FACTS
    assert read(span("GET /", golden="g1")).is_annotated
    assert not read(model(asked=[{"role": "user", "content": "Hello."}])).is_annotated
    assert read(tool("search", golden="g1")).is_annotated


def test_the_first_attribute_with_a_value_is_used():
    entity, workflow = "traceloop.entity.name", "traceloop.workflow.name"
    both = span("x", **{"traceloop.span.kind": "agent", entity: "e", workflow: "w"})
    one = span("x", **{"traceloop.span.kind": "agent", entity: None, workflow: "w"})
    assert [installed_conventions().classify(each).name for each in (both, one)] == ["e", "w"]


def test_classify_cached_reuses_the_facts_of_the_last_span():
    conventions = installed_conventions()
    one, other = tool("search"), tool("book")
    first = conventions.classify_cached(one)
    assert conventions.classify_cached(one) is first
    assert [conventions.classify_cached(each).name for each in (other, one, copy.copy(other))] == [
        "book",
        "search",
        "book",
    ]
    assert conventions.classify(one) == first
    assert conventions.classify(one) is not first
