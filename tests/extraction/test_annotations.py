"""Annotations that a program sets on its spans precede the facts that extraction derives."""

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


def test_a_run_has_the_name_attributes_and_environment_of_its_root_span() -> None:
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
def test_the_environment_is_read_from_the_current_and_the_old_attribute(
    resource: dict[str, Any], environment: str | None
) -> None:
    assert only([agent(resource=resource)]).environment == environment


def test_a_request_whose_root_span_is_lost_has_no_span_name_and_no_annotations() -> None:
    run = only([tool(name, parent_id="f" * 16) for name in ("a", "b")])
    assert (run.span_name, dict(run.attributes), run.expected_tools, run.metrics) == (None, {}, None, None)


def test_annotated_input_and_output_precede_all_other_sources() -> None:
    root = agent(asked="{'messages': []}", goldspan__input="My order 7?", goldspan__output="It is on its way.")
    turn = model(asked=[user("You are asked by a user: 7?")], answered=[says("Way.")], **inside(root))
    assert (only([root, turn]).input, only([root, turn]).output) == ("My order 7?", "It is on its way.")
    bare = span("POST /chat", goldspan__input="My order 7?")
    assert only([bare, tool("find", **inside(bare))]).input == "My order 7?"


def test_an_annotated_input_of_an_inner_span_is_not_the_input_of_the_request() -> None:
    root = agent(asked="Hello")
    assert only([root, tool("find", goldspan__input="7", **inside(root))]).input == "Hello"


def test_empty_annotations_are_ignored() -> None:
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
def test_expected_tools_are_parsed_to_plain_values(written: Any, read: tuple[Any, ...] | None) -> None:
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
def test_metrics_are_a_list_or_comma_separated_names(written: Any, read: tuple[str, ...] | None) -> None:
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
def test_spans_around_and_inside_a_request_may_annotate_it_but_other_runs_may_not(
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


def test_the_only_working_agent_inside_an_outer_agent_may_annotate_the_request() -> None:
    frame = agent("frame")
    worker = agent("worker", goldspan__golden__id="g1", **inside(frame))
    busy = [frame, worker, tool("search", {}, **inside(worker))]
    assert only(busy).golden_id == "g1"
    assert only([*busy, tool("book", {}, **inside(frame))]).golden_id is None


def test_several_agents_under_one_outer_agent_do_not_annotate_the_request() -> None:
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


def test_annotations_of_a_request_do_not_apply_to_its_components() -> None:
    root = agent("planner", goldspan__golden__id="whole", goldspan__metadata__tenant="t1", **SAID)
    part = span("part", goldspan__component__name="part", **inside(root))
    run = only([root, part], "component")
    assert (run.golden_id, run.expected_tools, run.metrics, dict(run.metadata)) == (None, None, None, {})
    case = span("test", test__case__name="g1")
    alone = span("part", goldspan__component__name="part", **inside(case))
    assert only([case, alone], "component").golden_id == "g1"


def test_results_of_an_earlier_evaluation_are_not_annotations() -> None:
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


def test_a_golden_id_from_an_evaluation_result_yields_to_another_golden_id() -> None:
    server = span("POST /chat", test__case__name="case-7")
    judged = agent(goldspan__golden__id="g1", goldspan__golden__match="input", **inside(server))
    assert only([server, judged]).golden_id == "case-7"


# --- metadata ---------------------------------------------------------------------------------------------------------


def test_metadata_is_merged_from_the_spans_around_a_run_and_the_nearest_value_is_kept() -> None:
    server = span("POST /chat", goldspan__metadata__tenant="all", goldspan__metadata__region="eu")
    root = agent(goldspan__metadata__tenant="t1", goldspan__metadata__user__tier=2, **inside(server))
    run = only([server, root, tool("x", goldspan__metadata__inner=1, **inside(root))])
    assert run.metadata == {"region": "eu", "tenant": "t1", "user.tier": 2}


# --- tools that are offered -------------------------------------------------------------------------------------------


def test_tool_definitions_may_be_set_on_any_root_span_of_a_run() -> None:
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


def test_a_conversation_has_annotations_only_if_all_its_requests_agree() -> None:
    def asked(number: int, **said: Any) -> SpanRecord:
        return agent(gen_ai__conversation__id="s1", **in_trace(number), **said)

    first = asked(1, goldspan__expected_tools='["search"]', goldspan__metadata__tenant="t1")
    second = asked(2, goldspan__expected_tools='["book"]', goldspan__metrics="tool_recall", goldspan__metadata__n=2)
    whole = only([first, second], "conversation")
    assert (whole.expected_tools, whole.metrics) == (("search", "book"), ("tool_recall",))
    assert whole.metadata == {"tenant": "t1", "n": 2}
    assert only([first, second, asked(3)], "conversation").expected_tools is None


def test_either_of_two_instrumentations_of_one_request_may_annotate_it() -> None:
    said = {"goldspan__expected_tools": "[]", "goldspan__metadata__tenant": "t1"}
    question = messages({"role": "user", "content": "Find it"})
    turn = {"gen_ai__operation__name": "invoke_agent", "gen_ai__input__messages": question}
    one = span("a", scope="one", start_ns=100, end_ns=200, **in_trace(1), **turn)
    call = tool("search", {"q": 1}, scope="one", start_ns=110, end_ns=120, **inside(one))
    other = span("a", scope="two", start_ns=101, end_ns=199, **in_trace(2), **turn, **said)
    run = only([one, call, other])
    assert (run.expected_tools, run.metadata, run.tools_used) == ((), {"tenant": "t1"}, ("search",))


def test_the_model_input_is_the_input_of_the_request_if_only_the_output_is_annotated() -> None:
    root = span("POST /chat", goldspan__output="Done")
    turn = model(asked=[user("Hi")], answered=[asks_for("search", {})], **inside(root))
    assert (only([root, turn]).input, only([root, turn]).output) == ("Hi", "Done")
