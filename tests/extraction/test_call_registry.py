"""Requested calls matched with executed calls, and calls that message histories add."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from goldspan.extraction import extract
from goldspan.model import SpanRecord, ToolCall
from support.span_builders import (
    agent,
    answers,
    ask_for,
    asks_for,
    in_trace,
    inside,
    made,
    messages,
    model,
    says,
    span,
    tool,
    user,
)

GO = user("Go")


def calls_of(*spans: SpanRecord) -> tuple[ToolCall, ...]:
    (run,) = extract(spans)
    return run.tool_calls


def run_of(*parts: Any) -> tuple[ToolCall, ...]:
    """The calls of an agent: lists are turns of its model, others are tools, one after the other."""
    root = agent("a", start_ns=1, end_ns=10**15)
    spans = [model(asked=[GO], answered=part, **inside(root)) if isinstance(part, list) else part() for part in parts]
    for each in spans:
        each.parent_id = root.span_id
    return calls_of(root, *spans)


def tool_call(name: str, arguments: Any = None, **facts: Any) -> Any:
    return lambda: tool(name, arguments, **facts)


def summary(calls: Sequence[ToolCall]) -> list[tuple[str, str | None, str]]:
    return [(call.name, call.call_id, call.evidence) for call in calls]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param(
            [[ask_for(("x", {"n": 1}, "c1"))], tool_call("x", {"n": 1}, **made("c1"))],
            [("x", "c1", "executed")],
            id="by id",
        ),
        pytest.param(
            [[ask_for(("x", {"n": 1}, "c1"))], tool_call("x", {"n": 1})],
            [("x", "c1", "executed")],
            id="by name and arguments",
        ),
        pytest.param(
            [[ask_for(("x", {"n": 1}, "c1"))], tool_call("x", {"n": 1, "limit": 10})],
            [("x", "c1", "executed")],
            id="by name alone: a framework added a default",
        ),
        pytest.param(
            [
                [ask_for(("x", {"n": 1}, "c1"), ("x", {"n": 2}, "c2"))],
                tool_call("x", {"n": 2, "k": 0}),
                tool_call("x", {"n": 1}),
            ],
            [("x", "c2", "executed"), ("x", "c1", "executed")],
            id="equal arguments come before a mere name",
        ),
        pytest.param(
            [[ask_for(("x", {"n": 1}, "c1"))], tool_call("x", {"n": 1}, **made("c2"))],
            [("x", "c1", "requested"), ("x", "c2", "executed")],
            id="other ids are other calls",
        ),
        pytest.param(
            [[ask_for(("shop_x", {"n": 1}, "c1"))], tool_call("x", {"n": 1})],
            [("x", "c1", "executed")],
            id="the model sees the server's name",
        ),
        pytest.param(
            [
                [ask_for(("x", {"n": 1}, "c1"), ("web_x", {"n": 1}, "c2"))],
                tool_call("web_x", {"n": 1}),
                tool_call("x", {"n": 1}),
            ],
            [("web_x", "c2", "executed"), ("x", "c1", "executed")],
            id="the very name comes before one that ends like it",
        ),
        pytest.param(
            [[ask_for(("x", {"n": 1}, "c1"), ("web_x", {"n": 1}, "c2"))], tool_call("web_x", {"n": 1})],
            [("x", "c1", "requested"), ("web_x", "c2", "executed")],
            id="and is never given to the other, though its own span is lost",
        ),
        pytest.param(
            [[ask_for(("search", {"n": 1}))], tool_call("research", {"n": 1})],
            [("search", None, "requested"), ("research", None, "executed")],
            id="half a word is no tool",
        ),
        pytest.param(
            [tool_call("x", {"n": 1}), [ask_for(("x", {"n": 1}, "c1"))], tool_call("x", {"n": 1})],
            [("x", None, "executed"), ("x", "c1", "executed")],
            id="what began before the model was asked is not what it asked for",
        ),
        pytest.param(
            [
                [ask_for(("expert", {"q": 1}, "call_0"))],
                tool_call("expert", {"q": 1}),
                tool_call("x", {"n": 1}, **made("call_0")),
            ],
            [("expert", "call_0", "executed"), ("x", "call_0", "executed")],
            id="an id that a sub-agent uses again, by the name",
        ),
        pytest.param(
            [[ask_for(("x", {"n": 1}, "c1"))], tool_call("Tool", {"n": 1}, **made("c1"))],
            [("Tool", "c1", "executed")],
            id="one id is one call, whatever its span calls it",
        ),
    ],
)
def test_a_requested_call_matches_its_execution(parts: list[Any], expected: list[tuple[str, str | None, str]]) -> None:
    assert summary(run_of(*parts)) == expected


def test_ids_that_restart_in_every_turn_keep_calls_and_results_apart() -> None:
    root = agent("a")
    said: list[Any] = [GO]
    spans = [root]
    for number in range(3):
        asking = asks_for("x", {"n": number}, "call_0")
        spans.append(model(asked=said, answered=[asking], **inside(root)))
        spans.append(tool("x", {"n": number}, **made("call_0"), **inside(root)))
        said = [*said, asking, answers("call_0", f"result {number}")]
    spans.append(model(asked=said, answered=[says("Done.")], **inside(root)))
    calls = calls_of(*spans)
    assert [(call.arguments, call.result) for call in calls] == [({"n": n}, f"result {n}") for n in range(3)]
    only_messages = [each for each in spans if not each.name.startswith("execute_tool")]
    calls = calls_of(*only_messages)
    assert [(call.arguments, call.result) for call in calls] == [({"n": n}, f"result {n}") for n in range(3)]


def test_repetitions_of_a_requested_call_are_counted_as_merged() -> None:
    root = agent("a")
    turn = {"answered": [asks_for("x", {"n": 1}, "c1")], **inside(root)}
    (run,) = extract([root, model(**turn), model(**turn), model(**turn)])
    assert (run.tools_used, run.health.merged) == (("x",), 2)


# Histories.


def test_a_call_whose_turn_and_tool_are_lost_is_known_in_its_place_from_a_later_history() -> None:
    root = agent("a")
    history = [
        GO,
        asks_for("first", {"n": 1}, "c1"),
        answers("c1", "one"),
        asks_for("second", {"n": 2}, "c2"),
        answers("c2", "two"),
    ]
    spans = [
        root,
        model(asked=history[:1], answered=[history[1]], **inside(root)),
        tool("first", {"n": 1}, **made("c1"), **inside(root)),
        model(asked=history, answered=[asks_for("third", {"n": 3}, "c3")], **inside(root)),
    ]
    calls = calls_of(*spans)
    assert [(call.name, call.evidence, call.result) for call in calls] == [
        ("first", "executed", "one"),
        ("second", "requested", "two"),
        ("third", "requested", None),
    ]


def test_a_history_with_other_call_ids_adds_no_call() -> None:
    root = agent("a")
    asking = ask_for(("x", {"n": 1}, "toolu_1"), ("x", {"n": 1}, "toolu_2"))
    renamed = ask_for(("x", {"n": 1}, "call_1"), ("x", {"n": 1}, "call_2"))
    spans = [
        root,
        model(asked=[GO], answered=[asking], **inside(root)),
        tool("x", {"n": 1}, **inside(root)),
        tool("x", {"n": 1}, **inside(root)),
        model(asked=[GO, renamed, answers("call_1", 1), answers("call_2", 2)], answered=[says("Ok")], **inside(root)),
    ]
    assert [call.evidence for call in calls_of(*spans)] == ["executed", "executed"]


def test_a_history_with_one_more_of_equal_calls_adds_one_call() -> None:
    root = agent("a", gen_ai__input__messages=messages(GO, *(asks_for("x", {"n": 1}) for _ in range(3))))
    spans = [root, tool("x", {"n": 1}, **inside(root)), tool("x", {"n": 1}, **inside(root))]
    assert [call.evidence for call in calls_of(*spans)] == ["executed", "executed", "requested"]


def test_a_history_gives_arguments_and_name_to_a_span_without_them() -> None:
    root = agent("a", gen_ai__output__messages=messages(asks_for("search", {"n": 1}, "c1")))
    for silent in (
        tool("search", **inside(root)),
        span("FunctionTool", openinference__span__kind="TOOL", input__value='{"n": 1}', **inside(root)),
    ):
        (call,) = calls_of(root, silent)
        assert (call.name, call.arguments, call.evidence) == ("search", {"n": 1}, "executed")


def test_calls_of_an_earlier_turn_of_the_conversation_are_not_counted_again() -> None:
    old = [user("Before"), asks_for("old", {"n": 1}, "c1"), answers("c1", 1), says("Done.")]
    now = [*old, user("Now"), asks_for("new", {"n": 2}, "c2"), answers("c2", 2)]
    for root in (agent("a", gen_ai__input__messages=messages(*now)), agent("a", input__value=messages(*now))):
        calls = calls_of(root, model(asked=now, answered=[says("Ok")], **inside(root)))
        assert [call.name for call in calls] == ["new"]


def test_a_history_adds_no_calls_that_another_request_made() -> None:
    first = agent("a", asked="One", **in_trace(1))
    second = agent("a", asked="Two", **in_trace(2))
    state = [asks_for("old", {"n": 1}, "c1"), answers("c1", 1), asks_for("new", {"n": 2}, "c2"), answers("c2", 2)]
    spans = [
        first,
        tool("old", {"n": 1}, **made("c1"), **inside(first)),
        second,
        model(asked=state, answered=[says("Ok")], **inside(second)),
    ]
    assert [[call.name for call in run.tool_calls] for run in extract(spans)] == [["old"], ["new"]]


def test_a_tool_named_like_an_agent_is_an_agent_call_and_a_transfer_to_it_is_a_handoff() -> None:
    root = agent("front")
    asking = model(answered=[ask_for(("back", {"q": 1}, "c1"), ("transfer_to_back", {}, "c2"))], **inside(root))
    other = model(answered=[ask_for(("transfer_to_bank", {"iban": 1}, "c3"))], **inside(root))
    calls = calls_of(root, asking, other, agent("back", **inside(root)))
    assert [(call.name, call.kind) for call in calls] == [
        ("back", "agent"),
        ("transfer_to_back", "handoff"),
        ("transfer_to_bank", "tool"),
    ]


@pytest.mark.parametrize("inside_a_message", [True, False])
def test_a_hosted_tool_call_is_requested_and_counts_as_used(inside_a_message: bool) -> None:
    root = agent("a")
    part = {"type": "web_search_call", "id": "ws1", "status": "completed", "action": {"query": "rome"}}
    answered = {"role": "assistant", "content": [part]} if inside_a_message else part
    (run,) = extract([root, model(asked=[GO], answered=[answered], **inside(root))])
    assert [(call.name, call.kind, call.evidence) for call in run.tool_calls] == [("web_search", "hosted", "requested")]
    assert run.tools_used == ("web_search",)


def test_a_call_matches_equal_arguments_in_a_history_before_its_name() -> None:
    said = [GO, ask_for(("x", {"n": 1}, "c1"), ("x", {"n": 2}, "c2")), answers("c1", 1), answers("c2", 2)]
    calls = run_of(tool_call("x", {"n": 2}), lambda: model(asked=said, answered=[says("Done.")]))
    assert sorted((call.arguments["n"], call.call_id) for call in calls) == [(1, "c1"), (2, "c2")]


def test_a_history_that_is_recorded_twice_adds_each_call_once() -> None:
    said = [GO, ask_for(("x", {"n": 1}, "c1")), ask_for(("x", {"n": 1}, "c1")), answers("c1", 1), answers("c1", 1)]
    calls = run_of(lambda: model(asked=said, answered=[says("Done.")]))
    assert summary(calls) == [("x", "c1", "requested")]
