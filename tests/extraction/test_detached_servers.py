"""What a tool's server did in a trace of its own, because it lost hold of the context."""

from __future__ import annotations

from goldspan.extraction import extract
from goldspan.model import SpanRecord
from support.span_builders import agent, span, tool

SERVER = 2


def served(name: str, trace: int, start: int, end: int) -> SpanRecord:
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


def test_the_servers_part_of_a_call_is_no_request_of_its_own_and_tells_the_server() -> None:
    (run,) = extract([*request(1, 0, 100_000_000), served("add", 2, 20_000_000, 80_000_000)])
    (call,) = run.tool_calls
    assert (call.name, call.server, call.arguments) == ("orders_add", "orders", {"a": 1})
    assert len(run.trace_ids) == 2


def test_of_two_requests_at_once_the_shorter_call_around_it_is_that_of_the_server() -> None:
    long, short = request(1, 0, 900_000_000), request(2, 100_000_000, 300_000_000)
    runs = extract([*long, *short, served("add", 3, 150_000_000, 250_000_000)])
    assert [len(run.trace_ids) for run in runs] == [1, 2]


def test_a_server_that_nobody_is_known_to_have_called_is_seen_by_its_own_operator() -> None:
    runs = extract([*request(1, 0, 100_000_000), served("add", 2, 500_000_000, 600_000_000)])
    assert [run.tools_used for run in runs] == [("orders_add",), ("add",)]
    runs = extract([*request(1, 0, 100_000_000), served("subtract", 2, 20_000_000, 80_000_000)])
    assert [run.tools_used for run in runs] == [("orders_add",), ("subtract",)]
    (alone,) = extract([served("add", 2, 0, 1)])
    assert alone.tools_used == ("add",)


def test_a_server_without_times_is_given_to_nobody() -> None:
    nowhere = served("add", 2, 0, 0)
    nowhere.start_ns = nowhere.end_ns = None
    assert len(extract([*request(1, 0, 100_000_000), nowhere])) == 2
