"""The OpenTelemetry integration of LlamaIndex, as `llama-index-observability-otel` 0.7 writes it."""

from __future__ import annotations

import pytest

from goldspan.conventions import installed_conventions
from goldspan.extraction import extract
from goldspan.model import SpanEvent, SpanRecord
from support.span_builders import span

read = installed_conventions().classify


def step(name: str, event: str, summary: str, **more: object) -> SpanRecord:
    """A span inside a step; every such span has the tags of the step."""
    tags = {"llamaindex__step__input_event": event, "llamaindex__step__input_summary": summary}
    return span(name, llamaindex__run_id="r1", **tags, **more)


CALL = "ToolCall(tool_name='pay', tool_kwargs={'sum': 5}, tool_id='c1')"


@pytest.mark.parametrize(
    ("name", "event", "role"),
    [
        pytest.param("BaseWorkflowAgent.call_tool", "ToolCall", "tool", id="the step"),
        pytest.param("FunctionTool.acall", "ToolCall", "tool", id="the tool itself"),
        pytest.param("QueryEngineTool.call", "ToolCall", "tool", id="another kind of tool"),
        pytest.param("OpenAI.achat", "ToolCall", None, id="a model inside the tool, without its events"),
        pytest.param("BaseWorkflowAgent.call_tool", "AgentInput", None, id="another step"),
    ],
)
def test_step_and_method_determine_whether_a_span_is_a_tool(name: str, event: str, role: str | None) -> None:
    assert read(step(name, event, CALL)).role == role


def test_a_step_and_its_inner_tool_are_one_call_with_the_error_of_the_inner_span() -> None:
    outer = step("BaseWorkflowAgent.call_tool", "ToolCall", CALL)
    inner = step(
        "FunctionTool.acall", "ToolCall", CALL, parent_id=outer.span_id, status="error", status_message="broke"
    )
    [run] = extract([outer, inner])
    [call] = run.tool_calls
    assert (call.name, call.arguments, call.call_id, call.error) == ("pay", {"sum": 5}, "c1", "broke")


@pytest.mark.parametrize(
    ("summary", "arguments"),
    [
        pytest.param(CALL, {"sum": 5}, id="whole"),
        pytest.param("ToolCall(tool_name='pay', tool_kwargs={'sum': 5, 'note': 'for th...", None, id="cut off"),
    ],
)
def test_truncated_arguments_are_not_read_as_complete(summary: str, arguments: object) -> None:
    [run] = extract([step("BaseWorkflowAgent.call_tool", "ToolCall", summary)])
    [call] = run.tool_calls
    assert (call.name, call.arguments) == ("pay", arguments)


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        pytest.param("{'to_agent': 'billing', 'reason': 'money'}", "handoff", id="LlamaIndex's"),
        pytest.param("{'parcel': 7}", "tool", id="a user's tool of the same name"),
    ],
)
def test_a_handoff_tool_is_a_handoff_only_with_handoff_arguments(arguments: str, kind: str) -> None:
    summary = f"ToolCall(tool_name='handoff', tool_kwargs={arguments}, tool_id='c1')"
    [run] = extract([step("AgentWorkflow.call_tool", "ToolCall", summary)])
    assert [call.kind for call in run.tool_calls] == [kind]


def test_a_complete_result_is_read_from_the_step_output_event() -> None:
    output = f"ToolCallResult({CALL[9:-1]}, tool_output=ToolOutput(content='paid', raw_output='paid', is_error=False))"
    [run] = extract(
        [step("BaseWorkflowAgent.call_tool", "ToolCall", CALL, events=(SpanEvent("step.output", {"output": output}),))]
    )
    assert [call.result for call in run.tool_calls] == ["paid"]


def test_model_messages_are_read_from_the_events_of_the_span() -> None:
    asked = '[{"role": "user", "blocks": [{"block_type": "text", "text": "Pay 5."}]}]'
    blocks = '[{"block_type": "tool_call", "tool_call_id": "c1", "tool_name": "pay", "tool_kwargs": "{\\"sum\\": 5}"}]'
    tools = '[{"type": "function", "function": {"name": "pay", "parameters": {"type": "object", "properties": {}}}}]'
    events = (
        SpanEvent("LLMChatStartEvent", {"messages": asked, "additional_kwargs.tools": tools}),
        SpanEvent("LLMChatEndEvent", {"response.message.role": "assistant", "response.message.blocks": blocks}),
    )
    [run] = extract([step("OpenAI.achat", "AgentSetup", "AgentSetup(...", events=events)])
    [call] = run.tool_calls
    assert (run.input, [tool.name for tool in run.available_tools]) == ("Pay 5.", ["pay"])
    assert (call.name, call.arguments, call.call_id, call.evidence) == ("pay", {"sum": 5}, "c1", "requested")
