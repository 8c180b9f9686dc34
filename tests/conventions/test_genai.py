"""The GenAI conventions beyond the recorded exports, as specified in semantic-conventions-genai."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goldspan.conventions import installed_conventions
from goldspan.extraction import extract
from goldspan.model import LogRecord, SpanEvent
from support.span_builders import agent, answers, asks_for, messages, model, span, tool

DETAILS = "gen_ai.client.inference.operation.details"
USER = {"role": "user", "content": "Find me a room"}
ASKING = {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "search", "arguments": '{"q": 1}'}}]}
read = installed_conventions().classify


@pytest.mark.parametrize(
    ("operation", "more", "role", "kind"),
    [
        ("execute_tool", {}, "tool", None),
        ("execute_tool", {"gen_ai__tool__type": "datastore"}, "tool", "retrieval"),
        ("EXECUTE_TOOL", {}, "tool", None),
        ("handoff", {}, "tool", "handoff"),
        ("agent_handoff", {}, "tool", "handoff"),
        ("execute_tool", {"gen_ai__handoff__to_agent": "b"}, "tool", "handoff"),
        ("retrieval", {}, "tool", "retrieval"),
        ("search_memory", {}, "tool", "retrieval"),
        ("create_memory", {}, None, None),
        ("upsert_memory", {}, None, None),
        ("plan", {}, None, None),
        ("embeddings", {}, None, None),
        ("invoke_agent", {}, "agent", None),
        ("invoke_workflow", {}, "entry", None),
        ("create_agent", {}, "aside", None),
        ("generate_content", {}, "model", None),
        ("text_completion", {}, "model", None),
    ],
)
def test_the_operation_determines_role_and_kind_of_a_span(
    operation: str, more: dict[str, str], role: str | None, kind: str | None
) -> None:
    reading = read(span("x", gen_ai__operation__name=operation, **more))
    assert (reading.role, reading.kind) == (role, kind)


@pytest.mark.parametrize(
    ("name", "more", "expected"),
    [
        pytest.param("execute_tool search", {}, "search", id="span name alone"),
        pytest.param("x", {"gen_ai__tool__name": "search"}, "search", id="attribute"),
        pytest.param("x", {"gen_ai__operation__name": "handoff", "gen_ai__handoff__to_agent": "b"}, "b", id="hand-off"),
        pytest.param(
            "retrieval docs",
            {"gen_ai__operation__name": "retrieval", "gen_ai__data_source__id": "H7"},
            "H7",
            id="data source",
        ),
        pytest.param("retrieval docs", {"gen_ai__operation__name": "retrieval"}, "docs", id="retrieval by its span"),
    ],
)
def test_a_call_gets_its_name_from_the_most_specific_source(name: str, more: dict[str, str], expected: str) -> None:
    [run] = extract([span(name, **{"gen_ai__operation__name": "execute_tool", **more})])
    assert [call.name for call in run.tool_calls] == [expected]


def test_the_query_of_a_retrieval_is_its_argument_and_a_retrieval_is_not_a_used_tool() -> None:
    query = span("retrieval", gen_ai__operation__name="retrieval", gen_ai__retrieval__query__text="rooms in Porto")
    [run] = extract([query])
    assert [call.arguments for call in run.tool_calls] == [{"query": "rooms in Porto"}]
    assert run.tools_used == ()


EVENTS = {
    "the events of 1.28 to 1.36": [
        SpanEvent("gen_ai.system.message", {"content": "Be brief"}),
        SpanEvent("gen_ai.user.message", {"content": "Find me a room"}),
        SpanEvent("gen_ai.choice", {"index": 0, "message": ASKING}),
    ],
    # azure-ai-inference 1.0.0b9, azure/ai/inference/tracing.py
    "bodies packed into one attribute, as Azure writes them": [
        SpanEvent("gen_ai.user.message", {"gen_ai.event.content": json.dumps(USER)}),
        SpanEvent("gen_ai.choice", {"gen_ai.event.content": json.dumps({"index": 0, "message": ASKING})}),
    ],
    # opentelemetry-instrumentation-google-genai 0.3b0, generate_content.py
    "contents of Gemini": [
        SpanEvent("gen_ai.user.message", {"content": {"role": "user", "parts": [{"text": "Find me a room"}]}}),
        SpanEvent(
            "gen_ai.choice",
            {
                "index": 0,
                "content": {
                    "role": "model",
                    "parts": [{"function_call": {"id": "c1", "name": "search", "args": {"q": 1}}}],
                },
            },
        ),
    ],
    "the events of 1.27": [
        SpanEvent("gen_ai.content.prompt", {"gen_ai.prompt": json.dumps([USER])}),
        SpanEvent("gen_ai.content.completion", {"gen_ai.completion": json.dumps([ASKING])}),
    ],
    "the inference details": [
        SpanEvent(
            DETAILS,
            {
                "gen_ai.input.messages": messages(USER),
                "gen_ai.output.messages": messages(asks_for("search", {"q": 1}, "c1")),
            },
        )
    ],
}


@pytest.mark.parametrize("events", EVENTS.values(), ids=EVENTS)
def test_messages_in_span_events_are_read(events: list[SpanEvent]) -> None:
    [run] = extract([span("chat", gen_ai__operation__name="chat", events=tuple(events))])
    assert run.input == "Find me a room"
    assert [(call.name, call.arguments, call.call_id) for call in run.tool_calls] == [("search", {"q": 1}, "c1")]


def test_elided_content_is_none() -> None:
    left_out = (SpanEvent("gen_ai.user.message", {"content": "<elided>"}), SpanEvent("gen_ai.choice", {"index": 0}))
    [run] = extract([span("chat", gen_ai__operation__name="chat", events=left_out)])
    assert (run.input, run.output) == (None, None)


def test_log_events_replace_a_lost_model_span() -> None:
    place: dict[str, Any] = {"trace_id": "a" * 32, "span_id": "b" * 16}
    logs = [
        LogRecord("gen_ai.user.message", {}, {"content": "Find me a room"}, time_ns=10, **place),
        LogRecord("gen_ai.choice", {}, {"index": 0, "message": ASKING}, time_ns=20, **place),
    ]
    [run] = extract(logs)
    assert (run.input, run.tools_used) == ("Find me a room", ("search",))


def test_an_error_result_in_a_message_is_the_error_of_the_executed_call() -> None:
    root = agent()
    asked = model(answered=[asks_for("search", {"q": 1}, "c1")], parent_id=root.span_id)
    made = tool("search", {"q": 1}, gen_ai__tool__call__id="c1", parent_id=root.span_id)
    told = model(asked=[answers("c1", "no such room", is_error=True)], parent_id=root.span_id)
    [run] = extract([root, asked, made, told])
    assert [(call.evidence, call.outcome, call.error) for call in run.tool_calls] == [
        ("executed", "error", "no such room")
    ]


def test_an_agent_in_a_tool_in_a_model_span_gives_its_calls() -> None:
    # google-adk 1.x runs tools inside the span of the model that asked for them.
    outer = model(answered=[asks_for("ask_expert", {"q": "why"}, "c1")])
    used = tool("ask_expert", {"q": "why"}, gen_ai__tool__call__id="c1", parent_id=outer.span_id)
    expert = agent("expert", parent_id=used.span_id)
    thinking = model(answered=[asks_for("search", {"q": 1}, "c2")], parent_id=expert.span_id)
    [run] = extract([outer, used, expert, thinking])
    assert [(call.name, call.kind) for call in run.tool_calls] == [("ask_expert", "agent"), ("search", "tool")]


@pytest.mark.parametrize(
    ("attributes", "role"),
    [
        ({"gen_ai__request__model": "m"}, "model"),
        ({"gen_ai__request__model": "m", "gen_ai__operation__name": "unknown"}, None),
        ({"gen_ai__tool__name": "search"}, "tool"),
        ({"gen_ai__tool__name": "search", "gen_ai__operation__name": "guardrail"}, None),
    ],
)
def test_without_an_operation_the_attributes_determine_the_role(attributes: dict[str, str], role: str | None) -> None:
    assert read(span("x", **attributes)).role == role


def test_messages_in_numbered_attributes_are_read() -> None:
    said = {
        "gen_ai__prompt__0__role": "user",
        "gen_ai__prompt__0__content": "Hi",
        "gen_ai__completion__0__content": "Ho",
    }
    [run] = extract([span("openai.chat", gen_ai__request__model="m", **said)])
    assert (run.input, run.output) == ("Hi", "Ho")


def test_agents_of_the_openai_agents_instrumentation_get_their_names_from_their_spans() -> None:
    # opentelemetry-instrumentation-openai-agents-v2 0.1.0, span_processor.py
    anybody = {"gen_ai__agent__name": "OpenAI Agent", "gen_ai__agent__description": "OpenAI Agents instrumentation"}
    one = span("invoke_agent triage", gen_ai__operation__name="invoke_agent", **anybody)
    used = span("execute_tool x", gen_ai__operation__name="execute_tool", parent_id=one.span_id, **anybody)
    [run] = extract([one, used])
    assert (run.agent, [call.agent for call in run.tool_calls]) == ("triage", ["triage"])
