"""Google ADK beyond the recorded exports, as implemented in `telemetry/tracing.py` of google-adk and adk-java."""

from __future__ import annotations

import json
from typing import Any

import pytest

import goldspan
from goldspan.conventions import installed_conventions
from goldspan.extraction import extract, role_of
from goldspan.model import SpanRecord
from support import span_builders
from support.span_builders import agent, asks_for, inside, model, span

FAILED = {
    "response_type": "ERROR_HANDLED_BY_REFLECT_AND_RETRY_PLUGIN",
    "error_type": "ValueError",
    "error_details": "nights must be >= 1",
}


def tool(
    name: str = "book", *, arguments: Any = '{"n": 1}', response: Any = '{"result": 3}', **more: Any
) -> SpanRecord:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gcp.vertex.agent.tool_call_args": arguments,
        "gcp.vertex.agent.tool_response": response,
        "gcp.vertex.agent.llm_request": "{}",
        **more,
    }
    return span(f"execute_tool {name}", **attributes)


@pytest.mark.parametrize(
    ("span_made", "kind"),
    [
        (tool(), "tool"),
        (tool("transfer_to_agent"), "handoff"),
        (tool("switch", **{"gen_ai.tool.type": "TransferToAgentTool"}), "handoff"),
        (tool("expert", **{"gen_ai.tool.type": "AgentTool"}), "agent"),
        (tool("google_search", **{"gen_ai.tool.type": "GoogleSearchTool"}), "hosted"),
    ],
)
def test_the_tool_class_determines_the_kind_of_the_call(span_made: SpanRecord, kind: str) -> None:
    [run] = extract([span_made])
    assert [call.kind for call in run.tool_calls] == [kind]


@pytest.mark.parametrize("response", ["{}", '{"Content": {"parts": []}}', "<not serializable>"])
def test_a_span_that_merges_parallel_calls_is_not_a_call(response: str) -> None:
    merged = tool("(merged tools)", arguments="N/A", response=response, **{"gen_ai.tool.call.id": "e-1"})
    [run] = extract([tool(), merged])
    assert run.tools_used == ("book",)


@pytest.mark.parametrize("name", ["execute_tool (merged)", "execute_tool (merged tools)"])
def test_a_merged_span_without_its_tool_name_is_not_a_call(name: str) -> None:
    merged = span(name, **{"gen_ai.operation.name": "execute_tool", "gcp.vertex.agent.event_id": "e-1"})
    [run] = extract([tool(), merged])
    assert run.tools_used == ("book",)


def test_an_unspecified_call_id_is_none() -> None:
    calls = [tool(**{"gen_ai.tool.call.id": "<not specified>"}) for _ in range(2)]
    [run] = extract(calls)
    assert [call.call_id for call in run.tool_calls] == [None, None]


@pytest.mark.parametrize(
    ("arguments", "response", "expected"),
    [
        pytest.param('{"n": 1}', '{"result": 3}', ({"n": 1}, 3), id="recorded"),
        pytest.param("{}", '{"result": null}', ({}, None), id="a tool without arguments"),
        pytest.param("{}", "{}", (None, None), id="content switched off"),
        pytest.param('{"n": 1}', '{"status": "ok", "result": 3}', ({"n": 1}, {"status": "ok", "result": 3}), id="own"),
    ],
)
def test_placeholders_for_disabled_content_are_not_arguments_or_results(
    arguments: str, response: str, expected: tuple[Any, Any]
) -> None:
    [run] = extract([tool(arguments=arguments, response=response)])
    assert [(call.arguments, call.result) for call in run.tool_calls] == [expected]


def test_a_reflect_and_retry_failure_is_an_error() -> None:
    [run] = extract([tool(response=json.dumps(FAILED))])
    assert [(call.error, call.outcome) for call in run.tool_calls] == [("nights must be >= 1", "error")]


def test_the_first_java_version_gives_the_tool_name_only_in_the_span_name() -> None:
    # google/adk-java 0.1, Telemetry.java and flows/llmflows/Functions.java
    call = span(
        "tool_call [book]", **{"gen_ai.system": "gcp.vertex.agent", "gcp.vertex.agent.tool_call_args": '{"n": 1}'}
    )
    answer = span("tool_response [book]", **{"gen_ai.system": "gcp.vertex.agent", "gcp.vertex.agent.event_id": "e"})
    [run] = extract([call, answer])
    assert [(made.name, made.arguments) for made in run.tool_calls] == [("book", {"n": 1})]


def test_a_model_request_contains_messages_and_tool_definitions() -> None:
    request = {
        "config": {
            "tools": [{"function_declarations": [{"name": "book", "parameters_json_schema": {"type": "object"}}]}]
        },
        "contents": [{"role": "user", "parts": [{"text": "Book a room"}]}],
    }
    answer = {"content": {"role": "model", "parts": [{"text": "Done"}]}}
    asked = {
        "gcp.vertex.agent.llm_request": json.dumps(request),
        "gcp.vertex.agent.llm_response": json.dumps(answer),
        "gcp.vertex.agent.session_id": "s-1",
    }
    [run] = extract([span("call_llm", **asked)])
    assert (run.input, run.output, run.session_id) == ("Book a room", "Done", "s-1")
    assert [tool.name for tool in run.available_tools] == ["book"]


@pytest.mark.parametrize("value", ["{}", "null", "[", 3, ["x"]])
def test_content_of_another_structure_is_ignored(value: Any) -> None:
    reading = installed_conventions().classify(span("call_llm", **{"gcp.vertex.agent.llm_request": value}))
    assert reading.role == "model"
    assert [place() for place in reading.tool_definitions] == [()]


def test_a_call_without_an_id_of_the_model_counts_once_in_each_turn_of_a_session() -> None:
    """ADK invents an id for the tool's span, and another for messages, which all turns of a session share."""
    history: list[Any] = []
    for turn, room in enumerate((7, 8)):
        work = agent("helper", **BARE)
        mark = {"gcp.vertex.agent.event_id": f"e-{turn}", **BARE, **inside(work)}
        history.append({"role": "user", "parts": [{"type": "text", "content": f"Book room {room}"}]})
        request, result = asks_for("book", {"room": room}, "book_0"), {"result": f"booked {room}"}
        first = model(asked=history, answered=[request], **mark)
        ids = {"gen_ai.tool.call.id": f"adk-{turn}", "gen_ai.tool.call.result": json.dumps(result)}
        call = span_builders.tool("book", {"room": room}, **mark, **ids)
        response = {"type": "tool_call_response", "id": "book_0", "response": result}
        history += [request, {"role": "user", "parts": [response]}]
        done = {"role": "assistant", "parts": [{"type": "text", "content": "Done"}]}
        second = model(asked=history, answered=[done], **mark)
        [run] = extract([work, first, call, second])
        assert [(call.call_id, call.arguments, call.result) for call in run.tool_calls] == [
            (f"adk-{turn}", {"room": room}, f"booked {room}")
        ]
        assert run.health.calls_unpaired == run.health.results_unknown == 0
        history.append(done)


def test_a_request_without_content_names_the_setting_that_records_its_input() -> None:
    """By default ADK records names alone, so a golden with an input cannot be found."""
    work = agent("helper", **BARE)
    call = span_builders.tool("book", **BARE, **inside(work), **{"gcp.vertex.agent.event_id": "e-1"})
    [run] = extract([work, call])
    reason = goldspan.evaluate(run, goldspan.Goldens([goldspan.Golden("book", "Book a room")])).reason
    assert reason.startswith("No golden applies to this run: the run has no input to look up. To record content: ")
    assert "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_AND_EVENT" in reason
    assert reason.endswith("(Google Agent Development Kit).")


BARE = {"scope": "gcp.vertex.agent"}


def test_a_typescript_tool_span_with_only_a_name_is_a_failed_call() -> None:
    work = agent("helper", **BARE)
    failed = span("execute_tool book", **BARE, **inside(work))
    [run] = extract([span("invocation", **BARE), work, failed])
    [call] = run.tool_calls
    assert (call.name, call.evidence, call.error, call.outcome) == ("book", "executed", "error", "error")


def test_the_thrown_error_is_read_from_the_next_model_request() -> None:
    work = agent("helper", **BARE)
    asked = {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "book", "args": {"n": 1}}}]}
    thrown = {"error": "Error in tool 'book': no room"}
    told = {"role": "user", "parts": [{"functionResponse": {"id": "c1", "name": "book", "response": thrown}}]}
    failed = span("execute_tool book", **BARE, **inside(work))
    again = span(
        "call_llm",
        **{"gcp.vertex.agent.llm_request": json.dumps({"contents": [asked, told]})},
        **BARE,
        **inside(work),
    )
    [run] = extract([work, failed, again])
    assert [(call.evidence, call.call_id, call.arguments, call.error) for call in run.tool_calls] == [
        ("executed", "c1", {"n": 1}, "Error in tool 'book': no room")
    ]
    assert run.health.merged <= 1


@pytest.mark.parametrize(
    "other",
    [
        span("execute_tool book", scope="acme"),
        span("execute_tool book", note="kept", **BARE),
        span("execute_tool (merged)", **BARE),
        span("invocation", **BARE),
    ],
    ids=["another scope", "an attribute", "merged calls", "another name"],
)
def test_no_other_span_is_recognized_as_a_tool_by_its_name(other: SpanRecord) -> None:
    assert role_of(other) != "tool"
    assert not any(run.tool_calls for run in extract([agent("helper", **BARE), other]))


def test_an_error_key_in_the_result_of_a_tool_is_not_a_failure() -> None:
    [run] = extract([tool(response=json.dumps({"error": "no such hotel"}))])
    assert [(call.error, call.result) for call in run.tool_calls] == [(None, {"error": "no such hotel"})]
