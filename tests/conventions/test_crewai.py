"""CrewAI 1.15, as exported by openinference-instrumentation-crewai and opentelemetry-instrumentation-crewai."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goldspan.conventions import installed_conventions
from goldspan.extraction import extract
from support.span_builders import span

QUESTION, ANSWER = "Find a hotel in Paris.", "The Grand."
TOOLS = [{"name": "search_hotels", "description": "Search hotels."}]


def test_openllmetry_attributes_give_input_output_and_tools() -> None:
    operation = {"gen_ai__operation__name": "invoke_agent", "gen_ai__provider__name": "crewai"}
    crew = span("crewai.workflow", crewai__crew__result=ANSWER, **operation)
    task = span("x.task", parent_id=crew.span_id, crewai__task__description=QUESTION, **operation)
    helper = span(
        "planner.agent",
        parent_id=task.span_id,
        gen_ai__agent__name="planner",
        crewai__agent__tools=json.dumps(TOOLS),
        **operation,
    )
    [run] = extract([crew, task, helper])
    assert (run.input, run.output) == (QUESTION, ANSWER)
    assert [tool.name for tool in run.available_tools] == ["search_hotels"]


def test_openinference_task_results_give_input_and_output() -> None:
    whole = json.dumps({"raw": ANSWER, "tasks_output": [{"raw": "A part of it."}]})
    crew = span("Crew.kickoff", openinference__span__kind="CHAIN", crew_key="k", output__value=whole)
    task = span(
        "planner._execute_core",
        parent_id=crew.span_id,
        openinference__span__kind="AGENT",
        crew_key="k",
        input__value=json.dumps({"agent": {"role": "planner"}, "context": "", "tools": []}),
        output__value=json.dumps({"description": QUESTION, "raw": ANSWER}),
    )
    [run] = extract([crew, task])
    assert (run.input, run.output) == (QUESTION, ANSWER)


@pytest.mark.parametrize("value", ["Done.", 7, "{}", None])
def test_a_value_that_is_not_a_task_result_yields_no_facts(value: Any) -> None:
    assert installed_conventions().classify(span("x", crew_key="k", output__value=value)).conventions == ()
