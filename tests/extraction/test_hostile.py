"""Telemetry of unusual structure: extraction takes linear time and raises no error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.extraction import extract
from goldspan.model import LogRecord, SpanEvent, SpanRecord, TelemetryRecord
from support.span_builders import agent, answers, asks_for, messages, model, span, tool, trace_id

USER = {"role": "user", "content": "Go on."}
Shape = Callable[[int], list[TelemetryRecord]]


def work(records: list[TelemetryRecord]) -> int:
    """The number of function calls of an extraction, which is the same on every machine."""
    count = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        extract(records)
    finally:
        sys.setprofile(before)
    return count


def chain(length: int, make: Callable[..., SpanRecord], **facts: Any) -> list[SpanRecord]:
    """A chain of nested spans."""
    made = [make(**facts)]
    while len(made) < length:
        made.append(make(parent_id=made[-1].span_id, **facts))
    return [replace(each, end_ns=10**15 - number) for number, each in enumerate(made)]


def within(root: SpanRecord, *inside: SpanRecord) -> list[TelemetryRecord]:
    return [root, *(replace(each, parent_id=root.span_id) for each in inside)]


def circle(length: int) -> list[TelemetryRecord]:
    ids = [f"{number:016x}" for number in range(length)]
    return [tool("x", {"n": at}, span_id=ids[at], parent_id=ids[at - 1]) for at in range(length)]


def chain_with_twigs(length: int) -> list[TelemetryRecord]:
    steps = chain(length, span)
    return [*steps, *(tool("x", {"n": at}, parent_id=step.span_id) for at, step in enumerate(steps))]


def chain_of_unmarked_steps_with_agents(length: int) -> list[TelemetryRecord]:
    steps = chain(length, span)
    return [*steps, *(agent(f"a{at}", parent_id=step.span_id) for at, step in enumerate(steps))]


def chain_of_models(length: int) -> list[TelemetryRecord]:
    return list(chain(length, model, asked=[USER], answered=[{"role": "assistant", "content": "Yes."}]))


def many_attributes(count: int) -> list[TelemetryRecord]:
    odd = span("odd", **{f"key{at}": at for at in range(count)})
    return [odd, replace(odd, status="ok"), tool("x", {"n": 1}, parent_id=odd.span_id)]


def calls_at_once(count: int) -> list[TelemetryRecord]:
    return within(agent("a"), *(tool(f"t{at}", {"n": at}, start_ns=at + 10, end_ns=10**12) for at in range(count)))


def lone_questions(count: int) -> list[TelemetryRecord]:
    """The same question, sent to a model repeatedly."""
    answered = [{"role": "assistant", "content": "Yes."}]
    return [model(asked=[USER], answered=answered, trace_id=trace_id(at)) for at in range(count)]


def lone_requests(count: int, *, with_ids: bool) -> list[TelemetryRecord]:
    """The same request repeatedly, with a separate trace for each step."""
    records: list[TelemetryRecord] = []
    for at in range(count):
        call_id = f"c{at}" if with_ids else None
        asked = [USER]
        first = model(asked=asked, answered=[asks_for("x", {"n": 1}, call_id)], trace_id=trace_id(3 * at))
        made = tool(
            "x", {"n": 1}, trace_id=trace_id(3 * at + 1), **({"gen_ai__tool__call__id": call_id} if call_id else {})
        )
        asked = [USER, asks_for("x", {"n": 1}, call_id), answers(call_id or "", "ok")]
        last = model(asked=asked, answered=[{"role": "assistant", "content": "Yes."}], trace_id=trace_id(3 * at + 2))
        records += [first, made, last]
    return records


def graph_nodes(count: int) -> list[TelemetryRecord]:
    """A graph whose nodes and tools have separate traces and are matched by their inputs."""
    frames = [agent("graph", asked="Go on.", trace_id=trace_id(at), end_ns=10**15) for at in range(count // 2)]
    tools = [tool("x", {"n": at}, trace_id=trace_id(count + at)) for at in range(count // 2)]
    return [*frames, *tools]


def same_response(count: int) -> list[TelemetryRecord]:
    return [
        model(asked=[USER], answered=[asks_for("x", {"n": 1})], trace_id=trace_id(at), gen_ai__response__id="r1")
        for at in range(count)
    ]


def requests_and_calls_without_ids(count: int) -> list[TelemetryRecord]:
    asked = [asks_for("x", {"n": at}) for at in range(count)]
    return within(agent("a"), model(answered=asked), *(tool("x", {"n": at}) for at in range(count)))


def alike_requests_and_calls_without_ids(count: int) -> list[TelemetryRecord]:
    asked = [asks_for("x", {"n": 1}) for at in range(count)]
    return within(agent("a"), model(answered=asked), *(tool("x", {"n": 1}) for at in range(count)))


def one_id_for_everything(count: int) -> list[TelemetryRecord]:
    turns = [model(answered=[asks_for("x", {"n": at}, "c")]) for at in range(count)]
    return within(agent("a"), *turns, *(tool("x", {"n": at}, gen_ai__tool__call__id="c") for at in range(count)))


def calls_that_only_a_history_knows(count: int) -> list[TelemetryRecord]:
    said = [USER, *(asks_for("x", {"n": at % 7}) for at in range(count))]
    history = messages(*said)
    return within(agent("a", gen_ai__input__messages=history), *(tool("x", {"n": at % 7}) for at in range(count)))


def agents_that_keep_a_history(count: int) -> list[TelemetryRecord]:
    root = agent("a")
    known = messages(USER, asks_for("x", {"n": 1}))
    inner = [agent("b", gen_ai__input__messages=known) for _ in range(count)]
    return within(root, *inner, *(tool("x") for _ in range(count)))


def handoffs(count: int) -> list[TelemetryRecord]:
    made: list[SpanRecord] = []
    for at in range(count):
        made.append(agent(f"a{at}"))
        made.append(tool(f"a{at + 1}", parent_id=made[-1].span_id, gen_ai__handoff__to_agent=f"a{at + 1}"))
    return list(made)


def strays(count: int) -> list[TelemetryRecord]:
    agents = [agent(f"a{at}") for at in range(count)]
    turns = [model(answered=[asks_for("x", {"n": at})], parent_id=each.span_id) for at, each in enumerate(agents)]
    return [*agents, *turns, *(tool("x", {"n": at}) for at in range(count))]


def requests_in_one_unmarked_trace(count: int) -> list[TelemetryRecord]:
    made: list[SpanRecord] = []
    for at in range(count):
        asked = [{"role": "user", "content": f"Question {at}"}]
        made += [model(asked=asked, answered=[asks_for("x", {"n": at}, f"c{at}")]), tool("x", {"n": at})]
    return within(span("batch"), *made)


def sub_agents_with_the_same_words(count: int) -> list[TelemetryRecord]:
    made = []
    for at in range(count):
        made.append(model(asked=[USER], answered=[asks_for("expert", {"q": "Why?"}, f"c{at}")]))
        made.append(model(asked=[{"role": "user", "content": "Why?"}], answered=[asks_for("x", {"n": at})]))
    return within(span("batch"), *made)


def twins(count: int) -> list[TelemetryRecord]:
    return [
        agent("a", asked="Go on.", trace_id=trace_id(at), scope=f"s{at % 2}", start_ns=5 + at, end_ns=10**12)
        for at in range(count)
    ]


def leaks(count: int) -> list[TelemetryRecord]:
    root = agent("a")
    return within(root, *(agent("a") for _ in range(count)))


def logs(count: int) -> list[TelemetryRecord]:
    one = model(asked=[USER])
    where = {"trace_id": one.trace_id, "span_id": one.span_id}
    heard = [LogRecord("gen_ai.user.message", {"n": at}, {"content": "Hi"}, time_ns=at, **where) for at in range(count)]
    alone = [
        LogRecord("codex.tool_result", {"tool_name": "x", "conversation.id": "s", "arguments": "{}"}, time_ns=at)
        for at in range(count)
    ]
    return [one, *heard, *alone]


SHAPES: dict[str, Shape] = {
    "a circle of parents": circle,
    "everything beside each other": lambda n: [tool("x", {"n": at}) for at in range(n)],
    "a chain of plain spans": lambda n: [*chain(n, span), tool("x")],
    "a chain of plain spans, each with a tool": chain_with_twigs,
    "a chain of plain spans, each with an agent": chain_of_unmarked_steps_with_agents,
    "a chain of agents": lambda n: list(chain(n, agent)),
    "a chain of agents of many names": lambda n: list(chain(n, agent, gen_ai__conversation__id="s")),
    "a chain of tools of one name": lambda n: list(chain(n, tool, name="x")),
    "a chain of tools that call themselves with other arguments": lambda n: [
        replace(each, attributes={**each.attributes, "gen_ai.tool.call.arguments": json.dumps({"n": at})})
        for at, each in enumerate(chain(n, tool, name="x"))
    ],
    "a chain of models": chain_of_models,
    "a span with many attributes": many_attributes,
    "all calls at the same time": calls_at_once,
    "the same question again and again": lone_questions,
    "the same request again and again, with ids": lambda n: lone_requests(n, with_ids=True),
    "the same request again and again, without ids": lambda n: lone_requests(n, with_ids=False),
    "nodes of a graph that are traces": graph_nodes,
    "one response id for all answers": same_response,
    "requests and calls without ids": requests_and_calls_without_ids,
    "equal requests and calls without ids": alike_requests_and_calls_without_ids,
    "one id for all calls": one_id_for_everything,
    "calls that only a history knows": calls_that_only_a_history_knows,
    "agents that keep a history": agents_that_keep_a_history,
    "agents that hand over to each other": handoffs,
    "tools outside of every agent": strays,
    "requests in one unmarked trace": requests_in_one_unmarked_trace,
    "sub-agents with the same words": sub_agents_with_the_same_words,
    "the same words at the same time": twins,
    "requests below the one before": leaks,
    "logs": logs,
}


BOUNDED_LATE = ("all calls at the same time", "a chain of tools that call themselves with other arguments")
"""Structures in which extraction compares each call with the 256 nearest calls."""


@pytest.mark.e2e
@pytest.mark.parametrize("name", SHAPES)
def test_four_times_the_telemetry_takes_less_than_six_times_the_work(name: str) -> None:
    size = 400 if name in BOUNDED_LATE else 80
    few, many = work(SHAPES[name](size)), work(SHAPES[name](4 * size))
    assert many < 6 * few


@pytest.mark.e2e
def test_chains_of_thousands_of_spans_do_not_exhaust_the_stack() -> None:
    steps = chain(5_000, span)
    deep = [*steps, *(tool("x", {"n": at}, parent_id=steps[-1].span_id) for at in range(5_000))]
    (run,) = extract(deep)
    assert len(run.tool_calls) == 5_000
    for make in (agent, model, lambda **facts: tool("x", **facts)):
        assert len(extract([*chain(5_000, make), tool("y")])) in (1, 2)


def test_each_of_a_thousand_concurrent_calls_lists_its_nearest_calls() -> None:
    (run,) = extract(calls_at_once(1_000))
    for place, call in enumerate(run.tool_calls):
        assert call.concurrent_with == tuple(
            other for other in range(max(0, place - 255), min(1_000, place + 256)) if other != place
        )


def test_a_cycle_of_parents_loses_no_call() -> None:
    for length in (1, 2, 3, 500):
        (run,) = extract(circle(length))
        assert len(run.tool_calls) == length


def test_the_turns_of_a_long_conversation_are_separate_even_if_each_repeats_its_history() -> None:
    said: list[dict[str, Any]] = []
    records: list[TelemetryRecord] = []
    for at in range(150):
        said = [*said, {"role": "user", "content": f"Question {at}"}]
        asking = asks_for("x", {"n": at}, f"c{at}")
        records.append(model(asked=said, answered=[asking], trace_id=trace_id(2 * at)))
        said = [*said, asking, answers(f"c{at}", at)]
        records.append(
            model(asked=said, answered=[{"role": "assistant", "content": "Yes."}], trace_id=trace_id(2 * at + 1))
        )
    runs = extract(records)
    assert [run.input for run in runs] == [f"Question {at}" for at in range(150)]
    assert [len(run.tool_calls) for run in runs] == [1] * 150


def nested(depth: int) -> Any:
    made: Any = 1
    for at in range(depth):
        made = [made] if at % 2 else {"a": made}
    return made


@pytest.mark.parametrize("depth", [10, 49, 100, 190])
def test_deeply_nested_arguments_are_read_and_compared(depth: int) -> None:
    root = agent("a")
    arguments = {"deep": nested(depth)}
    asked = model(answered=[asks_for("x", arguments)], parent_id=root.span_id)
    (run,) = extract([root, asked, tool("x", arguments, parent_id=root.span_id)])
    (call,) = run.tool_calls
    assert call.arguments == arguments


@pytest.mark.parametrize("depth", [250, 5_000, 100_000])
def test_arguments_nested_beyond_the_limit_raise_no_error(depth: int) -> None:
    text = "[" * depth + "]" * depth
    root = agent("a")
    asked = model(answered=[asks_for("x", text)], parent_id=root.span_id)
    made = tool("x", parent_id=root.span_id, gen_ai__tool__call__arguments=text)
    (run,) = extract([root, asked, made])
    assert [call.name for call in run.tool_calls] == ["x"]


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
telling = st.sampled_from(
    [
        *(
            "execute_tool",
            "invoke_agent",
            "chat",
            "handoff",
            "retrieval",
            "TOOL",
            "AGENT",
            "LLM",
            "CHAIN",
            "tool",
            "agent",
        ),
        *("workflow", "generation", "tools/call", "x", "search", "c1", '{"q": 1}', "[]", "true", "error"),
        messages(USER),
        messages(USER, asks_for("search", {"q": 1}, "c1"), answers("c1", {"is_error": True})),
    ]
)
keys = st.sampled_from(
    [
        *("gen_ai.operation.name", "gen_ai.tool.name", "gen_ai.tool.call.id", "gen_ai.tool.call.arguments"),
        *("gen_ai.tool.call.result", "gen_ai.agent.name", "gen_ai.conversation.id", "gen_ai.input.messages"),
        *("gen_ai.output.messages", "gen_ai.tool.definitions", "gen_ai.response.id", "gen_ai.handoff.to_agent"),
        *("openinference.span.kind", "tool.name", "input.value", "output.value", "llm.input_messages.0.message.role"),
        *("llm.output_messages.0.message.tool_calls.0.tool_call.function.name", "llm.input_messages.x.message"),
        *(
            "traceloop.span.kind",
            "traceloop.entity.name",
            "traceloop.entity.input",
            "llm.request.type",
            "gen_ai.prompt.0.role",
        ),
        *(
            "langfuse.observation.type",
            "langfuse.observation.input",
            "langsmith.span.kind",
            "mcp.method.name",
            "session.id",
        ),
        *(
            "goldspan.component.name",
            "goldspan.golden.id",
            "error.type",
            "event.name",
            "ai.operationId",
            "conversation.id",
        ),
        *(
            "logfire.msg_template",
            "all_messages_events",
            "mlflow.spanType",
            "gcp.vertex.agent.llm_request",
            "duration_ms",
        ),
    ]
)
facts = st.dictionaries(keys, telling | plain, max_size=5)
ids = st.sampled_from(["", "a", "b", "c", "ä\ud800", "0" * 16])
times = st.none() | st.sampled_from([0, 1, 2, 3, 10**9, -5, 10**30])
names = st.sampled_from(["", "execute_tool x", "agent run", "running tool", "x.tool", "search", "gen_ai.user.message"])
events = st.lists(st.builds(SpanEvent, names | st.just("exception"), facts, times), max_size=2).map(tuple)
spans = st.builds(
    SpanRecord,
    trace_id=ids,
    span_id=ids,
    parent_id=st.none() | ids,
    name=names,
    attributes=facts,
    start_ns=times,
    end_ns=times,
    status=st.sampled_from(["unset", "ok", "error"]),
    events=events,
    scope=st.sampled_from(["", "langsmith", "pydantic-ai", "logfire"]),
    dropped_attributes=st.integers(0, 2),
)
heard = st.builds(
    LogRecord,
    names | st.sampled_from(["gen_ai.choice", "claude_code.tool_result", "codex.tool_result"]),
    facts,
    body=plain | telling,
    trace_id=st.none() | ids,
    span_id=st.none() | ids,
    time_ns=times,
)


@given(st.lists(spans | heard, max_size=8), st.sampled_from(["request", "component", "conversation"]))
def test_arbitrary_telemetry_raises_no_error(records: list[TelemetryRecord], unit: Any) -> None:
    for run in extract(records, unit=unit):
        assert all(isinstance(call.name, str) and isinstance(call.raw_name, str) for call in run.tool_calls)
        assert isinstance(run.run_id, str)
        repr(run)
