"""Runs of coding agents that export OTLP log events.

The events follow the documentation of Claude Code (code.claude.com/docs/en/monitoring-usage), `codex-rs/otel/src/
events/session_telemetry.rs` of Codex, and `packages/core/src/telemetry/types.ts` of Gemini CLI and Qwen Code.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

import goldspan
from goldspan.extraction import extract
from goldspan.model import LogRecord, Run, SpanEvent, ToolCall
from support.span_builders import span

SECOND = 1_000_000_000


RAN = "Chunk ID: 94d7b3\nWall time: 0.1702 seconds\nProcess exited with code"
"""The header that Codex writes before the output of a command, up to the exit code."""


def claude(event: str, at: float, **attributes: Any) -> LogRecord:
    """An event of Claude Code: the short name is an attribute, the full name is the body."""
    return log(event, at, body=f"claude_code.{event}", session__id="s", **attributes)


def codex(event: str, at: float, **attributes: Any) -> LogRecord:
    """An event of Codex: its tracing library sets the event name to a source location."""
    record = log(f"codex.{event}", at, conversation__id="c", **attributes)
    return LogRecord("event otel/src/events/session_telemetry.rs:861", record.attributes, time_ns=record.time_ns)


def gemini(event: str, at: float, *, agent: str = "gemini_cli", **attributes: Any) -> LogRecord:
    return log(f"{agent}.{event}", at, body="Some words.", session__id="s", **attributes)


def log(name: str, at: float, *, body: str | None = None, trace: str | None = None, **attributes: Any) -> LogRecord:
    """A log record at a time in seconds. Double underscores stand for dots."""
    named = {key.replace("__", "."): value for key, value in attributes.items()}
    return LogRecord(name, {"event.name": name, **named}, body, trace, time_ns=int(at * SECOND))


def only_call(*records: LogRecord) -> ToolCall:
    [run] = extract(records)
    [call] = run.tool_calls
    return call


def summary(runs: list[Run]) -> list[tuple[str | None, str | None, tuple[str, ...]]]:
    return [(run.input, run.session_id, run.tools_used) for run in runs]


PIECES = json.dumps(
    [{"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}}]} for text in ("Two ", "files.")]
)
"""One response as Gemini CLI records it: all chunks of the stream."""
SESSIONS = {
    "claude": [
        claude("user_prompt", 1, prompt="Fix the test."),
        claude("tool_decision", 2, tool_name="Read", tool_use_id="1", decision="accept", source="config"),
        claude("tool_result", 3, tool_name="Read", tool_use_id="1", success="true", duration_ms=500),
        claude("api_request", 3.5, model="some-model", duration_ms=900),
        claude("user_prompt", 5, prompt="Now commit."),
        claude("tool_result", 8, tool_name="Bash", tool_use_id="2", success="true", duration_ms=1000),
    ],
    "codex": [
        codex("conversation_starts", 0, model="some-model"),
        codex("user_prompt", 1, prompt="Fix the test."),
        codex("tool_decision", 2, tool_name="Read", call_id="1", decision="approved", source="config"),
        codex("tool_result", 3, tool_name="Read", call_id="1", success="true", duration_ms="500", output="code"),
        codex("sse_event", 4, event__kind="response.completed"),
        codex("user_prompt", 5, prompt="Now commit."),
        codex("tool_result", 8, tool_name="Bash", call_id="2", success="true", duration_ms="1000"),
    ],
    "gemini": [
        gemini("user_prompt", 1, prompt="Fix the test.", prompt_id="s########0"),
        gemini("tool_call", 3, function_name="Read", success=True, decision="auto_accept", duration_ms=500),
        gemini("api_response", 4, model="some-model"),
        gemini("user_prompt", 5, prompt="Now commit.", prompt_id="s########1"),
        gemini("tool_call", 8, function_name="Bash", success=True, decision="accept", duration_ms=1000),
    ],
    "qwen": [
        gemini("user_prompt", 1, agent="qwen-code", prompt="Fix the test."),
        gemini("tool_call", 3, agent="qwen-code", function_name="Read", success=True, status="success"),
        gemini("user_prompt", 5, agent="qwen-code", prompt="Now commit."),
        gemini("tool_call", 8, agent="qwen-code", function_name="Bash", success=True, status="success"),
    ],
}


@pytest.mark.parametrize("agent", SESSIONS)
def test_each_prompt_of_a_session_is_a_request_with_the_tools_that_follow_it(agent: str) -> None:
    session = "c" if agent == "codex" else "s"
    assert summary(extract(SESSIONS[agent])) == [
        ("Fix the test.", session, ("Read",)),
        ("Now commit.", session, ("Bash",)),
    ]


@pytest.mark.parametrize("agent", SESSIONS)
def test_order_and_repetition_of_log_events_do_not_change_the_runs(agent: str) -> None:
    runs = extract(SESSIONS[agent])
    for order in list(permutations(SESSIONS[agent][:4]))[::5]:
        assert extract([*SESSIONS[agent][4:], *order, *order]) == runs


def test_concurrent_sessions_are_separate() -> None:
    other = [
        log("user_prompt", 1.5, body="claude_code.user_prompt", session__id="t", prompt="Write docs."),
        log("tool_result", 2.5, body="claude_code.tool_result", session__id="t", tool_name="Write", success="true"),
    ]
    assert sorted(summary(extract([*SESSIONS["claude"], *other]))) == [
        ("Fix the test.", "s", ("Read",)),
        ("Now commit.", "s", ("Bash",)),
        ("Write docs.", "t", ("Write",)),
    ]


def test_a_tool_that_starts_at_the_time_of_a_prompt_belongs_to_that_prompt() -> None:
    for name in ("Read", "Bash", "Grep", "Edit"):
        records = [
            claude("user_prompt", 1, prompt="one"),
            claude("user_prompt", 5, prompt="two"),
            claude("tool_result", 5, tool_name=name, success="true", duration_ms=0),
        ]
        assert summary(extract(records)) == [("one", "s", ()), ("two", "s", (name,))]


def test_calls_are_ordered_by_start_time_and_know_their_concurrent_calls() -> None:
    [run] = extract(
        [
            claude("user_prompt", 1, prompt="go"),
            claude("tool_result", 4, tool_name="Grep", tool_use_id="b", success="true", duration_ms=1000),
            claude("tool_result", 5, tool_name="Bash", tool_use_id="a", success="true", duration_ms=3000),
            claude("tool_result", 7, tool_name="Edit", tool_use_id="c", success="true", duration_ms=1000),
        ]
    )
    assert [(call.name, call.concurrent_with) for call in run.tool_calls] == [
        ("Bash", (1,)),
        ("Grep", (0,)),
        ("Edit", ()),
    ]


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(
            [claude("tool_decision", 2, tool_name="Bash", decision="reject", source="user_reject")], id="claude"
        ),
        pytest.param(
            [
                claude("tool_decision", 2, tool_name="Bash", tool_use_id="1", decision="reject"),
                claude("tool_result", 3, tool_name="Bash", tool_use_id="1", decision_type="reject", success="false"),
            ],
            id="claude, with a result",
        ),
        pytest.param(
            [
                codex("tool_decision", 2, tool_name="Bash", call_id="1", decision="denied", source="user"),
                codex(
                    "tool_result", 3, tool_name="Bash", call_id="1", success="false", duration_ms="1500", output="no"
                ),
            ],
            id="codex",
        ),
        pytest.param(
            [
                codex("tool_decision", 2.9999, tool_name="Bash", call_id="1", decision="abort", source="config"),
                codex("tool_result", 3, tool_name="Bash", call_id="1", success="false", duration_ms="0", output="no"),
            ],
            id="codex, at once",
        ),
        pytest.param([gemini("tool_call", 2, function_name="Bash", success=False, decision="reject")], id="gemini"),
        pytest.param(
            [gemini("tool_call", 2, function_name="Bash", success=False, error_type="execution_denied")],
            id="qwen, by a rule",
        ),
    ],
)
def test_a_denied_call_is_kept_once_and_is_not_a_used_tool(records: list[LogRecord]) -> None:
    [run] = extract([claude("user_prompt", 1, prompt="go"), *records] if records[0].body else records)
    assert [(call.name, call.outcome, call.was_made) for call in run.tool_calls] == [("Bash", "denied", False)]
    assert run.tools_used == ()


@pytest.mark.parametrize(
    ("record", "error"),
    [
        (claude("tool_result", 2, tool_name="Read", success="false", error_type="Error:ENOENT"), "Error:ENOENT"),
        (claude("tool_result", 2, tool_name="Read", success="false", error="no such file"), "no such file"),
        (claude("tool_result", 2, tool_name="Read", success="false"), "error"),
        (codex("tool_result", 2, tool_name="Read", success="false", output="no such file"), "no such file"),
        (gemini("tool_call", 2, function_name="Read", success=False, error="no such file"), "no such file"),
        (gemini("tool_call", 2, function_name="Read", success=False, error_type="file_not_found"), "file_not_found"),
        (gemini("tool_call", 2, function_name="Read", success=True), None),
        # A shell command that failed, as Codex 0.169 and Gemini CLI 0.61 report it.
        (
            codex("tool_result", 2, tool_name="sh", success="true", output=f"{RAN} 1\nOutput:\nno such file"),
            "no such file",
        ),
        (codex("tool_result", 2, tool_name="sh", success="true", output=f"{RAN} -1\nOutput:\n"), "exit code -1"),
        (codex("tool_result", 2, tool_name="sh", success="true", output=f"{RAN} 0\nOutput:\n{RAN} 1\nOutput:\n"), None),
        (codex("tool_result", 2, tool_name="sh", success="true", output=f"It says:\n{RAN} 1\nOutput:\n"), None),
        (
            gemini("tool_call", 2, function_name="sh", success=True, metadata='{"exitCode": 2, "isError": true}'),
            "exit code 2",
        ),
        (gemini("tool_call", 2, function_name="sh", success=True, metadata='{"isError": true}'), "error"),
        (gemini("tool_call", 2, function_name="sh", success=True, metadata='{"exitCode": 0, "isError": false}'), None),
        (claude("tool_result", 2, tool_name="Read", success="true"), None),
    ],
)
def test_the_event_of_a_call_determines_its_error(record: LogRecord, error: str | None) -> None:
    call = only_call(record)
    assert (call.error, call.outcome) == (error, "ok" if error is None else "error")


@pytest.mark.parametrize(
    ("record", "name", "server"),
    [
        (claude("tool_result", 2, tool_name="mcp__github__list_issues"), "list_issues", "github"),
        (
            claude(
                "tool_result",
                2,
                tool_name="mcp_tool",
                tool_parameters='{"mcp_server_name": "github", "mcp_tool_name": "list_issues"}',
            ),
            "list_issues",
            "github",
        ),
        (codex("tool_result", 2, tool_name="list_issues", mcp_server="github"), "list_issues", "github"),
        (codex("tool_result", 2, tool_name="shell", mcp_server=""), "shell", None),
        (gemini("tool_call", 2, function_name="list_issues", mcp_server_name="github"), "list_issues", "github"),
        (gemini("tool_call", 2, function_name="mcp_my_hub_list", mcp_server_name="my-hub"), "list", "my-hub"),
        (gemini("tool_call", 2, function_name="github_issues", mcp_server_name="github"), "github_issues", "github"),
    ],
)
def test_an_mcp_tool_has_its_own_name_and_its_server(record: LogRecord, name: str, server: str | None) -> None:
    call = only_call(record)
    assert (call.name, call.server) == (name, server)


@pytest.mark.parametrize(
    ("record", "arguments"),
    [
        (claude("tool_result", 2, tool_name="Read", tool_input='{"file_path": "a.py"}'), {"file_path": "a.py"}),
        (
            claude(
                "tool_result",
                2,
                tool_name="Bash",
                tool_parameters='{"bash_command": "ls", "full_command": "ls -l", "description": "List", "timeout": 5}',
            ),
            {"command": "ls -l", "description": "List", "timeout": 5},
        ),
        (claude("tool_result", 2, tool_name="Skill", tool_parameters='{"skill_name": "pdf"}'), None),
        (codex("tool_result", 2, tool_name="shell", arguments='{"command": ["ls"]}'), {"command": ["ls"]}),
        (gemini("tool_call", 2, function_name="ls", function_args='{\n  "path": "."\n}'), {"path": "."}),
    ],
)
def test_arguments_of_log_events_are_read(record: LogRecord, arguments: Any) -> None:
    assert only_call(record).arguments == arguments


def test_a_redacted_prompt_is_none() -> None:
    hidden = ("<REDACTED>", "[REDACTED]", None)
    for index, prompt in enumerate(hidden):
        [run] = extract([log("codex.user_prompt", 1, conversation__id=f"c{index}", prompt=prompt)])
        assert run.input is None


def test_a_subagent_of_claude_code_is_a_call_of_kind_agent() -> None:
    call = only_call(claude("tool_result", 2, tool_name="Task", tool_input='{"subagent_type": "reviewer"}'))
    assert (call.kind, call.arguments) == ("agent", {"subagent_type": "reviewer"})


def interaction(*, decision: str = "accept", success: str = "true") -> list[Any]:
    """The spans of one prompt, as the tracing beta of Claude Code exports them."""
    root = span("claude_code.interaction", span__type="interaction", session__id="s", user_prompt="Fix the test.")
    tool = span("claude_code.tool", parent_id=root.span_id, span__type="tool", tool_name="Bash")
    asked = span(
        "claude_code.tool.blocked_on_user",
        parent_id=tool.span_id,
        span__type="tool.blocked_on_user",
        decision=decision,
    )
    ran = span(
        "claude_code.tool.execution",
        parent_id=tool.span_id,
        span__type="tool.execution",
        success=success,
        error=None if success == "true" else "ShellError",
    )
    model = span("claude_code.llm_request", parent_id=root.span_id, span__type="llm_request", success="true")
    return [root, tool, asked, *([ran] if decision == "accept" else []), model]


@pytest.mark.parametrize(
    ("spans", "outcome", "error"),
    [
        pytest.param(interaction(), "ok", None, id="ran"),
        pytest.param(interaction(success="false"), "error", "ShellError", id="failed"),
        pytest.param(interaction(decision="reject"), "denied", None, id="denied"),
    ],
)
def test_child_spans_of_a_tool_span_determine_the_outcome_of_its_call(
    spans: list[Any], outcome: str, error: str | None
) -> None:
    [run] = extract(spans)
    assert (run.input, run.session_id) == ("Fix the test.", "s")
    assert [(call.name, call.outcome, call.error) for call in run.tool_calls] == [("Bash", outcome, error)]


def test_the_span_and_the_log_event_of_one_call_are_one_call() -> None:
    spans = interaction()
    tool = spans[1]
    event = LogRecord(
        "tool_result",
        {
            "event.name": "tool_result",
            "session.id": "s",
            "tool_name": "Bash",
            "tool_use_id": "t1",
            "tool_input": '{"command": "ls"}',
            "success": "true",
        },
        "claude_code.tool_result",
        tool.trace_id,
        tool.span_id,
        tool.end_ns,
    )
    [run] = extract([*spans, event])
    assert [(call.name, call.arguments, call.call_id) for call in run.tool_calls] == [("Bash", {"command": "ls"}, "t1")]


def test_spans_and_log_events_without_common_ids_are_one_request() -> None:
    spans = [replace(one, scope="com.anthropic.claude_code.tracing") for one in interaction()]
    start = (spans[0].start_ns or 0) / SECOND
    events = [
        claude("user_prompt", start, prompt="Fix the test."),
        claude("tool_result", start + 0.011, tool_name="Bash", tool_use_id="1", success="true", duration_ms=1),
    ]
    [run] = extract([*spans, *(replace(event, scope="com.anthropic.claude_code.events") for event in events)])
    assert (run.tools_used, run.health.merged) == (("Bash",), 1)


def test_spans_that_only_share_an_attribute_with_a_coding_agent_yield_no_runs() -> None:
    others = [
        span("work", span__type="tool", tool_name="x"),
        span("work", span__type="interaction"),
        span("work", body="claude_code"),
    ]
    assert extract(others) == []


def test_the_messages_of_gemini_cli_are_read_with_its_tools() -> None:
    said = [{"role": "model", "parts": [{"type": "tool_call", "name": "ls", "arguments": {"path": "."}}]}]
    done = [{"role": "model", "parts": [{"type": "text", "content": "Two files."}]}]
    [run] = extract(
        [
            gemini("user_prompt", 1, prompt="What is here?"),
            _details(2, said),
            gemini("tool_call", 3, function_name="ls", function_args='{"path": "."}', success=True, duration_ms=100),
            _details(4, done),
        ]
    )
    assert [(call.name, call.evidence) for call in run.tool_calls] == [("ls", "executed")]
    assert (run.input, run.output) == ("What is here?", "Two files.")


def _details(at: float, output: Any) -> LogRecord:
    return log(
        "gen_ai.client.inference.operation.details",
        at,
        body="GenAI operation response",
        session__id="s",
        gen_ai__operation__name="generate_content",
        gen_ai__output__messages=json.dumps(output),
    )


@pytest.mark.parametrize(
    ("agent", "response", "output"),
    [
        pytest.param("gemini_cli", {"role": "main", "response_text": PIECES}, "Two files.", id="pieces"),
        pytest.param("gemini_cli", {"role": "utility_router", "response_text": PIECES}, None, id="to the program"),
        pytest.param("gemini_cli", {"response_text": PIECES}, None, id="to nobody knows whom"),
        pytest.param("gemini_cli", {"role": "main"}, None, id="left out"),
        pytest.param("qwen-code", {"response_text": "Two files."}, "Two files.", id="words"),
        pytest.param("qwen-code", {"response_text": "Two files.", "subagent_name": "finder"}, None, id="to an agent"),
    ],
)
def test_the_text_of_a_model_response_is_the_output(agent: str, response: dict[str, str], output: str | None) -> None:
    prompt = gemini("user_prompt", 1, agent=agent, prompt="What is here?")
    [run] = extract([prompt, gemini("api_response", 2, agent=agent, **response)])
    assert run.output == output


def test_a_session_is_kept_together_even_if_each_event_has_its_own_trace() -> None:
    # Recorded with Gemini CLI 0.61: prompts are in no trace, each call is in one that has spans as well.
    spans = [span("schedule_tool_calls", trace_id=digit * 32, gen_ai__agent__name="gemini-cli") for digit in "ab"]
    calls = [
        replace(gemini("tool_call", at, function_name=name, success=True), trace_id=one.trace_id, span_id=one.span_id)
        for at, name, one in zip((3, 8), ("Read", "Bash"), spans, strict=True)
    ]
    asked = replace(_details(2, []), trace_id="c" * 32, span_id="d" * 16)
    prompts = [gemini("user_prompt", 1, prompt="Fix the test."), gemini("user_prompt", 5, prompt="Now commit.")]
    assert summary(extract([*spans, *calls, asked, *prompts])) == [
        ("Fix the test.", "s", ("Read",)),
        ("Now commit.", "s", ("Bash",)),
    ]


def test_the_result_of_a_codex_tool_is_the_tool_output_without_the_header() -> None:
    assert (
        only_call(codex("tool_result", 2, tool_name="sh", output=f"{RAN} 0\nOutput:\nL2 is free\n")).result
        == "L2 is free\n"
    )
    assert only_call(codex("tool_result", 2, tool_name="find", output="Wall time: 1 s\nOutput:\n[1, 2]")).result == [
        1,
        2,
    ]
    assert only_call(codex("tool_result", 2, tool_name="read", output="Output:\nwords")).result == "Output:\nwords"


def test_an_internal_model_request_of_claude_code_is_not_a_request_of_a_user() -> None:
    assert extract([span("claude_code.llm_request", span__type="llm_request", gen_ai__request__model="m")]) == []


def test_a_collector_file_of_logs_yields_the_runs(tmp_path: Path) -> None:
    lines = [
        {"resourceLogs": [{"scopeLogs": [{"logRecords": [_otlp(record)]}]}]}
        for record in [*SESSIONS["claude"], *SESSIONS["codex"]]
    ]
    path = tmp_path / "logs.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert sorted(summary(list(goldspan.load_runs(path)))) == [
        ("Fix the test.", "c", ("Read",)),
        ("Fix the test.", "s", ("Read",)),
        ("Now commit.", "c", ("Bash",)),
        ("Now commit.", "s", ("Bash",)),
    ]


def _otlp(record: LogRecord) -> dict[str, Any]:
    attributes = [{"key": key, "value": {"stringValue": str(value)}} for key, value in record.attributes.items()]
    written: dict[str, Any] = {"observedTimeUnixNano": str(record.time_ns), "attributes": attributes}
    if record.name != record.attributes["event.name"]:
        written["eventName"] = record.name
    if record.body is not None:
        written["body"] = {"stringValue": record.body}
    return written


def test_the_last_response_of_claude_is_the_output_of_the_prompt_before_it() -> None:
    runs = extract(
        [
            claude("user_prompt", 1, prompt="Fix the test."),
            claude("assistant_response", 2, response="I shall read it.", query_source="sdk"),
            claude("tool_result", 3, tool_name="Read", tool_use_id="1", success="true", duration_ms=500),
            claude("assistant_response", 4, response="Fixed.", query_source="sdk"),
            claude("assistant_response", 4.5, response="Nothing found.", query_source="agent:explore"),
            claude("user_prompt", 5, prompt="Now commit."),
            claude("assistant_response", 6, response="<REDACTED>", query_source="sdk"),
        ]
    )
    assert [(run.input, run.output, run.tools_used) for run in runs] == [
        ("Fix the test.", "Fixed.", ("Read",)),
        ("Now commit.", None, ()),
    ]


def test_a_tool_output_event_of_a_span_is_the_result_of_the_call() -> None:
    # With OTEL_LOG_TOOL_CONTENT=1 and CLAUDE_CODE_ENHANCED_TELEMETRY_BETA=1, recorded with Claude Code 2.
    shown = SpanEvent("tool.output", {"output": "2 passed"})
    named = {"span__type": "tool", "tool_name": "Bash", "gen_ai__operation__name": "execute_tool"}
    [run] = extract([span("claude_code.tool", **named, events=(shown,))])
    assert [(call.name, call.result) for call in run.tool_calls] == [("Bash", "2 passed")]
