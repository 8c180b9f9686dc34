"""Confident AI, Laminar, Braintrust, HoneyHive and Spring AI 2 beyond the recorded exports."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goldspan.conventions import installed_conventions
from goldspan.extraction import extract
from goldspan.model import ToolCall
from support.span_builders import span

read = installed_conventions().classify


def only_call(name: str, **attributes: Any) -> ToolCall:
    [run] = extract([span(name, **attributes)])
    [call] = run.tool_calls
    return call


# Confident AI: deepeval/tracing/otel/attributes.py and exporter.py of DeepEval 4.


@pytest.mark.parametrize(
    ("kind", "role"), [("tool", "tool"), ("retriever", "tool"), ("agent", "agent"), ("llm", "model"), ("base", None)]
)
def test_the_confident_span_type_determines_the_role(kind: str, role: str | None) -> None:
    assert read(span("x", confident__span__type=kind)).role == role


def test_a_confident_request_has_its_tool() -> None:
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


def test_confident_calls_listed_on_a_model_span_are_requested() -> None:
    listed = [json.dumps({"name": "weather", "input_parameters": {"city": "Rome"}}), "no json", "[]"]
    call = only_call("llm", confident__span__type="llm", confident__span__tools_called=listed)
    assert (call.name, call.arguments, call.evidence) == ("weather", {"city": "Rome"}, "requested")


# Laminar: src/lmnr/opentelemetry_lib/tracing/attributes.py; the JavaScript SDK writes the list of arguments.


@pytest.mark.parametrize(
    "written", [pytest.param({"city": "Rome"}, id="Python"), pytest.param([{"city": "Rome"}], id="JavaScript")]
)
def test_a_laminar_tool_span_is_a_call(written: object) -> None:
    call = only_call(
        "weather", lmnr__span__type="TOOL", lmnr__span__input=json.dumps(written), lmnr__span__output='{"temp":21}'
    )
    assert (call.name, call.arguments, call.result) == ("weather", {"city": "Rome"}, {"temp": 21})


def test_calls_in_the_messages_of_laminar_0_8_are_read() -> None:
    asked_for = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}}
    call = only_call(
        "openai.chat",
        lmnr__span__type="LLM",
        gen_ai__input__messages='[{"role":"user","content":"Warm?"}]',
        gen_ai__output__messages=json.dumps(
            [{"index": 0, "message": {"role": "assistant", "tool_calls": [asked_for]}}]
        ),
    )
    assert (call.name, call.call_id, call.arguments, call.evidence) == ("weather", "c1", {"city": "Rome"}, "requested")


def test_a_laminar_default_span_gives_the_session_and_no_role() -> None:
    reading = read(span("x", lmnr__span__type="DEFAULT", lmnr__association__properties__session_id="s1"))
    assert (reading.role, reading.session_id) == (None, "s1")


# Braintrust: lib/braintrust/contrib/ruby_llm of braintrust-sdk-ruby; other SDKs write the type as a separate attribute.


@pytest.mark.parametrize(
    "type_attribute",
    [{"braintrust__span_attributes": '{"type":"tool"}'}, {"braintrust__span_attributes__type": "tool"}],
)
def test_a_braintrust_tool_span_is_a_call(type_attribute: dict[str, str]) -> None:
    call = only_call(
        "weather",
        **type_attribute,
        braintrust__input_json='{"name":"weather","arguments":{"city":"Rome"}}',
        braintrust__output_json='{"temp":21}',
    )
    assert (call.name, call.arguments, call.result) == ("weather", {"city": "Rome"}, {"temp": 21})


def test_a_braintrust_ruby_tool_gets_its_name_from_the_attribute() -> None:
    call = only_call(
        "ruby_llm.tool.weather",
        braintrust__span_attributes='{"type":"tool"}',
        tool__name="weather",
        tool__call_id="c1",
        braintrust__input_json='{"name":"weather","arguments":{"city":"Rome"}}',
    )
    assert (call.name, call.call_id, call.arguments) == ("weather", "c1", {"city": "Rome"})


@pytest.mark.parametrize("described", ['{"type":"task"}', '{"type":"score"}', "[]", "cut o", '{"type":null}'])
def test_braintrust_spans_of_other_types_are_not_tools(described: str) -> None:
    assert read(span("x", braintrust__span_attributes=described)).role is None


# Braintrust: trace/contrib/openai/chatcompletions.go of braintrust-sdk-go leaves the type out.


@pytest.mark.parametrize(
    ("written", "role"),
    [
        pytest.param({"metadata": '{"model":"m","provider":"openai"}'}, "model", id="untyped, with a model"),
        pytest.param({"metadata": '{"model":"m"}', "span_attributes": '{"type":"task"}'}, None, id="typed otherwise"),
        pytest.param({"metadata": '{"model":null}'}, None, id="no model named"),
        pytest.param({"metadata": "cut o"}, None, id="unreadable"),
    ],
)
def test_a_braintrust_span_without_a_type_is_a_model_span_if_it_names_a_model(
    written: dict[str, str], role: str | None
) -> None:
    attributes = {f"braintrust.{key}": value for key, value in written.items()}
    assert read(span("openai.chat.completions.create", **attributes)).role == role


def test_calls_in_the_choices_of_an_untyped_braintrust_model_span_are_read() -> None:
    asked_for = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}}
    call = only_call(
        "openai.chat.completions.create",
        braintrust__metadata='{"model":"m","provider":"openai"}',
        braintrust__input_json='[{"role":"user","content":"Warm?"}]',
        braintrust__output_json=json.dumps([{"index": 0, "message": {"role": "assistant", "tool_calls": [asked_for]}}]),
    )
    assert (call.name, call.call_id, call.arguments, call.evidence) == ("weather", "c1", {"city": "Rome"}, "requested")


# Braintrust: BraintrustFunctionMiddleware of braintrust-sdk-dotnet.


def test_a_braintrust_dotnet_function_is_a_call() -> None:
    call = only_call(
        "function:weather",
        braintrust__span_attributes='{"type":"function_call"}',
        function__name="weather",
        braintrust__input_json='{"city":"Rome"}',
        braintrust__output_json='{"result":{"temp":21}}',
    )
    assert (call.name, call.arguments, call.result) == ("weather", {"city": "Rome"}, {"temp": 21})


# HoneyHive: `@trace(event_type="tool")` of honeyhive's Python SDK, 0.2 and 1.7.


def test_a_honeyhive_0_2_tool_span_is_a_call() -> None:
    call = only_call(
        "kb.weather",
        honeyhive_event_type="tool",
        **{"honeyhive_inputs._params_.city": "Rome", "honeyhive_inputs._params_.self": "<Tools>"},
        **{"honeyhive_inputs._params_.days.0": 1, "honeyhive_inputs._params_.days.1": 2},
        honeyhive_outputs__result="21 degrees",
    )
    assert (call.name, call.result) == ("kb.weather", "21 degrees")
    assert call.arguments == {"city": "Rome", "days": [1, 2]}


_OF_1_7 = {"honeyhive_event_type": "tool", "honeyhive__session_id": "s1"}


@pytest.mark.parametrize(
    ("span_name", "more", "name"),
    [
        pytest.param("app.tools.weather", {}, "weather", id="named by its function"),
        pytest.param("kb.search", {"honeyhive_event_name": "kb.search"}, "kb.search", id="named by a person"),
    ],
)
def test_a_honeyhive_1_7_tool_span_is_a_call(span_name: str, more: dict[str, str], name: str) -> None:
    call = only_call(
        span_name,
        **_OF_1_7,
        **more,
        **{"honeyhive_inputs.city": "Rome", "honeyhive_inputs.tags": '["a", "b"]'},
        **{"honeyhive_metadata.event_type": "tool", "honeyhive_outputs.result.temp": 21},
    )
    assert (call.name, call.arguments, call.result) == (name, {"city": "Rome", "tags": ["a", "b"]}, {"temp": 21})


@pytest.mark.parametrize(
    ("more", "role"),
    [
        pytest.param({}, None, id="only the type that every span gets"),
        pytest.param({"honeyhive_event_type": "model"}, None, id="a type guessed by the words in the name"),
        pytest.param({"honeyhive_metadata.team": "web"}, None, id="enriched"),
        pytest.param({"honeyhive_duration_ms": 3.0}, "tool", id="decorated"),
        pytest.param({"honeyhive_event_name": "db"}, "tool", id="named"),
        pytest.param({"honeyhive_duration_ms": 3.0, "honeyhive_error_type": "ValueError"}, "aside", id="error span"),
    ],
)
def test_a_honeyhive_type_gives_a_role_only_with_other_attributes_of_the_decorator(
    more: dict[str, Any], role: str | None
) -> None:
    reading = read(span("POST /db", **{**_OF_1_7, **more}))
    assert (reading.role, reading.session_id) == (role, "s1")


# Sessions: the thread id of deepeval's Pydantic AI settings, beside the id that Pydantic AI generates per request.


@pytest.mark.parametrize("given", ["confident__trace__thread_id", "lmnr__association__properties__session_id"])
def test_a_user_defined_session_precedes_the_session_of_the_framework(given: str) -> None:
    made_up = {"gen_ai__operation__name": "invoke_agent", "gen_ai__conversation__id": "01a1f94f"}
    reading = read(span("agent run", **made_up, **{given: "ours"}))
    assert (reading.role, reading.session_id) == ("agent", "ours")
    assert "sessions" not in reading.conventions


# Spring AI 2: upgrade notes, "Tool calling span renamed from `tool_call` to `execute_tool`".


def test_a_spring_ai_2_tool_span_is_a_call() -> None:
    call = only_call(
        "execute_tool weather",
        gen_ai__operation__name="execute_tool",
        spring__ai__kind="tool_call",
        spring__ai__tool__definition__name="weather",
        spring__ai__tool__call__id="c1",
        spring__ai__tool__call__arguments='{"city":"Rome"}',
    )
    assert (call.name, call.call_id, call.arguments) == ("weather", "c1", {"city": "Rome"})


def test_a_spring_ai_vector_store_is_a_retrieval() -> None:
    reading = read(span("pg_vector query", spring__ai__kind="vector_store"))
    assert (reading.role, reading.kind) == ("tool", "retrieval")
