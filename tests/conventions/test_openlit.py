"""OpenLIT 1.45: `openlit/instrumentation/langchain/__init__.py`, `langgraph/utils.py`, `agno/utils.py`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goldspan.conventions import installed_conventions
from goldspan.extraction import extract
from goldspan.model import SpanRecord
from support.span_builders import agent, model, span, tool

read = installed_conventions().classify
OURS = {"gen_ai__application_name": "app"}


@pytest.mark.parametrize(
    ("node", "provider", "role"),
    [
        pytest.param("model", "langgraph", "aside", id="a node of an agent"),
        pytest.param("Summary.before_model", "langgraph", "aside", id="a node of middleware"),
        pytest.param("researcher", "langgraph", "agent", id="a node with a name of its own"),
        pytest.param("model", "agno", "agent", id="an agent that is called so"),
    ],
)
def test_the_steps_of_an_agent_are_not_agents(node: str, provider: str, role: str) -> None:
    assert read(agent(node, gen_ai__provider__name=provider, **OURS)).role == role


@pytest.mark.parametrize(
    ("mark", "role"),
    [
        pytest.param({"gen_ai__graph__status": "success"}, "agent", id="a graph"),
        pytest.param({"gen_ai__agno__team__agents": '["expert"]'}, "agent", id="a team"),
        pytest.param({}, "entry", id="a workflow"),
    ],
)
def test_graphs_and_teams_are_agents(mark: dict[str, str], role: str) -> None:
    named = {"gen_ai__operation__name": "invoke_workflow", "gen_ai__workflow__name": "crew"}
    seen = read(span("invoke_workflow crew", telemetry__sdk__name="openlit", **named, **mark))
    assert (seen.role, seen.name) == (role, "crew")


def test_a_failed_langchain_tool_is_the_requested_call_even_if_its_id_differs() -> None:
    asking = {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "pay", "arguments": {"sum": 5}}]}
    run_id = "01a1f90a-b67e-7299-b68d-1f3a725b2623"
    scope = "openlit.instrumentation.langchain"
    asked = model(asked=[{"role": "user", "content": "Pay 5."}], answered=[asking])
    failed = tool("pay", {"sum": 5}, failed="broke", gen_ai__tool__call__id=run_id, scope=scope, **OURS)
    [run] = extract([asked, failed])
    assert [(call.name, call.call_id, call.error) for call in run.tool_calls] == [("pay", "c1", "broke")]


def _asking(names: str, ids: str, arguments: str, **more: str) -> SpanRecord:
    asked = {"gen_ai__tool__name": names, "gen_ai__tool__call__id": ids, "gen_ai__tool__args": arguments}
    return span("chat", gen_ai__operation__name="chat", **asked, **OURS, **more)


@pytest.mark.parametrize(
    ("given", "calls"),
    [
        pytest.param(("f", "c1", '{"n": 1}'), [("f", "c1", {"n": 1})], id="one"),
        pytest.param(
            ("f, g", "c1, c2", '{"n": "a, b"}, {}'), [("f", "c1", {"n": "a, b"}), ("g", "c2", {})], id="several"
        ),
        pytest.param(("f, g", "c1", "{}, {}"), [("f", None, {}), ("g", None, {})], id="an id is missing"),
        pytest.param(("f, g", "c1, c2", "{}"), [("f", "c1", None), ("g", "c2", None)], id="arguments are missing"),
        pytest.param(("f, g", "c1, c2", "{}, {'n"), [("f", "c1", None), ("g", "c2", None)], id="arguments are cut"),
    ],
)
def test_a_model_span_gives_its_requested_calls(given: tuple[str, str, str], calls: list[Any]) -> None:
    (run,) = extract([_asking(*given)])
    assert [(call.name, call.call_id, call.arguments) for call in run.tool_calls] == calls
    assert {call.evidence for call in run.tool_calls} == {"requested"}


def test_recorded_messages_precede_the_tool_attributes_of_the_span() -> None:
    said = [{"role": "assistant", "parts": [{"type": "tool_call", "id": "c9", "name": "f", "arguments": {"n": 9}}]}]
    (run,) = extract([_asking("f", "c1", '{"n": 1}', gen_ai__output__messages=json.dumps(said))])
    assert [(call.call_id, call.arguments) for call in run.tool_calls] == [("c9", {"n": 9})]


@pytest.mark.parametrize("said", [[], [{"role": "assistant", "parts": [{"type": "text", "content": "I look"}]}]])
def test_the_tool_attributes_are_read_if_the_recorded_messages_contain_no_calls(said: list[Any]) -> None:
    (run,) = extract([_asking("f", "c1", '{"n": 1}', gen_ai__output__messages=json.dumps(said))])
    assert [(call.call_id, call.arguments) for call in run.tool_calls] == [("c1", {"n": 1})]


def test_an_executed_call_has_the_arguments_that_the_model_requested() -> None:
    work = agent("trip", **OURS)
    asking = _asking("f", "c1", '{"n": 1}', parent_id=work.span_id)
    (run,) = extract([work, asking, tool("f", parent_id=work.span_id, **OURS)])
    assert [(call.evidence, call.call_id, call.arguments) for call in run.tool_calls] == [("executed", "c1", {"n": 1})]
