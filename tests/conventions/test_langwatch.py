"""LangWatch, as its Python SDK and its LangChain callback write it; see also the recorded export of 1.4."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goldspan.extraction import extract, role_of
from goldspan.model import SpanRecord
from support.span_builders import inside, span


def _enveloped(kind: str, value: Any) -> str:
    return json.dumps({"type": kind, "value": value})


def _span(kind: str, name: str, given: Any = None, returned: Any = None, **more: Any) -> SpanRecord:
    if given is not None:
        more["langwatch__input"] = _enveloped(*given)
    if returned is not None:
        more["langwatch__output"] = _enveloped(*returned)
    return span(name, langwatch__span__type=kind, **more)


def _state(*said: Any) -> tuple[str, Any]:
    return "json", {"messages": list(said)}


ASKED = {"content": "Go", "id": "1"}
CALL = {"name": "x", "args": {"n": 1}, "id": "c1", "type": "tool_call"}
ASKS = {"content": "", "response_metadata": {}, "tool_calls": [CALL]}
ANSWERS = {"content": "7", "tool_call_id": "c1", "status": "success"}
SAYS = {"content": "Done", "response_metadata": {}}


@pytest.mark.parametrize(
    ("kind", "role"),
    [
        ("tool", "tool"),
        ("rag", "tool"),
        ("agent", "agent"),
        ("llm", "model"),
        ("evaluation", "aside"),
        ("guardrail", "aside"),
        ("chain", None),
        ("span", None),
        ("module", None),
    ],
)
def test_the_span_type_determines_the_role(kind: str, role: str | None) -> None:
    assert role_of(span(langwatch__span__type=kind)) == role


@pytest.mark.parametrize(
    ("given", "returned", "arguments", "result"),
    [
        (("text", "{'city': 'Porto', 'now': True}"), ("text", "fine"), {"city": "Porto", "now": True}, "fine"),
        (("json", {"city": "Porto"}), ("json", {"temp": 21}), {"city": "Porto"}, {"temp": 21}),
        (("json", {"type": "json", "value": 1}), ("raw", "<x>"), {"type": "json", "value": 1}, "<x>"),
        (("text", "{}"), ("chat_messages", [{"role": "unknown", "content": '{"temp": 21}'}]), {}, {"temp": 21}),
        (("text", "{}"), ("list", [{"type": "text", "value": "a"}, {"type": "json", "value": 2}]), {}, ["a", 2]),
    ],
)
def test_arguments_and_results_are_unwrapped_from_envelopes(
    given: Any, returned: Any, arguments: Any, result: Any
) -> None:
    ((call,),) = (run.tool_calls for run in extract([_span("tool", "weather", given, returned)]))
    assert (call.name, call.arguments, call.result) == ("weather", arguments, result)


def test_the_contexts_are_the_result_of_a_retrieval_without_output() -> None:
    contexts = [{"content": "Lisbon is sunny"}]
    retrieval = _span("rag", "docs", ("text", "weather"), langwatch__rag_contexts=json.dumps(contexts))
    ((call,),) = (run.tool_calls for run in extract([retrieval]))
    assert (call.kind, call.raw_arguments, call.result) == ("retrieval", "weather", contexts)


def test_a_graph_is_an_agent_and_its_nodes_are_not() -> None:
    graph = _span("chain", "trip", _state(ASKED), _state(ASKED, ASKS, ANSWERS, SAYS), end_ns=10**15)
    node = _span("chain", "model", _state(ASKED), _state(ASKS), **inside(graph))
    step = _span("chain", "tools", ("json", [CALL]), _state(ANSWERS), **inside(graph))
    used = _span("tool", "x", ("text", "{'n': 1}"), ("text", "7"), **inside(step))
    assert [role_of(each) for each in (graph, node, step)] == ["agent", None, None]
    (run,) = extract([graph, node, step, used])
    assert (run.agent, run.input, run.output) == ("trip", "Go", "Done")
    assert [(call.name, call.call_id, call.arguments) for call in run.tool_calls] == [("x", "c1", {"n": 1})]


def test_the_output_of_a_graph_with_memory_starts_after_the_last_input() -> None:
    again = {"content": "Again", "id": "2"}
    graph = _span("chain", "trip", _state(again), _state(ASKED, ASKS, ANSWERS, SAYS, again, SAYS))
    model = _span("llm", "llm", ("chat_messages", [{"role": "user", "content": "Again"}]), **inside(graph))
    (run,) = extract([graph, model])
    assert (run.input, run.output, run.tool_calls) == ("Again", "Done", ())


def test_a_graph_in_a_tool_is_one_call_of_kind_agent() -> None:
    outer = _span("chain", "trip", _state(ASKED), _state(ASKED, SAYS), end_ns=10**15)
    calling = _span("tool", "research", ("text", "{'task': 'refunds'}"), end_ns=10**15, **inside(outer))
    asked = {"role": "user", "content": "refunds"}
    inner = _span("chain", "researcher", _state(asked), _state(asked, SAYS), end_ns=10**15, **inside(calling))
    used = _span("tool", "search", ("text", "{'q': 'refunds'}"), **inside(inner))
    (run,) = extract([outer, calling, inner, used])
    assert [(call.name, call.kind) for call in run.tool_calls] == [("research", "agent"), ("search", "tool")]
    assert run.input == "Go"


def test_the_outermost_span_is_the_request_with_input_session_and_output() -> None:
    root = _span(
        "span",
        "trip",
        ("json", {"q": "Go", "user_id": "u1"}),
        ("text", "Done"),
        langwatch__origin="application",
        metadata='{"thread_id": "s1"}',
        end_ns=10**15,
    )
    spans = [root, *[_span("agent", name, **inside(root)) for name in ("first", "second")]]
    (run,) = extract(spans)
    assert (run.input, run.output, run.session_id, run.agent) == ("Go", "Done", "s1", "first")


def test_tool_definitions_are_read_from_the_model_parameters() -> None:
    offered = {"temperature": 0, "tools": [{"type": "function", "function": {"name": "x", "parameters": {}}}]}
    answered = [
        {
            "type": "chat_messages",
            "value": [
                {
                    "role": "assistant",
                    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "x", "arguments": "{}"}}],
                }
            ],
        }
    ]
    model = _span(
        "llm",
        "llm",
        ("chat_messages", [{"role": "user", "content": "Go"}]),
        ("list", answered),
        langwatch__params=json.dumps(offered),
    )
    (run,) = extract([model])
    assert [tool.name for tool in run.available_tools] == ["x"]
    assert [(call.name, call.call_id) for call in run.tool_calls] == [("x", "c1")]
