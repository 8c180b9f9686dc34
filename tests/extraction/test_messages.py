"""Model messages in the notations of several conventions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goldspan.extraction import messages
from goldspan.extraction.reading import Answer, Message, RequestedCall
from goldspan.model import ABSENT

CALL = RequestedCall("search", {"q": 1}, "c1")


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
    ],
)
def test_a_call_is_read_once_whatever_its_notation(item: dict[str, Any]) -> None:
    assert messages.from_json(json.dumps([item])) == (Message("assistant", None, (CALL,)),)
    assert messages.from_json([item])[0].calls == (CALL,)


@pytest.mark.parametrize(
    "item",
    [
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": {"n": 1}}]},
        {"role": "user", "parts": [{"type": "tool_call_response", "id": "c1", "result": {"n": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": '{"n": 1}'}]},
        {"role": "tool", "tool_call_id": "c1", "content": '{"n": 1}'},
    ],
)
def test_an_answer_is_read_whatever_its_notation_and_is_no_word_of_the_user(item: dict[str, Any]) -> None:
    (message,) = messages.from_json([item])
    assert message.answers == (Answer("c1", {"n": 1}),)
    assert not message.from_user


def test_flattened_messages_come_in_the_order_of_their_numbers() -> None:
    flat = {f"llm.input_messages.{n}.message.content": f"m{n}" for n in (10, 2, 0)}
    flat |= {f"llm.input_messages.{n}.message.role": "user" for n in (10, 2, 0)}
    assert [message.text for message in messages.from_flat(flat, "llm.input_messages", "message")] == [
        "m0",
        "m2",
        "m10",
    ]


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
def test_what_is_no_message_costs_no_error_and_makes_no_call(junk: Any) -> None:
    assert [call for message in messages.from_json(junk) for call in message.calls] == []


def test_conflicting_flattened_attributes_cost_no_error() -> None:
    flat = {"p.0": "x", "p.0.role": "user", "p.1.role": "user", "p.1.role.deep": "y", "p.x.role": "z", "other": 1}
    assert [message.role for message in messages.from_flat(flat, "p")] == ["", "user"]


def test_tool_definitions_are_read_in_the_three_notations() -> None:
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    offered = [
        {"type": "function", "function": {"name": "a", "description": "A.", "parameters": schema}},
        {"name": "b", "input_schema": schema},
        {"type": "function", "name": "c", "parameters": json.dumps(schema)},
        {"name": "d"},
        {"function": {}},
        "not a tool",
    ]
    read = messages.definitions(json.dumps(offered))
    assert [(tool.name, tool.parameters) for tool in read] == [("a", schema), ("b", schema), ("c", schema), ("d", None)]
    assert messages.definitions(None) == ()


def test_a_call_without_arguments_says_that_they_are_absent() -> None:
    (message,) = messages.from_json([{"role": "assistant", "tool_calls": [{"id": "c", "name": "x"}]}])
    assert message.calls[0].arguments is ABSENT
