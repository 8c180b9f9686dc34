"""traceAI, as the Future AGI instrumentations write it; see also the recorded export of the OpenAI Agents SDK."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goldspan.extraction import extract, role_of
from goldspan.model import SpanRecord
from support.span_builders import inside, span


def _span(kind: str, name: str = "work", given: Any = None, returned: Any = None, **more: Any) -> SpanRecord:
    values = {"input__value": given, "output__value": returned}
    written = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items() if value}
    return span(name, gen_ai__span__kind=kind, **written, **more)


def _message(place: str, number: int, role: str, **fields: Any) -> dict[str, Any]:
    prefix = f"gen_ai__{place}__messages__{number}__message"
    return {f"{prefix}__role": role, **{f"{prefix}__{key}": value for key, value in fields.items()}}


def _asks(number: int, name: str, arguments: Any, call_id: str | None = None) -> dict[str, Any]:
    function = {"function__name": name, "function__arguments": json.dumps(arguments)}
    call = function if call_id is None else {**function, "id": call_id}
    return _message(
        "output", number, "assistant", **{f"tool_calls__0__tool_call__{key}": value for key, value in call.items()}
    )


@pytest.mark.parametrize(
    ("kind", "role"),
    [
        ("TOOL", "tool"),
        ("RETRIEVER", "tool"),
        ("AGENT", "agent"),
        ("LLM", "model"),
        ("CONVERSATION", "entry"),
        ("A2A_SERVER", "entry"),
        ("EVALUATOR", "aside"),
        ("CHAIN", None),
        ("GUARDRAIL", None),
        ("EMBEDDING", None),
        ("VECTOR_DB", None),
    ],
)
def test_the_span_kind_determines_the_role(kind: str, role: str | None) -> None:
    assert role_of(_span(kind, gen_ai__request__model="gpt")) == role
    assert role_of(span(fi__span__kind=kind)) == role


def test_a_tool_named_like_an_agent_is_a_tool() -> None:
    assert role_of(_span("AGENT", gen_ai__tool__name="research_agent")) == "tool"


def test_an_agent_in_a_tool_is_one_call_of_kind_agent() -> None:
    root = _span("AGENT", "trip", "Go", "Done", end_ns=10**15)
    used = _span("TOOL", "research", {"q": "x"}, gen_ai__tool__name="research", end_ns=10**15, **inside(root))
    helper = _span("AGENT", "research", graph__node__id="research", **inside(used))
    (run,) = extract([root, used, helper])
    assert [(call.name, call.kind, call.arguments) for call in run.tool_calls] == [("research", "agent", {"q": "x"})]
    assert (run.input, run.output) == ("Go", "Done")


def test_a_handoff_is_one_call_and_not_a_used_tool() -> None:
    root = _span("AGENT", "trip", "Go", end_ns=10**15)
    first = _span("AGENT", "triage", graph__node__id="triage", end_ns=10**15, **inside(root))
    turn = _span("LLM", **_asks(0, "transfer_to_legal", {}, "c1"), **inside(first))
    passed = _span("TOOL", "handoff to legal", {}, **inside(first))
    second = _span("AGENT", "legal", graph__node__id="legal", **inside(root))
    (run,) = extract([root, first, turn, passed, second])
    assert [call.kind for call in run.tool_calls] == ["handoff"]
    assert run.tools_used == ()


@pytest.mark.parametrize("first", [0, 1])
def test_message_numbers_may_start_at_any_number(first: int) -> None:
    asked = {
        **_message("input", first, "user", content="Go"),
        **_message("input", first + 1, "tool", tool_call_id="c0", content="7"),
    }
    (run,) = extract([_span("LLM", **asked, **_asks(first, "x", {"n": 1}, "c1"))])
    assert run.input == "Go"
    assert [(call.name, call.arguments, call.call_id) for call in run.tool_calls] == [("x", {"n": 1}, "c1")]


def test_calls_lost_in_flattened_messages_are_read_from_the_raw_output() -> None:
    call = {"name": "x", "args": {"n": 1}, "id": "c1", "type": "tool_call"}
    said = {"lc": 1, "type": "constructor", "id": ["AIMessage"], "kwargs": {"content": "", "tool_calls": [call]}}
    returned = {"generations": [[{"text": "", "message": said}]]}
    (run,) = extract([_span("LLM", returned=returned, **_message("output", 0, "assistant"))])
    assert [(call.name, call.arguments, call.call_id) for call in run.tool_calls] == [("x", {"n": 1}, "c1")]


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        ({"input": "{'city': 'Porto', 'now': True}"}, {"city": "Porto", "now": True}),
        ({"input": "{}"}, {}),
        ({"input": "Porto"}, {"input": "Porto"}),
        ({"input": '{"city": "Porto"}'}, {"input": '{"city": "Porto"}'}),
        ({"city": "Porto"}, {"city": "Porto"}),
    ],
)
def test_arguments_are_unwrapped_from_the_langchain_envelope(given: Any, arguments: Any) -> None:
    ((call,),) = (run.tool_calls for run in extract([_span("TOOL", "weather", given)]))
    assert (call.name, call.arguments) == ("weather", arguments)


def test_numbered_tool_definitions_are_read() -> None:
    definition = json.dumps({"type": "function", "function": {"name": "x", "parameters": {"type": "object"}}})
    model = _span("LLM", gen_ai__tool__definitions__0__tool__json_schema=definition)
    ((tool,),) = (run.available_tools for run in extract([model]))
    assert (tool.name, tool.parameters) == ("x", {"type": "object"})


def test_redacted_content_is_read_as_absent() -> None:
    ((call,),) = (run.tool_calls for run in extract([_span("TOOL", "x", "__REDACTED__", "__REDACTED__")]))
    assert (call.arguments, call.raw_arguments, call.result) == (None, None, None)


def test_a_langgraph_graph_is_an_agent() -> None:
    assert role_of(_span("CHAIN", "LangGraph", metadata="{}")) == "agent"


def test_the_session_attribute_is_the_session() -> None:
    root = _span("AGENT", "trip", "Go", session__id="s1")
    (run,) = extract([root])
    assert run.session_id == "s1"
