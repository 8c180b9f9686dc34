"""Runs extracted from exports of real agents, compared with the calls that the tools recorded.

The payloads in `fixtures/captures` are OTLP exports of real frameworks driven by scripted models.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import goldspan
from goldspan.extraction import extract
from goldspan.otlp.trace_files import read_records

CAPTURES = Path(__file__).parent.parent / "fixtures" / "captures"
PATHS = {path.name.partition(".")[0]: path for path in sorted(CAPTURES.iterdir())}
EVERY = list(PATHS)


def runs_of(name: str) -> list[goldspan.Run]:
    return list(goldspan.load_runs(PATHS[name]))


@pytest.mark.parametrize(
    ("capture", "tools_used"),
    [
        ("genai-agent-as-tool", [["convert_currency", "search_docs", "fetch_doc", "save_note"]]),
        (
            "genai-two-requests-in-one-trace",
            [["slow_lookup", "slow_lookup", "get_weather"], ["get_weather", "slow_lookup", "slow_lookup"]],
        ),
        ("genai-conversation", [["get_weather"], ["get_weather", "convert_currency"], []]),
        ("genai-mcp", [["orders_lookup_order", "orders_add"]]),
        ("genai-retry", [["book_hotel", "book_hotel"]]),
        ("openinference-handoff", [["get_weather", "search_docs"]]),
        ("openinference-client-retry", [["book_hotel", "book_hotel"]]),
        ("openinference-client-repeated", [["get_weather", "get_weather", "get_weather"]]),
        ("traceloop-client-agent-as-tool", [["convert_currency", "search_docs", "fetch_doc", "save_note"]]),
        ("traceloop-client-parallel", [["slow_lookup", "slow_lookup", "get_weather", "slow_lookup"]]),
        ("traceloop-decorators", [["convert_currency", "search_docs", "fetch_doc", "save_note"]]),
        ("any-agent", [["get_current_time", "write_file"]]),
        ("traceloop-flattened-messages", [["search_flights", "get_weather", "convert_currency"]]),
    ],
)
def test_each_request_has_exactly_its_used_tools_in_order(capture: str, tools_used: list[list[str]]) -> None:
    assert [list(run.tools_used) for run in runs_of(capture)] == tools_used


@pytest.mark.parametrize("capture", ["genai-agent-as-tool", "traceloop-client-agent-as-tool", "traceloop-decorators"])
def test_an_agent_called_as_a_tool_is_one_call_and_its_own_calls_name_it_as_their_agent(capture: str) -> None:
    (run,) = runs_of(capture)
    calls = {call.name: call for call in run.tool_calls}
    assert calls["research_agent"].kind == "agent"
    assert calls["fetch_doc"].agent == calls["search_docs"].agent == "research_agent"
    assert calls["save_note"].agent != "research_agent"
    assert [call.name for call in run.tool_calls].count("research_agent") == 1


def test_an_agent_after_a_handoff_continues_the_request() -> None:
    (run,) = runs_of("openinference-handoff")
    handoff = next(call for call in run.tool_calls if call.kind == "handoff")
    assert "research_agent" in handoff.name
    assert run.input == "I have a legal question about refunds, hand me over"
    assert run.output == "Handed over and answered: 30 days."


def test_the_input_of_a_later_turn_is_its_own_question_without_the_history() -> None:
    runs = runs_of("genai-conversation")
    assert [run.input for run in runs] == [
        "Hi, what is the weather in Kyoto?",
        "And Osaka? Also convert 100 EUR to JPY",
        "Thanks, that is all",
    ]
    assert {run.session_id for run in runs} == {"sess-42"}


def test_an_mcp_call_in_three_spans_is_one_call_with_its_arguments() -> None:
    (run,) = runs_of("genai-mcp")
    assert [call.arguments for call in run.tool_calls] == [{"order_id": "5512"}, {"a": 19, "b": 23}]
    assert run.health.merged >= 2


def test_the_spans_of_the_any_agent_library_give_arguments_results_and_input() -> None:
    (run,) = runs_of("any-agent")
    assert [call.arguments for call in run.tool_calls] == [{"timezone": "America/New_York"}, {"text": "2025"}]
    assert run.tool_calls[0].result is not None
    assert (run.input or "").startswith("Find what year it is in the America/New_York timezone")


def test_a_failed_attempt_keeps_its_error_and_its_arguments() -> None:
    (run,) = runs_of("genai-retry")
    first, second = run.tool_calls
    assert first.arguments == {"city": "Porto", "nights": 0}
    assert "nights must be >= 1" in (first.error or "")
    assert (second.arguments, second.error, second.outcome) == ({"city": "Porto", "nights": 2}, None, "ok")


def test_an_error_that_a_client_reports_only_as_text_is_an_error_guess() -> None:
    (run,) = runs_of("openinference-client-retry")
    first, second = run.tool_calls
    assert first.error is None
    assert first.error_guess == "Error: nights must be >= 1"
    assert second.error_guess is None
    assert {call.evidence for call in run.tool_calls} == {"requested"}


def test_calls_requested_in_one_message_are_concurrent() -> None:
    (run,) = runs_of("traceloop-client-parallel")
    assert [call.concurrent_with for call in run.tool_calls] == [(1, 2, 3), (0, 2, 3), (0, 1, 3), (0, 1, 2)]


def test_a_run_has_the_tool_definitions_of_its_agent() -> None:
    (run,) = runs_of("openinference-client-repeated")
    offered = {tool.name: tool for tool in run.available_tools}
    assert set(offered) == {
        "book_hotel",
        "convert_currency",
        "get_weather",
        "save_note",
        "search_flights",
        "slow_lookup",
    }
    assert offered["get_weather"].parameters is not None
    assert offered["get_weather"].description == "Get the current weather of a city."


@pytest.mark.parametrize("capture", EVERY)
def test_neither_order_nor_repetition_of_spans_changes_a_run(capture: str) -> None:
    spans = list(read_records([PATHS[capture]]))
    expected = extract(spans)
    shuffled = spans + spans[::2]
    random.Random(capture).shuffle(shuffled)
    assert extract(shuffled) == expected


@pytest.mark.parametrize("capture", EVERY)
def test_a_lost_span_raises_no_error_and_duplicates_no_call(capture: str) -> None:
    spans = list(read_records([PATHS[capture]]))
    whole = sum(len(run.tool_calls) for run in extract(spans))
    for lost in range(len(spans)):
        assert sum(len(run.tool_calls) for run in extract(spans[:lost] + spans[lost + 1 :])) <= whole


def test_a_run_id_consists_of_the_trace_id_and_the_span_id_of_the_request() -> None:
    for run in runs_of("genai-two-requests-in-one-trace"):
        assert run.run_id == f"{run.trace_ids[0]}:{run.span_id}"
