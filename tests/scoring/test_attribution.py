from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import goldspan
from goldspan.model import AnyOf, Evaluation, ExpectedTool, Fault, Golden, Run, Times, ToolCall
from goldspan.model.name_folding import fold_name
from goldspan.scoring.run_comparison import compare


def called(name: str, agent: str | None = None, **arguments: object) -> ToolCall:
    return ToolCall(name, agent=agent, arguments=arguments or None)


def wanted(name: str, agent: str | None = None, **arguments: object) -> ExpectedTool:
    return ExpectedTool(name, agent=agent, arguments=arguments or None)


def evaluated(
    calls: list[ToolCall], tools: list[ExpectedTool | AnyOf], agent: str | None = None, **rules
) -> Evaluation:
    golden = Golden("g", tools=tuple(tools), **rules)
    return goldspan.evaluate(Run("r", tool_calls=tuple(calls), agent=agent), golden)


def told(evaluation: Evaluation) -> list[tuple[str | None, ...]]:
    return [(fault.kind, fault.tool, fault.agent, fault.instead, fault.detail) for fault in evaluation.faults]


# --- expected agents --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("agent", "verdicts"),
    [
        pytest.param("support", ["paired"], id="the expected agent"),
        pytest.param("Support", ["paired"], id="the same name in other letters"),
        pytest.param(None, ["paired"], id="who called is not known"),
        pytest.param("billing", ["missing", "unexpected"], id="another agent"),
    ],
)
def test_calls_of_other_agents_never_match_unless_the_agent_is_unknown(agent: str | None, verdicts: list[str]) -> None:
    seen = compare([called("refund", agent)], [wanted("refund", "support")])
    assert [row.verdict for row in seen.rows] == verdicts


def test_calls_go_to_the_expectations_of_their_agents_whatever_the_order() -> None:
    tools = [wanted("refund", "support"), wanted("refund", "billing"), wanted("refund")]
    calls = [called("refund", "sales"), called("refund", "billing"), called("refund", "support")]
    seen = compare(calls, tools, order="any")
    assert {row.expected_at: row.called.agent for row in seen.pairs if row.called} == {
        0: "support",
        1: "billing",
        2: "sales",
    }


def test_arguments_are_weighed_only_between_calls_of_the_right_agent() -> None:
    tools = [wanted("refund", "support", order=1), wanted("refund", "billing", order=2)]
    calls = [called("refund", "billing", order=1), called("refund", "support", order=2)]
    seen = compare(calls, tools, order="any")
    assert [row.called.agent for row in sorted(seen.pairs, key=lambda row: row.expected_at or 0) if row.called] == [
        "support",
        "billing",
    ]


def test_a_call_in_a_dictionary_may_say_its_agent() -> None:
    tools = [{"name": "refund", "agent": "support"}]
    assert compare([{"name": "refund", "agent": "Support"}], tools).missing == ()
    assert compare([{"name": "refund", "agent": "billing"}], tools).pairs == ()
    assert compare([{"name": "refund", "agent": {"id": 7}}], tools).missing == ()


def test_the_alternative_of_the_calling_agent_is_chosen() -> None:
    either = AnyOf(((wanted("mail", "support"),), (wanted("mail", "billing", to="me"),)))
    seen = compare([called("mail", "billing", to="me")], [either])
    assert [row.expected for row in seen.pairs] == [wanted("mail", "billing", to="me")]
    assert [row.verdict for row in compare([called("mail", "sales")], [either]).rows] == ["missing", "unexpected"]


def test_an_expectation_of_another_agent_is_no_repeat() -> None:
    tools = [wanted("refund", "support"), wanted("refund", "billing")]
    seen = compare([called("refund", "support")], tools, duplicates="ignore")
    assert [row.verdict for row in seen.rows] == ["paired", "missing"]


agents = st.sampled_from([None, "a", "A", "b", "c"])
expectations = st.lists(st.builds(wanted, st.sampled_from("xy"), agents), max_size=5)
made = st.lists(st.builds(called, st.sampled_from("xy"), agents), max_size=5)
orders = st.sampled_from(["any", "in_order", "exact"])


def may_answer(tool: ExpectedTool, call: ToolCall) -> bool:
    unknown = tool.agent is None or call.agent is None
    return tool.name == call.name and (unknown or fold_name(str(tool.agent)) == fold_name(str(call.agent)))


def most_pairs(tools: list[ExpectedTool], calls: list[ToolCall]) -> int:
    if not tools:
        return 0
    first, *others = tools
    ways = [
        1 + most_pairs(others, calls[:at] + calls[at + 1 :]) for at, call in enumerate(calls) if may_answer(first, call)
    ]
    return max([most_pairs(others, calls), *ways])


@given(expectations, made)
def test_as_many_expectations_are_matched_as_their_agents_allow(
    tools: list[ExpectedTool], calls: list[ToolCall]
) -> None:
    seen = compare(calls, tools, order="any")
    assert len(seen.pairs) == most_pairs(tools, calls)
    assert all(may_answer(row.expected, row.called) for row in seen.pairs)
    again = compare(calls[::-1], tools[::-1], order="any")
    assert len(again.pairs) == len(seen.pairs)


@given(expectations, made, orders)
def test_agents_mean_nothing_where_the_golden_names_none(
    tools: list[ExpectedTool], calls: list[ToolCall], order: str
) -> None:
    tools = [replace(tool, agent=None) for tool in tools]
    with_agents = compare(calls, tools, order=order)
    without = compare([replace(call, agent=None) for call in calls], tools, order=order)
    assert [(row.verdict, row.expected_at, row.called_at, row.in_order) for row in with_agents.rows] == [
        (row.verdict, row.expected_at, row.called_at, row.in_order) for row in without.rows
    ]


# --- faults -----------------------------------------------------------------------------------------------------------


def test_a_run_as_expected_has_no_faults() -> None:
    assert (
        evaluated(
            [called("search"), called("book", city="Rome")], [wanted("search"), wanted("book", city="Rome")]
        ).faults
        == ()
    )
    assert goldspan.evaluate(["search"], None).faults == ()


def test_each_fault_names_its_kind_its_tool_and_its_agent() -> None:
    evaluation = evaluated(
        [
            called("search", "planner"),
            called("cancel", "planner"),
            called("book", "booker", city="Rome", nights=2),
            replace(called("pay", "payer"), error="card 4711 was refused"),
            called("refund", "billing"),
            called("delete_user", "planner"),
            called("log", "planner"),
        ],
        [
            wanted("search"),
            wanted("check"),
            wanted("book", city="Oslo", nights=3),
            wanted("pay"),
            wanted("refund", "support"),
        ],
        forbid=("delete_*",),
    )
    assert told(evaluation) == [
        ("wrong_tool", "check", "planner", "cancel", None),
        ("arguments", "book", "booker", None, "city, nights"),
        ("failed", "pay", "payer", None, None),
        ("wrong_agent", "refund", "support", "billing", None),
        ("forbidden", "delete_user", "planner", None, None),
        ("extra", "log", "planner", None, None),
    ]
    assert [(fault.expected_at, fault.called_at) for fault in evaluation.faults] == [
        (1, 1), (2, 2), (3, 3), (4, 4), (None, 5), (None, 6)
    ]  # fmt: skip


def test_a_call_out_of_order_or_with_a_wrong_result_is_a_fault() -> None:
    calls = [replace(called("book"), result={"state": "open"}), called("search")]
    tools = [wanted("search"), replace(wanted("book"), result={"state": "done"})]
    kinds = [(fault.kind, fault.detail) for fault in evaluated(calls, tools, order="in_order").faults]
    assert ("result", "state") in kinds
    assert "order" in dict(kinds)
    assert "order" not in {fault.kind for fault in evaluated(calls, tools).faults}


def test_arguments_that_are_no_mapping_differ_as_a_whole() -> None:
    calls = [replace(called("book"), arguments="Rome", result=1)]
    tools = [ExpectedTool("book", arguments={"city": "Oslo"}, result=2)]
    assert [fault.kind for fault in evaluated(calls, tools).faults] == ["arguments", "result"]


def test_a_call_in_another_place_than_the_missing_one_is_no_wrong_tool() -> None:
    evaluation = evaluated(
        [called("log"), called("search"), called("book")], [wanted("search"), wanted("book"), wanted("pay")]
    )
    assert told(evaluation) == [("extra", "log", None, None, None), ("missing", "pay", None, None, None)]


def test_after_a_wrong_hand_off_no_agent_is_blamed_for_the_call_of_another() -> None:
    """The triage agent calls a tool itself, at the place where the billing agent should have called one."""
    evaluation = evaluated(
        [called("find_order", "triage"), called("send_mail", "triage")],
        [wanted("find_order", "triage"), wanted("refund", "billing")],
    )
    assert told(evaluation) == [
        ("missing", "refund", "billing", None, None),
        ("extra", "send_mail", "triage", None, None),
    ]


def test_a_hand_off_to_the_wrong_agent_is_a_fault_of_the_agent_that_handed_over() -> None:
    evaluation = evaluated(
        [called("find_order", "triage"), called("transfer_to_refunds", "triage"), called("refund", "refunds")],
        [wanted("find_order", "triage"), wanted("transfer_to_shipping", "triage"), wanted("move", "shipping")],
    )
    assert told(evaluation) == [
        ("wrong_tool", "transfer_to_shipping", "triage", "transfer_to_refunds", None),
        ("missing", "move", "shipping", None, None),
        ("extra", "refund", "refunds", None, None),
    ]


@pytest.mark.parametrize(
    ("expected", "calling"),
    [
        pytest.param("billing", "Billing", id="the same name in other letters"),
        pytest.param("billing", None, id="who called is not known"),
        pytest.param(None, "triage", id="the golden names no agent"),
    ],
)
def test_a_wrong_tool_is_called_by_the_expected_agent_as_far_as_is_known(
    expected: str | None, calling: str | None
) -> None:
    evaluation = evaluated([called("send_mail", calling)], [wanted("refund", expected)])
    assert told(evaluation) == [("wrong_tool", "refund", calling or expected, "send_mail", None)]


def test_each_of_several_wrong_tools_is_paired_with_a_missing_one_of_its_agent() -> None:
    evaluation = evaluated(
        [called("log", "triage"), called("send_mail", "billing"), called("wait", "triage")],
        [wanted("refund", "billing"), wanted("check", "triage"), wanted("close")],
    )
    assert told(evaluation) == [
        ("wrong_tool", "refund", "billing", "send_mail", None),
        ("wrong_tool", "check", "triage", "log", None),
        ("wrong_tool", "close", "triage", "wait", None),
    ]


def test_an_alternative_of_any_of_its_agents_can_be_replaced_by_a_wrong_tool() -> None:
    either = AnyOf(((wanted("mail", "support"),), (wanted("chat", "billing"),)))
    assert [fault.kind for fault in evaluated([called("log", "billing")], [either]).faults] == ["wrong_tool"]
    assert [fault.kind for fault in evaluated([called("log", "sales")], [either]).faults] == ["missing", "extra"]


def test_a_missing_call_is_attributed_to_the_expected_agent_or_to_the_only_agent() -> None:
    missing = [wanted("refund", "support")]
    assert told(evaluated([], missing, agent="triage")) == [("missing", "refund", "support", None, None)]
    assert told(evaluated([], [wanted("refund")], agent="triage")) == [("missing", "refund", "triage", None, None)]
    several = [called("search", "planner")]
    assert told(evaluated(several, [wanted("search"), wanted("refund")], agent="triage")) == [
        ("missing", "refund", None, None, None)
    ]


def test_the_reason_names_a_wrong_agent() -> None:
    reason = evaluated(
        [called("refund", "billing"), called("log", "triage")], [wanted("refund", "support"), wanted("pay")]
    ).reason
    assert reason == (
        "Expected pay was not called; refund was called by billing, not by support; log was called but not expected."
    )
    assert evaluated([called("refund", "billing")], [wanted("refund", "support")]).reason == (
        "Expected refund was called by billing, not by support."
    )


def test_many_wrong_agents_are_counted() -> None:
    tools = [wanted("refund", "support")] * 7
    assert evaluated([called("refund", "billing")] * 7, tools).reason.endswith(
        "; 2 more calls were made by another agent than expected."
    )


def test_an_extra_call_that_is_allowed_is_no_fault() -> None:
    assert evaluated([called("log"), called("search")], [wanted("search")], extra="allow").faults == ()


def test_no_value_is_in_a_fault() -> None:
    calls = [replace(called("pay", card="4711"), error="4711 was refused", result={"state": "4711"})]
    tools = [ExpectedTool("pay", arguments={"card": "4712"}, result={"state": "4713"})]
    faults = evaluated(calls, tools).faults
    assert {fault.kind for fault in faults} == {"arguments", "result", "failed"}
    assert "471" not in repr(faults)


tools_of_all_kinds = st.lists(
    st.builds(
        ExpectedTool,
        st.sampled_from(["x", "y", "z"]),
        agent=agents,
        arguments=st.sampled_from([None, {"k": 1}]),
        times=st.sampled_from([Times(1, 1), Times(0, 1), Times(1, 2)]),
    ),
    max_size=5,
)
calls_of_all_kinds = st.lists(
    st.builds(
        ToolCall,
        st.sampled_from(["x", "y", "z", "w"]),
        agent=agents,
        arguments=st.sampled_from([None, {"k": 1}, {"k": 2}]),
        error=st.sampled_from([None, None, "failed"]),
    ),
    max_size=6,
)


@given(tools_of_all_kinds, calls_of_all_kinds, orders, st.sampled_from([(), ("w",)]))
def test_each_missing_expectation_and_each_unexpected_call_is_in_exactly_one_fault(
    tools: list[ExpectedTool], calls: list[ToolCall], order: str, forbid: tuple[str, ...]
) -> None:
    seen = compare(calls, Golden("g", tools=tuple(tools), order=order, forbid=forbid))
    faults = seen.faults
    alone = [fault for fault in faults if fault.kind in ("missing", "extra", "wrong_tool", "wrong_agent")]
    assert sorted(fault.expected_at for fault in alone if fault.expected_at is not None) == sorted(
        row.expected_at for row in seen.missing
    )
    assert sorted(fault.called_at for fault in alone if fault.called_at is not None) == sorted(
        row.called_at for row in seen.unexpected
    )
    forbidden = [fault.called_at for fault in faults if fault.kind == "forbidden"]
    assert forbidden == [row.called_at for row in seen.forbidden]
    for fault in faults:
        if fault.kind == "wrong_agent":
            assert fault.agent is None or fold_name(fault.agent) != fold_name(str(fault.instead))
        if fault.kind == "wrong_tool":
            assert fault.expected_at is not None
            assert fault.called_at is not None
            expected, calling = tools[fault.expected_at].agent, calls[fault.called_at].agent
            assert expected is None or calling is None or fold_name(expected) == fold_name(calling)
    assert [Fault(*told) for told in dict.fromkeys(map(_fields, faults))] == list(faults)


def _fields(fault: Fault) -> tuple[object, ...]:
    return (fault.kind, fault.tool, fault.agent, fault.instead, fault.detail, fault.expected_at, fault.called_at)
