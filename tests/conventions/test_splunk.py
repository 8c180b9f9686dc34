"""Splunk's GenAI utilities for OpenTelemetry; see also the recorded export of LangChain."""

from __future__ import annotations

import json

import goldspan
from goldspan.extraction import extract, role_of
from support.span_builders import agent, inside, span, tool

OURS = {"gen_ai__evaluation__sampled": True}


def test_a_step_is_neither_a_call_nor_a_request() -> None:
    work = agent("trip", **OURS)
    step = span("step tools", gen_ai__step__type="chain", input__value="a", output__value="b", **OURS, **inside(work))
    call = tool("book", **OURS, **inside(step))
    assert role_of(step) is None
    (run,) = extract([work, step, call])
    assert (run.tools_used, run.health.fallback) == (("book",), ())


def test_the_finish_reason_of_a_tool_gives_its_error() -> None:
    failed = tool("book", gen_ai__finish_reason="failed", gen_ai__finish_reason_description="no room", **OURS)
    silent = tool("book", gen_ai__finish_reason="failed", **OURS)
    ended = tool("book", gen_ai__finish_reason="stop", **OURS)
    errors = [run.tool_calls[0].error for each in (failed, silent, ended) for run in extract([each])]
    assert errors == ["no room", "error", None]


def test_a_result_is_unwrapped_from_its_message() -> None:
    result = "content='{\"room\": 7}' name='book' tool_call_id='c1'"
    ((call,),) = (run.tool_calls for run in extract([tool("book", gen_ai__tool__call__result=result, **OURS)]))
    assert (call.result, call.call_id) == ({"room": 7}, "c1")


def test_a_request_that_does_not_name_its_tools_has_invisible_calls() -> None:
    said = [{"role": "assistant", "parts": ["ToolCall"], "finish_reason": "tool_calls"}]
    asked = {"gen_ai__operation__name": "chat", "gen_ai__output__messages": json.dumps(said)}
    asking = span("chat", gen_ai__response__finish_reasons=["tool_calls"], **asked, **OURS)
    (run,) = extract([asking])
    assert (run.tools_used, run.health.calls_invisible) == ((), True)
    assert goldspan.evaluate(run, []).passed is None
