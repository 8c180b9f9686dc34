"""Model messages in the notations of several conventions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.content import messages
from goldspan.content.parts import ToolResult
from goldspan.content.standard_messages import decode_standard_message
from goldspan.content.tools import tool_definitions
from goldspan.conventions.span_facts import Message, RequestedCall
from goldspan.model import ABSENT

CALL = RequestedCall("search", {"q": 1}, "c1")


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"args": [[{"role": "user", "content": "Go"}], "gpt"], "kwargs": {}}, id="by position"),
        pytest.param({"args": [], "kwargs": {"messages": [{"role": "user", "content": "Go"}]}}, id="by name"),
    ],
)
def test_messages_are_found_in_the_arguments_of_a_decorated_function(given: Any) -> None:
    assert messages.from_json(json.dumps(given)) == (Message("user", "Go"),)


@pytest.mark.parametrize("given", [{"args": ["Go"], "kwargs": {}}, {"args": 3, "kwargs": None}])
def test_arguments_of_a_decorated_function_without_messages_yield_no_messages(given: Any) -> None:
    assert messages.from_json(json.dumps(given)) == ()


@pytest.mark.parametrize(
    "item",
    [
        pytest.param(
            {
                "role": "assistant",
                "parts": [{"type": "tool_call", "id": "c1", "name": "search", "arguments": {"q": 1}}],
            },
            id="GenAI parts",
        ),
        pytest.param(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "function": {"name": "search", "arguments": {"q": 1}}}],
            },
            id="OpenAI chat",
        ),
        pytest.param(
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "search", "input": {"q": 1}}]},
            id="Anthropic content",
        ),
        pytest.param(
            {
                "role": "assistant",
                "content": json.dumps([{"type": "tool_use", "id": "c1", "name": "search", "input": {"q": 1}}]),
            },
            id="content blocks as text",
        ),
        pytest.param(
            {
                "role": "assistant",
                "tool_calls": [{"id": "c1", "name": "search", "arguments": {"q": 1}}],
                "contents": [{"type": "tool_use", "tool_call": {"id": "c1", "name": "search", "arguments": {"q": 1}}}],
            },
            id="said twice in one message",
        ),
        pytest.param(
            {
                "role": "assistant",
                "parts": [{"type": "function_call", "call_id": "c1", "name": "search", "arguments": {"q": 1}}],
            },
            id="OpenAI responses",
        ),
        pytest.param(
            {"type": "function_call", "id": "fc1", "call_id": "c1", "name": "search", "arguments": {"q": 1}},
            id="item of the responses",
        ),
        pytest.param(
            {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "search", "args": {"q": 1}}}]},
            id="Gemini",
        ),
        pytest.param(
            {
                "role": "model",
                "parts": [
                    {"function_call": {"id": "c1", "name": "search", "args": {"q": 1}}, "thought_signature": "x"}
                ],
            },
            id="Gemini in snake case",
        ),
        pytest.param(
            {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c1", "name": "search", "input": {"q": 1}}}]},
            id="Bedrock",
        ),
        pytest.param(
            {
                "role": "assistant",
                "content": [{"type": "tool-call", "toolCallId": "c1", "toolName": "search", "input": {"q": 1}}],
            },
            id="AI SDK",
        ),
        pytest.param({"toolCallId": "c1", "toolName": "search", "args": {"q": 1}}, id="AI SDK, the call alone"),
        pytest.param(
            {"role": "model", "content": [{"toolRequest": {"ref": "c1", "name": "search", "input": {"q": 1}}}]},
            id="Genkit",
        ),
        pytest.param(
            {
                "type": "ai",
                "content": "",
                "tool_calls": [{"name": "search", "args": {"q": 1}, "id": "c1", "type": "tool_call"}],
            },
            id="LangChain",
        ),
        pytest.param(
            {"type": "ai", "data": {"content": "", "tool_calls": [{"name": "search", "args": {"q": 1}, "id": "c1"}]}},
            id="LangChain's data",
        ),
        pytest.param(
            {
                "lc": 1,
                "type": "constructor",
                "id": ["langchain", "AIMessage"],
                "kwargs": {"content": "", "tool_calls": [{"name": "search", "args": {"q": 1}, "id": "c1"}]},
            },
            id="LangChain constructor",
        ),
        pytest.param(
            {
                "type": "ai",
                "content": "",
                "additional_kwargs": {
                    "tool_calls": [{"id": "c1", "function": {"name": "search", "arguments": {"q": 1}}}]
                },
            },
            id="older LangChain",
        ),
        pytest.param(
            {
                "kind": "response",
                "parts": [{"part_kind": "tool-call", "tool_name": "search", "args": {"q": 1}, "tool_call_id": "c1"}],
            },
            id="pydantic-ai history",
        ),
        pytest.param(
            {"role": "assistant", "content": [{"id": "c1", "name": "search", "arguments": {"q": 1}}]}, id="autogen"
        ),
        pytest.param(
            {"id": "c1", "type": "function", "function": {"name": "search", "arguments": {"q": 1}}}, id="the call alone"
        ),
        pytest.param(
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {"tool_calls": [{"id": "c1", "function": {"name": "search", "arguments": {"q": 1}}}]},
            },
            id="choice",
        ),
        pytest.param(
            {
                "role": "assistant",
                "tool_calls": [{"id": "c1", "type": "custom", "custom": {"name": "search", "input": {"q": 1}}}],
            },
            id="OpenAI's custom tool",
        ),
    ],
)
def test_a_tool_call_is_read_once_in_every_notation(item: dict[str, Any]) -> None:
    assert messages.from_json(json.dumps([item])) == (Message("assistant", None, (CALL,)),)
    assert messages.from_json([item])[0].tool_calls == (CALL,)


@pytest.mark.parametrize(
    "item",
    [
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": {"n": 1}}]},
        {"role": "user", "parts": [{"type": "tool_call_response", "id": "c1", "result": {"n": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": '{"n": 1}'}]},
        {"role": "tool", "tool_call_id": "c1", "content": '{"n": 1}'},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": '{"n": 1}'}]},
        {"role": "tool", "id": "c1", "name": "search", "content": {"n": 1}},
        {"type": "function_call_output", "call_id": "c1", "output": '{"n": 1}'},
        {"role": "user", "parts": [{"functionResponse": {"id": "c1", "name": "search", "response": {"n": 1}}}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": [{"json": {"n": 1}}]}}]},
        {
            "role": "tool",
            "content": [{"type": "tool-result", "toolCallId": "c1", "output": {"type": "json", "value": {"n": 1}}}],
        },
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c1", "result": {"n": 1}}]},
        {"role": "tool", "content": [{"toolResponse": {"ref": "c1", "name": "search", "output": {"n": 1}}}]},
        {"type": "tool", "content": '{"n": 1}', "tool_call_id": "c1", "id": "m1", "status": "success"},
        {"type": "tool", "data": {"content": '{"n": 1}', "tool_call_id": "c1"}},
        {"kind": "request", "parts": [{"part_kind": "tool-return", "tool_call_id": "c1", "content": {"n": 1}}]},
        {"role": "function", "content": [{"name": "search", "content": '{"n": 1}', "call_id": "c1"}]},
    ],
)
def test_a_tool_result_is_read_in_every_notation_and_is_not_user_text(item: dict[str, Any]) -> None:
    (message,) = messages.from_json([item])
    assert message.tool_results == (ToolResult("c1", {"n": 1}),)
    assert not message.is_from_user


def test_flattened_messages_are_in_the_order_of_their_numbers() -> None:
    flat = {f"llm.input_messages.{n}.message.content": f"m{n}" for n in (10, 2, 0)}
    flat |= {f"llm.input_messages.{n}.message.role": "user" for n in (10, 2, 0)}
    assert [message.text for message in messages.from_flat(flat, "llm.input_messages", "message")] == [
        "m0",
        "m2",
        "m10",
    ]


@pytest.mark.parametrize(
    "item",
    [
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "no", "is_error": True}]},
        {
            "role": "user",
            "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "no"}], "status": "error"}}],
        },
        {
            "role": "tool",
            "content": [{"type": "tool-result", "toolCallId": "c1", "output": {"type": "error-text", "value": "no"}}],
        },
        {"type": "tool", "content": "no", "tool_call_id": "c1", "status": "error"},
        {
            "kind": "request",
            "parts": [{"part_kind": "retry-prompt", "tool_name": "f", "tool_call_id": "c1", "content": "no"}],
        },
        {"role": "tool", "content": [{"content": "no", "call_id": "c1", "is_error": True}]},
    ],
)
def test_a_result_flagged_as_an_error_is_an_error(item: dict[str, Any]) -> None:
    (message,) = messages.from_json([item])
    assert message.tool_results == (ToolResult("c1", "no", is_error=True),)


def hosted(name: str, **known: Any) -> RequestedCall:
    return RequestedCall(name, kind="hosted", **known)


@pytest.mark.parametrize(
    ("parts", "call"),
    [
        pytest.param(
            [
                {
                    "type": "web_search_call",
                    "id": "ws",
                    "status": "completed",
                    "action": {"type": "search", "query": "q"},
                }
            ],
            hosted("web_search", call_id="ws", arguments={"type": "search", "query": "q"}),
            id="OpenAI web search",
        ),
        pytest.param(
            [{"type": "file_search_call", "id": "fs", "queries": ["q"], "results": [{"text": "t"}]}],
            hosted("file_search", call_id="fs", arguments={"queries": ["q"]}, result=[{"text": "t"}]),
            id="OpenAI file search",
        ),
        pytest.param(
            [{"type": "code_interpreter_call", "id": "ci", "code": "1/0", "outputs": None, "status": "failed"}],
            hosted("code_interpreter", call_id="ci", arguments={"code": "1/0"}, error="failed"),
            id="OpenAI code interpreter that failed",
        ),
        pytest.param(
            [
                {
                    "type": "mcp_call",
                    "id": "m1",
                    "name": "roll",
                    "arguments": "{}",
                    "server_label": "dice",
                    "output": "5",
                    "error": None,
                }
            ],
            hosted("roll", call_id="m1", arguments="{}", server="dice", result=5),
            id="OpenAI remote MCP",
        ),
        pytest.param(
            [
                {
                    "type": "mcp_call",
                    "id": "m1",
                    "name": "roll",
                    "arguments": "{}",
                    "server_label": "dice",
                    "error": {"code": 1},
                }
            ],
            hosted("roll", call_id="m1", arguments="{}", server="dice", error='{"code": 1}'),
            id="OpenAI remote MCP that failed",
        ),
        pytest.param(
            [
                {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}},
                {
                    "type": "web_search_tool_result",
                    "tool_use_id": "s1",
                    "content": [{"type": "web_search_result", "url": "u"}],
                },
            ],
            hosted(
                "web_search", call_id="s1", arguments={"query": "q"}, result=[{"type": "web_search_result", "url": "u"}]
            ),
            id="Anthropic web search",
        ),
        pytest.param(
            [
                {"type": "server_tool_use", "id": "s1", "name": "code_execution", "input": {"code": "1"}},
                {
                    "type": "code_execution_tool_result",
                    "tool_use_id": "s1",
                    "content": {"type": "code_execution_tool_result_error", "error_code": "unavailable"},
                },
            ],
            hosted(
                "code_execution",
                call_id="s1",
                arguments={"code": "1"},
                result={"type": "code_execution_tool_result_error", "error_code": "unavailable"},
                error='{"type": "code_execution_tool_result_error", "error_code": "unavailable"}',
            ),
            id="Anthropic code execution that failed",
        ),
        pytest.param(
            [
                {"type": "mcp_tool_use", "id": "s1", "name": "roll", "server_name": "dice", "input": {}},
                {
                    "type": "mcp_tool_result",
                    "tool_use_id": "s1",
                    "is_error": False,
                    "content": [{"type": "text", "text": "5"}],
                },
            ],
            hosted("roll", call_id="s1", arguments={}, server="dice", result=5),
            id="Anthropic remote MCP",
        ),
        pytest.param(
            [
                {
                    "type": "server_tool_call",
                    "id": "s1",
                    "name": "web_search",
                    "server_tool_call": {"type": "web_search", "arguments": {"q": 1}},
                },
                {
                    "type": "server_tool_call_response",
                    "id": "s1",
                    "server_tool_call_response": {"type": "web_search", "response": {"hits": 1}},
                },
            ],
            hosted("web_search", call_id="s1", arguments={"q": 1}, result={"hits": 1}),
            id="GenAI",
        ),
        pytest.param(
            [
                {"type": "tool_call", "id": "s1", "name": "web_search", "arguments": {"q": 1}, "builtin": True},
                {"type": "tool_call_response", "id": "s1", "name": "web_search", "result": "hit", "builtin": True},
            ],
            hosted("web_search", call_id="s1", arguments={"q": 1}, result="hit"),
            id="pydantic-ai",
        ),
        pytest.param(
            [
                {
                    "type": "tool-call",
                    "toolCallId": "s1",
                    "toolName": "web_search",
                    "input": {"q": 1},
                    "providerExecuted": True,
                },
                {
                    "type": "tool-result",
                    "toolCallId": "s1",
                    "output": {"type": "text", "value": "hit"},
                    "providerExecuted": True,
                },
            ],
            hosted("web_search", call_id="s1", arguments={"q": 1}, result="hit"),
            id="AI SDK",
        ),
    ],
)
def test_a_hosted_call_is_read_with_the_result_from_the_same_message(
    parts: list[dict[str, Any]], call: RequestedCall
) -> None:
    (message,) = messages.from_json([{"role": "assistant", "content": parts}])
    assert message == Message("assistant", None, (call,))


def test_the_result_of_a_hosted_call_in_another_message_is_a_tool_result() -> None:
    part = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": "hit"}
    assert messages.from_json([{"role": "user", "content": [part]}])[0].tool_results == (ToolResult("s1", "hit"),)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"role": "human", "content": "Hi"}, Message("user", "Hi")),
        ({"role": "developer", "content": "Be kind."}, Message("system", "Be kind.")),
        ({"role": "model", "parts": [{"text": "Hm.", "thought": True}, {"text": "Hi"}]}, Message("assistant", "Hi")),
        (
            {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_image"}]},
            Message("user", "a"),
        ),
        (
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Hi"}]},
            Message("assistant", "Hi"),
        ),
        ({"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}, Message("assistant", "No.")),
        ({"role": "user", "content": {"type": "text", "text": "Hi"}}, Message("user", "Hi")),
        ({"role": "user", "content": '[{"type": "text", "text": "Hi"}]'}, Message("user", "Hi")),
        ({"role": "user", "content": '[{"type": "circle"}]'}, Message("user", '[{"type": "circle"}]')),
        ({"role": "user", "content": "[1, 2]"}, Message("user", "[1, 2]")),
        ({"role": "user", "content": "FunctionCall(what is that?)"}, Message("user", "FunctionCall(what is that?)")),
        (
            {
                "kind": "request",
                "parts": [
                    {"part_kind": "system-prompt", "content": "Be kind."},
                    {"part_kind": "user-prompt", "content": ["Hi", {"kind": "image-url", "url": "u"}]},
                ],
            },
            Message("user", "Hi"),
        ),
        (
            {"role": "assistant", "function_call": {"name": "search", "arguments": "{}"}},
            Message("assistant", None, (RequestedCall("search", "{}"),)),
        ),
        (
            {"role": "tool", "parts": [{"type": "text", "content": "done"}]},
            Message("tool", "done", tool_results=(ToolResult(None, "done"),)),
        ),
    ],
)
def test_role_and_text_are_read_in_every_notation(item: dict[str, Any], message: Message) -> None:
    assert messages.from_json([item]) == (message,)


def test_a_tool_result_is_never_read_as_tool_calls() -> None:
    found = [{"type": "function_call", "name": "drop_tables", "arguments": {}}]
    (message,) = messages.from_json([{"role": "tool", "tool_call_id": "c1", "content": json.dumps(found)}])
    assert (message.tool_calls, message.tool_results) == ((), (ToolResult("c1", found),))


@pytest.mark.parametrize(
    "written",
    [
        pytest.param({"model": "m", "messages": [{"role": "user", "content": "Hi"}]}, id="request"),
        pytest.param({"version": "0.1.0", "messages": [{"role": "user", "content": "Hi"}]}, id="versioned"),
        pytest.param({"messages": [[{"type": "human", "content": "Hi"}]]}, id="batches"),
        pytest.param(['{"role": "user", "content": "Hi"}'], id="each message as JSON text"),
        pytest.param({"contents": [{"role": "user", "parts": [{"text": "Hi"}]}], "config": {}}, id="Gemini's request"),
        pytest.param(["HumanMessage(content='Hi', additional_kwargs={})"], id="repr"),
        pytest.param(["content='Hi' additional_kwargs={} response_metadata={} id='1'"], id="str"),
        pytest.param(["ChatMessage(role=<Role.USER: 'user'>, blocks=[TextBlock(text='Hi')])"], id="LlamaIndex"),
        pytest.param("[TextMessage(source='user', content='Hi')]", id="autogen"),
        pytest.param("[ModelRequest(parts=[UserPromptPart(content='Hi')])]", id="pydantic-ai"),
    ],
)
def test_messages_are_found_in_every_known_envelope_and_notation(written: Any) -> None:
    assert messages.from_json(written) == (Message("user", "Hi"),)
    assert messages.from_json(json.dumps(written)) == (Message("user", "Hi"),)


@pytest.mark.parametrize(
    "text",
    [
        "ResponseFunctionToolCall(arguments='{\"q\": 1}', call_id='c1', name='search', type='function_call', id='fc1')",
        "[ResponseFunctionToolCall(arguments='{\"q\": 1}', call_id='c1', name='search', type='function_call')]",
        "ToolCallPart(tool_name='search', args='{\"q\": 1}', tool_call_id='c1')",
        "[FunctionCall(id='c1', arguments='{\"q\": 1}', name='search')]",
    ],
)
def test_calls_serialized_as_objects_in_a_text_are_read(text: str) -> None:
    (message,) = messages.from_json([{"role": "assistant", "parts": [{"type": "text", "content": text}]}])
    assert message == Message("assistant", None, (RequestedCall("search", '{"q": 1}', "c1"),))


@pytest.mark.parametrize(
    ("name", "body", "message"),
    [
        ("gen_ai.user.message", {"content": "Hi"}, Message("user", "Hi")),
        ("gen_ai.user.message", "Hi", Message("user", "Hi")),
        ("gen_ai.user.message", {"content": {"parts": [{"text": "Hi"}], "role": "user"}}, Message("user", "Hi")),
        ("gen_ai.system.message", {"content": "Be kind."}, Message("system", "Be kind.")),
        (
            "gen_ai.choice",
            {
                "index": 0,
                "message": {"tool_calls": [{"id": "c1", "function": {"name": "search", "arguments": {"q": 1}}}]},
            },
            Message("assistant", None, (CALL,)),
        ),
        ("gen_ai.choice", {"index": 0, "content": {"parts": [{"text": "Hi"}]}}, Message("assistant", "Hi")),
        (
            "gen_ai.assistant.message",
            '{"tool_calls": [{"id": "c1", "function": {"name": "search", "arguments": {"q": 1}}}]}',
            Message("assistant", None, (CALL,)),
        ),
        (
            "gen_ai.tool.message",
            {"id": "c1", "content": '{"n": 1}'},
            Message("tool", '{"n": 1}', tool_results=(ToolResult("c1", {"n": 1}),)),
        ),
    ],
)
def test_the_message_in_a_log_event_is_read(name: str, body: Any, message: Message) -> None:
    assert messages.from_event(name, body) == (message,)


FLAT = "llm.output_messages.0.message"


@pytest.mark.parametrize(
    ("place", "fields"),
    [
        ("tool_calls.0.tool_call", {"id": "c1", "function.name": "search", "function.arguments": '{"q": 1}'}),
        ("contents.0.tool_call", {"id": "c1", "function.name": "search", "function.arguments": '{"q": 1}'}),
        ("contents.0.message_content", {"type": "tool_use", "id": "c1", "name": "search", "input": '{"q": 1}'}),
    ],
)
def test_calls_in_flattened_messages_are_read(place: str, fields: dict[str, str]) -> None:
    flat = {f"{FLAT}.role": "assistant"} | {f"{FLAT}.{place}.{key}": value for key, value in fields.items()}
    expected = (Message("assistant", None, (RequestedCall("search", '{"q": 1}', "c1"),)),)
    assert messages.from_flat(flat, "llm.output_messages", "message") == expected


def test_a_duplicate_flattened_call_without_an_id_is_one_call() -> None:
    flat = {f"{FLAT}.role": "assistant"}
    for number in range(2):
        for place in (f"tool_calls.{number}", f"contents.{number}"):
            flat[f"{FLAT}.{place}.tool_call.function.name"] = "search"
            flat[f"{FLAT}.{place}.tool_call.function.arguments"] = '{"q": 1}'
    (message,) = messages.from_flat(flat, "llm.output_messages", "message")
    assert message.tool_calls == (RequestedCall("search", '{"q": 1}'),) * 2


def test_the_older_flattened_forms_of_calls_and_results_are_read() -> None:
    flat = {
        "p.0.message.role": "user",
        "p.0.message.contents.0.message_content.type": "text",
        "p.0.message.contents.0.message_content.text": "Hi",
        "p.1.message.role": "assistant",
        "p.1.message.function_call_name": "search",
        "p.1.message.function_call_arguments_json": '{"q": 1}',
        "p.2.message.role": "tool",
        "p.2.message.tool_call_id": "c1",
        "p.2.message.name": "search",
        "p.2.message.content": '{"n": 1}',
        "p.3.message.role": "function",
        "p.3.function.0": '{"name": "search", "content": "no", "call_id": "c2", "is_error": true}',
    }
    assert messages.from_flat(flat, "p", "message") == (
        Message("user", "Hi"),
        Message("assistant", None, (RequestedCall("search", '{"q": 1}'),)),
        Message("tool", '{"n": 1}', tool_results=(ToolResult("c1", {"n": 1}),)),
        Message("tool", None, tool_results=(ToolResult("c2", "no", is_error=True),)),
    )


def test_flattened_calls_of_traceloop_are_read() -> None:
    flat = {
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.tool_calls.0.id": "c1",
        "gen_ai.completion.0.tool_calls.0.name": "search",
        "gen_ai.completion.0.tool_calls.0.arguments": '{"q": 1}',
        "gen_ai.completion.0.finish_reason": "tool_calls",
        "gen_ai.completions": "something else",
    }
    expected = (Message("assistant", None, (RequestedCall("search", '{"q": 1}', "c1"),)),)
    assert messages.from_flat(flat, "gen_ai.completion") == expected


def test_a_structured_attribute_among_flattened_ones_is_not_modified() -> None:
    content = {"0": {"text": "Hi"}}
    flat = {"p.0.role": "user", "p.0.content": content, "p.0.content.0.text": "other"}
    messages.from_flat(flat, "p")
    assert content == {"0": {"text": "Hi"}}


@pytest.mark.parametrize(
    "junk",
    [
        None,
        5,
        "text",
        "[1, 2]",
        {"role": None},
        [[]],
        [{"parts": [None, 1, {"type": 5}]}],
        [{"tool_calls": [None, {"function": {}}, {"name": ""}]}],
    ],
)
def test_values_that_are_not_messages_raise_no_error_and_yield_no_call(junk: Any) -> None:
    assert [call for message in messages.from_json(junk) for call in message.tool_calls] == []


def test_conflicting_flattened_attributes_raise_no_error() -> None:
    flat = {"p.0": "x", "p.0.role": "user", "p.1.role": "user", "p.1.role.deep": "y", "p.x.role": "z", "other": 1}
    assert [message.role for message in messages.from_flat(flat, "p")] == ["", "user"]


def test_tool_definitions_are_read_in_every_notation() -> None:
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    offered = [
        {"type": "function", "function": {"name": "a", "description": "A.", "parameters": schema}},
        {"name": "b", "input_schema": schema},
        {"type": "function", "name": "c", "parameters": json.dumps(schema)},
        {"function_declarations": [{"name": "d", "parameters_json_schema": schema}]},
        {"toolSpec": {"name": "e", "inputSchema": {"json": schema}}},
        json.dumps({"type": "function", "name": "f", "inputSchema": schema}),
        {"function": {}},
        "not a tool",
    ]
    read = tool_definitions(json.dumps(offered))
    assert [(tool.name, tool.parameters) for tool in read] == [(name, schema) for name in "abcdef"]
    assert tool_definitions({"tools": [{"name": "x"}]})[0].parameters is None
    assert tool_definitions(None) == ()


@pytest.mark.parametrize(
    ("tool", "read_only"),
    [
        pytest.param({"name": "x", "annotations": {"readOnlyHint": True}}, True, id="MCP"),
        pytest.param({"name": "x", "annotations": {"read_only_hint": False}}, False, id="written in snake case"),
        pytest.param({"name": "x", "annotations": {"destructiveHint": True}}, False, id="what destroys writes"),
        pytest.param({"name": "x", "annotations": {"destructiveHint": False}}, None, id="what adds writes, too"),
        pytest.param(
            {"name": "x", "annotations": {"readOnlyHint": True, "destructiveHint": True}},
            True,
            id="a read destroys nothing",
        ),
        pytest.param(
            {"name": "x", "annotations": {"title": "X", "readOnlyHint": None}}, None, id="annotated otherwise"
        ),
        pytest.param({"name": "x", "annotations": {"readOnlyHint": "yes"}}, None, id="no boolean"),
        pytest.param({"name": "x", "annotations": "readOnlyHint"}, None, id="no annotations"),
        pytest.param({"name": "x"}, None, id="nothing said"),
        pytest.param({"name": "x", "metadata": {"annotations": {"readOnlyHint": True}}}, True, id="pydantic-ai"),
        pytest.param({"name": "x", "metadata": {"readOnlyHint": False}}, False, id="LangChain's MCP adapters"),
        pytest.param(
            {"type": "function", "function": {"name": "x", "annotations": {"readOnlyHint": True}}}, True, id="inside"
        ),
        pytest.param(
            {"type": "function", "function": {"name": "x"}, "annotations": {"readOnlyHint": True}}, True, id="beside"
        ),
        pytest.param({"tools": [{"name": "x", "annotations": {"readOnlyHint": True}}]}, True, id="a list of tools"),
    ],
)
def test_the_mcp_annotations_of_a_tool_define_whether_it_is_read_only(
    tool: dict[str, Any], read_only: bool | None
) -> None:
    (found,) = tool_definitions(json.dumps(tool))
    assert found.read_only is read_only


def test_a_call_without_arguments_has_absent_arguments() -> None:
    (message,) = messages.from_json([{"role": "assistant", "tool_calls": [{"id": "c", "name": "x"}]}])
    assert message.tool_calls[0].arguments is ABSENT


KEYS = [
    "role",
    "type",
    "content",
    "parts",
    "tool_calls",
    "function",
    "name",
    "arguments",
    "id",
    "message",
    "data",
    "kind",
]
TYPES = [
    "user",
    "tool",
    "ai",
    "text",
    "tool_call",
    "tool_result",
    "mcp_call",
    "server_tool_call_response",
    "{",
    "[{",
    "",
]
near_messages = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(TYPES),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=15,
)


@given(near_messages)
def test_a_message_of_any_structure_is_read_without_an_error(value: Any) -> None:
    for written in (value, [value], json.dumps(value), repr([value])):
        for message in (*messages.from_json(written), *messages.from_event("gen_ai.choice", written)):
            assert all(call.name for call in message.tool_calls)
        found = any(message.tool_calls or message.tool_results for message in messages.from_json(written))
        assert not found or not isinstance(written, str) or messages.may_contain_calls(written)
    messages.certain_messages(value)
    tool_definitions(value)


@given(
    st.dictionaries(st.lists(st.sampled_from(["0", "1", "01", "role", "tool_calls", ""])).map(".".join), near_messages)
)
def test_any_set_of_flattened_attributes_is_read_without_an_error(flat: dict[str, Any]) -> None:
    for message in messages.from_flat({f"p.{key}": value for key, value in flat.items()}, "p"):
        assert isinstance(message, Message)


# --- messages of the GenAI conventions, which are decoded in one pass -------------------------------------------------

_TEXTS = st.sampled_from(["Go", "", "Text(a=1)", "[1]", '{"a": 1}', "ToolCall(id='c1', name='x')", "line\n"])
_IDS = st.sampled_from(["c1", "c2", "", 1, None])
_CONTENTS = _TEXTS | st.none() | st.integers() | st.lists(_TEXTS, max_size=2) | st.just({"error": "no"})
_RESULTS = _CONTENTS | st.sampled_from(
    [
        [{"type": "text", "text": "found"}],
        {"content": [{"type": "text", "text": "found"}], "isError": True},
        {"content": "found", "tool_call_id": "c3", "status": "error"},
        {"type": "error-text", "value": "no"},
    ]
)
_ODD_FIELDS = st.dictionaries(
    st.sampled_from(["thought", "tool_call", "status", "is_error", "builtin", "function", "call_id", "id", "type"]),
    st.sampled_from([True, "error", {}, "c3", None]),
    max_size=1,
)
_PARTS = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "content": _CONTENTS}),
    st.fixed_dictionaries(
        {"type": st.just("tool_call"), "id": _IDS, "name": st.sampled_from(["x", "", None]), "arguments": _CONTENTS}
    ),
    st.fixed_dictionaries({"type": st.just("tool_call_response"), "id": _IDS, "response": _RESULTS}),
    st.fixed_dictionaries(
        {"type": st.just("tool_call_response"), "id": _IDS, "name": st.just("x"), "result": _RESULTS}
    ),
    st.fixed_dictionaries({"type": st.sampled_from(["reasoning", "tool_result", None]), "content": _CONTENTS}),
    near_messages,
)
_STANDARD_MESSAGES = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "system", "tool", "developer", "", None, []]),
        "parts": st.lists(
            st.builds(lambda part, odd: {**part, **odd} if isinstance(part, dict) else part, _PARTS, _ODD_FIELDS),
            max_size=3,
        )
        | _CONTENTS,
    },
    optional={"finish_reason": _TEXTS, "content": _CONTENTS, "tool_call_id": _IDS},
)


@given(st.lists(_STANDARD_MESSAGES, max_size=3))
def test_messages_decoded_in_one_pass_are_those_of_the_decoder_of_all_notations(items: list[dict[str, Any]]) -> None:
    plain = tuple(map(messages._decode_message, messages._items(items, messages._HOLDERS, messages._MAX_NESTING)))
    assert repr(messages.from_json(items)) == repr(plain)


def test_a_message_of_the_genai_conventions_is_decoded_in_one_pass() -> None:
    parts = [
        {"type": "text", "content": "Go"},
        {"type": "tool_call", "id": "c1", "name": "search", "arguments": {"q": 1}},
        {"type": "tool_call_response", "id": "c0", "response": {"content": [{"type": "text", "text": "a"}]}},
        {"type": "tool_call_response", "id": "c2", "name": "find", "result": "b"},
    ]
    results = (ToolResult("c0", "a"), ToolResult("c2", "b"))
    assert decode_standard_message({"role": "assistant", "parts": parts}) == Message(
        "assistant", "Go", (CALL,), results
    )
