"""Strands Agents, as implemented in `src/strands/telemetry/tracer.py`; see also the recorded exports of 1.62."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goldspan.conventions import installed_conventions
from goldspan.extraction import extract
from goldspan.model import SpanEvent, SpanRecord
from support.span_builders import span

DETAILS = "gen_ai.client.inference.operation.details"


def strands(operation: str, *events: SpanEvent, system: str = "gen_ai.system", **more: Any) -> SpanRecord:
    attributes = {system.replace(".", "__"): "strands-agents", "gen_ai__event__start_time": "2026-01-01", **more}
    return span(operation, gen_ai__operation__name=operation, events=events, **attributes)


def tool(*events: SpanEvent, **more: Any) -> SpanRecord:
    return strands("execute_tool", *events, gen_ai__tool__name="search", gen_ai__tool__call__id="t1", **more)


@pytest.mark.parametrize(
    ("content", "result"),
    [
        ([{"text": "two rooms"}], "two rooms"),
        ([{"text": '{"rooms": 2}'}], {"rooms": 2}),
        ([{"json": {"rooms": 2}}], {"rooms": 2}),
        ([{"text": "one"}, {"json": {"two": 2}}], ["one", {"two": 2}]),
        ([{"image": {"format": "png"}}], [{"image": {"format": "png"}}]),
        ([], []),
    ],
)
def test_a_result_is_the_content_of_its_blocks(content: list[Any], result: Any) -> None:
    written = SpanEvent("gen_ai.choice", {"message": json.dumps(content), "id": "t1"})
    reading = installed_conventions().classify(tool(written))
    assert reading.result is not None
    assert reading.result.value == result


def test_the_first_latest_schema_has_arguments_and_result_in_the_inference_details() -> None:
    asked = [{"role": "tool", "parts": [{"type": "tool_call", "name": "search", "id": "t1", "arguments": {"q": "x"}}]}]
    handed = [{"role": "tool", "parts": [{"type": "tool_call_response", "id": "t1", "response": [{"text": "found"}]}]}]
    call = tool(
        SpanEvent(DETAILS, {"gen_ai.input.messages": json.dumps(asked)}),
        SpanEvent(DETAILS, {"gen_ai.output.messages": json.dumps(handed)}),
        system="gen_ai.provider.name",
    )
    [run] = extract([call])
    assert [(made.arguments, made.result) for made in run.tool_calls] == [({"q": "x"}, "found")]


def test_a_tool_with_error_status_failed_even_if_it_raised_nothing() -> None:
    said = SpanEvent("gen_ai.choice", {"message": '[{"text": "no rooms"}]'})
    [run] = extract([tool(said, gen_ai__tool__status="error")])
    assert [(call.error, call.outcome) for call in run.tool_calls] == [("no rooms", "error")]


def test_a_swarm_is_one_request_of_several_agents() -> None:
    swarm = strands("invoke_swarm", SpanEvent("gen_ai.user.message", {"content": "Plan a trip."}))
    first = strands("invoke_agent", gen_ai__agent__name="planner", parent_id=swarm.span_id)
    second = strands("invoke_agent", gen_ai__agent__name="booker", parent_id=swarm.span_id)
    call = tool(parent_id=second.span_id)
    [run] = extract([swarm, first, second, call])
    assert (run.input, run.span_id, run.tools_used) == ("Plan a trip.", swarm.span_id, ("search",))
    assert run.tool_calls[0].agent == "booker"


@pytest.mark.parametrize(
    "events",
    [
        (SpanEvent("gen_ai.tool.message", {}), SpanEvent("gen_ai.choice", {})),
        (SpanEvent("gen_ai.tool.message", {"content": "{"}), SpanEvent("gen_ai.choice", {"message": 7})),
        (SpanEvent(DETAILS, {"gen_ai.input.messages": "[[1]]", "gen_ai.output.messages": 3}),),
    ],
)
def test_unreadable_content_is_ignored(events: tuple[SpanEvent, ...]) -> None:
    [run] = extract([tool(*events)])
    assert run.tools_used == ("search",)


def test_a_genai_span_of_another_library_is_not_a_strands_span() -> None:
    other = span("x", gen_ai__operation__name="execute_tool", gen_ai__tool__name="x", gen_ai__event__start_time="now")
    assert installed_conventions().classify(other).conventions == ("genai",)
