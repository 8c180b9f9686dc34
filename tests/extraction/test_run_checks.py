"""Health checks for runs that contradict themselves or each other."""

from __future__ import annotations

from typing import Any

import pytest

from goldspan.extraction import extract
from goldspan.model import Health, Run, SpanRecord
from support.span_builders import (
    agent,
    answers,
    ask_for,
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

LONG: dict[str, Any] = {"start_ns": 1, "end_ns": 10**15}


def only(*spans: SpanRecord) -> Run:
    (run,) = extract(spans)
    return run


def problems(health: Health) -> dict[str, Any]:
    return {name: getattr(health, name) for name in health.problems}


def test_a_complete_run_has_no_contradictions() -> None:
    root = agent("a", asked="Go", **LONG)
    turn = model(asked=[user("Go")], answered=[ask_for(("x", {"n": 1}, "c1"))], **inside(root))
    done = tool("x", {"n": 1}, gen_ai__tool__call__result="3", **made("c1"), **inside(root))
    last = [user("Go"), ask_for(("x", {"n": 1}, "c1")), answers("c1", "3")]
    run = only(root, turn, done, model(asked=last, answered=[says("Done.")], **inside(root)))
    assert problems(run.health) == {}


# Between runs.


@pytest.mark.parametrize(
    ("facts", "shared"),
    [
        pytest.param({"start_ns": 200, "end_ns": 300}, 1, id="at that time"),
        pytest.param({"start_ns": 2_000, "end_ns": 3_000}, 0, id="later"),
        pytest.param({"start_ns": 200, "end_ns": 300, "resource": {"service.name": "b"}}, 0, id="in another service"),
    ],
)
def test_a_call_that_another_run_executed_counts_as_elsewhere(facts: dict[str, Any], shared: int) -> None:
    asking = agent("a", asked="Go", start_ns=100, end_ns=1_000, **in_trace(1))
    turn = model(asked=[user("Go")], answered=[ask_for(("x", {}, "c1"))], start_ns=110, end_ns=120, **inside(asking))
    acting = agent("b", asked="Other", **facts, **in_trace(2))
    done = tool("x", {}, **made("c1"), **facts, **inside(acting))
    assert [run.health.calls_elsewhere for run in extract([asking, turn, acting, done])] == [shared, shared]


def test_a_call_to_an_agent_that_is_also_a_separate_run_counts_as_elsewhere() -> None:
    root = span("job", **LONG)
    asking = agent("a", start_ns=100, end_ns=400, **inside(root))
    called = tool("helper", {}, start_ns=150, end_ns=300, **inside(asking))
    helper = agent("helper", start_ns=160, end_ns=290, **inside(root))
    inner = tool("x", {}, start_ns=200, end_ns=210, **inside(helper))
    runs = extract([root, asking, called, helper, inner])
    assert [run.health.calls_elsewhere for run in runs] == [1, 1]
    later = agent("helper", start_ns=500, end_ns=600, **inside(root))
    runs = extract([root, asking, called, later, tool("x", {}, start_ns=510, end_ns=520, **inside(later))])
    assert [run.health.calls_elsewhere for run in runs] == [0, 0]


@pytest.mark.parametrize(
    ("root", "others"),
    [
        pytest.param(span("talk", gen_ai__operation__name="talk", **LONG), 1, id="of a kind that nobody knows"),
        pytest.param(span("POST /chat", kind=2, **LONG), 1, id="a server's"),
        pytest.param(span("batch", **LONG), 0, id="a program's own"),
        pytest.param(span("batch", session__id="s", **LONG), 0, id="with an id of the session only"),
    ],
)
def test_runs_below_one_apparent_request_span_count_as_sharing_a_root(root: SpanRecord, others: int) -> None:
    agents = [agent(name, asked=name, **inside(root)) for name in "ab"]
    spans = [tool("x", {}, **inside(each)) for each in agents]
    assert [run.health.root_shared for run in extract([root, *agents, *spans])] == [others, others]
    assert only(root, agents[0], spans[0]).health.root_shared == 0


# Within a run.


def test_a_requested_and_an_executed_call_of_one_tool_that_do_not_match_count_as_unpaired() -> None:
    root = agent("a", asked="Go", **LONG)
    turn = model(
        asked=[user("Go")], answered=[ask_for(("x", {"n": 1}, "c1"))], start_ns=500, end_ns=600, **inside(root)
    )
    before = tool("x", {"n": 2}, start_ns=100, end_ns=200, **made("k1"), **inside(root))
    run = only(root, turn, before)
    assert len(run.tool_calls) == 2
    assert problems(run.health) == {"calls_unpaired": 1, "calls_unanswered": 1}
    assert only(root, turn, tool("y", {}, **made("k1"), **inside(root))).health.calls_unpaired == 0


def test_a_tool_call_around_other_tool_calls_counts_as_nested() -> None:
    root = agent("a", asked="Go", **LONG)
    outer = tool("research", {}, **inside(root), **LONG)
    run = only(root, outer, tool("search", {}, **inside(outer)), tool("fetch", {}, **inside(outer)))
    assert (run.health.calls_nested, [call.kind for call in run.tool_calls]) == (1, ["tool"] * 3)


def test_a_tool_in_which_a_model_requested_an_executed_call_is_an_agent_call() -> None:
    root = agent("a", asked="Go", **LONG)
    outer = tool("research", {}, **inside(root), **LONG)
    turn = model(asked=[user("Find it")], answered=[ask_for(("search", {}, "c1"))], **inside(outer))
    run = only(root, outer, turn, tool("search", {}, **made("c1"), **inside(outer)))
    assert [(call.name, call.kind) for call in run.tool_calls] == [("research", "agent"), ("search", "tool")]
    assert run.health.calls_nested == 0


def test_a_tool_whose_model_answers_in_the_form_of_a_call_is_a_tool() -> None:
    root = agent("a", asked="Go", **LONG)
    outer = tool("classify", {}, **inside(root), **LONG)
    turn = model(asked=[user("Which?")], answered=[ask_for(("Answer", {"is": "a"}, "c1"))], **inside(outer))
    run = only(root, outer, turn)
    assert run.tool_calls[0].kind == "tool"
    assert problems(run.health) == {"calls_unanswered": 1}


@pytest.mark.parametrize(
    ("name", "arguments", "kind"),
    [
        ("transfer_to_helper", {}, "handoff"),
        ("transfer_to_agent", {"agent_name": "helper"}, "handoff"),
        ("transfer_to_bank", {"amount": "3"}, "tool"),
        ("helper", {}, "tool"),
    ],
)
def test_a_call_named_like_a_handoff_is_a_handoff_if_its_target_is_an_agent_of_the_run(
    name: str, arguments: Any, kind: str
) -> None:
    root = agent("a", asked="Go", **LONG)
    helper = agent("helper", asked="Go on", **inside(root))
    run = only(root, tool(name, arguments, **inside(root)), helper)
    assert [call.kind for call in run.tool_calls if call.name == name] == [kind]


def test_results_of_unknown_calls_are_counted() -> None:
    root = agent("a", asked="Go", **LONG)
    heard = [user("Go"), answers("c1", "3"), answers("c2", "4")]
    run = only(root, model(asked=heard, answered=[says("Done.")], **inside(root)))
    assert (run.health.results_unknown, run.tool_calls) == (2, ())
    earlier = [answers("c1", "3"), user("Go")]
    run = only(root, model(asked=earlier, answered=[says("Done.")], **inside(root)))
    assert run.health.results_unknown == 0


def test_results_under_other_ids_than_their_calls_are_not_counted_as_unknown() -> None:
    root = agent("a", asked="Go", **LONG)
    turn = model(asked=[user("Go")], answered=[ask_for(("x", {}, "k1"))], **inside(root))
    heard = [user("Go"), answers("c1", "3")]
    run = only(root, turn, model(asked=heard, answered=[says("Done.")], **inside(root)))
    assert (run.health.results_unknown, run.health.calls_unanswered) == (0, 0)


def test_two_concurrent_executions_with_one_id_and_two_results_count_as_merged() -> None:
    root = agent("a", asked="Go", **LONG)
    facts = {"start_ns": 100, "end_ns": 200, **made("c1"), **inside(root)}
    twice = [tool("x", {}, gen_ai__tool__call__result="3", **facts) for _ in range(2)]
    assert only(root, *twice).health.merged_beside == 1
    assert only(root, twice[0], tool("x", {}, **facts)).health.merged_beside == 0
    other = tool("x", {}, gen_ai__tool__call__result="3", scope="other", **facts)
    assert only(root, twice[0], other).health.merged_beside == 0


@pytest.mark.parametrize(
    ("facts", "idle"),
    [
        ({}, ("helper",)),
        ({"gen_ai__output__messages": messages(says("Done."))}, ()),
    ],
)
def test_an_agent_without_captured_work_is_listed_as_idle(facts: dict[str, Any], idle: tuple[str, ...]) -> None:
    root = agent("a", asked="Go", **LONG)
    assert (
        only(root, tool("x", {}, **inside(root)), agent("helper", **facts, **inside(root))).health.idle_agents == idle
    )
