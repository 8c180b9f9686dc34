"""LiteLLM's OpenTelemetry callback, as `litellm/integrations/opentelemetry.py` 1.106 writes it."""

from __future__ import annotations

import pytest

from goldspan.conventions import installed_conventions
from goldspan.extraction import extract
from goldspan.model import SpanEvent
from support.span_builders import span

read = installed_conventions().classify
WRITTEN = {"litellm__call_id": "l1", "gen_ai__operation__name": "chat", "llm__request__type": "completion"}


@pytest.mark.parametrize(
    ("name", "own", "role"),
    [
        pytest.param("litellm_request", {}, "model", id="its own span"),
        pytest.param("POST /chat", {}, "aside", id="a server's"),
        pytest.param("invoke_agent helper", {}, "agent", id="an agent's, by its name"),
        pytest.param("answer", {"traceloop__span__kind": "workflow"}, "entry", id="a workflow's"),
        pytest.param("answer", {"openinference__span__kind": "AGENT"}, "agent", id="an agent's, by its kind"),
        pytest.param("pay", {"openinference__span__kind": "TOOL"}, "tool", id="a tool's"),
        pytest.param("answer", {"openinference__span__kind": "CHAIN"}, "aside", id="a chain's"),
        pytest.param("POST /chat", {"events": (SpanEvent("gen_ai.choice", {}),)}, "model", id="with the messages"),
    ],
)
def test_a_span_keeps_its_role_if_litellm_adds_attributes_to_it(name: str, own: dict[str, object], role: str) -> None:
    assert read(span(name, **WRITTEN, **own)).role == role


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(
            {
                "llm__openai__messages": "[{'role': 'user', 'content': 'Pay 5.'}]",
                "llm__openai__choices": "[{'message': {'role': 'assistant', 'tool_calls': [{'id': 'c1', 'type': "
                "'function', 'function': {'name': 'pay', 'arguments': '{\"sum\": 5}'}}]}}]",
                "llm__openai__tools": "[{'type': 'function', 'function': {'name': 'pay'}}]",
            },
            id="OpenAI",
        ),
        pytest.param(
            {
                "llm__anthropic__messages": "[{'role': 'user', 'content': 'Pay 5.'}]",
                "llm__anthropic__content": "[{'type': 'tool_use', 'id': 'c1', 'name': 'pay', 'input': {'sum': 5}}]",
                "llm__anthropic__tools": "[{'name': 'pay', 'input_schema': {'type': 'object', 'properties': {}}}]",
            },
            id="Anthropic",
        ),
        pytest.param(
            {
                "llm__gemini__contents": "[{'role': 'user', 'parts': [{'text': 'Pay 5.'}]}]",
                "llm__gemini__candidates": "[{'content': {'role': 'model', 'parts': [{'functionCall': {'id': 'c1', "
                "'name': 'pay', 'args': {'sum': 5}}}]}}]",
                "llm__gemini__tools": "[{'functionDeclarations': [{'name': 'pay'}]}]",
            },
            id="Gemini",
        ),
    ],
)
def test_messages_and_calls_are_read_from_the_raw_request_and_response(raw: dict[str, str]) -> None:
    [run] = extract([span("raw_gen_ai_request", **raw)])
    [call] = run.tool_calls
    assert (run.input, [tool.name for tool in run.available_tools]) == ("Pay 5.", ["pay"])
    assert (call.name, call.arguments, call.call_id) == ("pay", {"sum": 5}, "c1")
