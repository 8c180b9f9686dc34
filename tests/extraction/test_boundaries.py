"""Request boundaries: leaked context, hand-offs, stray spans and damaged traces."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from goldspan.extraction import extract
from goldspan.model import SpanRecord
from support.span_builders import agent, answers, ask_for, asks_for, inside, made, model, says, span, tool, user


def agents_and_tools(spans: list[SpanRecord]) -> list[tuple[str | None, list[str]]]:
    """The agent and the called tools of each request."""
    return [(run.agent, [call.name for call in run.tool_calls]) for run in extract(spans)]


def agent_with_handoff(name: str, to: str, **facts: Any) -> list[SpanRecord]:
    """An agent that hands off to another agent."""
    first = agent(name, **facts)
    return [first, span("handoff", gen_ai__operation__name="handoff", gen_ai__tool__name=to, **inside(first))]


# Leaked context.


def test_the_same_agent_nested_in_an_ended_agent_is_a_separate_request() -> None:
    first = agent("a", asked="One", start_ns=100, end_ns=200)
    second = agent("a", asked="Two", start_ns=300, end_ns=400, **inside(first))
    third = agent("a", asked="Three", start_ns=500, end_ns=600, **inside(second))
    spans = [first, second, third]
    spans += [tool(name, {}, **inside(root)) for name, root in zip("xyz", spans, strict=True)]
    assert agents_and_tools(spans) == [("a", ["x"]), ("a", ["y"]), ("a", ["z"])]
    assert [run.input for run in extract(spans)] == ["One", "Two", "Three"]
    assert all(run.health.orphan_spans == 0 for run in extract(spans))


@pytest.mark.parametrize(
    "inner",
    [
        pytest.param(
            {"name": "a", "start_ns": 150, "end_ns": 180}, id="the same agent again, while the first is at work"
        ),
        pytest.param({"name": "b", "start_ns": 300, "end_ns": 400}, id="another agent, though the first has ended"),
    ],
)
def test_a_nested_agent_is_a_sub_agent_if_the_outer_one_is_running_or_has_another_name(inner: dict[str, Any]) -> None:
    first = agent("a", start_ns=100, end_ns=200)
    second = agent(**inner, **inside(first))
    assert agents_and_tools([first, second, tool("x", {}, **inside(second))]) == [("a", ["x"])]


# Conversations of agents.


def conversation(*, ids: bool = True, words: str = "Go", begin: int = 100, around: SpanRecord) -> list[SpanRecord]:
    """One agent requests a tool call, another agent executes it, and the first agent continues with the result."""
    asking = agent("asking", start_ns=begin, end_ns=begin + 10, **inside(around))
    acting = agent("acting", start_ns=begin + 10, end_ns=begin + 20, **inside(around))
    going_on = agent("asking", start_ns=begin + 20, end_ns=begin + 30, **inside(around))
    call_id = "c1" if ids else None
    told = [user(words), asks_for("x", {"n": 1}, call_id), answers(call_id or "", "1")]
    return [
        asking,
        model(asked=told[:1], answered=told[1:2], start_ns=begin + 1, end_ns=begin + 9, **inside(asking)),
        acting,
        tool("x", {"n": 1}, start_ns=begin + 11, end_ns=begin + 19, **(made("c1") if ids else {}), **inside(acting)),
        going_on,
        model(asked=told, answered=[says("Done.")], start_ns=begin + 21, end_ns=begin + 29, **inside(going_on)),
    ]


def test_agents_of_which_one_executes_calls_that_the_other_requested_are_one_request() -> None:
    """This holds for any name of the span around them."""
    around = span("talk", gen_ai__operation__name="talk", start_ns=1, end_ns=10**15)
    (run,) = extract([around, *conversation(around=around)])
    assert (run.agent, run.tools_used, run.output) == ("asking", ("x",), "Done.")
    assert {call.evidence for call in run.tool_calls} == {"executed"}


def test_without_call_ids_such_agents_are_separate_requests() -> None:
    around = span("talk", gen_ai__operation__name="talk", start_ns=1, end_ns=10**15)
    assert len(extract([around, *conversation(ids=False, around=around)])) == 3


def test_requests_that_reuse_call_ids_are_separate() -> None:
    around = span("batch", start_ns=1, end_ns=10**15)
    spans = [
        each
        for at, words in enumerate(("One", "Two"))
        for each in conversation(words=words, begin=100 + 100 * at, around=around)
    ]
    assert [(run.input, run.tools_used) for run in extract([around, *spans])] == [("One", ("x",)), ("Two", ("x",))]


def test_an_agent_executes_no_call_of_another_agent_that_executed_the_call_itself() -> None:
    around = span("batch", start_ns=1, end_ns=10**15)
    first = agent("asking", start_ns=100, end_ns=200, **inside(around))
    turn = model(asked=[user("One")], answered=[asks_for("x", {}, "c1")], start_ns=110, end_ns=120, **inside(first))
    second = agent("acting", start_ns=300, end_ns=400, **inside(around))
    executed = tool("x", {}, start_ns=330, end_ns=340, **made("c1"), **inside(second))
    spans = [around, first, turn, second, executed]
    assert agents_and_tools(spans) == [("asking", ["x"])]
    done = tool("x", {}, start_ns=130, end_ns=140, **made("c1"), **inside(first))
    assert agents_and_tools([*spans, done]) == [("asking", ["x"]), ("acting", ["x"])]


def test_a_reused_call_id_in_a_later_agent_without_its_model_span_is_a_separate_request() -> None:
    around = span("batch", start_ns=1, end_ns=10**15)
    first = agent("a", asked="One", start_ns=100, end_ns=200, **inside(around))
    turn = model(asked=[user("One")], answered=[asks_for("x", {}, "c1")], start_ns=110, end_ns=120, **inside(first))
    done = tool("x", {}, start_ns=130, end_ns=140, **made("c1"), **inside(first))
    second = agent("a", asked="Two", start_ns=300, end_ns=400, **inside(around))
    again = tool("x", {}, start_ns=330, end_ns=340, **made("c1"), **inside(second))
    assert agents_and_tools([around, first, turn, done, second, again]) == [("a", ["x"]), ("a", ["x"])]


# Hand-offs.


def test_agents_that_hand_off_to_each_other_are_one_request_and_the_next_one_is_separate() -> None:
    batch = span("batch")
    spans = [batch]
    for number in range(2):
        first = agent_with_handoff("front", "back", **inside(batch))
        second = agent("back", **inside(batch))
        spans += [*first, second, tool(f"fix{number}", {}, **inside(second))]
    assert agents_and_tools(spans) == [("front", ["back", "fix0"]), ("front", ["back", "fix1"])]


def test_a_chain_of_handoffs_is_one_request() -> None:
    root = span("app")
    spans = [root, *agent_with_handoff("a", "b", **inside(root)), *agent_with_handoff("b", "c", **inside(root))]
    last = agent("c", **inside(root))
    assert agents_and_tools([*spans, last, tool("x", {}, **inside(last))]) == [("a", ["b", "c", "x"])]


def test_concurrent_requests_continue_in_the_agent_that_their_handoff_names() -> None:
    root = span("app")
    one = agent_with_handoff("front", "billing", **inside(root))
    two = agent_with_handoff("desk", "travel", **inside(root))
    travel, billing = agent("travel", **inside(root)), agent("billing", **inside(root))
    spans = [root, one[0], two[0], one[1], two[1], travel, billing]
    spans += [tool("book", {}, **inside(travel)), tool("refund", {}, **inside(billing))]
    assert agents_and_tools(spans) == [("front", ["billing", "refund"]), ("desk", ["travel", "book"])]


def test_a_handoff_to_an_unknown_agent_continues_in_the_next_agent() -> None:
    root = span("app")
    spans = [root, *agent_with_handoff("front", "unknown", **inside(root)), agent("back", **inside(root))]
    assert agents_and_tools(spans) == [("front", ["unknown"])]


def test_an_agent_in_another_part_of_the_trace_does_not_continue_a_handoff() -> None:
    here, there = span("here"), span("there")
    spans = [here, there, *agent_with_handoff("front", "back", **inside(here)), agent("back", **inside(there))]
    assert [agent for agent, _ in agents_and_tools(spans)] == ["front", "back"]


# Strays.


def test_a_tool_span_outside_every_agent_belongs_to_the_request_that_asked_for_it() -> None:
    root = span("app")
    agents = [agent(name, end_ns=10**15, **inside(root)) for name in "ab"]
    turns = [
        model(asked=[user(each.name)], answered=[ask_for(("x", {"n": at}, f"c{at}"))], **inside(each))
        for at, each in enumerate(agents)
    ]
    outside = [tool("x", {"n": 0}, **made("c0"), **inside(root)), tool("x", {"n": 1}, **inside(root))]
    runs = extract([root, *agents, *turns, *outside])
    assert [[(call.arguments, call.evidence) for call in run.tool_calls] for run in runs] == [
        [({"n": 0}, "executed")],
        [({"n": 1}, "executed")],
    ]


def test_a_late_tool_span_belongs_to_the_agent_with_its_call_id_despite_later_agents() -> None:
    root = span("app")
    first = agent("a", **inside(root))
    asking = model(answered=[ask_for(("x", {}, "c1"))], **inside(first))
    later = [agent("b", **inside(root)) for _ in range(60)]
    (run, *others) = extract([root, first, asking, *later, tool("x", {}, **made("c1"), **inside(root))])
    assert [call.evidence for call in run.tool_calls] == ["executed"]
    assert not any(run.tool_calls for run in others)


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        pytest.param([user("a")], ask_for(("x", {"n": 2}, "c0")), id="it asks for the call that was made"),
        pytest.param([answers("c0", 1)], says("Done."), id="it remembers a call"),
        pytest.param([user("a")], says("Done."), id="the user's words"),
    ],
)
def test_a_model_turn_whose_parent_is_lost_belongs_to_the_request_with_its_messages(
    asked: list[Any], answered: Any
) -> None:
    root = span("app")
    first, second = (agent(name, end_ns=10**15, **inside(root)) for name in "ab")
    turns = [model(asked=[user(each.name[-1])], answered=[says("Well.")], **inside(each)) for each in (first, second)]
    spans = [root, first, second, *turns]
    lost = "f" * 16
    spans += [
        tool("x", {"n": 2}, **made("c0"), **inside(first)),
        model(asked=asked, answered=[answered], parent_id=lost),
    ]
    runs = extract(spans)
    assert [run.tools_used for run in runs] == [("x",), ()]
    assert [run.health.orphan_spans for run in runs] == [1, 0]


def test_a_stray_model_turn_that_starts_with_two_requests_belongs_to_that_with_its_messages() -> None:
    root = span("app")
    spans = [root]
    for name in "ab":
        spans.append(agent(name, start_ns=100, end_ns=10**15, **inside(root)))
        spans.append(model(asked=[user(name)], answered=[says("Well.")], start_ns=200, **inside(spans[-1])))
    stray = [model(asked=[user(name)], answered=[asks_for(f"of {name}", {})], start_ns=100) for name in "ba"]
    spans += [replace(each, parent_id="f" * 16) for each in stray]
    assert agents_and_tools(spans) == [("a", ["of a"]), ("b", ["of b"])]


def test_a_stray_tool_span_before_every_agent_belongs_to_the_first_request() -> None:
    root = span("app")
    spans = [root, tool("early", {}, **inside(root)), agent("a", **inside(root)), agent("b", **inside(root))]
    assert agents_and_tools(spans) == [("a", ["early"]), ("b", [])]


# Spans that are not requests.


@pytest.mark.parametrize(
    "aside",
    [
        span("create_agent a", gen_ai__operation__name="create_agent", gen_ai__agent__name="a"),
        span("tools/list", mcp__method__name="tools/list"),
        span("embeddings", gen_ai__operation__name="embeddings"),
        span("GET /"),
    ],
    ids=lambda span: span.name,
)
def test_an_unrelated_span_in_the_trace_of_a_request_is_not_a_request(aside: SpanRecord) -> None:
    root = agent("a")
    assert agents_and_tools([aside, root, tool("x", {}, **inside(root))]) == [("a", ["x"])]
    assert extract([aside]) == []


def test_an_agent_below_a_span_that_is_not_a_request_is_a_request() -> None:
    building = span("create_agent a", gen_ai__operation__name="create_agent", gen_ai__agent__name="a")
    root = agent("a", **inside(building))
    assert agents_and_tools([building, root, tool("x", {}, **inside(root))]) == [("a", ["x"])]


# Missing parents.


def test_children_of_several_missing_parents_are_one_request() -> None:
    spans = [tool("x", {"n": 1}, parent_id="a" * 16), tool("y", {"n": 1}, parent_id="b" * 16)]
    (run,) = extract(spans)
    assert run.tools_used == ("x", "y")
    assert run.health.orphan_spans == 1


def test_a_sub_agent_whose_parent_is_lost_belongs_to_the_enclosing_request() -> None:
    root = agent("a", start_ns=100, end_ns=900)
    inner = agent("b", start_ns=200, end_ns=800, parent_id="f" * 16)
    spans = [root, inner, tool("x", {}, **inside(inner))]
    assert agents_and_tools(spans) == [("a", ["x"])]
    assert extract(spans)[0].health.orphan_spans == 1
    step = span("step", parent_id="f" * 16)
    below = agent("b", start_ns=200, end_ns=800, **inside(step))
    assert agents_and_tools([root, step, below]) == [("a", [])]
    for elsewhere in ({"start_ns": 950, "end_ns": 990}, {"start_ns": 200, "end_ns": 950}):
        later = agent("b", parent_id="f" * 16, **elsewhere)
        assert agents_and_tools([root, later]) == [("a", []), ("b", [])]


def test_overlapping_agents_with_the_same_missing_parent_are_separate_requests() -> None:
    lost = {"parent_id": "f" * 16}
    spans = [agent("a", start_ns=100, end_ns=900, **lost), agent("b", start_ns=200, end_ns=800, **lost)]
    assert agents_and_tools(spans) == [("a", []), ("b", [])]


def test_the_agent_is_the_root_of_a_request_whose_server_span_is_lost() -> None:
    root = agent("a", parent_id="f" * 16)
    (run,) = extract([root, tool("x", {}, **inside(root))])
    assert run.span_id == root.span_id
    assert (run.health.missing_root, run.health.orphan_spans) == (False, 0)


def test_an_empty_span_id_is_not_a_parent_id() -> None:
    nameless = agent("a", span_id="", asked="One")
    other = agent("b", asked="Two")
    assert len(extract([nameless, other])) == 2


LOST = {"parent_id": "f" * 16}


@pytest.mark.parametrize(
    ("inner", "call", "requests"),
    [
        pytest.param({"name": "expert"}, tool("expert", start_ns=10, end_ns=90, **LOST), 1, id="a tool of its name"),
        pytest.param(
            {"asked": "Which?"}, tool("t", {"q": "Which?"}, start_ns=10, end_ns=90, **LOST), 1, id="its words"
        ),
        pytest.param(
            {"asked": "Which?"},
            model(answered=[asks_for("t", {"q": "Which?"})], start_ns=5, end_ns=9, **LOST),
            1,
            id="its words in a model's answer",
        ),
        pytest.param({"asked": "Which?"}, tool("t", {"q": "What?"}, start_ns=10, end_ns=90, **LOST), 2, id="others"),
        pytest.param({"name": "expert"}, tool("expert", start_ns=10, end_ns=15, **LOST), 2, id="a tool that had ended"),
    ],
)
def test_an_agent_whose_parent_is_lost_is_a_sub_agent_if_a_call_matches_it(
    inner: dict[str, Any], call: SpanRecord, requests: int
) -> None:
    """Without such a call they may be the requests of two users."""
    outer = agent("a", start_ns=1, end_ns=100, **LOST)
    assert len(extract([outer, call, agent(**inner, start_ns=20, end_ns=80, **LOST)])) == requests


@pytest.mark.parametrize(("words", "requests"), [("Which?", 1), ("What?", 2)])
def test_the_words_of_an_agent_without_an_input_are_those_of_its_model(words: str, requests: int) -> None:
    outer = agent("a", start_ns=1, end_ns=100, **LOST)
    call = tool("t", {"q": "Which?"}, start_ns=10, end_ns=90, **LOST)
    inner = agent(start_ns=20, end_ns=80, **LOST)
    turn = model(asked=[user(words)], answered=[says("This.")], start_ns=30, end_ns=40, **inside(inner))
    assert len(extract([outer, call, inner, turn])) == requests


def test_a_handoff_whose_span_is_lost_is_known_from_the_model_message() -> None:
    first = agent("a", start_ns=1, end_ns=20, **LOST)
    turn = model(answered=[asks_for("transfer_to_b", {})], start_ns=2, end_ns=10, **inside(first))
    (run,) = extract([first, turn, agent("b", start_ns=21, end_ns=40, **LOST)])
    assert [(call.name, call.kind) for call in run.tool_calls] == [("transfer_to_b", "handoff")]
