"""OpenLLMetry (Traceloop) spans beyond the recorded exports."""

from __future__ import annotations

import json

import pytest

from goldspan.conventions import installed_conventions
from goldspan.extraction import extract
from support.span_builders import span

read = installed_conventions().classify


@pytest.mark.parametrize(
    ("attributes", "role"),
    [
        pytest.param({"traceloop__span__kind": "tool"}, "tool", id="tool"),
        pytest.param({"traceloop__span__kind": "workflow"}, "entry", id="workflow"),
        pytest.param({"traceloop__span__kind": "agent"}, "agent", id="agent"),
        pytest.param({"traceloop__span__kind": "task"}, None, id="task"),
        pytest.param({"traceloop__span__kind": "session"}, "aside", id="MCP session"),
        pytest.param(
            {"traceloop__span__kind": "task", "gen_ai__operation__name": "execute_tool"},
            "tool",
            id="tool of LangChain.js",
        ),
        pytest.param(
            {"traceloop__span__kind": "workflow", "gen_ai__operation__name": "invoke_agent"},
            "agent",
            id="agent of LangChain.js",
        ),
        pytest.param({"llm__request__type": "chat"}, "model", id="model before the GenAI conventions"),
    ],
)
def test_kind_and_operation_determine_the_role_of_a_span(attributes: dict[str, str], role: str | None) -> None:
    assert read(span("x", **attributes)).role == role


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        pytest.param({"args": [], "kwargs": {"city": "Rome"}}, {"city": "Rome"}, id="decorated function"),
        pytest.param({"args": ['{"city": "Rome"}']}, {"city": "Rome"}, id="LangChain.js"),
        pytest.param({"tool_name": "weather", "arguments": {"city": "Rome"}}, {"city": "Rome"}, id="MCP"),
        pytest.param(
            {"input_str": "{'city': 'Rome'}", "inputs": {"city": "Rome"}, "tags": [], "metadata": {}, "kwargs": {}},
            {"city": "Rome"},
            id="LangChain",
        ),
        pytest.param(
            {"input_str": "{'city': 'Rome'}", "tags": [], "metadata": {}, "kwargs": {}},
            {"city": "Rome"},
            id="LangChain before 0.50",
        ),
    ],
)
def test_arguments_are_unwrapped_from_the_envelope_of_each_instrumentation(written: object, arguments: object) -> None:
    seen = span(
        "weather.tool",
        traceloop__span__kind="tool",
        traceloop__entity__name="weather",
        traceloop__entity__input=json.dumps(written),
    )
    [run] = extract([seen])
    [call] = run.tool_calls
    assert (call.name, call.arguments) == ("weather", arguments)


def test_a_langchain_js_tool_gets_its_name_from_its_result_instead_of_its_class() -> None:
    message = {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain_core", "messages", "ToolMessage"],
        "kwargs": {"status": "success", "content": "21", "name": "weather", "tool_call_id": "c1"},
    }
    seen = span(
        "execute_tool DynamicStructuredTool",
        gen_ai__operation__name="execute_tool",
        traceloop__span__kind="task",
        traceloop__entity__name="DynamicStructuredTool",
        traceloop__entity__output=json.dumps(message),
    )
    [run] = extract([seen])
    [call] = run.tool_calls
    assert (call.name, call.call_id, call.result) == ("weather", "c1", 21)


def test_the_is_error_flag_of_an_mcp_tool_gives_its_error() -> None:
    seen = span(
        "pay.tool",
        traceloop__span__kind="tool",
        traceloop__entity__name="pay",
        traceloop__entity__output='{"result":"no funds","is_error":true}',
    )
    [run] = extract([seen])
    assert [call.error for call in run.tool_calls] == ["no funds"]


def test_tool_definitions_in_numbered_function_attributes_are_read_with_their_schemas() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    reading = read(
        span(
            "ChatOpenAI.chat",
            llm__request__type="chat",
            llm__request__functions__1__name="second",
            llm__request__functions__0__name="first",
            llm__request__functions__0__description="the first",
            llm__request__functions__0__parameters=json.dumps(schema),
        )
    )
    offered = [tool for place in reading.tool_definitions for tool in place()]
    assert [(tool.name, tool.description, tool.parameters) for tool in offered] == [
        ("first", "the first", schema),
        ("second", None, None),
    ]


@pytest.mark.parametrize(("target", "named"), [({}, "unknown"), ({"gen_ai__handoff__to_agent": "legal"}, "legal")])
def test_a_handoff_is_not_a_tool_and_has_the_name_of_its_target_agent(target: dict[str, str], named: str) -> None:
    seen = span("trip → unknown.handoff", traceloop__span__kind="handoff", gen_ai__operation__name="handoff", **target)
    [run] = extract([seen])
    assert [(call.name, call.kind) for call in run.tool_calls] == [(named, "handoff")]
    assert run.tools_used == ()


# LlamaIndex: opentelemetry-instrumentation-llamaindex 0.62, dispatcher_wrapper.py and span_utils.py.
@pytest.mark.parametrize(
    ("name", "output", "role", "named"),
    [
        pytest.param("FunctionAgent", {"result": {"current_agent_name": "travel"}}, "agent", "travel", id="an agent"),
        pytest.param("AgentWorkflow", {"result": "x"}, "agent", "AgentWorkflow", id="agents, none of them named"),
        pytest.param("Trip", {"result": {"current_agent_name": "travel"}}, "entry", "Trip.workflow", id="a workflow"),
    ],
)
def test_the_workflow_of_an_agent_class_is_an_agent(name: str, output: object, role: str, named: str) -> None:
    named_by = {"traceloop__span__kind": "workflow", "traceloop__entity__name": f"{name}.workflow"}
    reading = read(span(f"{name}.workflow", **named_by, traceloop__entity__output=json.dumps(output)))
    assert (reading.role, reading.name) == (role, named)


@pytest.mark.parametrize(
    ("name", "given", "kind"),
    [
        pytest.param("pay", {"sum": 5}, "tool", id="a tool"),
        pytest.param("handoff", {"to_agent": "billing", "reason": "money"}, "handoff", id="a hand-off"),
    ],
)
def test_a_llama_index_task_that_calls_a_tool_is_a_call(name: str, given: dict[str, object], kind: str) -> None:
    output = {"blocks": [], "tool_name": name, "raw_input": given, "raw_output": "no funds", "is_error": True}
    event = {"tool_name": name, "tool_kwargs": given, "tool_id": "c1", "tool_output": output, "return_direct": False}
    seen = span(
        "BaseWorkflowAgent.task",
        traceloop__span__kind="task",
        traceloop__entity__name="BaseWorkflowAgent.task",
        traceloop__entity__output=json.dumps(event),
        tool__name=name,
        tool__arguments=json.dumps(given),
    )
    [run] = extract([seen])
    [call] = run.tool_calls
    assert (call.name, call.arguments, call.call_id, call.kind) == (name, given, "c1", kind)
    assert (call.result, call.error) == ("no funds", "no funds")


def test_calls_missing_from_the_genai_messages_of_llama_index_are_read_from_the_task_output() -> None:
    block = {"block_type": "tool_call", "tool_call_id": "c1", "tool_name": "pay", "tool_kwargs": {"sum": 5}}
    tools = [{"type": "function", "function": {"name": "pay"}}]
    question = {"role": "user", "blocks": [{"block_type": "text", "text": "Pay 5."}]}
    seen = span(
        "OpenAI.task",
        traceloop__span__kind="task",
        traceloop__entity__input=json.dumps({"messages": [question], "kwargs": {"tools": tools}}),
        traceloop__entity__output=json.dumps({"message": {"role": "assistant", "blocks": [block]}}),
        gen_ai__operation__name="chat",
        gen_ai__input__messages='[{"role": "user", "parts": [{"type": "text", "content": "Pay 5."}]}]',
        gen_ai__output__messages='[{"role": "assistant", "parts": []}]',
    )
    [run] = extract([seen])
    assert (run.input, [tool.name for tool in run.available_tools]) == ("Pay 5.", ["pay"])
    assert [(call.name, call.arguments) for call in run.tool_calls] == [("pay", {"sum": 5})]


def test_turns_whose_history_contains_no_calls_are_one_request() -> None:
    # Cohere: opentelemetry-instrumentation-cohere 0.62 keeps neither the calls of the history nor the answers' ids.
    question = {"gen_ai__prompt__0__role": "user", "gen_ai__prompt__0__content": "Pay 5."}
    answered = {
        "gen_ai__prompt__1__role": "assistant",
        "gen_ai__prompt__2__role": "tool",
        "gen_ai__prompt__2__content": "paid",
    }
    asking = {
        "gen_ai__completion__0__role": "assistant",
        "gen_ai__completion__0__tool_calls__0__id": "c1",
        "gen_ai__completion__0__tool_calls__0__name": "pay",
        "gen_ai__completion__0__tool_calls__0__arguments": '{"sum": 5}',
    }
    done = {"gen_ai__completion__0__role": "assistant", "gen_ai__completion__0__content": "Done."}
    turns = [{**question, **asking}, {**question, **answered, **done}]
    [run] = extract(
        [
            span("cohere.chat", trace_id=f"{number:032x}", llm__request__type="chat", **turn)
            for number, turn in enumerate(turns, start=1)
        ]
    )
    assert (run.input, run.output, run.tools_used) == ("Pay 5.", "Done.", ("pay",))
