"""Requests and components extracted from traces."""

from __future__ import annotations

import dataclasses
from itertools import product
from typing import Any

import pytest

from goldspan.extraction import extract, role_of
from goldspan.model import SpanRecord
from support.laws import case
from support.span_builders import TRACE, agent, answers, asks_for, inside, messages, model, span, tool


def only(spans: list[SpanRecord], **options: object):  # type: ignore[no-untyped-def]
    (run,) = extract(spans, **options)  # type: ignore[arg-type]
    return run


def test_a_trace_without_agent_model_or_tool_contains_no_request() -> None:
    health_check = span("GET /healthz", http__request__method="GET")
    construction = span("create_agent helper", gen_ai__operation__name="create_agent", gen_ai__agent__name="helper")
    discovery = span("tools/list", mcp__method__name="tools/list")
    for lone in (health_check, construction, discovery):
        assert extract([lone]) == []


def test_a_lone_tool_span_is_a_request() -> None:
    lone = tool("search", {"q": "x"})
    run = only([lone])
    assert (run.span_id, run.tools_used) == (lone.span_id, ("search",))


def test_the_outermost_agent_is_the_request_and_counts_the_calls_of_all_nested_spans() -> None:
    server = span("POST /chat", kind=2)
    outer = agent("planner", parent_id=server.span_id, asked="Plan my trip")
    delegation = tool("ask_expert", {"question": "When?"}, parent_id=outer.span_id, end_ns=10**12)
    inner = agent("expert", parent_id=delegation.span_id)
    run = only([server, outer, delegation, inner, tool("calendar", {}, parent_id=inner.span_id)])
    assert run.span_id == outer.span_id
    assert run.input == "Plan my trip"
    assert [(call.name, call.kind, call.agent) for call in run.tool_calls] == [
        ("ask_expert", "agent", "planner"),
        ("calendar", "tool", "expert"),
    ]
    assert run.tools_used == ("calendar",)


@pytest.mark.parametrize(
    ("roles", "named"),
    [
        pytest.param({"main": "planner", "in a tool": "expert"}, "planner", id="the main agent's name"),
        pytest.param({"main": None, "in a tool": "expert"}, None, id="never that of an agent in a tool"),
        pytest.param(
            {"main": None, "works": True, "beside": "expert"}, None, id="nor of one inside an agent that works"
        ),
        pytest.param(
            {"main": None, "beside": "triage"}, "triage", id="a frame without a name stands around the agents"
        ),
        pytest.param({"main": None, "in a tool": "expert", "beside": "triage"}, None, id="who uses tools is no frame"),
        pytest.param({"main": None, "in a span": "expert", "works": True}, None, id="however deep it works"),
        pytest.param({"main": None, "lost": "expert"}, None, id="nor of one whose caller is lost"),
    ],
)
def test_a_request_has_the_name_of_its_main_agent_or_none(roles: dict[str, str | None], named: str | None) -> None:
    main = agent(roles["main"] or "", start_ns=1, end_ns=10**15)
    spans = [main]
    if roles.get("works"):
        spans.append(model(answered=[asks_for("expert", {}, "c1")], parent_id=main.span_id))
    around = {
        "in a tool": tool("expert", {}, parent_id=main.span_id),
        "in a span": span("step", parent_id=main.span_id),
        "beside": main,
        "lost": span("gone", span_id="f" * 16),
    }
    for place, holder in around.items():
        if roles.get(place):
            spans += [holder] * (place in ("in a tool", "in a span"))
            spans.append(agent(str(roles[place]), parent_id=holder.span_id))
    assert only(spans).agent == named


def test_sibling_agents_are_separate_requests() -> None:
    batch = span("nightly batch")
    first = agent("a", parent_id=batch.span_id)
    second = agent("b", parent_id=batch.span_id)
    runs = extract([batch, first, second, tool("x", parent_id=first.span_id), tool("y", parent_id=second.span_id)])
    assert [(run.agent, run.tools_used) for run in runs] == [("a", ("x",)), ("b", ("y",))]


def test_a_tool_span_outside_every_agent_belongs_to_the_request_that_started_before_it() -> None:
    batch = span("batch")
    first = agent("a", parent_id=batch.span_id)
    stray = tool("x", parent_id=batch.span_id)
    second = agent("b", parent_id=batch.span_id)
    assert [run.tools_used for run in extract([batch, first, stray, second])] == [("x",), ()]


def test_an_agent_after_a_handoff_continues_the_request() -> None:
    root = span("workflow")
    first = agent("front", parent_id=root.span_id, asked="Help")
    handoff = span("handoff", gen_ai__operation__name="handoff", gen_ai__tool__name="back", parent_id=first.span_id)
    second = agent("back", parent_id=root.span_id)
    run = only([root, first, handoff, second, tool("fix", parent_id=second.span_id)])
    assert run.tools_used == ("fix",)
    assert [call.kind for call in run.tool_calls] == ["handoff", "tool"]


def test_children_of_a_lost_span_are_one_request_with_its_id() -> None:
    missing = "a" * 16
    calls = [tool(name, {"n": 1}, parent_id=missing) for name in ("one", "two")]
    run = only(calls)
    assert run.run_id == f"{TRACE}:{missing}"
    assert run.tools_used == ("one", "two")
    assert run.health.missing_root
    assert not run.health.is_clean
    late_root = agent("late", span_id=missing, start_ns=1, end_ns=10**12)
    assert only([*calls, late_root]).run_id == run.run_id


def test_a_component_is_a_separate_run_and_its_calls_also_count_for_the_request() -> None:
    outer = agent("planner", goldspan__golden__id="whole")
    part = span("retrieve", parent_id=outer.span_id, goldspan__component__name="retrieve", goldspan__golden__id="part")
    inner = tool("search", {"q": 1}, parent_id=part.span_id)
    spans = [outer, part, inner, tool("answer", {}, parent_id=outer.span_id)]
    request, component = only(spans), only(spans, unit="component")
    assert (request.golden_id, request.tools_used) == ("whole", ("search", "answer"))
    assert (component.golden_id, component.tools_used) == ("part", ("search",))
    assert (component.unit, component.component, component.span_id) == ("component", "retrieve", part.span_id)


def test_a_component_without_a_request_is_not_a_request() -> None:
    part = span("retrieve", goldspan__component__name="retrieve", goldspan__component__input="find x")
    spans = [part, tool("search", {"q": 1}, parent_id=part.span_id)]
    assert extract(spans) == []
    assert only(spans, unit="component").input == "find x"


@pytest.mark.parametrize(
    ("where", "found"),
    [("root", "g1"), ("above", "g1"), ("inside", "g1"), ("in a component", None)],
)
def test_a_golden_may_be_named_on_spans_around_or_inside_a_run(where: str, found: str | None) -> None:
    named = {"test__case__name": "g1"}
    server = span("POST /chat", **(named if where == "above" else {}))
    root = agent("a", parent_id=server.span_id, **(named if where == "root" else {}))
    part = span("p", parent_id=root.span_id, goldspan__component__name="p")
    call = tool(
        "x",
        parent_id=part.span_id if where == "in a component" else root.span_id,
        **(named if where in ("inside", "in a component") else {}),
    )
    assert only([server, root, part, call]).golden_id == found


def test_a_golden_id_that_an_earlier_evaluation_matched_by_input_is_ignored() -> None:
    for how, golden_id in (("input", None), ("id", "g1")):
        root = agent("a", goldspan__golden__id="g1", goldspan__golden__match=how)
        assert only([root, tool("x", parent_id=root.span_id)]).golden_id == golden_id


def test_other_attributes_can_name_the_golden() -> None:
    root = agent("a", my__case="g7")
    assert only([root, tool("x", parent_id=root.span_id)], golden_id_attributes=["my.case"]).golden_id == "g7"


def test_a_cycle_of_parents_is_cut_and_every_call_counts() -> None:
    one = tool("one", {"n": 1}, span_id="1" * 16, parent_id="3" * 16)
    two = tool("two", {"n": 2}, span_id="2" * 16, parent_id="1" * 16)
    three = tool("three", {"n": 3}, span_id="3" * 16, parent_id="2" * 16)
    itself = tool("itself", {}, span_id="4" * 16, parent_id="4" * 16)
    runs = extract([one, two, three, itself])
    assert sorted(name for run in runs for name in run.tools_used) == ["itself", "one", "three", "two"]


def test_very_deep_and_very_wide_traces_are_read() -> None:
    root = agent("a")
    chain = [root]
    for _ in range(5_000):
        chain.append(span("step", parent_id=chain[-1].span_id))
    wide = [span("chunk", parent_id=root.span_id) for _ in range(5_000)]
    assert only([*chain, *wide, tool("x", parent_id=chain[-1].span_id)]).tools_used == ("x",)


def test_the_longer_of_two_exports_of_one_span_is_kept() -> None:
    done = messages({"role": "assistant", "content": "Done"})
    early = agent("a", asked="Hi", span_id="5" * 16, start_ns=5, end_ns=10)
    final = agent("a", asked="Hi", span_id="5" * 16, start_ns=5, end_ns=20, gen_ai__output__messages=done)
    for spans in ([early, final], [final, early]):
        run = only(spans)
        assert (run.output, run.end_ns) == ("Done", 20)


def test_calls_without_times_are_last_and_raise_no_error() -> None:
    root = agent("a", start_ns=1)
    timed = tool("timed", parent_id=root.span_id)
    untimed = tool("untimed", parent_id=root.span_id, start_ns=None, end_ns=None)
    assert only([root, untimed, timed]).tools_used == ("timed", "untimed")


def test_calls_without_times_are_ordered_by_counting_ids_and_are_concurrent() -> None:
    root = agent("a")
    calls = [
        tool(name, parent_id=root.span_id, start_ns=None, end_ns=None, gen_ai__tool__call__id=f"call_{number}")
        for number, name in ((10, "third"), (2, "second"), (1, "first"))
    ]
    for given in ([root, *calls], [*reversed(calls), root]):
        run = only(given)
        assert run.tools_used == ("first", "second", "third")
        assert [call.concurrent_with for call in run.tool_calls] == [(1, 2), (0, 2), (0, 1)]


def test_the_last_user_text_is_the_input_even_if_tool_results_have_the_user_role() -> None:
    handed_back = {"role": "user", "parts": [{"type": "tool_call_response", "id": "c1", "result": 3}]}
    asked = [{"role": "user", "content": "Old"}, {"role": "user", "content": "New"}, handed_back]
    run = only([model(asked=asked, answered=[{"role": "assistant", "content": "3"}])])
    assert (run.input, run.output) == ("New", "3")


def test_health_counts_what_was_not_captured() -> None:
    root = agent("a", dropped_attributes=2)
    spans = [
        root,
        tool("silent", parent_id=root.span_id),
        span(
            "x",
            parent_id=root.span_id,
            gen_ai__operation__name="execute_tool",
            gen_ai__tool__name="cut",
            gen_ai__tool__call__arguments='{"city": "Par',
        ),
        tool("fine", {}, parent_id=root.span_id),
    ]
    run = only(spans)
    health = run.health
    assert (health.dropped_attributes, health.arguments_absent, health.arguments_unreadable) == (2, 1, 1)
    assert (run.tool_calls[1].arguments, run.tool_calls[1].raw_arguments) == (None, '{"city": "Par')


def test_role_of_returns_the_role_of_a_span() -> None:
    assert role_of(agent("a")) == "agent"
    assert role_of(tool("x")) == "tool"
    assert role_of(model()) == "model"
    assert role_of(span("p", goldspan__component__name="p")) == "component"
    assert role_of(span("GET /")) is None


ATTRIBUTES = [
    "gen_ai__tool__name",
    "gen_ai__agent__name",
    "gen_ai__tool__call__id",
    "gen_ai__input__messages",
    "gen_ai__tool__definitions",
    "gen_ai__conversation__id",
    "gen_ai__tool__call__arguments",
    "input__value",
    "traceloop__entity__name",
    "traceloop__entity__input",
    "tool__name",
    "tool__parameters",
]


@pytest.mark.parametrize(
    "mark",
    [
        {"gen_ai__operation__name": "execute_tool"},
        {"gen_ai__operation__name": "invoke_agent"},
        {"gen_ai__operation__name": "chat"},
        {"openinference__span__kind": "TOOL"},
        {"traceloop__span__kind": "tool"},
        {"openinference__span__kind": "LLM"},
        {"traceloop__span__kind": "agent"},
    ],
)
def test_an_attribute_of_an_unexpected_type_raises_no_error(mark: dict[str, str]) -> None:
    for attribute, value in product(ATTRIBUTES, [5, 1.5, True, [1], {"a": 1}, b"x", ""]):
        with case(attribute, value):
            (run,) = extract([span("odd", **(mark | {attribute: value}))])
            for call in run.tool_calls:
                assert isinstance(call.name, str)


def test_messages_of_several_threads_do_not_mix_their_calls() -> None:
    main = model(
        asked=[{"role": "user", "content": "Refund order 7"}],
        answered=[asks_for("expert", {"input": "What is the policy?"}, "c1")],
    )
    inner = model(
        asked=[{"role": "user", "content": "What is the policy?"}],
        answered=[asks_for("search", {"q": "policy"}, "c2")],
    )
    done = model(
        asked=[{"role": "user", "content": "Refund order 7"}, answers("c1", "30 days")],
        answered=[{"role": "assistant", "content": "Refunded."}],
    )
    run = only([main, inner, done])
    assert [(call.name, call.kind, call.agent) for call in run.tool_calls] == [
        ("expert", "agent", None),
        ("search", "tool", "expert"),
    ]
    assert run.tool_calls[0].result == "30 days"
    assert (run.input, run.output) == ("Refund order 7", "Refunded.")


def test_an_agent_in_a_tool_does_not_give_the_input_if_the_outer_agent_is_lost() -> None:
    lost = {"parent_id": "f" * 16}
    turn = model(
        asked=[{"role": "user", "content": "Refund order 7"}], answered=[asks_for("expert", {"q": "?"}, "c1")], **lost
    )
    expert = tool("expert", {"q": "What is the policy?"}, gen_ai__tool__call__id="c1", **lost)
    inner = agent("expert", asked="What is the policy?", parent_id=expert.span_id)
    assert only([turn, expert, inner]).input == "Refund order 7"


def test_two_definitions_of_a_tool_complete_each_other() -> None:
    root = agent("a")
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    noted = {"name": "find", "annotations": {"readOnlyHint": True}}
    offers = [[noted], [{"name": "find", "parameters": schema}], [{**noted, "annotations": {"readOnlyHint": False}}]]
    turns = [model(gen_ai__tool__definitions=messages(*offer), parent_id=root.span_id) for offer in offers]
    (found,) = only([root, *turns]).available_tools
    assert (found.name, found.parameters, found.read_only) == ("find", schema, True)


MS = 1_000_000
PROCESS = {"service.name": "shop", "service.instance.id": "1"}


def late_tool(after_ms: float, *, of: SpanRecord, **more: Any) -> SpanRecord:
    """A tool span that starts the given milliseconds after the end of a span."""
    start = int((of.end_ns or 0) + after_ms * MS)
    return tool("x", {"n": 1}, start_ns=start, **({"resource": of.resource} | inside(of) | more))


def server_span() -> SpanRecord:
    return span("POST /chat", kind=2, start_ns=MS, end_ns=900 * MS, resource=PROCESS)


def request_in(around: SpanRecord) -> SpanRecord:
    return agent(start_ns=2 * MS, end_ns=500 * MS, resource=PROCESS, **inside(around))


def test_late_spans_of_a_worker_that_keeps_the_context_of_a_request_began_late() -> None:
    """A worker that the first request starts keeps its context and creates its spans inside that request."""
    request = agent(start_ns=MS, end_ns=500 * MS, resource=PROCESS)
    job = agent("worker", start_ns=600 * MS, end_ns=800 * MS, resource=PROCESS, **inside(request))
    run = only([request, late_tool(-100, of=request), job, late_tool(-50, of=job)])
    assert (run.health.began_late, run.health.is_clean) == (2, False)
    assert only([request, late_tool(-100, of=request)]).health.is_clean


def test_spans_beside_the_agent_began_late_after_all_spans_around_it_ended() -> None:
    around = server_span()
    request = request_in(around)
    beside = {"resource": PROCESS, **inside(around)}
    after_the_agent = late_tool(100, of=request, **inside(around))
    assert only([around, request, after_the_agent]).health.is_clean
    assert only([around, request, after_the_agent, late_tool(50, of=around, **beside)]).health.began_late == 1


def test_a_separate_late_agent_did_not_begin_late_for_itself() -> None:
    around = server_span()
    first = request_in(around)
    second = agent("second", start_ns=2_000 * MS, end_ns=3_000 * MS, resource=PROCESS, **inside(around))
    runs = extract([around, first, second, late_tool(-100, of=second)])
    assert [run.health.began_late for run in runs] == [0, 0]


@pytest.mark.parametrize(
    ("after_ms", "more", "counted"),
    [
        pytest.param(5, {}, 1, id="in one process"),
        pytest.param(1, {}, 0, id="within the jitter of one clock"),
        pytest.param(5, {"resource": {**PROCESS, "service.instance.id": "2"}}, 0, id="in another process"),
        pytest.param(5, {"start_ns": None}, 0, id="at a time that nobody knows"),
    ],
)
def test_times_are_compared_only_within_one_process(after_ms: float, more: dict[str, Any], counted: int) -> None:
    request = agent(start_ns=MS, end_ns=500 * MS, resource=PROCESS)
    begun = late_tool(after_ms, of=request)
    run = only([request, dataclasses.replace(begun, **more)])
    assert run.health.began_late == counted
    assert run.tools_used == ("x",)


def test_a_request_without_an_end_has_no_late_spans() -> None:
    request = dataclasses.replace(agent(start_ns=MS), end_ns=None)
    assert only([request, tool("x", {"n": 1}, start_ns=10**12, **inside(request))]).health.is_clean


def test_a_component_counts_the_spans_that_began_late_for_it() -> None:
    request = agent(start_ns=MS, end_ns=900 * MS)
    part = span("part", goldspan__component__name="part", start_ns=2 * MS, end_ns=300 * MS, **inside(request))
    spans = [request, part, late_tool(100, of=part)]
    assert only(spans).health.began_late == 0
    assert only(spans, unit="component").health.began_late == 1
