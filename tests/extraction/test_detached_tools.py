"""Tool spans without the context of their request join it by an id if the match is unambiguous."""

from __future__ import annotations

from typing import Any

import pytest

from goldspan.extraction import extract
from goldspan.model import SpanRecord
from support.span_builders import agent, asks_for, in_trace, inside, model, span, tool, user

SESSION = {"gen_ai__conversation__id": "s1"}
COPILOT = {"scope": "github.copilot"}


def tools_used(spans: list[SpanRecord]) -> list[tuple[str, ...]]:
    return [run.tools_used for run in extract(spans)]


def request(number: int, start: int, end: int, *, name: str = "desk", **more: Any) -> list[SpanRecord]:
    """A running agent with one tool span that kept its context."""
    root = agent(name, start_ns=start, end_ns=end, **in_trace(number), **more)
    return [root, tool("kept", {"n": number}, start_ns=start + 1, end_ns=start + 2, **inside(root))]


def detached_tool(number: int, start: int, *, name: str = "lost", **more: Any) -> SpanRecord:
    return tool(name, {"n": number}, start_ns=start, end_ns=start + 5, **in_trace(number), **more)


def test_a_detached_tool_span_joins_the_running_request_of_its_session() -> None:
    spans = [
        *request(1, 100, 200, **SESSION),
        detached_tool(2, 150, **SESSION),
        detached_tool(3, 160, name="last", **SESSION),
    ]
    (run,) = extract(spans)
    assert run.tools_used == ("kept", "lost", "last")
    assert (run.health.stitched, run.health.is_clean, len(run.trace_ids)) == (2, False, 3)
    assert extract(spans[::-1]) == [run]


@pytest.mark.parametrize(
    ("stray", "joined"),
    [
        pytest.param(detached_tool(2, 150, **SESSION), True, id="the same session"),
        pytest.param(detached_tool(2, 150, session__id="s1"), True, id="under another key"),
        pytest.param(detached_tool(2, 150, gen_ai__conversation__id="s2"), False, id="another session"),
        pytest.param(detached_tool(2, 150), False, id="no session"),
        pytest.param(detached_tool(2, 150, resource={"service.name": "other"}, **SESSION), False, id="another service"),
        pytest.param(detached_tool(2, 300, **SESSION), False, id="when the request was over"),
        pytest.param(detached_tool(2, 50, **SESSION), False, id="before it began"),
        pytest.param(tool("lost", {}, start_ns=None, end_ns=None, **in_trace(2), **SESSION), False, id="no time"),
        pytest.param(detached_tool(2, 199, **SESSION), True, id="a tool that goes on for longer"),
    ],
)
def test_a_detached_tool_span_joins_only_if_both_id_and_time_match(stray: SpanRecord, joined: bool) -> None:
    found = tools_used([*request(1, 100, 200, **SESSION), stray])
    assert sorted(found) == ([("kept", "lost")] if joined else [("kept",), ("lost",)])


def test_a_detached_tool_span_joins_no_request_if_two_of_its_session_were_running() -> None:
    both = [*request(1, 100, 200, **SESSION), *request(2, 140, 240, name="other", **SESSION)]
    doubtful, sure = detached_tool(3, 150, **SESSION), detached_tool(4, 210, name="sure", **SESSION)
    assert sorted(tools_used([*both, doubtful])) == [("kept",), ("kept",), ("lost",)]
    assert tools_used([*both, sure]) == [("kept",), ("kept", "sure")]


def test_sequential_requests_each_get_their_own_detached_tool_spans() -> None:
    spans = [*request(1, 100, 200, **SESSION), *request(2, 300, 400, **SESSION)]
    spans += [detached_tool(3, 150, name="first", **SESSION), detached_tool(4, 350, name="second", **SESSION)]
    assert tools_used(spans) == [("kept", "first"), ("kept", "second")]


def test_a_detached_tool_span_brings_its_nested_spans() -> None:
    stray = tool("ask_expert", {"q": 1}, start_ns=150, end_ns=180, **in_trace(2), **SESSION)
    expert = agent("expert", start_ns=151, end_ns=179, **inside(stray))
    turn = model(asked=[user("q")], answered=[asks_for("x", {})], start_ns=152, end_ns=153, **inside(expert))
    inner = tool("x", {}, start_ns=160, end_ns=161, **inside(expert))
    (run,) = extract([*request(1, 100, 200, **SESSION), stray, expert, turn, inner])
    assert [(call.name, call.kind) for call in run.tool_calls] == [
        ("kept", "tool"),
        ("ask_expert", "agent"),
        ("x", "tool"),
    ]


def test_the_session_may_be_on_a_span_around_the_tool() -> None:
    around = span("worker", start_ns=140, end_ns=160, **in_trace(2), **SESSION)
    stray = tool("lost", {}, start_ns=150, end_ns=155, **inside(around))
    assert tools_used([*request(1, 100, 200, **SESSION), around, stray]) == [("kept", "lost")]


def test_a_request_without_an_agent_span_gets_its_detached_tool_spans() -> None:
    root = span("POST /chat", start_ns=100, end_ns=200, **in_trace(1))
    turn = model(asked=[user("Hi")], answered=[asks_for("lost", {"n": 2})], start_ns=101, end_ns=110, **inside(root))
    last = model(asked=[user("Hi")], start_ns=190, end_ns=199, **inside(root), **SESSION)
    assert tools_used([root, turn, last, detached_tool(2, 150, **SESSION)]) == [("lost",)]


def test_a_detached_model_with_an_input_is_a_separate_request() -> None:
    other = span("POST /other", start_ns=150, end_ns=190, **in_trace(2), **SESSION)
    turn = model(asked=[user("What?")], answered=[], start_ns=151, end_ns=152, **inside(other), **SESSION)
    spans = [*request(1, 100, 200, **SESSION), other, turn, tool("own", {}, start_ns=160, end_ns=161, **inside(other))]
    assert tools_used(spans) == [("kept",), ("own",)]


def test_a_request_id_selects_the_request_if_the_session_does_not() -> None:
    def served(number: int, start: int, interaction: str) -> list[SpanRecord]:
        root, kept = request(number, start, start + 100, name=interaction, **SESSION, **COPILOT)
        known = {**COPILOT, "github__copilot__interaction_id": interaction}
        times = {"start_ns": start + 3, "end_ns": start + 4}
        return [root, kept, model(asked=[user(f"Do {interaction}")], **times, **inside(root), **known)]

    both = [*served(1, 100, "r1"), *served(2, 140, "r2")]
    stray = detached_tool(3, 150, **SESSION, **COPILOT, github__copilot__interaction_id="r2")
    assert tools_used([*both, stray]) == tools_used([stray, *both]) == [("kept",), ("kept", "lost")]


def test_detached_tool_spans_of_a_session_without_a_request_are_one_run() -> None:
    assert tools_used([detached_tool(2, 100, name="a", **SESSION), detached_tool(3, 110, name="b", **SESSION)]) == [
        ("a", "b")
    ]


def test_a_request_without_times_gets_no_detached_tool_spans() -> None:
    timeless = agent("desk", start_ns=None, end_ns=None, **in_trace(1), **SESSION)
    kept = tool("kept", {}, start_ns=None, end_ns=None, **inside(timeless))
    assert sorted(tools_used([timeless, kept, detached_tool(2, 150, **SESSION)])) == [("kept",), ("lost",)]
