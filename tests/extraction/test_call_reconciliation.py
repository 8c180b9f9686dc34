"""One call, several witnesses: spans inside spans, spans beside spans, and the model's messages."""

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
def test_of_two_witnesses_beside_each_other_the_earlier_that_knows_what_came_of_the_call_tells_its_end(
    first: dict[str, Any], beside: dict[str, Any], end: int
) -> None:
    root = agent("a", start_ns=1, end_ns=10**15)
    (call,) = calls_of(root, _witness(root, **first), _witness(root, **{"start_ns": 101, **beside}))
    assert call.end_ns == end


def test_the_end_of_a_witness_inside_another_is_not_that_of_the_call() -> None:
    outer = _witness(agent("a", start_ns=1, end_ns=10**15), end_ns=900)
    (call,) = calls_of(outer, _witness(outer, start_ns=110, end_ns=200, result="3"))
    assert call.end_ns == 900


def test_calls_one_after_the_other_do_not_overlap_because_a_copy_of_the_first_stays_open() -> None:
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
    # A third witness that comes late is still none of another call.
    late = _witness(root, start_ns=200, end_ns=210)
    assert [call.call_id for call in calls_of(root, *spans, late)] == ["c1", "c2"]


def _witness(parent: SpanRecord, *, call_id: str = "c1", result: str | None = None, **more: Any) -> SpanRecord:
    told = {} if result is None else {"gen_ai__tool__call__result": result}
    seen: dict[str, Any] = {"start_ns": 100, "gen_ai__tool__call__id": call_id, "parent_id": parent.span_id, **told}
    return tool("add", {"a": 1}, **{**seen, **more})


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


def test_a_request_is_not_taken_for_an_execution_after_its_answer() -> None:
    # The first attempt left no span.
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


def test_an_execution_after_the_answer_is_the_requests_where_there_is_no_other() -> None:
    # A tool that goes on in the background: its handle is what the model was told first.
    root = agent("a")
    asked = asks_for("search", {"q": "a"}, "c1")
    first = model(answered=[asked], parent_id=root.span_id)
    second = model(asked=[asked, answers("c1", "begun")], parent_id=root.span_id)
    found = tool("search", {"q": "a"}, parent_id=root.span_id)
    assert [(call.call_id, call.evidence) for call in calls_of(root, first, second, found)] == [("c1", "executed")]


def test_what_an_agent_keeps_tells_results_that_no_model_was_told() -> None:
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


# The layers of a call by the Model Context Protocol.


def layers(around: str = "orders_add") -> list[SpanRecord]:
    """One call in four spans: the framework's, the client's, and in another service the server's and the tool's."""
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


def test_four_spans_of_one_call_in_two_services_are_one_call_of_the_servers_tool() -> None:
    root = agent("a", resource={"service.name": "shop"})
    outer, *rest = layers()
    outer.parent_id = root.span_id
    (run,) = extract([root, outer, *rest])
    (call,) = run.tool_calls
    assert (call.raw_name, call.server, call.arguments, call.call_id) == ("orders_add", "orders", {"n": 1}, "c1")
    assert (call.start_ns, call.span_id) == (outer.start_ns, outer.span_id)
    assert (run.service, run.health.merged) == ("shop", 3)


@pytest.mark.parametrize("lost", [(0,), (1,), (2,), (3,), (4,), (0, 1), (1, 2), (2, 3), (1, 2, 3)], ids=str)
def test_whichever_layers_are_lost_it_is_one_call(lost: tuple[int, ...]) -> None:
    root = agent("a")
    spans = layers()
    spans[0].parent_id = root.span_id
    (call,) = calls_of(root, *(each for at, each in enumerate(spans) if at not in lost))
    assert (call.name, call.arguments) == ("add" if 0 in lost else "orders_add", {"n": 1})


def test_a_tool_that_lost_its_parent_is_another_call_than_its_like_in_the_same_service() -> None:
    root = agent("a")
    one = tool("add", {"n": 1}, end_ns=10**15, parent_id=root.span_id)
    assert len(calls_of(root, one, tool("add", {"n": 1}, parent_id="f" * 16))) == 2


def test_a_span_inside_another_that_seems_to_start_first_is_still_the_inner_one() -> None:
    """Clocks of milliseconds, or of two machines."""
    for start in (100, 99, 50):
        outer = tool("orders_add", {"n": 1}, start_ns=100, end_ns=900, span_id="f" * 16)
        inner = tool("add", {"n": 1}, start_ns=start, end_ns=800, span_id="1" * 16, parent_id=outer.span_id)
        (call,) = calls_of(outer, inner)
        assert (call.raw_name, call.span_id) == ("orders_add", outer.span_id)


def test_one_tool_called_twice_by_the_protocol_is_two_calls() -> None:
    root = agent("a")
    seen = {"parent_id": root.span_id, "mcp__method__name": "tools/call"}
    assert len(calls_of(root, *(span("tools/call add", gen_ai__tool__name="add", **seen) for _ in range(2)))) == 2


@pytest.mark.parametrize("calls", [2, 10])
def test_calls_of_the_protocol_beside_each_other_are_as_many_where_neither_an_agent_nor_arguments_are_known(
    calls: int,
) -> None:
    """The longest is around all others in time."""
    root = span("POST /chat", kind=2, start_ns=1, end_ns=10**15)
    call = {"mcp__method__name": "tools/call", "gen_ai__tool__name": "add", "kind": 3, **inside(root)}
    spans = [span("tools/call add", start_ns=100 + at, end_ns=10_000 - at, **call) for at in range(calls)]
    (run,) = extract([root, *spans])
    assert run.tools_used == ("add",) * calls
    assert run.health.merged == 0


def test_a_server_whose_client_lost_its_span_is_the_call_of_one_of_those_that_ran_then() -> None:
    call = {"mcp__method__name": "tools/call", "gen_ai__tool__name": "add"}
    clients = [span("add", kind=3, start_ns=100 + at, end_ns=10_000 - at, **call) for at in range(3)]
    servers = [span("add", kind=2, start_ns=200, end_ns=300, parent_id=f"f{at:015x}", **call) for at in range(3)]
    (run,) = extract([*clients, *servers])
    assert run.tools_used == ("add",) * 3
    assert run.health.merged == 3


# Calls that were not made, and those that only look like tools.


def test_a_call_that_was_denied_is_told_and_not_counted() -> None:
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


def test_a_call_that_waits_for_somebody_has_neither_failed_nor_been_made() -> None:
    root = agent("a")
    waiting = tool(
        "pay", {"n": 1}, failed="ApprovalRequired", parent_id=root.span_id, pydantic_ai__tool__deferral__name="approval"
    )
    (run,) = extract([root, waiting])
    assert [(call.outcome, call.error) for call in run.tool_calls] == [("deferred", None)]
    assert run.tools_used == ()


def test_the_pseudo_tool_by_which_an_agent_answers_is_none_but_a_users_own_of_that_name_is() -> None:
    root = agent("a")
    seen = {"openinference__span__kind": "TOOL", "tool__name": "final_answer", "parent_id": root.span_id}
    (run,) = extract([root, span("FinalAnswerTool", **seen)])
    assert [call.kind for call in run.tool_calls] == ["answer"]
    assert run.tools_used == ()
    (run,) = extract([root, span("final_answer", **seen)])
    assert run.tools_used == ("final_answer",)


def test_every_attempt_counts_and_tells_how_it_ended() -> None:
    root = agent("a")
    spans = [
        model(answered=[asks_for("book", {"n": 1}, "c1")], parent_id=root.span_id),
        tool("book", {"n": 1}, failed="full", parent_id=root.span_id),
        tool("book", {"n": 1}, parent_id=root.span_id),
    ]
    assert [(call.outcome, call.error) for call in calls_of(root, *spans)] == [("error", "full"), ("ok", None)]


def test_a_result_that_reads_like_an_error_is_only_a_guess() -> None:
    told = tool("book", {"n": 1}, gen_ai__tool__call__result="Error: no room left")
    (call,) = calls_of(told)
    assert (call.error, call.error_guess, call.outcome) == (None, "Error: no room left", "ok")


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
