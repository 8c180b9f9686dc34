"""MLflow Tracing. Keys as `mlflow/tracing/constant.py` (MLflow 3) names them; values are JSON, texts included."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from goldspan.conventions import installed_conventions
from goldspan.extraction import extract
from goldspan.model import SpanRecord
from support.span_builders import span

read = installed_conventions().classify


def traced(name: str, kind: str, *, inputs: Any = None, outputs: Any = None, **more: Any) -> SpanRecord:
    """An MLflow span with all values as JSON."""
    return span(
        name,
        mlflow__spanType=json.dumps(kind),
        mlflow__spanInputs=json.dumps(inputs),
        mlflow__spanOutputs=json.dumps(outputs),
        **more,
    )


@pytest.mark.parametrize(
    ("kind", "role"),
    [
        ("TOOL", "tool"),
        ("RETRIEVER", "tool"),
        ("AGENT", "agent"),
        ("WORKFLOW", "entry"),
        ("LLM", "model"),
        ("CHAT_MODEL", "model"),
        *((kind, None) for kind in ("CHAIN", "EMBEDDING", "PARSER", "RERANKER", "MEMORY", "UNKNOWN")),
    ],
)
@pytest.mark.parametrize("quoted", [True, False])
def test_quoted_and_unquoted_span_types_determine_the_role(kind: str, role: str | None, quoted: bool) -> None:
    assert read(span("x", mlflow__spanType=json.dumps(kind) if quoted else kind)).role == role


def test_a_retriever_is_a_retrieval() -> None:
    assert read(span("x", mlflow__spanType='"RETRIEVER"')).kind == "retrieval"


def test_a_request_with_a_tool() -> None:
    root = traced("support", "AGENT", inputs={"question": "Warm?"}, outputs="21 degrees", mlflow__trace__session='"s1"')
    tool = traced("weather", "TOOL", inputs={"city": "Rome"}, outputs={"temp": 21}, parent_id=root.span_id)
    [run] = extract([root, tool])
    [call] = run.tool_calls
    assert (run.input, run.output, run.session_id, run.agent) == ("Warm?", "21 degrees", "s1", "support")
    assert (call.name, call.arguments, call.result) == ("weather", {"city": "Rome"}, {"temp": 21})


@pytest.mark.parametrize(
    ("name", "function", "shown"),
    [
        pytest.param("weather", '"weather"', "weather", id="as the function"),
        pytest.param("weather_2", '"weather"', "weather", id="numbered because it repeats"),
        pytest.param("top_2", '"best"', "top_2", id="named by hand"),
        pytest.param("top_2", None, "top_2", id="without a function"),
        pytest.param("a.b_1", '"a.b"', "a.b", id="with a dot"),
    ],
)
def test_the_repetition_number_of_a_span_name_is_not_part_of_the_tool_name(
    name: str, function: str | None, shown: str
) -> None:
    more = {} if function is None else {"mlflow__spanFunctionName": function}
    [run] = extract([traced(name, "TOOL", inputs={}, **more)])
    assert [call.name for call in run.tool_calls] == [shown]


def test_model_outputs_give_the_requested_calls_and_an_attribute_the_tool_definitions() -> None:
    # `mlflow.openai.autolog()`: inputs are the request's body, outputs the response's.
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}}
    model = traced(
        "Completions",
        "CHAT_MODEL",
        inputs={"messages": [{"role": "user", "content": "Warm?"}], "model": "gpt"},
        outputs={"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [call]}}]},
        mlflow__chat__tools=json.dumps([{"type": "function", "function": {"name": "weather"}}]),
    )
    [run] = extract([model])
    assert run.input == "Warm?"
    assert [tool.name for tool in run.available_tools] == ["weather"]
    assert [(call.name, call.arguments) for call in run.tool_calls] == [("weather", {"city": "Rome"})]


def of_dspy(name: str, tool: str, **attributes: Any) -> SpanRecord:
    """A DSPy tool, in MLflow attributes or in GenAI attributes; `name` is an attribute."""
    seen = span(name, **attributes)
    return replace(seen, attributes=dict(seen.attributes) | {"name": json.dumps(tool)})


@pytest.mark.parametrize(
    ("tool", "returned", "kind"),
    [
        pytest.param("weather", "21 degrees", "tool", id="a tool"),
        pytest.param("finish", "Completed.", "answer", id="the pseudo-tool of ReAct"),
        pytest.param("finish", "race finished", "tool", id="a user's own finish"),
    ],
)
@pytest.mark.parametrize("genai", [False, True])
def test_dspy_tools_have_their_own_name(tool: str, returned: str, kind: str, genai: bool) -> None:
    seen = (
        of_dspy(
            f"execute_tool Tool.{tool}",
            tool,
            gen_ai__operation__name="execute_tool",
            gen_ai__tool__name=f"Tool.{tool}",
            gen_ai__tool__call__result=returned,
        )
        if genai
        else of_dspy(f"Tool.{tool}", tool, mlflow__spanType='"TOOL"', mlflow__spanOutputs=json.dumps(returned))
    )
    [run] = extract([seen])
    assert [(call.name, call.kind) for call in run.tool_calls] == [(tool, kind)]


@pytest.mark.parametrize(
    "attributes",
    [
        pytest.param({"mlflow.spanType": '"AGENT"', "mlflow.openai.agent_run_root": "true"}, id="MLflow's"),
        pytest.param({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "AgentRunner.run"}, id="GenAI's"),
    ],
)
def test_the_openai_agents_sdk_runner_gives_the_session_and_is_not_an_agent(attributes: dict[str, str]) -> None:
    kwargs = json.dumps({"max_turns": 10, "run_config": {"group_id": "s1"}})
    runner = replace(span("AgentRunner.run"), attributes=attributes | {"kwargs": kwargs})
    inner = traced("travel", "AGENT", parent_id=runner.span_id)
    [run] = extract([runner, inner, traced("weather", "TOOL", inputs={}, parent_id=inner.span_id)])
    assert (run.agent, run.session_id, [call.agent for call in run.tool_calls]) == ("travel", "s1", ["travel"])
