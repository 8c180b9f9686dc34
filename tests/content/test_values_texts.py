"""The text of a request's input and output, in every notation."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.content import values
from goldspan.content.values import message_text, request_text, response_text
from goldspan.model import ABSENT

ASKED = "Plan my trip"
SAID = "Booked 2 nights in Porto."


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (ASKED, ASKED),
        ('"Quoted"', "Quoted"),
        ('{"args": ["Plan my trip"], "kwargs": {}}', ASKED),
        ('{"messages": ["Plan my trip"]}', ASKED),
        ('{"task": "Plan my trip"}', ASKED),
        ('{"anything": "Plan my trip"}', ASKED),
        ('{"a": 1, "b": 2}', '{"a": 1, "b": 2}'),
        ({"a": 1, "b": 2}, '{"a": 1, "b": 2}'),
        (ASKED.encode(), ASKED),
        (42, "42"),
        ("", None),
        (None, None),
        (ABSENT, None),
        ("[]", None),
        ("{}", None),
        ("null", "null"),
    ],
)
def test_the_text_of_a_request_is_found_in_every_notation(written: object, words: str | None) -> None:
    assert message_text(written) == request_text(written) == words


@pytest.mark.parametrize(
    "typed",
    [
        "42",
        "007",
        "true",
        "[1]",
        "[1, 2]",
        '{"a": 1}',
        '{"amount": 130.14, "currency": "USD"}',
        '[{"a": "b"}, {"a": "c"}]',
        '[{"type": "circle", "name": "x"}]',
        '{"role": "accountant", "name": "Bob"}',
        "{'a': 1}",
        "What does print(x=1) do?",
        "Hotel(name=1, stars=5)",
        "f(x)",
        "(maybe)",
        "{broken",
    ],
)
def test_text_that_a_user_typed_is_unchanged_even_if_it_is_json(typed: str) -> None:
    assert message_text(typed) == request_text(typed) == response_text(typed) == typed


def human(**fields: Any) -> dict[str, Any]:
    return {"lc": 1, "type": "constructor", "id": ["langchain", "HumanMessage"], "kwargs": fields}


def ai(**fields: Any) -> dict[str, Any]:
    return {"lc": 1, "type": "constructor", "id": ["langchain", "AIMessageChunk"], "kwargs": fields}


HISTORY = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi."},
    {"role": "user", "content": ASKED},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "done"},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c2", "content": "done"}]},
]


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(HISTORY, id="OpenAI chat with history"),
        pytest.param({"messages": HISTORY}, id="LangGraph state"),
        pytest.param({"messages": [[human(content="Hello"), ai(content="Hi."), human(content=ASKED)]]}, id="batches"),
        pytest.param([{"type": "human", "data": {"content": ASKED}}], id="LangChain messages"),
        pytest.param([{"type": "human", "content": ASKED, "id": "1"}], id="LangChain dumped"),
        pytest.param({"messages": [["user", ASKED]]}, id="LangChain pair"),
        pytest.param({"messages": ["user", ASKED]}, id="LangChain pair alone"),
        pytest.param({"messages": [["user", [{"type": "text", "text": ASKED}]]]}, id="LangChain pair with blocks"),
        pytest.param([["system", "Be kind."], ["human", ASKED], ["ai", "Where to?"]], id="LangChain pairs"),
        pytest.param([{"type": "message", "role": "user", "content": ASKED}], id="OpenAI responses"),
        pytest.param(
            [
                {"role": "user", "content": [{"type": "input_text", "text": ASKED}]},
                {"type": "function_call", "name": "f"},
            ],
            id="OpenAI responses with items",
        ),
        pytest.param([{"role": "user", "parts": [{"type": "text", "content": ASKED}]}], id="GenAI parts"),
        pytest.param({"contents": [{"role": "user", "parts": [{"text": ASKED}]}]}, id="Gemini"),
        pytest.param([{"role": "user", "content": [{"text": ASKED}]}], id="Bedrock"),
        pytest.param({"system": "Be kind.", "prompt": ASKED}, id="AI SDK prompt"),
        pytest.param({"system": "Be kind.", "messages": [{"role": "user", "content": ASKED}]}, id="AI SDK messages"),
        pytest.param({"task": ASKED, "stream": False, "images": None, "max_steps": 3}, id="smolagents"),
        pytest.param({"input_args": {"question": ASKED}}, id="DSPy"),
        pytest.param({"args": [], "kwargs": {"question": ASKED, "top_k": 3}}, id="decorator's envelope"),
        pytest.param({"args": [ASKED, "user-7"], "kwargs": {}}, id="several positional arguments"),
        pytest.param({"args": [[{"role": "user", "content": ASKED}]], "kwargs": {}}, id="messages in an envelope"),
        pytest.param(
            {"inputs": {"messages": [human(content=ASKED)]}, "tags": [], "metadata": {}, "kwargs": {"name": "agent"}},
            id="LangChain callback",
        ),
        pytest.param(
            {"model": "m", "input": [{"role": "user", "content": ASKED}], "tools": []}, id="responses request"
        ),
        pytest.param(
            [{"kind": "request", "parts": [{"part_kind": "user-prompt", "content": ASKED}]}], id="pydantic-ai"
        ),
        pytest.param({"messages": [f"id='1' source='user' metadata={{}} content='{ASKED}'"]}, id="autogen's str"),
        pytest.param(
            {
                "ctx": "<Context object at 0x7f>",
                "ev": f"AgentInput(input=[ChatMessage(role=<R.USER: 'user'>, "
                f"blocks=[TextBlock(block_type='text', text='{ASKED}')])])",
            },
            id="LlamaIndex event",
        ),
        pytest.param(json.dumps({"messages": HISTORY}), id="JSON in JSON"),
    ],
)
def test_the_input_is_the_last_text_that_the_user_wrote(written: Any) -> None:
    assert request_text(json.dumps(written)) == ASKED
    assert request_text(written) == ASKED


@pytest.mark.parametrize(
    "written",
    [
        pytest.param([*HISTORY, {"role": "assistant", "content": SAID}], id="OpenAI chat with history"),
        pytest.param({"messages": [human(content=ASKED), ai(content=SAID)]}, id="LangGraph state"),
        pytest.param({"outputs": {"messages": [ai(content=SAID)]}, "kwargs": {"tags": ["x"]}}, id="LangChain callback"),
        pytest.param({"generations": [[{"text": SAID, "message": ai(content=SAID)}]]}, id="LangChain generations"),
        pytest.param([{"graph": None, "update": {"messages": [ai(content=SAID)]}, "goto": []}], id="LangGraph command"),
        pytest.param({"choices": [{"index": 0, "message": {"role": "assistant", "content": SAID}}]}, id="OpenAI chat"),
        pytest.param(
            {
                "object": "response",
                "output": [
                    {"type": "reasoning"},
                    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": SAID}]},
                ],
            },
            id="OpenAI responses",
        ),
        pytest.param(
            {"type": "message", "role": "assistant", "content": [{"type": "text", "text": SAID}]}, id="Anthropic"
        ),
        pytest.param({"candidates": [{"content": {"role": "model", "parts": [{"text": SAID}]}}]}, id="Gemini"),
        pytest.param({"content": {"role": "model", "parts": [{"text": SAID}]}}, id="Google ADK"),
        pytest.param([{"type": "text", "text": SAID}], id="content blocks"),
        pytest.param({"trajectory": {"thought_0": "Hm."}, "reasoning": "Done.", "answer": SAID}, id="DSPy ReAct"),
        pytest.param({"reasoning": "Done.", "summary": SAID}, id="DSPy signature"),
        pytest.param({"text": SAID, "files": []}, id="Mastra"),
        pytest.param({"response": SAID}, id="response"),
        pytest.param({"finish_reason": "stop", "content": SAID, "cached": False}, id="autogen"),
        pytest.param(
            [
                {
                    "role": "assistant",
                    "parts": [
                        {"type": "text", "content": SAID},
                        {"type": "tool_call", "name": "f"},
                        {"type": "tool_call_response", "id": "c1", "response": 1},
                    ],
                }
            ],
            id="a whole run in one message",
        ),
    ],
)
def test_the_output_is_the_last_text_of_the_assistant(written: Any) -> None:
    assert response_text(json.dumps(written)) == SAID
    assert response_text(written) == SAID


@pytest.mark.parametrize(
    "shown",
    [
        f"Prediction(\n    reasoning='Hm.',\n    answer='{SAID}'\n)",
        (
            f"StopEvent(result=AgentOutput(response=ChatMessage(role=<MessageRole.ASSISTANT: 'assistant'>, "
            f"additional_kwargs={{}}, blocks=[TextBlock(block_type='text', text='{SAID}')]), tool_calls=[]))"
        ),
        (
            f"StopEvent(result=AgentOutput(response=ChatMessage(role=<MessageRole.ASSISTANT: 'assistant'>, "
            f"blocks=[TextBlock(block_type='text', text='{SAID}')]), structur..."
        ),
        (
            f"TaskResult(messages=[TextMessage(source='user', content='Hello'), "
            f"ToolCallRequestEvent(source='agent', content=[FunctionCall(id='1', arguments='{{}}', name='f')]), "
            f"TextMessage(source='agent', models_usage=None, content='{SAID}')], stop_reason=None)"
        ),
        f"[HumanMessage(content='Hello', additional_kwargs={{}}), AIMessage(content='{SAID}')]",
        f"content='{SAID}' additional_kwargs={{}} response_metadata={{'model': 'm'}} id='run-1'",
    ],
)
def test_the_output_is_found_in_objects_serialized_with_repr(shown: str) -> None:
    assert response_text(shown) == SAID


@pytest.mark.parametrize(
    "written",
    [
        {"messages": [ai(content="", tool_calls=[{"name": "f", "args": {}, "id": "c1"}])]},
        {"messages": [human(content=ASKED)]},
        "StopEvent(result=AgentOutput(response=ChatMessage(role=<Role.ASSISTANT: 'assistant'>, text='Book...",
        [{"role": "tool", "content": "done", "tool_call_id": "c1"}],
    ],
)
def test_messages_without_assistant_text_yield_no_output(written: Any) -> None:
    assert response_text(written) is None


def test_an_output_that_is_json_is_not_parsed() -> None:
    structured = '{"text": "x", "hotels": ["Ritz"]}'
    assert response_text([{"role": "assistant", "content": structured}]) == structured
    assert response_text({"output": structured}) == structured


KEYS = ["messages", "role", "content", "parts", "type", "text", "args", "kwargs", "output", "message", "data", "answer"]
near_messages = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["user", "ai", "text", "tool_call", "A(b='c', d=1)"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@given(st.text() | st.binary() | near_messages)
def test_any_value_is_read_without_an_error_and_yields_text_or_none(value: object) -> None:
    for find in (values.message_text, values.request_text, values.response_text):
        for written in (value, json.dumps(value, default=str), repr(value)):
            found = find(written)
            assert found is None or (isinstance(found, str) and found)
