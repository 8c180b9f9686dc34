"""One tool call recorded several times: in nested spans, in sibling spans and in model messages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.extraction import extract
from goldspan.model import LogRecord, SpanRecord, ToolCall
from support.span_builders import agent, answers, asks_for, inside, model, span, tool


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
def test_nested_tool_spans_are_one_call_if_name_and_arguments_match(
    outer: tuple[str, Any], inner: tuple[str, Any], calls: int
) -> None:
    around = tool(*outer, end_ns=10**15)
    found = calls_of(around, tool(*inner, parent_id=around.span_id))
    assert len(found) == calls
    assert found[0].name in ("add", "orders_add", "plan")
    if calls == 1:
        assert found[0].arguments == {"a": 1}
        assert found[0].raw_name == outer[0]


def test_different_call_ids_are_different_calls_even_if_their_spans_are_nested() -> None:
    outer = tool("add", gen_ai__tool__call__id="c1", end_ns=10**15)
    assert len(calls_of(outer, tool("add", parent_id=outer.span_id, gen_ai__tool__call__id="c2"))) == 2


def test_two_spans_of_one_call_count_once_and_two_attempts_with_one_id_count_twice() -> None:
    root = agent("a")
    seen = {"gen_ai__tool__call__id": "c1", "parent_id": root.span_id}
    first = tool("add", {"a": 1}, start_ns=100, end_ns=200, **seen)
    beside = tool("add", {"a": 1}, start_ns=110, end_ns=190, **seen)
    again = tool("add", {"a": 1}, start_ns=300, end_ns=400, **seen)
    assert len(calls_of(root, first, beside)) == 1
    assert len(calls_of(root, first, beside, again)) == 2


LEFT_OPEN: dict[str, Any] = {"end_ns": 10_000}
AWAITED = "<coroutine object add at 0x7f2>"


@pytest.mark.parametrize(
    ("first", "beside", "end"),
    [
        pytest.param(LEFT_OPEN, {"end_ns": 200, "result": "3"}, 200, id="one was left open"),
        pytest.param({"end_ns": 200, "result": "3"}, LEFT_OPEN, 200, id="the later one was"),
        pytest.param(LEFT_OPEN, {"end_ns": 200, "failed": "boom"}, 200, id="a failure is an end, too"),
        pytest.param({**LEFT_OPEN, "result": "3"}, {"end_ns": 200, "result": "3"}, 200, id="both know the result"),
        pytest.param(LEFT_OPEN, {"end_ns": 200}, 10_000, id="it may have only begun the call"),
        pytest.param(LEFT_OPEN, {"end_ns": 200, "result": AWAITED}, 10_000, id="it did not await the result"),
        pytest.param(LEFT_OPEN, {"end_ns": 200, "result": "job 7 started"}, 200, id="the rest is in the background"),
        pytest.param(
            LEFT_OPEN,
            {"end_ns": 200, "result": "?", "pydantic_ai__tool__deferral__name": "approval"},
            10_000,
            id="somebody is still to decide",
        ),
        pytest.param({**LEFT_OPEN, "end_ns": 150}, {"end_ns": 200, "result": "3"}, 150, id="the first ended earlier"),
    ],
)
def test_the_earlier_sibling_span_with_a_result_gives_the_end_of_the_call(
    first: dict[str, Any], beside: dict[str, Any], end: int
) -> None:
    root = agent("a", start_ns=1, end_ns=10**15)
    (call,) = calls_of(root, _witness(root, **first), _witness(root, **{"start_ns": 101, **beside}))
    assert call.end_ns == end


def test_the_end_of_a_nested_span_is_not_the_end_of_the_call() -> None:
    outer = _witness(agent("a", start_ns=1, end_ns=10**15), end_ns=900)
    (call,) = calls_of(outer, _witness(outer, start_ns=110, end_ns=200, result="3"))
    assert call.end_ns == 900


def test_sequential_calls_are_not_concurrent_if_a_duplicate_of_the_first_stays_open() -> None:
    root = agent("a", start_ns=1, end_ns=10**15)
    spans = [
        _witness(root, call_id=call_id, **times)
        for call_id, start in (("c1", 100), ("c2", 300))
        for times in (
            {"start_ns": start, "end_ns": 10_000},
            {"start_ns": start + 1, "end_ns": start + 50, "result": "3"},
        )
    ]
    assert [call.concurrent_with for call in calls_of(root, *spans)] == [(), ()]
    # A late third span does not belong to another call.
    late = _witness(root, start_ns=200, end_ns=210)
    assert [call.call_id for call in calls_of(root, *spans, late)] == ["c1", "c2"]


def _witness(parent: SpanRecord, *, call_id: str = "c1", result: str | None = None, **more: Any) -> SpanRecord:
    told = {} if result is None else {"gen_ai__tool__call__result": result}
    seen: dict[str, Any] = {"start_ns": 100, "gen_ai__tool__call__id": call_id, "parent_id": parent.span_id, **told}
    return tool("add", {"a": 1}, **{**seen, **more})


def test_an_error_on_only_the_nested_span_is_the_error_of_the_call() -> None:
    outer = span("agent.add", openinference__span__kind="TOOL", tool__name="add", status="ok", end_ns=10**15)
    (call,) = calls_of(outer, tool("add", failed="boom", parent_id=outer.span_id))
    assert call.error == "boom"


def test_a_model_message_gives_id_and_arguments_to_a_span_without_them() -> None:
    root = agent("a")
    asked = model(answered=[asks_for("search", {"q": "x"}, "c9")], parent_id=root.span_id)
    (call,) = calls_of(root, asked, tool("search", parent_id=root.span_id))
    assert (call.call_id, call.arguments, call.evidence) == ("c9", {"q": "x"}, "executed")


def test_named_arguments_of_the_message_replace_a_bare_argument() -> None:
    root = agent("a")
    asked = model(answered=[asks_for("weather", {"city": "Kyoto"}, "c1")], parent_id=root.span_id)
    bare = span(
        "weather", openinference__span__kind="TOOL", tool__name="weather", input__value="Kyoto", parent_id=root.span_id
    )
    (call,) = calls_of(root, asked, bare)
    assert call.arguments == {"city": "Kyoto"}


def test_repeated_requested_calls_match_their_executions_by_arguments_first() -> None:
    root = agent("a")
    asked = model(
        answered=[asks_for("search", {"q": "b"}, "c1"), asks_for("search", {"q": "a"}, "c2")], parent_id=root.span_id
    )
    spans = [tool("search", {"q": letter}, parent_id=root.span_id) for letter in "ab"]
    assert [(call.arguments["q"], call.call_id) for call in calls_of(root, asked, *spans)] == [("a", "c2"), ("b", "c1")]


def test_a_requested_call_does_not_match_an_earlier_execution() -> None:
    root = agent("a")
    early = tool("search", {"q": "a"}, parent_id=root.span_id)
    asked = model(answered=[asks_for("search", {"q": "a"}, "c1")], parent_id=root.span_id)
    assert [call.evidence for call in calls_of(root, early, asked)] == ["executed", "requested"]


def test_a_requested_call_does_not_match_an_execution_after_its_result() -> None:
    # The first attempt has no span.
    root = agent("a")
    asked = asks_for("search", {"q": "a"}, "c1")
    first = model(answered=[asked], parent_id=root.span_id)
    heard = [asked, answers("c1", "Error: busy")]
    second = model(asked=heard, answered=[asks_for("search", {"q": "a"}, "c2")], parent_id=root.span_id)
    found = tool("search", {"q": "a"}, parent_id=root.span_id, gen_ai__tool__call__result='"found"')
    assert [(call.call_id, call.evidence, call.result) for call in calls_of(root, first, second, found)] == [
        ("c1", "requested", "Error: busy"),
        ("c2", "executed", "found"),
    ]


def test_an_execution_after_the_result_matches_the_requested_call_if_there_is_no_other() -> None:
    # A background tool: its first result for the model is a handle.
    root = agent("a")
    asked = asks_for("search", {"q": "a"}, "c1")
    first = model(answered=[asked], parent_id=root.span_id)
    second = model(asked=[asked, answers("c1", "begun")], parent_id=root.span_id)
    found = tool("search", {"q": "a"}, parent_id=root.span_id)
    assert [(call.call_id, call.evidence) for call in calls_of(root, first, second, found)] == [("c1", "executed")]


def test_the_messages_of_an_agent_give_results_that_no_model_received() -> None:
    asked = [asks_for("search", {}, "c1"), asks_for("book", {}, "c2")]
    kept = [*asked, answers("c1", {"ok": True}), answers("c2", "no room", is_error=True)]
    root = agent("a", gen_ai__output__messages=json.dumps(kept))
    calls = calls_of(root, *(model(answered=[each], parent_id=root.span_id) for each in asked))
    assert [(call.result, call.error, call.outcome) for call in calls] == [
        ({"ok": True}, None, "ok"),
        ("no room", "no room", "error"),
    ]


def test_the_history_in_later_messages_adds_no_call() -> None:
    first = model(asked=[{"role": "user", "content": "Q"}], answered=[asks_for("x", {}, "c1")])
    second = model(
        asked=[{"role": "user", "content": "Q"}, asks_for("x", {}, "c1"), answers("c1", {"ok": True})],
        answered=[asks_for("y", {}, "c2")],
    )
    calls = calls_of(first, second)
    assert [(call.name, call.result, call.outcome) for call in calls] == [("x", {"ok": True}, "ok"), ("y", None, None)]


def test_a_reused_id_with_different_arguments_is_a_different_call() -> None:
    spans = [model(answered=[asks_for("x", {"n": number}, "call_0")]) for number in (1, 2)]
    assert [call.arguments for call in calls_of(*spans)] == [{"n": 1}, {"n": 2}]


def test_a_requested_call_in_two_model_spans_is_one_call() -> None:
    outer = model(answered=[asks_for("x", {"n": 1}, "c1")], end_ns=10**15)
    nested = model(answered=[asks_for("x", {"n": 1}, "c1")], parent_id=outer.span_id)
    beside = model(answered=[asks_for("x", {"n": 1}, "c1")])
    assert len(calls_of(outer, nested, beside)) == 1


def test_a_tool_result_flagged_as_an_error_is_an_error() -> None:
    asked = model(answered=[asks_for("x", {}, "c1")])
    told = model(
        asked=[answers("c1", "no such order", is_error=True)], answered=[{"role": "assistant", "content": "?"}]
    )
    (call,) = calls_of(asked, told)
    assert (call.error, call.outcome) == ("no such order", "error")


def test_a_requested_handoff_and_the_executed_handoff_are_one_call() -> None:
    root = agent("front")
    asked = model(answered=[asks_for("transfer_to_back", {}, "c1")], parent_id=root.span_id)
    done = span("handoff to back", openinference__span__kind="TOOL", parent_id=root.span_id)
    (call,) = calls_of(root, asked, done)
    assert call.kind == "handoff"
    own_tool = tool("transfer_to_human_agents", {}, parent_id=root.span_id)
    (call,) = calls_of(root, own_tool)
    assert call.kind == "tool"


def test_calls_that_start_in_the_same_millisecond_keep_the_order_of_the_model_message() -> None:
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


def test_a_nested_call_is_not_concurrent_with_its_parent_call() -> None:
    outer = tool("plan", {"n": 1}, end_ns=10**15)
    calls = calls_of(outer, tool("book", {"n": 2}, parent_id=outer.span_id))
    assert [call.concurrent_with for call in calls] == [(), ()]


# The spans of one call in the Model Context Protocol.


def layers(around: str = "orders_add") -> list[SpanRecord]:
    """One call in four spans: of the framework and the client, and in another service of the server and the tool."""
    shop, orders = {"service.name": "shop"}, {"service.name": "orders"}
    outer = tool(around, {"n": 1}, end_ns=10**15, resource=shop, gen_ai__tool__call__id="c1")
    call = {"mcp__method__name": "tools/call", "gen_ai__tool__name": "add"}
    client = span("tools/call add", kind=3, end_ns=10**14, parent_id=outer.span_id, resource=shop, **call)
    transport = span("POST /mcp", kind=2, end_ns=10**13, parent_id=client.span_id, resource=orders)
    server = span(
        "tools/call add",
        kind=2,
        end_ns=10**12,
        parent_id=transport.span_id,
        resource=orders,
        mcp__server__name="orders",
        mcp__request__argument__n="1",
        **call,
    )
    inner = tool("add", {"n": 1}, parent_id=server.span_id, resource=orders)
    return [outer, client, transport, server, inner]


def test_four_spans_of_one_call_in_two_services_are_one_call_of_the_server_tool() -> None:
    root = agent("a", resource={"service.name": "shop"})
    outer, *rest = layers()
    outer.parent_id = root.span_id
    (run,) = extract([root, outer, *rest])
    (call,) = run.tool_calls
    assert (call.raw_name, call.server, call.arguments, call.call_id) == ("orders_add", "orders", {"n": 1}, "c1")
    assert (call.start_ns, call.span_id) == (outer.start_ns, outer.span_id)
    assert (run.service, run.health.merged) == ("shop", 3)


@pytest.mark.parametrize("lost", [(0,), (1,), (2,), (3,), (4,), (0, 1), (1, 2), (2, 3), (1, 2, 3)], ids=str)
def test_the_spans_of_one_call_are_one_call_whichever_of_them_are_lost(lost: tuple[int, ...]) -> None:
    root = agent("a")
    spans = layers()
    spans[0].parent_id = root.span_id
    (call,) = calls_of(root, *(each for at, each in enumerate(spans) if at not in lost))
    assert (call.name, call.arguments) == ("add" if 0 in lost else "orders_add", {"n": 1})


def test_a_tool_span_whose_parent_is_lost_is_a_separate_call_in_the_same_service() -> None:
    root = agent("a")
    one = tool("add", {"n": 1}, end_ns=10**15, parent_id=root.span_id)
    assert len(calls_of(root, one, tool("add", {"n": 1}, parent_id="f" * 16))) == 2


def test_a_nested_span_with_an_earlier_start_time_is_still_the_nested_span() -> None:
    """The cause is a millisecond clock or the clocks of two machines."""
    for start in (100, 99, 50):
        outer = tool("orders_add", {"n": 1}, start_ns=100, end_ns=900, span_id="f" * 16)
        inner = tool("add", {"n": 1}, start_ns=start, end_ns=800, span_id="1" * 16, parent_id=outer.span_id)
        (call,) = calls_of(outer, inner)
        assert (call.raw_name, call.span_id) == ("orders_add", outer.span_id)


def test_two_mcp_client_spans_of_one_tool_are_two_calls() -> None:
    root = agent("a")
    seen = {"parent_id": root.span_id, "mcp__method__name": "tools/call"}
    assert len(calls_of(root, *(span("tools/call add", gen_ai__tool__name="add", **seen) for _ in range(2)))) == 2


@pytest.mark.parametrize("calls", [2, 10])
def test_overlapping_mcp_calls_without_agent_and_arguments_are_separate_calls(
    calls: int,
) -> None:
    """The longest call encloses all others in time."""
    root = span("POST /chat", kind=2, start_ns=1, end_ns=10**15)
    call = {"mcp__method__name": "tools/call", "gen_ai__tool__name": "add", "kind": 3, **inside(root)}
    spans = [span("tools/call add", start_ns=100 + at, end_ns=10_000 - at, **call) for at in range(calls)]
    (run,) = extract([root, *spans])
    assert run.tools_used == ("add",) * calls
    assert run.health.merged == 0


def test_a_server_span_whose_client_span_is_lost_belongs_to_one_of_the_concurrent_calls() -> None:
    call = {"mcp__method__name": "tools/call", "gen_ai__tool__name": "add"}
    clients = [span("add", kind=3, start_ns=100 + at, end_ns=10_000 - at, **call) for at in range(3)]
    servers = [span("add", kind=2, start_ns=200, end_ns=300, parent_id=f"f{at:015x}", **call) for at in range(3)]
    (run,) = extract([*clients, *servers])
    assert run.tools_used == ("add",) * 3
    assert run.health.merged == 3


# Calls that were not made, and spans that only resemble tool calls.


def test_a_denied_call_is_kept_and_not_counted_as_used() -> None:
    events = [
        ("claude_code.user_prompt", {"prompt": "Clean up"}),
        ("claude_code.tool_decision", {"tool_name": "Bash", "tool_use_id": "t1", "decision": "reject"}),
        ("claude_code.tool_decision", {"tool_name": "Read", "tool_use_id": "t2", "decision": "accept"}),
        ("claude_code.tool_result", {"tool_name": "Read", "tool_use_id": "t2", "success": "true"}),
    ]
    (run,) = extract(
        LogRecord(name, {"session.id": "s", **facts}, time_ns=at) for at, (name, facts) in enumerate(events)
    )
    assert [(call.name, call.outcome, call.was_made) for call in run.tool_calls] == [
        ("Bash", "denied", False),
        ("Read", "ok", True),
    ]
    assert run.tools_used == ("Read",)


def test_a_deferred_call_has_neither_failed_nor_been_made() -> None:
    root = agent("a")
    waiting = tool(
        "pay", {"n": 1}, failed="ApprovalRequired", parent_id=root.span_id, pydantic_ai__tool__deferral__name="approval"
    )
    (run,) = extract([root, waiting])
    assert [(call.outcome, call.error) for call in run.tool_calls] == [("deferred", None)]
    assert run.tools_used == ()


def test_a_final_answer_tool_is_an_answer_and_a_user_tool_of_that_name_is_a_tool() -> None:
    root = agent("a")
    seen = {"openinference__span__kind": "TOOL", "tool__name": "final_answer", "parent_id": root.span_id}
    (run,) = extract([root, span("FinalAnswerTool", **seen)])
    assert [call.kind for call in run.tool_calls] == ["answer"]
    assert run.tools_used == ()
    (run,) = extract([root, span("final_answer", **seen)])
    assert run.tools_used == ("final_answer",)


def test_each_attempt_is_a_call_with_its_own_outcome() -> None:
    root = agent("a")
    spans = [
        model(answered=[asks_for("book", {"n": 1}, "c1")], parent_id=root.span_id),
        tool("book", {"n": 1}, failed="full", parent_id=root.span_id),
        tool("book", {"n": 1}, parent_id=root.span_id),
    ]
    assert [(call.outcome, call.error) for call in calls_of(root, *spans)] == [("error", "full"), ("ok", None)]


def test_a_result_that_resembles_an_error_is_only_an_error_guess() -> None:
    told = tool("book", {"n": 1}, gen_ai__tool__call__result="Error: no room left")
    (call,) = calls_of(told)
    assert (call.error, call.error_guess, call.outcome) == (None, "Error: no room left", "ok")


names = st.sampled_from(["search", "book", "pay"])


@given(st.lists(st.tuples(names, st.integers(0, 2), st.booleans(), st.booleans()), max_size=8), st.randoms())
def test_each_call_counts_once_however_it_was_recorded(made: list[tuple[str, int, bool, bool]], random: Any) -> None:
    """Each call has a message, a span, or both, with or without ids, in any order of arrival."""
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
