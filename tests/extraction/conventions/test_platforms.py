"""Platforms that nothing recorded shows: Confident AI, Laminar, Braintrust, HoneyHive, and the newer Spring AI."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goldspan.extraction import extract
from goldspan.extraction.conventions import installed
from goldspan.model import ToolCall
from spans import span

read = installed().read


def only_call(name: str, **attributes: Any) -> ToolCall:
    [run] = extract([span(name, **attributes)])
    [call] = run.tool_calls
    return call


# Confident AI: deepeval/tracing/otel/attributes.py and exporter.py of DeepEval 4.


@pytest.mark.parametrize(
    ("kind", "role"), [("tool", "tool"), ("retriever", "tool"), ("agent", "agent"), ("llm", "model"), ("base", None)]
)
def test_confident_roles(kind: str, role: str | None) -> None:
    assert read(span("x", confident__span__type=kind)).role == role


def test_confident_request_with_a_tool() -> None:
    root = span(
        "run",
        confident__span__type="agent",
        confident__agent__name="support",
        confident__agent__available_tools=["weather", "pay"],
        confident__trace__thread_id="t1",
        confident__trace__input="Warm?",
        confident__span__output="21 degrees",
    )
    tool = span(
        "call",
        parent_id=root.span_id,
        confident__span__type="tool",
        confident__tool__name="weather",
        confident__span__input='{"city":"Rome"}',
        confident__span__output='{"temp":21}',
        confident__span__error="late",
    )
    [run] = extract([root, tool])
    [call] = run.tool_calls
    assert (run.agent, run.session_id, run.input, run.output) == ("support", "t1", "Warm?", "21 degrees")
    assert [tool.name for tool in run.available_tools] == ["pay", "weather"]
    assert (call.name, call.arguments, call.result, call.error) == ("weather", {"city": "Rome"}, {"temp": 21}, "late")


def test_confident_calls_listed_on_a_models_span_were_requested() -> None:
    listed = [json.dumps({"name": "weather", "input_parameters": {"city": "Rome"}}), "no json", "[]"]
    call = only_call("llm", confident__span__type="llm", confident__span__tools_called=listed)
    assert (call.name, call.arguments, call.evidence) == ("weather", {"city": "Rome"}, "requested")


# Laminar: src/lmnr/opentelemetry_lib/tracing/attributes.py; the JavaScript SDK writes the list of arguments.


@pytest.mark.parametrize(
    "written", [pytest.param({"city": "Rome"}, id="Python"), pytest.param([{"city": "Rome"}], id="JavaScript")]
)
def test_laminar_tool(written: object) -> None:
    call = only_call(
        "weather", lmnr__span__type="TOOL", lmnr__span__input=json.dumps(written), lmnr__span__output='{"temp":21}'
    )
    assert (call.name, call.arguments, call.result) == ("weather", {"city": "Rome"}, {"temp": 21})


def test_laminar_session_and_other_types() -> None:
    reading = read(span("x", lmnr__span__type="DEFAULT", lmnr__association__properties__session_id="s1"))
    assert (reading.role, reading.session_id) == (None, "s1")


# Braintrust: lib/braintrust/contrib/ruby_llm of braintrust-sdk-ruby; type as an attribute of its own elsewhere.


@pytest.mark.parametrize(
    "type_attribute",
    [{"braintrust__span_attributes": '{"type":"tool"}'}, {"braintrust__span_attributes__type": "tool"}],
)
def test_braintrust_tool(type_attribute: dict[str, str]) -> None:
    call = only_call(
        "weather",
        **type_attribute,
        braintrust__input_json='{"name":"weather","arguments":{"city":"Rome"}}',
        braintrust__output_json='{"temp":21}',
    )
    assert (call.name, call.arguments, call.result) == ("weather", {"city": "Rome"}, {"temp": 21})


def test_braintrust_tool_of_ruby_is_named_by_its_attribute() -> None:
    call = only_call(
        "ruby_llm.tool.weather",
        braintrust__span_attributes='{"type":"tool"}',
        tool__name="weather",
        tool__call_id="c1",
        braintrust__input_json='{"name":"weather","arguments":{"city":"Rome"}}',
    )
    assert (call.name, call.call_id, call.arguments) == ("weather", "c1", {"city": "Rome"})


@pytest.mark.parametrize("described", ['{"type":"task"}', '{"type":"score"}', "[]", "cut o", '{"type":null}'])
def test_braintrust_spans_of_other_types_are_no_tools(described: str) -> None:
    assert read(span("x", braintrust__span_attributes=described)).role is None


# HoneyHive: `@trace(event_type="tool")` of honeyhive's Python SDK.


def test_honeyhive_tool() -> None:
    call = only_call(
        "weather",
        honeyhive_event_type="tool",
        honeyhive_event_name="weather",
        **{"honeyhive_inputs._params_.city": "Rome", "honeyhive_inputs._params_.self": "<Tools>"},
        honeyhive_outputs__result="21 degrees",
    )
    assert (call.name, call.arguments, call.result) == ("weather", {"city": "Rome"}, "21 degrees")


# Spring AI 2: upgrade notes, "Tool calling span renamed from `tool_call` to `execute_tool`".


def test_spring_ai_2_tool() -> None:
    call = only_call(
        "execute_tool weather",
        gen_ai__operation__name="execute_tool",
        spring__ai__kind="tool_call",
        spring__ai__tool__definition__name="weather",
        spring__ai__tool__call__id="c1",
        spring__ai__tool__call__arguments='{"city":"Rome"}',
    )
    assert (call.name, call.call_id, call.arguments) == ("weather", "c1", {"city": "Rome"})


def test_spring_ai_vector_store_is_a_retrieval() -> None:
    reading = read(span("pg_vector query", spring__ai__kind="vector_store"))
    assert (reading.role, reading.kind) == ("tool", "retrieval")
