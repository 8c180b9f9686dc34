"""Haystack, after `components/agents/agent.py`, `components/agents/tool_calling.py` and
`hooks/human_in_the_loop/strategies.py` of haystack-ai 3.4; see also the recorded exports.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from goldspan.conventions import installed_conventions
from goldspan.extraction import extract
from support.span_builders import span

STRATEGY = "haystack__agent__hook__human_in_the_loop__strategy__"
ASKED = {"messages": [{"role": "user", "content": [{"text": "Find a hotel."}]}]}
DONE = {**ASKED, "last_message": {"role": "assistant", "content": [{"text": "Found it."}]}}


def test_an_agent_with_its_tools_is_a_request() -> None:
    agent = span(
        "haystack.agent.run",
        haystack__agent__max_steps=10,
        haystack__agent__input=json.dumps(ASKED),
        haystack__agent__output=json.dumps(DONE),
    )
    step = span("haystack.agent.step", haystack__agent__step=0, parent_id=agent.span_id)
    call = span("haystack.agent.step.tool", haystack__tool__name="search", parent_id=step.span_id)
    [run] = extract([agent, step, call])
    assert (run.input, run.output, run.tools_used) == ("Find a hotel.", "Found it.", ("search",))


def test_an_agent_used_as_a_tool_is_a_call_of_kind_agent() -> None:
    agent = span("haystack.agent.run", haystack__agent__max_steps=10)
    outer = span("haystack.agent.step.tool", haystack__tool__name="ask_expert", parent_id=agent.span_id)
    inner = span("haystack.agent.run", haystack__agent__max_steps=10, parent_id=outer.span_id)
    call = span("haystack.agent.step.tool", haystack__tool__name="search", parent_id=inner.span_id)
    [run] = extract([agent, outer, inner, call])
    assert [(call.name, call.kind) for call in run.tool_calls] == [("ask_expert", "agent"), ("search", "tool")]


@pytest.mark.parametrize(
    ("decision", "outcomes"), [("confirm", []), ("modify", []), ("reject", [("delete_all", "denied", "c1")])]
)
def test_a_call_that_the_user_rejected_is_denied(decision: str, outcomes: list[Any]) -> None:
    agent = span("haystack.agent.run", haystack__agent__max_steps=10)
    attributes = {"haystack__tool__name": "delete_all", "haystack__tool__call__id": "c1", f"{STRATEGY}type": "Blocking"}
    asked = span("strategy", parent_id=agent.span_id, **attributes, **{f"{STRATEGY}decision": decision})
    [run] = extract([agent, asked])
    assert [(call.name, call.outcome, call.call_id) for call in run.tool_calls] == outcomes


@pytest.mark.parametrize(
    ("output", "error"),
    [('{"error": "no rooms"}', "no rooms"), ("{}", "error"), (None, "error")],
)
def test_a_failed_tool_has_its_output_as_error_if_content_is_recorded(output: str | None, error: str) -> None:
    attributes = {} if output is None else {"haystack__agent__step__tool__output": output}
    [run] = extract([span("x", haystack__tool__name="book", haystack__tool__error=True, **attributes)])
    assert [call.error for call in run.tool_calls] == [error]


def test_an_indexing_pipeline_is_not_a_request() -> None:
    pipeline = span("haystack.pipeline.run", haystack__pipeline__max_runs_per_component=100)
    writer = span("haystack.component.run", haystack__component__type="DocumentWriter", parent_id=pipeline.span_id)
    assert extract([pipeline, writer]) == []


def test_messages_of_old_versions_with_underscores_are_read() -> None:
    said = {"replies": [{"_role": "assistant", "_content": [{"tool_call": {"tool_name": "search", "arguments": {}}}]}]}
    attributes = {"haystack__component__type": "OpenAIChatGenerator", "haystack__component__output": json.dumps(said)}
    [run] = extract([span("haystack.component.run", **attributes)])
    assert run.tools_used == ("search",)


@pytest.mark.parametrize("value", ["[", 7, '{"messages": 3}', '{"messages": [[1]], "replies": "x", "tools": {}}', ""])
def test_unreadable_content_is_ignored(value: Any) -> None:
    attributes = {
        "haystack__component__type": "OpenAIChatGenerator",
        "haystack__component__input": value,
        "haystack__component__output": value,
    }
    reading = installed_conventions().classify(span("haystack.component.run", **attributes))
    assert reading.role == "model"
    assert [place() for place in (*reading.input_messages, *reading.output_messages, *reading.tool_definitions)] == [
        (),
        (),
        (),
    ]
