"""Langfuse, where no recorded export shows it.

Attributes as `langfuse/_client/attributes.py` of langfuse-python and `packages/core/src/constants.ts` of langfuse-js
name them.
"""

from __future__ import annotations

import json

import pytest

from goldspan.extraction import extract
from goldspan.extraction.conventions import installed
from spans import span

read = installed().read


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
def test_roles_of_observation_types(kind: str, role: str | None) -> None:
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
def test_the_root_of_the_application_is_a_request_where_it_was_asked_something(
    attributes: dict[str, str], role: str | None, mark: str
) -> None:
    assert read(span("x", langfuse__observation__type="span", **attributes, **{mark: True})).role == role


def test_a_tool_of_level_error_failed_though_its_status_says_nothing() -> None:
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


def test_the_session_may_be_named_as_langfuse_maps_it() -> None:
    assert read(span("x", langfuse__session__id="s1")).session_id == "s1"
    assert read(span("x", session__id="s2")).session_id == "s2"


def test_a_generation_asks_for_tools_in_its_output() -> None:
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
