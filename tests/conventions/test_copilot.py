"""GitHub Copilot: exports of its command line and its SDK (1.0.41 to 1.0.102), and the source of Copilot Chat."""

from __future__ import annotations

from typing import Any

import pytest

from goldspan.extraction import extract
from goldspan.model import LogRecord, SpanRecord, ToolCall
from support.span_builders import agent, answers, asks_for, in_trace, inside, messages, model, says, span, tool, user

NOW = "<current_datetime>2026-11-20T14:46:30.540+00:00</current_datetime>"
IN_VS_CODE = "<context>\nIt is Friday.\n</context>\n<userRequest>\nFind rooms.\n</userRequest>"
NOTIFIED = '<system_notification>\nShell command "Slow" (shellId: 0) has completed.\n</system_notification>'
LISTED = "<system_reminder>\n<sql_tables>Available tables: todos</sql_tables>\n</system_reminder>"
NO_FILE = "no file\n<shellId: 0 completed with exit code 1>"
PLANNING = "<mode_changed_notice>\n\n<plan_mode>\nPlan first.\n</plan_mode>\n\n</mode_changed_notice>\n\n[[PLAN]]"
CLI: dict[str, Any] = {
    "scope": "github.copilot",
    "gen_ai__provider__name": "github",
    "resource": {"service.name": "github-copilot"},
}


def turn(*prompts: str, **more: Any) -> SpanRecord:
    """A request as the command line records it, with an agent without a name."""
    asked = messages(*map(user, prompts)) if prompts else None
    said = {} if asked is None else {"gen_ai__input__messages": asked}
    return span(
        "invoke_agent",
        gen_ai__operation__name="invoke_agent",
        github__copilot__agent__type="builtin",
        **{**CLI, **said, **more},
    )


def call_of(name: str, **more: Any) -> ToolCall:
    """The call of a request with only this tool."""
    request = turn("Go.")
    [run] = extract([request, tool(name, {"a": 1}, **inside(request), **{**CLI, **more})])
    [call] = run.tool_calls
    return call


@pytest.mark.parametrize(
    ("prompt", "typed"),
    [
        pytest.param("Find rooms.", "Find rooms.", id="as it is"),
        pytest.param(f"{NOW}\n\nFind rooms.", "Find rooms.", id="after the time"),
        pytest.param(f"{NOW}\n\nFind rooms.\n\n{LISTED}", "Find rooms.", id="between notices"),
        pytest.param(f"{NOW}\n\n{PLANNING} Find rooms.", "Find rooms.", id="in plan mode"),
        pytest.param(f"{NOW}\n\nWhat is <reminder>?", "What is <reminder>?", id="a tag of the user's"),
        pytest.param("<order>7</order>\nCheck it.", "<order>7</order>\nCheck it.", id="an element of the user's"),
        pytest.param(f"{NOW}\n\n<reminder>Check", "<reminder>Check", id="a notice cut off"),
        pytest.param("Say </reminder>", "Say </reminder>", id="the end of a notice alone"),
        pytest.param(
            "<context>\nIt is Friday.\n</context>\n<userRequest>\nFind rooms.\n</userRequest>",
            "Find rooms.",
            id="VS Code",
        ),
    ],
)
def test_the_input_is_the_text_that_the_user_typed(prompt: str, typed: str) -> None:
    [run] = extract([turn(prompt)])
    assert run.input == typed


def test_the_model_span_gives_the_input_if_the_agent_span_is_lost() -> None:
    [run] = extract([model(asked=[user(f"{NOW}\n\nFind rooms.")], github__copilot__turn_id="0", **CLI)])
    assert run.input == "Find rooms."


def test_a_notification_is_not_an_input() -> None:
    asked, notified = extract([turn(f"{NOW}\n\nFind rooms.", NOTIFIED), turn(NOTIFIED, trace_id="f" * 32)])
    assert (asked.input, notified.input) == ("Find rooms.", None)


def test_a_turn_after_a_notification_belongs_to_the_original_request() -> None:
    # The runtime of 1.0.102: the shell of an earlier call ends, and the agent takes a turn in a new trace.
    spans = [
        *_served("Wait for the shell.", "I wait.", interaction="i1", number=1),
        *_served("What else?", "Nothing.", interaction="i2", number=2),
        *_served(NOTIFIED, "It is done.", interaction="i1", number=3),
    ]
    waited, other = extract(spans)
    assert (waited.input, waited.output, len(waited.trace_ids)) == ("Wait for the shell.", "It is done.", 2)
    assert (other.input, other.output) == ("What else?", "Nothing.")


def _served(prompt: str, answer: str, *, interaction: str, number: int) -> list[SpanRecord]:
    told = {"gen_ai__output__messages": messages(says(answer)), "gen_ai__conversation__id": "s1"}
    request = turn(prompt, **in_trace(number), **told)
    step = {**inside(request), **CLI, "github__copilot__interaction_id": interaction}
    return [request, model(asked=[user(prompt)], answered=[says(answer)], **step)]


@pytest.mark.parametrize(
    "attributes",
    [
        {"copilot_chat__user_request": "Find rooms."},
        {"copilot_chat__user_request": IN_VS_CODE},
    ],
)
def test_the_input_of_vs_code_is_read_from_each_of_its_attributes(attributes: dict[str, str]) -> None:
    asked = {"asked": "<context>\nFriday.\n</context>", "scope": "copilot-chat"}
    [run] = extract([agent("GitHub Copilot Chat", **asked, **attributes)])
    assert run.input == "Find rooms."


def test_duplicate_spans_are_one_call_and_duplicate_texts_are_one_output() -> None:
    # The runtime of the SDK 1.0.14 writes a second span for each span, without result and error.
    words = {"type": "text", "content": "Rooms found."}
    request = turn("Find rooms.", gen_ai__output__messages=messages({"role": "assistant", "parts": [words, words]}))
    twice = {**inside(request), **CLI, "gen_ai__tool__call__id": "c1", "start_ns": request.start_ns}
    spans = [
        request,
        tool("find", {"city": "Oslo"}, **twice),
        tool("find", {"city": "Oslo"}, **twice, error__type="denied", status="error", status_message="Not today."),
    ]
    [run] = extract(spans)
    assert run.output == "Rooms found."
    assert [(call.name, call.outcome, call.error) for call in run.tool_calls] == [("find", "denied", "Not today.")]


@pytest.mark.parametrize(
    ("attributes", "outcome"),
    [
        ({"error__type": "denied"}, "denied"),
        ({"error__type": "ToolError"}, "error"),
        ({"error__type": "denied", "scope": "my-scope"}, "denied"),
        ({"error__type": "denied", "scope": "my-scope", "gen_ai__provider__name": "openai"}, "denied"),
    ],
)
def test_a_call_without_permission_is_denied(attributes: dict[str, Any], outcome: str) -> None:
    assert call_of("bash", **attributes, status="error", status_message="Tool failed").outcome == outcome


def test_a_denied_error_of_another_agent_is_an_error_of_its_tool() -> None:
    request = agent("bank", asked="Pay.")
    [run] = extract([request, tool("pay", **inside(request), error__type="denied", status="error")])
    assert [call.outcome for call in run.tool_calls] == ["error"]


@pytest.mark.parametrize(
    ("attributes", "error", "result"),
    [
        pytest.param({"process__exit__code": 2}, "exit code 2", None, id="no content"),
        pytest.param({"process__exit__code": 0}, None, None, id="no content, went well"),
        pytest.param(
            {
                "process__exit__code": 1,
                "gen_ai__tool__call__result": "no file\n<shellId: 0 completed with exit code 1>",
            },
            "no file",
            "no file",
            id="1.0.102",
        ),
        pytest.param(
            {"gen_ai__tool__call__result": "no file\n<exited with exit code 1>"}, "no file", "no file", id="1.0.41"
        ),
        pytest.param({"gen_ai__tool__call__result": "<exited with exit code 1>"}, "exit code 1", "", id="silent"),
        pytest.param({"gen_ai__tool__call__result": "2 files\n<exited with exit code 0>"}, None, "2 files", id="ok"),
    ],
)
def test_a_shell_command_with_a_nonzero_exit_code_failed(
    attributes: dict[str, Any], error: str | None, result: str | None
) -> None:
    call = call_of("bash", **attributes)
    assert (call.error, call.result) == (error, result)


def test_reading_the_output_of_a_failed_command_is_not_a_failure() -> None:
    for name in ("read_bash", "view"):
        call = call_of(name, gen_ai__tool__call__result=NO_FILE)
        assert (call.outcome, call.result) == ("ok", NO_FILE)


@pytest.mark.parametrize(
    "attributes",
    [
        {"github__copilot__tool__parameters__mcp_server_name": "hotels"},
        {},  # only the hash of the server's name
    ],
)
def test_an_mcp_tool_has_its_own_name_and_its_server(attributes: dict[str, str]) -> None:
    call = call_of("hotels-book_hotel", github__copilot__tool__parameters__mcp_tool_name="book_hotel", **attributes)
    assert (call.name, call.server) == ("book_hotel", "hotels")


def test_a_call_and_the_message_that_requested_it_are_one_call() -> None:
    request = turn("Book.")
    name = "hotels-book_hotel"
    spans = [
        request,
        model(answered=[asks_for(name, {"a": 1}, "c1")], **inside(request), github__copilot__turn_id="0", **CLI),
        tool(
            name,
            {"a": 1},
            **inside(request),
            **CLI,
            gen_ai__tool__call__id="c1",
            github__copilot__tool__parameters__mcp_server_name="hotels",
            github__copilot__tool__parameters__mcp_tool_name="book_hotel",
        ),
        model(asked=[answers("c1", "booked")], **inside(request), github__copilot__turn_id="1", **CLI),
    ]
    [run] = extract(spans)
    assert [(call.name, call.server, call.result) for call in run.tool_calls] == [("book_hotel", "hotels", "booked")]


def test_log_events_that_repeat_the_genai_spans_add_nothing() -> None:
    # After src/platform/otel/common/genAiEvents.ts of vscode-copilot-chat.
    request = agent("Copilot", asked="Fix it.")
    call = tool("read_file", {"path": "a.py"}, parent_id=request.span_id)
    events = [
        _event("session.start", request.trace_id, **{"gen_ai.agent.name": "Copilot"}),
        _event("tool.call", request.trace_id, **{"gen_ai.tool.name": "read_file", "success": True}),
        _event("session.start", None),
    ]
    [run] = extract([request, call, *events])
    assert run.tools_used == ("read_file",)


def _event(name: str, trace: str | None, **attributes: Any) -> LogRecord:
    told = {"event.name": f"copilot_chat.{name}", "session.id": "s", "gen_ai.request.model": "gpt", **attributes}
    return LogRecord(told["event.name"], told, None, trace, time_ns=1_000_000_000)
