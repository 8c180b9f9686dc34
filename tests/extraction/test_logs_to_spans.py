"""Log events: messages of received spans, messages of lost spans, and agents that export only log events."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from goldspan.extraction import extract
from goldspan.model import LogRecord, Run, SpanRecord, TelemetryRecord
from support.span_builders import TRACE, agent, answers, ask_for, inside, made, messages, model, span, tool


def only(records: list[Any]) -> Run:
    (run,) = extract(records)
    return run


def log_event(name: str, body: Any, during: SpanRecord | None = None, **facts: Any) -> LogRecord:
    """A log event written during a span."""
    place = {} if during is None else {"trace_id": during.trace_id, "span_id": during.span_id}
    return LogRecord(name, facts.pop("attributes", {}), body, **{"time_ns": 5, **place, **facts})


def choice(during: SpanRecord, call_id: str = "c1", name: str = "search", **facts: Any) -> LogRecord:
    """The event of a model response with a tool call."""
    function = {"name": name, "arguments": '{"q": 1}'}
    message = {"role": "assistant", "tool_calls": [{"id": call_id, "type": "function", "function": function}]}
    return log_event("gen_ai.choice", {"index": 0, "finish_reason": "tool_calls", "message": message}, during, **facts)


def silent_model(**facts: Any) -> SpanRecord:
    return span("chat", gen_ai__operation__name="chat", **facts)


def test_messages_in_log_events_belong_to_the_span_of_their_context() -> None:
    root = agent("a")
    asking = silent_model(**inside(root))
    executed = tool("search", **made("c1"), **inside(root))
    records: list[TelemetryRecord] = [
        root,
        asking,
        executed,
        log_event("gen_ai.system.message", {"content": "You help."}, asking, time_ns=1),
        log_event("gen_ai.user.message", {"content": "Find it"}, asking, time_ns=2),
        choice(asking, time_ns=3),
    ]
    for arranged in (records, records[::-1], records[3:] + records[:3]):
        run = only(arranged)
        assert run.input == "Find it"
        assert [(call.name, call.arguments, call.evidence) for call in run.tool_calls] == [
            ("search", {"q": 1}, "executed")
        ]


def test_a_conversation_in_one_log_event_is_read_like_the_same_span_event() -> None:
    asking = silent_model()
    details = {
        "gen_ai.input.messages": messages({"role": "user", "content": "Find it"}),
        "gen_ai.output.messages": messages(ask_for(("search", {"q": 1}, "c1"))),
    }
    name = "gen_ai.client.inference.operation.details"
    as_attributes = log_event(name, None, asking, attributes=details)
    as_body = log_event(name, details, asking)
    for told in (as_attributes, as_body):
        run = only([asking, told])
        assert (run.input, run.tools_used) == ("Find it", ("search",))


def test_log_events_of_a_lost_span_replace_it() -> None:
    lost = silent_model(parent_id=None)
    done = tool("search", {"q": 1}, **made("c1"), parent_id="f" * 16)
    run = only(
        [done, log_event("gen_ai.user.message", {"content": "Find it"}, lost, time_ns=1), choice(lost, time_ns=2)]
    )
    assert run.input == "Find it"
    assert [(call.name, call.evidence) for call in run.tool_calls] == [("search", "executed")]


def test_a_duplicate_log_event_counts_once() -> None:
    asking = silent_model()
    records = [asking, choice(asking, time_ns=1)]
    assert repr(only([*records, records[1]])) == repr(only(records))
    again = choice(asking, call_id="c2", time_ns=1)
    assert only([*records, again]).tools_used == ("search", "search")


def test_log_events_of_other_spans_and_other_kinds_change_nothing() -> None:
    root = agent("a")
    records: list[TelemetryRecord] = [root, tool("search", {"q": 1}, **inside(root))]
    noise = [
        log_event("http.request", {"url": "/"}, root),
        log_event("", "Connected.", root),
        log_event("gen_ai.evaluation.result", {"gen_ai.evaluation.name": "x"}, root),
        LogRecord("gen_ai.user.message", {}, {"content": "Nowhere"}),
    ]
    assert repr(only([*records, *noise])) == repr(only(records))


def codex(kind: str, at: int, **facts: Any) -> LogRecord:
    """An event of an agent that exports no spans."""
    return LogRecord(f"codex.{kind}", {"conversation.id": "s1", **facts}, time_ns=at * 1_000_000_000)


def test_an_agent_with_only_log_events_has_a_request_for_each_prompt() -> None:
    events = [
        codex("user_prompt", 1, prompt="Fix the test"),
        codex(
            "tool_result",
            3,
            tool_name="shell",
            call_id="c1",
            arguments='{"command": "ls"}',
            output="a.py",
            success="true",
        ),
        codex("tool_result", 4, tool_name="edit", call_id="c2", arguments="{}", output="no such file", success="false"),
        codex("user_prompt", 6, prompt="Thanks"),
        codex("tool_result", 8, tool_name="shell", call_id="c3", arguments="{}", success="true"),
    ]
    for arranged in (events, events[::-1], events + events):
        runs = extract(arranged)
        assert [(run.input, run.tools_used) for run in runs] == [
            ("Fix the test", ("shell", "edit")),
            ("Thanks", ("shell",)),
        ]
        assert [run.session_id for run in runs] == ["s1", "s1"]
        assert [call.error for call in runs[0].tool_calls] == [None, "no such file"]


def test_sessions_are_separate() -> None:
    events = [
        codex("user_prompt", 1, prompt="One"),
        replace(codex("user_prompt", 2, prompt="Two"), attributes={"conversation.id": "s2", "prompt": "Two"}),
        codex("tool_result", 3, tool_name="shell", arguments="{}"),
    ]
    assert [(run.input, run.tools_used) for run in extract(events)] == [("One", ("shell",)), ("Two", ())]


def test_the_duration_of_an_event_gives_the_start_and_the_concurrent_calls_of_its_tool() -> None:
    events = [
        codex("user_prompt", 1, prompt="Go"),
        codex("tool_result", 9, tool_name="slow", arguments="{}", duration_ms="6000"),
        codex("tool_result", 8, tool_name="quick", arguments="{}", duration_ms=1000),
    ]
    run = only(events)
    assert run.tools_used == ("slow", "quick")
    assert [call.concurrent_with for call in run.tool_calls] == [(1,), (0,)]


def test_a_denied_permission_is_a_denied_call() -> None:
    run = only(
        [
            codex("user_prompt", 1, prompt="Go"),
            codex("tool_decision", 2, tool_name="shell", call_id="c1", decision="denied"),
            codex("tool_decision", 3, tool_name="edit", call_id="c2", decision="approved"),
            codex("tool_result", 4, tool_name="edit", call_id="c2", arguments="{}", success="true"),
        ]
    )
    assert [(call.name, call.outcome) for call in run.tool_calls] == [("shell", "denied"), ("edit", "ok")]
    assert run.tools_used == ("edit",)


@pytest.mark.parametrize(
    "odd",
    [
        {"body": {1: 2, "a": 3}},
        {"body": {("a",): 1}},
        {"body": float("nan")},
        {"body": b"\xff"},
        {"body": '{"cut": "of'},
        {"attributes": {"a": object()}},
        {"attributes": {"session.id": "\ud800"}},
        {"trace_id": "\ud800"},
        {"time_ns": -1},
        {"time_ns": None},
        {"time_ns": 10**30},
    ],
    ids=lambda odd: str(odd) if "object at" not in str(odd) else "an object",
)
def test_any_log_record_is_read_without_an_error(odd: dict[str, Any]) -> None:
    for name in ("gen_ai.user.message", "codex.tool_result", ""):
        facts: dict[str, Any] = {
            "attributes": {"tool_name": "x", "conversation.id": "s"},
            "trace_id": TRACE,
            "span_id": "1",
        }
        facts |= odd
        log = LogRecord(name, **facts)
        extract([log, agent("a"), log])


def test_the_order_of_events_with_equal_times_is_ignored() -> None:
    asking = silent_model()
    events = [log_event("gen_ai.user.message", {"content": words}, asking, time_ns=7) for words in "abc"]
    assert len({repr(extract([asking, *arranged])) for arranged in permutations(events)}) == 1


def test_messages_in_both_a_span_and_its_log_events_are_read_once() -> None:
    asking = model(asked=[{"role": "user", "content": "Find it"}], answered=[ask_for(("search", {"q": 1}, "c1"))])
    run = only([asking, log_event("gen_ai.user.message", {"content": "Find it"}, asking), choice(asking)])
    assert run.tools_used == ("search",)
    told = model(asked=[{"role": "user", "content": "Find it"}, answers("c1", "There")])
    assert only([asking, choice(asking), told]).tool_calls[0].result == "There"
