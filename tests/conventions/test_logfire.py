"""Logfire spans beyond the recorded exports."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from goldspan.conventions import installed_conventions
from goldspan.extraction import extract
from goldspan.model import SpanRecord, ToolCall
from support.span_builders import span

read = installed_conventions().classify


def logfire(
    template: str,
    *,
    schema: dict[str, Any] | None = None,
    scope: str = "logfire",
    parent: str | None = None,
    **attributes: Any,
) -> SpanRecord:
    """A Logfire span: its name is the message template, and a schema lists its attributes."""
    attributes |= {"logfire.msg_template": template, "logfire.span_type": "span"}
    if schema is not None:
        attributes["logfire.json_schema"] = json.dumps({"type": "object", "properties": schema})
    # Not as keywords of `span`: Logfire's own attributes have names like `name` and `events`.
    return replace(span(template, scope=scope, parent_id=parent), attributes=attributes)


def only_call(seen: SpanRecord) -> ToolCall:
    [run] = extract([seen])
    [call] = run.tool_calls
    return call


@pytest.mark.parametrize(
    ("template", "role"),
    [
        ("execute_tool weather", "tool"),
        ("execute_tool {name}", "tool"),
        ("execute_tool weather {city=}", "tool"),
        ("invoke_agent trip", "agent"),
        ("Calling app.weather", None),
        ("weather", None),
        ("my execute_tool weather", None),
    ],
)
def test_the_message_template_determines_the_role_of_a_function(template: str, role: str | None) -> None:
    assert read(logfire(template, code="weather", name="weather")).role == role


@pytest.mark.parametrize(
    "template", ["execute_tool weather", "execute_tool {name}", "execute_tool {name!r}", "execute_tool weather {city=}"]
)
def test_a_tool_name_is_read_from_the_template_or_its_attribute(template: str) -> None:
    seen = logfire(
        template, schema={"city": {}, **({"name": {}} if "{name" in template else {})}, city="Rome", name="weather"
    )
    call = only_call(seen)
    assert (call.name, call.arguments) == ("weather", {"city": "Rome"})


def test_arguments_are_the_attributes_in_the_schema_and_text_is_not_parsed() -> None:
    call = only_call(
        logfire(
            "execute_tool book",
            schema={"city": {}, "zip": {}, "nights": {}, "guests": {"type": "array"}, "return": {"type": "object"}},
            city="Rome",
            zip="00184",
            nights=2,
            guests='["Ann"]',
            **{"return": '{"ok":true}'},
        )
    )
    assert call.arguments == {"city": "Rome", "zip": "00184", "nights": 2, "guests": ["Ann"]}
    assert call.result == {"ok": True}


@pytest.mark.parametrize(("schema", "arguments"), [({}, {}), (None, None)])
def test_without_a_schema_the_arguments_are_unknown(schema: Any, arguments: Any) -> None:
    assert only_call(logfire("execute_tool ping", schema=schema)).arguments == arguments


def test_the_argument_of_an_agent_is_the_input_and_its_return_value_is_the_output() -> None:
    [run] = extract(
        [logfire("invoke_agent trip", schema={"question": {}, "return": {}}, question="Where?", **{"return": "Here."})]
    )
    assert (run.agent, run.input, run.output) == ("trip", "Where?", "Here.")


# logfire/_internal/integrations/openai_agents.py: `attributes_from_span_data` and the templates in `create_span`.


def test_a_function_of_the_agents_sdk_is_a_tool() -> None:
    call = only_call(
        logfire(
            "Function: {name}",
            name="weather",
            input='{"city":"Rome"}',
            output="21 degrees",
            mcp_data='{"server":"meteo"}',
            error='{"message":"Error running tool (non-fatal)","data":{"tool_name":"weather","error":"offline"}}',
        )
    )
    assert (call.name, call.arguments, call.result) == ("weather", {"city": "Rome"}, "21 degrees")
    assert (call.server, call.error) == ("meteo", "offline")


def test_a_handoff_of_the_agents_sdk_is_not_a_tool() -> None:
    reading = read(logfire("Handoff: {from_agent} → {to_agent}", from_agent="a", to_agent="b"))
    assert (reading.role, reading.kind, reading.name) == ("tool", "handoff", "b")


def test_the_agents_sdk_trace_is_the_request_and_its_agent_runs_are_agents() -> None:
    whole = read(logfire("OpenAI Agents trace: {name}", name="Agent workflow", group_id="g1"))
    assert (whole.role, whole.session_id) == ("entry", "g1")
    agent = read(logfire("Agent run: {name!r}", name="helper"))
    assert (agent.role, agent.name) == ("agent", "helper")


CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}}


@pytest.mark.parametrize(
    ("template", "attributes"),
    [
        pytest.param(
            # llm_providers/openai.py: request and response in separate attributes.
            "Chat Completion with {request_data[model]!r}",
            {
                "request_data": {"messages": [{"role": "user", "content": "Warm?"}], "model": "gpt"},
                "response_data": {"message": {"role": "assistant", "tool_calls": [CALL]}},
            },
            id="OpenAI",
        ),
        pytest.param(
            # llm_providers/anthropic.py: `tool_calls` collects the content blocks of a response.
            "Message with {request_data[model]!r}",
            {
                "request_data": {"messages": [{"role": "user", "content": "Warm?"}], "model": "claude"},
                "response_data": {"message": {"role": "assistant", "tool_calls": [CALL]}},
            },
            id="Anthropic",
        ),
        pytest.param(
            # openai_agents.py: `GenerationSpanData`, request and response in one list.
            "Chat completion with {gen_ai.request.model!r}",
            {
                "request_data": {
                    "messages": [{"role": "user", "content": "Warm?"}, {"role": "assistant", "tool_calls": [CALL]}]
                }
            },
            id="generation of the Agents SDK",
        ),
        pytest.param(
            # openai_agents.py: `ResponseSpanData`, request and response in one list of events.
            "Responses API with {gen_ai.request.model!r}",
            {
                "events": [
                    {"event.name": "gen_ai.user.message", "content": "Warm?", "role": "user"},
                    {"event.name": "gen_ai.choice", "index": 0, "message": {"role": "assistant", "tool_calls": [CALL]}},
                ]
            },
            id="response of the Agents SDK",
        ),
    ],
)
def test_a_model_span_has_the_requested_calls(template: str, attributes: dict[str, Any]) -> None:
    seen = logfire(template, **{key: json.dumps(value) for key, value in attributes.items()})
    [run] = extract([seen])
    assert run.input == "Warm?"
    assert [(call.name, call.arguments, call.call_id) for call in run.tool_calls] == [
        ("weather", {"city": "Rome"}, "c1")
    ]


@pytest.mark.parametrize("template", ["MCP request: tools/call add", "MCP server handle request: tools/call"])
def test_an_mcp_request_to_call_a_tool_is_a_call(template: str) -> None:
    # mcp.py: the request and the response of the MCP protocol.
    call = only_call(
        logfire(
            template,
            request='{"method":"tools/call","params":{"name":"add","arguments":{"a":1,"b":2},"_meta":null}}',
            response='{"content":[{"type":"text","text":"no"}],"isError":true}',
        )
    )
    assert (call.name, call.arguments, call.result, call.error) == ("add", {"a": 1, "b": 2}, "no", "no")


def test_an_mcp_request_to_list_tools_is_not_a_call() -> None:
    assert read(logfire("MCP request: tools/list", request='{"method":"tools/list"}')).role is None


def test_a_conversation_of_the_claude_agent_sdk_is_a_request_with_its_tools() -> None:
    # claude_agent_sdk.py before it followed the GenAI conventions.
    scope = "logfire.claude_agent_sdk"
    root = logfire("claude.conversation", scope=scope, prompt="Count", session_id="s1")
    tool = logfire(
        "Bash", scope=scope, parent=root.span_id, tool_input='{"command":"ls"}', tool_response="a b", error="exit 1"
    )
    [run] = extract([root, tool])
    assert (run.input, run.session_id) == ("Count", "s1")
    assert [(call.name, call.arguments, call.error) for call in run.tool_calls] == [
        ("Bash", {"command": "ls"}, "exit 1")
    ]


@pytest.mark.parametrize(
    "attributes",
    [
        {"request_data": "cut o"},
        {"request_data": "[1]", "response_data": "7"},
        {"events": '{"no": "list"}'},
        {"request": "3", "response": "null"},
        {"logfire.json_schema": "[]", "return": 5},
        {"error": "[]", "mcp_data": '"x"', "name": 4},
    ],
)
@pytest.mark.parametrize(
    "template", ["Message with x", "Responses API", "MCP request: tools/call x", "execute_tool x", "Function: {name}"]
)
def test_damaged_attributes_raise_no_error(template: str, attributes: dict[str, Any]) -> None:
    assert len(extract([logfire(template, **attributes)])) <= 1


@pytest.mark.parametrize(("group", "session"), [("s1", "s1"), ("null", None), (None, None)])
def test_the_group_id_of_an_agents_sdk_trace_is_the_session(group: str | None, session: str | None) -> None:
    assert read(logfire("OpenAI Agents trace: {name}", group_id=group)).session_id == session


def test_tool_definitions_are_read_from_the_response_of_the_agents_sdk() -> None:
    response = json.dumps({"tools": [{"type": "function", "name": "pay", "parameters": {"type": "object"}}]})
    reading = read(logfire("Responses API with {gen_ai.request.model!r}", response=response))
    assert [tool.name for place in reading.tool_definitions for tool in place()] == ["pay"]
