"""Goldens match and evaluate components in the same way live and from a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.trace import set_span_in_context

import goldspan
from goldspan import Evaluation, ExpectedTool, Golden, expect
from live.programs import AGENT, TOOL, Program, place_of

FILE = """
components:
  retriever: {span: "vector *"}
  reranker: {attributes: {app.step: rerank}}
goldens:
  - {id: request, input: Where is my order?, tools: [search, rank, look_up, book]}
  - {id: ranking, component: ranking, tools: [{name: rank, arguments: {by: price}}]}
  - {id: billing, component: billing, tools: [book]}
  - {id: retrieving, component: retriever, tools: [search]}
  - {id: reranking, component: reranker, tools: [rank], metrics: [tool_recall]}
  - {id: vip, when: {agent: "vip*"}, tools: [search]}
  - {id: near, input: How long do I have to send back the shoes that I bought?, tools: [search]}
  - {id: careful, forbid: ["delete_*"], max_calls: 3}
"""


@goldspan.trace
def search(words: str) -> str:
    return words


@goldspan.trace
def rank(by: str) -> str:
    return by


@goldspan.trace
def book(hotel: str) -> str:
    return hotel


@goldspan.trace
def delete_user(name: str) -> str:
    return name


@goldspan.trace(kind="component")
def ranking(by: str) -> str:
    return rank(by)


@goldspan.trace(kind="agent")
def billing(question: str) -> str:
    return book("Ritz")


@pytest.fixture(params=[True, False], ids=["in the background", "on the thread"])
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Program]:
    path = tmp_path / "goldens.yaml"
    path.write_text(FILE)
    made = Program(path, background=request.param)
    trace.set_tracer_provider(made.provider)
    yield made
    made.close()


def evaluations_equal_to_file(program: Program, path: Path) -> dict[str, Evaluation]:
    """The live evaluations by golden id, after checking that the exported spans yield the same ones."""
    live = program.latest()
    assert live == program.from_file(path / "traces.pb")
    assert all(each.revision == 1 for each in live.values())
    return {each.golden.id if each.golden else "none": each for each in live.values()}


def test_a_decorated_component_is_evaluated_with_its_golden(program: Program, tmp_path: Path) -> None:
    @goldspan.trace(kind="agent")
    def support(question: str) -> None:
        ranking("price")
        search("orders")

    support("Where is my order?")
    evaluations = evaluations_equal_to_file(program, tmp_path)
    assert (evaluations["ranking"].run.unit, evaluations["ranking"].passed) == ("component", True)
    assert evaluations["ranking"].match is not None
    assert evaluations["ranking"].match.how == "when"
    assert evaluations["request"].run.tools_used == ("rank", "search")


def test_a_nested_agent_is_a_component_with_the_name_of_the_agent(program: Program, tmp_path: Path) -> None:
    @goldspan.trace(kind="agent")
    def support(question: str) -> None:
        billing("a hotel")

    support("Where is my order?")
    evaluations = evaluations_equal_to_file(program, tmp_path)
    assert (evaluations["billing"].run.component, evaluations["billing"].passed) == ("billing", True)
    assert evaluations["request"].passed is False


def test_spans_of_other_instrumentation_are_selected_by_name_or_attributes(program: Program, tmp_path: Path) -> None:
    with program.tracer.start_as_current_span("invoke_agent", attributes=AGENT):
        with program.tracer.start_as_current_span("vector query", attributes={"db.system": "qdrant"}):
            search("orders")
        with program.tracer.start_as_current_span("step 2", attributes={"app.step": "rerank"}):
            rank("price")
        with program.tracer.start_as_current_span("step 3", attributes={"app.step": "other"}):
            rank("price")
    evaluations = evaluations_equal_to_file(program, tmp_path)
    retrieving, reranking = evaluations["retrieving"].run, evaluations["reranking"].run
    assert (retrieving.component, retrieving.tools_used) == ("retriever", ("search",))
    assert (reranking.component, reranking.tools_used) == ("reranker", ("rank",))
    assert [score.metric for score in evaluations["reranking"].scores] == ["tool_recall"]
    assert sum(each.run.unit == "component" for each in evaluations.values()) == 2
    exported = {span.name: span.attributes or {} for span in program.exported()}
    assert exported["vector query"]["goldspan.golden.id"] == "retrieving"
    assert exported["step 2"]["goldspan.score.tool_recall"] == 1.0


def test_a_selected_tool_span_is_a_tool_call_of_its_request_and_a_component(program: Program, tmp_path: Path) -> None:
    with program.tracer.start_as_current_span("invoke_agent", attributes=AGENT):
        looking = {**TOOL, "gen_ai.tool.name": "look_up", "app.step": "rerank"}
        with program.tracer.start_as_current_span("execute_tool look_up", attributes=looking):
            rank("price")
    evaluations = evaluations_equal_to_file(program, tmp_path)
    assert evaluations["reranking"].run.tools_used == ("rank",)
    assert {each.run.tools_used for each in evaluations.values() if each.run.unit == "request"} == {("look_up", "rank")}


def test_expectations_that_a_program_states_take_precedence_over_goldens(program: Program, tmp_path: Path) -> None:
    @goldspan.trace(kind="component", metrics=["tool_recall", "tool_precision"])
    def measuring() -> None:
        rank("price")

    @goldspan.trace(kind="component")
    def saying() -> None:
        goldspan.update_current_span(expected_tools=["search", "book", {"name": "rank", "arguments": {"by": "price"}}])
        rank("price")

    with expect(tools=["rank"]):
        ranking("name")
    with program.tracer.start_as_current_span("invoke_agent", attributes=AGENT):
        measuring()
        saying()
    live = program.latest("component")
    assert live == program.from_file(tmp_path / "traces.pb", "component")
    evaluations = {str(each.run.component): each for each in live.values()}
    assert (evaluations["ranking"].passed, evaluations["saying"].passed) == (True, False)
    found = {name: each.match.how if each.match else None for name, each in evaluations.items()}
    assert found["ranking"] == found["saying"]
    assert [score.metric for score in evaluations["measuring"].scores] == ["tool_recall", "tool_precision"]


@pytest.mark.parametrize(
    ("agent", "asked", "found", "how"),
    [
        pytest.param("support", "WHERE is my order? ", "request", "input", id="the same text"),
        pytest.param(
            "support", "How long do I have to send back the shoe that I bought?", "near", "near", id="near text"
        ),
        pytest.param("vip desk", "Anything.", "vip", "when", id="a rule"),
        pytest.param("support", "Anything.", "careful", "policy", id="a policy"),
    ],
)
def test_a_live_run_matches_the_same_golden_as_its_exported_spans(
    program: Program, tmp_path: Path, agent: str, asked: str, found: str, how: str
) -> None:
    @goldspan.trace(kind="agent", name=agent)
    def answering(question: str) -> None:
        search("orders")
        delete_user("Ada")

    answering(asked)
    evaluations = evaluations_equal_to_file(program, tmp_path)
    match = evaluations[found].match
    assert match is not None
    assert match.how == how
    if how == "near":
        assert match.similarity is not None
        assert 0.9 < match.similarity < 1
        (agents,) = [span.attributes or {} for span in program.exported() if span.name == "invoke_agent support"]
        assert agents["goldspan.golden.similarity"] == match.similarity
    if how == "policy":
        assert evaluations[found].passed is False


def test_a_golden_id_written_by_an_earlier_revision_does_not_select_the_golden(tmp_path: Path) -> None:
    goldens = [Golden("team", tools=(ExpectedTool("search"),)), Golden("ranking", component="ranking")]
    program = Program(goldens, background=False)
    team = {**AGENT, "gen_ai.agent.name": "team", "goldspan.golden.id": "team"}
    helper = {**AGENT, "gen_ai.agent.name": "helper"}
    tracer = program.tracer
    ranking = tracer.start_span("ranking", attributes={"goldspan.component.name": "ranking"})
    first = tracer.start_span("helper", set_span_in_context(ranking), attributes=helper)
    inner = tracer.start_span("team", set_span_in_context(first), attributes=team)
    ranking.end()
    tracer.start_span("helper", set_span_in_context(ranking), attributes=helper).end()
    other = tracer.start_span("helper", set_span_in_context(first), attributes=helper)
    for span in (inner, other, first):
        span.end()
    own = ranking.get_span_context()
    place = ("component", f"{own.trace_id:032x}:{own.span_id:016x}:component")
    assert program.processor.force_flush()
    evaluations = [each for each in program.evaluations if place_of(each) == place]
    assert [each.match and each.match.golden.id for each in evaluations] == ["team", "ranking"]
    filed = program.from_file(tmp_path / "traces.pb")
    assert filed[place].digest == evaluations[-1].digest
