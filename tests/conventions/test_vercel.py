"""The Vercel AI SDK in versions without a recorded export."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goldspan.conventions import installed_conventions
from goldspan.extraction import extract
from goldspan.model import SpanRecord
from support.span_builders import span

read = installed_conventions().classify


def sdk(operation: str, **attributes: Any) -> SpanRecord:
    """A span of the SDK with structured values as JSON."""
    return span(
        operation,
        ai__operationId=operation,
        **{key: value if isinstance(value, str) else json.dumps(value) for key, value in attributes.items()},
    )


@pytest.mark.parametrize(
    ("operation", "role"),
    [
        *((f"ai.{name}", "entry") for name in ("generateText", "streamText", "generateObject", "streamObject")),
        ("ai.generateText.doGenerate", "model"),
        ("ai.streamText.doStream", "model"),
        ("ai.generateObject.doGenerate", "model"),
        ("ai.streamObject.doStream", "model"),
        ("ai.toolCall", "tool"),
        ("ai.embed", None),
        ("ai.embed.doEmbed", None),
    ],
)
def test_the_operation_determines_the_role(operation: str, role: str | None) -> None:
    assert read(sdk(operation)).role == role


@pytest.mark.parametrize(("arguments", "result"), [("args", "result"), ("input", "output")])
def test_tool_call_attributes_of_versions_4_and_5_are_read(arguments: str, result: str) -> None:
    seen = sdk(
        "ai.toolCall",
        ai__toolCall__name="weather",
        ai__toolCall__id="c1",
        **{f"ai__toolCall__{arguments}": {"city": "Rome"}, f"ai__toolCall__{result}": {"temp": 21}},
    )
    [run] = extract([seen])
    [call] = run.tool_calls
    assert (call.name, call.call_id, call.arguments, call.result) == ("weather", "c1", {"city": "Rome"}, {"temp": 21})


@pytest.mark.parametrize(
    ("prefix", "key"),
    [
        pytest.param("ai__response", "input", id="version 5 and later"),
        pytest.param("ai__response", "args", id="version 4"),
        pytest.param("ai__result", "args", id="version 3"),
    ],
)
def test_calls_that_a_model_requested_without_execution_are_read(prefix: str, key: str) -> None:
    # Version 3 wrote `ai.result.*`, which its migration guide to 4 renames to `ai.response.*`.
    root = sdk("ai.generateText", ai__prompt={"prompt": "Warm?"})
    model = span(
        "ai.generateText.doGenerate",
        parent_id=root.span_id,
        ai__operationId="ai.generateText.doGenerate",
        **{f"{prefix}__toolCalls": json.dumps([{"toolCallId": "c1", "toolName": "weather", key: '{"city":"Rome"}'}])},
    )
    [run] = extract([root, model])
    [call] = run.tool_calls
    assert (call.name, call.call_id, call.arguments, call.evidence) == ("weather", "c1", {"city": "Rome"}, "requested")


@pytest.mark.parametrize(
    ("prompt", "asked"),
    [
        pytest.param({"system": "Be kind.", "prompt": "Warm?"}, "Warm?", id="prompt"),
        pytest.param({"prompt": [{"role": "user", "content": "Warm?"}]}, "Warm?", id="prompt of messages"),
        pytest.param(
            {
                "messages": [
                    {"role": "user", "content": "Hello"},
                    {"role": "assistant", "content": "Hi"},
                    {"role": "user", "content": [{"type": "text", "text": "Warm?"}]},
                ]
            },
            "Warm?",
            id="messages with a history",
        ),
        pytest.param({"system": "Be kind."}, None, id="no question"),
    ],
)
def test_the_input_is_the_last_user_message(prompt: Any, asked: str | None) -> None:
    [run] = extract([sdk("ai.streamText", ai__prompt=prompt, ai__response__text="21.")])
    assert (run.input, run.output) == (asked, "21.")


@pytest.mark.parametrize("name", ["sessionId", "session_id", "threadId", "thread_id", "conversationId", "chatId"])
def test_the_session_is_read_from_the_metadata_of_the_application(name: str) -> None:
    assert read(sdk("ai.generateText", **{f"ai__telemetry__metadata__{name}": "s1"})).session_id == "s1"


def test_tool_definitions_are_read_with_their_schemas() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    offered = span(
        "x",
        ai__operationId="ai.generateText.doGenerate",
        ai__prompt__tools=[json.dumps({"type": "function", "name": "weather", "inputSchema": schema})],
        ai__prompt__messages="[]",
        ai__response__text="Hello",
    )
    [run] = extract([offered])
    assert [(tool.name, tool.parameters) for tool in run.available_tools] == [("weather", schema)]


def test_the_function_id_is_the_agent_of_a_call() -> None:
    root = sdk("ai.generateText", ai__telemetry__functionId="support", ai__prompt={"prompt": "Warm?"})
    tool = sdk("ai.toolCall", ai__toolCall__name="weather", ai__telemetry__functionId="support")
    [run] = extract(
        [root, span("x", parent_id=root.span_id, **{k.replace(".", "__"): v for k, v in tool.attributes.items()})]
    )
    assert [call.agent for call in run.tool_calls] == ["support"]
