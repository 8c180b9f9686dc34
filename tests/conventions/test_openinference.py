"""OpenInference spans beyond the recorded exports: rare names of the specification, and other frameworks.

The spans follow the instrumentations in https://github.com/Arize-ai/openinference; each table states which.
"""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

from goldspan.conventions import installed_conventions
from goldspan.conventions.span_facts import SpanFacts
from goldspan.extraction import extract
from goldspan.model import Run, SpanRecord
from support.laws import case
from support.span_builders import span

REDACTED = "__REDACTED__"


def openinference_span(kind: str, name: str = "work", **attributes: Any) -> SpanRecord:
    """A span with the given OpenInference kind."""
    return span(name, openinference__span__kind=kind, **attributes)


def read(kind: str, name: str = "work", **attributes: Any) -> SpanFacts:
    """The facts that the conventions read from a span with the given kind."""
    return installed_conventions().classify(openinference_span(kind, name, **attributes))


def asking(*calls: tuple[str, str, str]) -> dict[str, str]:
    """The attributes of a model response with tool calls, each with its id, name and arguments."""
    return {
        f"llm.output_messages.0.message.tool_calls.{place}.tool_call.{field}": value
        for place, call in enumerate(calls)
        for field, value in zip(("id", "function.name", "function.arguments"), call, strict=True)
    }


def only_run(*spans: SpanRecord) -> Run:
    """The only run of the given spans."""
    (run,) = extract(spans)
    return run


@pytest.mark.parametrize(
    ("kind", "role"),
    [
        ("TOOL", "tool"),
        ("RETRIEVER", "tool"),
        ("AGENT", "agent"),
        ("LLM", "model"),
        ("EVALUATOR", "aside"),
        ("CHAIN", None),
        ("EMBEDDING", None),
        ("RERANKER", None),
        ("GUARDRAIL", None),
        ("PROMPT", None),
        ("UNKNOWN", None),
    ],
)
def test_the_span_kind_determines_the_role(kind: str, role: str | None) -> None:
    assert read(kind).role == role


@pytest.mark.parametrize(
    ("attributes", "call_id"),
    [
        pytest.param({"tool__id": "c1"}, "c1", id="specification"),
        pytest.param({"tool_call__id": "c1"}, "c1", id="processors"),
        pytest.param({}, None, id="none"),
    ],
)
def test_the_call_id_is_read_from_each_attribute(attributes: dict[str, str], call_id: str | None) -> None:
    assert read("TOOL", "x", tool__name="x", **attributes).call_id == call_id


# openinference-semantic-conventions, spec/tool_calling.md, "Legacy Attributes".
def test_the_single_function_call_of_old_messages_is_read() -> None:
    run = only_run(
        openinference_span(
            "LLM",
            llm__input_messages__0__message__role="user",
            llm__input_messages__0__message__content="Weather?",
            **{
                "llm.output_messages.0.message.role": "assistant",
                "llm.output_messages.0.message.function_call_name": "get_weather",
                "llm.output_messages.0.message.function_call_arguments_json": '{"city": "Oslo"}',
            },
        )
    )
    assert [(call.name, call.arguments) for call in run.tool_calls] == [("get_weather", {"city": "Oslo"})]


def test_prompts_and_completions_are_input_and_output() -> None:
    run = only_run(
        openinference_span("LLM", **{"llm.prompts.0.prompt.text": "Say hi", "llm.choices.0.completion.text": "hi"}),
    )
    assert (run.input, run.output) == ("Say hi", "hi")


def test_messages_are_read_from_input_and_output_of_a_decorated_model_call() -> None:
    run = only_run(
        openinference_span(
            "LLM",
            input__value=json.dumps({"messages": [{"role": "user", "content": "Weather?"}]}),
            output__value=json.dumps([{"id": "c1", "name": "get_weather", "arguments": {"city": "Oslo"}}]),
        )
    )
    assert run.input == "Weather?"
    assert [(call.name, call.call_id) for call in run.tool_calls] == [("get_weather", "c1")]


@pytest.mark.parametrize(
    ("metadata", "session"),
    [
        ('{"session_id": "s"}', "s"),
        ('{"thread_id": "t"}', "t"),
        ('{"thread_id": "t", "session_id": "s"}', "s"),
        ('{"sessionId": 7}', "7"),
        ('{"user_id": "u"}', None),
        ("not JSON", None),
        (["a"], None),
    ],
)
def test_the_session_may_be_in_the_metadata(metadata: object, session: str | None) -> None:
    assert read("CHAIN", metadata=metadata).session_id == session


def test_the_session_attribute_precedes_the_metadata() -> None:
    assert read("CHAIN", metadata='{"thread_id": "t"}', session__id="s").session_id == "s"


# openinference-instrumentation, config.py: OPENINFERENCE_HIDE_INPUTS and OPENINFERENCE_HIDE_OUTPUTS.
def test_redacted_content_is_none() -> None:
    tool = read("TOOL", "x", tool__name="x", tool__parameters=REDACTED, input__value=REDACTED, output__value=REDACTED)
    agent = read("AGENT", input__value=REDACTED, output__value=REDACTED)
    assert (tool.arguments, tool.result, agent.input, agent.output) == (None, None, None, None)


@pytest.mark.parametrize(
    ("attributes", "arguments", "schema"),
    [
        pytest.param({"tool__parameters": '{"city": "Oslo"}'}, {"city": "Oslo"}, None, id="arguments"),
        pytest.param(
            {"tool__parameters": '{"city": {"type": "string"}}'}, None, {"city": {"type": "string"}}, id="by parameter"
        ),
        pytest.param(
            {"tool__json_schema": '{"type": "object", "properties": {}}'},
            None,
            {"type": "object", "properties": {}},
            id="schema",
        ),
    ],
)
def test_tool_parameters_are_arguments_or_the_schema_of_the_tool(
    attributes: dict[str, str], arguments: object, schema: object
) -> None:
    reading = read("TOOL", "x", tool__name="x", **attributes)
    assert (None if reading.arguments is None else reading.arguments.value) == arguments
    assert [tool.parameters for place in reading.tool_definitions for tool in place()] == (
        [] if schema is None else [schema]
    )


def test_an_outermost_chain_gives_input_and_output() -> None:
    root = openinference_span("CHAIN", "plan", input__value="Where to?", output__value="Oslo")
    model = openinference_span(
        "LLM", parent_id=root.span_id, input__value="a prompt around it", output__value="Go to Oslo."
    )
    run = only_run(root, model)
    assert (run.span_id, run.input, run.output) == (root.span_id, "Where to?", "Oslo")


def test_chains_next_to_an_agent_are_not_requests() -> None:
    server = span("POST /chat", kind=2)
    rewrite = openinference_span(
        "CHAIN", "RunnableSequence", parent_id=server.span_id, input__value="x", output__value="y"
    )
    agent = openinference_span("AGENT", "helper", parent_id=server.span_id, input__value="Where to?")
    assert only_run(server, rewrite, agent).input == "Where to?"


# DSPy: openinference-instrumentation-dspy, __init__.py (_ToolCallWrapper, _ModuleForwardWrapper).
@pytest.mark.parametrize(
    ("kind", "name", "attributes", "expected"),
    [
        pytest.param("TOOL", "search.__call__", {}, ("tool", "search", None), id="tool"),
        pytest.param("TOOL", "search.acall", {}, ("tool", "search", None), id="async tool"),
        pytest.param(
            "TOOL", "finish.__call__", {"output__value": '"Completed."'}, ("tool", "finish", "answer"), id="end"
        ),
        pytest.param("TOOL", "finish.__call__", {"output__value": REDACTED}, ("tool", "finish", "answer"), id="hidden"),
        pytest.param("TOOL", "finish.__call__", {"output__value": "3 done"}, ("tool", "finish", None), id="own finish"),
        pytest.param("CHAIN", "ReAct.forward", {}, ("agent", None, None), id="agent"),
        pytest.param("CHAIN", "ReAct.aforward", {}, ("agent", None, None), id="async agent"),
        pytest.param("CHAIN", "MyProgram.forward", {}, ("entry", None, None), id="program"),
        pytest.param("CHAIN", "ChainOfThought.forward", {}, (None, None, None), id="part of a program"),
        pytest.param("CHAIN", "Predict(QA).forward", {}, (None, None, None), id="predictor"),
    ],
)
def test_the_module_name_of_dspy_determines_role_and_kind(
    kind: str, name: str, attributes: dict[str, str], expected: tuple[str | None, ...]
) -> None:
    reading = read(kind, name, **attributes)
    assert (reading.role, reading.span_name, reading.kind) == expected


def test_a_user_tool_named_finish_is_a_tool() -> None:
    assert read("TOOL", "finish", tool__name="finish", output__value="Completed.").kind is None


# Smolagents: openinference-instrumentation-smolagents, _wrappers.py (_RunWrapper, _ToolCallWrapper); the words around
# a task are smolagents' prompts/toolcalling_agent.yaml, `managed_agent.task`.
TASK = """You're a helpful agent named 'researcher'.
You have been submitted this task by your manager.
---
Task:
Find the refund policy
---
You're helping your manager solve a wider task: so make sure to not provide a one-line answer."""


def smolagent(name: str, task: str, **more: Any) -> SpanRecord:
    """The run of an agent."""
    more.setdefault("smolagents__task", "the task of the run before")
    return openinference_span("AGENT", name, input__value=json.dumps({"task": task}), smolagents__max_steps=8, **more)


@pytest.mark.parametrize("span_name", ["ToolCallingAgent.run", "researcher.run"])
@pytest.mark.parametrize("asked", [True, False])
def test_a_managed_agent_is_a_call_of_kind_agent(span_name: str, asked: bool) -> None:
    manager = smolagent("CodeAgent.run", "Refund order 7", output__value="Done.")
    step = openinference_span("CHAIN", "Step 1", parent_id=manager.span_id)
    model = openinference_span(
        "LLM", parent_id=step.span_id, **asking(("c1", "researcher", '{"task": "Find the refund policy"}'))
    )
    managed = smolagent(span_name, TASK, parent_id=step.span_id, output__value="30 days")
    tool = openinference_span(
        "TOOL",
        "SimpleTool",
        parent_id=managed.span_id,
        tool__name="search",
        tool__parameters='{"query": {"type": "string"}, "limit": {"type": "integer"}}',
        input__value='{"args": ["refunds", 3], "sanitize_inputs_outputs": false, "kwargs": {}}',
    )
    run = only_run(manager, step, *([model] if asked else []), managed, tool)
    agent, search = run.tool_calls
    assert (agent.name, agent.kind, agent.evidence) == ("researcher", "agent", "executed")
    assert (agent.arguments, agent.result) == ({"task": "Find the refund policy"}, "30 days")
    assert (search.name, search.agent, search.arguments) == ("search", "researcher", {"query": "refunds", "limit": 3})
    assert (run.input, run.output, run.tools_used) == ("Refund order 7", "Done.", ("search",))


def test_an_agent_requested_by_a_model_without_a_tool_span_is_a_call_of_kind_agent() -> None:
    manager = smolagent("ToolCallingAgent.run", "Refund order 7")
    model = openinference_span(
        "LLM", parent_id=manager.span_id, **asking(("c1", "researcher", '{"task": "Find the refund policy"}'))
    )
    managed = smolagent("researcher.run", "words of a template of one's own", parent_id=manager.span_id)
    (call,) = only_run(manager, model, managed).tool_calls
    assert (call.name, call.kind) == ("researcher", "agent")


@pytest.mark.parametrize(
    ("attributes", "kind"),
    [
        ({"input__value": '{"args": ["x"], "sanitize_inputs_outputs": true, "kwargs": {}}'}, "answer"),
        ({"name": "FinalAnswerTool", "input__value": REDACTED}, "answer"),
        ({"input__value": '{"answer": "x"}'}, None),
    ],
)
def test_final_answer_is_an_answer_only_in_smolagents(attributes: dict[str, str], kind: str | None) -> None:
    assert read("TOOL", **{"name": "final_answer", "tool__name": "final_answer", **attributes}).kind == kind


# LlamaIndex: openinference-instrumentation-llama-index, _handler.py.
@pytest.mark.parametrize(
    ("name", "attributes", "role"),
    [
        pytest.param("FunctionAgent.run", {"input__value": '{"start_event": "StartEvent()"}'}, "agent", id="agent"),
        pytest.param(
            "TripPlanner.run", {"output__value": "StopEvent(result=AgentOutput(res..."}, "agent", id="subclass"
        ),
        pytest.param("RagFlow.run", {"output__value": "StopEvent(result='x')"}, "entry", id="workflow"),
        pytest.param("Pipeline.run", {"input__value": "{}"}, None, id="another framework"),
        pytest.param("BaseWorkflowAgent.call_tool", {"input__value": '{"ev": "ToolCall()"}'}, None, id="step"),
    ],
)
def test_name_and_events_of_a_llama_index_workflow_determine_the_role(
    name: str, attributes: dict[str, str], role: str | None
) -> None:
    assert read("CHAIN", name, **attributes).role == role


def test_the_start_event_of_a_workflow_may_contain_the_input() -> None:
    given = json.dumps({"init_state": {}, "start_event": "AgentWorkflowStartEvent(user_msg='Where to?', memory=None)"})
    assert only_run(openinference_span("CHAIN", "AgentWorkflow.run", input__value=given)).input == "Where to?"


def test_the_output_of_a_llama_index_tool_gives_its_error() -> None:
    output = {"blocks": [{"text": "no such city"}], "tool_name": "w", "raw_output": "no such city", "is_error": True}
    agent = openinference_span("AGENT")
    tool = openinference_span(
        "TOOL", "FunctionTool.acall", tool__name="w", parent_id=agent.span_id, output__value=json.dumps(output)
    )
    (call,) = only_run(agent, tool).tool_calls
    assert (call.result, call.error) == ("no such city", "no such city")


# LangChain: openinference-instrumentation-langchain, _tracer.py; LangGraph's metadata.
@pytest.mark.parametrize(
    ("name", "metadata", "expected"),
    [
        pytest.param("LangGraph", {}, ("agent", None), id="no name"),
        pytest.param("my_flow", {"ls_integration": "langgraph"}, ("agent", None), id="a graph's name"),
        pytest.param(
            "trip", {"ls_integration": "langgraph", "lc_agent_name": "trip"}, ("agent", "trip"), id="an agent's"
        ),
        pytest.param("tools", {"ls_integration": "langgraph", "langgraph_node": "tools"}, (None, None), id="a node"),
        pytest.param("RunnableSequence", {}, (None, None), id="a chain"),
    ],
)
def test_graphs_are_agents(name: str, metadata: dict[str, str], expected: tuple[str | None, ...]) -> None:
    reading = read("CHAIN", name, metadata=json.dumps(metadata))
    assert (reading.role, reading.name) == expected


# AutoGen: openinference-instrumentation-autogen-agentchat. Without autogen-core spans, only the message has the error.
def test_the_result_message_gives_the_error_of_an_autogen_tool() -> None:
    agent = openinference_span("AGENT", graph__node__id="trip")
    asks = openinference_span("LLM", parent_id=agent.span_id, **asking(("c1", "book", '{"nights": 0}')))
    tool = openinference_span(
        "TOOL",
        "trip.book",
        parent_id=agent.span_id,
        status="ok",
        tool__name="book",
        input__value='{"nights": 0}',
        output__value="nights must be >= 1",
    )
    told = {"name": "book", "content": "nights must be >= 1", "call_id": "c1", "is_error": True}
    goes_on = openinference_span(
        "LLM",
        parent_id=agent.span_id,
        **{
            "llm.input_messages.0.message.role": "function",
            "llm.input_messages.0.function.0": json.dumps(told),
            "llm.output_messages.0.message.content": "Sorry.",
        },
    )
    (call,) = only_run(agent, asks, tool, goes_on).tool_calls
    assert (call.call_id, call.error, call.outcome) == ("c1", "nights must be >= 1", "error")


# Anthropic, JavaScript: only the last of several results survives flattening; the request itself holds all.
def test_results_lost_in_flattened_messages_are_read_from_the_request() -> None:
    results = [
        {"type": "tool_result", "tool_use_id": "c1", "content": "sunny"},
        {"type": "tool_result", "tool_use_id": "c2", "content": "no such city", "is_error": True},
    ]
    last = {
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.tool_call_id": "c2",
        "llm.input_messages.0.message.content": "no such city",
    }
    agent = openinference_span("AGENT")
    asks = asking(("c1", "weather", '{"city": "Paris"}'), ("c2", "weather", '{"city": "Nowhere"}'))
    first = openinference_span("LLM", parent_id=agent.span_id, **asks)
    second = openinference_span(
        "LLM",
        parent_id=agent.span_id,
        input__value=json.dumps({"messages": [{"role": "user", "content": results}]}),
        **last,
    )
    found = only_run(agent, first, second).tool_calls
    assert [(call.result, call.error) for call in found] == [("sunny", None), ("no such city", "no such city")]


# CrewAI: openinference-instrumentation-crewai, _event_listener.py and _wrappers.py (_ToolUseWrapper).
def test_a_crew_is_one_request_of_all_its_agents() -> None:
    crew = openinference_span(
        "CHAIN", "Trip.kickoff", crew_key="k", input__value='{"topic": "Oslo"}', output__value="Go by train."
    )
    agents = [
        openinference_span("AGENT", f"{role}.execute", parent_id=crew.span_id, graph__node__id=role)
        for role in ("Scout", "Writer")
    ]
    tool = openinference_span(
        "TOOL", "search.run", parent_id=agents[0].span_id, tool__name="search", input__value='{"q": "Oslo"}'
    )
    run = only_run(crew, *agents, tool)
    assert (run.span_id, run.input, run.output) == (crew.span_id, "Oslo", "Go by train.")
    assert [(call.name, call.agent) for call in run.tool_calls] == [("search", "Scout")]


@pytest.mark.parametrize(
    "calling",
    ["tool_name='search' arguments={'q': 'Oslo', 'n': 2}", {"tool_name": "search", "arguments": {"q": "Oslo", "n": 2}}],
)
def test_crewai_arguments_are_read_from_the_serialized_function_call(calling: object) -> None:
    given = json.dumps({"tool_string": "Action: search", "tool": "Tool(name='search')", "calling": calling})
    reading = read("TOOL", "search.run", tool__name="search", input__value=given)
    assert reading.arguments is not None
    assert reading.arguments.value == {"q": "Oslo", "n": 2}


def test_all_tool_definitions_in_one_attribute_are_read() -> None:
    offered = json.dumps([{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}])
    reading = read("LLM", llm__tools=offered)
    assert [tool.name for place in reading.tool_definitions for tool in place()] == ["search"]


# BeeAI: openinference-instrumentation-beeai, _span.py (child spans of events) and processors/tool.py.
def test_events_of_beeai_are_not_calls() -> None:
    agent = openinference_span("AGENT", "RequirementAgent", metadata__class_name="RequirementAgent")
    tool = openinference_span(
        "TOOL", "search", parent_id=agent.span_id, tool__name="search", metadata__class_name="SearchTool"
    )
    event = openinference_span(
        "TOOL", "retry", parent_id=tool.span_id, metadata__path="tool.search.retry", input__value="{}"
    )
    assert [call.name for call in only_run(agent, tool, event).tool_calls] == ["search"]


def test_a_workflow_of_beeai_is_one_request() -> None:
    flow = openinference_span("CHAIN", "Workflow", metadata__class_name="AgentWorkflow")
    agents = [openinference_span("AGENT", "RequirementAgent", parent_id=flow.span_id) for _ in range(2)]
    assert only_run(flow, *agents).span_id == flow.span_id


@pytest.mark.parametrize(
    ("written_by", "name", "given", "expected"),
    [
        pytest.param(
            "FunctionTool", "search", {"input": {"q": "Oslo"}, "options": None}, ("tool", {"q": "Oslo"}), id="a tool"
        ),
        pytest.param(
            "FinalAnswerTool",
            "final_answer",
            {"input": {"response": "Oslo"}, "options": None},
            ("answer", {"response": "Oslo"}),
            id="the pseudo-tool",
        ),
        pytest.param(
            None,
            "final_answer",
            {"input": {"q": "Oslo"}, "options": None},
            ("tool", {"input": {"q": "Oslo"}, "options": None}),
            id="somebody else's tool with such parameters",
        ),
    ],
)
def test_the_arguments_of_a_beeai_tool_are_its_input_without_options(
    written_by: str | None, name: str, given: dict[str, object], expected: tuple[str, object]
) -> None:
    more = {} if written_by is None else {"metadata__class_name": written_by}
    run = only_run(openinference_span("TOOL", name, tool__name=name, input__value=json.dumps(given), **more))
    assert [(call.kind, call.arguments) for call in run.tool_calls] == [expected]


# CrewAI: crewai/tools/agent_tools (delegate_work_tool.py, ask_question_tool.py).
@pytest.mark.parametrize(
    ("name", "given", "kind"),
    [
        pytest.param("Delegate work to coworker", {"task": "Dig.", "coworker": "Expert"}, "agent", id="work"),
        pytest.param("ask_question_to_coworker", {"question": "Why?", "coworker": "Expert"}, "agent", id="a question"),
        pytest.param("Delegate work to coworker", {"to": "Expert"}, "tool", id="a user's own tool"),
    ],
)
def test_a_question_to_a_coworker_is_a_call_of_kind_agent(name: str, given: dict[str, str], kind: str) -> None:
    run = only_run(openinference_span("TOOL", f"{name}.run", tool__name=name, input__value=json.dumps(given)))
    assert [call.kind for call in run.tool_calls] == [kind]


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        pytest.param({"to_agent": "billing", "reason": "money"}, "handoff", id="LlamaIndex's"),
        pytest.param({"parcel": 7}, "tool", id="a user's tool of the same name"),
    ],
)
def test_the_handoff_tool_of_llama_index_is_a_handoff(given: dict[str, object], kind: str) -> None:
    given = {"kwargs": given}
    run = only_run(
        openinference_span("TOOL", "FunctionTool.acall", tool__name="handoff", input__value=json.dumps(given))
    )
    assert [call.kind for call in run.tool_calls] == [kind]


# Google's SDK: google/genai/types.py (GenerateContentResponse.automatic_function_calling_history).
def test_automatic_calls_of_the_google_sdk_are_read_from_the_response_history() -> None:
    history = [
        {"parts": [{"text": "Warm?"}]},  # a question outside a list of contents has no role
        {"role": "model", "parts": [{"function_call": {"name": "weather", "args": {"city": "Osl"}}}]},
        {"role": "user", "parts": [{"function_response": {"name": "weather", "response": {"error": "no city"}}}]},
        {"role": "model", "parts": [{"function_call": {"name": "weather", "args": {"city": "Oslo"}}}]},
        {"role": "user", "parts": [{"function_response": {"name": "weather", "response": {"result": 21}}}]},
    ]
    answer = {"role": "model", "parts": [{"text": "21 degrees"}]}
    output = {"candidates": [{"content": answer}], "automatic_function_calling_history": history}
    said = {
        "llm__output_messages__0__message__role": "model",
        "llm__output_messages__0__message__content": "21 degrees",
    }
    run = only_run(openinference_span("LLM", "GenerateContent", output__value=json.dumps(output), **said))
    assert (run.input, run.output) == ("Warm?", "21 degrees")
    assert [(call.arguments, call.result, call.error) for call in run.tool_calls] == [
        ({"city": "Osl"}, None, "no city"),
        ({"city": "Oslo"}, 21, None),
    ]


# Agno: openinference-instrumentation-agno, _workflow_wrapper.py and _runs_wrapper.py.
def test_an_agno_workflow_is_one_request_and_its_agents_have_names_instead_of_random_ids() -> None:
    flow = openinference_span(
        "CHAIN", "Blog.run", agno__workflow__steps_count=2, graph__node__id="9f2c", input__value="Oslo"
    )
    agents = [
        openinference_span(
            "AGENT", f"{name}.run", parent_id=flow.span_id, graph__node__id=f"a{name}", graph__node__name=name
        )
        for name in ("Scout", "Writer")
    ]
    run = only_run(flow, *agents)
    assert (run.input, run.agent) == ("Oslo", "Scout")


# Google ADK: openinference-instrumentation-google-adk, _wrappers.py (_RunnerRunAsync, _TraceToolCall).
def test_an_adk_invocation_is_a_request_with_input_output_and_session() -> None:
    given = {"user_id": "u", "session_id": "s", "new_message": {"parts": [{"text": "Where to?"}], "role": "user"}}
    returned = {"content": {"parts": [{"text": "To Oslo."}], "role": "model"}, "author": "trip"}
    result = {"id": "c1", "name": "search", "response": {"result": ["Oslo"]}}
    root = openinference_span("CHAIN", "invocation [app]", input__value=json.dumps(given), session__id="s")
    agent = openinference_span("AGENT", "agent_run [trip]", parent_id=root.span_id, output__value=json.dumps(returned))
    tool = openinference_span(
        "TOOL",
        "execute_tool search",
        parent_id=agent.span_id,
        tool__name="search",
        input__value='{"q": "city"}',
        output__value=json.dumps(result),
    )
    run = only_run(root, agent, tool)
    assert (run.input, run.output, run.session_id, run.agent) == ("Where to?", "To Oslo.", "s", "trip")
    (call,) = run.tool_calls
    assert (call.call_id, call.arguments, call.result) == ("c1", {"q": "city"}, ["Oslo"])


# Haystack: openinference-instrumentation-haystack, _wrappers.py; see also the recorded exports.
def chat(role: str, part: str) -> str:
    """A chat message as the `repr` of Haystack prints it."""
    return f"ChatMessage(_role=<ChatRole.{role.upper()}: {role!r}>, _content=[{part}], _name=None, _meta={{}})"


HAYSTACK = {"scope": "openinference.instrumentation.haystack"}
ASKED = "ToolCall(tool_name='book', arguments={'n': 0}, id='c1', extra=None)"
CONVERSATION = [
    chat("user", "TextContent(text='Book a room')"),
    chat("assistant", ASKED),
    chat("tool", f"ToolCallResult(result='no \\'rooms\\'', origin={ASKED}, error=True)"),
    chat("assistant", "TextContent(text='All are taken.')"),
]


@pytest.mark.parametrize("kind", ["CHAIN", "AGENT"])
def test_a_haystack_agent_gives_its_calls_in_its_output(kind: str) -> None:
    given = json.dumps({"messages": CONVERSATION[:1]})
    returned = json.dumps({"messages": CONVERSATION, "last_message": CONVERSATION[-1]})
    run = only_run(openinference_span(kind, "Agent.run", input__value=given, output__value=returned, **HAYSTACK))
    assert (run.input, run.output) == ("Book a room", "All are taken.")
    assert [(call.name, call.call_id, call.arguments, call.error) for call in run.tool_calls] == [
        ("book", "c1", {"n": 0}, "no 'rooms'")
    ]


def test_a_haystack_generator_gives_its_tool_definitions_and_its_call_ids() -> None:
    tools = [
        "Tool(name='book', description='Books.', parameters={'type': 'object'}, function=<function f at 0x7f>)",
        "x",
    ]
    given = json.dumps({"messages": CONVERSATION[:1], "tools": tools})
    returned = json.dumps({"replies": CONVERSATION[1:2]})
    run = only_run(
        openinference_span("LLM", "OpenAIChatGenerator.run", input__value=given, output__value=returned, **HAYSTACK)
    )
    assert [call.call_id for call in run.tool_calls] == ["c1"]
    assert [(tool.name, tool.parameters) for tool in run.available_tools] == [("book", {"type": "object"})]


def test_other_haystack_components_are_not_requests() -> None:
    given, returned = json.dumps({"messages": CONVERSATION[:2]}), json.dumps({"tool_messages": CONVERSATION[2:3]})
    assert read("CHAIN", "ToolInvoker.run", input__value=given, output__value=returned, **HAYSTACK).role is None


@pytest.mark.parametrize("name", ["x", "ReAct.forward", "FunctionAgent.run", "LangGraph", "finish.__call__"])
def test_any_attribute_value_is_read_without_an_error(name: str) -> None:
    keys = (
        *("input.value", "output.value", "tool.parameters", "tool.json_schema", "metadata", "agent.name", "tool.id"),
        *("llm.tools", "llm.prompts", "llm.input_messages.0.function.0", "llm.input_messages.0.message.role"),
        *("smolagents.tools_names", "smolagents.max_steps", "smolagents.managed_agents.0.name", "session.id"),
        *("llm.tools.0.tool.json_schema", "llm.choices.x.completion.text", "metadata.class_name"),
    )
    kinds = ["TOOL", "AGENT", "LLM", "CHAIN", "RETRIEVER", 7, None]
    values = [None, 7, True, b"\xff", [], [1, {"a": 2}], {"a": {"b": 1}}, "", "{", '{"a": ']
    for kind, value in product(kinds, values):
        with case(kind, value):
            odd = span(name, **{"openinference.span.kind": kind}, **dict.fromkeys(keys, value))
            tool = span(name, **{"tool.name": value, "input.value": value, "output.value": value})
            for run in extract([odd, tool]):
                assert run.trace_ids
