"""Conversations: one run for all requests of a session."""

from __future__ import annotations

from goldspan.extraction import extract
from support.span_builders import agent, in_trace, inside, messages, says, tool

SESSION = {"gen_ai__conversation__id": "s1"}


def test_the_requests_of_a_session_are_one_conversation_ordered_by_time() -> None:
    first = agent("a", asked="Hello", gen_ai__output__messages=messages(says("Hi.")), **SESSION, **in_trace(1))
    second = agent("a", asked="Book it", gen_ai__output__messages=messages(says("Booked.")), **SESSION, **in_trace(2))
    spans = [first, second, tool("book", {"n": 1}, **inside(second)), tool("greet", {"n": 2}, **inside(first))]
    (run,) = extract(spans, unit="conversation")
    assert (run.run_id, run.unit, run.session_id) == ("session:s1", "conversation", "s1")
    assert (run.input, run.output) == ("Hello", "Booked.")
    assert run.tools_used == ("greet", "book")
    assert run.trace_ids == (first.trace_id, second.trace_id)
    assert (run.start_ns, run.end_ns) == (first.start_ns, max(span.end_ns or 0 for span in spans))
    assert run.span_id is None


def test_a_request_without_a_session_is_a_separate_conversation() -> None:
    spans = [agent("a", asked="Hello", **in_trace(1)), agent("a", asked="Hello", **in_trace(2))]
    runs = extract(spans, unit="conversation")
    assert [(run.unit, run.span_id) for run in runs] == [("conversation", span.span_id) for span in spans]
    assert {run.run_id for run in runs} == {f"{run.run_id}:conversation" for run in extract(spans)}


def test_the_same_session_id_in_two_services_gives_two_conversations() -> None:
    spans = [
        agent("a", **SESSION, **in_trace(number), resource={"service.name": service})
        for number, service in enumerate(["shop", "support", "shop"])
    ]
    assert sorted(len(run.trace_ids) for run in extract(spans, unit="conversation")) == [1, 2]


def test_concurrent_calls_refer_to_each_other_in_a_conversation() -> None:
    spans = []
    for number in (1, 2):
        start = number * 1_000
        root = agent("a", asked=f"Question {number}", start_ns=start, end_ns=start + 900, **SESSION, **in_trace(number))
        beside = {"start_ns": start + 10, "end_ns": start + 500, **inside(root)}
        spans += [root, tool("x", {"n": number}, **beside), tool("y", {"n": number}, **beside)]
    (run,) = extract(spans, unit="conversation")
    assert [call.concurrent_with for call in run.tool_calls] == [(1,), (0,), (3,), (2,)]


def test_a_conversation_merges_tool_definitions_golden_id_and_health_of_its_requests() -> None:
    offered = messages({"name": "x", "parameters": {"type": "object", "properties": {}}})
    first = agent("a", **SESSION, **in_trace(1), gen_ai__tool__definitions=offered, dropped_attributes=2)
    second = agent("a", **SESSION, **in_trace(2), goldspan__golden__id="g1", dropped_attributes=3)
    orphan = tool("x", {"n": 1}, parent_id="f" * 16, trace_id=second.trace_id)
    (run,) = extract([first, second, orphan], unit="conversation")
    assert [tool.name for tool in run.available_tools] == ["x"]
    assert run.golden_id == "g1"
    assert (run.health.dropped_attributes, run.health.orphan_spans) == (5, 1)


def test_a_conversation_sums_the_late_spans_of_its_requests() -> None:
    spans = []
    for number in (1, 2):
        request = agent("a", asked="Hello", start_ns=1_000, end_ns=10**9, **SESSION, **in_trace(number))
        late = {"start_ns": 2 * 10**9, **inside(request)}
        spans += [request, tool("x", {"n": 1}, **late), tool("y", {"n": 1}, **late)]
    (run,) = extract(spans, unit="conversation")
    assert run.health.began_late == 4
