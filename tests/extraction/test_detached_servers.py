"""Spans of a tool server in a separate trace, because the context was not propagated."""

from __future__ import annotations

from goldspan.extraction import extract
from goldspan.model import SpanRecord
from support.span_builders import agent, span, tool

SERVER = 2


def server_span(name: str, trace: int, start: int, end: int) -> SpanRecord:
    return span(
        f"tools/call {name}",
        kind=SERVER,
        trace_id=f"{trace:032x}",
        start_ns=start,
        end_ns=end,
        mcp__method__name="tools/call",
        gen_ai__operation__name="execute_tool",
        gen_ai__tool__name=name,
    )


def request(trace: int, start: int, end: int) -> list[SpanRecord]:
    root = agent("a", asked="Add!", trace_id=f"{trace:032x}", start_ns=start, end_ns=end)
    call = tool(
        "orders_add",
        {"a": 1},
        trace_id=root.trace_id,
        parent_id=root.span_id,
        start_ns=start + 10_000_000,
        end_ns=end - 10_000_000,
    )
    return [root, call]


def test_a_detached_server_span_is_part_of_its_call_and_gives_the_server_name() -> None:
    (run,) = extract([*request(1, 0, 100_000_000), server_span("add", 2, 20_000_000, 80_000_000)])
    (call,) = run.tool_calls
    assert (call.name, call.server, call.arguments) == ("orders_add", "orders", {"a": 1})
    assert len(run.trace_ids) == 2


def test_a_detached_server_span_belongs_to_the_shortest_concurrent_call() -> None:
    long, short = request(1, 0, 900_000_000), request(2, 100_000_000, 300_000_000)
    runs = extract([*long, *short, server_span("add", 3, 150_000_000, 250_000_000)])
    assert [len(run.trace_ids) for run in runs] == [1, 2]


def test_a_server_span_without_a_matching_call_is_a_separate_request() -> None:
    runs = extract([*request(1, 0, 100_000_000), server_span("add", 2, 500_000_000, 600_000_000)])
    assert [run.tools_used for run in runs] == [("orders_add",), ("add",)]
    runs = extract([*request(1, 0, 100_000_000), server_span("subtract", 2, 20_000_000, 80_000_000)])
    assert [run.tools_used for run in runs] == [("orders_add",), ("subtract",)]
    (alone,) = extract([server_span("add", 2, 0, 1)])
    assert alone.tools_used == ("add",)


def test_a_server_span_without_times_is_a_separate_request() -> None:
    nowhere = server_span("add", 2, 0, 0)
    nowhere.start_ns = nowhere.end_ns = None
    assert len(extract([*request(1, 0, 100_000_000), nowhere])) == 2
