"""AgentOps, after its SDK; see also the recorded export of the OpenAI Agents SDK."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goldspan.extraction import extract, role_of
from goldspan.model import SpanRecord
from support.span_builders import inside, span

OURS = {"instrumentation__name": "agentops"}


def _span(kind: str, name: str = "work", **attributes: Any) -> SpanRecord:
    return span(name, agentops__span__kind=kind, **attributes)


@pytest.mark.parametrize(
    ("kind", "role"),
    [
        ("tool", "tool"),
        ("tool.usage", "tool"),
        ("agent", "agent"),
        ("llm", "model"),
        ("request", "model"),
        ("workflow", "entry"),
        ("chain", "entry"),
        ("session", None),
        ("task", None),
        ("operation", None),
        ("workflow.step", None),
        ("guardrail", None),
    ],
)
def test_the_span_kind_determines_the_role(kind: str, role: str | None) -> None:
    assert role_of(_span(kind)) == role


@pytest.mark.parametrize(
    ("given", "role"), [({"args": ["Go"], "kwargs": {}}, "entry"), ({"args": [], "kwargs": {}}, None), (None, None)]
)
def test_a_session_span_is_a_request_only_if_it_has_an_input(given: Any, role: str | None) -> None:
    written = {} if given is None else {"agentops__entity__input": json.dumps(given)}
    assert role_of(_span("session", **written)) == role


@pytest.mark.parametrize(
    ("kind", "role"), [("graph_initialization", "aside"), ("graph_compilation", "aside"), ("langgraph_invoke", "agent")]
)
def test_a_span_that_builds_a_graph_is_not_a_request(kind: str, role: str) -> None:
    assert role_of(_span("workflow", workflow__type=kind)) == role


def _tool(name: str = "x", **attributes: Any) -> SpanRecord:
    return _span("tool", name, tool__name=name, tool__parameters='{"n": 1}', **attributes)


def test_a_tool_call_with_status_succeeded_and_an_error_has_failed() -> None:
    failed = _tool(tool__status="succeeded", tool__result="sorry", error__type="AgentError")
    ((call,),) = (run.tool_calls for run in extract([failed]))
    assert (call.arguments, call.result, call.error) == ({"n": 1}, "sorry", "AgentError")


@pytest.mark.parametrize(
    ("status", "error"), [("failed", "no such city"), ("error", "no such city"), ("succeeded", None), ("success", None)]
)
def test_the_tool_status_determines_whether_the_call_failed(status: str, error: str | None) -> None:
    ((call,),) = (run.tool_calls for run in extract([_tool(tool__status=status, tool__result="no such city")]))
    assert call.error == error


def test_a_handoff_is_one_call_and_not_a_used_tool() -> None:
    root = span("trip", workflow__step__type="trace", end_ns=10**15, **OURS)
    first = _span("agent", agent__name="triage", **inside(root))
    asks = {"gen_ai__completion__0__tool_calls__0__name": "transfer_to_legal"}
    turn = _span("llm", gen_ai__prompt__0__role="user", gen_ai__prompt__0__content="Go", **asks, **inside(first))
    passed = span("handoff", from_agent="triage", to_agent="legal", **OURS, **inside(first))
    second = _span("agent", agent__name="legal", **inside(root))
    (run,) = extract([root, first, turn, passed, second])
    assert [(call.name, call.kind, call.agent) for call in run.tool_calls] == [("legal", "handoff", "triage")]
    assert (run.input, run.agent, run.tools_used) == ("Go", "triage", ())


def test_a_handoff_attribute_of_another_scope_is_ignored() -> None:
    assert role_of(span("message", to_agent="legal")) is None


def test_an_agent_in_a_tool_is_one_call_of_an_agent() -> None:
    outer = _span("agent", agent__name="trip", end_ns=10**15)
    used = _tool("research", end_ns=10**15, **inside(outer))
    helper = _span("agent", agent__name="research", **inside(used))
    (run,) = extract([outer, used, helper])
    assert [(call.name, call.kind) for call in run.tool_calls] == [("research", "agent")]


def test_the_arguments_and_results_of_decorated_functions_are_read() -> None:
    root = _span(
        "workflow",
        "trip.workflow",
        agentops__workflow__input='{"args": ["Go"], "kwargs": {}}',
        agentops__workflow__output="Done",
        end_ns=10**15,
    )
    agent = _span("agent", "helper.agent", operation__name="helper", end_ns=10**15, **inside(root))
    used = _span(
        "tool",
        "weather.tool",
        operation__name="weather",
        agentops__tool__input='{"args": [], "kwargs": {"city": "Porto"}}',
        agentops__tool__output='{"temp": 21}',
        **inside(agent),
    )
    (run,) = extract([root, agent, used])
    assert (run.input, run.output, run.agent) == ("Go", "Done", "helper")
    assert [(call.name, call.arguments, call.result) for call in run.tool_calls] == [
        ("weather", {"city": "Porto"}, {"temp": 21})
    ]


def test_the_attributes_of_the_langchain_callback_are_read() -> None:
    asked, said = {"role": "user", "content": "Go"}, {"role": "assistant", "content": "Done"}
    session = _span("session", end_ns=10**15)
    graph = _span(
        "chain",
        chain__inputs=json.dumps({"messages": [asked]}),
        chain__outputs=json.dumps({"messages": [asked, said]}),
        end_ns=10**15,
        **inside(session),
    )
    used = _span(
        "tool",
        langchain__tool__name="weather",
        langchain__tool__input="{'city': 'Porto'}",
        langchain__tool__output=json.dumps({"content": "21", "type": "tool", "tool_call_id": "c1"}),
        **inside(graph),
    )
    assert role_of(graph) == "agent"
    (run,) = extract([session, graph, used])
    assert (run.input, run.output) == ("Go", "Done")
    assert [(call.name, call.arguments, call.result, call.call_id) for call in run.tool_calls] == [
        ("weather", {"city": "Porto"}, 21, "c1")
    ]


@pytest.mark.parametrize(
    "prefix", ["gen_ai__request__functions__0", "gen_ai__request__tools__0"], ids=["parameters", "arguments"]
)
def test_tool_definitions_in_numbered_attributes_are_read(prefix: str) -> None:
    schema = "parameters" if prefix.endswith("functions__0") else "arguments"
    offered = {f"{prefix}__name": "x", f"{prefix}__{schema}": '{"type": "object"}'}
    ((tool,),) = (run.available_tools for run in extract([_span("llm", **offered)]))
    assert (tool.name, tool.parameters) == ("x", {"type": "object"})


def test_the_group_id_is_the_session_id() -> None:
    root = span("trip", workflow__step__type="trace", group__id="s1", **OURS)
    (run,) = extract([root, _tool(**inside(root))])
    assert run.session_id == "s1"


def test_the_goal_of_a_crewai_agent_is_not_the_input() -> None:
    agent = _span(
        "agent", agent__name="", agent__role="Guide", agentops__entity__input="Help", crewai__agent__goal="Help"
    )
    (run,) = extract([agent])
    assert (run.input, run.agent) == (None, "Guide")


@pytest.mark.parametrize("within", [True, False])
def test_a_call_that_the_openai_client_requested_is_counted_once(within: bool) -> None:
    words = {"gen_ai__prompt__0__role": "user", "gen_ai__prompt__0__content": "Go"}
    root = span("POST /chat", end_ns=10**15)
    first = span("chat", gen_ai__request__type="chat", gen_ai__completion__0__role="assistant", **words, **inside(root))
    asked = span(
        "tool_call.x",
        tool__name="x",
        tool__parameters='{"n": 1}',
        tool__call__id="c1",
        tool__call__type="function",
        **inside(first if within else root),
    )
    used = _tool(**inside(root))
    then = {
        "gen_ai__prompt__1__role": "assistant",
        "gen_ai__prompt__1__tool_calls__0__id": "c1",
        "gen_ai__prompt__1__tool_calls__0__name": "x",
        "gen_ai__prompt__1__tool_calls__0__arguments": '{"n": 1}',
        "gen_ai__prompt__2__role": "tool",
        "gen_ai__prompt__2__tool_call_id": "c1",
        "gen_ai__prompt__2__content": "7",
        "gen_ai__completion__0__content": "Done",
    }
    second = span("chat", gen_ai__request__type="chat", **words, **then, **inside(root))
    for spans, evidence in (
        ([root, first, asked, second], "requested"),
        ([root, first, asked, used, second], "executed"),
    ):
        (run,) = extract(spans)
        assert [(call.name, call.arguments, call.call_id, call.evidence) for call in run.tool_calls] == [
            ("x", {"n": 1}, "c1", evidence)
        ]
        assert (run.input, run.output) == ("Go", "Done")
