"""What a running program says of its spans goes before what is found out about them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goldspan.extraction import extract
from goldspan.model import Run, RunUnit, SpanRecord
from support.span_builders import agent, asks_for, in_trace, inside, messages, model, says, span, tool, user


def only(spans: list[SpanRecord], unit: RunUnit = "request") -> Run:
    (run,) = extract(spans, unit=unit)
    return run


# --- the run's own span -----------------------------------------------------------------------------------------------


def test_a_run_has_the_name_the_attributes_and_the_environment_of_its_span() -> None:
    root = agent("desk", resource={"deployment.environment.name": "staging"}, tenant="t1")
    run = only([span("POST /chat"), root])
    assert (run.span_name, run.environment) == ("invoke_agent desk", "staging")
    assert run.attributes is root.attributes


@pytest.mark.parametrize(
    ("resource", "environment"),
    [
        ({}, None),
        ({"deployment.environment": "test"}, "test"),
        ({"deployment.environment": "test", "deployment.environment.name": "production"}, "production"),
        ({"deployment.environment.name": ""}, None),
        ({"deployment.environment.name": 3}, "3"),
    ],
)
def test_the_environment_is_read_under_its_old_name_too(resource: dict[str, Any], environment: str | None) -> None:
    assert only([agent(resource=resource)]).environment == environment


def test_of_a_request_whose_span_never_came_the_name_is_not_known() -> None:
    run = only([tool(name, parent_id="f" * 16) for name in ("a", "b")])
    assert (run.span_name, dict(run.attributes), run.expected_tools, run.metrics) == (None, {}, None, None)


def test_what_is_said_to_have_been_asked_and_answered_goes_before_everything_else() -> None:
    root = agent(asked="{'messages': []}", goldspan__input="My order 7?", goldspan__output="It is on its way.")
    turn = model(asked=[user("You are asked by a user: 7?")], answered=[says("Way.")], **inside(root))
    assert (only([root, turn]).input, only([root, turn]).output) == ("My order 7?", "It is on its way.")
    bare = span("POST /chat", goldspan__input="My order 7?")
    assert only([bare, tool("find", **inside(bare))]).input == "My order 7?"


def test_what_a_span_inside_says_it_was_asked_is_not_what_the_request_was() -> None:
    root = agent(asked="Hello")
    assert only([root, tool("find", goldspan__input="7", **inside(root))]).input == "Hello"


def test_empty_statements_say_nothing() -> None:
    said = {
        "goldspan__input": "",
        "goldspan__expected_tools": " ",
        "goldspan__metrics": ",",
        "goldspan__golden__id": "g",
    }
    run = only([agent(asked="Hello", **said)])
    assert (run.input, run.expected_tools, run.metrics, run.golden_id) == ("Hello", None, None, "g")


# --- expected tools and metrics ---------------------------------------------------------------------------------------

CALL = {"name": "refund", "arguments": {"order": 7}}


@pytest.mark.parametrize(
    ("written", "read"),
    [
        pytest.param(json.dumps(["search", CALL]), ("search", CALL), id="JSON"),
        pytest.param("[]", (), id="that no tool is to be called"),
        pytest.param(json.dumps(CALL), (CALL,), id="JSON of one"),
        pytest.param("search", ("search",), id="a name"),
        pytest.param(["search", "refund"], ("search", "refund"), id="a list of names"),
        pytest.param(("search", json.dumps(CALL)), ("search", CALL), id="names and JSON"),
        pytest.param(["search", CALL], ("search", CALL), id="a structured value"),
        pytest.param('[{"name": "refu…', ('[{"name": "refu…',), id="cut off: the text as it is"),
        pytest.param(7, (7,), id="nonsense, for whoever reads it to say so"),
        pytest.param("null", None, id="nothing"),
    ],
)
def test_expected_tools_are_read_as_plain_values(written: Any, read: tuple[Any, ...] | None) -> None:
    assert only([agent(goldspan__expected_tools=written)]).expected_tools == read


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (["tool_recall", "few_calls"], ("tool_recall", "few_calls")),
        ("tool_recall, few_calls,tool_recall", ("tool_recall", "few_calls")),
        ([], None),
        (3, None),
    ],
)
def test_metrics_are_names_in_a_list_or_between_commas(written: Any, read: tuple[str, ...] | None) -> None:
    assert only([agent(goldspan__metrics=written)]).metrics == read


SAID = {"goldspan__expected_tools": '["search"]', "goldspan__metrics": "tool_recall"}
OTHER = {"goldspan__expected_tools": '["book"]', "goldspan__metrics": "tool_precision", "goldspan__golden__id": "other"}


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        pytest.param({"root": SAID, "above": OTHER, "inside": OTHER}, ("search",), id="its own span first"),
        pytest.param({"above": SAID, "inside": OTHER}, ("search",), id="then one around it"),
        pytest.param({"inside": SAID}, ("search",), id="then one inside it"),
        pytest.param({"component": SAID}, None, id="what a component says is for the component"),
        pytest.param({"sub-agent": SAID}, None, id="and what a sub-agent says for the sub-agent"),
    ],
)
def test_who_may_say_what_is_expected_of_a_request(
    places: dict[str, dict[str, Any]], expected: tuple[str, ...] | None
) -> None:
    server = span("POST /chat", **places.get("above", {}))
    root = agent("planner", **inside(server), **places.get("root", {}))
    within = span("step", **inside(root), **places.get("inside", {}))
    part = span("part", goldspan__component__name="part", **inside(root), **places.get("component", {}))
    called = tool("ask", {}, end_ns=10**15, **inside(root))
    expert = agent("expert", **inside(called), **places.get("sub-agent", {}))
    run = only([server, root, within, part, called, expert])
    assert (run.expected_tools, run.metrics) == (expected, ("tool_recall",) if expected else None)
    if {"component", "sub-agent"} & places.keys():
        assert [one.expected_tools for one in extract([server, root, part, called, expert], unit="component")].count(
            ("search",)
        ) == 1


def test_an_agent_for_whom_another_is_a_mere_frame_speaks_for_the_request() -> None:
    frame = agent("frame")
    worker = agent("worker", goldspan__golden__id="g1", **inside(frame))
    busy = [frame, worker, tool("search", {}, **inside(worker))]
    assert only(busy).golden_id == "g1"
    assert only([*busy, tool("book", {}, **inside(frame))]).golden_id is None


def test_of_several_agents_for_whom_one_divides_the_work_none_speaks_for_the_request() -> None:
    boss = agent("boss")
    writer = agent("writer", goldspan__golden__id="g1", **SAID, **inside(boss))
    critic = agent("critic", **inside(boss))
    spans = [boss, writer, tool("write", {}, **inside(writer)), critic, tool("judge", {}, **inside(critic))]
    run = only(spans)
    assert (run.golden_id, run.expected_tools, run.metrics) == (None, None, None)
    assert {part.component: part.golden_id for part in extract(spans, unit="component")} == {
        "writer": "g1",
        "critic": None,
    }


def test_what_is_said_of_a_request_is_not_said_of_the_components_in_it() -> None:
    root = agent("planner", goldspan__golden__id="whole", goldspan__metadata__tenant="t1", **SAID)
    part = span("part", goldspan__component__name="part", **inside(root))
    run = only([root, part], "component")
    assert (run.golden_id, run.expected_tools, run.metrics, dict(run.metadata)) == (None, None, None, {})
    case = span("test", test__case__name="g1")
    alone = span("part", goldspan__component__name="part", **inside(case))
    assert only([case, alone], "component").golden_id == "g1"


def test_results_of_an_earlier_evaluation_are_no_instructions() -> None:
    results = {
        "goldspan__golden__id": "g1",
        "goldspan__golden__match": "when",
        "goldspan__tools_used": ["search"],
        "goldspan__score__tool_recall": 0.5,
        "goldspan__passed": False,
        "goldspan__reason": "Expected book was not called.",
    }
    root = agent("desk", asked="Hi")
    judged = agent("desk", asked="Hi", span_id=root.span_id, start_ns=root.start_ns, end_ns=root.end_ns, **results)
    assert only([judged]) == only([root])


def test_a_golden_is_never_taken_from_a_result_while_another_span_names_one() -> None:
    server = span("POST /chat", test__case__name="case-7")
    judged = agent(goldspan__golden__id="g1", goldspan__golden__match="input", **inside(server))
    assert only([server, judged]).golden_id == "case-7"


# --- metadata ---------------------------------------------------------------------------------------------------------


def test_metadata_is_what_a_run_and_the_spans_around_it_say_the_nearest_first() -> None:
    server = span("POST /chat", goldspan__metadata__tenant="all", goldspan__metadata__region="eu")
    root = agent(goldspan__metadata__tenant="t1", goldspan__metadata__user__tier=2, **inside(server))
    run = only([server, root, tool("x", goldspan__metadata__inner=1, **inside(root))])
    assert run.metadata == {"region": "eu", "tenant": "t1", "user.tier": 2}


# --- tools that are offered -------------------------------------------------------------------------------------------


def test_the_tools_that_may_be_chosen_from_can_be_said_of_any_span_that_stands_for_a_run() -> None:
    offered = json.dumps([{"type": "function", "name": "search"}, {"type": "function", "name": "book"}])
    bare = span("POST /chat", gen_ai__tool__definitions=offered)
    part = span("part", goldspan__component__name="part", gen_ai__tool__definitions=offered)
    for run in (
        only([bare, tool("search", **inside(bare))]),
        only([part], "component"),
        only([agent(gen_ai__tool__definitions=offered)]),
    ):
        assert [tool.name for tool in run.available_tools] == ["book", "search"]


# --- conversations and twins ------------------------------------------------------------------------------------------


def test_of_a_conversation_is_expected_what_is_expected_of_all_its_requests_or_nobody_knows() -> None:
    def asked(number: int, **said: Any) -> SpanRecord:
        return agent(gen_ai__conversation__id="s1", **in_trace(number), **said)

    first = asked(1, goldspan__expected_tools='["search"]', goldspan__metadata__tenant="t1")
    second = asked(2, goldspan__expected_tools='["book"]', goldspan__metrics="tool_recall", goldspan__metadata__n=2)
    whole = only([first, second], "conversation")
    assert (whole.expected_tools, whole.metrics) == (("search", "book"), ("tool_recall",))
    assert whole.metadata == {"tenant": "t1", "n": 2}
    assert only([first, second, asked(3)], "conversation").expected_tools is None


def test_of_a_request_that_two_instrumentations_saw_either_may_say_what_is_expected() -> None:
    said = {"goldspan__expected_tools": "[]", "goldspan__metadata__tenant": "t1"}
    question = messages({"role": "user", "content": "Find it"})
    turn = {"gen_ai__operation__name": "invoke_agent", "gen_ai__input__messages": question}
    one = span("a", scope="one", start_ns=100, end_ns=200, **in_trace(1), **turn)
    call = tool("search", {"q": 1}, scope="one", start_ns=110, end_ns=120, **inside(one))
    other = span("a", scope="two", start_ns=101, end_ns=199, **in_trace(2), **turn, **said)
    run = only([one, call, other])
    assert (run.expected_tools, run.metadata, run.tools_used) == ((), {"tenant": "t1"}, ("search",))


def test_a_question_that_a_model_repeats_is_not_needed_where_the_program_says_it() -> None:
    root = span("POST /chat", goldspan__output="Done")
    turn = model(asked=[user("Hi")], answered=[asks_for("search", {})], **inside(root))
    assert (only([root, turn]).input, only([root, turn]).output) == ("Hi", "Done")
