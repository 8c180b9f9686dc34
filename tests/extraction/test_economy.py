"""Optimizations of extraction, and their equality with the plain computation."""

from __future__ import annotations

import copy
import gc
import json
import pickle
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.content.parts import RequestedCall
from goldspan.conventions import installed_conventions
from goldspan.conventions.classification import UNKNOWN_FACTS
from goldspan.conventions.span_facts import RawValue
from goldspan.extraction import extract
from goldspan.extraction.observed_calls import ObservedCall, in_order, raw_value
from goldspan.model import ABSENT, Health, Run, ToolCall, fast_constructor
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


_NAMES = st.sampled_from(["search", "shop_search", "shop", ""])
_IDS = st.none() | st.sampled_from(["c1", "c2"])
_VALUES = st.sampled_from([{}, {"a": 1}, {"a": 1, "b": 2}, {"w": {"a": 1}}, {"w": {}}, [1], "text", "{", ""])
_RAW_VALUES = st.just(ABSENT) | st.none() | _VALUES | _VALUES.map(json.dumps)
_REQUESTS = st.builds(
    RequestedCall,
    _NAMES,
    arguments=_RAW_VALUES,
    call_id=_IDS,
    kind=st.sampled_from(["tool", "hosted"]),
    result=_RAW_VALUES,
    error=st.none() | st.just("failed"),
    server=st.none() | st.just("orders"),
)


def observed(request: RequestedCall) -> ObservedCall:
    """The call that a request describes."""
    arguments, result = raw_value(request.arguments), raw_value(request.result)
    return ObservedCall(
        request.name, request.kind, request.call_id, arguments, result, request.error, server=request.server
    )


def facts_of(call: ObservedCall) -> list[Any]:
    values = [getattr(call, each.name) for each in fields(call)]
    return [value.value if isinstance(value, RawValue) else value for value in values]


def plainly_absorb(call: ObservedCall, other: ObservedCall) -> None:
    """What `absorb` does, with both arguments parsed."""
    own = call.arguments.value if call.arguments is not None else None
    found = other.arguments.value if other.arguments is not None else None
    wraps = isinstance(own, dict) and len(own) == 1 and bool(found) and found in own.values()
    if call.arguments is None or (isinstance(found, dict) and (not isinstance(own, dict) or wraps)):
        call.arguments = other.arguments
    merged = call.arguments
    call.absorb(other)
    call.arguments = merged


@given(_REQUESTS, _REQUESTS)
def test_a_request_is_merged_without_an_observed_call_as_with_one(known: RequestedCall, request: RequestedCall):
    one, other, plain = observed(known), observed(known), observed(known)
    one.absorb_request(request)
    other.absorb(observed(request))
    plainly_absorb(plain, observed(request))
    assert facts_of(one) == facts_of(other) == facts_of(plain)


@given(st.lists(st.tuples(st.none() | st.integers(0, 3), st.sampled_from("ab")), max_size=5))
def test_calls_are_in_the_order_of_their_sort_keys(facts: list[tuple[int | None, str]]):
    calls = [
        ObservedCall("search", call_id=f"{prefix}{at}", start_ns=start) for at, (start, prefix) in enumerate(facts)
    ]
    assert in_order(calls) == sorted(calls, key=lambda call: call.sort_key)
