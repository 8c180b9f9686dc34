"""pydantic-ai beyond the recorded exports, as implemented in `capabilities/instrumentation.py` of pydantic-ai 2."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goldspan.conventions import installed_conventions
from goldspan.extraction import extract
from goldspan.model import SpanRecord
from support.span_builders import agent, asks_for, model, span, tool

PARAMETERS = {
    "function_tools": [
        {"name": "search", "parameters_json_schema": {"type": "object", "properties": {"q": {}}}, "kind": "function"},
        {"name": "pay", "parameters_json_schema": {}, "kind": "unapproved"},
        {"name": "print", "parameters_json_schema": {}, "kind": "external"},
    ],
    "output_tools": [{"name": "final_result_Trip", "parameters_json_schema": {}, "kind": "output"}],
}


def run_that_asks_for(name: str) -> list[SpanRecord]:
    root = agent()
    asked = model(
        answered=[asks_for(name, {}, "c1")], parent_id=root.span_id, model_request_parameters=json.dumps(PARAMETERS)
    )
    return [root, asked]


@pytest.mark.parametrize(
    ("name", "kind", "outcome", "used"),
    [
        ("search", "tool", None, ("search",)),
        ("pay", "tool", "deferred", ()),
        ("print", "tool", "deferred", ()),
        ("final_result_Trip", "answer", None, ()),
        ("final_result", "tool", None, ("final_result",)),
    ],
)
def test_request_parameters_determine_the_kind_of_a_requested_call(
    name: str, kind: str, outcome: str | None, used: tuple[str, ...]
) -> None:
    [run] = extract(run_that_asks_for(name))
    assert [(call.kind, call.outcome) for call in run.tool_calls] == [(kind, outcome)]
    assert run.tools_used == used


def test_an_approved_and_executed_tool_is_a_call() -> None:
    [root, asked] = run_that_asks_for("pay")
    [run] = extract([root, asked, tool("pay", {}, gen_ai__tool__call__id="c1", parent_id=root.span_id)])
    assert [(call.outcome, call.was_made) for call in run.tool_calls] == [("ok", True)]


@pytest.mark.parametrize("reason", ["ApprovalRequired", "CallDeferred"])
@pytest.mark.parametrize("raised", [None, "approval required"], ids=["version 5", "before"])
def test_a_deferred_call_was_not_made_and_did_not_fail(reason: str, raised: str | None) -> None:
    [run] = extract([tool("pay", {"sum": 3}, failed=raised, **{"pydantic_ai.tool.deferral.name": reason})])
    assert [(call.outcome, call.was_made, call.error) for call in run.tool_calls] == [("deferred", False, None)]
    assert run.tools_used == ()


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("running output function", {"gen_ai__agent__call__id": "r"}),
        ("execute_tool final_result", {"gen_ai__agent__call__id": "r", "logfire__msg": "running output function: x"}),
    ],
)
def test_an_output_function_is_an_answer(name: str, attributes: dict[str, str]) -> None:
    reading = installed_conventions().classify(
        span(name, gen_ai__operation__name="execute_tool", gen_ai__tool__name="final_result", **attributes)
    )
    assert (reading.role, reading.kind) == ("tool", "answer")


def test_the_first_versions_are_read_without_operations() -> None:
    # pydantic-ai 0.1, agent.py and models/instrumented.py
    said: list[dict[str, Any]] = [
        {"event.name": "gen_ai.user.message", "role": "user", "content": "Find me a room"},
        {"event.name": "gen_ai.assistant.message", "role": "assistant", "content": "Here is one"},
    ]
    root = span("agent run", agent_name="helper", all_messages_events=json.dumps(said), final_result="Here is one")
    ran = span("running tool: search", tool_arguments='{"q": 1}', parent_id=root.span_id)
    [run] = extract([root, ran])
    assert (run.agent, run.input, run.output) == ("helper", "Find me a room", "Here is one")
    assert [(call.name, call.arguments) for call in run.tool_calls] == [("search", {"q": 1})]


@pytest.mark.parametrize("events", ["not a list", "[1, null, {}]", '[{"event.name": 3}]', 7, {"a": 1}])
def test_unrelated_attributes_with_the_same_names_are_ignored(events: Any) -> None:
    [run] = extract(
        [
            model(
                answered=[asks_for("search", {})],
                events=(),
                model_request_parameters=events,
                all_messages_events=events,
            )
        ]
    )
    assert run.tools_used == ("search",)
