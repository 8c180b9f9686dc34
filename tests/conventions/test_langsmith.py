"""Spans of the LangSmith OpenTelemetry exporter beyond the recorded exports.

Attributes as `langsmith/_internal/otel/_otel_exporter.py` of langsmith-sdk writes them.
"""

from __future__ import annotations

import json

import pytest

from goldspan.conventions import installed_conventions
from goldspan.extraction import extract
from support.span_builders import span

read = installed_conventions().classify


@pytest.mark.parametrize(
    ("attributes", "role", "kind"),
    [
        pytest.param({"kind": "tool"}, "tool", None, id="tool"),
        pytest.param({"kind": "retriever"}, "tool", "retrieval", id="retriever"),
        pytest.param({"kind": "llm"}, "model", None, id="model"),
        pytest.param({"kind": "chain"}, "entry", None, id="chain"),
        pytest.param({"kind": "chain", "node": "tools"}, None, None, id="node of a graph"),
        pytest.param({"kind": "chain", "agent": "trip"}, "agent", None, id="chain named like its agent"),
        pytest.param({"kind": "chain", "agent": "trip", "node": "tools"}, "agent", None, id="agent inside a graph"),
        pytest.param({"kind": "chain", "agent": "other", "node": "tools"}, None, None, id="node of an agent"),
        pytest.param({"kind": "parser"}, None, None, id="parser"),
    ],
)
def test_the_attributes_determine_role_and_kind(attributes: dict[str, str], role: str | None, kind: str | None) -> None:
    keys = {
        "kind": "langsmith__span__kind",
        "node": "langsmith__metadata__langgraph_node",
        "agent": "langsmith__metadata__lc_agent_name",
    }
    reading = read(
        span("trip", **{keys[key]: value for key, value in attributes.items()}, langsmith__trace__name="trip")
    )
    assert (reading.role, reading.kind) == (role, kind)


def test_the_project_name_is_not_the_session() -> None:
    seen = span("x", langsmith__span__kind="chain", langsmith__trace__session_name="my project")
    assert read(seen).session_id is None
    thread = span("x", langsmith__span__kind="chain", langsmith__metadata__thread_id="t1")
    assert read(thread).session_id == "t1"


def test_a_traceable_function_has_arguments_in_gen_ai_prompt_and_its_result_in_gen_ai_completion() -> None:
    # `@traceable(run_type="tool")`: inputs are the function's own arguments, outputs are under `output`.
    seen = span(
        "weather",
        langsmith__span__kind="tool",
        langsmith__trace__name="weather",
        gen_ai__operation__name="execute_tool",
        gen_ai__prompt='{"city":"Rome"}',
        gen_ai__completion='{"output":{"temp_c":21}}',
    )
    [run] = extract([seen])
    [call] = run.tool_calls
    assert (call.name, call.arguments, call.result) == ("weather", {"city": "Rome"}, {"temp_c": 21})


def test_a_wrapped_openai_client_has_the_requested_calls_in_its_completion() -> None:
    # `wrap_openai`: inputs are the request's body, outputs the response's.
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}}
    seen = span(
        "ChatOpenAI",
        langsmith__span__kind="llm",
        gen_ai__operation__name="chat",
        gen_ai__prompt=json.dumps({"messages": [{"role": "user", "content": "Warm?"}], "model": "gpt"}),
        gen_ai__completion=json.dumps({"choices": [{"message": {"role": "assistant", "tool_calls": [call]}}]}),
    )
    [run] = extract([seen])
    assert run.input == "Warm?"
    assert [(call.name, call.arguments, call.call_id) for call in run.tool_calls] == [
        ("weather", {"city": "Rome"}, "c1")
    ]
