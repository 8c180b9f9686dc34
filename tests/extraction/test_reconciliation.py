"""One call, several witnesses: spans inside spans, spans beside spans, and the model's messages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.extraction import extract
from goldspan.model import SpanRecord, ToolCall
from spans import agent, answers, asks_for, model, span, tool


def calls_of(*spans: SpanRecord) -> tuple[ToolCall, ...]:
    (run,) = extract(spans)
    return run.tool_calls


def lasting(made: SpanRecord, until: int = 10**15) -> dict[str, int]:
    return {"start_ns": made.start_ns or 0, "end_ns": until}


@pytest.mark.parametrize(
    ("outer", "inner", "calls"),
    [
        pytest.param(("orders_add", {"a": 1}), ("add", None), 1, id="server prefix, inner without arguments"),
        pytest.param(("mcp__orders__add", {"a": 1}), ("add", {"a": 1}), 1, id="host's form, equal arguments"),
        pytest.param(("add", None), ("add", {"a": 1}), 1, id="arguments only inside"),
        pytest.param(("add", {"n": 2}), ("add", {"n": 1}), 2, id="a tool that calls itself"),
        pytest.param(("plan", {"n": 2}), ("add", {"n": 2}), 2, id="a tool that calls another"),
    ],
)
def test_a_tool_span_inside_another(outer: tuple[str, Any], inner: tuple[str, Any], calls: int) -> None:
    around = tool(*outer, end_ns=10**15)
    found = calls_of(around, tool(*inner, parent_id=around.span_id))
    assert len(found) == calls
    assert found[0].name in ("add", "orders_add", "plan")
    if calls == 1:
        assert found[0].arguments == {"a": 1}
        assert found[0].raw_name == outer[0]


def test_different_call_ids_are_different_calls_even_inside_each_other() -> None:
    outer = tool("add", gen_ai__tool__call__id="c1", end_ns=10**15)
    assert len(calls_of(outer, tool("add", parent_id=outer.span_id, gen_ai__tool__call__id="c2"))) == 2


def test_two_instrumentations_of_one_call_count_once_and_two_attempts_under_one_id_count_twice() -> None:
    root = agent("a")
    seen = {"gen_ai__tool__call__id": "c1", "parent_id": root.span_id}
    first = tool("add", {"a": 1}, start_ns=100, end_ns=200, **seen)
    beside = tool("add", {"a": 1}, start_ns=110, end_ns=190, **seen)
    again = tool("add", {"a": 1}, start_ns=300, end_ns=400, **seen)
    assert len(calls_of(root, first, beside)) == 1
    assert len(calls_of(root, first, beside, again)) == 2


def test_an_error_that_only_an_inner_span_shows_is_the_error_of_the_call() -> None:
    outer = span("agent.add", openinference__span__kind="TOOL", tool__name="add", status="ok", end_ns=10**15)
    (call,) = calls_of(outer, tool("add", failed="boom", parent_id=outer.span_id))
    assert call.error == "boom"


def test_a_message_lends_its_id_and_arguments_to_a_span_that_has_none() -> None:
    root = agent("a")
    asked = model(answered=[asks_for("search", {"q": "x"}, "c9")], parent_id=root.span_id)
    (call,) = calls_of(root, asked, tool("search", parent_id=root.span_id))
    assert (call.call_id, call.arguments, call.evidence) == ("c9", {"q": "x"}, "executed")


def test_a_bare_argument_is_replaced_by_the_named_one_of_the_message() -> None:
    root = agent("a")
    asked = model(answered=[asks_for("weather", {"city": "Kyoto"}, "c1")], parent_id=root.span_id)
    bare = span(
        "weather", openinference__span__kind="TOOL", tool__name="weather", input__value="Kyoto", parent_id=root.span_id
    )
    (call,) = calls_of(root, asked, bare)
    assert call.arguments == {"city": "Kyoto"}


def test_repeated_requests_find_their_executions_by_arguments_first() -> None:
    root = agent("a")
    asked = model(
        answered=[asks_for("search", {"q": "b"}, "c1"), asks_for("search", {"q": "a"}, "c2")], parent_id=root.span_id
    )
    spans = [tool("search", {"q": letter}, parent_id=root.span_id) for letter in "ab"]
    assert [(call.arguments["q"], call.call_id) for call in calls_of(root, asked, *spans)] == [("a", "c2"), ("b", "c1")]


def test_a_request_is_not_taken_for_an_execution_before_it() -> None:
    root = agent("a")
    early = tool("search", {"q": "a"}, parent_id=root.span_id)
    asked = model(answered=[asks_for("search", {"q": "a"}, "c1")], parent_id=root.span_id)
    assert [call.evidence for call in calls_of(root, early, asked)] == ["executed", "requested"]


def test_the_history_in_later_messages_adds_no_call() -> None:
    first = model(asked=[{"role": "user", "content": "Q"}], answered=[asks_for("x", {}, "c1")])
    second = model(
        asked=[{"role": "user", "content": "Q"}, asks_for("x", {}, "c1"), answers("c1", {"ok": True})],
        answered=[asks_for("y", {}, "c2")],
    )
    calls = calls_of(first, second)
    assert [(call.name, call.result, call.outcome) for call in calls] == [("x", {"ok": True}, "ok"), ("y", None, None)]


def test_a_recycled_id_is_another_call_when_its_arguments_differ() -> None:
    spans = [model(answered=[asks_for("x", {"n": number}, "call_0")]) for number in (1, 2)]
    assert [call.arguments for call in calls_of(*spans)] == [{"n": 1}, {"n": 2}]


def test_the_same_request_shown_by_two_model_spans_is_one_call() -> None:
    outer = model(answered=[asks_for("x", {"n": 1}, "c1")], end_ns=10**15)
    nested = model(answered=[asks_for("x", {"n": 1}, "c1")], parent_id=outer.span_id)
    beside = model(answered=[asks_for("x", {"n": 1}, "c1")])
    assert len(calls_of(outer, nested, beside)) == 1


def test_a_structured_failure_in_a_tools_answer_is_an_error() -> None:
    asked = model(answered=[asks_for("x", {}, "c1")])
    told = model(
        asked=[answers("c1", "no such order", is_error=True)], answered=[{"role": "assistant", "content": "?"}]
    )
    (call,) = calls_of(asked, told)
    assert (call.error, call.outcome) == ("no such order", "error")


def test_a_handoff_asked_for_by_the_model_is_the_handoff_that_happened() -> None:
    root = agent("front")
    asked = model(answered=[asks_for("transfer_to_back", {}, "c1")], parent_id=root.span_id)
    done = span("handoff to back", openinference__span__kind="TOOL", parent_id=root.span_id)
    (call,) = calls_of(root, asked, done)
    assert call.kind == "handoff"
    own_tool = tool("transfer_to_human_agents", {}, parent_id=root.span_id)
    (call,) = calls_of(root, own_tool)
    assert call.kind == "tool"


def test_calls_that_start_in_the_same_millisecond_stand_in_the_order_the_model_asked() -> None:
    root = agent("a", start_ns=1, end_ns=900)
    asked = model(
        answered=[asks_for(name, {}, name) for name in ("paris", "oslo", "rome")],
        parent_id=root.span_id,
        start_ns=10,
        end_ns=20,
    )
    ends = {"oslo": 40, "rome": 50, "paris": 60}
    spans = [
        tool(name, {}, parent_id=root.span_id, start_ns=30, end_ns=end, gen_ai__tool__call__id=name)
        for name, end in ends.items()
    ]
    calls = calls_of(root, asked, *spans)
    assert [call.name for call in calls] == ["paris", "oslo", "rome"]
    assert [call.concurrent_with for call in calls] == [(1, 2), (0, 2), (0, 1)]


def test_a_call_made_by_another_call_overlaps_it_but_is_not_concurrent() -> None:
    outer = tool("plan", {"n": 1}, end_ns=10**15)
    calls = calls_of(outer, tool("book", {"n": 2}, parent_id=outer.span_id))
    assert [call.concurrent_with for call in calls] == [(), ()]


names = st.sampled_from(["search", "book", "pay"])


@given(st.lists(st.tuples(names, st.integers(0, 2), st.booleans(), st.booleans()), max_size=8), st.randoms())
def test_every_call_counts_once_however_it_was_witnessed(made: list[tuple[str, int, bool, bool]], random: Any) -> None:
    """Each call leaves a message, a span, or both; ids on both sides, in any order of arrival."""
    root = agent("a", start_ns=1, end_ns=10**15)
    spans: list[SpanRecord] = [root]
    for number, (name, value, as_message, with_id) in enumerate(made):
        call_id = f"c{number}" if with_id else None
        start = 1_000 * (number + 1)
        if as_message:
            spans.append(
                model(
                    answered=[asks_for(name, {"v": value}, call_id)],
                    parent_id=root.span_id,
                    start_ns=start,
                    end_ns=start + 10,
                )
            )
        identity = {"gen_ai__tool__call__id": call_id} if call_id else {}
        spans.append(
            tool(name, {"v": value}, parent_id=root.span_id, start_ns=start + 20, end_ns=start + 30, **identity)
        )
    random.shuffle(spans)
    calls = calls_of(*spans)
    assert [(call.name, call.arguments["v"]) for call in calls] == [(name, value) for name, value, _, _ in made]
    assert {call.evidence for call in calls} <= {"executed"}
