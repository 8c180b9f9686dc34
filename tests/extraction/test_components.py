"""Components: marked spans, spans declared by golden files, and agents inside a request."""

from __future__ import annotations

from typing import Any

import pytest

from goldspan.conventions.classification import DeclaredComponents
from goldspan.extraction import component_name, extract, extract_units
from goldspan.model import ComponentSelector, Run, SpanRecord
from support.span_builders import agent, asks_for, inside, model, says, span, tool, user

RETRIEVAL = ComponentSelector("retrieval", span="retrieve*")


def components(spans: list[SpanRecord], *declared: ComponentSelector) -> list[Run]:
    return extract(spans, unit="component", components=declared)


def only(spans: list[SpanRecord], *declared: ComponentSelector) -> Run:
    (run,) = components(spans, *declared)
    return run


# --- declared ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "is_one"),
    [
        pytest.param(ComponentSelector("c", span="retrieve documents"), True, id="by the whole name"),
        pytest.param(ComponentSelector("c", span="RETRIEVE *"), True, id="by a pattern, whatever the case"),
        pytest.param(ComponentSelector("c", span="retrieve"), False, id="not by a part of the name"),
        pytest.param(ComponentSelector("c", attributes={"step": "retrieval"}), True, id="by an attribute"),
        pytest.param(ComponentSelector("c", attributes={"step": "ranking"}), False, id="not by another value"),
        pytest.param(ComponentSelector("c", attributes={"other": "retrieval"}), False, id="not by another attribute"),
        pytest.param(
            ComponentSelector("c", span="retrieve*", attributes={"step": "ranking"}), False, id="all must hold"
        ),
        pytest.param(ComponentSelector("c", span="rank*", attributes={"step": "retrieval"}), False, id="the name too"),
    ],
)
def test_a_span_of_no_convention_is_a_component_if_a_golden_file_declares_it(
    declared: ComponentSelector, is_one: bool
) -> None:
    request = agent(asked="Where is my order?")
    step = span("retrieve documents", step="retrieval", **inside(request))
    found = tool("search", {"q": "order"}, **inside(step))
    spans = [request, step, found, tool("answer", {}, **inside(request))]
    runs = components(spans, declared)
    assert [(run.component, run.span_id, run.tools_used) for run in runs] == [
        ("c", step.span_id, ("search",)),
    ] * is_one
    assert component_name(step, [declared]) == ("c" if is_one else None)


def test_the_first_matching_declaration_names_a_component_and_a_mark_precedes_both() -> None:
    step = span("retrieve", **inside(agent()))
    marked = span("retrieve", goldspan__component__name="marked")
    declared = [RETRIEVAL, ComponentSelector("other", attributes={})]
    assert component_name(step, declared) == "retrieval"
    assert component_name(marked, declared) == "marked"
    assert [run.component for run in components([marked], *declared)] == ["marked"]
    assert component_name(step) is None
    assert component_name(span("rank", goldspan__component__name="")) == "rank"


def test_a_span_that_is_a_request_and_a_component_gives_two_runs_with_different_ids() -> None:
    step = agent("desk", asked="Hi")
    spans = [step, tool("search", {"q": 1}, **inside(step))]
    runs = extract_units(spans, ["request", "component"], components=[ComponentSelector("desk", span="* desk")])
    own = f"{step.trace_id}:{step.span_id}"
    assert {(run.unit, run.run_id, run.span_id, run.tools_used) for run in runs} == {
        ("request", own, step.span_id, ("search",)),
        ("component", f"{own}:component", step.span_id, ("search",)),
    }


def test_declared_components_change_no_request() -> None:
    """This holds for a request around the component and for a request inside it."""
    step = span("retrieve all")
    request = agent(asked="Hi", **inside(step))
    part = span("retrieve some", **inside(request))
    spans = [step, request, part, tool("search", {"q": 1}, **inside(part))]
    assert extract(spans, components=[RETRIEVAL]) == extract(spans)
    assert [run.tools_used for run in components(spans, RETRIEVAL)] == [("search",), ("search",)]


def test_a_declared_component_outside_every_request_is_a_separate_run() -> None:
    step = span("retrieve")
    spans = [step, tool("search", {"q": 1}, **inside(step))]
    assert only(spans, RETRIEVAL).tools_used == ("search",)
    assert [run.tools_used for run in extract(spans, components=[RETRIEVAL])] == [("search",)]


def test_a_declared_component_may_be_a_tool_of_its_request_and_is_not_its_own_call() -> None:
    request = agent("desk")
    research = tool("research", {"depth": 2, "topic": "refunds"}, end_ns=10**15, **inside(request))
    spans = [request, research, tool("search", {"q": 1}, **inside(research))]
    run = only(spans, ComponentSelector("research", attributes={"gen_ai.tool.name": "research"}))
    assert (run.component, run.agent, run.input, run.tools_used) == ("research", "desk", "refunds", ("search",))
    (whole,) = extract(spans)
    assert whole.tools_used == ("research", "search")


@pytest.mark.parametrize(
    ("arguments", "result", "told"),
    [
        pytest.param({"n": 2, "q": "refunds"}, '"Found."', ("refunds", "Found."), id="the first text, and the text"),
        pytest.param({"n": 2}, '{"status": "ok"}', ('{"n": 2}', '{"status": "ok"}'), id="otherwise JSON"),
        pytest.param(None, None, (None, None), id="nothing was recorded"),
    ],
)
def test_a_tool_component_has_its_arguments_as_input_and_its_result_as_output(
    arguments: Any, result: str | None, told: tuple[str | None, str | None]
) -> None:
    recorded = {} if result is None else {"gen_ai__tool__call__result": result}
    run = only([tool("research", arguments, **recorded)], ComponentSelector("research", span="*research"))
    assert (run.input, run.output) == told


def test_a_model_component_has_the_user_message_as_input() -> None:
    turn = model(asked=[user("Which tool?")], answered=[asks_for("search", {"q": 1})])
    run = only([turn], ComponentSelector("router", span="chat"))
    assert (run.input, [call.name for call in run.tool_calls]) == ("Which tool?", ["search"])


def test_the_cache_of_span_names_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goldspan.conventions.classification._MAX_SPAN_NAMES", 3)
    selected = DeclaredComponents([RETRIEVAL])
    named = [selected.match(span(f"{name} {number}")) for number in range(9) for name in ("retrieve", "rank")]
    assert named == ["retrieval", None] * 9
    assert len(selected._candidates) <= 3


# --- agents inside a request ------------------------------------------------------------------------------------------


def test_a_nested_agent_is_a_component_with_its_own_name() -> None:
    planner = agent("planner", asked="Plan my trip", goldspan__golden__id="trip")
    called = tool("ask_expert", {"question": "When?"}, end_ns=10**15, **inside(planner))
    expert = agent("expert", asked="When?", goldspan__golden__id="dates", **inside(called))
    spans = [planner, called, expert, tool("calendar", {}, **inside(expert)), tool("book", {}, **inside(planner))]
    part = only(spans)
    assert (part.unit, part.component, part.agent, part.span_id) == ("component", "expert", "expert", expert.span_id)
    assert (part.input, part.golden_id, part.tools_used) == ("When?", "dates", ("calendar",))
    (request,) = extract(spans)
    assert (request.golden_id, request.component, request.tools_used) == ("trip", None, ("calendar", "book"))


def test_agents_of_a_workflow_and_agents_after_a_handoff_are_components() -> None:
    workflow = span("crew", gen_ai__operation__name="invoke_workflow")
    crew = [workflow, *(agent(name, **inside(workflow)) for name in ("researcher", "writer"))]
    assert [run.component for run in components(crew)] == ["researcher", "writer"]
    root = span("desk")
    front = agent("front", **inside(root))
    handoff = span("handoff", gen_ai__operation__name="handoff", gen_ai__tool__name="back", **inside(front))
    handed = [root, front, handoff, agent("back", **inside(root))]
    assert [run.component for run in components(handed)] == ["back"]


def test_sibling_agents_are_requests_and_not_components() -> None:
    batch = span("nightly batch")
    assert components([batch, *(agent(name, **inside(batch)) for name in "ab")]) == []


def test_an_agent_directly_inside_an_agent_of_the_same_name_is_not_a_component() -> None:
    outer = agent("support", end_ns=10**15)
    step = span("step", **inside(outer))
    again = agent("support", end_ns=10**15, **inside(step))
    call = tool("ask_support", {}, end_ns=10**15, **inside(again))
    assert components([outer, step, again]) == []
    recursive = [outer, step, again, call, agent("support", **inside(call))]
    assert [run.component for run in components(recursive)] == ["support"]


def test_an_agent_without_a_name_is_not_a_component() -> None:
    outer = agent("planner")
    assert components([outer, span("a", gen_ai__operation__name="invoke_agent", **inside(outer))]) == []


def test_a_component_has_the_enclosing_agent_or_else_the_inner_agent() -> None:
    planner = agent("planner")
    part = span("retrieve", goldspan__component__name="retrieve", **inside(planner))
    alone = span("retrieve", goldspan__component__name="alone", trace_id="a" * 32)
    spans = [planner, part, alone, agent("searcher", **inside(alone))]
    assert [(run.component, run.agent) for run in components(spans)] == [
        ("retrieve", "planner"),
        ("alone", "searcher"),
        ("searcher", "searcher"),
    ]


def test_a_model_answer_inside_a_component_is_its_output() -> None:
    part = span("write", goldspan__component__name="write")
    turn = model(asked=[user("A poem")], answered=[says("Roses are red.")], **inside(part))
    run = only([part, turn])
    assert (run.input, run.output) == ("A poem", "Roses are red.")
