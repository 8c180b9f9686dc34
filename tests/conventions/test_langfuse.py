"""Langfuse spans beyond the recorded exports.

Attributes as `langfuse/_client/attributes.py` of langfuse-python and `packages/core/src/constants.ts` of langfuse-js
name them.
"""

from __future__ import annotations

import json

import pytest

from goldspan.conventions import installed_conventions
from goldspan.extraction import extract
from goldspan.model import SpanRecord
from support.span_builders import span

read = installed_conventions().classify


@pytest.mark.parametrize(
    ("kind", "role"),
    [
        ("tool", "tool"),
        ("retriever", "tool"),
        ("agent", "agent"),
        ("generation", "model"),
        *((kind, None) for kind in ("span", "chain", "evaluator", "embedding", "guardrail", "event")),
    ],
)
def test_the_observation_type_determines_the_role(kind: str, role: str | None) -> None:
    assert read(span("x", langfuse__observation__type=kind)).role == role


def test_a_retriever_is_a_retrieval() -> None:
    assert read(span("x", langfuse__observation__type="retriever")).kind == "retrieval"


@pytest.mark.parametrize(
    ("attributes", "role"),
    [
        pytest.param({"langfuse__observation__input": "hello"}, "entry", id="with an input"),
        pytest.param({"langfuse__trace__input": "hello"}, "entry", id="with the trace's input"),
        pytest.param(
            {"langfuse__observation__input": '{"args": [], "kwargs": {}}'}, None, id="called without arguments"
        ),
        pytest.param({}, None, id="without an input"),
    ],
)
@pytest.mark.parametrize("mark", ["langfuse__internal__is_app_root", "langfuse__internal__as_root"])
def test_an_application_root_span_with_an_input_is_a_request(
    attributes: dict[str, str], role: str | None, mark: str
) -> None:
    assert read(span("x", langfuse__observation__type="span", **attributes, **{mark: True})).role == role


def test_a_tool_with_level_error_failed_even_if_its_span_status_is_unset() -> None:
    # langfuse-js: `observation.update({level: "ERROR", statusMessage})` leaves the span's status alone.
    seen = span(
        "pay",
        langfuse__observation__type="tool",
        langfuse__observation__input='{"amount": 5}',
        langfuse__observation__level="ERROR",
        langfuse__observation__status_message="no funds",
    )
    [run] = extract([seen])
    assert [(call.name, call.arguments, call.error) for call in run.tool_calls] == [("pay", {"amount": 5}, "no funds")]


def test_the_session_is_read_from_both_session_attributes() -> None:
    assert read(span("x", langfuse__session__id="s1")).session_id == "s1"
    assert read(span("x", session__id="s2")).session_id == "s2"


def test_the_output_of_a_generation_contains_the_requested_calls() -> None:
    # The OpenAI integration: the request's messages in, the response's message out.
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}}
    seen = span(
        "OpenAI-generation",
        langfuse__observation__type="generation",
        langfuse__observation__input=json.dumps([{"role": "user", "content": "Warm?"}]),
        langfuse__observation__output=json.dumps({"role": "assistant", "content": None, "tool_calls": [call]}),
    )
    [run] = extract([seen])
    assert run.input == "Warm?"
    assert [(call.name, call.call_id, call.evidence) for call in run.tool_calls] == [("weather", "c1", "requested")]


OFFERED = {"type": "function", "function": {"name": "pay", "parameters": {"type": "object", "properties": {}}}}


@pytest.mark.parametrize(
    "given",
    [
        # langfuse/openai.py: the arguments of the request.
        pytest.param({"messages": [{"role": "user", "content": "Pay 5."}], "tools": [OFFERED]}, id="the request's"),
        # langfuse/langchain/CallbackHandler.py: `prompts.extend({"role": "tool", "content": tool} for tool in tools)`.
        pytest.param([{"role": "user", "content": "Pay 5."}, {"role": "tool", "content": OFFERED}], id="as messages"),
    ],
)
def test_tool_definitions_of_a_generation_are_read_from_its_input(given: object) -> None:
    [run] = extract(
        [span("x", langfuse__observation__type="generation", langfuse__observation__input=json.dumps(given))]
    )
    assert (run.input, [tool.name for tool in run.available_tools]) == ("Pay 5.", ["pay"])


def test_requests_in_one_unexported_application_span_are_separate() -> None:
    # langfuse-python 5 exports spans of language models, but no span of a web framework.
    def turn(city: str, number: int) -> list[SpanRecord]:
        asked = [{"role": "user", "content": f"Is {city} warm?"}]
        call = {"id": f"c{number}", "type": "function", "function": {"name": "weather", "arguments": f'["{city}"]'}}
        asking = {"role": "assistant", "tool_calls": [call]}
        answer = {"role": "tool", "tool_call_id": f"c{number}", "content": "21"}
        return [
            span(
                "OpenAI-generation",
                parent_id="00000000000000aa",
                langfuse__observation__type="generation",
                langfuse__observation__input=json.dumps({"messages": messages}),
                langfuse__observation__output=json.dumps(said),
            )
            for messages, said in (
                (asked, asking),
                ([*asked, asking, answer], {"role": "assistant", "content": f"Yes, {city} is."}),
            )
        ]

    runs = extract([*turn("Rome", 1), *turn("Lima", 2)])
    assert [(run.input, run.output, run.tools_used) for run in runs] == [
        ("Is Rome warm?", "Yes, Rome is.", ("weather",)),
        ("Is Lima warm?", "Yes, Lima is.", ("weather",)),
    ]
