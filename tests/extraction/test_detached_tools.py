"""Tools that lost the context of their request come back to it by an id, and only where that leaves no doubt."""

from __future__ import annotations

from typing import Any

import pytest

from goldspan.extraction import extract
from goldspan.model import SpanRecord
from support.span_builders import agent, asks_for, in_trace, inside, model, span, tool, user

SESSION = {"gen_ai__conversation__id": "s1"}
COPILOT = {"scope": "github.copilot"}


def used(spans: list[SpanRecord]) -> list[tuple[str, ...]]:
    return [run.tools_used for run in extract(spans)]


def request(number: int, start: int, end: int, *, name: str = "desk", **more: Any) -> list[SpanRecord]:
    """An agent at work, with one tool that kept its context."""
    root = agent(name, start_ns=start, end_ns=end, **in_trace(number), **more)
    return [root, tool("kept", {"n": number}, start_ns=start + 1, end_ns=start + 2, **inside(root))]


def lost(number: int, start: int, *, name: str = "lost", **more: Any) -> SpanRecord:
    return tool(name, {"n": number}, start_ns=start, end_ns=start + 5, **in_trace(number), **more)


def test_a_tool_in_a_trace_of_its_own_joins_the_request_of_its_session_that_was_at_work() -> None:
    spans = [*request(1, 100, 200, **SESSION), lost(2, 150, **SESSION), lost(3, 160, name="last", **SESSION)]
    (run,) = extract(spans)
    assert run.tools_used == ("kept", "lost", "last")
    assert (run.health.stitched, run.health.is_clean, len(run.trace_ids)) == (2, False, 3)
    assert extract(spans[::-1]) == [run]


@pytest.mark.parametrize(
    ("stray", "joined"),
    [
        pytest.param(lost(2, 150, **SESSION), True, id="the same session"),
        pytest.param(lost(2, 150, session__id="s1"), True, id="under another key"),
        pytest.param(lost(2, 150, gen_ai__conversation__id="s2"), False, id="another session"),
        pytest.param(lost(2, 150), False, id="no session"),
        pytest.param(lost(2, 150, resource={"service.name": "other"}, **SESSION), False, id="another service"),
        pytest.param(lost(2, 300, **SESSION), False, id="when the request was over"),
        pytest.param(lost(2, 50, **SESSION), False, id="before it began"),
        pytest.param(tool("lost", {}, start_ns=None, end_ns=None, **in_trace(2), **SESSION), False, id="no time"),
        pytest.param(lost(2, 199, **SESSION), True, id="a tool that goes on for longer"),
    ],
)
def test_an_id_and_the_time_must_both_tell(stray: SpanRecord, joined: bool) -> None:
    found = used([*request(1, 100, 200, **SESSION), stray])
    assert sorted(found) == ([("kept", "lost")] if joined else [("kept",), ("lost",)])


def test_where_two_requests_of_a_session_were_at_work_nobody_knows_whose_a_tool_was() -> None:
    both = [*request(1, 100, 200, **SESSION), *request(2, 140, 240, name="other", **SESSION)]
    doubtful, sure = lost(3, 150, **SESSION), lost(4, 210, name="sure", **SESSION)
    assert sorted(used([*both, doubtful])) == [("kept",), ("kept",), ("lost",)]
    assert used([*both, sure]) == [("kept",), ("kept", "sure")]


def test_requests_one_after_the_other_get_each_their_own() -> None:
    spans = [*request(1, 100, 200, **SESSION), *request(2, 300, 400, **SESSION)]
    spans += [lost(3, 150, name="first", **SESSION), lost(4, 350, name="second", **SESSION)]
    assert used(spans) == [("kept", "first"), ("kept", "second")]


def test_a_lost_tool_takes_along_what_it_called_itself() -> None:
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
    assert used([*request(1, 100, 200, **SESSION), around, stray]) == [("kept", "lost")]


def test_a_request_without_an_agents_span_gets_its_tools_back_too() -> None:
    root = span("POST /chat", start_ns=100, end_ns=200, **in_trace(1))
    turn = model(asked=[user("Hi")], answered=[asks_for("lost", {"n": 2})], start_ns=101, end_ns=110, **inside(root))
    last = model(asked=[user("Hi")], start_ns=190, end_ns=199, **inside(root), **SESSION)
    assert used([root, turn, last, lost(2, 150, **SESSION)]) == [("lost",)]


def test_a_model_that_was_asked_something_is_a_request_of_its_own() -> None:
    other = span("POST /other", start_ns=150, end_ns=190, **in_trace(2), **SESSION)
    turn = model(asked=[user("What?")], answered=[], start_ns=151, end_ns=152, **inside(other), **SESSION)
    spans = [*request(1, 100, 200, **SESSION), other, turn, tool("own", {}, start_ns=160, end_ns=161, **inside(other))]
    assert used(spans) == [("kept",), ("own",)]


def test_an_id_of_the_request_itself_tells_where_its_session_does_not() -> None:
    def served(number: int, start: int, interaction: str) -> list[SpanRecord]:
        root, kept = request(number, start, start + 100, name=interaction, **SESSION, **COPILOT)
        known = {**COPILOT, "github__copilot__interaction_id": interaction}
        times = {"start_ns": start + 3, "end_ns": start + 4}
        return [root, kept, model(asked=[user(f"Do {interaction}")], **times, **inside(root), **known)]

    both = [*served(1, 100, "r1"), *served(2, 140, "r2")]
    stray = lost(3, 150, **SESSION, **COPILOT, github__copilot__interaction_id="r2")
    assert used([*both, stray]) == used([stray, *both]) == [("kept",), ("kept", "lost")]


def test_tools_of_a_session_without_any_request_stay_together() -> None:
    assert used([lost(2, 100, name="a", **SESSION), lost(3, 110, name="b", **SESSION)]) == [("a", "b")]


def test_a_request_whose_times_are_not_known_was_never_at_work() -> None:
    timeless = agent("desk", start_ns=None, end_ns=None, **in_trace(1), **SESSION)
    kept = tool("kept", {}, start_ns=None, end_ns=None, **inside(timeless))
    assert sorted(used([timeless, kept, lost(2, 150, **SESSION)])) == [("kept",), ("lost",)]
